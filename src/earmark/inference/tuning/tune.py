"""Validation scores -> a decoding tuned from tags or from events; conventions in the package."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from earmark.errors import SettingError, choose
from earmark.formats.events import Event
from earmark.frames import FrameScores
from earmark.inference.decoding import Decoding, Rule
from earmark.inference.segments import pool_segments
from earmark.inference.tuning.cross_validation import CrossValidation, cross_validate
from earmark.inference.tuning.defaults import default_rule
from earmark.inference.tuning.event_search import CollarSearch, SearchGrid, SegmentSearch
from earmark.inference.tuning.objectives import OBJECTIVES, Bounds
from earmark.inference.tuning.search import Search
from earmark.inference.tuning.tag_search import TagSearch

SHRINKAGE = 1.0  # a unit of distance weighs as one clip; chosen with benchmarks/tuning.py
N_FOLDS = 5
PUBLISHED = "published"  # objective of a decision stage that was published: nothing is maximised


@dataclass(frozen=True)
class ClassReport:
    """What tuning did to one class: F1 before and after; `note` says why nothing was tuned.

    F1 and positives are of clips (weak) or of segments (strong), and of events where the objective
    is `event_f_measure`: negatives are then the clips without one. F1 is nan for a class that the
    reference does not contain.

    >>> report = ClassReport(n_positive=20, n_negative=80, start_f_measure=0.5, f_measure=0.75)
    >>> report.f_measure - report.start_f_measure
    0.25
    """

    n_positive: int
    n_negative: int
    start_f_measure: float
    f_measure: float
    note: str | None = None


@dataclass(frozen=True)
class TuningResult:
    """The decoding found, and how.

    Args:
        decoding: the best found, or the start where cross-validation shows no gain.
        supervision: "weak" (tags) or "strong" (events); "none" if there was nothing to search.
        objective: what was maximised (an error rate, minimised); "published" is the decision stage
            of the network's authors.
        score: of `decoding` on the tuning data.
        start_score: of the start.
        classes: label -> its report.
        cross_validation: of the whole search; None without one.

    >>> result = TuningResult(Decoding.uniform(["dog"]), "weak", "clip_f_measure", 0.75, 0.5)
    >>> result.score > result.start_score, result.decoding["dog"].threshold
    (True, 0.5)
    """

    decoding: Decoding
    supervision: str
    objective: str
    score: float
    start_score: float
    classes: Mapping[str, ClassReport] = field(default_factory=dict)
    cross_validation: CrossValidation | None = None

    def __repr__(self) -> str:
        change = f"{self.start_score:.3f} -> {self.score:.3f}"
        return f"TuningResult({self.objective} {change}, {self.supervision} labels)"

    @property
    def is_adopted(self) -> bool:
        """Whether `decoding` is what the search found, and not the start for want of a gain.

        >>> TuningResult(Decoding.uniform(["dog"]), "weak", "f_measure", 0.5, 0.5).is_adopted
        True
        """
        return self.cross_validation is None or self.cross_validation.is_gain

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain dicts and lists, for a record; nan stays nan.

        >>> result = TuningResult(Decoding.uniform(["dog"]), "weak", "clip_f_measure", 0.5, 0.5)
        >>> result.to_dict()["decoding"]["dog"]["threshold"]
        0.5
        """
        return asdict(self) | {"decoding": self.decoding.to_dict(), "is_adopted": self.is_adopted}


