"""Decoding: each step by itself, a twin in plain loops, and what a shift in time must do."""

import json
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.errors import SettingError
from earmark.formats.events import Event
from earmark.frames import FrameGrid
from earmark.inference.decoding import (
    Decoding,
    Rule,
    decode_events,
    find_runs,
    median_filter,
    window_frames,
)

RULER = FrameGrid(12.5)
HOP = 0.08


def column(*values):
    return np.array(values, dtype=float)[:, None]


def decode(values, threshold=0.5, grid=RULER, **settings):
    """Return (first frame, frame after the last) of each event of a single class."""
    decoding = Decoding.uniform(["dog"], threshold, **settings)
    events = decode_events(column(*values), grid, decoding)
    return [(grid.index(event.onset), grid.index(event.offset)) for event in events]


# Few values, so that ties and thresholds that are met exactly come up often.
values = st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0])
curves = st.lists(values, max_size=40)
# In frames; whole and half frames of length, since a length need not be a whole number of them.
lengths = st.integers(0, 14).map(lambda halves: halves / 2)


@st.composite
def rules(draw):
    low, high = sorted(draw(st.tuples(*[st.sampled_from([0.1, 0.3, 0.5, 0.7])] * 2)))
    median, shortest, gap = (float(draw(lengths) * HOP) for _ in range(3))
    return Rule(high, low, median, shortest, gap, draw(st.sampled_from([0.0, 0.4])))


def twin(values, gate, rule):
    """Decode one class in plain loops, step after step, with a real median."""
    n = len(values)
    gated = [p if g >= rule.clip_threshold else 0.0 for p, g in zip(values, gate, strict=True)]

    def mirrored(at):
        at %= 2 * n
        return gated[at] if at < n else gated[2 * n - 1 - at]

    in_frames = Fraction(rule.median).limit_denominator(1000) * Fraction(25, 2)
    # the nearest odd number; the longer at a tie
    window = min(range(1, 99, 2), key=lambda odd: (abs(odd - in_frames), -odd))
    half = window // 2
    filtered = [
        sorted(mirrored(k) for k in range(at - half, at + half + 1))[half] for at in range(n)
    ]
    runs, at = [], 0
    while at < n:
        if filtered[at] < rule.low_threshold:
            at += 1
            continue
        end = at
        while end < n and filtered[end] >= rule.low_threshold:
            end += 1
        if max(filtered[at:end]) >= rule.threshold:
            runs.append([at, end])
        at = end
    merged = []
    for run in runs:
        if merged and (run[0] - merged[-1][1]) * HOP <= rule.max_gap + 1e-9:
            merged[-1][1] = run[1]
        else:
            merged.append(run)
    kept = [(a, b) for a, b in merged if (b - a) * HOP >= rule.min_duration - 1e-9]
    return [(a, b, sum(values[a:b]) / (b - a)) for a, b in kept]


@given(curves, rules(), st.data())
def test_events_are_those_of_a_twin_in_plain_loops(values, rule, data):
    gate = data.draw(st.lists(st.sampled_from([0.2, 0.4, 0.6]), min_size=1, max_size=1))
    varying = data.draw(st.booleans())
    if varying:
        gate = data.draw(
            st.lists(st.sampled_from([0.2, 0.4]), min_size=len(values), max_size=len(values))
        )
    probs = np.array(values, dtype=float).reshape(-1, 1)
    clip_probs = np.array(gate).reshape(-1, 1) if varying else np.array(gate)
    decoding = Decoding.from_rules(["dog"], [rule])
    found = decode_events(probs, RULER, decoding, clip_probs)
    expected = twin(values, gate if varying else gate * len(values), rule)
    assert [(e.onset, e.offset) for e in found] == [
        (RULER.onset(a), RULER.offset(b - 1)) for a, b, _ in expected
    ]
    assert [e.score for e in found] == pytest.approx([mean for *_, mean in expected])


