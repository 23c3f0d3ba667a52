"""The best F-measure and error rate that any threshold could reach with given frame-level scores.

Conventions: a frame is active where its score is at or above the threshold. All thresholds are
tried, since counts change only at scores that occur (`earmark.metrics.count_deltas`). A reported
threshold lies midway between the two neighbouring scores; infinity means that detecting nothing is
best. A criterion defines what is correct: `SegmentCriterion`, `CollarCriterion` or
`IntersectionCriterion`.

Metrics:

- Class-wise: the best threshold of each class, exact. The F-measure and its mean over classes equal
  those of `best_fscore` in sed_scores_eval.
- Overall with one threshold for all classes: exact.
- Overall with one threshold per class: the F-measure is exact. It is a ratio of sums over classes,
  so each iteration of Dinkelbach's method is one exact choice per class, until nothing improves.
  The error rate is exact too, except with segments: there a false positive of one class and a miss
  of another are one substitution, so classes are not independent. The reported value is reached by
  coordinate descent, started from the best single threshold and from the best class-wise ones. It
  is never worse than with one threshold.

The overall error rate of segments is that of `segment_scores`, including substitutions; of events
it counts only deletions and insertions, so that a correct time with a wrong class costs two. If a
class has no events in the reference, its scores are nan and left out of the mean, but its false
positives count overall.

These are upper bounds, optimised on the evaluated files themselves. Do not report them as the
performance of a system.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from earmark.errors import SettingError
from earmark.formats.events import Event
from earmark.formats.scores import ScoreTable
from earmark.metrics.count_deltas import CountDeltas, CumulativeCounts
from earmark.metrics.event_arrays import Ints
from earmark.metrics.event_criteria import CollarCriterion, IntersectionCriterion
from earmark.metrics.operating_points import OperatingPoint, OperatingPoints, coordinate_descent
from earmark.metrics.rates import class_averages, divide
from earmark.metrics.segment_criterion import SegmentCriterion, SegmentTable
from earmark.metrics.stacked_scores import stack_scores
from earmark.metrics.weighted_scores import Reals, WeightedScores

Criterion = SegmentCriterion | CollarCriterion | IntersectionCriterion
BestPoints = dict[str, OperatingPoint]


@dataclass(frozen=True)
class BestScores:
    """The best operating points, each for `f_measure` and for `error_rate`.

    Args:
        overall: over all classes, with one threshold for all.
        overall_by_class: over all classes, with one threshold per class.
        class_wise: label -> that of the class alone.
        class_wise_average: the mean over classes of the latter.
        n_files: number of files evaluated.
        unknown_files: files that only the scores contain, ignored.

    >>> scores = ScoreTable(["dog"], {"a": ([0, 1, 2], [[0.9], [0.2]])})
    >>> best = best_scores({"a": [Event(0, 1, "dog")]}, scores, SegmentCriterion(1.0))
    >>> best.overall["f_measure"].value, best.class_wise["dog"]["error_rate"].value
    (1.0, 0.0)
    """

    overall: BestPoints
    overall_by_class: BestPoints
    class_wise: dict[str, BestPoints]
    class_wise_average: dict[str, float]
    n_files: int
    unknown_files: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain dicts, lists and floats; nan and infinity stay.

        >>> scores = ScoreTable(["dog"], {"a": ([0, 1, 2], [[0.9], [0.2]])})
        >>> best = best_scores({"a": [Event(0, 1, "dog")]}, scores, SegmentCriterion(1.0)).to_dict()
        >>> best["overall"]["error_rate"]["value"]
        0.0
        """
        return asdict(self) | {"unknown_files": list(self.unknown_files)}


@dataclass(frozen=True, eq=False)
class PrecisionRecall:
    """Precision and recall at every threshold, the highest threshold first.

    Shape: all (thresholds,).

    >>> PrecisionRecall(np.array([0.9]), np.array([1.0]), np.array([0.5])).recall
    array([0.5])
    """

    threshold: Reals
    precision: Reals
    recall: Reals


