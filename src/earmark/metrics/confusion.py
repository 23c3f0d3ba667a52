"""Confusion matrix of classes, counted in segments.

Conventions: segments are those of `earmark.metrics.segment`. A class that is active in reference
and estimate of a segment is correct. Of the others, m classes were missed and f falsely detected:
min(m, f) of them are confused with each other, distributed evenly over all m * f pairs. The
remaining misses and false detections are confused with no class. So the matrix sums to the counts
of the segment-based scores: its diagonal to true positives, the other class pairs to substitutions,
its last column to deletions, its last row to insertions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from earmark.formats.events import Event
from earmark.metrics.event_arrays import Reals, align_events
from earmark.metrics.segment import check_resolution, touched_segments


@dataclass(frozen=True, eq=False)
class Confusion:
    """The confusion matrix: rows are the reference, columns the estimate, the last is no class.

    Shape: `matrix` (classes + 1, classes + 1).

    >>> Confusion(("dog",), np.zeros((2, 2)), resolution=1.0).labels
    ('dog',)
    """

    labels: tuple[str, ...]
    matrix: Reals
    resolution: float


def segment_confusion(
    reference: Mapping[str, Sequence[Event]],
    estimate: Mapping[str, Sequence[Event]],
    labels: Sequence[str] | None = None,
    resolution: float = 1.0,
) -> Confusion:
    """Return the confusion matrix of segments; arguments as in `segment_scores`.

    >>> estimate = {"a.wav": [Event(0, 2, "cat")]}
    >>> segment_confusion({"a.wav": [Event(0, 3, "dog")]}, estimate).matrix.tolist()
    [[0.0, 0.0, 0.0], [2.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    check_resolution(resolution)
    aligned = align_events(reference, estimate, labels)
    n_classes = len(aligned.labels)
    both = (aligned.reference, aligned.estimate)
    spans = [touched_segments(events.onsets, events.offsets, resolution) for events in both]
    lengths = np.zeros(len(aligned.files), np.int64)
    for events, (_, stops) in zip(both, spans, strict=True):
        np.maximum.at(lengths, events.file_index, stops)
    before = np.cumsum(lengths) - lengths  # files lie end to end on one time line
    shifted = [
        [ends + before[events.file_index] for ends in span]
        for events, span in zip(both, spans, strict=True)
    ]
    bounds = np.unique(np.concatenate([ends for span in shifted for ends in span]))
    active = []
    for events, span in zip(both, shifted, strict=True):
        change = np.zeros((len(bounds), n_classes), np.int32)
        for ends, sign in zip(span, (1, -1), strict=True):
            np.add.at(change, (np.searchsorted(bounds, ends), events.class_index), sign)
        active.append(np.cumsum(change, axis=0)[:-1] > 0)  # (pieces, classes)
    ref, est = active if len(bounds) else (np.zeros((0, n_classes), bool),) * 2
    length = np.diff(bounds).astype(np.float64)
    missed, false = (ref & ~est).astype(np.float64), (est & ~ref).astype(np.float64)
    n_missed, n_false = missed.sum(axis=1), false.sum(axis=1)
    n_confused = np.minimum(n_missed, n_false)
    matrix = np.zeros((n_classes + 1, n_classes + 1))
    n_pairs = np.maximum(n_missed * n_false, 1)
    matrix[:-1, :-1] = (missed * (length * n_confused / n_pairs)[:, None]).T @ false
    matrix[np.arange(n_classes), np.arange(n_classes)] = length @ (ref & est)
    matrix[:-1, -1] = (length * (n_missed - n_confused) / np.maximum(n_missed, 1)) @ missed
    matrix[-1, :-1] = (length * (n_false - n_confused) / np.maximum(n_false, 1)) @ false
    return Confusion(aligned.labels, matrix, float(resolution))