@given(curves, rules(), st.integers(0, 30))
def test_shifting_the_frames_by_k_shifts_the_events_by_k_hops(values, rule, k):
    # Silence on both sides keeps the events away from the edges, which mirror.
    quiet = [0.0] * 20
    decoding = Decoding.from_rules(["dog"], [rule._replace(clip_threshold=0.0)])
    events = decode_events(column(*quiet, *values, *quiet), RULER, decoding)
    later = decode_events(column(*[0.0] * k, *quiet, *values, *quiet), RULER, decoding)
    assert [(RULER.index(e.onset), RULER.index(e.offset)) for e in later] == [
        (RULER.index(e.onset) + k, RULER.index(e.offset) + k) for e in events
    ]
    assert all(e.onset == RULER.onset(RULER.index(e.onset)) for e in later)
    assert [e.score for e in later] == pytest.approx([e.score for e in events])


@given(st.lists(values, min_size=1, max_size=40), st.integers(0, 12), values)
def test_median_and_threshold_may_change_places(values, half, threshold):
    probs = column(*values)
    window = 2 * half + 1
    filtered_first = median_filter(probs, window) >= threshold
    threshold_first = median_filter((probs >= threshold).astype(float), window) >= 0.5
    np.testing.assert_array_equal(filtered_first, threshold_first)


class TestThreshold:
    def test_later_events_begin_on_their_own_first_frame(self):
        """Kong's decoder starts every event but the first one frame late."""
        values = [0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 0]
        assert decode(values) == [(1, 3), (5, 8), (9, 10)]

    def test_an_event_at_the_end_of_the_clip_ends_with_it(self):
        """Kong's decoder ends the last event early, or raises."""
        assert decode([0, 1, 1]) == [(1, 3)]
        assert decode([1, 1, 1]) == [(0, 3)]
        assert decode([0, 0, 1]) == [(2, 3)]

    def test_a_probability_equal_to_the_threshold_is_active(self):
        assert decode([0.4999, 0.5, 0.4999]) == [(1, 2)]

    def test_single_precision_is_compared_as_what_it_is(self):
        decoding = Decoding.uniform(["dog"], 0.7)
        assert float(np.float32(0.7)) < 0.7
        assert decode_events(column(0.7).astype(np.float32), RULER, decoding) == []

    def test_hysteresis_keeps_what_reaches_the_threshold_with_its_flanks(self):
        values = [0.3, 0.6, 0.3, 0.1, 0.3, 0.4, 0.3]
        assert decode(values, 0.5, low_threshold=0.3) == [(0, 3)]
        assert decode(values, 0.5) == [(1, 2)]

    def test_times_are_those_of_the_ruler(self):
        grid = FrameGrid(Fraction(32000, 640 * 4))
        (event,) = decode_events(column(*[0] * 25, 1, 1), grid, Decoding.uniform(["dog"]))
        assert event == Event(2.0, 2.16, "dog", 1.0)


class TestGate:
    DECODING = Decoding.uniform(["dog", "cat"], 0.5, clip_threshold=0.3)

    def test_a_class_whose_clip_probability_is_below_gives_no_events(self):
        probs = np.ones((4, 2))
        events = decode_events(probs, RULER, self.DECODING, np.array([0.3, 0.29]))
        assert [event.label for event in events] == ["dog"]

    def test_a_gate_over_time_opens_and_closes(self):
        gate = np.array([[0.1, 0.9]] * 3 + [[0.9, 0.1]] * 3)
        events = decode_events(np.ones((6, 2)), RULER, self.DECODING, gate)
        assert [(e.label, e.onset, e.offset) for e in events] == [
            ("cat", 0.0, 0.24),
            ("dog", 0.24, 0.48),
        ]

    def test_a_gate_without_clip_probs_is_told_and_not_left_out(self):
        with pytest.raises(
            SettingError, match=r"'dog' has a clip_threshold of .*: pass clip_probs"
        ):
            decode_events(np.ones((6, 2)), RULER, self.DECODING)


