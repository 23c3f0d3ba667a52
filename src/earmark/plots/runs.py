"""Figures of a comparison: one dot per run, and the frame-level scores of one clip."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from earmark.plots.figure import (
    BLUE,
    INK,
    MARKERS,
    RED,
    SAND,
    line_style,
    new_figure,
    plain_text,
)
from earmark.plots.recording import add_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_runs(values: Mapping[str, Mapping[str, Sequence[float]]]) -> "Figure":
    """Plot every run as a dot and the mean of each configuration as a line, one panel per score.

    Args:
        values: name of a score -> configuration -> the score of each run.

    >>> figure = plot_runs({"F1": {"single": [0.5, 0.52], "hierarchical": [0.48, 0.5]}})
    >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
    ['single', 'hierarchical']
    """
    configurations = list(next(iter(values.values())))
    figure = new_figure(figsize=(2 + 2.6 * len(values), 0.8 + 0.3 * len(configurations)))
    panels = figure.subplots(1, len(values), sharey=True, squeeze=False)[0]
    for axes, (name, scores) in zip(panels, values.items(), strict=True):
        for row, configuration in enumerate(configurations):
            runs = np.asarray(scores[configuration])
            offsets = np.linspace(-0.2, 0.2, len(runs)) if len(runs) > 1 else np.zeros(1)
            axes.plot(runs, row + offsets, "o", color=BLUE, markersize=4, alpha=0.8)
            axes.plot([runs.mean()] * 2, [row - 0.35, row + 0.35], color=INK, lw=1.5)
        axes.set_xlabel(name)
        axes.grid(axis="x", alpha=0.3)
    panels[0].set_yticks(range(len(configurations)), [plain_text(x) for x in configurations])
    panels[0].invert_yaxis()
    figure.suptitle("Dots: runs. Lines: the mean of a configuration.", fontsize="medium")
    return figure


def plot_effects(
    groups: Mapping[str, Mapping[str, Mapping[str, tuple[float, float, float]]]], limit: float
) -> "Figure":
    """Plot differences with their confidence intervals: a row per group, a column per score.

    Args:
        groups: title -> name -> score -> difference, and the ends of its interval; a name may lack
            a score.
        limit: differences within ± this are called none, and are shaded.

    >>> effects = {"(5, 5, 5)": {"F1": (-0.05, -0.07, -0.03)}, "(3)": {"F1": (0.01, -0.01, 0.03)}}
    >>> figure = plot_effects({"events of 1 s": effects}, 0.02)
    >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
    ['(5, 5, 5)', '(3)']
    """
    heights = [len(effects) for effects in groups.values()]
    rows = [own for effects in groups.values() for own in effects.values()]
    scores = list(dict.fromkeys(score for own in rows for score in own))
    size = (3.4 + 3 * len(scores), 0.8 + 0.45 * len(groups) + 0.24 * sum(heights))
    figure = new_figure(figsize=size)
    ratios = {"height_ratios": heights}
    panels = figure.subplots(
        len(groups), len(scores), sharex="col", sharey="row", squeeze=False, gridspec_kw=ratios
    )
    for line, (title, effects) in zip(panels, groups.items(), strict=True):
        for axes, score in zip(line, scores, strict=True):
            axes.axvspan(-limit, limit, color=INK, alpha=0.08, lw=0)
            axes.axvline(0, color=INK, lw=0.8)
            for row, own in enumerate(effects.values()):
                if score not in own:
                    continue
                middle, low, high = own[score]
                colour = BLUE if low > 0 else RED if high < 0 else INK
                axes.plot([low, high], [row, row], color=colour, lw=1.5)
                axes.plot(middle, row, "o", color=colour, markersize=4)
            axes.grid(axis="x", alpha=0.3)
        line[0].set_yticks(range(len(effects)), [plain_text(name) for name in effects])
        line[0].set_ylim(len(effects) - 0.5, -0.5)
        line[0].set_title(plain_text(title), loc="left", fontsize="medium")
    for axes, score in zip(panels[-1], scores, strict=True):
        axes.set_xlabel(plain_text(score))
    return figure


def plot_predictions(
    panels: Mapping[str, Mapping[str, Any]],
    n_columns: int = 2,
    tuning: str = "clip_and_frame",
) -> "Figure":
    """Plot the frame probabilities of several models for one clip, below the reference events.

    Classes differ in colour and line style. Right of the axes, a mark per class is at the score
    that an event must reach (filled) and at the one that it must keep (open). A class that is not
    detected at clip level, and so has no events, is a thin line.

    Args:
        panels: title -> `earmark.experiments.RunResult.example`.
        n_columns: of panels.
        tuning: whose thresholds to plot.

    >>> example = {"hop": 0.08, "events": [[0.1, 0.3, "dog"]], "frame_probs": {"dog": [0.1, 0.9]}}
    >>> example["thresholds"] = {"clip": {"dog": [0.5, 0.25]}}
    >>> example["detected"] = {"clip": {"dog": True}}
    >>> panels = {"single": example, "hierarchical": example}
    >>> len(plot_predictions(panels, tuning="clip").axes)
    2
    """
    n_rows = -(-len(panels) // n_columns)
    figure = new_figure(figsize=(5 * n_columns, 2.4 * n_rows))
    grid = figure.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False)
    for axes, (title, example) in zip(grid.ravel(), panels.items(), strict=False):
        for number, (label, probs) in enumerate(example["frame_probs"].items()):
            style = line_style(number)
            colour, mark = style["color"], MARKERS[number % len(MARKERS)]
            times = (np.arange(len(probs)) + 0.5) * example["hop"]
            width = 1.6 if example["detected"][tuning][label] else 0.6
            axes.plot(times, probs, lw=width, label=plain_text(label), **style)
            end = len(probs) * example["hop"]
            place = end * (1.015 + 0.02 * number)  # beside each other, outside the axes
            for threshold, face in zip(
                example["thresholds"][tuning][label], (colour, "white"), strict=True
            ):
                axes.plot(place, threshold, mark, c=colour, mfc=face, ms=5, clip_on=False)
            for onset, offset, event_label in example["events"]:
                if event_label == label:
                    height = 1.05 + 0.07 * number
                    axes.plot([onset, offset], [height] * 2, color=colour, lw=3)
                    late = onset > end / 2
                    at, side = (onset, "right") if late else (offset, "left")
                    text = f" {plain_text(label)} "  # a grey print has no colours
                    axes.text(at, height, text, ha=side, va="center", fontsize=6)
        top = 1.05 + 0.07 * len(example["frame_probs"])
        axes.axhspan(1.0, top, color=SAND, alpha=0.3, lw=0)
        n_frames = max(map(len, example["frame_probs"].values()))
        axes.set(ylim=(0, top), yticks=(0, 0.5, 1), xlim=(0, n_frames * example["hop"]))
        axes.set_title(plain_text(title), fontsize=9)
    add_legend(figure, grid.ravel(), "outside lower center")
    figure.suptitle(
        "Frame probabilities of one clip; bars: reference events; marks at the right: thresholds",
        fontsize="medium",
    )
    for axes in grid[-1]:
        axes.set_xlabel("seconds")
    return figure
