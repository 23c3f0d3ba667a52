"""Score curves -> the best F-measure and error rate that any threshold could reach.

Conventions: a frame is active where its score is at or above the threshold. All thresholds are
tried, since counts change at scores only (`earmark.metrics.changes`); the one given lies midway
between the two scores next to it, and infinity means that it is best to find nothing. A criterion
says what is right: `Segments`, `Collars` or `Intersections`.

- Of a class alone: the best of each, exact. The F-measure is that of sed_scores_eval's
  `best_fscore`, and so is its mean over classes.
- Overall, with one threshold for all classes: exact.
- Overall, with a threshold for each class: the F-measure is exact. It is a ratio of sums over
  classes, so by Dinkelbach's method each round is one exact choice in each class, until nothing
  gets better. The error rate is exact too, but for segments, where one class can stand in for
  another's miss and classes do not part: there it was reached, and nothing better was found by
  changing one class at a time, starting from the best single threshold and from the best of each
  class. It is never worse than with one threshold.

The overall error rate of segments is that of `segment_scores`, substitutions and all; of events it
is deletions and insertions only, so that a right time with a wrong class costs two. Where a class
has no events in the reference its figures are nan and its mean leaves it out, but its false alarms
count overall.

These are bounds, found on the very files they are told for: no score to report as one's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from earmark.errors import SettingError
from earmark.formats.events import Event
from earmark.formats.scores import ScoreCurves
from earmark.metrics.changes import Changes, Tally
from earmark.metrics.criteria import Collars, Intersections
from earmark.metrics.pieces import Pieces, Segments
from earmark.metrics.rates import Measured, class_averages, ratio
from earmark.metrics.runs import Ints, Reals, stack_curves
from earmark.metrics.stops import Best, Stops, change_one_by_one

Criterion = Segments | Collars | Intersections


Bests = dict[str, Best]


@dataclass(frozen=True)
class BestScores:
    """The best scores, each as `f_measure` and `error_rate`.

    Args:
        overall: of all classes together, with one threshold.
        overall_by_class: of all classes together, with a threshold for each.
        class_wise: label -> of the class alone.
        class_wise_average: the mean over classes of the latter.
        n_files: files evaluated.
        unknown_files: files that only the curves name, left out.
    """

    overall: Bests
    overall_by_class: Bests
    class_wise: dict[str, Bests]
    class_wise_average: dict[str, float]
    n_files: int
    unknown_files: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain dicts, lists and floats; nan and infinity stay.

        >>> from earmark.formats.scores import ScoreCurve
        >>> curves = ScoreCurves(["dog"], {"a": ScoreCurve([0, 1, 2], [[0.9], [0.2]])})
        >>> scores = best_scores({"a": [Event(0, 1, "dog")]}, curves, Segments(1.0)).to_dict()
        >>> scores["overall"]["error_rate"]["value"]
        0.0
        """
        return asdict(self) | {"unknown_files": list(self.unknown_files)}


@dataclass(frozen=True, eq=False)
class PrecisionRecall:
    """Precision and recall at every threshold, from the highest on.

    Shape: all (thresholds,).
    """

    threshold: Reals
    precision: Reals
    recall: Reals