@dataclass(frozen=True, eq=False)
class ThresholdCounts:
    """The changes of counts per file as the threshold falls.

    Shape: `deltas.values` (3, deltas): true positives, false positives, and errors of all classes;
    `n_ref` (files, classes). `segments` is set with a `SegmentCriterion` only.

    >>> scores = ScoreTable(["dog"], {"a": ([0, 1, 2], [[0.9], [0.2]])})
    >>> counts = count_thresholds({"a": [Event(0, 1, "dog")]}, scores, SegmentCriterion(1.0))
    >>> counts.files, counts.n_ref.tolist()
    (('a',), [[1]])
    """

    files: tuple[str, ...]
    labels: tuple[str, ...]
    deltas: CountDeltas
    n_ref: Ints
    segments: SegmentTable | None = None
    unknown_files: tuple[str, ...] = ()

    def weighted_scores(self, weights: Reals | None = None) -> WeightedScores:
        """Return the best scores of every row of weights, each with its own thresholds.

        The overall scores are those with one threshold for all classes.

        >>> scores = ScoreTable(["dog"], {"a": ([0, 1, 2], [[0.9], [0.2]])})
        >>> counts = count_thresholds({"a": [Event(0, 1, "dog")]}, scores, SegmentCriterion(1.0))
        >>> best = counts.weighted_scores(np.array([[1.0], [2.0]]))
        >>> best.overall["f_measure"]["f_measure"]
        array([1., 1.])
        """
        by_class, pooled = self._points_by_class(), self._pooled_points()
        rows = [np.ones(len(self.files))] if weights is None else list(weights)
        names = ("f_measure", "error_rate")
        overall = {name: np.full(len(rows), np.nan) for name in names}
        class_wise = {name: np.full((len(rows), len(by_class)), np.nan) for name in names}
        for index, row in enumerate(rows):
            n_ref = row @ self.n_ref
            if n_ref.sum():
                f_measures, error_rates = pooled.scores(n_ref.sum(), row)
                overall["f_measure"][index] = f_measures.max()
                overall["error_rate"][index] = error_rates.min()
            for c in np.flatnonzero(n_ref):
                f_measures, error_rates = by_class[c].scores(n_ref[c], row)
                class_wise["f_measure"][index, c] = f_measures.max()
                class_wise["error_rate"][index, c] = error_rates.min()
        grouped = {name: {name: values} for name, values in class_wise.items()}
        return WeightedScores(
            {name: {name: values} for name, values in overall.items()},
            grouped,
            class_averages(grouped),
        )

    def scores(self) -> BestScores:
        """Return the best scores of all files.

        >>> scores = ScoreTable(["dog"], {"a": ([0, 1, 2], [[0.9], [0.2]])})
        >>> counts = count_thresholds({"a": [Event(0, 1, "dog")]}, scores, SegmentCriterion(1.0))
        >>> counts.scores().class_wise_average
        {'f_measure': 1.0, 'error_rate': 0.0}
        """
        n_ref = self.n_ref.sum(axis=0)
        by_class = self._points_by_class()
        class_wise = {
            label: points.best((label,), n_own)
            for label, points, n_own in zip(self.labels, by_class, n_ref.tolist(), strict=True)
        }
        values = {
            name: np.array([best[name].value for best in class_wise.values()])
            for name in ("f_measure", "error_rate")
        }
        overall = self._pooled_points().best(self.labels, int(n_ref.sum()))
        return BestScores(
            overall=overall,
            overall_by_class={
                "f_measure": self._best_f_measure(by_class, overall["f_measure"]),
                "error_rate": self._best_error_rate(overall["error_rate"], class_wise),
            },
            class_wise=class_wise,
            class_wise_average={
                name: float(own[~np.isnan(own)].mean()) if not np.isnan(own).all() else np.nan
                for name, own in values.items()
            },
            n_files=len(self.files),
            unknown_files=self.unknown_files,
        )

    def precision_recall(self) -> dict[str, PrecisionRecall]:
        """Return label -> precision and recall at every threshold, for classes in the reference.

        >>> scores = ScoreTable(["dog"], {"a": ([0, 1, 2], [[0.9], [0.2]])})
        >>> counts = count_thresholds({"a": [Event(0, 1, "dog")]}, scores, SegmentCriterion(1.0))
        >>> counts.precision_recall()["dog"].precision
        array([1. , 0.5])
        """
        by_class = self.deltas.split_by_class(len(self.labels))
        result = {}
        for label, own, n_ref in zip(self.labels, by_class, self.n_ref.sum(axis=0), strict=True):
            if n_ref:
                everywhere = np.ones(len(own), np.bool_)
                points = own.candidate_points(everywhere, everywhere)
                tp, fp = (
                    CumulativeCounts(own, values, points).at_points()[1:]
                    for values in own.values[:2]
                )
                precision = divide(tp, tp + fp)
                result[label] = PrecisionRecall(own.score[points], precision, tp / n_ref)
        return result

    def concatenate(self, other: "ThresholdCounts") -> "ThresholdCounts":
        """Return the counts of both, the files of `other` last.

        >>> scores = ScoreTable(["dog"], {"a": ([0, 1, 2], [[0.9], [0.2]])})
        >>> counts = count_thresholds({"a": [Event(0, 1, "dog")]}, scores, SegmentCriterion(1.0))
        >>> counts.concatenate(counts).files
        ('a', 'a')
        """
        if self.labels != other.labels or (self.segments is None) != (other.segments is None):
            raise SettingError(
                "Only counts with the same labels and criterion can be concatenated."
            )
        n_files = len(self.files)
        segments = self.segments
        if segments is not None and other.segments is not None:
            segments = segments.concatenate(other.segments, n_files)
        return replace(
            self,
            files=self.files + other.files,
            deltas=self.deltas.concatenate(other.deltas, n_files),
            n_ref=np.concatenate([self.n_ref, other.n_ref]),
            segments=segments,
        )

    def _points_by_class(self) -> list[OperatingPoints]:
        return [OperatingPoints(own) for own in self.deltas.split_by_class(len(self.labels))]

    def _pooled_points(self) -> OperatingPoints:
        return OperatingPoints(
            self.deltas.pool_classes(), count_substitutions=self.segments is not None
        )

    def _best_f_measure(
        self, by_class: list[OperatingPoints], single: OperatingPoint
    ) -> OperatingPoint:
        """Return the best F-measure with one threshold per class, by Dinkelbach's method."""
        best = single
        while single.n_ref:
            chosen = [
                (points, int(np.argmax(2 * points.tp - best.value * (points.tp + points.fp))))
                for points in by_class
            ]
            tp = int(sum(points.tp[index] for points, index in chosen))
            fp = int(sum(points.fp[index] for points, index in chosen))
            value = 2 * tp / (tp + fp + best.n_ref)
            if value <= best.value:
                break
            thresholds = {
                label: points.threshold(index)
                for label, (points, index) in zip(self.labels, chosen, strict=True)
            }
            best = OperatingPoint(value, thresholds, tp, fp, best.n_ref)
        return best

    def _best_error_rate(
        self, single: OperatingPoint, class_wise: dict[str, BestPoints]
    ) -> OperatingPoint:
        if not single.n_ref:
            return single
        points = {label: best["error_rate"] for label, best in class_wise.items()}
        # Of a class without reference every detection is an error, so detect nothing.
        thresholds = {
            label: point.thresholds[label] if point.n_ref else np.inf
            for label, point in points.items()
        }
        if self.segments is not None:
            descended = [
                coordinate_descent(self.segments, self.labels, start)
                for start in (single.thresholds, thresholds)
            ]
            return min([single, *descended], key=lambda point: point.value)
        tp, fp = (
            sum(getattr(point, name) for point in points.values() if point.n_ref)
            for name in ("tp", "fp")
        )
        value = (single.n_ref - tp + fp) / single.n_ref
        return OperatingPoint(value, thresholds, tp, fp, single.n_ref)


