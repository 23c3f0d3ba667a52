"""Plots are exact: edges of segments in seconds, gradients with their sign, scores and events."""

import itertools

import numpy as np
import pytest
import torch
from PIL import Image

import earmark
from earmark.data.features import FeatureConfig
from earmark.data.spectrogram import spectrogram
from earmark.errors import SettingError
from earmark.formats.events import Event
from earmark.frames import FrameGrid, FrameScores
from earmark.metrics.false_events import RecallPoint
from earmark.plots import (
    plot_class_scores,
    plot_confusion,
    plot_detection,
    plot_false_events,
    plot_gradients,
    plot_hierarchy,
    plot_history,
    plot_precision_recall,
    plot_predictions,
    plot_runs,
    save,
)
from earmark.plots.figure import COLOURS, line_style
from earmark.pooling import Pooling
from earmark.pooling.gradients import closed_form

NAMES = ("max", "average", "linear", "exp", "attention")


def silence(n_frames):
    """Return the spectrogram of some frames of silence, 20 ms each."""
    return spectrogram([np.zeros(640 * n_frames, np.float32)], FeatureConfig())


def draw(n_frames, stages, **settings):
    """Return the plot of a clip of `n_frames` output frames, and its levels."""
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(1, n_frames, 2, generator=rng)
    _, levels = Pooling("linear", stages)(x, return_stages=True)
    settings.setdefault("lengths", stages)
    seen = silence(4 * n_frames)
    figure = plot_hierarchy(seen, levels, FrameGrid(12.5), "bell", 1, **settings)
    return figure, levels


@pytest.mark.parametrize(
    ("n_frames", "lengths", "spans"),
    [
        (125, (5, 5, 5), [1, 5, 25, 125]),
        (126, (5, 5, 5), [1, 5, 25, 125, 126]),
        (13, (4, 3), [1, 4, 12, 13]),
        (13, (4,), [1, 4, 13]),
        (13, (), [1, 13]),
        (1, (5, 5, 5), [1, 5, 25, 1]),
    ],
)
def test_segments_are_drawn_where_their_frames_are(n_frames, lengths, spans):
    figure, levels = draw(n_frames, lengths)
    stairs = [patch.get_data() for patch in figure.axes[1].patches if hasattr(patch, "get_data")]
    for data, level, span in zip(stairs, levels, spans, strict=True):
        assert data.values.tolist() == level.probs[0, :, 1].tolist()
        ends = [min(i * span, n_frames) for i in range(len(data.values) + 1)]
        assert data.edges == pytest.approx([frame / 12.5 for frame in ends])


def test_the_legend_of_the_levels_lies_outside_the_axes():
    figure, _ = draw(126, (5, 5, 5), events=[Event(1.0, 2.0, "bell"), Event(4.0, 5.0, "bell")])
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert not any(axes.get_legend() for axes in figure.axes)
    assert not any(legend.get_window_extent().overlaps(axes.bbox) for axes in figure.axes)
    names = [text.get_text() for text in legend.get_texts()]
    assert names[:2] == ["reference", "126 frames"]
    assert names[-1].startswith("clip ")
    assert len(set(names)) == len(names) == 6


@pytest.mark.parametrize("lengths", [(5, 5, 5), (4,), ()])
def test_levels_differ_in_colour_and_grow_in_width_from_frames_on(lengths):
    figure, _ = draw(126, lengths)
    stairs = [patch for patch in figure.axes[1].patches if hasattr(patch, "get_data")]
    widths = [patch.get_linewidth() for patch in stairs]
    assert widths == sorted(set(widths))
    assert widths[1] >= 2 * widths[0]
    assert len({patch.get_edgecolor() for patch in stairs}) == len(stairs)
    assert stairs[-1].get_linestyle() != stairs[0].get_linestyle()


def test_the_axes_of_levels_start_at_zero():
    figure, _ = draw(126, (5, 5, 5))
    for axes in figure.axes:
        assert axes.get_xlim() == pytest.approx((0, 10.08))
    assert figure.axes[1].get_ylim()[0] == 0


