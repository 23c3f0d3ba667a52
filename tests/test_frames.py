"""The ruler."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.errors import SettingError
from earmark.frames import Frames, pooled_length

rates = st.fractions(min_value=Fraction(1, 10), max_value=Fraction(48_000))


def test_500_frames_at_50_hz_are_125_at_12_and_a_half():
    ruler = Frames(50)
    assert ruler.count(10.0) == 500
    assert ruler.pooled(4) == Frames(12.5)
    assert ruler.pooled(2).pooled(2).count(10.0) == 125
    assert ruler.pooled(4).offset(124) == 10.0


@given(rate=rates, index=st.integers(0, 10**9))
def test_index_to_seconds_and_back_is_the_same_frame(rate, index):
    ruler = Frames(rate)
    assert ruler.index(ruler.onset(index)) == index
    assert ruler.offset(index) == ruler.onset(index + 1)


@given(rate=rates, n_frames=st.integers(1, 10**8))
def test_n_frames_cover_the_time_of_n_frames(rate, n_frames):
    ruler = Frames(rate)
    assert ruler.count(ruler.onset(n_frames)) == n_frames


@given(seconds=st.integers(0, 10**7).map(lambda cents: cents / 100))
def test_decimal_times_land_on_the_frame_they_name(seconds):
    assert Frames(50).index(seconds) == round(seconds * 100) // 2


@given(n_frames=st.integers(1, 10**6), factors=st.lists(st.integers(1, 5), max_size=4))
def test_pooling_step_by_step_counts_as_pooling_at_once(n_frames, factors):
    step_by_step, ruler, whole = n_frames, Frames(50), 1
    for factor in factors:
        step_by_step, ruler, whole = (
            pooled_length(step_by_step, factor),
            ruler.pooled(factor),
            whole * factor,
        )
    assert step_by_step == pooled_length(n_frames, whole)
    assert ruler == Frames(50).pooled(whole)
    assert ruler.count(Frames(50).onset(n_frames)) == step_by_step


def test_centres_lie_in_the_middle():
    ruler = Frames(12.5)
    assert ruler.centres(2).tolist() == [0.04, 0.12]


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_a_rate_that_is_none_is_refused(rate):
    with pytest.raises(SettingError, match="positive number of Hz"):
        Frames(rate)


def test_pooling_by_nothing_is_refused():
    with pytest.raises(SettingError, match=r"1 or more\. Got 0"):
        Frames(50).pooled(0)


@pytest.mark.parametrize("time", [float("nan"), float("inf"), -float("inf")])
def test_a_time_that_is_no_number_is_refused(time):
    for ask in (Frames(50).count, Frames(50).index):
        with pytest.raises(SettingError, match=r"finite number of seconds\. Got"):
            ask(time)


def test_a_duration_below_zero_is_refused_and_a_time_below_zero_has_its_frame():
    with pytest.raises(SettingError, match=r"0 s or more\. Got -1\.0"):
        Frames(50).count(-1.0)
    assert Frames(50).count(0.0) == Frames(50).count(-1e-12) == 0
    assert Frames(50).index(-0.01) == -1