@dataclass(frozen=True, eq=False)
class BestCounts:
    """What changes in each file as the threshold falls, before anything is chosen.

    Shape: `changes.amounts` (3, changes): true positives, false positives, and errors of all
    classes together; `n_ref` (files, classes). `pieces` are there for segments only.
    """

    files: tuple[str, ...]
    labels: tuple[str, ...]
    changes: Changes
    n_ref: Ints
    pieces: Pieces | None = None
    unknown_files: tuple[str, ...] = ()

    def measure(self, weights: Reals | None = None) -> Measured:
        """Return the bests of every draw of files, each with thresholds of its own.

        Overall it is with one threshold for all classes.

        >>> from earmark.formats.scores import ScoreCurve
        >>> curves = ScoreCurves(["dog"], {"a": ScoreCurve([0, 1, 2], [[0.9], [0.2]])})
        >>> counts = count_bests({"a": [Event(0, 1, "dog")]}, curves, Segments(1.0))
        >>> counts.measure(np.array([[1.0], [2.0]])).overall["f_measure"]["f_measure"]
        array([1., 1.])
        """
        by_class = [Stops(own) for own in self.changes.by_class(len(self.labels))]
        together = Stops(self.changes.together(), is_shared=self.pieces is not None)
        draws = [np.ones(len(self.files))] if weights is None else list(weights)
        one = {name: np.full(len(draws), np.nan) for name in ("f_measure", "error_rate")}
        each = {name: np.full((len(draws), len(by_class)), np.nan) for name in one}
        for at, draw in enumerate(draws):
            n_ref = draw @ self.n_ref
            if n_ref.sum():
                f_measures, error_rates = together.rates(n_ref.sum(), draw)
                one["f_measure"][at], one["error_rate"][at] = f_measures.max(), error_rates.min()
            for number in np.flatnonzero(n_ref):
                f_measures, error_rates = by_class[number].rates(n_ref[number], draw)
                each["f_measure"][at, number] = f_measures.max()
                each["error_rate"][at, number] = error_rates.min()
        class_wise = {name: {name: values} for name, values in each.items()}
        overall = {name: {name: values} for name, values in one.items()}
        return Measured(overall, class_wise, class_averages(class_wise))

    def scores(self) -> BestScores:
        """Return the bests of all files.

        >>> from earmark.formats.scores import ScoreCurve
        >>> curves = ScoreCurves(["dog"], {"a": ScoreCurve([0, 1, 2], [[0.9], [0.2]])})
        >>> counts = count_bests({"a": [Event(0, 1, "dog")]}, curves, Segments(1.0))
        >>> counts.scores().class_wise_average
        {'f_measure': 1.0, 'error_rate': 0.0}
        """
        n_ref = self.n_ref.sum(axis=0)
        curves = [Stops(own) for own in self.changes.by_class(len(self.labels))]
        class_wise = {}
        for label, curve, n_own in zip(self.labels, curves, n_ref.tolist(), strict=True):
            f_measures, error_rates = curve.rates(n_own)
            class_wise[label] = {
                "f_measure": curve.best((label,), f_measures, int(f_measures.argmax()), n_own),
                "error_rate": curve.best((label,), error_rates, int(error_rates.argmin()), n_own),
            }
        values = {
            name: np.array([bests[name].value for bests in class_wise.values()])
            for name in ("f_measure", "error_rate")
        }
        overall = self._find_single(int(n_ref.sum()))
        return BestScores(
            overall=overall,
            overall_by_class={
                "f_measure": self._find_f_measure(curves, overall["f_measure"]),
                "error_rate": self._find_error_rate(curves, overall["error_rate"], class_wise),
            },
            class_wise=class_wise,
            class_wise_average={
                name: float(each[~np.isnan(each)].mean()) if not np.isnan(each).all() else np.nan
                for name, each in values.items()
            },
            n_files=len(self.files),
            unknown_files=self.unknown_files,
        )

    def precision_recall(self) -> dict[str, PrecisionRecall]:
        """Return label -> precision and recall at every threshold, of classes with reference.

        >>> from earmark.formats.scores import ScoreCurve
        >>> curves = ScoreCurves(["dog"], {"a": ScoreCurve([0, 1, 2], [[0.9], [0.2]])})
        >>> counts = count_bests({"a": [Event(0, 1, "dog")]}, curves, Segments(1.0))
        >>> counts.precision_recall()["dog"].precision
        array([1. , 0.5])
        """
        found = {}
        own = self.changes.by_class(len(self.labels))
        for label, changes, n_ref in zip(self.labels, own, self.n_ref.sum(axis=0), strict=True):
            if n_ref:
                everywhere = np.ones(len(changes), np.bool_)
                points = changes.turns(everywhere, everywhere)
                tp, fp = (Tally(changes, each, points).sums()[1:] for each in changes.amounts[:2])
                precision = ratio(tp, tp + fp)
                found[label] = PrecisionRecall(changes.score[points], precision, tp / n_ref)
        return found

    def beside(self, other: "BestCounts") -> "BestCounts":
        """Return the counts of both, the files of `other` after the own.

        >>> from earmark.formats.scores import ScoreCurve
        >>> curves = ScoreCurves(["dog"], {"a": ScoreCurve([0, 1, 2], [[0.9], [0.2]])})
        >>> counts = count_bests({"a": [Event(0, 1, "dog")]}, curves, Segments(1.0))
        >>> counts.beside(counts).files
        ('a', 'a')
        """
        if self.labels != other.labels or (self.pieces is None) != (other.pieces is None):
            raise SettingError("Counts go beside each other with the same labels and criterion.")
        return replace(
            self,
            files=self.files + other.files,
            changes=self.changes.beside(other.changes, len(self.files)),
            n_ref=np.concatenate([self.n_ref, other.n_ref]),
            pieces=self.pieces
            and other.pieces
            and self.pieces.beside(other.pieces, len(self.files)),
        )

    def _find_single(self, n_ref: int) -> Bests:
        curve = Stops(self.changes.together(), is_shared=self.pieces is not None)
        f_measures, error_rates = curve.rates(n_ref)
        return {
            "f_measure": curve.best(self.labels, f_measures, int(f_measures.argmax()), n_ref),
            "error_rate": curve.best(self.labels, error_rates, int(error_rates.argmin()), n_ref),
        }

    def _find_f_measure(self, curves: list[Stops], single: Best) -> Best:
        best = single
        while single.n_ref:
            stops = [int(np.argmax(2 * c.tp - best.value * (c.tp + c.fp))) for c in curves]
            tp, fp = (
                int(sum(getattr(curve, name)[at] for curve, at in zip(curves, stops, strict=True)))
                for name in ("tp", "fp")
            )
            value = 2 * tp / (tp + fp + best.n_ref)
            if value <= best.value:
                break
            thresholds = {
                label: curve.threshold(at)
                for label, curve, at in zip(self.labels, curves, stops, strict=True)
            }
            best = Best(value, thresholds, tp, fp, best.n_ref)
        return best

    def _find_error_rate(
        self, curves: list[Stops], single: Best, class_wise: dict[str, Bests]
    ) -> Best:
        if not single.n_ref:
            return single
        # Without reference any false alarm is one too many; its own rate is nan at all thresholds.
        own = {
            label: bests["error_rate"].thresholds[label] if bests["error_rate"].n_ref else np.inf
            for label, bests in class_wise.items()
        }
        if self.pieces is not None:
            starts = [single.thresholds, own]
            found = [change_one_by_one(self.pieces, self.labels, start) for start in starts]
            return min([single, *found], key=lambda best: best.value)
        parts = [bests["error_rate"] for bests in class_wise.values() if bests["error_rate"].n_ref]
        tp, fp = sum(best.tp for best in parts), sum(best.fp for best in parts)
        return Best((single.n_ref - tp + fp) / single.n_ref, own, tp, fp, single.n_ref)


