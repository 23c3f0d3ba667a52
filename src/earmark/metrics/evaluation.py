"""Evaluation of systems against a reference: every score, its confidence interval, differences.

Conventions: a system is given by its events, its tags, its frame-level scores, or several of these
(`earmark.metrics.system_output`), and is scored in every way that they allow. A part is one group
of scores:

    segment     events      segment-based error rate and F-measure
    event       events      event-based error rate and F-measure
    clip        any         F-measure of tags (from events or tags), ranking (from scores)
    psds1       scores      PSDS of DCASE scenario 1, exact times
    psds2       scores      PSDS of DCASE scenario 2, the right class
    psds        scores      PSDS with custom settings, if they are given
    best_segment, best_event
                scores      the best scores that any threshold could reach
    calibration events      whether their scores, if they have any, are how often they are right
    false_events
                events      false events per minute in the negatives, if they are given

A reference of tags allows for `clip`, `calibration` and `false_events` only. The files of the
reference are evaluated, and the negatives for `false_events` alone. The classes are those of the
reference and of all systems, so that every system is scored over the same ones.
`Evaluation.warnings` lists what only the reference or only a system contains.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from earmark.config import repr_of_changes
from earmark.errors import DataError, SettingError, choose, listed
from earmark.formats.names import rename_files
from earmark.metrics.best_thresholds import count_thresholds
from earmark.metrics.bootstrap import Intervals, bootstrap_scores
from earmark.metrics.calibration import count_calibration
from earmark.metrics.clip import count_clips
from earmark.metrics.event import count_events
from earmark.metrics.event_criteria import CollarCriterion
from earmark.metrics.false_events import (
    FalseEventCounts,
    RecallPoint,
    count_false_events,
    recall_curve,
    sweep_min_score,
)
from earmark.metrics.psds import SCENARIOS, Scenario, count_psds
from earmark.metrics.segment import count_segments
from earmark.metrics.segment_criterion import SegmentCriterion
from earmark.metrics.system_comparison import Differences, compare_systems
from earmark.metrics.system_output import Events, SystemOutput, Tags, compare_with_reference
from earmark.metrics.weighted_scores import Counts

SCORE_PARTS = ("psds1", "psds2", "psds", "best_segment", "best_event")  # from frame-level scores


@dataclass(frozen=True)
class Scoring:
    """How to score; the default collars are those of sed_eval.

    Args:
        resolution: length of a segment in seconds.
        onset_collar: tolerance of the onset in seconds.
        offset_collar: tolerance of the offset in seconds.
        percentage_of_length: tolerance of the offset as a fraction of the reference event's length;
            the larger of both applies.
        empty_as_zero: precision and F-measure of a class that was never detected are 0, not nan.
        as_sed_eval: error rates of an empty reference are 0 or 4.5e15 as in sed_eval, not nan.
        as_sed_scores_eval: round times to 1e-6 s in `best_segment` and `best_event`, as
            sed_scores_eval does; `segment` and `event` do not round.
        n_bootstrap: number of bootstrap samples of the confidence intervals, and of permutations of
            the p-values; 0 computes neither.
        n_score_bootstrap: the same for frame-level scores, if lower: each takes some 20 ms.
        level: confidence level.
        seed: of the bootstrap samples and permutations.
        durations: file -> seconds, for PSDS; by default the end of its scores.
        psds: custom settings of PSDS, as `psds_scores` takes them.
        negatives: file -> seconds, of recordings without any of the classes, in which the systems
            detected events, too.

    >>> Scoring(resolution=0.1, n_bootstrap=0).collars["onset_collar"]
    0.2
    """

    resolution: float = 1.0
    onset_collar: float = 0.2
    offset_collar: float = 0.2
    percentage_of_length: float = 0.5
    empty_as_zero: bool = False
    as_sed_eval: bool = False
    as_sed_scores_eval: bool = False
    n_bootstrap: int = 1000
    n_score_bootstrap: int = 200
    level: float = 0.95
    seed: int = 0
    durations: Mapping[str, float] | None = None
    psds: Mapping[str, Any] | None = None
    negatives: Mapping[str, float] | None = None

    __repr__ = repr_of_changes

    def bootstrap(self, part: str) -> dict[str, Any]:
        """Return the settings of the bootstrap of a part.

        >>> Scoring().bootstrap("psds1")
        {'n_bootstrap': 200, 'level': 0.95, 'seed': 0}
        """
        most = self.n_score_bootstrap if part in SCORE_PARTS else self.n_bootstrap
        return {"n_bootstrap": min(self.n_bootstrap, most), "level": self.level, "seed": self.seed}

    @property
    def collars(self) -> dict[str, Any]:
        """The three tolerances that decide whether an event is correct."""
        names = ("onset_collar", "offset_collar", "percentage_of_length")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, eq=False)
class SystemScores:
    """The scores of one system by part; see the module's docstring.

    Args:
        name: of the system.
        counts: part -> counts per file.
        scores: part -> overall, class_wise and class_wise_average, as plain values.
        intervals: part -> the same with confidence intervals; empty without bootstrap.
        curve: false events and recall at each minimum score of events, if there are negatives.
    """

    name: str
    counts: dict[str, Any]
    scores: dict[str, dict[str, Any]]
    intervals: dict[str, Intervals]
    curve: tuple[RecallPoint, ...] = ()

    def __repr__(self) -> str:
        return f"SystemScores({self.name!r}: {', '.join(self.scores)})"

    def to_dict(self) -> dict[str, Any]:
        """Return part -> its scores as plain values, with its `intervals` if there are any."""
        plain = {part: counts.scores().to_dict() for part, counts in self.counts.items()}
        for part, intervals in self.intervals.items():
            plain[part]["intervals"] = intervals.to_dict()
        if self.curve:
            plain["false_events"]["curve"] = [point.to_dict() for point in self.curve]
        return plain


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The scores of all systems, and how each differs from the first.

    Args:
        systems: in the order given.
        differences: name of a system -> part -> its differences from the first system.
        warnings: what only the reference or only a system contains, and what was not computed.
        scoring: how it was scored.
        n_files: number of files of the reference.
    """

    systems: tuple[SystemScores, ...]
    differences: dict[str, dict[str, Differences]]
    warnings: tuple[str, ...]
    scoring: Scoring
    n_files: int

    def __repr__(self) -> str:
        names = listed([system.name for system in self.systems])
        return f"Evaluation({self.n_files} files, {len(self.systems)} systems: {names})"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; with a single system its parts are the top level.

        >>> from earmark.formats.events import Event
        >>> events = {"a.wav": [Event(0, 1, "dog")]}
        >>> evaluation = evaluate(events, [SystemOutput("mine", events)], Scoring(n_bootstrap=0))
        >>> list(evaluation.to_dict())
        ['segment', 'event', 'clip', 'warnings']
        """
        warnings = {"warnings": list(self.warnings)}
        if len(self.systems) == 1:
            return self.systems[0].to_dict() | warnings
        return {
            "systems": {system.name: system.to_dict() for system in self.systems},
            "differences": {
                name: {part: each.to_dict() for part, each in parts.items()}
                for name, parts in self.differences.items()
            },
        } | warnings


def parse_psds(text: str) -> dict[str, Any]:
    """Return custom settings of PSDS from text such as 'dtc=0.5 gtc=0.5 max_efpr=50'.

    >>> parse_psds("dtc=0.5 gtc=0.5 unit_of_time=minute")
    {'dtc': 0.5, 'gtc': 0.5, 'unit_of_time': 'minute'}
    """
    settings: dict[str, Any] = {}
    for item in text.replace(",", " ").split():
        name, equals, value = item.partition("=")
        choose("setting of PSDS", name, (*Scenario.__annotations__, "unit_of_time"))
        if not equals:
            raise SettingError(f"A PSDS setting must be name=number, as in dtc=0.5. Got {item!r}.")
        try:
            settings[name] = value if name == "unit_of_time" else float(value)
        except ValueError:
            raise SettingError(
                f"The PSDS setting {name} must be a number. Got {value!r}."
            ) from None
    missing = [name for name in ("dtc", "gtc") if name not in settings]
    if missing:
        raise SettingError(f"A custom PSDS needs dtc and gtc. {missing[0]} is missing in {text!r}.")
    return settings


def _check_outputs(*outputs: object) -> None:
    for output in outputs:
        if not isinstance(output, SystemOutput):
            raise SettingError(
                "evaluate takes what read_system_output of earmark.metrics.system_output reads, "
                f"or events by file name as the reference. Got {output!r}."
            )


def evaluate(
    reference: SystemOutput | Events,
    systems: Sequence[SystemOutput],
    scoring: Scoring | None = None,
) -> Evaluation:
    """Return the scores of every system, with confidence intervals and differences.

    Args:
        reference: the reference, or its events by file name.
        systems: the output of each system; the others are compared with the first.
        scoring: how to score; by default `Scoring()`.

    >>> from earmark.formats.events import Event
    >>> reference = {"a.wav": [Event(0, 1, "dog")], "b.wav": [Event(1, 3, "dog")]}
    >>> system = SystemOutput("mine", {"a.wav": [Event(0, 1, "dog")], "b.wav": []})
    >>> evaluation = evaluate(reference, [system], Scoring(n_bootstrap=0))
    >>> evaluation.systems[0].scores["segment"]["overall"]["f_measure"]["recall"]
    0.3333333333333333
    """
    scoring = scoring or Scoring()
    if isinstance(reference, Mapping):
        reference = SystemOutput("the reference", reference)
    _check_outputs(reference, *systems)
    names = [system.name for system in systems]
    if not names or len(set(names)) < len(names):
        raise SettingError(f"systems must be one or more, each with its own name. Got {names}.")
    tags = reference.clip_tags
    if tags is None or not any(tags.values()):
        raise DataError(f"{reference.name} has no events or tags to compare with.")
    negatives = scoring.negatives or {}
    _check_negatives(negatives, systems, tags)
    named = [system.with_names_of([*tags, *negatives]) for system in systems]
    systems = [system.without([name for name in negatives if name not in tags]) for system in named]
    if scoring.durations is not None:
        scoring = replace(scoring, durations=rename_files(scoring.durations, tags))
    warnings = [
        warning for system in systems for warning in compare_with_reference(system, reference, tags)
    ]
    if scoring.durations is not None and not any(system.scores for system in systems):
        raise SettingError(
            "durations are for PSDS, which needs frame-level scores. Pass scores= too, or omit "
            "durations."
        )
    if scoring.n_bootstrap and len(tags) < 2:
        warnings.append(
            f"{reference.name} has one file only: no confidence intervals and no p-values."
        )
        scoring = replace(scoring, n_bootstrap=0)
    labels = sorted(reference.labels.union(*(system.labels_in(tags) for system in systems)))
    counts = [_count(reference, tags, system, labels, scoring) for system in systems]
    for own, false in zip(counts, _false_events(named, negatives, labels), strict=True):
        if false is not None:
            own["false_events"] = false
            warnings += _missing_negatives(false)
    curves = [_curve(reference, tags, system, negatives, scoring) for system in named]
    scored = tuple(
        _score(output.name, own, curve, scoring)
        for output, own, curve in zip(systems, counts, curves, strict=True)
    )
    notes = (_undefined_classes(own) + _explain_best(own) for own in scored)
    warnings += chain.from_iterable(notes)
    first, *others = scored
    differences: dict[str, dict[str, Differences]] = {}
    for system in others if scoring.n_bootstrap else ():
        differences[system.name] = {}
        for part in [part for part in system.counts if part in first.counts]:
            bootstrap = scoring.bootstrap(part)
            if not bootstrap["n_bootstrap"]:
                continue
            try:
                differences[system.name][part] = compare_systems(
                    first.counts[part],
                    system.counts[part],
                    **bootstrap,
                    n_permutations=bootstrap["n_bootstrap"],
                )
            except (DataError, SettingError) as error:
                warnings.append(f"{part} of {system.name} has no p-value: {error}")
    # The same warning about the reference comes with each system.
    unique = tuple(dict.fromkeys(warnings))
    return Evaluation(scored, differences, unique, scoring, len(tags))


def _undefined_classes(system: SystemScores) -> list[str]:
    """Warn of classes that a class mean leaves out: to miss a class altogether would raise it."""
    without = {
        part: found
        for part in ("segment", "event", "clip")
        if (found := undefined_classes(system.scores.get(part, {})))
    }
    if not without:
        return []
    return [
        f"The class means of {system.name} leave out classes without an F-measure, such as "
        f"{next(iter(without.values()))[0]!r}, as sed_eval does ("
        f"{', '.join(f'{len(found)} in {part}' for part, found in without.items())}); with "
        "empty_as_zero they count as 0."
    ]


def undefined_classes(scores: Mapping[str, Any]) -> list[str]:
    """Return the classes whose F-measure is undefined and which a class mean thus leaves out.

    >>> undefined_classes({"class_wise": {"dog": {"f_measure": {"f_measure": float("nan")}}}})
    ['dog']
    """
    classes = scores.get("class_wise", {})
    return [
        label
        for label, groups in classes.items()
        if math.isnan(groups.get("f_measure", {}).get("f_measure", 0.0))
    ]


def _explain_best(system: SystemScores) -> list[str]:
    """Explain a best score that is worse than the system's own."""
    warnings = []
    for part in ("segment", "event"):
        own, best = (system.scores.get(name) for name in (part, f"best_{part}"))
        if own is None or best is None:
            continue
        values = [each["overall"]["f_measure"]["f_measure"] for each in (own, best)]
        if values[1] < values[0]:
            warnings.append(
                f"best {part} F1 of {system.name} ({values[1]:.3f}) is below that of its events "
                f"({values[0]:.3f}): it is the best of one threshold for all classes on the "
                "frame-level scores, without the thresholds per class, filters and gap filling "
                "that the events were decoded with."
            )
    return warnings