def test_the_lengths_of_the_stages_are_five_five_five_by_default():
    x = torch.rand(1, 125, 2)
    _, levels = Pooling("linear")(x, return_stages=True)
    figure = plot_hierarchy(silence(500), levels, FrameGrid(12.5), "bell", 1)
    assert figure.axes[1].get_xlim() == (0, 10)


def test_lengths_that_are_not_those_of_the_stages_are_refused():
    with pytest.raises(SettingError, match=r"\[126, 26, 6, 2, 1\] instances .* \(5, 5\);"):
        draw(126, (5, 5, 5), lengths=(5, 5))


def test_a_plot_is_written_whole_and_leaves_no_other_file(tmp_path):
    figure, _ = draw(126, (5, 5, 5), events=[Event(1.0, 2.0, "bell"), Event(2.0, 3.0, "dog")])
    path = save(figure, tmp_path / "deep" / "picture.png")
    with Image.open(path) as image:
        image.verify()
        assert image.format == "PNG"
    assert list(path.parent.iterdir()) == [path]


def test_gradients_are_drawn_as_the_closed_forms_with_their_sign():
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(125, generator=rng, dtype=torch.float64)
    weights = torch.rand(125, generator=rng, dtype=torch.float64)
    grid = iter(plot_gradients(x, weights).axes)
    for name, sign in itertools.product(NAMES, (1, -1)):
        axes = next(grid)
        title = f"{name}, {'positive' if sign == 1 else 'negative'} clip"
        assert axes.get_title() == title
        w = weights if name == "attention" else None
        wanted = [closed_form(name, x, w, stages).dx for stages in ((), (5, 5, 5))]
        scale = max(dx.abs().max() for dx in wanted)
        drawn = {line.get_label(): line.get_ydata() for line in axes.lines}
        for label, dx in zip(("single", "hierarchical"), wanted, strict=True):
            torch.testing.assert_close(torch.as_tensor(drawn[label]), sign * dx / scale)
        assert drawn["single"][x.argmax()] * sign > 0  # the highest frame of a positive clip rises


def test_detections_are_drawn_with_the_edges_of_their_frames_and_events():
    values = np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.4]])
    scores = FrameScores(values, ["cat", "_dog"], FrameGrid(12.5), duration=0.2)
    reference, estimate = [Event(0.05, 0.15, "cat")], [Event(0.0, 0.08, "_dog")]
    figure = plot_detection(scores, reference, estimate)
    for axes, column in zip(figure.axes, values.T, strict=True):
        (stairs,) = (patch for patch in axes.patches if hasattr(patch, "get_data"))
        assert stairs.get_data().values.tolist() == column.tolist()
        assert stairs.get_data().edges.tolist() == [0.0, 0.08, 0.16, 0.2]
        assert axes.get_xlim() == (0, 0.2)
    (line,) = figure.axes[1].lines
    assert line.get_xdata().tolist() == [0.0, 0.08]
    assert not figure.axes[0].lines
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert sorted(names) == ["estimate", "frame-level score", "reference"]


