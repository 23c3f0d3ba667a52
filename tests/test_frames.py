"""The grid."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.errors import SettingError
from earmark.frames import FrameGrid, pooled_length

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
def test_pooling_step_by_step_counts_as_pooling_at_once(n_frames, factors):
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
def test_a_rate_that_is_none_is_refused(frame_rate):
    with pytest.raises(SettingError, match="positive number of Hz"):
        FrameGrid(frame_rate)


def test_pooling_by_nothing_is_refused():
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