def _check_negatives(
    negatives: Mapping[str, float], systems: Sequence[SystemOutput], tags: Tags
) -> None:
    """Raise if the negatives cannot be used."""
    positive = next((name for name in negatives if tags.get(name)), None)
    if positive is not None:
        raise DataError(f"{positive} is among the negatives, but the reference has events there.")
    if negatives and not any(system.events is not None for system in systems):
        raise SettingError("False events in negatives need events; pass a table of events.")


def _false_events(
    systems: Sequence[SystemOutput], negatives: Mapping[str, float], labels: Sequence[str]
) -> list[FalseEventCounts | None]:
    """Return the false events of each system, all over the same classes; None if unknown."""
    found = sorted({*labels}.union(*(system.labels_in(negatives) for system in systems)))
    counts: list[FalseEventCounts | None] = []
    for system in systems:
        if not negatives or system.events is None:
            counts.append(None)
            continue
        own = count_false_events(system.events, negatives, found)
        if len(own.missing_files) == len(own.files):
            raise DataError(
                f"{system.name} has none of the negatives, such as {own.files[0]!r}. Detect in "
                "them, too, and use the same names."
            )
        counts.append(own)
    return counts


def _missing_negatives(counts: FalseEventCounts) -> list[str]:
    missing = counts.missing_files
    if not missing:
        return []
    return [
        f"{len(missing)} of {len(counts.files)} negatives are missing from an estimate, such as "
        f"{missing[0]!r}: counted as without events."
    ]


