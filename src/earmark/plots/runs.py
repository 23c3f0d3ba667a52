"""Scores of many runs -> a picture with a dot for every run."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from earmark.plots.figure import BLUE, INK, new_figure, plain_text

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
