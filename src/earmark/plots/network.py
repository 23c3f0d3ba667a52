"""Draw what a network does: levels of pooling, gradients, detections, the course of a training.

Conventions: time axes are in seconds and start at 0. Reference events are shaded areas, estimated
events are bars above the scores.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from earmark.errors import SettingError
from earmark.formats.events import Event
from earmark.frames import FrameGrid, FrameScores, pooled_length
from earmark.plots.figure import BLUE, INK, RED, SAND, new_figure, plain_text

if TYPE_CHECKING:
    import torch
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from earmark.pooling import Stage


def plot_hierarchy(
    log_mel: "torch.Tensor",
    grid: FrameGrid,
    stages: Sequence["Stage"],
    level_grid: FrameGrid,
    label: str,
    class_index: int,
    events: Sequence[Event] = (),
    lengths: Sequence[int] = (5, 5, 5),
) -> "Figure":
    """Draw the log-mel of a clip, and the probabilities of one class at every level of pooling.

    Shape: `log_mel` (frames, mels); the probabilities of `stages` (1, instances, classes).

    Args:
        log_mel: the input of the network.
        grid: of its frames.
        stages: the levels that a pooling returns with `return_stages=True`, of a batch of one clip.
        level_grid: of the frames of the first level.
        label: the class.
        class_index: its column in `stages`.
        events: the reference events of the clip, of any class.
        lengths: segment lengths of the pooling that made `stages`.

    >>> import torch
    >>> from earmark.pooling import Pooling
    >>> _, stages = Pooling("linear")(torch.rand(1, 125, 2), return_stages=True)
    >>> log_mel = torch.zeros(500, 80)
    >>> figure = plot_hierarchy(log_mel, FrameGrid(50), stages, FrameGrid(12.5), "dog", 0)
    >>> [text.get_text() for text in figure.legends[0].get_texts()][:3]
    ['frames', '25 segments', '5 segments']
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
    top.set_title("log-mel" + (" with reference events" if events else ""))
    for event in events:
        own = event.label == label
        top.axvspan(event.onset, event.offset, fill=False, ec="white", lw=2 if own else 1)
        name = plain_text(event.label)
        top.text(event.onset + 0.05, log_mel.shape[1] * 0.9, name, color="white")
        if own:
            bottom.axvspan(event.onset, event.offset, color=SAND, label="reference")
    _draw_levels(bottom, stages, level_grid, class_index, duration, lengths)
    what = f"probability of {plain_text(label)}"
    bottom.set(xlabel="seconds", ylabel=what, ylim=(0, 1), xlim=(0, duration))
    _add_legend(figure, [bottom], "outside lower center")
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
        # Frames are a thin line in ink; segments are thicker and redder, the longer they are.
        shade = (depth - 1) / max(1, len(stages) - 2)
        style: dict[str, Any] = {"color": INK, "lw": 0.7}
        if depth:
            style = {"color": _mix(BLUE, RED, shade), "lw": 1.6 + 1.2 * shade}
        axes.stairs(probs, edges, baseline=None, label=name, **style)


def _mix(first: str, second: str, share: float) -> tuple[float, ...]:
    """Return the colour between two, `share` of the way from the first to the second."""
    begin, end = (np.array([int(c[at : at + 2], 16) for at in (1, 3, 5)]) for c in (first, second))
    return tuple(((1 - share) * begin + share * end) / 255)


def _add_legend(figure: "Figure", rows: Iterable["Axes"], place: Any) -> None:
    """Add a legend outside all axes, with each name once."""
    entries: dict[str, Any] = {}
    for axes in rows:
        handles, names = axes.get_legend_handles_labels()
        entries |= dict(zip(names, handles, strict=True))
    figure.legend(entries.values(), entries.keys(), loc=place, ncols=len(entries))


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
    scores: FrameScores,
    reference: Sequence[Event] = (),
    estimate: Sequence[Event] = (),
) -> "Figure":
    """Draw the frame-level scores of every class, with reference and estimated events.

    Args:
        scores: probabilities, as `Detector.frame_scores` returns them.
        reference: the events that are there.
        estimate: the events that were detected.

    >>> scores = FrameScores([[0.9], [0.2]], ["dog"], FrameGrid(12.5))
    >>> plot_detection(scores, estimate=[Event(0, 0.08, "dog")]).axes[0].get_ylabel()
    'dog'
    """
    return plot_detections({"": (scores, estimate)}, reference)


def plot_detections(
    systems: Mapping[str, tuple[FrameScores, Sequence[Event]]], reference: Sequence[Event] = ()
) -> "Figure":
    """Draw what several systems find in the same recording side by side, as `plot_detection` does.

    Args:
        systems: title -> its scores, of the same classes, and the events that it detected.
        reference: the events that are there.

    >>> scores = FrameScores([[0.9], [0.2]], ["dog"], FrameGrid(12.5))
    >>> len(plot_detections({"before": (scores, []), "after": (scores, [])}).axes)
    2
    """
    labels = next(iter(systems.values()))[0].labels
    width = 9 if len(systems) == 1 else 5.5 * len(systems)
    figure = new_figure(figsize=(width, 1.2 + 0.9 * len(labels)))
    grid = figure.subplots(len(labels), len(systems), sharex=True, sharey=True, squeeze=False)
    for rows, (title, (scores, estimate)) in zip(grid.T, systems.items(), strict=True):
        for axes, label, values in zip(rows, labels, scores.scores.T, strict=True):
            for event in (event for event in reference if event.label == label):
                axes.axvspan(event.onset, event.offset, color=SAND, label="reference")
            style: dict[str, Any] = {"baseline": None, "color": BLUE, "lw": 1}
            axes.stairs(values, scores.edges, label="frame-level score", **style)
            for event in (event for event in estimate if event.label == label):
                span = [event.onset, event.offset]
                axes.plot(span, [1.06, 1.06], color=RED, lw=4, label="estimate")
            axes.set(ylim=(0, 1.15), yticks=(0, 1), xlim=(0, scores.duration))
        rows[0].set_title(plain_text(title), fontsize=10)
        rows[-1].set_xlabel("seconds")
    for axes, label in zip(grid[:, 0], labels, strict=True):
        axes.set_ylabel(plain_text(label), rotation=0, ha="right", va="center")
    _add_legend(figure, grid.ravel(), "outside upper center")
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
