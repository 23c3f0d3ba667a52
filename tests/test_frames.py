"""The frame grid: exact times. Frame-level scores: their time axis, shapes and values."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.errors import DataError, SettingError
from earmark.frames import SNAP, FrameGrid, FrameScores, pooled_length

rates = st.fractions(min_value=Fraction(1, 10), max_value=Fraction(48_000))


def test_500_frames_at_50_hz_are_125_at_12_and_a_half():
    grid = FrameGrid(50)
    assert grid.count(10.0) == 500
    assert grid.pooled(4) == FrameGrid(12.5)
    assert grid.pooled(2).pooled(2).count(10.0) == 125
    assert grid.pooled(4).offset(124) == 10.0


@given(frame_rate=rates, index=st.integers(0, 10**9))
def test_index_to_seconds_and_back_is_the_same_frame(frame_rate, index):
    grid = FrameGrid(frame_rate)
    assert grid.index(grid.onset(index)) == index
    assert grid.offset(index) == grid.onset(index + 1)


@given(frame_rate=rates, n_frames=st.integers(1, 10**8))
def test_n_frames_cover_the_time_of_n_frames(frame_rate, n_frames):
    grid = FrameGrid(frame_rate)
    assert grid.count(grid.onset(n_frames)) == n_frames


@given(seconds=st.integers(0, 10**7).map(lambda cents: cents / 100))
def test_decimal_times_land_on_the_frame_they_name(seconds):
    assert FrameGrid(50).index(seconds) == round(seconds * 100) // 2


@given(n_frames=st.integers(1, 10**6), factors=st.lists(st.integers(1, 5), max_size=4))
def test_pooling_in_several_steps_counts_as_pooling_in_one(n_frames, factors):
    step_by_step, grid, whole = n_frames, FrameGrid(50), 1
    for factor in factors:
        step_by_step, grid, whole = (
            pooled_length(step_by_step, factor),
            grid.pooled(factor),
            whole * factor,
        )
    assert step_by_step == pooled_length(n_frames, whole)
    assert grid == FrameGrid(50).pooled(whole)
    assert grid.count(FrameGrid(50).onset(n_frames)) == step_by_step


def test_centres_lie_in_the_middle():
    grid = FrameGrid(12.5)
    assert grid.centres(2).tolist() == [0.04, 0.12]


@pytest.mark.parametrize("frame_rate", [0, -1, float("nan"), float("inf")])
def test_a_frame_rate_must_be_a_positive_number(frame_rate):
    with pytest.raises(SettingError, match="positive number of Hz"):
        FrameGrid(frame_rate)


def test_pooling_by_zero_is_refused():
    with pytest.raises(SettingError, match=r"1 or more\. Got 0"):
        FrameGrid(50).pooled(0)


@pytest.mark.parametrize("time", [float("nan"), float("inf"), -float("inf")])
def test_a_time_that_is_no_number_is_refused(time):
    for ask in (FrameGrid(50).count, FrameGrid(50).index):
        with pytest.raises(SettingError, match=r"finite number of seconds\. Got"):
            ask(time)


def test_a_duration_below_zero_is_refused_and_a_time_below_zero_has_its_frame():
    with pytest.raises(SettingError, match=r"0 s or more\. Got -1\.0"):
        FrameGrid(50).count(-1.0)
    assert FrameGrid(50).count(0.0) == FrameGrid(50).count(-1e-12) == 0
    assert FrameGrid(50).index(-0.01) == -1


GRID = FrameGrid(12.5)


@given(st.integers(0, 60), st.floats(0, 6))
def test_scores_on_a_grid_are_those_of_frames_that_begin_before_the_end(n_frames, duration):
    values = np.arange(2.0 * n_frames).reshape(n_frames, 2)
    if GRID.count(duration) > n_frames:
        with pytest.raises(
            SettingError, match=rf"needs {GRID.count(duration)} frames .* {n_frames}"
        ):
            FrameScores(values, ["cat", "dog"], GRID, duration=duration)
        return
    scores = FrameScores(values, ["cat", "dog"], GRID, duration=duration)
    n_kept = sum(duration * 25 / 2 - at > SNAP for at in range(n_frames))  # at 12.5 Hz
    assert len(scores) == n_kept
    np.testing.assert_array_equal(scores.scores, values[:n_kept])
    assert scores.duration == duration
    assert scores.edges[:-1].tolist() == [GRID.onset(at) for at in range(n_kept)]
    assert scores.times.tolist() == [GRID.onset(2 * at + 1) / 2 for at in range(n_kept)]


def test_scores_without_a_duration_last_as_long_as_their_frames():
    scores = FrameScores(np.zeros((125, 1)), ["dog"], GRID)
    assert (scores.duration, len(scores.edges), scores.grid) == (10.0, 126, GRID)
    assert scores.edges[-2:].tolist() == [9.92, 10.0]


def test_the_frames_of_a_detector_end_with_the_recording():
    values = np.linspace(0, 1, 10, dtype=np.float32)[:, None]
    scores = FrameScores(values, ["dog"], GRID, duration=0.7)
    assert scores.edges.tolist() == [0.0, 0.08, 0.16, 0.24, 0.32, 0.4, 0.48, 0.56, 0.64, 0.7]
    assert scores.scores[-1] == values[8]
    assert FrameScores(values, ["dog"], GRID, duration=0.8).duration == 0.8


def test_edges_of_any_spacing_are_a_time_axis():
    scores = FrameScores([[1], [-3]], ["dog"], edges=[0.5, 1, 4])
    assert scores.grid is None
    assert scores.duration == 4.0
    assert scores.times.tolist() == [0.75, 2.5]
    assert scores.scores.dtype == np.float64


def test_single_precision_is_kept():
    values = np.array([[0.1], [0.2]], np.float32)
    scores = FrameScores(values, ["dog"], GRID, clip_scores=values[0])
    assert scores.scores.dtype == scores.clip_scores.dtype == np.float32
    assert scores.labels == ("dog",)


def test_clip_level_scores_of_a_clip_are_those_of_each_of_its_frames():
    values = np.zeros((3, 2))
    per_clip = FrameScores(values, ["cat", "dog"], GRID, clip_scores=[0.2, 0.9])
    assert per_clip.clip_scores.tolist() == [[0.2, 0.9]] * 3
    assert per_clip.clip_level().tolist() == [0.2, 0.9]
    rows = [[0.1, 0.9], [0.3, 0.2], [0.8, 0.7]]
    per_frame = FrameScores(values, ["cat", "dog"], GRID, duration=0.16, clip_scores=rows)
    assert per_frame.clip_scores.tolist() == rows[:2]
    assert per_frame.clip_level().tolist() == [0.3, 0.9]
    with pytest.raises(SettingError, match="without clip-level scores"):
        FrameScores(values, ["cat", "dog"], GRID).clip_level()


def test_a_recording_without_frames_has_clip_level_scores_of_zero():
    scores = FrameScores(np.zeros((0, 2)), ["cat", "dog"], GRID, clip_scores=[0.2, 0.9])
    assert (len(scores), scores.duration) == (0, 0.0)
    assert scores.clip_level().tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("scores", "axis", "message"),
    [
        (np.zeros((3, 2)), {"grid": GRID}, r"\(frames, 1\), one column per label.*\(3, 2\)"),
        (np.zeros(3), {"grid": GRID}, r"Got the shape \(3,\)"),
        (np.zeros((3, 1)), {}, "need a grid .* or edges"),
        (np.zeros((3, 1)), {"duration": 1.0}, "need a grid .* or edges"),
        (np.zeros((3, 1)), {"grid": GRID, "edges": [0, 1, 2, 3]}, "need a grid .* or edges"),
        (np.zeros((3, 1)), {"edges": [0, 1, 2, 3], "duration": 3}, "need a grid .* or edges"),
        (np.zeros((3, 1)), {"grid": GRID, "duration": -1.0}, "0 s or more"),
        (np.zeros((3, 1)), {"grid": GRID, "duration": np.nan}, "finite number of seconds"),
        (np.zeros((3, 1)), {"edges": [0, 1, 2]}, r"edges \(4,\).*Got edges of the shape \(3,\)"),
        (np.zeros((0, 1)), {"edges": [0]}, "one frame at least"),
        (np.zeros((3, 1)), {"grid": GRID, "clip_scores": np.zeros(2)}, r"Got the shape \(2,\)"),
        (np.zeros((3, 1)), {"grid": GRID, "clip_scores": np.zeros((2, 1))}, r"shape \(2, 1\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(scores, axis, message):
    with pytest.raises(SettingError, match=message):
        FrameScores(scores, ["dog"], **axis)


@pytest.mark.parametrize(
    ("scores", "axis", "message"),
    [
        ([[0.5], [np.nan]], {"grid": GRID}, "frame 1 and class 'dog' is nan"),
        ([[np.inf], [0.5]], {"grid": GRID}, "frame 0 and class 'dog' is inf"),
        ([[0.5], [0.5]], {"grid": GRID, "clip_scores": [np.nan]}, "clip-level scores contain NaN"),
        ([[0.5], [0.5]], {"edges": [0, 1, np.nan]}, "edges of frames are seconds"),
        ([[0.5], [0.5]], {"edges": [0, 1, 1]}, "each above the one before"),
        ([[0.5], [0.5]], {"edges": [1, 0, 2]}, "each above the one before"),
        ([[0.5], [0.5]], {"edges": [-1, 0, 1]}, "edges of frames are seconds from 0 on"),
    ],
)
def test_scores_are_finite_and_edges_increase(scores, axis, message):
    with pytest.raises(DataError, match=message):
        FrameScores(scores, ["dog"], **axis)


@pytest.mark.parametrize(("own", "other"), [(12.5, 50), (12.5, 24), (10, 12.5), (1, 3), (25, 25)])
def test_the_frame_at_the_centre_of_a_frame_of_another_grid_contains_it(own, other):
    own, other = FrameGrid(own), FrameGrid(other)
    centres = [Fraction(2 * n + 1, 2) / other.frame_rate for n in range(500)]
    expected = [math.floor(centre * own.frame_rate) for centre in centres]
    assert own.frames_at(other, 0, 500).tolist() == expected
    assert own.frames_at(other, 123, 456).tolist() == expected[123:456]
    for n_frames in (1, 2, 7, 100):
        inside = sum(centre * own.frame_rate < n_frames for centre in centres)
        assert other.count_within(own, n_frames) == inside
