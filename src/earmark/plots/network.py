"""Predictions -> pictures: the hierarchy, its gradients, detections, the course of a training."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from earmark.errors import SettingError
from earmark.formats.events import Event
from earmark.frames import FrameGrid, pooled_length
from earmark.plots.figure import BLUE, INK, RED, SAND, new_figure, plain_text

if TYPE_CHECKING:
    import torch
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from earmark.pooling import Stage


def plot_hierarchy(
    log_mel: "torch.Tensor",
    grid: FrameGrid,
    stages: Sequence["Stage"],
    stage_ruler: FrameGrid,
    label: str,
    class_index: int,
    events: Sequence[Event] = (),
    lengths: Sequence[int] = (5, 5, 5),
) -> "Figure":
    """Draw one clip: its log-mel with the true events, and one class at every level of pooling.

    Shape: `log_mel` (frames, mels) on `grid`; `stages` of a batch of one, frames on `stage_ruler`.
    `lengths` are the segment lengths of the pooling that made `stages`.
    """
    figure = new_figure(figsize=(9, 6))
    top, bottom = figure.subplots(2, 1, sharex=True)
    duration = grid.onset(log_mel.shape[0])
    top.imshow(
        log_mel.T.numpy(),
        origin="lower",
        aspect="auto",
        extent=(0, duration, 0, log_mel.shape[1]),
        cmap="magma",
    )
    top.set_ylabel("mel")
    top.set_title("log-mel, with the true events")
    for event in events:
        own = event.label == label
        top.axvspan(event.onset, event.offset, fill=False, ec="white", lw=2 if own else 1)
        name = plain_text(event.label)
        top.text(event.onset + 0.05, log_mel.shape[1] * 0.9, name, color="white")
        if own:
            bottom.axvspan(event.onset, event.offset, color=SAND, label="truth")
    _draw_levels(bottom, stages, stage_ruler, class_index, duration, lengths)
    what = f"probability of {plain_text(label)}"
    bottom.set(xlabel="seconds", ylabel=what, ylim=(0, 1), xlim=(0, duration))
    handles, names = bottom.get_legend_handles_labels()
    unique = dict(zip(names, handles, strict=True))
    bottom.legend(unique.values(), unique.keys(), ncols=len(unique), loc="upper center")
    return figure


def _draw_levels(
    axes: "Axes",
    stages: Sequence["Stage"],
    grid: FrameGrid,
    class_index: int,
    duration: float,
    lengths: Sequence[int],
) -> None:
    spans = _spans([stage.probs.shape[1] for stage in stages], lengths)
    for depth, (stage, span) in enumerate(zip(stages, spans, strict=True)):
        probs = stage.probs[0, :, class_index].detach().float().numpy()
        edges = [min(grid.onset(i * span), duration) for i in range(len(probs))] + [duration]
        name = "frames" if depth == 0 else f"{len(probs)} segments"
        if len(probs) == 1:
            name = f"clip {probs[0]:.2f}"
        shade = depth / max(1, len(stages) - 1)
        colour = tuple(
            np.array([0.12, 0.37, 0.66]) * (1 - shade) + np.array([0.76, 0.25, 0.18]) * shade
        )
        axes.stairs(probs, edges, color=colour, lw=1 + 1.2 * shade, label=name)


def _spans(counts: list[int], lengths: Sequence[int]) -> list[int]:
    """Return how many frames one instance of each level stands for, given how many there are."""
    spans, told = [1], counts[:1]
    for length in lengths:
        spans.append(spans[-1] * length)
        told.append(pooled_length(told[-1], length))
    if lengths and told[-1] == 1:  # the last stage has left one segment, which is the clip
        spans.pop()
        told.pop()
    if [*told, 1] != counts:
        raise SettingError(
            f"Levels of {counts} instances do not come from segments of {tuple(lengths)}; "
            "give the stages of their pooling as lengths."
        )
    return [*spans, counts[0]]


def plot_gradients(
    x: "torch.Tensor", weights: "torch.Tensor", stages: Sequence[int] = (5, 5, 5)
) -> "Figure":
    """Draw how training pushes each frame of a positive and of a negative clip, by pooling.

    Shape: `x` (frames,) probabilities, `weights` (frames,) attention weights.
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
            # -dL/dx = t (1/y) dy/dx - (1 - t) / (1 - y) dy/dx; its sign is the push, its size is
            # shown relative to the largest, since the factor is the same for all frames of a clip.
            sign = 1.0 if positive else -1.0
            scale = max(single.abs().max().item(), hierarchical.abs().max().item())
            axes.fill_between(index, x, step="mid", color=SAND, label="frame probability x")
            for gradient, colour, label in (
                (single, BLUE, "single"),
                (hierarchical, RED, "hierarchical"),
            ):
                axes.step(index, sign * gradient / scale, where="mid", color=colour, label=label)
            axes.axhline(0, color=INK, lw=0.6)
            axes.set_ylim(-1.1, 1.1)
            axes.set_title(f"{name}, {'positive' if positive else 'negative'} clip", fontsize=10)
        row[0].set_ylabel("push on x")
    for axes in grid[-1]:
        axes.set_xlabel("frame")
    grid[0][0].legend(loc="lower right", fontsize=8)
    return figure


def plot_detection(
    curve: "NDArray[np.floating[Any]]",
    times: "NDArray[np.float64]",
    labels: Sequence[str],
    truth: Sequence[Event] = (),
    found: Sequence[Event] = (),
) -> "Figure":
    """Draw the frame probabilities of every class, with true and found events.

    Shape: `curve` (frames, classes), `times` (frames,), the middle of each frame in seconds.
    """
    figure = new_figure(figsize=(9, 1.2 + 0.9 * len(labels)))
    grid = figure.subplots(len(labels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, label, probs in zip(grid, labels, curve.T, strict=True):
        for event in (event for event in truth if event.label == label):
            axes.axvspan(event.onset, event.offset, color=SAND, label="truth")
        axes.plot(times, probs, color=BLUE, lw=1, drawstyle="steps-mid", label="frame probability")
        for event in (event for event in found if event.label == label):
            axes.plot([event.onset, event.offset], [1.06, 1.06], color=RED, lw=4, label="found")
        axes.set(ylim=(0, 1.15), yticks=(0, 1))
        axes.set_ylabel(plain_text(label), rotation=0, ha="right", va="center")
    entries: dict[str, Any] = {}
    for axes in grid:
        handles, names = axes.get_legend_handles_labels()
        entries |= dict(zip(names, handles, strict=True))
    figure.legend(entries.values(), entries.keys(), loc="outside upper center", ncols=3)
    grid[-1].set_xlabel("seconds")
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
    panels[0].plot(epochs, columns["train_loss"], color=BLUE, label="training")
    panels[0].plot(epochs, valid_loss, color=RED, label="validation")
    lowest = int(valid_loss.argmin())
    panels[0].plot(epochs[lowest], valid_loss[lowest], "o", color=RED, label="lowest")
    panels[0].set(xlabel="epoch", ylabel="cross entropy", ylim=(0, None))
    for (label, values), colour in zip(metrics.items(), (BLUE, RED), strict=False):
        panels[1].plot(epochs, values, color=colour, label=f"validation {label}")
        panels[1].set(xlabel="epoch", ylabel="clip-level score", ylim=(0, 1))
    for axes in panels:
        axes.legend()
    return figure
