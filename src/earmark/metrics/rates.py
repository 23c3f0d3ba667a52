"""Counts -> rates: F-measure, error rate, accuracy, and their mean over classes.

Conventions: a scorer counts in each file first. Its `measure(weights)` then sums the counts of the
files, each file times its weight, and divides; a row of weights is a draw. All ones is the score
itself, how often a file was drawn gives a bootstrap, and zeros and ones over the files of two
systems put `beside` each other give a permutation test. So one piece of code makes the score, its
interval and its p-value.

Shape: counts and rates are (draws,), or (draws, classes) where each class stands alone. What is
undefined is nan; a mean over classes leaves nan out.
"""

from dataclasses import asdict, dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Group = dict[str, Reals]
Scores = dict[str, dict[str, float]]


@dataclass(frozen=True, eq=False)
class Measured:
    """Scores of every draw, under the group and name that sed_eval gives them.

    Args:
        overall: group -> name -> (draws,), of all classes together (micro).
        class_wise: group -> name -> (draws, classes).
        class_wise_average: group -> name -> (draws,), the mean over classes (macro).
    """

    overall: dict[str, Group]
    class_wise: dict[str, Group]
    class_wise_average: dict[str, Group]

    def draw(self, labels: tuple[str, ...], at: int = 0) -> dict[str, Any]:
        """Return one draw as plain floats, nested as sed_eval nests them.

        >>> one = {"f_measure": {"recall": np.array([0.5])}}
        >>> each = {"f_measure": {"recall": np.array([[0.5, np.nan]])}}
        >>> Measured(one, each, one).draw(("cat", "dog"))["class_wise"]["cat"]
        {'f_measure': {'recall': 0.5}}
        """
        overall, average = (
            {
                group: {name: float(value[at]) for name, value in names.items()}
                for group, names in kind.items()
            }
            for kind in (self.overall, self.class_wise_average)
        )
        class_wise = {
            label: {
                group: {name: float(value[at, index]) for name, value in names.items()}
                for group, names in self.class_wise.items()
            }
            for index, label in enumerate(labels)
        }
        return {"overall": overall, "class_wise": class_wise, "class_wise_average": average}


