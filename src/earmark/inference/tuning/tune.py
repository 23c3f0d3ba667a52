"""Validation curves -> a decoding tuned for each class: the door to tags and events.

Conventions: those of `earmark.inference.tuning`.
"""

import math
from collections.abc import Collection, Mapping, Sequence

from earmark.errors import SettingError, choose
from earmark.formats.events import Event
from earmark.frames import FrameGrid
from earmark.inference.decoding import Decoding, Floats
from earmark.inference.tuning.clips import Clips
from earmark.inference.tuning.events import SearchGrid, tune_on_events
from earmark.inference.tuning.line import Line
from earmark.inference.tuning.result import Tuned
from earmark.inference.tuning.tags import tune_on_tags
from earmark.inference.tuning.thresholds import OBJECTIVES, Bounds

# Where `tune_clip_thresholds` starts. Tags tell nothing of time, so these are ours and stay: a median
# against single frames, hysteresis since an event need not be loud throughout, and gaps and events
# shorter than three frames are taken for noise. Tags tell which clips hold a class: the gate.
START: Mapping[str, float] = {
    "threshold": 0.5,
    "low_threshold": 0.1,
    "median": 0.24,
    "min_duration": 0.24,
    "max_gap": 0.24,
}


def tune_decoding(
    curves: Sequence[Floats],
    clip_probs: Floats,
    grid: FrameGrid,
    labels: Sequence[str],
    *,
    tags: Sequence[Collection[str]] | None = None,
    reference: Sequence[Sequence[Event]] | None = None,
    start: Decoding | None = None,
    threshold_from: str = "tags",
    shared: bool = False,
    objective: str = "class_f_measure",
    search_grid: SearchGrid | None = None,
    durations: Sequence[float] | None = None,
    resolution: float = 1.0,
    bounds: Bounds = (0.05, 0.95),
) -> Tuned:
    """Return the decoding that does best on validation clips, given their tags or their events.

    Shape:
        `curves` (frames, classes) for each clip, of any number of frames; `clip_probs`
        (clips, classes).

    Args:
        curves: frame probabilities of each clip, without padding.
        clip_probs: clip probabilities.
        grid: of the frames.
        labels: the classes, in the order of the columns.
        tags: the labels of each clip; tunes from tags.
        reference: the events of each clip; tunes from events. Give one of the two.
        start: where to start from; 0.5 for all classes without it.
        threshold_from: with tags, "tags" (tune threshold and gate) or "start" (the gate only).
        shared: with tags and the objective "f_measure", tune the same for all classes.
        objective: one of `OBJECTIVES`: the mean of the classes' F1, or the overall F-measure or
            error rate; of clips with tags, of segments with events.
        search_grid: with events, what to try.
        durations: with events, the length of each clip in seconds, as for `decode_events`.
        resolution: with events, length of a segment in seconds.
        bounds: lowest and highest threshold to look for.

    >>> import numpy as np
    >>> curves = [np.full((5, 1), p) for p in (0.1, 0.2, 0.4, 0.5)]
    >>> clip_probs = np.array([[0.1], [0.2], [0.4], [0.5]])
    >>> tags = [set(), set(), {"dog"}, {"dog"}]
    >>> tuned = tune_decoding(curves, clip_probs, FrameGrid(12.5), ["dog"], tags=tags)
    >>> tuned.start_score, tuned.score, round(tuned.decoding.threshold[0], 3)
    (0.6666666666666666, 1.0, 0.3)
    """
    start = Decoding.uniform(labels) if start is None else start
    if start.labels != tuple(labels):
        raise SettingError(
            f"start must have the labels {', '.join(labels)}. Got {', '.join(start.labels)}."
        )
    data = Clips(curves, clip_probs, grid, start, bounds)
    if (tags is None) == (reference is None):
        raise SettingError("Tuning takes either tags=... (weak) or reference=... (strong).")
    choose("objective", objective, OBJECTIVES)
    if shared and (tags is None or objective != "f_measure"):
        raise SettingError(
            "shared=True tunes from tags=... for objective='f_measure'. Got "
            f"{'no tags' if tags is None else f'objective={objective!r}'}."
        )
    if tags is not None:
        choose("threshold_from", threshold_from, ("start", "tags"))
        return tune_on_tags(data, tags, threshold_from, objective, shared)
    assert reference is not None
    if not (math.isfinite(resolution) and resolution > 0):
        raise SettingError(f"resolution must be a number of seconds above 0. Got {resolution!r}.")
    search_grid = search_grid or SearchGrid()
    line = Line(data, reference, max(search_grid.max_gap), durations, resolution)
    return tune_on_events(line, search_grid, objective)


def tune_clip_thresholds(
    curves: Sequence[Floats],
    clip_probs: Floats,
    grid: FrameGrid,
    labels: Sequence[str],
    tags: Sequence[Collection[str]],
    threshold_from: str = "start",
    shared: bool = False,
) -> Tuned:
    """Return the decoding that `earmark train` gives: `START`, and gates from validation tags.

    With `threshold_from="tags"` the thresholds of the frames are tuned before, as well; with
    `shared` all classes get the same.

    >>> import numpy as np
    >>> curves = [np.full((5, 1), 0.9)] * 2
    >>> tuned = tune_clip_thresholds(curves, np.array([[0.2], [0.6]]), FrameGrid(12.5), ["dog"], [(), ["dog"]])
    >>> tuned.decoding.low_threshold, tuned.decoding.clip_threshold
    ((0.1,), (0.4,))
    """
    return tune_decoding(
        curves,
        clip_probs,
        grid,
        labels,
        tags=tags,
        start=Decoding.uniform(labels, **START),
        threshold_from=threshold_from,
        shared=shared,
        objective="f_measure",
    )
