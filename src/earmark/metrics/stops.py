"""Counts at each threshold -> the one where it is best to stop.

Conventions: the threshold falls from above all scores, where nothing is found, and may stop below
any of them. A stop is worth a look only if something got better just before it and something gets
worse just after (`Changes.turns`). Where stops are equally good the highest threshold is taken.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from earmark.metrics.changes import Changes, Tally
from earmark.metrics.pieces import Pieces
from earmark.metrics.runs import Bools, Reals


@dataclass(frozen=True)
class Best:
    """A best score, and what gives it.

    Args:
        value: the score.
        thresholds: label -> threshold; infinity is to find nothing.
        tp: true positives there.
        fp: false positives there.
        n_ref: events, or active segments, of the reference.

    >>> best = Best(0.8, {"dog": 0.5}, tp=2, fp=1, n_ref=2)
    >>> round(best.precision, 3), best.recall
    (0.667, 1.0)
    """

    value: float
    thresholds: dict[str, float]
    tp: int
    fp: int
    n_ref: int

    @property
    def precision(self) -> float:
        """What part of what was found is right; nan where nothing was."""
        return self.tp / (self.tp + self.fp) if self.tp + self.fp else np.nan

    @property
    def recall(self) -> float:
        """What part of the reference was found; nan without reference."""
        return self.tp / self.n_ref if self.n_ref else np.nan


class Stops:
    """Counts at every threshold where it may be best to stop, the highest first.

    Args:
        changes: of one class, or of all as one; amounts are true positives, false positives and
            errors of all classes together.
        is_shared: the error rates are those of all classes, where one can stand for another;
            otherwise those of a class alone, its misses and false alarms.

    Shape: `tp` and `fp` (stops,), and so are the rates; the first stop is to find nothing.

    >>> some = np.zeros(2, int)
    >>> amounts = np.array([[1, 0], [0, 1], [-1, 1]], np.int32)
    >>> stops = Stops(Changes(some, some, np.array([0.75, 0.25]), amounts, some))
    >>> stops.rates(1), stops.threshold(1)
    ((array([0., 1.]), array([1., 0.])), 0.5)
    """

    def __init__(self, changes: Changes, *, is_shared: bool = False) -> None:
        self.is_shared = is_shared
        true, false, errors = changes.amounts
        points = changes.turns(
            (true > 0) | (false < 0) | (errors < 0), (true < 0) | (false > 0) | (errors > 0)
        )
        self.tallies = [Tally(changes, each, points) for each in (true, false, errors)]
        self.tp, self.fp, _ = (tally.sums() for tally in self.tallies)
        # what is next below each, and above the first nothing
        self.upper = np.append(np.inf, changes.score[points])
        behind = np.minimum(np.append(-1, points) + 1, max(0, len(changes) - 1))
        self.lower = changes.score[behind] if len(changes) else np.full(1, -np.inf)

    def rates(self, n_ref: float, weights: Reals | None = None) -> tuple[Reals, Reals]:
        """Return the F-measures and error rates of one draw of files, nan without reference."""
        tp, fp = (tally.sums(weights) for tally in self.tallies[:2])
        if not n_ref:
            return np.full(len(tp), np.nan), np.full(len(tp), np.nan)
        errors = self.tallies[2].sums(weights) if self.is_shared else fp - tp
        return 2 * tp / (tp + fp + n_ref), (n_ref + errors) / n_ref

    def threshold(self, at: int) -> float:
        """Return a threshold that stops there."""
        return midway(self.upper[at], self.lower[at])

    def best(self, labels: tuple[str, ...], values: Reals, at: int, n_ref: int) -> Best:
        """Return the stop `at`, whose score is among `values`, with one threshold for all."""
        thresholds = dict.fromkeys(labels, self.threshold(at))
        return Best(float(values[at]), thresholds, int(self.tp[at]), int(self.fp[at]), n_ref)


def midway(upper: float, lower: float) -> float:
    """Return a threshold at which the score `upper` is active and `lower` is not.

    >>> midway(0.5, 0.25), midway(0.5, 0.5)
    (0.375, 0.5)
    """
    if np.inf in (upper, -lower):
        return float(upper)
    middle = lower + (upper - lower) / 2
    return float(middle if lower < middle <= upper else upper)


def change_one_by_one(pieces: Pieces, labels: tuple[str, ...], start: Mapping[str, float]) -> Best:
    """Lower the error rate of all classes by one threshold at a time, until none lowers it.

    >>> pieces = Pieces(np.array([0]), np.array([[0.9, 0.5]]), np.array([[False, True]]))
    >>> change_one_by_one(pieces, ("cat", "dog"), {"cat": np.inf, "dog": np.inf})
    Best(value=0.0, thresholds={'cat': inf, 'dog': 0.5}, tp=1, fp=0, n_ref=1)
    """
    n_ref = pieces.truth.sum(axis=1)
    thresholds = np.array([start[label] for label in labels])
    active: Bools = pieces.scores >= thresholds
    orders = np.argsort(-pieces.scores, axis=0, kind="stable")
    lacking = set(range(len(labels)))  # classes to be tried since the last change
    at = 0
    while lacking:
        scores = pieces.scores[orders[:, at], at]
        # One class more is an error where as many as in the reference are found without it.
        is_more = active.sum(axis=1) - active[:, at] >= n_ref
        cost = is_more.astype(np.int64) - pieces.truth[:, at]
        total = np.append(0, np.cumsum(cost[orders[:, at]]))
        is_end = np.append(scores[1:] != scores[:-1], True)[: len(scores)] & (scores > -np.inf)
        stops = np.append(0, np.flatnonzero(is_end) + 1)
        best = stops[np.argmin(total[stops])]
        if total[best] < total[np.count_nonzero(active[:, at])]:
            lower = scores[best] if best < len(scores) else scores[-1]
            thresholds[at] = midway(scores[best - 1] if best else np.inf, lower)
            active[:, at] = pieces.scores[:, at] >= thresholds[at]
            lacking = set(range(len(labels)))
        lacking.discard(at)
        at = (at + 1) % len(labels)
    right = active & pieces.truth
    tp, n_est = int(right.sum()), active.sum(axis=1)
    n_errors = int(np.maximum(n_ref, n_est).sum()) - tp
    n_all = int(n_ref.sum())
    found = dict(zip(labels, thresholds.tolist(), strict=True))
    return Best(n_errors / n_all, found, tp, int(n_est.sum()) - tp, n_all)