def _curve(
    reference: SystemOutput,
    tags: Tags,
    system: SystemOutput,
    negatives: Mapping[str, float],
    scoring: Scoring,
) -> tuple[RecallPoint, ...]:
    """Return one point per minimum score of events, or a single one if they have no scores."""
    if not negatives or system.events is None:
        return ()
    events = {name: system.events.get(name, ()) for name in [*tags, *negatives]}
    estimates: Mapping[float, Events] = {0.0: events}
    if _has_scores(events):
        estimates = sweep_min_score(events)
    return recall_curve(
        estimates, negatives, tags=tags, reference=reference.events, **scoring.collars
    )


def _has_scores(events: Events) -> bool:
    """Return whether there are events, and all have a score from 0 to 1."""
    scores = [event.score for own in events.values() for event in own]
    return bool(scores) and all(score is not None and 0 <= score <= 1 for score in scores)


def _score(
    name: str,
    counts: dict[str, Counts],
    curve: tuple[RecallPoint, ...],
    scoring: Scoring,
) -> SystemScores:
    intervals = {
        part: bootstrap_scores(each, **scoring.bootstrap(part))
        for part, each in counts.items()
        if scoring.bootstrap(part)["n_bootstrap"] and len(each.files) > 1
    }
    scores = {part: each.weighted_scores().sample(each.labels) for part, each in counts.items()}
    return SystemScores(name, counts, scores, intervals, curve)


