"""Rates computed from counts: F-measure, error rate, accuracy, and their mean over classes.

Conventions: tp, fp and fn are true positives, false positives and false negatives. An undefined
rate is nan; the mean over classes leaves nan out.

Shape: counts and rates are (samples,), or (samples, classes) where they are class-wise; see
`earmark.metrics.weighted_scores`.
"""

import numpy as np

from earmark.metrics.weighted_scores import Group, Reals


def divide(numerator: Reals, denominator: Reals, if_zero: float = np.nan) -> Reals:
    """Return numerator / denominator, and `if_zero` where the denominator is 0.

    >>> divide(np.array([1.0, 1.0]), np.array([2.0, 0.0]))
    array([0.5, nan])
    """
    defined = denominator != 0
    return np.where(defined, numerator / np.where(defined, denominator, 1), if_zero)


def sed_eval_denominator(n_ref: Reals) -> Reals:
    """Return what sed_eval divides errors by: 2e-16 where the reference is empty.

    >>> 1 / sed_eval_denominator(np.array([2.0, 0.0]))
    array([5.00000000e-01, 4.50359963e+15])
    """
    return np.where(n_ref > 0, n_ref, np.spacing(1.0))


def f_measures(tp: Reals, fp: Reals, fn: Reals, *, empty_as_zero: bool = False) -> Group:
    """Return F-measure, precision and recall.

    If the estimate is empty, precision is nan, or 0 with `empty_as_zero`; if the reference is
    empty, recall is nan; the F-measure is nan where either is.

    >>> f_measures(*np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]]))["f_measure"]
    array([0.66666667,        nan])
    """
    precision = divide(tp, tp + fp, 0.0 if empty_as_zero else np.nan)
    recall = divide(tp, tp + fn)
    f_measure = divide(2 * precision * recall, precision + recall, 0.0)
    return {"f_measure": f_measure, "precision": precision, "recall": recall}


def error_rates(
    n_ref: Reals, deletions: Reals, insertions: Reals, substitutions: Reals | None = None
) -> Group:
    """Return the error rate and its parts; a single class has no substitutions.

    >>> error_rates(*np.array([[4.0], [1.0], [2.0], [1.0]]))["error_rate"]
    array([1.])
    """
    rates = {
        "deletion_rate": divide(deletions, n_ref),
        "insertion_rate": divide(insertions, n_ref),
    }
    if substitutions is not None:
        rates["substitution_rate"] = divide(substitutions, n_ref)
    return {"error_rate": np.asarray(sum(rates.values())), **rates}


def accuracies(tp: Reals, fp: Reals, fn: Reals, n_all: Reals) -> Group:
    """Return accuracy, balanced accuracy, sensitivity and specificity; 0 / 0 is 0, as in sed_eval.

    >>> accuracies(*np.array([[1.0], [1.0], [0.0], [4.0]]))["accuracy"]
    array([0.75])
    """
    tn = n_all - tp - fp - fn
    sensitivity, specificity = divide(tp, tp + fn, 0.0), divide(tn, tn + fp, 0.0)
    return {
        "accuracy": divide(tp + tn, n_all, 0.0),
        "balanced_accuracy": (sensitivity + specificity) / 2,
        "sensitivity": sensitivity,
        "specificity": specificity,
    }


def class_averages(class_wise: dict[str, Group]) -> dict[str, Group]:
    """Return the mean over classes of every rate, nan left out.

    >>> class_averages({"f_measure": {"recall": np.array([[0.5, np.nan]])}})
    {'f_measure': {'recall': array([0.5])}}
    """
    return {
        group: {
            name: divide(np.nansum(rate, axis=-1), np.sum(~np.isnan(rate), axis=-1))
            for name, rate in names.items()
        }
        for group, names in class_wise.items()
    }