class TestMedian:
    @pytest.mark.parametrize("at", ["begin", "middle", "end"])
    def test_an_event_of_more_than_half_the_window_keeps_its_edges_anywhere(self, at):
        first = {"begin": 0, "middle": 8, "end": 17}[at]
        values = [1.0 if first <= k < first + 3 else 0.0 for k in range(20)]
        assert decode(values, median=5 * HOP) == [(first, first + 3)]

    def test_an_event_at_the_edge_needs_only_half_the_length(self):
        assert decode([1, 1, 0, 0, 0, 0, 0, 0], median=7 * HOP) == [(0, 2)]
        assert decode([0, 0, 0, 1, 1, 0, 0, 0], median=7 * HOP) == []
        assert decode([1, 0, 0, 0, 0, 0, 0, 0], median=7 * HOP) == []

    def test_a_window_longer_than_the_clip_works(self):
        assert decode([1, 1, 0], median=4.0) == [(0, 3)]
        assert decode([0], median=4.0) == []

    def test_a_hole_is_closed_and_a_spike_removed(self):
        values = [0, 0, 1, 0, 0, 1, 1, 0, 1, 1, 0, 0]
        assert decode(values, median=3 * HOP) == [(5, 10)]

    @pytest.mark.parametrize(
        ("frames", "expected"), [(0, 1), (1, 1), (1.9, 1), (2, 3), (3, 3), (3.9, 3), (4, 5), (5, 5)]
    )
    def test_the_window_is_the_nearest_odd_number_of_frames(self, frames, expected):
        assert window_frames(frames * HOP, RULER) == expected

    def test_a_window_must_be_odd(self):
        with pytest.raises(SettingError, match="odd"):
            median_filter(column(1, 0), 2)

    def test_blocks_change_nothing(self, monkeypatch):
        probs = np.random.default_rng(0).random((500, 3))
        whole = median_filter(probs, 9)
        monkeypatch.setattr("earmark.inference.decoding._MEDIAN_BLOCK", 100)
        np.testing.assert_array_equal(median_filter(probs, 9), whole)


class TestGapsAndLengths:
    def test_a_gap_of_just_the_length_is_filled_and_a_longer_one_not(self):
        values = [1, 0, 0, 1, 0, 0, 0, 1]
        assert decode(values, max_gap=2 * HOP) == [(0, 4), (7, 8)]
        assert decode(values, max_gap=2 * HOP - 1e-3) == [(0, 1), (3, 4), (7, 8)]

    def test_an_event_of_just_the_length_stays_and_a_shorter_one_goes(self):
        values = [1, 1, 0, 1, 1, 1, 0, 1]
        assert decode(values, min_duration=3 * HOP) == [(3, 6)]
        assert decode(values, min_duration=3 * HOP + 1e-3) == []

    def test_gaps_are_filled_before_short_events_go(self):
        assert decode([1, 0, 1, 0, 1], max_gap=HOP, min_duration=4 * HOP) == [(0, 5)]

    def test_the_score_is_the_mean_over_the_event_with_its_filled_gaps(self):
        decoding = Decoding.uniform(["dog"], 0.5, max_gap=HOP)
        (event,) = decode_events(column(0, 0.9, 0.3, 0.6), RULER, decoding)
        assert event.score == pytest.approx(0.6)

    def test_runs_that_touch_both_ends_are_found(self):
        mask = np.array([True, False, True])
        starts, stops = find_runs(mask, mask, 0, 0)
        assert (starts.tolist(), stops.tolist()) == ([0, 2], [1, 3])


class TestDuration:
    def test_the_last_event_is_cut(self):
        (event,) = decode_events(np.ones((4, 1)), RULER, Decoding.uniform(["dog"]), duration=0.3)
        assert event.offset == 0.3

    def test_frames_behind_the_end_take_no_part(self):
        probs = column(0, 0, 1, 1, 1)
        assert decode_events(probs, RULER, Decoding.uniform(["dog"]), duration=0.16) == []

    def test_a_clip_without_frames_has_no_events(self):
        decoding = Decoding.uniform(["dog"], median=1.0, max_gap=1.0)
        assert decode_events(np.zeros((0, 1)), RULER, decoding) == []
        assert decode_events(np.ones((3, 1)), RULER, decoding, duration=0.0) == []


def test_events_come_in_order_of_time_over_all_classes():
    probs = np.array([[0, 1], [1, 0], [0, 1], [1, 1]])
    events = decode_events(probs, RULER, Decoding.uniform(["dog", "cat"]))
    assert events == sorted(events)
    assert len(events) == 4


