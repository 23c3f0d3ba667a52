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

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from earmark.errors import DataError, SettingError, choose
from earmark.formats.events import Event, EventTable, read_events, read_seconds
from earmark.formats.names import rename_files, stem_of
from earmark.formats.scores import ScoreCurves, read_curves
from earmark.formats.tables import read_table
from earmark.formats.tags import TagTable, read_tags
from earmark.metrics.bests import count_bests
from earmark.metrics.bootstrap import Intervals, bootstrap_scores
from earmark.metrics.clip import count_clips, tags_of
from earmark.metrics.criteria import Collars
from earmark.metrics.event import count_events
from earmark.metrics.paired import Differences, compare_systems
from earmark.metrics.pieces import Segments
from earmark.metrics.psds import SCENARIO_1, SCENARIO_2, count_psds
from earmark.metrics.rates import Counts
from earmark.metrics.segment import count_segments

Events = Mapping[str, Sequence[Event]]
Tags = Mapping[str, Collection[str]]
CURVE_PARTS = ("psds1", "psds2", "psds", "best_segment", "best_event")


@dataclass(frozen=True)
class SystemOutput:
    """What is known of a system, or of the truth: file -> events, file -> tags, score curves."""

    name: str
    events: Events | None = None
    tags: Tags | None = None
    curves: ScoreCurves | None = None

    def __post_init__(self) -> None:
        if self.events is None and self.tags is None and self.curves is None:
            raise SettingError(f"{self.name} needs events, tags or curves.")

    @cached_property
    def labels(self) -> frozenset[str]:
        """Every class that it names."""
        return self.labels_in({**(self.tags or {}), **(self.events or {})})

    def labels_in(self, files: Collection[str]) -> frozenset[str]:
        """Return every class that it names in some files."""
        events, tags = self.events or {}, self.tags or {}
        found = {label for name in files for label in tags.get(name, ())}
        found |= {event.label for name in files for event in events.get(name, ())}
        return frozenset(found) | set(self.curves.labels if self.curves else ())

    @property
    def found_tags(self) -> Tags | None:
        """Its tags, or those of its events; None where it has curves only."""
        if self.tags is not None or self.events is None:
            return self.tags
        return tags_of(self.events)

    def with_names_of(self, files: Collection[str]) -> "SystemOutput":
        """Return the same output, its files named as in `files`; see `earmark.formats.names`.

        >>> SystemOutput("mine", {"a.flac": []}).with_names_of(["a.wav"]).events
        {'a.wav': []}
        """
        events = None if self.events is None else rename_files(self.events, files)
        tags = None if self.tags is None else rename_files(self.tags, files)
        curves = self.curves
        if curves is not None:
            curves = ScoreCurves(curves.labels, rename_files(curves, files))
        return replace(self, events=events, tags=tags, curves=curves)

    def peaks(self, files: Tags, labels: Sequence[str]) -> dict[str, Any] | None:
        """Return file -> the largest score of each class in its curve; None without curves."""
        if self.curves is None:
            return None
        curves = self.curves
        columns = [curves.labels.index(label) for label in labels]
        return {name: curves[name].scores.max(axis=0)[columns] for name in files if name in curves}


def read_system_output(
    path: str | Path, curves: str | Path | None = None, *, weak: bool = False
) -> SystemOutput:
    r"""Return what a table of events or of tags, or a folder of score curves, says.

    A table is one of tags if its header has no onset, or if `weak` says so.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "found.tsv")
    ...     _ = path.write_text("a.wav\t0\t1.5\tdog")
    ...     read_system_output(path).events
    {'a.wav': [Event(onset=0.0, offset=1.5, label='dog', score=None)]}
    """
    name = Path(path).as_posix()
    if Path(path).is_dir():
        if curves is not None:
            raise SettingError(f"{name} is a folder of curves; name a table beside {curves}.")
        return SystemOutput(name, curves=read_curves(path))
    found = None if curves is None else read_curves(curves)
    columns = None if weak else read_table(path).columns
    if weak or (columns is not None and "onset" not in columns):
        return SystemOutput(name, tags=read_tags(path), curves=found)
    return SystemOutput(name, events=read_events(path), curves=found)


def read_durations(path: str | Path) -> dict[str, float]:
    """Return file -> seconds, from a table with the columns filename and duration."""
    table = read_table(path)
    columns = ("filename", "duration")
    table.require(*columns)
    durations: dict[str, float] = {}
    for row in table.rows:
        values = row.named(table.columns or columns)
        seconds = read_seconds(values["duration"], "duration", row.where)
        if durations.setdefault(values["filename"], seconds) != seconds:
            raise DataError(f"{row.where}: {values['filename']} has another duration above.")
    return durations