def test_a_recording_is_drawn_with_frequencies_in_hz_scores_thresholds_and_events():
    time = np.arange(4 * 16000) / 16000
    wave = (0.1 * np.sin(2 * np.pi * 1000 * time)).astype(np.float32)
    detector = earmark.load()
    classes, reference = ["dog", "siren"], [Event(0.5, 1.0, "dog")]
    figure = detector.plot(wave, 16000, classes=classes, reference=reference, title="a $ b")
    top, dog, siren = figure.axes
    assert (top.get_ylabel(), dog.get_ylabel(), siren.get_ylabel()) == ("Hz", *classes)
    ticks = dict(zip([t.get_text() for t in top.get_yticklabels()], top.get_yticks(), strict=True))
    loudest = top.images[0].get_array().max(axis=1).argmax()
    assert abs(ticks["1 000"] - loudest) <= 1
    assert siren.get_xlim() == (0, 4) and siren.get_xlabel() == "seconds"
    assert figure.get_suptitle() == r"a \$ b"
    heights = {line.get_label(): line.get_ydata()[0] for line in dog.lines}
    rule = detector.bundle.decoding["dog"]
    assert heights == {"threshold": rule.threshold, "low threshold": rule.low_threshold}
    assert len({line.get_linestyle() for line in dog.lines}) == 2
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert sorted(names) == ["frame-level score", "low threshold", "reference", "threshold"]
    part = detector.plot(wave, 16000, classes=["dog"], span=(1.0, 2.5))
    assert part.axes[0].get_xlim() == (1.0, 2.5)
    with pytest.raises(SettingError, match="a part of the recording, from 0 to 4 s"):
        detector.plot(wave, 16000, span=(5.0, 6.0))
    with pytest.raises(SettingError, match="did you mean 'siren'"):
        detector.plot(wave, 16000, classes=["sirene"])
    with pytest.raises(SettingError, match="classes must name one class or more"):
        detector.plot(wave, 16000, classes=[])
    other = detector.plot(0 * wave, 16000, reference=[Event(0, 1, "whale")])
    assert len(other.axes) == 4  # the model has no whales: three classes with the highest scores


def legend_is_inside(figure):
    figure.draw_without_rendering()
    own = figure.legends[0].get_window_extent()
    return own.x0 >= 0 and own.y0 >= 0 and own.x1 <= figure.bbox.x1 and own.y1 <= figure.bbox.y1


def test_legends_with_many_or_long_names_stay_inside_their_figure():
    curve = np.array([0.0, 1.0]), np.array([1.0, 0.5])
    labels = [f"category_number_{n}" for n in range(50)]
    assert legend_is_inside(plot_precision_recall(dict.fromkeys(labels, curve)))
    systems = [f"experiments/a_long_name_of_a_system_{n}.json" for n in range(4)]
    bars = {name: {"dog": (0.9, 0.8, 1.0)} for name in systems}
    figure = plot_class_scores(bars, "F1")
    assert legend_is_inside(figure)
    assert figure.axes[0].get_xlim() == (0, 1)
    points = [RecallPoint(0.5, per_minute=2.0, recordings=0.1, clip_recall=0.7)]
    figure = plot_false_events(dict.fromkeys(systems, points))
    assert legend_is_inside(figure)
    assert len({line.get_marker() for line in figure.axes[0].lines}) == len(systems)


# How colours look with no long-, middle- or short-wave cones, in linear RGB (Machado et al., 2009).
COLOUR_BLIND = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
               [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
               [0.004733, 0.691367, 0.303900]],
    "none": np.eye(3),
}  # fmt: skip


@pytest.mark.parametrize("vision", COLOUR_BLIND)
def test_colours_differ_for_every_reader(vision):
    seen = []
    for colour in COLOURS:
        rgb = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        seen.append(np.clip(np.array(COLOUR_BLIND[vision]) @ linear, 0, 1) ** (1 / 2.4))
    for one, other in itertools.combinations(seen, 2):
        assert np.linalg.norm(one - other) > 0.1


def test_the_first_28_curves_differ_in_colour_or_line_style_and_neighbours_in_both():
    styles = [tuple(line_style(number).values()) for number in range(28)]
    assert len(set(styles)) == 28
    for one, other in itertools.pairwise(styles):
        assert one[0] != other[0] and one[1] != other[1]


def test_figures_are_written_as_png_svg_and_pdf_and_nothing_else(tmp_path):
    figure, _ = draw(126, (5, 5, 5))
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    for suffix, start in starts.items():
        assert save(figure, tmp_path / f"x.{suffix}").read_bytes().startswith(start)
    with pytest.raises(SettingError, match=r"ends in \.png, \.svg or \.pdf"):
        save(figure, tmp_path / "x.jpeg")