def best_scores(
    reference: Mapping[str, Sequence[Event]],
    curves: ScoreCurves,
    criterion: Criterion,
    *,
    labels: Sequence[str] | None = None,
) -> BestScores:
    """Return the best scores that any threshold could reach with these curves.

    Args:
        reference: file name -> its true events; these files are evaluated.
        curves: of every one of these files.
        criterion: what is right, as `Segments(1.0)` or `Collars(0.2, 0.2, 0.5)`.
        labels: the classes, in the order wanted; without them, those of the curves.

    >>> from earmark.formats.scores import ScoreCurve
    >>> curves = ScoreCurves(["dog"], {"a": ScoreCurve([0, 1, 2], [[0.9], [0.2]])})
    >>> best_scores({"a.wav": [Event(0, 1, "dog")]}, curves, Segments(1.0)).overall["f_measure"]
    Best(value=1.0, thresholds={'dog': 0.55}, tp=1, fp=0, n_ref=1)
    """
    return count_bests(reference, curves, criterion, labels=labels).scores()


def count_bests(
    reference: Mapping[str, Sequence[Event]],
    curves: ScoreCurves,
    criterion: Criterion,
    *,
    labels: Sequence[str] | None = None,
) -> BestCounts:
    """Find what changes as the threshold falls; the arguments are those of `best_scores`.

    >>> from earmark.formats.scores import ScoreCurve
    >>> curves = ScoreCurves(["dog"], {"a": ScoreCurve([0, 1, 2], [[0.9], [0.2]])})
    >>> count_bests({"a": [Event(0, 1, "dog")]}, curves, Collars(0.2, 0.2)).n_ref.tolist()
    [[1]]
    """
    stack = stack_curves(reference, curves, labels)
    pieces = None
    if isinstance(criterion, Segments):
        pieces = criterion.cut(stack)
        changes, n_ref = pieces.find_changes(), pieces.n_ref(len(stack.files))
    else:
        stack = criterion.prepare(stack)
        changes, n_ref = criterion.find_changes(stack), stack.n_events()
        true, false = changes.amounts[:2]
        changes = replace(changes, amounts=np.stack([true, false, false - true]))
    return BestCounts(stack.files, stack.labels, changes, n_ref, pieces, stack.unknown_files)