def best_scores(
    reference: Mapping[str, Sequence[Event]],
    scores: ScoreTable,
    criterion: Criterion,
    *,
    labels: Sequence[str] | None = None,
) -> BestScores:
    """Return the best scores that any threshold could reach with these frame-level scores.

    Args:
        reference: file name -> reference events; these files are evaluated.
        scores: frame-level scores of each of these files.
        criterion: what is correct, such as `SegmentCriterion(1.0)` or `CollarCriterion()`.
        labels: the classes, in the order of the result; by default those of the scores.

    >>> scores = ScoreTable(["dog"], {"a": ([0, 1, 2], [[0.9], [0.2]])})
    >>> best = best_scores({"a.wav": [Event(0, 1, "dog")]}, scores, SegmentCriterion(1.0))
    >>> best.overall["f_measure"]
    OperatingPoint(value=1.0, thresholds={'dog': 0.55}, tp=1, fp=0, n_ref=1)
    """
    return count_thresholds(reference, scores, criterion, labels=labels).scores()


def count_thresholds(
    reference: Mapping[str, Sequence[Event]],
    scores: ScoreTable,
    criterion: Criterion,
    *,
    labels: Sequence[str] | None = None,
) -> ThresholdCounts:
    """Return the changes of counts as the threshold falls; arguments as in `best_scores`.

    >>> scores = ScoreTable(["dog"], {"a": ([0, 1, 2], [[0.9], [0.2]])})
    >>> count_thresholds({"a": [Event(0, 1, "dog")]}, scores, CollarCriterion()).n_ref.tolist()
    [[1]]
    """
    stacked = stack_scores(reference, scores, labels)
    segments = None
    if isinstance(criterion, SegmentCriterion):
        segments = criterion.segments(stacked)
        deltas, n_ref = segments.count_deltas(), segments.n_ref(len(stacked.files))
    else:
        stacked = criterion.prepare(stacked)
        deltas, n_ref = criterion.count_deltas(stacked), stacked.n_events()
        tp, fp = deltas.values[:2]
        deltas = replace(deltas, values=np.stack([tp, fp, fp - tp]))
    return ThresholdCounts(
        stacked.files, stacked.labels, deltas, n_ref, segments, stacked.unknown_files
    )
