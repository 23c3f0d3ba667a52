"""Decoding: each step by itself, a twin in plain loops, and what a shift in time must do."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.errors import SettingError
from earmark.formats.events import Event
from earmark.frames import FrameGrid, FrameScores
from earmark.inference.decoding import (
    Decoding,
    Rule,
    RunFinder,
    decode_events,
    median_filter,
    window_frames,
)
from earmark.inference.runs import find_runs

GRID = FrameGrid(12.5)
HOP = 0.08


def scores_of(values, grid=GRID, **settings):
    """Return the frame-level scores of a single class."""
    return FrameScores(np.array(values, dtype=float).reshape(-1, 1), ["dog"], grid, **settings)


def decode(values, threshold=0.5, grid=GRID, **settings):
    """Return (first frame, frame after the last) of each event of a single class."""
    decoding = Decoding.uniform(["dog"], threshold, **settings)
    events = decode_events(scores_of(values, grid), decoding)
    return [(grid.index(event.onset), grid.index(event.offset)) for event in events]


# Few values, so that ties and thresholds that are met exactly come up often.
values = st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0])
recordings = st.lists(values, max_size=40)
# In frames; whole and half frames of length, since a length need not be a whole number of them.
lengths = st.integers(0, 14).map(lambda halves: halves / 2)


@st.composite
def rules(draw):
    low, high = sorted(draw(st.tuples(*[st.sampled_from([0.1, 0.3, 0.5, 0.7])] * 2)))
    median, shortest, gap = (float(draw(lengths) * HOP) for _ in range(3))
    return Rule(high, low, median, shortest, gap, draw(st.sampled_from([0.0, 0.4])))


def twin(values, clip_values, rule):
    """Decode one class in plain loops, step after step, with a real median."""
    n = len(values)
    pairs = zip(values, clip_values, strict=True)
    kept = [p if clip >= rule.clip_threshold else 0.0 for p, clip in pairs]

    def mirrored(at):
        at %= 2 * n
        return kept[at] if at < n else kept[2 * n - 1 - at]

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
    long = [(a, b) for a, b in merged if (b - a) * HOP >= rule.min_duration - 1e-9]
    return [(a, b, sum(values[a:b]) / (b - a)) for a, b in long]


@given(recordings, rules(), st.data())
def test_events_are_those_of_a_twin_in_plain_loops(values, rule, data):
    clip_values = data.draw(st.lists(st.sampled_from([0.2, 0.4, 0.6]), min_size=1, max_size=1))
    per_frame = data.draw(st.booleans())
    if per_frame:
        clip_values = data.draw(
            st.lists(st.sampled_from([0.2, 0.4]), min_size=len(values), max_size=len(values))
        )
    clip_scores = np.array(clip_values).reshape((-1, 1) if per_frame else (1,))
    scores = scores_of(values, clip_scores=clip_scores)
    estimate = decode_events(scores, Decoding(["dog"], [rule]))
    expected = twin(values, clip_values if per_frame else clip_values * len(values), rule)
    assert [(e.onset, e.offset) for e in estimate] == [
        (GRID.onset(a), GRID.offset(b - 1)) for a, b, _ in expected
    ]
    assert [e.score for e in estimate] == pytest.approx([mean for *_, mean in expected])


@given(st.lists(recordings, min_size=1, max_size=5), st.lists(rules(), min_size=1, max_size=3))
def test_recordings_decoded_end_to_end_are_those_decoded_one_by_one(all_values, tried):
    """One finder tries all rules, as in tuning."""
    clips = [scores_of(x, clip_scores=[0.3 + 0.2 * (n % 2)]) for n, x in enumerate(all_values)]
    finder = RunFinder(clips, max(rule.max_gap for rule in tried))
    for rule in tried:
        starts, stops = finder.find(0, rule)
        where = np.searchsorted(finder.starts, starts, side="right") - 1
        together = [
            (at, start - finder.starts[at], stop - finder.starts[at])
            for at, start, stop in zip(where.tolist(), starts.tolist(), stops.tolist(), strict=True)
        ]
        alone = [
            (at, GRID.index(event.onset), GRID.index(event.offset))
            for at, clip in enumerate(clips)
            for event in decode_events(clip, Decoding(["dog"], [rule]))
        ]
        assert together == alone


@pytest.mark.parametrize("n_frames", [0, 1, 3])
def test_the_longest_gap_that_is_filled_does_not_join_two_recordings(n_frames):
    rule = Rule(max_gap=n_frames * GRID.hop)
    finder = RunFinder([scores_of([1.0, 1.0])] * 2, rule.max_gap)
    starts, stops = finder.find(0, rule)
    assert len(starts) == 2
    assert (stops - starts).tolist() == [2, 2]


@given(st.lists(recordings, min_size=1, max_size=4), rules())
def test_the_median_of_the_finder_is_the_count_of_active_frames(all_values, rule):
    clips = [scores_of(values) for values in all_values]
    finder = RunFinder(clips)
    active = finder.active(0, replace(rule, clip_threshold=0.0), rule.threshold)
    for start, filtered in zip(finder.starts, finder.filtered(0, rule.median), strict=True):
        part = active[start : start + len(filtered)]
        np.testing.assert_array_equal(part, filtered >= rule.threshold)
    assert active.sum() == sum((x >= rule.threshold).sum() for x in finder.filtered(0, rule.median))


def test_recordings_on_different_grids_are_not_decoded_together():
    with pytest.raises(SettingError, match="on one frame grid"):
        RunFinder([scores_of([1]), scores_of([1], FrameGrid(25))])
    with pytest.raises(SettingError, match="on one frame grid"):
        RunFinder([FrameScores([[1.0]], ["dog"], edges=[0, 1])])


@given(recordings, rules(), st.integers(0, 30))
def test_shifting_the_frames_by_k_shifts_the_events_by_k_hops(values, rule, k):
    # Silence on both sides keeps the events away from the edges, which mirror.
    quiet = [0.0] * 20
    decoding = Decoding(["dog"], [replace(rule, clip_threshold=0.0)])
    events = decode_events(scores_of([*quiet, *values, *quiet]), decoding)
    later = decode_events(scores_of([*[0.0] * k, *quiet, *values, *quiet]), decoding)
    assert [(GRID.index(e.onset), GRID.index(e.offset)) for e in later] == [
        (GRID.index(e.onset) + k, GRID.index(e.offset) + k) for e in events
    ]
    assert all(e.onset == GRID.onset(GRID.index(e.onset)) for e in later)
    assert [e.score for e in later] == pytest.approx([e.score for e in events])


@given(st.lists(values, min_size=1, max_size=40), st.integers(0, 12), values)
def test_median_and_threshold_may_change_places(values, half, threshold):
    scores = np.array(values)
    window = 2 * half + 1
    filtered_first = median_filter(scores, window) >= threshold
    threshold_first = median_filter((scores >= threshold).astype(float), window) >= 0.5
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
        scores = FrameScores(np.array([[0.7]], np.float32), ["dog"], GRID)
        assert decode_events(scores, decoding) == []

    def test_hysteresis_keeps_what_reaches_the_threshold_with_its_flanks(self):
        values = [0.3, 0.6, 0.3, 0.1, 0.3, 0.4, 0.3]
        assert decode(values, 0.5, low_threshold=0.3) == [(0, 3)]
        assert decode(values, 0.5) == [(1, 2)]

    def test_times_are_those_of_the_grid(self):
        grid = FrameGrid(Fraction(32000, 640 * 4))
        (event,) = decode_events(scores_of([0] * 25 + [1, 1], grid), Decoding.uniform(["dog"]))
        assert event == Event(2.0, 2.16, "dog", 1.0)


class TestClipThreshold:
    LABELS = ("dog", "cat")
    DECODING = Decoding.uniform(LABELS, 0.5, clip_threshold=0.3)

    def decode(self, n_frames, clip_scores):
        scores = FrameScores(np.ones((n_frames, 2)), self.LABELS, GRID, clip_scores=clip_scores)
        return decode_events(scores, self.DECODING)

    def test_a_class_whose_clip_level_score_is_below_gives_no_events(self):
        assert [event.label for event in self.decode(4, [0.3, 0.29])] == ["dog"]

    def test_clip_level_scores_per_frame_allow_events_in_a_part(self):
        events = self.decode(6, [[0.1, 0.9]] * 3 + [[0.9, 0.1]] * 3)
        assert [(e.label, e.onset, e.offset) for e in events] == [
            ("cat", 0.0, 0.24),
            ("dog", 0.24, 0.48),
        ]

    def test_a_clip_threshold_without_clip_level_scores_is_an_error(self):
        with pytest.raises(SettingError, match=r"clip_threshold of 0\.3 needs clip-level scores"):
            self.decode(6, None)

    def test_it_is_an_error_too_if_only_some_of_the_recordings_have_none(self):
        with_clip = scores_of([0.9, 0.9], clip_scores=np.full((2, 1), 0.1))
        finder = RunFinder([with_clip, scores_of([0.9, 0.9])])
        with pytest.raises(SettingError, match="needs clip-level scores"):
            finder.find(0, Rule(clip_threshold=0.2))


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
        assert window_frames(frames * HOP, GRID) == expected

    def test_scores_of_no_classes_are_filtered_to_none(self):
        assert median_filter(np.zeros((5, 0)), 3).shape == (5, 0)

    def test_a_window_must_be_odd(self):
        with pytest.raises(SettingError, match="odd"):
            median_filter(np.array([1.0, 0.0]), 2)

    def test_blocks_change_nothing(self, monkeypatch):
        scores = np.random.default_rng(0).random((500, 3))
        whole = median_filter(scores, 9)
        monkeypatch.setattr("earmark.inference.decoding._MEDIAN_BLOCK", 100)
        np.testing.assert_array_equal(median_filter(scores, 9), whole)


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
        (event,) = decode_events(scores_of([0, 0.9, 0.3, 0.6]), decoding)
        assert event.score == pytest.approx(0.6)

    def test_runs_that_touch_both_ends_are_found(self):
        mask = np.array([True, False, True])
        starts, stops = find_runs(mask, mask, 0, 0)
        assert (starts.tolist(), stops.tolist()) == ([0, 2], [1, 3])


class TestDuration:
    def test_the_last_event_is_cut(self):
        (event,) = decode_events(scores_of([1] * 4, duration=0.3), Decoding.uniform(["dog"]))
        assert event.offset == 0.3

    def test_frames_behind_the_end_take_no_part(self):
        scores = scores_of([0, 0, 1, 1, 1], duration=0.16)
        assert decode_events(scores, Decoding.uniform(["dog"])) == []

    def test_a_clip_without_frames_has_no_events(self):
        decoding = Decoding.uniform(["dog"], median=1.0, max_gap=1.0)
        assert decode_events(scores_of([]), decoding) == []
        assert decode_events(scores_of([1] * 3, duration=0.0), decoding) == []


def test_events_come_in_order_of_time_over_all_classes():
    scores = FrameScores([[0, 1], [1, 0], [0, 1], [1, 1]], ["dog", "cat"], GRID)
    events = decode_events(scores, Decoding.uniform(["dog", "cat"]))
    assert events == sorted(events)
    assert len(events) == 4


def test_a_day_of_seventeen_classes_is_decoded_as_its_parts_are():
    """Runs of 100 frames, so that the median and the gaps cross no border between parts."""
    rng = np.random.default_rng(0)
    coarse = rng.random((10_800, 17), dtype=np.float32)
    coarse[::1080] = 0
    scores = np.repeat(coarse, 100, axis=0)
    labels = [f"class {at}" for at in range(17)]
    decoding = Decoding.uniform(
        labels, 0.9, low_threshold=0.5, median=0.5, min_duration=0.3, max_gap=0.3
    )
    events = decode_events(FrameScores(scores, labels, GRID), decoding)
    assert len(events) > 1000
    by_parts = []
    for first in range(0, len(scores), 108_000):
        part = FrameScores(scores[first : first + 108_000], labels, GRID)
        for event in decode_events(part, decoding):
            onset, offset = (GRID.index(time) + first for time in (event.onset, event.offset))
            by_parts.append((GRID.onset(onset), GRID.onset(offset), event.label))
    assert [(e.onset, e.offset, e.label) for e in events] == sorted(by_parts)


class TestSettings:
    def test_a_decoding_survives_json(self):
        decoding = Decoding.uniform(["dog", "Air horn, truck horn"], 0.3, median=0.4)
        decoding = decoding.replaced("dog", threshold=0.7, clip_threshold=0.2)
        assert Decoding.from_dict(json.loads(json.dumps(decoding.to_dict()))) == decoding
        assert hash(decoding) is not None

    def test_one_class_is_replaced_and_no_other(self):
        decoding = Decoding.uniform(["dog", "cat"], 0.5, low_threshold=0.2)
        other = decoding.replaced("cat", min_duration=1.0, threshold=0.6)
        assert other["dog"] == decoding["dog"]
        assert other["cat"] == Rule(0.6, 0.2, 0.0, 1.0, 0.0, 0.0)

    def test_some_classes_are_selected_in_their_order(self):
        decoding = Decoding(["a", "b", "c"], [Rule(0.1 * n, 0.1) for n in (1, 2, 3)])
        some = decoding.select(["c", "a"])
        assert some == Decoding(["c", "a"], [decoding["c"], decoding["a"]])

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"threshold": 0.0}, "0 < low_threshold <= threshold <= 1"),
            ({"threshold": 1.2}, "0 < low_threshold <= threshold <= 1"),
            ({"low_threshold": 0.6}, "low_threshold=0.6 and threshold=0.5"),
            ({"median": -1}, "rule of 'dog' .*median must be .* Got -1"),
            ({"max_gap": float("nan")}, "rule of 'dog' .*max_gap must be .* Got nan"),
            ({"min_duration": "1"}, "rule of 'dog' .*min_duration must be .* Got '1'"),
            ({"clip_threshold": 1.5}, "rule of 'dog' .*clip_threshold must be from 0 to 1"),
            ({"clip_threshold": True}, "rule of 'dog' .*clip_threshold"),
            ({"medain": 1}, "did you mean 'median'"),
        ],
    )
    def test_what_cannot_work_is_an_error_with_class_and_value(self, changes, message):
        with pytest.raises(SettingError, match=message):
            Decoding.uniform(["dog"]).replaced("dog", **changes)

    @pytest.mark.parametrize(
        ("rules", "message"),
        [
            (None, "maps each label to its settings. Got None"),
            (["dog"], "maps each label to its settings"),
            ({"dog": 0.5}, "maps each label to its settings"),
            ({"dog": {"treshold": 0.5}}, "did you mean 'threshold'"),
            ({"dog": {"median": [1, 2]}}, r"rule of 'dog' .*median .* Got \[1, 2\]"),
            ({"dog": {"threshold": 0.2}}, "low_threshold=0.5 and threshold=0.2"),
            ({"": {}}, "labels must name each class once"),
        ],
    )
    def test_a_table_of_settings_is_read_strictly(self, rules, message):
        with pytest.raises(SettingError, match=message):
            Decoding.from_dict(rules)

    def test_a_setting_that_is_not_in_a_table_has_its_default(self):
        assert Decoding.from_dict({"dog": {"median": 0.4}}) == Decoding(["dog"], [Rule(median=0.4)])

    @pytest.mark.parametrize(
        ("labels", "rules", "message"),
        [
            ("d", [Rule()], "labels must be a list"),
            (["a", "a"], [Rule()] * 2, "labels must name each class once"),
            (["a", 1], [Rule()] * 2, "labels must name each class once"),
            (["a"], Rule(), "rules must be a list"),
            (["a"], [Rule()] * 2, "rules must be 1 rules, one per label"),
            (["a"], [0.5], "rules must be 1 rules, one per label"),
        ],
    )
    def test_there_is_one_rule_per_label(self, labels, rules, message):
        with pytest.raises(SettingError, match=message):
            Decoding(labels, rules)

    def test_two_lengths_of_segments_are_one_too_many(self):
        with pytest.raises(SettingError, match="segment must be the same for all classes"):
            Decoding(["dog", "cat"], [Rule(segment=1.0), Rule(segment=2.0)])

    def test_a_repr_shows_the_rule_that_all_classes_share(self):
        assert repr(Rule()) in repr(Decoding.uniform(["dog"]))
        other = Decoding(["dog", "cat"], [Rule(), Rule(median=0.2)])
        assert "2 different rules" in repr(other)

    def test_an_unknown_label_is_an_error_with_the_nearest(self):
        with pytest.raises(SettingError, match="did you mean 'dog'"):
            Decoding.uniform(["dog", "cat"])["dogs"]
        with pytest.raises(SettingError, match="did you mean 'median'"):
            Decoding.uniform(["dog"], medain=0.4)

    def test_scores_of_other_classes_are_refused(self):
        scores = FrameScores(np.zeros((3, 2)), ["dog", "cat"], GRID)
        for labels in (["dog"], ["cat", "dog"]):
            with pytest.raises(SettingError, match="the scores are of dog, cat"):
                decode_events(scores, Decoding.uniform(labels))

    @pytest.mark.parametrize(
        ("score", "clip_score", "message"),
        [
            (1.5, None, "frame-level scores must be probabilities.*pass logits through a sigmoid"),
            (-0.5, None, "frame-level scores must be probabilities from 0 to 1"),
            (0.5, 1.5, "clip-level scores must be probabilities from 0 to 1"),
        ],
    )
    def test_scores_that_are_no_probabilities_are_not_decoded(self, score, clip_score, message):
        clip_scores = None if clip_score is None else [clip_score]
        with pytest.raises(SettingError, match=message):
            decode_events(
                scores_of([score] * 3, clip_scores=clip_scores), Decoding.uniform(["dog"])
            )


def test_a_median_that_no_memory_can_hold_is_refused():
    with pytest.raises(SettingError, match=r"A median of 1e\+09 s has 12,500,000,001 frames"):
        decode_events(scores_of([0.2, 0.9]), Decoding.uniform(["dog"], median=1e9))
