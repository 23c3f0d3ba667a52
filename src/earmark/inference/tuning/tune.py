"""Validation scores -> a decoding tuned from tags or from events; conventions in the package."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from earmark.errors import SettingError, choose
from earmark.formats.events import Event
from earmark.frames import FrameScores
from earmark.inference.decoding import Decoding
from earmark.inference.tuning.objectives import OBJECTIVES, Bounds, Share
from earmark.inference.tuning.search import EventSearch, Search, SearchGrid, TagSearch

# Where `tune_clip_thresholds` starts. Tags say nothing about time, so these are ours and stay: a
# median against single frames, hysteresis since an event need not be loud throughout, and gaps and
# events shorter than three frames are taken for noise. Tags say which clips contain a class: that
# is what the clip-level threshold is tuned from.
START: Mapping[str, float] = {
    "threshold": 0.5,
    "low_threshold": 0.1,
    "median": 0.24,
    "min_duration": 0.24,
    "max_gap": 0.24,
}


@dataclass(frozen=True)
class ClassReport:
    """What tuning did to one class: F1 before and after; `note` says why nothing was tuned.

    F1 and positives are of clips (weak) or of segments (strong); F1 is nan for a class that the
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
        decoding: the best found.
        supervision: "weak" (tags) or "strong" (events).
        objective: what was maximised; an error rate, minimised.
        score: of `decoding` on the tuning data.
        start_score: of the start.
        classes: label -> its report.

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

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain dicts and lists, for a record; nan stays nan.

        >>> result = TuningResult(Decoding.uniform(["dog"]), "weak", "clip_f_measure", 0.5, 0.5)
        >>> result.to_dict()["decoding"]["dog"]["threshold"]
        0.5
        """
        return asdict(self) | {"decoding": self.decoding.to_dict()}


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
            error rate; of clips with tags, of segments with events.
        search_grid: with events, what to try.
        resolution: with events, length of a segment in seconds.
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
    start = Decoding.uniform(labels) if start is None else start
    for at, each in enumerate(scores):
        if each.labels != start.labels:
            raise SettingError(
                f"Clip {at} has scores of {', '.join(each.labels)}; the start is a decoding of "
                f"{', '.join(start.labels)}."
            )
    for name, values in (("tags", tags), ("reference", reference)):
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
    if tags is not None:
        choose("threshold_from", threshold_from, ("start", "tags"))
        tune_frames = threshold_from == "tags"
        by_tags = TagSearch(
            scores, tags, start, objective, bounds, tune_frames=tune_frames, shared=shared
        )
        return _result(by_tags, f"clip_{objective}")
    assert reference is not None
    if not (math.isfinite(resolution) and resolution > 0):
        raise SettingError(f"resolution must be a number of seconds above 0. Got {resolution!r}.")
    grid = search_grid or SearchGrid()
    by_events = EventSearch(scores, reference, start, objective, bounds, grid, resolution)
    return _result(by_events, objective)


def tune_clip_thresholds(
    scores: Sequence[FrameScores],
    tags: Sequence[Collection[str]],
    threshold_from: str = "start",
    shared: bool = False,
) -> TuningResult:
    """Return the decoding that `earmark train` gives: `START`, clip-level thresholds from tags.

    With `threshold_from="tags"` the thresholds of the frames are tuned before, as well; with
    `shared` all classes get the same.

    >>> from earmark.frames import FrameGrid
    >>> clips = [
    ...     FrameScores([[0.9]] * 5, ["dog"], FrameGrid(12.5), clip_scores=[p]) for p in (0.2, 0.6)
    ... ]
    >>> tune_clip_thresholds(clips, [(), ["dog"]]).decoding["dog"].clip_threshold
    0.4
    """
    return tune_decoding(
        scores,
        tags=tags,
        start=Decoding.uniform(scores[0].labels, **START) if scores else None,
        threshold_from=threshold_from,
        shared=shared,
        objective="f_measure",
    )


def _result(search: Search, objective: str) -> TuningResult:
    rules = search.run()
    before, after = search.active(search.start), search.active(rules)
    reports = {}
    for at, label in enumerate(search.labels):
        n_positive = int(search.reference[at].sum())
        n_negative = search.reference.shape[1] - n_positive
        f_measures = (math.nan, math.nan)
        if n_positive:
            share = Share.of_f_measure(search.reference[at])
            f_measures = share.value(before[at]), share.value(after[at])
        note = search.note(at, rules[at])
        reports[label] = ClassReport(n_positive, n_negative, *f_measures, note)
    scores = search.score(rules), search.score(search.start)
    decoding = Decoding(search.labels, tuple(rules))
    return TuningResult(decoding, search.supervision, objective, *scores, reports)
