"""Scores -> pictures: classes with their intervals, confusion, precision-recall, PSD-ROC."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from earmark.plots.figure import BLUE, INK, RED, SAND, new_figure, plain_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Reals = NDArray[np.float64]
Curve = tuple[Reals, Reals]


def plot_class_scores(
    systems: Mapping[str, Mapping[str, tuple[float, float, float]]], name: str
) -> "Figure":
    """Draw a bar for each class and system, with its interval.

    Args:
        systems: name of a system -> label -> value, low and high; nan leaves a gap.
        name: what is drawn, for the axis.

    >>> figure = plot_class_scores({"a": {"dog": (0.5, 0.4, 0.6), "cat": (0.2, 0.1, 0.4)}}, "F1")
    >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
    ['dog', 'cat']
    """
    labels = list(dict.fromkeys(label for classes in systems.values() for label in classes))
    colours = [BLUE, RED, SAND, INK]
    height = 0.8 / max(1, len(systems))
    figure = new_figure(figsize=(7, 1.2 + (0.15 + 0.2 * len(systems)) * len(labels)))
    axes = figure.subplots()
    for number, (system, classes) in enumerate(systems.items()):
        rows = np.array([classes.get(label, (np.nan,) * 3) for label in labels]).reshape(-1, 3)
        value, low, high = rows.T
        places = np.arange(len(labels)) + (number - (len(systems) - 1) / 2) * height
        colour = colours[number % len(colours)]
        axes.barh(places, value, height, color=colour, label=plain_text(system))
        known = ~np.isnan(rows).any(axis=1)
        # An interval from percentiles need not hold the value; a bar cannot go backwards.
        spread = np.maximum(0, np.stack([value - low, high - value]))[:, known]
        axes.errorbar(value[known], places[known], xerr=spread, fmt="none", ecolor=INK, lw=1)
    axes.set_yticks(np.arange(len(labels)), [plain_text(label) for label in labels])
    axes.invert_yaxis()
    axes.set_xlabel(name)
    if len(systems) > 1:
        axes.legend()
    return figure


def plot_confusion(matrix: Reals, labels: Sequence[str], unit: str = "segments") -> "Figure":
    """Draw which class was taken for which; see `earmark.metrics.confusion`.

    Shape: `matrix` (classes + 1, classes + 1), the last row and column are nothing.

    >>> figure = plot_confusion(np.array([[4.0, 1.0], [2.0, 0.0]]), ["dog"])
    >>> figure.axes[0].get_xlabel()
    'estimate'
    """
    names = [*map(plain_text, labels), "nothing"]
    size = 2.5 + 0.42 * len(names)
    figure = new_figure(figsize=(size, size))
    axes = figure.subplots()
    share = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1e-12)
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    for row, column in zip(*np.nonzero(matrix), strict=True):
        colour = "white" if share[row, column] > 0.6 else INK
        text = f"{matrix[row, column]:.0f}" if matrix[row, column] >= 1 else "<1"
        axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=7)
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="estimate", ylabel="reference", title=f"{unit}; shade: share of its row")
    return figure


def plot_precision_recall(curves: Mapping[str, Curve]) -> "Figure":
    """Draw the precision over the recall of each class, as its threshold falls.

    Shape: label -> recall (thresholds,) and precision (thresholds,).

    >>> curve = np.array([0.0, 0.5, 1.0]), np.array([1.0, 1.0, 0.6])
    >>> plot_precision_recall({"dog": curve}).axes[0].get_xlabel()
    'recall'
    """
    return _plot_curves(curves, "recall", "precision", (1.0, 1.0))


def plot_psd_roc(overall: Curve, classes: Mapping[str, Curve], max_efpr: float) -> "Figure":
    """Draw the PSD-ROC of all classes together, and of each; PSDS is the area below it.

    Shape: effective false positives an hour (points,) and true positive rate (points,).

    >>> roc = np.array([0.0, 10.0]), np.array([0.5, 0.9])
    >>> plot_psd_roc(roc, {"dog": roc}, 100.0).axes[0].get_ylabel()
    'part of the events found'
    """

    def to_the_end(curve: Curve) -> Curve:  # what is found stays found
        rate, true = curve
        return np.append(rate, max_efpr), np.append(true, true[-1])

    curves = {label: to_the_end(curve) for label, curve in classes.items()}
    ends = (max_efpr, 1.0)
    across, up = "effective false positives an hour", "part of the events found"
    return _plot_curves(curves, across, up, ends, all_classes=to_the_end(overall))


def _plot_curves(
    curves: Mapping[str, Curve],
    across: str,
    up: str,
    ends: tuple[float, float],
    all_classes: Curve | None = None,
) -> "Figure":
    figure = new_figure(figsize=(9, 5))
    axes = figure.subplots()
    for number, (label, (x, y)) in enumerate(curves.items()):
        style = ("-", "--", ":")[number // 10 % 3]  # ten colours, then another stroke
        axes.plot(x, y, style, drawstyle="steps-post", lw=1, label=plain_text(label))
    if all_classes is not None:
        axes.plot(*all_classes, drawstyle="steps-post", color=INK, lw=2.5, label="all classes")
    axes.set(xlabel=across, ylabel=up, xlim=(0, ends[0]), ylim=(0, ends[1] * 1.02))
    figure.legend(fontsize=8, loc="outside right upper")
    return figure
