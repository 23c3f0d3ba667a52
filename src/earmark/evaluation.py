"""A reference and what systems found -> every score, its interval, and how the systems differ.

Conventions: a system is known by its events, its tags, its score curves, or several of these, and
is scored in every way that they allow:

    segment     events      segment-based error rate and F-measure
    event       events      event-based error rate and F-measure
    clip        any         F-measure of tags (from events or tags), ranking (from curves)
    psds1       curves      PSDS of DCASE's scenario 1, exact times
    psds2       curves      PSDS of DCASE's scenario 2, the right class
    psds        curves      PSDS with settings of one's own, if they are given
    best_segment, best_event
                curves      the best that any threshold could reach

A reference of tags alone allows for `clip` only. The files of the reference are evaluated. The
classes are those of the reference and of all systems, so that every system is scored over the same
ones; what only one side names is told in `remarks`, never passed over in silence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from earmark.answers import Answer, Events, Tags, remarks_on
from earmark.errors import DataError, SettingError, choose
from earmark.metrics.bests import count_bests
from earmark.metrics.bootstrap import Intervals, bootstrap_scores
from earmark.metrics.clip import count_clips
from earmark.metrics.criteria import Collars
from earmark.metrics.event import count_events
from earmark.metrics.paired import Differences, compare_systems
from earmark.metrics.pieces import Segments
from earmark.metrics.psds import SCENARIO_1, SCENARIO_2, count_psds
from earmark.metrics.rates import Counts
from earmark.metrics.segment import count_segments

CURVE_PARTS = ("psds1", "psds2", "psds", "best_segment", "best_event")


@dataclass(frozen=True)
class Scoring:
    """How to score; the collars are those of sed_eval.

    Args:
        resolution: length of a segment in seconds.
        onset_collar: seconds by which onsets may differ.
        offset_collar: seconds by which offsets may differ at least.
        offset_collar_rate: part of the true event's length by which they may, where that is more.
        empty_as_zero: precision and F-measure of a class that was never found are 0, not nan.
        as_sed_eval: error rates without reference are 0 or 4.5e15 as in sed_eval, not nan.
        as_sed_scores_eval: the best thresholds are found with times rounded to 1e-6 s, as in
            sed_scores_eval, and not as `segment` and `event` count.
        n_draws: draws of files for intervals, and swaps for p-values; 0 is none of either.
        n_curve_draws: the most draws for scores of curves, of which each takes some 20 ms.
        level: of the intervals.
        seed: of the draws.
        durations: file -> seconds, for PSDS; without it a file is as long as its curve.
        psds: settings of a PSDS of one's own, as `psds_scores` takes them.
    """

    resolution: float = 1.0
    onset_collar: float = 0.2
    offset_collar: float = 0.2
    offset_collar_rate: float = 0.5
    empty_as_zero: bool = False
    as_sed_eval: bool = False
    as_sed_scores_eval: bool = False
    n_draws: int = 1000
    n_curve_draws: int = 200
    level: float = 0.95
    seed: int = 0
    durations: Mapping[str, float] | None = None
    psds: Mapping[str, Any] | None = None

    def draws(self, part: str) -> dict[str, Any]:
        """Return how to draw for a part.

        >>> Scoring().draws("psds1")
        {'n_draws': 200, 'level': 0.95, 'seed': 0}
        """
        most = self.n_curve_draws if part in CURVE_PARTS else self.n_draws
        return {"n_draws": min(self.n_draws, most), "level": self.level, "seed": self.seed}

    @property
    def collars(self) -> dict[str, Any]:
        """The three numbers that decide when an event is right."""
        names = ("onset_collar", "offset_collar", "offset_collar_rate")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, eq=False)
class SystemScores:
    """The scores of one system, by part; see the top of this room.

    Args:
        name: of the system.
        counts: part -> what was counted, by file.
        scores: part -> overall, class_wise and class_wise_average, as plain values.
        intervals: part -> the same with intervals; empty without draws.
    """

    name: str
    counts: dict[str, Any]
    scores: dict[str, dict[str, Any]]
    intervals: dict[str, Intervals]

    def to_dict(self) -> dict[str, Any]:
        """Return part -> all that its scorer tells, with `intervals` beside."""
        plain: dict[str, Any] = {}
        for part, counts in self.counts.items():
            found = self.intervals.get(part)
            intervals = {} if found is None else {"intervals": found.to_dict()}
            plain[part] = counts.scores().to_dict() | intervals
        return plain


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All systems, and how each after the first differs from the first.

    Args:
        systems: in the order given.
        differences: name of a system -> part -> its differences from the first system.
        remarks: what one should know of how it was counted, in sentences.
        scoring: how it was scored.
        n_files: files of the reference.
    """

    systems: tuple[SystemScores, ...]
    differences: dict[str, dict[str, Differences]]
    remarks: tuple[str, ...]
    scoring: Scoring
    n_files: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; of one system its parts lie on top.

        >>> from earmark.events import Event
        >>> found = Answer("mine", {"a.wav": [Event(0, 1, "dog")]})
        >>> evaluation = evaluate({"a.wav": [Event(0, 1, "dog")]}, [found], Scoring(n_draws=0))
        >>> list(evaluation.to_dict())
        ['segment', 'event', 'clip', 'remarks']
        """
        remarks = {"remarks": list(self.remarks)}
        if len(self.systems) == 1:
            return self.systems[0].to_dict() | remarks
        return {
            "systems": {system.name: system.to_dict() for system in self.systems},
            "differences": {
                name: {part: found.to_dict() for part, found in parts.items()}
                for name, parts in self.differences.items()
            },
        } | remarks


def parse_psds(text: str) -> dict[str, Any]:
    """Return the settings of a PSDS from words such as 'dtc=0.5 gtc=0.5 max_efpr=50'.

    >>> parse_psds("dtc=0.5 gtc=0.5 unit_of_time=minute")
    {'dtc': 0.5, 'gtc': 0.5, 'unit_of_time': 'minute'}
    """
    settings: dict[str, Any] = {}
    for word in text.replace(",", " ").split():
        name, equals, value = word.partition("=")
        choose("setting of PSDS", name, (*SCENARIO_1, "unit_of_time"))
        if not equals:
            raise SettingError(f"A setting of PSDS is name=number, as in dtc=0.5. Got {word!r}.")
        try:
            settings[name] = value if name == "unit_of_time" else float(value)
        except ValueError:
            raise SettingError(f"{name} of PSDS must be a number. Got {value!r}.") from None
    lacking = [name for name in ("dtc", "gtc") if name not in settings]
    if lacking:
        raise SettingError(f"A PSDS needs dtc and gtc; {lacking[0]} is missing in {text!r}.")
    return settings


def evaluate(
    reference: Answer | Events, systems: Sequence[Answer], scoring: Scoring | None = None
) -> Evaluation:
    """Return the scores of every system, with intervals and differences.

    >>> from earmark.events import Event
    >>> reference = {"a.wav": [Event(0, 1, "dog")], "b.wav": [Event(1, 3, "dog")]}
    >>> found = Answer("mine", {"a.wav": [Event(0, 1, "dog")], "b.wav": []})
    >>> evaluation = evaluate(reference, [found], Scoring(n_draws=0))
    >>> evaluation.systems[0].scores["segment"]["overall"]["f_measure"]["recall"]
    0.3333333333333333
    """
    scoring = scoring or Scoring()
    truth = reference if isinstance(reference, Answer) else Answer("the reference", reference)
    names = [system.name for system in systems]
    if not names or len(set(names)) < len(names):
        raise SettingError(f"Systems need a name each, and one at least. Got {names}.")
    tags = truth.found_tags
    if tags is None or not any(tags.values()):
        raise DataError(f"{truth.name} holds no event to compare with.")
    remarks = [sentence for system in systems for sentence in remarks_on(system, truth, tags)]
    remarks = list(dict.fromkeys(remarks))  # what is said of the truth is said once
    if scoring.durations is not None and not any(system.curves for system in systems):
        raise SettingError("Durations are for PSDS, which needs score curves; give those, too.")
    if scoring.n_draws and len(tags) < 2:
        remarks.append(f"{truth.name} has one file: no intervals, no p-values.")
        scoring = replace(scoring, n_draws=0)
    labels = sorted(truth.labels.union(*(system.labels_in(tags) for system in systems)))
    scored = tuple(_score(truth, tags, system, labels, scoring) for system in systems)
    differences: dict[str, dict[str, Differences]] = {}
    for system in scored[1:] if scoring.n_draws else ():
        differences[system.name] = {}
        for part in [part for part in system.counts if part in scored[0].counts]:
            pair, draws = (scored[0].counts[part], system.counts[part]), scoring.draws(part)
            if not draws["n_draws"]:
                continue
            try:
                differences[system.name][part] = compare_systems(
                    *pair, **draws, n_permutations=draws["n_draws"]
                )
            except (DataError, SettingError) as error:
                remarks.append(f"{part} of {system.name} has no p-value: {error}")
    return Evaluation(scored, differences, tuple(remarks), scoring, len(tags))


def _score(
    truth: Answer, tags: Tags, system: Answer, labels: Sequence[str], scoring: Scoring
) -> SystemScores:
    counts: dict[str, Counts] = {}
    zero = scoring.empty_as_zero
    if truth.events is not None and system.events is not None:
        ways: dict[str, Any] = {"empty_as_zero": zero, "as_sed_eval": scoring.as_sed_eval}
        true, found = truth.events, system.events
        counts["segment"] = count_segments(true, found, labels, scoring.resolution, **ways)
        counts["event"] = count_events(true, found, labels, **scoring.collars, **ways)
    own = labels if system.curves is None else sorted(system.curves.labels)
    peaks = system.peaks(tags, own)
    counts["clip"] = count_clips(tags, system.found_tags, peaks, own, empty_as_zero=zero)
    if truth.events is not None and system.curves is not None:
        scenarios: dict[str, Mapping[str, Any]] = {"psds1": SCENARIO_1, "psds2": SCENARIO_2}
        if scoring.psds is not None:
            scenarios["psds"] = scoring.psds
        for part, scenario in scenarios.items():
            counts[part] = count_psds(
                truth.events, system.curves, **scenario, durations=scoring.durations, labels=own
            )
        decimals = 6 if scoring.as_sed_scores_eval else None
        durations = scoring.durations if scoring.as_sed_scores_eval else None
        for part, criterion in (
            ("best_segment", Segments(scoring.resolution, decimals, durations)),
            ("best_event", Collars(**scoring.collars, decimals=decimals)),
        ):
            counts[part] = count_bests(truth.events, system.curves, criterion, labels=own)
    intervals = {
        part: bootstrap_scores(each, **scoring.draws(part))
        for part, each in counts.items()
        if scoring.draws(part)["n_draws"]
    }
    scores = {part: each.measure().draw(each.labels) for part, each in counts.items()}
    return SystemScores(system.name, counts, scores, intervals)