@dataclass(frozen=True)
class FileScores:
    """The scores of files, under the group and name that sed_eval gives them.

    Args:
        overall: of all classes together (micro), group -> name -> score, as in
            `scores.overall["error_rate"]["error_rate"]`.
        class_wise: label -> the same for one class, and its `count`.
        class_wise_average: the mean over classes (macro).
        n_files: files evaluated.
        missing_files: files without any entry in the estimate, counted as without events.
        unknown_files: files that only the estimate names, left out.
    """

    overall: Scores
    class_wise: dict[str, Scores]
    class_wise_average: Scores
    n_files: int
    missing_files: tuple[str, ...]
    unknown_files: tuple[str, ...]

    @property
    def error_rate(self) -> float:
        """The overall error rate, the first number of the field's tables; nan without one."""
        return self.overall.get("error_rate", {}).get("error_rate", np.nan)

    @property
    def f_measure(self) -> float:
        """The overall F-measure, the second one; nan without one."""
        return self.overall.get("f_measure", {}).get("f_measure", np.nan)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain dicts, lists and floats; nan stays nan.

        >>> sorted(FileScores({}, {}, {}, 2, ("a.wav",), ()).to_dict())[:3]
        ['class_wise', 'class_wise_average', 'missing_files']
        """
        files = {"missing_files": self.missing_files, "unknown_files": self.unknown_files}
        return asdict(self) | {name: list(names) for name, names in files.items()}


class Counts(Protocol):
    """What every scorer returns before it divides: counts by file, to be weighed."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that were counted."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes."""

    def measure(self, weights: Reals | None = None) -> Measured:
        """Return the scores of every draw; weights (draws, files), one draw of ones without."""

    def beside(self, other: Self) -> Self:
        """Return the counts of both, the files of `other` after the own."""


def weighed(weights: Reals | None, counts: NDArray[Any]) -> Reals:
    """Return (draws, ...): the sum of `counts` (files, ...) over files, times their weights.

    >>> weighed(np.array([[1.0, 1.0], [0.0, 2.0]]), np.array([[1, 2], [3, 4]])).tolist()
    [[4.0, 6.0], [6.0, 8.0]]
    """
    if weights is None:
        return np.asarray(counts.sum(axis=0, dtype=np.float64)[None])
    flat = counts.reshape(len(counts), -1).astype(np.float64)
    return np.asarray((weights @ flat).reshape(len(weights), *counts.shape[1:]))


def ratio(part: Reals, whole: Reals, empty: float = np.nan) -> Reals:
    """Return part / whole, and `empty` where there is no whole.

    >>> ratio(np.array([1.0, 1.0]), np.array([2.0, 0.0]))
    array([0.5, nan])
    """
    some = whole != 0
    return np.where(some, part / np.where(some, whole, 1), empty)


def sed_eval_whole(n_ref: Reals) -> Reals:
    """Return by what sed_eval divides errors: where there is no reference, by almost nothing.

    >>> 1 / sed_eval_whole(np.array([2.0, 0.0]))
    array([5.00000000e-01, 4.50359963e+15])
    """
    return np.where(n_ref > 0, n_ref, np.spacing(1.0))


def f_measures(tp: Reals, fp: Reals, fn: Reals, *, empty_as_zero: bool = False) -> Group:
    """Return F-measure, precision and recall.

    Without estimate the precision is nan, or 0 with `empty_as_zero`; without reference the recall
    is nan; the F-measure is nan where either is.

    >>> f_measures(*np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]]))["f_measure"]
    array([0.66666667,        nan])
    """
    precision = ratio(tp, tp + fp, 0.0 if empty_as_zero else np.nan)
    recall = ratio(tp, tp + fn)
    f_measure = ratio(2 * precision * recall, precision + recall, 0.0)
    return {"f_measure": f_measure, "precision": precision, "recall": recall}


def error_rates(n_ref: Reals, deletions: Reals, insertions: Reals, *more: Reals) -> Group:
    """Return the error rate and its parts; substitutions come last, where there are any.

    >>> error_rates(*np.array([[4.0], [1.0], [2.0], [1.0]]))["error_rate"]
    array([1.])
    """
    names = ("deletion_rate", "insertion_rate", "substitution_rate")
    rates = {
        name: ratio(n_errors, n_ref)
        for name, n_errors in zip(names, (deletions, insertions, *more), strict=False)
    }
    return {"error_rate": np.asarray(sum(rates.values())), **rates}


def accuracies(tp: Reals, fp: Reals, fn: Reals, n_all: Reals) -> Group:
    """Return accuracy, balanced accuracy, sensitivity and specificity; 0 / 0 is 0 here.

    >>> accuracies(*np.array([[1.0], [1.0], [0.0], [4.0]]))["accuracy"]
    array([0.75])
    """
    tn = n_all - tp - fp - fn
    sensitivity, specificity = ratio(tp, tp + fn, 0.0), ratio(tn, tn + fp, 0.0)
    return {
        "accuracy": ratio(tp + tn, n_all, 0.0),
        "balanced_accuracy": (sensitivity + specificity) / 2,
        "sensitivity": sensitivity,
        "specificity": specificity,
    }


def class_averages(class_wise: dict[str, Group]) -> dict[str, Group]:
    """Return the mean over classes of every rate, without those that are nan.

    >>> class_averages({"f_measure": {"recall": np.array([[0.5, np.nan]])}})
    {'f_measure': {'recall': array([0.5])}}
    """
    return {
        group: {
            name: ratio(np.nansum(rate, axis=-1), np.sum(~np.isnan(rate), axis=-1))
            for name, rate in names.items()
        }
        for group, names in class_wise.items()
    }
