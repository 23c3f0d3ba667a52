"""Draw what a network does: levels of pooling, gradients, the course of a training.

Conventions: time axes are in seconds and start at 0. Reference events are shaded areas.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from earmark.data.spectrogram import Spectrogram
from earmark.errors import SettingError
from earmark.formats.events import Event
from earmark.frames import FrameGrid, pooled_length
from earmark.plots.figure import BLUE, COLOURS, INK, RED, SAND, line_style, new_figure, plain_text
from earmark.plots.recording import add_legend, draw_spectrogram

if TYPE_CHECKING:
    import torch
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from earmark.pooling import Stage


def plot_hierarchy(
    spectrogram: Spectrogram,
    stages: Sequence["Stage"],
    level_grid: FrameGrid,
    label: str,
    class_index: int,
    events: Sequence[Event] = (),
    lengths: Sequence[int] = (5, 5, 5),
) -> "Figure":
    """Draw the spectrogram of a clip, and the probabilities of one class at every level of pooling.

    Shape: the probabilities of `stages` are (1, instances, classes).

    Args:
        spectrogram: of the clip.
        stages: the levels that a pooling returns with `return_stages=True`, of a batch of one clip.
        level_grid: of the frames of the first level.
        label: the class.
        class_index: its column in `stages`.
        events: the reference events of the clip, of any class.
        lengths: segment lengths of the pooling that made `stages`.

    >>> import torch
    >>> from earmark.data.features import FeatureConfig
    >>> from earmark.data.spectrogram import spectrogram
    >>> from earmark.pooling import Pooling
    >>> _, stages = Pooling("linear")(torch.rand(1, 125, 2), return_stages=True)
    >>> silence = spectrogram([np.zeros(320000, np.float32)], FeatureConfig())
    >>> figure = plot_hierarchy(silence, stages, FrameGrid(12.5), "dog", 0)
    >>> [text.get_text() for text in figure.legends[0].get_texts()][:3]
    ['125 frames', '25 segments', '5 segments']
    """
    figure = new_figure(figsize=(9, 6))
    top, bottom = figure.subplots(2, 1, sharex=True)
    duration = level_grid.onset(stages[0].probs.shape[1])
    draw_spectrogram(top, spectrogram)
    for event in events:
        own = event.label == label
        style: dict[str, Any] = {"lw": 2.5, "ls": "-"} if own else {"lw": 1, "ls": "--"}
        top.axvspan(event.onset, event.offset, fill=False, ec="white", **style)
        height, name = 0.93 * len(spectrogram.frequencies), plain_text(event.label)
        top.text(event.onset + 0.01 * duration, height, name, color="white", va="top")
        if own:
            bottom.axvspan(event.onset, event.offset, color=SAND, label="reference")
    _draw_levels(bottom, stages, level_grid, class_index, duration, lengths)
    what = f"probability of {plain_text(label)}"
    bottom.set(xlabel="seconds", ylabel=what, ylim=(0, 1.02), xlim=(0, duration))
    add_legend(figure, [bottom], "outside lower center")
    counts = " \u2192 ".join(str(stage.probs.shape[1]) for stage in stages)
    figure.suptitle(f"{plain_text(label)}, pooled from frames to the clip: {counts}")
    return figure


def _draw_levels(
    axes: "Axes",
    stages: Sequence["Stage"],
    grid: FrameGrid,
    class_index: int,
    duration: float,
    lengths: Sequence[int],
) -> None:
    counts = [stage.probs.shape[1] for stage in stages]
    spans = _spans(counts, lengths)
    # Frames are a thin line, segments are thicker the longer they are, the clip is dash-dotted.
    colours = (INK, BLUE, *COLOURS[3:])
    for depth, (stage, span) in enumerate(zip(stages, spans, strict=True)):
        probs = stage.probs[0, :, class_index].detach().float().numpy()
        edges = [min(grid.onset(i * span), duration) for i in range(len(probs))] + [duration]
        name = f"{len(probs)} {'segments' if depth else 'frames'}"
        style: dict[str, Any] = {"color": colours[depth % len(colours)], "lw": 0.8 + 0.9 * depth}
        if len(probs) == 1:
            name, style["color"], style["ls"] = f"clip {probs[0]:.2f}", RED, "-."
        axes.stairs(probs, edges, baseline=None, label=name, **style)


def _spans(counts: list[int], lengths: Sequence[int]) -> list[int]:
    """Return how many frames an instance of each level covers, given how many instances it has."""
    spans, expected = [1], counts[:1]
    for length in lengths:
        spans.append(spans[-1] * length)
        expected.append(pooled_length(expected[-1], length))
    if lengths and expected[-1] == 1:  # the last stage has left one segment, which is the clip
        spans.pop()
        expected.pop()
    if [*expected, 1] != counts:
        raise SettingError(
            f"Levels of {counts} instances do not come from segments of {tuple(lengths)}; "
            "pass the stages of their pooling as lengths."
        )
    return [*spans, counts[0]]


def plot_gradients(
    x: "torch.Tensor", weights: "torch.Tensor", stages: Sequence[int] = (5, 5, 5)
) -> "Figure":
    """Draw how training changes each frame of a positive and of a negative clip, by pooling.

    Shape: `x` (frames,), `weights` (frames,).

    Args:
        x: frame probabilities.
        weights: attention weights.
        stages: segment lengths of hierarchical pooling.

    >>> import torch
    >>> figure = plot_gradients(torch.rand(125), torch.rand(125))
    >>> figure.axes[0].get_title()
    'max, positive clip'
    """
    from earmark.pooling.gradients import closed_form

    names = ("max", "average", "linear", "exp", "attention")
    figure = new_figure(figsize=(11, 11))
    grid = figure.subplots(len(names), 2, sharex=True)
    index = np.arange(len(x))
    for row, name in zip(grid, names, strict=True):
        w = weights if name == "attention" else None
        single, hierarchical = (closed_form(name, x, w, s).dx for s in ((), stages))
        for axes, positive in zip(row, (True, False), strict=True):
            # -dL/dx = t (1/y) dy/dx - (1 - t) / (1 - y) dy/dx. Its sign is the direction in which
            # training moves x; its size is shown relative to the largest, since the factor is the
            # same for all frames of a clip.
            sign = 1.0 if positive else -1.0
            scale = max(single.abs().max().item(), hierarchical.abs().max().item())
            axes.fill_between(index, x, step="mid", color=SAND, label="frame probability x")
            for gradient, label, style in (
                (single, "single", {"color": BLUE, "lw": 2}),
                (hierarchical, "hierarchical", {"color": RED, "lw": 1, "ls": "--"}),
            ):
                axes.step(index, sign * gradient / scale, where="mid", label=label, **style)
            axes.axhline(0, color=INK, lw=0.6)
            axes.set(ylim=(-1.1, 1.1), xlim=(0, len(x) - 1))
            axes.set_title(f"{name}, {'positive' if positive else 'negative'} clip", fontsize=10)
        row[0].set_ylabel("push on x")
    for axes in grid[-1]:
        axes.set_xlabel("frame")
    add_legend(figure, grid[0], "outside lower center")
    figure.suptitle("Where training moves the probability of each frame, by pooling")
    return figure


def plot_history(history: str | os.PathLike[str]) -> "Figure":
    r"""Plot the losses of a training from its `history.tsv`, and validation mAP and F1 if present.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "history.tsv")
    ...     _ = path.write_text("epoch\ttrain_loss\tvalid_loss\n0\t0.7\t0.6\n")
    ...     len(plot_history(path).axes)
    1
    """
    names, *rows = (line.split("\t") for line in Path(history).read_text().splitlines())
    columns = dict(zip(names, np.array(rows, dtype=float).T, strict=True))
    metrics = {
        label: columns[name]
        for name, label in (("valid_map", "mAP"), ("valid_f1", "F1"))
        if name in columns
    }
    n_panels = 2 if metrics else 1
    figure = new_figure(figsize=(1 + 5 * n_panels, 3.5))
    panels = figure.subplots(1, n_panels, squeeze=False)[0]
    epochs, valid_loss = columns["epoch"], columns["valid_loss"]
    panels[0].plot(epochs, columns["train_loss"], **line_style(0), label="training")
    panels[0].plot(epochs, valid_loss, **line_style(1), label="validation")
    lowest = int(valid_loss.argmin())
    panels[0].plot(epochs[lowest], valid_loss[lowest], "o", color=RED, label="lowest")
    panels[0].set(xlabel="epoch", ylabel="cross entropy", ylim=(0, None), title="loss")
    for number, (label, values) in enumerate(metrics.items()):
        panels[1].plot(epochs, values, **line_style(number), label=f"validation {label}")
        panels[1].set(xlabel="epoch", ylabel="clip-level score", ylim=(0, 1), title="validation")
    for axes in panels:
        axes.legend()
        axes.grid(alpha=0.3)
        axes.xaxis.get_major_locator().set_params(integer=True)
    return figure
