"""Every detection that any threshold can yield from frame-level scores.

At a given threshold the frames with a score at or above it are active, and a detection is a maximal
run of active frames. As the threshold falls, detections appear, grow and merge. Together they form
a tree with at most one node per frame, and each detection exists for one range of thresholds. So
every threshold can be scored exactly, without sampling thresholds.

Conventions: the scores of all files are stacked (`earmark.metrics.stacked_scores`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from earmark.metrics.event_arrays import Bools, Ints, Reals
from earmark.metrics.stacked_scores import StackedScores

_BLOCK_ROWS = 1 << 19  # rows of all classes at a time: some 100 MB


@dataclass(frozen=True, eq=False)
class Detections:
    """Detections, each of which exists for thresholds above `lower` and up to `upper`.

    At `lower` a detection merges into its parent, whose `upper` that is. A detection that covers a
    whole file has no parent (-1), and its `lower` is minus infinity.

    Shape: all (detections,).

    >>> index, zero = np.zeros(1, int), np.zeros(1)
    >>> len(Detections(index, index, zero, zero + 2, zero + 0.9, zero + 0.2, index - 1))
    1
    """

    file_index: Ints
    class_index: Ints
    onset: Reals
    offset: Reals
    upper: Reals
    lower: Reals
    parent: Ints

    def __len__(self) -> int:
        return len(self.upper)


def count_detections(stacked: StackedScores) -> tuple[Ints, Ints, Reals, Ints]:
    """Return by how much the number of detections changes as the threshold falls to each score.

    This does not need the tree: a frame above its neighbours starts a detection, a frame below them
    merges two.

    Returns:
        File, class, score and change, each (changes,), sorted by class.

    >>> from earmark.formats.scores import ScoreTable
    >>> from earmark.metrics.stacked_scores import stack_scores
    >>> scores = ScoreTable(["dog"], {"a": ([0, 1, 2, 3], [[0.9], [0.2], [0.8]])})
    >>> count_detections(stack_scores({"a": []}, scores))[2:]
    (array([0.9, 0.2, 0.8]), array([ 1, -1,  1]))
    """
    flat = stacked.scores.ravel()
    rises = np.empty(len(flat), np.int8)  # the last row is minus infinity: nothing rises to it
    rises[1:] = flat[1:] > flat[:-1]
    rises[:1] = flat[:1] > -np.inf
    change = rises - np.append(rises[1:], np.int8(0))
    change[flat == -np.inf] = 0
    index = np.flatnonzero(change)
    class_index, row = np.divmod(index, max(1, len(stacked.edges)))
    return stacked.file_index[row], class_index, flat[index], change[index].astype(np.int64)


def find_detections(stacked: StackedScores, chosen: Bools) -> Iterator[Detections]:
    """Yield the detections of the chosen files and classes, in blocks.

    Args:
        stacked: the frame-level scores.
        chosen: (files, classes), True where detections are wanted.

    >>> from earmark.formats.scores import ScoreTable
    >>> from earmark.metrics.stacked_scores import stack_scores
    >>> scores = ScoreTable(["dog"], {"a": ([0, 1, 2, 3], [[0.9], [0.2], [0.8]])})
    >>> (block,) = find_detections(stack_scores({"a": []}, scores), np.array([[True]]))
    >>> list(zip(block.onset.tolist(), block.offset.tolist(), block.upper.tolist()))
    [(0.0, 1.0, 0.9), (0.0, 3.0, 0.2), (2.0, 3.0, 0.8)]
    """
    class_index, file_index = np.nonzero(chosen.T)  # sorted by class
    n_rows = stacked.last[file_index] + 1 - stacked.first[file_index]
    block_index = np.cumsum(n_rows) // _BLOCK_ROWS
    bounds = np.flatnonzero(np.diff(block_index)) + 1
    for block in np.split(np.arange(len(n_rows)), bounds):
        if len(block):
            yield _detections_of(stacked, file_index[block], class_index[block], n_rows[block])


def _detections_of(
    stacked: StackedScores, file_index: Ints, class_index: Ints, n_rows: Ints
) -> Detections:
    """Return the detections of some series; a series is one class of one file."""
    begins = np.cumsum(n_rows) - n_rows
    within = np.arange(int(n_rows.sum())) - np.repeat(begins, n_rows)
    row = np.repeat(stacked.first[file_index], n_rows) + within
    series = np.repeat(np.arange(len(n_rows)), n_rows)
    scores = stacked.scores[class_index[series], row]
    reach = int(n_rows.max())
    frame = np.flatnonzero(within < n_rows[series] - 1)
    # Of frames with equal scores in one detection, the first represents all of them.
    left = _nearest_below(scores, frame, reach, or_equal=True)
    is_first = scores[left] < scores[frame]
    node = np.full(len(scores), -1, np.int64)  # the detection that each frame represents
    node[frame[is_first]] = np.arange(np.count_nonzero(is_first))
    representative = np.arange(len(scores))
    equal, previous = frame[~is_first], left[~is_first]
    while len(equal):  # pointer jumping: to the first frame of equal score
        representative[equal] = previous
        farther = representative[previous]
        moved = farther != previous
        equal, previous = equal[moved], farther[moved]
    frame, left = frame[is_first], left[is_first]
    mirrored = _nearest_below(scores[::-1], len(scores) - 1 - frame, reach, or_equal=False)
    right = len(scores) - 1 - mirrored
    higher = np.where(scores[left] >= scores[right], left, right)
    return Detections(
        file_index=file_index[series[frame]],
        class_index=class_index[series[frame]],
        onset=stacked.edges[row[left + 1]],
        offset=stacked.edges[row[right]],
        upper=scores[frame],
        lower=scores[higher],
        parent=node[representative[higher]],
    )


def _nearest_below(scores: Reals, frame: Ints, reach: int, *, or_equal: bool) -> Ints:
    """Return for each of `frame` the nearest row before it with a lower score, -1 if none.

    Uses the minimum over 1, 2, 4, ... rows: as many steps as `reach` has binary digits.

    Args:
        scores: (rows,), the last of them minus infinity.
        frame: the rows from which to look back.
        reach: how many rows to look back at most.
        or_equal: stop at an equal score too.
    """
    minima, width = [scores], 1
    while 2 * width <= reach:
        double = np.full(len(scores), -np.inf)
        np.minimum(minima[-1][width:], minima[-1][:-width], out=double[width:])
        minima.append(double)
        width *= 2
    continues = np.greater if or_equal else np.greater_equal
    nearest = frame - 1
    moving = np.flatnonzero(continues(scores[nearest], scores[frame]))
    row, own = nearest[moving], scores[frame[moving]]
    for minimum in reversed(minima):
        row -= width * continues(minimum[row], own)
        width //= 2
    nearest[moving] = row
    return nearest