def test_the_history_marks_its_best_epoch(tmp_path):
    rows = ["epoch\ttrain_loss\tvalid_loss", "1\t0.7\t0.6", "2\t0.5\t0.4", "3\t0.3\t0.5"]
    (tmp_path / "history.tsv").write_text("\n".join(rows))
    lines = {
        line.get_label(): line for line in plot_history(tmp_path / "history.tsv").axes[0].lines
    }
    assert lines["training"].get_ydata().tolist() == [0.7, 0.5, 0.3]
    assert lines["validation"].get_ydata().tolist() == [0.6, 0.4, 0.5]
    assert np.ravel(lines["lowest"].get_data()).tolist() == [2, 0.4]


def test_a_system_without_any_false_event_has_an_axis_and_whole_points():
    points = [RecallPoint(x, per_minute=0.0, recordings=0.0, clip_recall=x) for x in (0.2, 0.9)]
    axes = plot_false_events({"mine": points}).axes[0]
    low, high = axes.get_xlim()
    assert low < 0 < high and high > 0.5


def test_every_run_is_a_dot_and_every_configuration_a_line_at_its_mean():
    runs = {"single": [0.5, 0.6], "hierarchical": [0.4]}
    axes = plot_runs({"F1": runs}).axes[0]
    dots, means = axes.lines[::2], axes.lines[1::2]
    assert [dot.get_xdata().tolist() for dot in dots] == list(runs.values())
    assert [mean.get_xdata()[0] for mean in means] == pytest.approx([0.55, 0.4])


def test_a_class_that_is_not_detected_at_clip_level_is_a_thin_line():
    example = {
        "hop": 0.08,
        "events": [[0.1, 0.3, "dog"]],
        "frame_probs": {"dog": [0.1, 0.9], "siren": [0.2, 0.3]},
        "thresholds": {"clip": {"dog": [0.5, 0.25], "siren": [0.6, 0.3]}},
        "detected": {"clip": {"dog": True, "siren": False}},
    }
    axes = plot_predictions({"single": example}, n_columns=1, tuning="clip").axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    assert lines["dog"].get_linewidth() > lines["siren"].get_linewidth()
    assert lines["dog"].get_xdata().tolist() == pytest.approx([0.04, 0.12])
    marks = [line for line in axes.lines if line.get_marker() != "None"]
    assert {mark.get_ydata()[0] for mark in marks} == {0.5, 0.25, 0.6, 0.3}


def test_classes_of_one_clip_differ_in_more_than_colour():
    labels = ("dog", "siren", "bell", "cat")
    example = {
        "hop": 0.08,
        "events": [],
        "frame_probs": {label: [0.1, 0.9] for label in labels},
        "thresholds": {"clip": {label: [0.5, 0.25] for label in labels}},
        "detected": {"clip": dict.fromkeys(labels, True)},
    }
    axes = plot_predictions({"single": example}, n_columns=1, tuning="clip").axes[0]
    curves = [line for line in axes.lines if line.get_label() in labels]
    assert len({line.get_linestyle() for line in curves}) == len(labels)
    marks = [line for line in axes.lines if line.get_marker() != "None"]
    assert len({line.get_marker() for line in marks}) == len(labels)
    filled = [line.get_markerfacecolor() != "white" for line in marks]
    assert filled == [True, False] * len(labels)


def test_labels_that_look_like_formulas_or_are_hidden_are_drawn_as_they_are(tmp_path):
    labels = ["$x^{$", "_rest", "a_b"]
    bars = {"$a$": dict.fromkeys(labels, (0.5, 0.4, 0.6))}
    curve = np.array([0.0, 1.0]), np.array([1.0, 0.5])
    for number, figure in enumerate(
        (
            plot_class_scores(bars, "F1"),
            plot_confusion(np.ones((4, 4)), labels),
            plot_precision_recall(dict.fromkeys(labels, curve)),
        )
    ):
        assert save(figure, tmp_path / f"{number}.png").stat().st_size > 1000
    legend = plot_precision_recall(dict.fromkeys(labels, curve)).legends[0]
    assert len(legend.get_texts()) == 3