def tune_decoding(
    scores: Sequence[FrameScores],
    *,
    tags: Sequence[Collection[str]] | None = None,
    reference: Sequence[Sequence[Event]] | None = None,
    start: Decoding | None = None,
    threshold_from: str = "tags",
    shared: bool = False,
    objective: str = "class_f_measure",
    search_grid: SearchGrid | None = None,
    resolution: float = 1.0,
    shrinkage: float = SHRINKAGE,
    n_folds: int | None = None,
    groups: Sequence[Hashable] | None = None,
    bounds: Bounds = (0.05, 0.95),
) -> TuningResult:
    """Return the decoding that does best on validation clips, given their tags or their events.

    Args:
        scores: of each clip, with clip-level scores.
        tags: the labels of each clip; tunes from tags.
        reference: the events of each clip; tunes from events. Give one of the two.
        start: where to start from; a threshold of 0.5 for all classes without it.
        threshold_from: with tags, "tags" (tune the threshold and the clip-level threshold) or
            "start" (the clip-level threshold only).
        shared: with tags and the objective "f_measure", tune the same for all classes.
        objective: one of `OBJECTIVES`: the mean of the classes' F1, or the overall F-measure or
            error rate; of clips with tags, of segments with events. With events also
            "event_f_measure", the F-measure of events within the collars of `earmark.metrics`.
        search_grid: with events, what to try.
        resolution: with events, length of a segment in seconds.
        shrinkage: with events, how strongly rules are drawn towards the start; 0 is not at all.
        n_folds: of cross-validation. Where it shows no gain the start is returned. 0 is none: what
            the search finds is returned. By default 5 with events and 0 with tags.
        groups: of each clip; clips of one group stay in one fold. By default each clip is its own.
        bounds: lowest and highest threshold to look for.

    >>> from earmark.frames import FrameGrid
    >>> clips = [
    ...     FrameScores([[p]] * 5, ["dog"], FrameGrid(12.5), clip_scores=[p])
    ...     for p in (0.1, 0.2, 0.4, 0.5)
    ... ]
    >>> result = tune_decoding(clips, tags=[(), (), ("dog",), ("dog",)])
    >>> result.start_score, result.score, round(result.decoding["dog"].threshold, 3)
    (0.6666666666666666, 1.0, 0.3)
    """
    if (tags is None) == (reference is None):
        raise SettingError("Tuning takes either tags=... (weak) or reference=... (strong).")
    if not scores:
        raise SettingError("Tuning needs the scores of one clip or more.")
    labels = scores[0].labels
    given = Decoding.uniform(labels) if start is None else start
    # With segments, all of the search is on their scores.
    segment, start = given.segment, given.with_segment(0.0)
    scores = [pool_segments(own, segment) for own in scores]
    for at, each in enumerate(scores):
        if each.labels != start.labels:
            raise SettingError(
                f"Clip {at} has scores of {', '.join(each.labels)}; the start is a decoding of "
                f"{', '.join(start.labels)}."
            )
    for name, values in (("tags", tags), ("reference", reference), ("groups", groups)):
        if values is not None and len(values) != len(scores):
            raise SettingError(
                f"{name} must have one entry for each of {len(scores)} clips. Got {len(values)}."
            )
    if not 0 < bounds[0] < bounds[1] <= 1:
        raise SettingError(f"bounds must be 0 < lowest < highest <= 1. Got {bounds!r}.")
    choose("objective", objective, OBJECTIVES)
    if shared and (tags is None or objective != "f_measure"):
        raise SettingError(
            "shared=True tunes from tags=... for objective='f_measure'. Got "
            f"{'no tags' if tags is None else f'objective={objective!r}'}."
        )
    choose("threshold_from", threshold_from, ("start", "tags"))
    if n_folds is None:
        n_folds = N_FOLDS if tags is None else 0

    def search_on(rows: Sequence[int]) -> Search:
        own = [scores[row] for row in rows]
        if tags is not None:
            return TagSearch(
                own,
                [tags[row] for row in rows],
                start,
                objective,
                bounds,
                tune_frames=threshold_from == "tags",
                shared=shared,
            )
        assert reference is not None
        kind = CollarSearch if objective == "event_f_measure" else SegmentSearch
        events = [reference[row] for row in rows]
        grid = search_grid or SearchGrid()
        return kind(own, events, start, objective, bounds, grid, resolution, shrinkage)

    search = search_on(range(len(scores)))
    rules = search.run()
    tested = None
    if n_folds:
        tested = cross_validate(search, rules, search_on, n_folds, groups or range(len(scores)))
        if not tested.is_gain:
            rules = list(search.start)
    return TuningResult(
        Decoding(search.labels, tuple(rules)).with_segment(segment),
        search.supervision,
        objective if tags is None else f"clip_{objective}",
        search.score(rules),
        search.score(search.start),
        {label: _report(search, at, rules[at]) for at, label in enumerate(search.labels)},
        tested,
    )