def test_a_day_of_seventeen_classes_takes_a_few_seconds():
    rng = np.random.default_rng(0)
    probs = np.repeat(rng.random((10_800, 17), dtype=np.float32), 100, axis=0)
    labels = [f"class {at}" for at in range(17)]
    decoding = Decoding.uniform(
        labels, 0.9, low_threshold=0.5, median=0.5, min_duration=0.3, max_gap=0.3
    )
    begin = time.perf_counter()
    events = decode_events(probs, RULER, decoding)
    assert time.perf_counter() - begin < 10  # about 1 s on an idle core
    assert len(events) > 1000


class TestSettings:
    def test_a_decoding_survives_json(self):
        decoding = Decoding.uniform(["dog", "Air horn, truck horn"], 0.3, median=0.4)
        decoding = decoding.replaced("dog", threshold=0.7, clip_threshold=0.2)
        assert Decoding.from_dict(json.loads(json.dumps(decoding.to_dict()))) == decoding
        assert hash(decoding) is not None

    def test_one_class_is_replaced_and_no_other(self):
        decoding = Decoding.uniform(["dog", "cat"], 0.5, low_threshold=0.2)
        other = decoding.replaced("cat", min_duration=1.0, threshold=0.6)
        assert other.rule("dog") == decoding.rule("dog")
        assert other.rule("cat") == Rule(0.6, 0.2, 0.0, 1.0, 0.0, 0.0)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"threshold": 0.0}, "0 < low_threshold <= threshold <= 1"),
            ({"threshold": 1.2}, "0 < low_threshold <= threshold <= 1"),
            ({"low_threshold": 0.6}, "low_threshold=0.6 and threshold=0.5"),
            ({"median": -1}, "median of 'dog' must be .* Got -1"),
            ({"max_gap": float("nan")}, "max_gap of 'dog' must be .* Got nan"),
            ({"min_duration": "1"}, "min_duration of 'dog' must be .* Got '1'"),
            ({"clip_threshold": 1.5}, "clip_threshold of 'dog' must be from 0 to 1"),
            ({"clip_threshold": True}, "clip_threshold of 'dog'"),
            ({"medain": 1}, "did you mean 'median'"),
        ],
    )
    def test_what_cannot_work_is_told_with_class_and_value(self, changes, message):
        with pytest.raises(SettingError, match=message):
            Decoding.uniform(["dog"]).replaced("dog", **changes)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            (None, "table of settings. Got None"),
            ({"labels": ["dog"]}, "has no 'threshold'"),
            ({**Decoding.uniform(["dog"]).to_dict(), "treshold": [1]}, "did you mean 'threshold'"),
            ({**Decoding.uniform(["dog"]).to_dict(), "median": [1, 2]}, "each of 1 classes. Got 2"),
            ({**Decoding.uniform(["dog"]).to_dict(), "median": 1}, "median must be a list"),
            ({**Decoding.uniform(["dog"]).to_dict(), "labels": "d"}, "labels must be a list"),
            ({**Decoding.uniform(["a", "b"]).to_dict(), "labels": ["a", "a"]}, "once"),
        ],
    )
    def test_a_table_of_settings_is_read_strictly(self, settings, message):
        with pytest.raises(SettingError, match=message):
            Decoding.from_dict(settings)

    def test_a_label_that_is_not_there_is_told_with_the_nearest(self):
        with pytest.raises(SettingError, match="did you mean 'dog'"):
            Decoding.uniform(["dog", "cat"]).rule("dogs")

    @pytest.mark.parametrize(
        ("probs", "clip_probs", "message"),
        [
            (np.zeros((3, 2)), None, r"\(frames, 1\).*\(3, 2\)"),
            (np.zeros(3), None, r"Got the shape \(3,\)"),
            (np.full((3, 1), 1.5), None, "pass logits through a sigmoid"),
            (np.full((3, 1), np.nan), None, "probabilities from 0 to 1"),
            (np.zeros((3, 1)), np.zeros(2), r"Got the shape \(2,\)"),
            (np.zeros((3, 1)), np.array([np.nan]), "clip_probs must be probabilities"),
        ],
    )
    def test_wrong_shapes_and_values_are_told(self, probs, clip_probs, message):
        with pytest.raises(SettingError, match=message):
            decode_events(probs, RULER, Decoding.uniform(["dog"]), clip_probs)