def _count(
    reference: SystemOutput,
    tags: Tags,
    system: SystemOutput,
    labels: Sequence[str],
    scoring: Scoring,
) -> dict[str, Counts]:
    """Return part -> counts, of every part that reference and system allow."""
    counts: dict[str, Counts] = {}
    zero = scoring.empty_as_zero
    if reference.events is not None and system.events is not None:
        undefined: dict[str, Any] = {"empty_as_zero": zero, "as_sed_eval": scoring.as_sed_eval}
        counts["segment"] = count_segments(
            reference.events, system.events, labels, scoring.resolution, **undefined
        )
        counts["event"] = count_events(
            reference.events, system.events, labels, **scoring.collars, **undefined
        )
    if system.events is not None and _has_scores(system.events):
        annotations: Events | Tags = tags if reference.events is None else reference.events
        counts["calibration"] = count_calibration(annotations, system.events, labels)
    if system.scores is not None:
        labels = sorted(system.scores.labels)
    clip_scores = system.clip_scores(tags, labels)
    counts["clip"] = count_clips(tags, system.clip_tags, clip_scores, labels, empty_as_zero=zero)
    if reference.events is None or system.scores is None:
        return counts
    scenarios: dict[str, Mapping[str, Any]] = dict(SCENARIOS)
    if scoring.psds is not None:
        scenarios["psds"] = scoring.psds
    for part, scenario in scenarios.items():
        counts[part] = count_psds(
            reference.events,
            system.scores,
            **scenario,
            durations=scoring.durations,
            labels=labels,
        )
    decimals = 6 if scoring.as_sed_scores_eval else None
    durations = scoring.durations if scoring.as_sed_scores_eval else None
    for part, criterion in (
        ("best_segment", SegmentCriterion(scoring.resolution, decimals, durations)),
        ("best_event", CollarCriterion(**scoring.collars, decimals=decimals)),
    ):
        counts[part] = count_thresholds(reference.events, system.scores, criterion, labels=labels)
    return counts
