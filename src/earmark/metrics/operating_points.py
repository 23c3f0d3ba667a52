"""Operating points: the counts at each threshold, and the threshold where a score is best.

Conventions: the threshold falls from above all scores, where nothing is detected. Only thresholds
are candidates at which something improved and below which something gets worse
(`CountDeltas.candidate_points`). Of equally good operating points the one with the highest
threshold is chosen.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from earmark.metrics.count_deltas import CountDeltas, CumulativeCounts
from earmark.metrics.event_arrays import Bools, Reals
from earmark.metrics.segment_criterion import SegmentTable


@dataclass(frozen=True)
class OperatingPoint:
    """A score, and the thresholds and counts that yield it.

    Args:
        value: the score.
        thresholds: label -> threshold; infinity detects nothing.
        tp: true positives there.
        fp: false positives there.
        n_ref: events, or active segments, of the reference.

    >>> point = OperatingPoint(0.8, {"dog": 0.5}, tp=2, fp=1, n_ref=2)
    >>> round(point.precision, 3), point.recall
    (0.667, 1.0)
    """

    value: float
    thresholds: dict[str, float]
    tp: int
    fp: int
    n_ref: int

    @property
    def precision(self) -> float:
        """The fraction of detections that are correct; nan without detections."""
        return self.tp / (self.tp + self.fp) if self.tp + self.fp else np.nan

    @property
    def recall(self) -> float:
        """The fraction of the reference that was detected; nan without reference."""
        return self.tp / self.n_ref if self.n_ref else np.nan


class OperatingPoints:
    """The counts at every threshold that may be optimal, the highest first.

    Args:
        deltas: of one class, or of all classes pooled; the kinds are true positives, false
            positives and errors of all classes.
        count_substitutions: the error rate is that of all classes, where a false positive of one
            class and a miss of another are one substitution; otherwise it counts misses and false
            positives separately.

    Shape: `tp` and `fp` (points,), and so are the scores; the first point detects nothing.

    >>> some = np.zeros(2, int)
    >>> values = np.array([[1, 0], [0, 1], [-1, 1]], np.int32)
    >>> points = OperatingPoints(CountDeltas(some, some, np.array([0.75, 0.25]), values, some))
    >>> points.scores(1), points.threshold(1)
    ((array([0., 1.]), array([1., 0.])), 0.5)
    """

    def __init__(self, deltas: CountDeltas, *, count_substitutions: bool = False) -> None:
        self.count_substitutions = count_substitutions
        tp, fp, errors = deltas.values
        points = deltas.candidate_points(
            (tp > 0) | (fp < 0) | (errors < 0), (tp < 0) | (fp > 0) | (errors > 0)
        )
        self._tp, self._fp, self._errors = (
            CumulativeCounts(deltas, values, points) for values in (tp, fp, errors)
        )
        self.tp, self.fp = self._tp.at_points(), self._fp.at_points()
        # A threshold of a point lies above `lower` and not above `upper`.
        self.upper = np.append(np.inf, deltas.score[points])
        following = np.minimum(np.append(-1, points) + 1, max(0, len(deltas) - 1))
        self.lower = deltas.score[following] if len(deltas) else np.full(1, -np.inf)

    def scores(self, n_ref: float, weights: Reals | None = None) -> tuple[Reals, Reals]:
        """Return F-measure and error rate at every point, nan if `n_ref` is 0.

        Args:
            n_ref: events, or active segments, of the reference.
            weights: (files,), by default 1 each.
        """
        tp, fp = self._tp.at_points(weights), self._fp.at_points(weights)
        if not n_ref:
            return np.full(len(tp), np.nan), np.full(len(tp), np.nan)
        errors = self._errors.at_points(weights) if self.count_substitutions else fp - tp
        return 2 * tp / (tp + fp + n_ref), (n_ref + errors) / n_ref

    def threshold(self, index: int) -> float:
        """Return a threshold of the point `index`."""
        return threshold_between(self.upper[index], self.lower[index])

    def best(self, labels: tuple[str, ...], n_ref: int) -> dict[str, OperatingPoint]:
        """Return the points of highest F-measure and lowest error rate, one threshold for all."""
        f_measures, error_rates = self.scores(n_ref)

        def point(values: Reals, index: int) -> OperatingPoint:
            thresholds = dict.fromkeys(labels, self.threshold(index))
            counts = int(self.tp[index]), int(self.fp[index]), n_ref
            return OperatingPoint(float(values[index]), thresholds, *counts)

        return {
            "f_measure": point(f_measures, int(f_measures.argmax())),
            "error_rate": point(error_rates, int(error_rates.argmin())),
        }


def threshold_between(upper: float, lower: float) -> float:
    """Return a threshold at which a score of `upper` is active and one of `lower` is not.

    >>> threshold_between(0.5, 0.25), threshold_between(0.5, 0.5)
    (0.375, 0.5)
    """
    if np.inf in (upper, -lower):
        return float(upper)
    middle = lower + (upper - lower) / 2
    return float(middle if lower < middle <= upper else upper)


def coordinate_descent(
    segments: SegmentTable, labels: tuple[str, ...], start: Mapping[str, float]
) -> OperatingPoint:
    """Lower the overall error rate by one class's threshold at a time, until none lowers it.

    >>> scores, reference = np.array([[0.9, 0.5]]), np.array([[False, True]])
    >>> segments = SegmentTable(np.array([0]), scores, reference)
    >>> coordinate_descent(segments, ("cat", "dog"), {"cat": np.inf, "dog": np.inf})
    OperatingPoint(value=0.0, thresholds={'cat': inf, 'dog': 0.5}, tp=1, fp=0, n_ref=1)
    """
    n_ref = segments.reference.sum(axis=1)
    thresholds = np.array([start[label] for label in labels])
    active: Bools = segments.scores >= thresholds
    orders = np.argsort(-segments.scores, axis=0, kind="stable")
    remaining = set(range(len(labels)))  # classes to try since the last change
    c = 0
    while remaining:
        scores = segments.scores[orders[:, c], c]
        # An active class adds an error if at least `n_ref` other classes are active already.
        is_surplus = active.sum(axis=1) - active[:, c] >= n_ref
        cost = is_surplus.astype(np.int64) - segments.reference[:, c]
        total = np.append(0, np.cumsum(cost[orders[:, c]]))
        is_last = np.append(scores[1:] != scores[:-1], True)[: len(scores)] & (scores > -np.inf)
        n_active = np.append(0, np.flatnonzero(is_last) + 1)  # at each candidate threshold
        best = n_active[np.argmin(total[n_active])]
        if total[best] < total[np.count_nonzero(active[:, c])]:
            lower = scores[best] if best < len(scores) else scores[-1]
            thresholds[c] = threshold_between(scores[best - 1] if best else np.inf, lower)
            active[:, c] = segments.scores[:, c] >= thresholds[c]
            remaining = set(range(len(labels)))
        remaining.discard(c)
        c = (c + 1) % len(labels)
    tp, n_est = int((active & segments.reference).sum()), active.sum(axis=1)
    n_errors = int(np.maximum(n_ref, n_est).sum()) - tp
    n_all = int(n_ref.sum())
    by_label = dict(zip(labels, thresholds.tolist(), strict=True))
    return OperatingPoint(n_errors / n_all, by_label, tp, int(n_est.sum()) - tp, n_all)
