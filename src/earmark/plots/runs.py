"""Results of many runs -> a dot for every run; the frame predictions of some on one clip."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from earmark.plots.figure import BLUE, INK, RED, SAND, new_figure, plain_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_runs(values: Mapping[str, Mapping[str, Sequence[float]]]) -> "Figure":
    """Draw every run as a dot and the mean of each cell as a line, a panel for each score.

    Args:
        values: name of a score -> cell -> the score of each run.

    >>> figure = plot_runs({"F1": {"single": [0.5, 0.52], "hierarchical": [0.48, 0.5]}})
    >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
    ['single', 'hierarchical']
    """
    cells = list(next(iter(values.values())))
    figure = new_figure(figsize=(2 + 2.6 * len(values), 0.8 + 0.3 * len(cells)))
    panels = figure.subplots(1, len(values), sharey=True, squeeze=False)[0]
    for axes, (name, by_cell) in zip(panels, values.items(), strict=True):
        for row, cell in enumerate(cells):
            runs = np.asarray(by_cell[cell])
            offsets = np.linspace(-0.2, 0.2, len(runs)) if len(runs) > 1 else np.zeros(1)
            axes.plot(runs, row + offsets, "o", color=BLUE, markersize=4, alpha=0.8)
            axes.plot([runs.mean()] * 2, [row - 0.35, row + 0.35], color=INK, lw=1.5)
        axes.set_xlabel(name)
        axes.grid(axis="x", alpha=0.3)
    panels[0].set_yticks(range(len(cells)), [plain_text(cell) for cell in cells])
    panels[0].invert_yaxis()
    return figure


def plot_predictions(panels: Mapping[str, Mapping[str, Any]], n_columns: int = 2) -> "Figure":
    """Draw the frame probabilities of one clip as several networks see it, with the truth.

    Dotted is the threshold at which an event begins, dashed the one below which it ends; a class
    whose gate is closed, so that it has no event whatever its frames say, is drawn thin.

    Args:
        panels: title -> what a result shows: "events", "frame_probs", "thresholds", "open" and
            "hop"; see `earmark.experiments.run.Result`.
        n_columns: panels side by side.

    >>> shown = {"hop": 0.08, "events": [[0.1, 0.3, "dog"]], "frame_probs": {"dog": [0.1, 0.9]},
    ...          "thresholds": {"weak": {"dog": [0.5, 0.25]}}, "open": {"weak": {"dog": True}}}
    >>> len(plot_predictions({"single": shown, "hierarchical": shown}).axes)
    2
    """
    n_rows = -(-len(panels) // n_columns)
    figure = new_figure(figsize=(5 * n_columns, 2.4 * n_rows))
    grid = figure.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False)
    colours = [BLUE, RED, INK, "#3a8f5c", "#8a4fa3"]
    for axes, (title, shown) in zip(grid.ravel(), panels.items(), strict=False):
        for number, (label, probs) in enumerate(shown["frame_probs"].items()):
            colour = colours[number % len(colours)]
            times = (np.arange(len(probs)) + 0.5) * shown["hop"]
            width = 1.4 if shown["open"]["weak"][label] else 0.5
            axes.plot(times, probs, color=colour, lw=width, label=plain_text(label))
            begin, go_on = shown["thresholds"]["weak"][label]
            axes.axhline(begin, color=colour, lw=0.6, ls=":")
            axes.axhline(go_on, color=colour, lw=0.6, ls="--")
            for onset, offset, of in shown["events"]:
                if of == label:
                    height = 1.04 + 0.05 * number
                    axes.plot([onset, offset], [height] * 2, color=colour, lw=3)
        axes.axhspan(1.0, 1.2, color=SAND, alpha=0.3, lw=0)
        axes.set_ylim(0, 1.2)
        axes.set_title(plain_text(title), fontsize=9)
    grid[0, 0].legend(fontsize=7, loc="center left")
    for axes in grid[-1]:
        axes.set_xlabel("seconds")
    return figure
