"""Draw one recording: its spectrogram, the scores of every class, and events.

Conventions: the horizontal axis is seconds from the start of the recording; frequencies are in Hz.
Reference events are shaded areas, estimated events are bars above the scores, thresholds are dotted
and dashed lines: they differ in form, so that a grey print shows them as well.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from earmark.data.spectrogram import Spectrogram
from earmark.formats.events import Event
from earmark.frames import FrameScores
from earmark.plots.figure import BLUE, INK, RED, SAND, new_figure, plain_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RANGE = 16.0  # of the colours, in nepers of power: 70 dB below the loudest
TICKS = (20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000)  # Hz


def drawn_classes(
    scores: FrameScores,
    events: Iterable[Event],
    tags: Collection[str] = (),
    span: tuple[float, float] | None = None,
) -> list[str]:
    """Return the classes of a figure: tagged, then those with events; else the likeliest three.

    Args:
        scores: of the recording.
        events: reference and estimate.
        tags: of the recording.
        span: the part that is drawn, in seconds; by default the whole recording.

    >>> scores = FrameScores([[0.9, 0.1, 0.2, 0.3]], "abcd", edges=[0, 1])
    >>> drawn_classes(scores, [Event(0, 1, "b"), Event(0, 1, "x")], ["c"])
    ['c', 'b']
    >>> drawn_classes(scores, [])
    ['a', 'c', 'd']
    """
    start, end = span or (0.0, scores.duration)
    seen = {event.label for event in events if event.onset < end and event.offset > start}
    if not {*seen, *tags}.intersection(scores.labels):  # a reference may have classes of its own
        highest = scores.scores.max(axis=0)
        seen = {scores.labels[index] for index in np.argsort(highest)[::-1][:3]}
    tagged = [label for label in tags if label in scores.labels]
    return [*tagged, *(label for label in scores.labels if label in seen and label not in tagged)]


def plot_detection(
    scores: FrameScores,
    reference: Sequence[Event] = (),
    estimate: Sequence[Event] = (),
    **picture: Any,
) -> "Figure":
    """Draw the frame-level scores of every class, with reference and estimated events.

    Args:
        scores: probabilities, as `Detector.frame_scores` returns them.
        reference: the events that are there.
        estimate: the events that were detected.
        picture: further arguments of `plot_detections`.

    >>> scores = FrameScores([[0.9], [0.2]], ["dog"], edges=[0, 0.08, 0.16])
    >>> plot_detection(scores, estimate=[Event(0, 0.08, "dog")]).axes[0].get_ylabel()
    'dog'
    """
    return plot_detections({"": (scores, estimate)}, reference, **picture)


def plot_detections(
    systems: Mapping[str, tuple[FrameScores, Sequence[Event]]],
    reference: Sequence[Event] = (),
    *,
    spectrogram: Spectrogram | None = None,
    thresholds: Mapping[str, tuple[float, float]] | None = None,
    title: str = "",
    span: tuple[float, float] | None = None,
) -> "Figure":
    """Draw what several systems find in the same recording side by side, as `plot_detection` does.

    Args:
        systems: title -> its scores, of the same classes, and the events that it detected.
        reference: the events that are there.
        spectrogram: of the recording, drawn above the scores.
        thresholds: label -> the score that an event must reach, and the one that it must keep.
        title: of the figure.
        span: the part to draw, in seconds; by default the whole recording.

    >>> scores = FrameScores([[0.9], [0.2]], ["dog"], edges=[0, 0.08, 0.16])
    >>> len(plot_detections({"before": (scores, []), "after": (scores, [])}).axes)
    2
    """
    labels = next(iter(systems.values()))[0].labels
    heights = [2.6] * (spectrogram is not None) + [0.9] * len(labels)
    width = 9 if len(systems) == 1 else 5.5 * len(systems)
    figure = new_figure(figsize=(width, 1.2 + 0.3 * bool(title) + sum(heights)))
    grid = figure.subplots(
        len(heights), len(systems), sharex=True, squeeze=False, height_ratios=heights
    )
    for rows, (name, (scores, estimate)) in zip(grid.T, systems.items(), strict=True):
        rows[0].set_title(plain_text(name), fontsize=10)
        rows[-1].set_xlabel("seconds")
        if spectrogram is not None:
            draw_spectrogram(rows[0], spectrogram)
        for axes, label, values in zip(rows[-len(labels) :], labels, scores.scores.T, strict=True):
            for event in (event for event in reference if event.label == label):
                axes.axvspan(event.onset, event.offset, color=SAND, label="reference")
            style: dict[str, Any] = {"baseline": None, "color": BLUE, "lw": 1}
            axes.stairs(values, scores.edges, label="frame-level score", **style)
            if thresholds is not None:
                high, low = thresholds[label]
                axes.axhline(high, color=INK, lw=0.8, ls=":", label="threshold")
                if low < high:
                    axes.axhline(low, color=INK, lw=0.8, ls="--", label="low threshold")
            for event in (event for event in estimate if event.label == label):
                times = [event.onset, event.offset]
                axes.plot(
                    times, [1.07] * 2, color=RED, lw=4, label="estimate", solid_capstyle="butt"
                )
            axes.set(ylim=(0, 1.15), yticks=(0, 1), xlim=span or (0, scores.duration))
            if axes not in grid[:, 0]:
                axes.set_yticklabels(())
    for axes, label in zip(grid[-len(labels) :, 0], labels, strict=True):
        axes.set_ylabel(plain_text(label), rotation=0, ha="right", va="center")
    add_legend(figure, grid.ravel(), "outside lower center")
    if title:
        figure.suptitle(plain_text(title))
    return figure


def plot_events(
    spectrogram: Spectrogram,
    reference: Sequence[Event],
    estimate: Sequence[Event],
    title: str = "",
    span: tuple[float, float] | None = None,
) -> "Figure":
    """Draw a recording whose scores are not known: its spectrogram, and a row per class of events.

    Args:
        spectrogram: of the recording.
        reference: the events that are there.
        estimate: the events that were detected.
        title: of the figure.
        span: the part to draw, in seconds; by default all of the spectrogram.

    >>> from earmark.data.features import FeatureConfig
    >>> from earmark.data.spectrogram import spectrogram
    >>> silence = spectrogram([np.zeros(32000, np.float32)], FeatureConfig())
    >>> figure = plot_events(silence, [Event(0, 1, "dog")], [Event(0, 0.5, "cat")])
    >>> [text.get_text() for text in figure.axes[1].get_yticklabels()]
    ['cat', 'dog']
    """
    labels = sorted({event.label for event in (*reference, *estimate)})
    height = 0.4 + 0.4 * len(labels)
    figure = new_figure(figsize=(9, 4 + height))
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(2.6, height))
    draw_spectrogram(top, spectrogram)
    for events, shift, style in (
        (reference, 0.0, {"color": SAND, "label": "reference", "height": 0.9}),
        (estimate, 0.2, {"color": RED, "label": "estimate", "height": 0.25}),
    ):
        for event in events:
            row = labels.index(event.label) + shift
            bottom.barh(row, event.offset - event.onset, left=event.onset, **style)
    bottom.set_yticks(range(len(labels)), [plain_text(label) for label in labels])
    bottom.set(ylim=(len(labels) - 0.4, -0.6), xlabel="seconds")
    bottom.set_xlim(span or (spectrogram.start, spectrogram.end))
    add_legend(figure, [bottom], "outside lower center")
    if title:
        figure.suptitle(plain_text(title))
    return figure


def draw_spectrogram(axes: "Axes", spectrogram: Spectrogram) -> None:
    """Draw a spectrogram with its frequencies in Hz; the y axis counts mels, whose lines are even.

    >>> from earmark.data.features import FeatureConfig
    >>> from earmark.data.spectrogram import spectrogram
    >>> axes = new_figure().subplots()
    >>> draw_spectrogram(axes, spectrogram([np.zeros(32000, np.float32)], FeatureConfig()))
    >>> [text.get_text() for text in axes.get_yticklabels()][:3]
    ['10 000', '5 000', '2 000']
    """
    values, centres = spectrogram.log_mel, spectrogram.frequencies
    loudest = float(values.max())
    axes.imshow(
        values.T,
        origin="lower",
        aspect="auto",
        extent=(spectrogram.start, spectrogram.end, -0.5, len(centres) - 0.5),
        cmap="magma",
        vmin=max(float(values.min()), loudest - RANGE),
        vmax=loudest,
        interpolation="none",
    )
    shown: dict[int, float] = {}
    for tick in TICKS[::-1]:  # low frequencies lie close together: as many as there is space for
        place = float(np.interp(tick, centres, np.arange(len(centres))))
        above = min(shown.values(), default=np.inf)
        if centres[0] <= tick <= centres[-1] and above - place > len(centres) / 15:
            shown[tick] = place
    axes.set_yticks(list(shown.values()), [f"{tick:,}".replace(",", " ") for tick in shown])
    axes.set_ylabel("Hz")


def add_legend(figure: "Figure", rows: Iterable["Axes"], place: Any) -> None:
    """Add a legend outside all axes, with each name once, in as many columns as the names fit in.

    >>> figure = new_figure()
    >>> axes = figure.subplots(2, 1)
    >>> for each in axes:
    ...     _ = each.plot([0, 1], [0, 1], label="loss")
    >>> add_legend(figure, axes, "outside lower center")
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['loss']
    """
    entries: dict[str, Any] = {}
    for axes in rows:
        handles, names = axes.get_legend_handles_labels()
        for name, handle in zip(names, handles, strict=True):
            entries.setdefault(name, handle)
    if entries:
        longest = 0.6 + 0.085 * max(map(len, entries))  # inches: a line, and characters
        fitting = max(1, int(figure.get_size_inches()[0] / longest))
        n_columns = min(len(entries), fitting)
        figure.legend(entries.values(), entries.keys(), loc=place, ncols=n_columns)
