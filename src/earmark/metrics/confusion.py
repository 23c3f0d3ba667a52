"""Events -> which class was taken for which, in segments.

Conventions: segments are those of `earmark.metrics.segment`. In a segment where both sides have a
class, it is right. Of the rest, m classes were missed and f found wrongly: min(m, f) are taken for
each other, which is shared out evenly over the pairs; what is left of the missed was taken for
nothing, what is left of the wrong ones was nothing. So the matrix adds up to what segment-based
scores count: its diagonal to true positives, what is beside it to substitutions, its last column to
deletions, its last row to insertions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from earmark.formats.events import Event
from earmark.metrics.rates import Reals
from earmark.metrics.segment import check_resolution, touched_segments
from earmark.metrics.sides import lay_out


@dataclass(frozen=True, eq=False)
class Confusion:
    """The matrix, rows by reference and columns by estimate; the last of each is nothing.

    Shape: `matrix` (classes + 1, classes + 1).
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
    """Return which class was taken for which; the arguments are those of `segment_scores`.

    >>> found = {"a.wav": [Event(0, 2, "cat")]}
    >>> segment_confusion({"a.wav": [Event(0, 3, "dog")]}, found).matrix.tolist()
    [[0.0, 0.0, 0.0], [2.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    check_resolution(resolution)
    sides = lay_out(reference, estimate, labels)
    n_classes = len(sides.labels)
    both = (sides.reference, sides.estimate)
    spans = [touched_segments(side.onsets, side.offsets, resolution) for side in both]
    lengths = np.zeros(len(sides.files), np.int64)
    for side, (_, stops) in zip(both, spans, strict=True):
        np.maximum.at(lengths, side.of_file, stops)
    before = np.cumsum(lengths) - lengths  # files lie end to end
    places = [
        [each + before[side.of_file] for each in span]
        for side, span in zip(both, spans, strict=True)
    ]
    cuts = np.unique(np.concatenate([each for span in places for each in span]))
    active = []
    for side, span in zip(both, places, strict=True):
        change = np.zeros((len(cuts), n_classes), np.int32)
        for each, sign in zip(span, (1, -1), strict=True):
            np.add.at(change, (np.searchsorted(cuts, each), side.of_class), sign)
        active.append(np.cumsum(change, axis=0)[:-1] > 0)  # (pieces, classes)
    ref, est = active if len(cuts) else (np.zeros((0, n_classes), bool),) * 2
    length = np.diff(cuts).astype(np.float64)
    missed, wrong = (ref & ~est).astype(np.float64), (est & ~ref).astype(np.float64)
    n_missed, n_wrong = missed.sum(axis=1), wrong.sum(axis=1)
    n_swapped = np.minimum(n_missed, n_wrong)
    matrix = np.zeros((n_classes + 1, n_classes + 1))
    pairs = np.maximum(n_missed * n_wrong, 1)
    matrix[:-1, :-1] = (missed * (length * n_swapped / pairs)[:, None]).T @ wrong
    matrix[np.arange(n_classes), np.arange(n_classes)] = length @ (ref & est)
    matrix[:-1, -1] = (length * (n_missed - n_swapped) / np.maximum(n_missed, 1)) @ missed
    matrix[-1, :-1] = (length * (n_wrong - n_swapped) / np.maximum(n_wrong, 1)) @ wrong
    return Confusion(sides.labels, matrix, float(resolution))
