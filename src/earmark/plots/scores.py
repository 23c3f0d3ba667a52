"""Figures of scores: classes, confusion, precision-recall, PSD-ROC, false events, reliability.

Conventions: every `plot_...` returns a matplotlib figure; see `earmark.plots.figure`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from earmark.metrics.calibration import ReliabilityBin
from earmark.metrics.false_events import RecallPoint
from earmark.plots.figure import COLOURS, INK, MARKERS, line_style, new_figure, plain_text
from earmark.plots.recording import add_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Reals = NDArray[np.float64]
Curve = tuple[Reals, Reals]


def plot_class_scores(
    systems: Mapping[str, Mapping[str, tuple[float, float, float]]], name: str
) -> "Figure":
    """Draw one bar per class and system, with its confidence interval.

    Args:
        systems: name of a system -> label -> value, low and high; nan leaves a gap.
        name: of the score, for the axis.

    >>> figure = plot_class_scores({"a": {"dog": (0.5, 0.4, 0.6), "cat": (0.2, 0.1, 0.4)}}, "F1")
    >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
    ['dog', 'cat']
    """
    labels = list(dict.fromkeys(label for classes in systems.values() for label in classes))
    height = 0.8 / max(1, len(systems))
    figure = new_figure(figsize=(7, 1.2 + (0.15 + 0.2 * len(systems)) * len(labels)))
    axes = figure.subplots()
    for number, (system, classes) in enumerate(systems.items()):
        rows = np.array([classes.get(label, (np.nan,) * 3) for label in labels]).reshape(-1, 3)
        value, low, high = rows.T
        positions = np.arange(len(labels)) + (number - (len(systems) - 1) / 2) * height
        colour, hatch = COLOURS[number % len(COLOURS)], ("", "///", "...", "xxx")[number % 4]
        style: dict[str, Any] = {"color": colour, "hatch": hatch, "ec": "white"}
        axes.barh(positions, value, height, label=plain_text(system), **style)
        known = ~np.isnan(rows).any(axis=1)
        # A bootstrap interval may not contain the value; the length of a bar cannot be negative.
        spread = np.maximum(0, np.stack([value - low, high - value]))[:, known]
        axes.errorbar(value[known], positions[known], xerr=spread, fmt="none", ecolor=INK, lw=1)
    axes.set_yticks(np.arange(len(labels)), [plain_text(label) for label in labels])
    axes.invert_yaxis()
    ends = [end for classes in systems.values() for own in classes.values() for end in own]
    longest = max([1.0, *(end for end in ends if end > 1)])  # scores up to 1 have the same axis
    axes.set(xlabel=name, xlim=(0, longest), title=f"{name} per class")
    axes.grid(axis="x", alpha=0.3)
    if len(systems) > 1:
        add_legend(figure, [axes], "outside lower center")
    return figure


def plot_confusion(matrix: Reals, labels: Sequence[str], unit: str = "segments") -> "Figure":
    """Draw a confusion matrix; see `earmark.metrics.confusion`.

    Shape: `matrix` (classes + 1, classes + 1), the last row and column are no class.

    >>> figure = plot_confusion(np.array([[4.0, 1.0], [2.0, 0.0]]), ["dog"])
    >>> figure.axes[0].get_xlabel()
    'estimate'
    """
    names = [*map(plain_text, labels), "no class"]
    size = 2.5 + 0.42 * len(names)
    figure = new_figure(figsize=(size, size))
    axes = figure.subplots()
    fraction = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1e-12)
    axes.imshow(fraction, cmap="Blues", vmin=0, vmax=1)
    for row, column in zip(*np.nonzero(matrix), strict=True):
        colour = "white" if fraction[row, column] > 0.6 else INK
        text = f"{matrix[row, column]:.0f}" if matrix[row, column] >= 1 else "<1"
        axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=7)
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="estimate", ylabel="reference")
    axes.set_title(f"{unit}\nshade: fraction of the row", fontsize="medium")
    return figure


def plot_precision_recall(curves: Mapping[str, Curve]) -> "Figure":
    """Draw precision over recall of each class.

    Shape: label -> recall (thresholds,) and precision (thresholds,).

    >>> curve = np.array([0.0, 0.5, 1.0]), np.array([1.0, 1.0, 0.6])
    >>> plot_precision_recall({"dog": curve}).axes[0].get_xlabel()
    'recall'
    """
    title = "precision over recall, at every threshold"
    return _plot_curves(curves, "recall", "precision", (1.0, 1.0), title)


def plot_psd_roc(overall: Curve, classes: Mapping[str, Curve], max_efpr: float) -> "Figure":
    """Draw the PSD-ROC over all classes, whose area is PSDS, and that of each class.

    Shape: effective false positives per hour (points,) and true positive rate (points,).

    >>> roc = np.array([0.0, 10.0]), np.array([0.5, 0.9])
    >>> plot_psd_roc(roc, {"dog": roc}, 100.0).axes[0].get_ylabel()
    'true positive rate'
    """

    def extended(roc: Curve) -> Curve:  # the last rate holds up to max_efpr
        efpr, tpr = roc
        return np.append(efpr, max_efpr), np.append(tpr, tpr[-1])

    rocs = {label: extended(roc) for label, roc in classes.items()}
    names = ("effective false positives per hour", "true positive rate")
    title = "PSD-ROC: the area below all classes is PSDS"
    return _plot_curves(rocs, *names, (max_efpr, 1.0), title, all_classes=extended(overall))


def plot_false_events(
    curves: Mapping[str, Sequence[RecallPoint]],
    setting: str = "sensitivity",
    minutes: str = "negatives",
) -> "Figure":
    """Draw recall over false events per minute, one curve per system.

    Args:
        curves: name of a system -> its points; see `earmark.metrics.false_events`.
        setting: name of what differs between points; its value is written at points of the first.
        minutes: what the false events are counted in.

    >>> points = [RecallPoint(0.0, per_minute=2.0, recordings=0.1, clip_recall=0.7)]
    >>> plot_false_events({"mine": points}).axes[0].get_xlabel()
    'false events per minute of negatives'
    """
    figure = new_figure(figsize=(7, 5))
    axes = figure.subplots()
    for number, (name, points) in enumerate(curves.items()):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        style: dict[str, Any] = {"color": colour, "marker": marker, "ms": 4, "lw": 1.2}
        x = [point.per_minute for point in points]
        for recall, line, face in (("clip_recall", "-", colour), ("event_recall", "--", "white")):
            y = [getattr(point, recall) for point in points]
            if not np.isnan(y).all():
                label = plain_text(f"{name}, {recall.replace('_', ' ')}")
                axes.plot(x, y, ls=line, markerfacecolor=face, label=label, **style)
        if number or len(points) < 2:
            continue
        for point in points[:: max(1, len(points) // 8)]:
            at = (point.per_minute, point.clip_recall)
            axes.annotate(
                f"{point.setting:.3g}", at, (4, -10), textcoords="offset points", fontsize=7
            )
    most = max((point.per_minute for points in curves.values() for point in points), default=0.0)
    most = most if most > 0 else 1.0  # any will do without false events
    axes.set(
        xlabel=f"false events per minute of {minutes}",
        ylabel="recall",
        xlim=(-0.02 * most, 1.05 * most),  # points at 0 are whole
        ylim=(0, 1.02),
        title=f"false events against recall; numbers: {setting}",
    )
    add_legend(figure, [axes], "outside lower center")
    return figure


def plot_reliability(systems: Mapping[str, Sequence[ReliabilityBin]]) -> "Figure":
    """Draw the share of right events over their mean score, in bins of as many events each.

    Args:
        systems: name of a system -> its bins; see `earmark.metrics.calibration`.

    >>> bins = [ReliabilityBin(20, 0.4, 0.6, mean_score=0.5, right=0.7)]
    >>> plot_reliability({"mine": bins}).axes[0].get_ylabel()
    'share of right events'
    """
    figure = new_figure(figsize=(5, 5))
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], ":", color=INK, lw=1, label="perfect")
    for number, (name, bins) in enumerate(systems.items()):
        scores, right = [each.mean_score for each in bins], [each.right for each in bins]
        style = line_style(number) | {"marker": MARKERS[number % len(MARKERS)], "ms": 4, "lw": 1.2}
        axes.plot(scores, right, label=plain_text(name), **style)
    axes.set(
        title="how often events are right, by their score",
        xlabel="mean score of events",
        ylabel="share of right events",
        xlim=(0, 1),
        ylim=(0, 1.02),
    )
    axes.legend(fontsize=8)
    return figure


def _plot_curves(
    curves: Mapping[str, Curve],
    x_name: str,
    y_name: str,
    limits: tuple[float, float],
    title: str,
    all_classes: Curve | None = None,
) -> "Figure":
    figure = new_figure(figsize=(9, max(5.0, 0.6 + 0.175 * len(curves))))  # space for the names
    axes = figure.subplots()
    for number, (label, (x, y)) in enumerate(curves.items()):
        name = plain_text(label)
        axes.plot(x, y, drawstyle="steps-post", lw=1, label=name, **line_style(number))
    if all_classes is not None:
        axes.plot(*all_classes, drawstyle="steps-post", color=INK, lw=2.5, label="all classes")
    axes.set(xlabel=x_name, ylabel=y_name, xlim=(0, limits[0]), ylim=(0, limits[1] * 1.02))
    axes.set_title(title)
    figure.legend(fontsize=8, loc="outside right upper")
    return figure