def remarks_on(system: SystemOutput, truth: SystemOutput, tags: Tags) -> list[str]:
    """Return what only one of them names, in sentences; raise where nothing is left to compare.

    Args:
        system: what was found.
        truth: what is true.
        tags: file -> tags, of the truth.

    >>> found = SystemOutput("mine", {"a.wav": [Event(0, 1, "owl")]})
    >>> truth = SystemOutput("true", {"a.wav": [Event(0, 1, "owl")], "b.wav": []})
    >>> remarks_on(found, truth, {"a.wav": ("owl",), "b.wav": ()})
    ["1 files of true are not in mine, as 'b.wav': they count as without events."]
    """
    remarks = []
    named = system.events if system.events is not None else system.tags
    if named is not None:
        if named and not set(named) & set(tags):
            raise DataError(
                f"No file of {truth.name} is in {system.name}: {next(iter(tags))!r} there, "
                f"{next(iter(named))!r} here; the names must be the same."
            )
        missing = [name for name in tags if name not in named]
        if missing:
            remarks.append(
                f"{len(missing)} files of {truth.name} are not in {system.name}, "
                f"as {missing[0]!r}: they count as without events."
            )
        unknown = [name for name in named if name not in tags]
        if unknown:
            remarks.append(
                f"{len(unknown)} files of {system.name} are not in {truth.name}, "
                f"as {unknown[0]!r}: left out."
            )
    if system.curves is not None:
        _check_curves(system, truth, tags)
        known = {stem_of(name) for name in tags}
        unknown = [name for name in system.curves if name not in known]
        if unknown:
            remarks.append(
                f"{len(unknown)} curves of {system.name} are of files that are not in "
                f"{truth.name}, as {unknown[0]!r}: left out."
            )
    own, true = system.labels_in(tags), truth.labels
    for one, other, only, what in (
        (system, truth, sorted(own - true), "whatever is found of them is wrong"),
        (truth, system, sorted(true - own), "they are all missed"),
    ):
        if only:
            remarks.append(
                f"{len(only)} labels of {one.name} are not in {other.name}: "
                f"{', '.join(map(repr, only[:5]))}{' and others' if only[5:] else ''}; {what}."
            )
    for answer in (truth, system):
        table = answer.events if answer.events is not None else answer.tags
        if isinstance(table, EventTable | TagTable) and table.n_dropped:
            remarks.append(f"{table.n_dropped} rows of {answer.name} have no length: no events.")
    if truth.events is not None and system.events is not None:
        end = max(event.offset for events in truth.events.values() for event in events)
        onsets = [event.onset for name in tags for event in system.events.get(name, ())]
        n_late = sum(onset >= end for onset in onsets)
        if 2 * n_late > len(onsets):
            remarks.append(
                f"{n_late} of {len(onsets)} events of {system.name} begin after the last event of "
                f"{truth.name} has ended ({end:g} s). Are its times those of the clip? A table of "
                "tags is scored with --weak."
            )
    return remarks


def _check_curves(system: SystemOutput, truth: SystemOutput, tags: Tags) -> None:
    """Raise where curves are missing: a score cannot be guessed."""
    curves = system.curves
    assert curves is not None
    missing = [name for name in tags if name not in curves]
    if missing:
        raise DataError(
            f"{len(missing)} of the {len(tags)} files of {truth.name} have no curve in the curves "
            f"of {system.name}, as {missing[0]!r}. Are they of another data set?"
        )
    without = SystemOutput(system.name, system.events, system.tags) if system.found_tags else truth
    for answer, named in ((truth, truth.labels), (system, without.labels_in(tags))):
        lacking = sorted(named - set(curves.labels))
        if lacking:
            raise DataError(
                f"{answer.name} has the label {lacking[0]!r}, but the curves of {system.name} have "
                f"no column of that name; theirs are {', '.join(curves.labels)}."
            )


@dataclass(frozen=True)
class Scoring:
    """How to score; the collars are those of sed_eval.

    Args:
        resolution: length of a segment in seconds.
        onset_collar: seconds by which onsets may differ.
        offset_collar: seconds by which offsets may differ at least.
        percentage_of_length: part of the true event's length by which they may, where that is more.
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
    percentage_of_length: float = 0.5
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
        names = ("onset_collar", "offset_collar", "percentage_of_length")
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

        >>> from earmark.formats.events import Event
        >>> found = SystemOutput("mine", {"a.wav": [Event(0, 1, "dog")]})
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
    reference: SystemOutput | Events,
    systems: Sequence[SystemOutput],
    scoring: Scoring | None = None,
) -> Evaluation:
    """Return the scores of every system, with intervals and differences.

    >>> from earmark.formats.events import Event
    >>> reference = {"a.wav": [Event(0, 1, "dog")], "b.wav": [Event(1, 3, "dog")]}
    >>> found = SystemOutput("mine", {"a.wav": [Event(0, 1, "dog")], "b.wav": []})
    >>> evaluation = evaluate(reference, [found], Scoring(n_draws=0))
    >>> evaluation.systems[0].scores["segment"]["overall"]["f_measure"]["recall"]
    0.3333333333333333
    """
    scoring = scoring or Scoring()
    truth = (
        reference
        if isinstance(reference, SystemOutput)
        else SystemOutput("the reference", reference)
    )
    names = [system.name for system in systems]
    if not names or len(set(names)) < len(names):
        raise SettingError(f"Systems need a name each, and one at least. Got {names}.")
    tags = truth.found_tags
    if tags is None or not any(tags.values()):
        raise DataError(f"{truth.name} holds no event to compare with.")
    systems = [system.with_names_of(tags) for system in systems]
    if scoring.durations is not None:
        scoring = replace(scoring, durations=rename_files(scoring.durations, tags))
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
    truth: SystemOutput, tags: Tags, system: SystemOutput, labels: Sequence[str], scoring: Scoring
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