def tune_clip_thresholds(
    scores: Sequence[FrameScores],
    tags: Sequence[Collection[str]],
    rule: Mapping[str, float] | None = None,
    threshold_from: str = "start",
    shared: bool = False,
) -> TuningResult:
    """Return the decoding that `earmark train` gives: one rule, clip-level thresholds from tags.

    Args:
        scores: of each clip, with clip-level scores.
        tags: the labels of each clip.
        rule: of all classes, in the fields of `Rule`; by default that of linear pooling.
        threshold_from: "start", or "tags" to tune the thresholds of the frames before, as well.
        shared: give all classes the same thresholds.

    >>> from earmark.frames import FrameGrid
    >>> clips = [
    ...     FrameScores([[0.9]] * 5, ["dog"], FrameGrid(12.5), clip_scores=[p]) for p in (0.2, 0.6)
    ... ]
    >>> tune_clip_thresholds(clips, [(), ["dog"]]).decoding["dog"].clip_threshold
    0.4
    """
    rule = default_rule("linear") if rule is None else rule
    return tune_decoding(
        scores,
        tags=tags,
        start=Decoding.uniform(scores[0].labels, **rule) if scores else None,
        threshold_from=threshold_from,
        shared=shared,
        objective="f_measure",
    )


def describe_tuning(tuned: TuningResult, calibrated: bool = False) -> str:
    """Return the result in a sentence or two.

    Args:
        tuned: the result.
        calibrated: whether scores were calibrated anew, also where the rules have not changed.

    >>> tested = CrossValidation(5, 0.6, gain=0.01, standard_error=0.02, in_sample_score=0.8)
    >>> kept = Decoding.uniform(["dog"])
    >>> describe_tuning(TuningResult(kept, "strong", "f_measure", 0.59, 0.59, {}, tested))
    'nothing changed: f_measure 0.590 -> 0.800 on the clips tuned on, but cross-validated 0.590 ...
    """
    tested = tuned.cross_validation
    if tuned.objective == PUBLISHED:
        labels = {"none": "no labels were needed", "weak": "from tags", "strong": "from events"}
        return (
            f"decides as published ({labels[tuned.supervision]}), F1 of tags "
            f"{tuned.start_score:.3f} -> {tuned.score:.3f} on the validation clips"
        )
    source = f"tuned from {tuned.supervision} labels, {tuned.objective}"
    if tested is None:
        return f"{source} {tuned.start_score:.3f} -> {tuned.score:.3f} on the clips tuned on"
    in_sample = f"{tuned.start_score:.3f} -> {tested.in_sample_score:.3f} on the clips tuned on"
    across = f"{tuned.start_score:.3f} -> {tested.score:.3f}"
    if not tested.is_gain:
        kept = "the rules stay, the calibration is new" if calibrated else "nothing changed"
        return (
            f"{kept}: {tuned.objective} {in_sample}, but cross-validated {across}, a gain "
            f"of {tested.gain:+.3f} that is not above its standard error of "
            f"{tested.standard_error:.3f}"
        )
    return (
        f"{source} {in_sample}, cross-validated {across}, a gain of {tested.gain:+.3f} with a "
        f"standard error of {tested.standard_error:.3f}"
    )


def _report(search: Search, at: int, rule: Rule) -> ClassReport:
    """Return what happened to one class."""
    n_positive, n_negative = search.sizes(at)
    before, after = (search.class_f_measure(at, each) for each in (search.start[at], rule))
    return ClassReport(n_positive, n_negative, before, after, search.note(at, rule))
