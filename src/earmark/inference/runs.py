"""Active frames of one class -> runs: the steps of decoding, for whole recordings and for pieces.

`earmark.inference.decoding` applies them to whole recordings, `earmark.inference.online` to pieces
of one; both therefore find the same runs.

Conventions: masks are (frames,). A run is given by the frame where it starts and the frame where it
has stopped. The sum of the scores of a run is added up in order of time, in float64: so it can be
continued from piece to piece, and is the same to the last bit.
"""

import numpy as np
from numpy.typing import NDArray

from earmark.frames import Indices, Reals

Mask = NDArray[np.bool_]


def majority(mask: Mask, half: int) -> Mask:
    """Return where more than half of the 2 * half + 1 frames around a frame are True.

    Shape: (frames + 2 * half,) -> (frames,); the mask has `half` more frames on both sides.

    >>> majority(np.array([0, 1, 1, 0, 0], bool), 1)
    array([ True,  True, False])
    """
    if half == 0:
        return mask
    total = np.cumsum(np.concatenate([[False], mask]), dtype=np.int64)
    counts = total[2 * half + 1 :] - total[: -2 * half - 1]
    return np.asarray(counts > half)


class MajorityFilter:
    """`majority` of a mask that comes in pieces, mirrored at the edges of the recording.

    At most `2 * half` frames are held.

    >>> majority_filter = MajorityFilter(1)
    >>> [majority_filter.push(np.array(piece, bool)) for piece in ([1], [0, 1])]
    [array([], dtype=bool), array([ True,  True])]
    >>> majority_filter.push(np.zeros(0, bool), is_last=True)
    array([ True])
    """

    def __init__(self, half: int) -> None:
        self.half = half
        self._held: Mask = np.zeros(0, bool)
        self._has_front = False

    def push(self, mask: Mask, is_last: bool = False) -> Mask:
        """Return the filtered frames that are final after this piece, in order."""
        half = self.half
        if half == 0:
            return mask
        held = np.concatenate([self._held, mask])
        if is_last and not self._has_front:  # so short that mirrors may repeat it several times
            return majority(np.pad(held, half, mode="symmetric"), half) if len(held) else held
        if not self._has_front and len(held) >= half:
            held = np.concatenate([held[:half][::-1], held])
            self._has_front = True
        if is_last:
            held = np.concatenate([held, held[-half:][::-1]])
        if not self._has_front or len(held) <= 2 * half:
            self._held = held
            return np.zeros(0, bool)
        self._held = held[-2 * half :]
        return majority(held, half)


def active_runs(low: Mask, high: Mask) -> tuple[Indices, Indices, Mask]:
    """Return where `low` is True without interruption, and whether `high` is True anywhere there.

    >>> low, high = np.array([[1, 1, 0, 1], [0, 1, 0, 0]], bool)
    >>> active_runs(low, high)
    (array([0, 3]), array([2, 4]), array([ True, False]))
    """
    edges = np.flatnonzero(np.diff(low, prepend=False, append=False))
    starts, stops = edges[::2], edges[1::2]
    if high is low or not len(starts):
        return starts, stops, np.ones(len(starts), bool)
    # Up to the next start: low ends before.
    return starts, stops, np.logical_or.reduceat(high, starts)


def join_runs(starts: Indices, stops: Indices, max_gap: int) -> tuple[Indices, Indices]:
    """Return the runs after gaps of up to `max_gap` frames between them are filled.

    >>> join_runs(np.array([0, 3, 9]), np.array([2, 5, 10]), max_gap=1)
    (array([0, 9]), array([ 5, 10]))
    """
    if max_gap <= 0 or not len(starts):
        return starts, stops
    apart = starts[1:] - stops[:-1] > max_gap
    return (
        np.concatenate([starts[:1], starts[1:][apart]]),
        np.concatenate([stops[:-1][apart], stops[-1:]]),
    )


def find_runs(low: Mask, high: Mask, max_gap: int, min_length: int) -> tuple[Indices, Indices]:
    """Return where runs start and where they have stopped: steps 3 to 5 of decoding, in frames.

    Args:
        low: (frames,), True where a run continues.
        high: (frames,), True where a run is confirmed; nowhere True where `low` is not.
        max_gap: gaps of up to so many frames are filled.
        min_length: runs of fewer frames are dropped.

    >>> low = np.array([1, 1, 0, 1, 0, 0, 1], bool)
    >>> find_runs(low, low, max_gap=1, min_length=2)
    (array([0]), array([4]))
    """
    starts, stops, confirmed = active_runs(low, high)
    starts, stops = join_runs(starts[confirmed], stops[confirmed], max_gap)
    long = stops - starts >= min_length
    return starts[long], stops[long]


def run_sums(values: Reals, starts: Indices, stops: Indices) -> Reals:
    """Return the sum of the values of each run, added up in order of time.

    >>> run_sums(np.array([1.0, 2.0, 4.0]), np.array([0, 2]), np.array([2, 3]))
    array([3., 4.])
    """
    # NumPy's own sums pair values up in an order that depends on how many there are.
    lengths = stops - starts
    shifts = np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
    frames = np.arange(len(shifts)) + shifts
    runs = np.repeat(np.arange(len(starts)), lengths)
    sums: Reals = np.bincount(runs, values[frames], minlength=len(starts)).astype(np.float64)
    return sums


def run_maxima(values: Reals, starts: Indices, stops: Indices) -> Reals:
    """Return the highest value of each run; runs are not empty.

    >>> run_maxima(np.array([1.0, 2.0, 4.0]), np.array([0, 2]), np.array([2, 3]))
    array([2., 4.])
    """
    if not len(starts):
        return np.zeros(0)
    bounds = np.stack([starts, stops], axis=1).ravel()
    maxima: Reals = np.maximum.reduceat(np.append(values, -np.inf), bounds)[::2]
    return maxima
