"""Objectives of tuning, and the exact search for the threshold that maximises one.

Conventions: an item is a clip (from tags) or a segment (from events); it is active from its score
up. `event_f_measure` counts the events of each clip instead, since whether one is correct depends
on its onset and its offset together. Thresholds lie within `bounds` and are exact there: every
threshold between two neighbouring scores decides alike, so trying one in each interval tries them
all. Where several intervals in a row are equally good they count as one; of such plateaus the
widest is taken, at its middle.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.frames import Reals
from earmark.inference.decoding import Rule
from earmark.inference.runs import Mask

Bounds = tuple[float, float]
Ints = NDArray[np.int64]


class Share(NamedTuple):
    """What one class contributes to a score that is a fraction, all else held fixed.

    With some items (clips or segments) active the score is
    (gain_before + their gains) / (cost_before + their costs). F1 is one: every active item costs
    1, a correct one gains 2, and the reference is counted before.

    Shape: `gain` and `cost` (items,).
    """

    gain: Reals
    cost: Reals
    gain_before: float
    cost_before: float

    @classmethod
    def of_f_measure(cls, reference: Mask, gain_before: int = 0, cost_before: int = 0) -> "Share":
        """Return the F1 of a class that is active where `reference` is.

        >>> Share.of_f_measure(np.array([True, False])).value(np.array([True, True]))
        0.6666666666666666
        """
        cost_before += int(reference.sum())
        return cls(reference * np.float64(2), np.ones(reference.shape), gain_before, cost_before)

    def value(self, active: Mask) -> float:
        """Return the score with the items of the mask `active`.

        >>> Share.of_f_measure(np.array([True, False])).value(np.array([False, False]))
        0.0
        """
        cost = self.cost_before + self.cost[active].sum()
        return float((self.gain_before + self.gain[active].sum()) / max(cost, 1))

    def by_clip(self, active: Mask, clip_of_item: NDArray[np.intp], n_clips: int) -> "Share":
        """Return the same with clips for items, of which each counts what is active in it.

        >>> share = Share.of_f_measure(np.array([True, False, True]))
        >>> share.by_clip(np.array([True, True, True]), np.array([0, 0, 1]), 2).gain
        array([2., 2.])
        """
        gain, cost = (
            np.bincount(clip_of_item, each * active, n_clips).astype(np.float64)
            for each in (self.gain, self.cost)
        )
        return Share(gain, cost, self.gain_before, self.cost_before)

    def best_threshold(self, scores: Reals, bounds: Bounds) -> float:
        """Return the best threshold within `bounds` for items that are active from their score up.

        >>> share = Share.of_f_measure(np.array([False, True, False, True]))
        >>> share.best_threshold(np.array([0.1, 0.6, 0.4, 0.8]), (0.05, 0.95))
        0.5
        """
        order = np.argsort(scores)
        ranked = scores[order]
        inside = ranked[(ranked > bounds[0]) & (ranked < bounds[1])]
        # All thresholds in (lower, upper] are alike.
        upper = np.append(np.unique(inside), bounds[1])
        lower = np.append(bounds[0], upper[:-1])
        first = np.searchsorted(ranked, upper)  # active are this one and all above
        gain, cost = (
            np.append(np.cumsum(each[order][::-1])[::-1], 0.0)[first]
            for each in (self.gain, self.cost)
        )
        values = (self.gain_before + gain) / np.maximum(self.cost_before + cost, 1)
        edges = np.flatnonzero(np.diff(values == values.max(), prepend=False, append=False))
        begin, end = lower[edges[::2]], upper[edges[1::2] - 1]
        widest = np.argmax(end - begin)
        middle = (begin[widest] + end[widest]) / 2
        return float(middle if middle > begin[widest] else end[widest])


def with_threshold(rule: Rule, threshold: float) -> Rule:
    """Return the rule with another threshold; the low one keeps its ratio to it.

    >>> with_threshold(Rule(0.5, 0.25), 0.25).low_threshold
    0.125
    """
    low = min(threshold, threshold * (rule.low_threshold / rule.threshold))
    return replace(rule, threshold=threshold, low_threshold=low)


def share_of_own(reference: Mask, active: Mask, at: int) -> Share:
    """Return the F1 of class `at` itself; `reference` and `active` are (classes, segments).

    >>> reference, active = np.array([[True, False]]), np.array([[True, True]])
    >>> share_of_own(reference, active, 0).value(active[0])
    0.6666666666666666
    """
    return Share.of_f_measure(reference[at])


def share_of_f_measure(reference: Mask, active: Mask, at: int) -> Share:
    """Return the F1 of all classes together, as the share of class `at`.

    >>> reference, active = np.array([[True], [True]]), np.array([[True], [False]])
    >>> [share_of_f_measure(reference, active, at).value(active[at]) for at in (0, 1)]
    [0.6666666666666666, 0.6666666666666666]
    """
    others = np.arange(len(reference)) != at
    n_right, n_estimated = (reference & active)[others].sum(), active[others].sum()
    return Share.of_f_measure(
        reference[at], 2 * int(n_right), int(n_estimated + reference[others].sum())
    )


def share_of_error_rate(reference: Mask, active: Mask, at: int) -> Share:
    """Return minus the error rate of all classes together, as the share of class `at`.

    >>> reference, active = np.array([[True], [True]]), np.array([[True], [False]])
    >>> [share_of_error_rate(reference, active, at).value(active[at]) for at in (0, 1)]
    [-0.5, -0.5]
    """
    others = np.arange(len(reference)) != at
    n_ref, n_est = reference.sum(axis=0), active[others].sum(axis=0)
    # Substitutions, deletions and insertions of a segment sum up to max(n_ref, n_est) - tp: one
    # class more is an error more where as many as in the reference are estimated already.
    errors = int(np.maximum(n_ref, n_est).sum() - (reference & active)[others].sum())
    gain = reference[at].astype(np.float64) - (n_est >= n_ref)
    return Share(gain, np.zeros(len(gain)), -errors, int(n_ref.sum()))


def share_of_event_f_measure(reference: Ints, estimate: Ints, at: int) -> Share:
    """Return the event-based F1 of all classes together, as the share of class `at`.

    Items are the clips. `reference` is (classes, clips), how many events each has; `estimate` is
    (classes, 2, clips), how many were estimated correctly, and how many in all.

    >>> reference, estimate = np.array([[1, 0], [1, 1]]), np.array([[[1, 0], [1, 1]]] * 2)
    >>> share_of_event_f_measure(reference, estimate, 0).value(np.array([True, False]))
    0.6666666666666666
    """
    others = np.arange(len(reference)) != at
    n_right, n_estimated = estimate[others].sum(axis=(0, 2)).tolist()
    gain, cost = estimate[at] * np.array([[2.0], [1.0]])
    return Share(gain, cost, 2 * n_right, int(n_estimated + reference.sum()))


# Name of what tuning optimises -> what the choice for one class adds to it.
OBJECTIVES: dict[str, Callable[[NDArray[Any], NDArray[Any], int], Share]] = {
    "class_f_measure": share_of_own,
    "f_measure": share_of_f_measure,
    "error_rate": share_of_error_rate,
    "event_f_measure": share_of_event_f_measure,
}
