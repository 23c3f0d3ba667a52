"""Tuning: exact where documented, never worse than its start, and changed only for a gain."""

import json
import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.errors import DataError, SettingError
from earmark.formats.events import Event
from earmark.frames import FrameGrid, FrameScores
from earmark.inference.decoding import Decoding, Rule, decode_events, median_filter, window_frames
from earmark.inference.tuning import (
    DEFAULTS,
    OBJECTIVES,
    SearchGrid,
    default_rule,
    tune_decoding,
)
from earmark.inference.tuning.defaults import GENERAL
from earmark.inference.tuning.event_search import SegmentSearch
from earmark.inference.tuning.moves import UNITS, distance, moved
from earmark.inference.tuning.objectives import Share
from earmark.inference.tuning.search import Fractions
from earmark.inference.tuning.tag_search import TagSearch
from earmark.metrics import event_scores, segment_scores

REPO = Path(__file__).parents[1]
GRID = FrameGrid(12.5)
LABELS = ("cat", "dog", "owl")
BOUNDS = (0.05, 0.95)

ONES = FrameScores(np.ones((3, 3)), LABELS, GRID, clip_scores=[1, 1, 1])
NO_CLIP_SCORES = FrameScores(np.ones((3, 3)), LABELS, GRID)
LOGITS = FrameScores(np.full((3, 3), 4.0), LABELS, GRID, clip_scores=[1, 1, 1])
OTHER_LABELS = FrameScores(np.ones((3, 3)), ("cat", "dog", "fox"), GRID, clip_scores=[1, 1, 1])
OTHER_GRID = FrameScores(np.ones((3, 3)), LABELS, FrameGrid(25), clip_scores=[1, 1, 1])


def make_clips(n_clips=12, seed=0, *, whole_seconds=False, same_clip_scores=False):
    """Return scores, tags and events of noisy clips of different lengths.

    Durations in whole seconds leave frames out, and end within one, on the edge of a segment.
    """
    rng = np.random.default_rng(seed)
    scores, reference = [], []
    for _ in range(n_clips):
        n_frames = int(rng.integers(20, 126))
        values = rng.beta(1, 4, (n_frames, len(LABELS)))
        events = []
        for at, label in enumerate(LABELS):
            if rng.random() < 0.5:
                first, stop = sorted(rng.choice(n_frames + 1, 2, replace=False))
                events.append(Event(GRID.onset(int(first)), GRID.onset(int(stop)), label))
                values[first:stop, at] = rng.beta(3, 2, stop - first)
        values = values.astype(np.float32)
        clip_scores = np.ones(3) if same_clip_scores else (values**2).sum(0) / values.sum(0)
        duration = float(math.floor(GRID.onset(n_frames))) if whole_seconds else None
        scores.append(FrameScores(values, LABELS, GRID, duration=duration, clip_scores=clip_scores))
        reference.append(events)
    tags = [{event.label for event in events} for events in reference]
    return scores, tags, reference


def decoded_scores(scores, reference, decoding, resolution=1.0):
    """Score a decoding from outside: decode every clip, then count segments."""
    estimate = {str(at): decode_events(own, decoding) for at, own in enumerate(scores)}
    by_file = {str(at): events for at, events in enumerate(reference)}
    return segment_scores(by_file, estimate, LABELS, resolution, empty_as_zero=True)


def objective_of(scores, reference, decoding, objective):
    """Score a decoding from outside by any objective of events."""
    if objective == "event_f_measure":
        estimate = {str(at): decode_events(own, decoding) for at, own in enumerate(scores)}
        by_file = {str(at): events for at, events in enumerate(reference)}
        return event_scores(by_file, estimate, LABELS, empty_as_zero=True).f_measure
    result = decoded_scores(scores, reference, decoding)
    return {
        "class_f_measure": result.class_wise_average["f_measure"]["f_measure"],
        "f_measure": result.f_measure,
        "error_rate": result.error_rate,
    }[objective]


def search_events(scores, reference, **choices):
    """Return what the search finds, neither drawn towards the start nor cross-validated."""
    return tune_decoding(
        scores, reference=reference, **({"shrinkage": 0.0, "n_folds": 0} | choices)
    )


def clip_f_measure(peaks, clip_scores, reference, threshold, clip_threshold):
    tagged = (peaks >= threshold) & (clip_scores >= clip_threshold)
    return 2 * (tagged & reference).sum() / (tagged.sum() + reference.sum())


def peaks_of(scores, at, median=0.0):
    window = window_frames(median, GRID)
    return np.array([median_filter(np.float64(own.scores[:, at]), window).max() for own in scores])


def clip_scores_of(scores, at):
    return np.array([own.clip_level()[at] for own in scores], dtype=float)


def step_scores(events, n_frames, low, high, clip_scores=None):
    """Return scores that are high within the events and low outside them."""
    values = np.full((n_frames, 3), low)
    for event in events:
        span = slice(GRID.index(event.onset), GRID.index(event.offset))
        values[span, LABELS.index(event.label)] = high
    clip_scores = values.max(axis=0) if clip_scores is None else clip_scores
    return FrameScores(values, LABELS, GRID, clip_scores=clip_scores)


def brute_thresholds(scores):
    """One threshold in each gap between neighbouring scores, and the scores themselves."""
    edges = np.unique(np.clip(np.concatenate([scores, BOUNDS]), *BOUNDS))
    return np.concatenate([edges, (edges[1:] + edges[:-1]) / 2])


class TestBestThreshold:
    @given(
        st.lists(
            st.tuples(st.integers(0, 20).map(lambda n: n / 20), st.booleans()),
            min_size=1,
            max_size=20,
        )
    )
    def test_no_threshold_within_the_bounds_is_better(self, items):
        scores, reference = np.array([s for s, _ in items]), np.array([r for _, r in items])
        share = Share.of_f_measure(reference)
        threshold = share.best_threshold(scores, BOUNDS)
        assert BOUNDS[0] <= threshold <= BOUNDS[1]
        best = max(share.value(scores >= t) for t in np.linspace(0.051, 0.95, 500))
        assert share.value(scores >= threshold) == best

    def test_the_middle_of_the_widest_plateau_is_taken(self):
        share = Share.of_f_measure(np.array([False, True, True]))
        assert share.best_threshold(np.array([0.2, 0.8, 0.9]), BOUNDS) == pytest.approx(0.5)

    def test_of_two_plateaus_the_wider_one_is_taken(self):
        share = Share.of_f_measure(np.array([False, True, False, False, True]))
        scores = np.array([0.2, 0.3, 0.35, 0.4, 0.9])
        assert share.value(scores >= 0.25) == share.value(scores >= 0.65)
        assert share.best_threshold(scores, BOUNDS) == pytest.approx(0.65)

    def test_neighbouring_floats_are_separated(self):
        low = 0.5
        high = np.nextafter(low, 1)
        share = Share.of_f_measure(np.array([False, True]))
        threshold = share.best_threshold(np.array([low, high]), BOUNDS)
        assert low < threshold <= high

    def test_items_that_are_never_active_stay_out(self):
        share = Share.of_f_measure(np.array([True, True, False]))
        threshold = share.best_threshold(np.array([-np.inf, 0.6, 0.2]), BOUNDS)
        assert threshold == pytest.approx(0.4)


def tune_shared(scores, tags, **choices):
    return tune_decoding(scores, tags=tags, shared=True, objective="f_measure", **choices)


def overall_f_measure(tags, active):
    reference = np.array([[label in of_clip for of_clip in tags] for label in LABELS])
    return 2 * (reference & active).sum() / (reference.sum() + active.sum())


class TestFromTags:
    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("median", [0.0, 0.4])
    def test_the_threshold_is_the_best_of_all(self, seed, median):
        scores, tags, _ = make_clips(seed=seed)
        start = Decoding.uniform(LABELS, median=median)
        tuned = tune_decoding(scores, tags=tags, start=start)
        for at, label in enumerate(LABELS):
            reference = np.array([label in of_clip for of_clip in tags])
            peaks, clip_scores = peaks_of(scores, at, median), clip_scores_of(scores, at)
            best = max(
                clip_f_measure(peaks, clip_scores, reference, threshold, 0.0)
                for threshold in brute_thresholds(peaks)
            )
            rule = tuned.decoding[label]
            value = clip_f_measure(
                peaks, clip_scores, reference, rule.threshold, rule.clip_threshold
            )
            assert value >= best
            assert value == pytest.approx(tuned.classes[label].f_measure)

    @pytest.mark.parametrize("seed", range(5))
    def test_the_clip_threshold_is_the_best_of_all_after_the_threshold_of_the_start(self, seed):
        scores, tags, _ = make_clips(seed=seed)
        start = Decoding.uniform(LABELS, 0.3)
        tuned = tune_decoding(scores, tags=tags, start=start, threshold_from="start")
        for at, label in enumerate(LABELS):
            assert tuned.decoding[label].threshold == 0.3
            reference = np.array([label in of_clip for of_clip in tags])
            peaks, clip_scores = peaks_of(scores, at), clip_scores_of(scores, at)
            best = max(
                clip_f_measure(peaks, clip_scores, reference, 0.3, clip_threshold)
                for clip_threshold in (0.0, *brute_thresholds(clip_scores))
            )
            assert tuned.classes[label].f_measure == pytest.approx(best)

    @pytest.mark.parametrize("threshold_from", ["tags", "start"])
    def test_the_f1_is_that_of_the_decoded_events(self, threshold_from):
        scores, tags, _ = make_clips(30)
        tuned = tune_decoding(scores, tags=tags, threshold_from=threshold_from)
        estimate = [{event.label for event in decode_events(x, tuned.decoding)} for x in scores]
        for label in LABELS:
            n_right = sum(label in e and label in t for e, t in zip(estimate, tags, strict=True))
            n_both = sum(label in of_clip for of_clip in (*estimate, *tags))
            assert tuned.classes[label].f_measure == pytest.approx(2 * n_right / n_both)

    @given(
        st.integers(0, 10**6),
        st.floats(0.01, 1),
        st.floats(0, 1),
        st.sampled_from([0.0, 0.24, 0.4]),
        st.sampled_from([0.3, 1.0]),
    )
    @settings(max_examples=50, deadline=None)
    def test_a_clip_is_active_where_its_peak_and_its_clip_level_score_reach_their_thresholds(
        self, seed, threshold, clip_threshold, median, low_ratio
    ):
        """The decoder decides; peaks, of which thresholds are taken, must decide alike."""
        scores, tags, _ = make_clips(6, seed)
        scores[2] = FrameScores(np.zeros((0, 3)), LABELS, GRID, clip_scores=[1, 1, 1])
        rule = Rule(threshold, threshold * low_ratio, median, 0.5, 0.3, clip_threshold)
        start = Decoding(LABELS, [rule] * 3)
        search = TagSearch(
            scores, tags, start, "class_f_measure", BOUNDS, tune_frames=True, shared=False
        )
        for at in range(len(LABELS)):
            for tried in (rule, replace(rule, threshold=threshold * low_ratio)):
                peaks = search.peaks[at] >= tried.threshold
                passed = clip_scores_of(scores, at) >= tried.clip_threshold
                np.testing.assert_array_equal(search.estimate_of(at, tried), peaks & passed)

    @pytest.mark.parametrize("threshold_from", ["tags", "start"])
    @given(st.integers(0, 10**6), st.floats(0.01, 1), st.floats(0, 1), st.sampled_from([0.0, 0.4]))
    @settings(max_examples=25, deadline=None)
    def test_it_is_never_worse_than_its_start(
        self, threshold_from, seed, threshold, clip_threshold, median
    ):
        scores, tags, _ = make_clips(8, seed)
        start = Decoding.uniform(LABELS, threshold, median=median, clip_threshold=clip_threshold)
        tuned = tune_decoding(scores, tags=tags, start=start, threshold_from=threshold_from)
        for report in tuned.classes.values():
            assert math.isnan(report.f_measure) or report.f_measure >= report.start_f_measure

    @pytest.mark.parametrize("seed", range(5))
    def test_the_f1_of_all_classes_is_the_best_of_all_thresholds(self, seed):
        scores, tags, _ = make_clips(8, seed, same_clip_scores=True)
        tuned = tune_decoding(scores, tags=tags, objective="f_measure")
        reference = np.array([[label in of_clip for of_clip in tags] for label in LABELS])
        assert (reference.any(axis=1) & ~reference.all(axis=1)).all()  # else a class is not tuned
        peaks = [peaks_of(scores, at) for at in range(len(LABELS))]
        best = -np.inf
        for thresholds in product(*map(brute_thresholds, peaks)):
            active = np.array([peak >= t for peak, t in zip(peaks, thresholds, strict=True)])
            best = max(best, 2 * (reference & active).sum() / (reference.sum() + active.sum()))
        assert tuned.score == pytest.approx(best)

    @pytest.mark.parametrize("seed", range(5))
    def test_the_error_rate_is_that_of_the_decoded_tags(self, seed):
        scores, tags, _ = make_clips(20, seed)
        tuned = tune_decoding(scores, tags=tags, objective="error_rate")
        n_errors = 0
        for own, reference in zip(scores, tags, strict=True):
            estimate = {event.label for event in decode_events(own, tuned.decoding)}
            n_errors += max(len(estimate), len(reference)) - len(estimate & reference)
        assert tuned.score == pytest.approx(n_errors / sum(map(len, tags)))
        assert tuned.score <= tuned.start_score

    @pytest.mark.parametrize("seed", range(5))
    def test_a_shared_clip_threshold_is_the_best_of_all_after_the_thresholds_of_the_start(
        self, seed
    ):
        scores, tags, _ = make_clips(8, seed)
        start = Decoding.uniform(LABELS, 0.3, low_threshold=0.15).replaced("owl", threshold=0.7)
        tuned = tune_shared(scores, tags, start=start, threshold_from="start")
        (clip_threshold,) = {rule.clip_threshold for rule in tuned.decoding.rules}
        assert tuned.decoding.rules == tuple(
            replace(rule, clip_threshold=clip_threshold) for rule in start.rules
        )
        peaks = np.array([peaks_of(scores, at) for at in range(len(LABELS))])
        clip_scores = np.array([clip_scores_of(scores, at) for at in range(len(LABELS))])
        thresholds = np.array([rule.threshold for rule in start.rules])[:, None]

        def f_measure(clip_threshold):
            active = (peaks >= thresholds) & (clip_scores >= clip_threshold)
            return overall_f_measure(tags, active)

        best = max(f_measure(option) for option in (0.0, *brute_thresholds(clip_scores.ravel())))
        assert tuned.score == pytest.approx(best)
        assert tuned.score == pytest.approx(f_measure(clip_threshold))

    @pytest.mark.parametrize("seed", range(5))
    def test_a_shared_threshold_is_the_best_of_all(self, seed):
        scores, tags, _ = make_clips(8, seed, same_clip_scores=True)
        tuned = tune_shared(scores, tags)
        (threshold,) = {rule.threshold for rule in tuned.decoding.rules}
        peaks = np.array([peaks_of(scores, at) for at in range(len(LABELS))])
        best = max(overall_f_measure(tags, peaks >= t) for t in brute_thresholds(peaks.ravel()))
        assert tuned.score == pytest.approx(best)
        assert tuned.score == pytest.approx(overall_f_measure(tags, peaks >= threshold))

    def test_a_shared_start_is_never_made_worse(self):
        scores = [
            FrameScores(np.full((5, 3), prob), LABELS, GRID, clip_scores=[prob] * 3)
            for prob in (0.96, 0.97)
        ]
        start = Decoding.uniform(LABELS, 0.5, clip_threshold=0.965)
        tuned = tune_shared(scores, [(), LABELS], start=start)
        assert tuned.score == tuned.start_score == 1.0

    def test_without_any_tag_nothing_is_shared(self):
        scores, tags, _ = make_clips()
        with pytest.raises(DataError, match="No clip has a tag"):
            tune_shared(scores, [()] * len(tags))

    def test_a_class_without_tags_shares_the_thresholds_of_the_others(self):
        scores, tags, _ = make_clips()
        tags = [of_clip - {"cat"} for of_clip in tags]
        tuned = tune_shared(scores, tags)
        assert tuned.decoding["cat"] == tuned.decoding["dog"]
        assert tuned.classes["cat"].note == "no clip with this tag: thresholds of the others"

    def test_a_class_that_is_hardly_recognised_is_detected_less_for_the_f1_of_all(self):
        rng = np.random.default_rng(0)
        sure, tags = np.repeat([0.9, 0.1], 20), [{"dog"}] * 20 + [set()] * 20
        chance = rng.random(40)
        scores = [
            FrameScores([pair], ["dog", "cat"], GRID, clip_scores=pair)
            for pair in zip(sure, chance, strict=True)
        ]
        for number in range(0, 40, 8):
            tags[number] = tags[number] | {"cat"}
        n_active = {}
        for objective in ("class_f_measure", "f_measure"):
            tuned = tune_decoding(scores, tags=tags, objective=objective)
            n_active[objective] = (chance >= tuned.decoding["cat"].threshold).sum()
        assert n_active["f_measure"] < n_active["class_f_measure"]

    def test_what_cannot_be_learned_from_tags_stays_as_it_was(self):
        scores, tags, _ = make_clips()
        start = Decoding.uniform(
            LABELS, 0.5, low_threshold=0.2, median=0.4, min_duration=0.3, max_gap=0.2
        )
        for rule in tune_decoding(scores, tags=tags, start=start).decoding.rules:
            assert (rule.median, rule.min_duration, rule.max_gap) == (0.4, 0.3, 0.2)
            assert rule.low_threshold / rule.threshold == pytest.approx(0.4)

    def test_a_class_with_no_clip_or_with_all_clips_keeps_its_start_and_a_note(self):
        scores, tags, _ = make_clips()
        tags = [(of_clip - {"cat"}) | {"dog"} for of_clip in tags]
        tuned = tune_decoding(scores, tags=tags)
        assert tuned.decoding["cat"] == tuned.decoding["dog"] == Rule()
        assert tuned.classes["cat"].note == "no clip with this tag: kept as at the start"
        assert tuned.classes["dog"].note == "no clip without this tag: kept as at the start"
        assert tuned.classes["owl"].note is None

    def test_tags_beyond_the_labels_are_refused(self):
        scores, tags, _ = make_clips()
        with pytest.raises(DataError, match="tags of clip 0"):
            tune_decoding(scores, tags=[{"fox"}, *tags[1:]])


class TestFromEvents:
    PLAIN = SearchGrid(median=(0.0,), low_ratio=(1.0,), max_gap=(0.0,), min_duration=(0.0,))

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("median", [0.0, 0.4])
    def test_the_plain_threshold_is_the_best_of_all(self, seed, median):
        """Against decoding and scoring anew at every threshold."""
        scores, _, reference = make_clips(6, seed)
        search_grid = SearchGrid((median,), (1.0,), (0.0,), (0.0,))
        tuned = search_events(scores, reference, search_grid=search_grid, bounds=(0.2, 0.8))
        edges = np.concatenate([[0.2, 0.8], *(own.scores.ravel() for own in scores)])
        edges = np.unique(edges.astype(float))
        edges = edges[(edges >= 0.2) & (edges <= 0.8)][::7]  # all of them would take a minute
        tried = [
            decoded_scores(scores, reference, Decoding.uniform(LABELS, edge, median=median))
            for edge in edges
        ]
        for label in LABELS:
            if not tuned.classes[label].n_positive:
                continue
            best = max(each.class_wise[label]["f_measure"]["f_measure"] for each in tried)
            assert tuned.classes[label].f_measure >= best - 1e-12

    @pytest.mark.parametrize("clip_threshold", [0.0, 0.3])
    @pytest.mark.parametrize("resolution", [1.0, 0.3, 0.05])
    def test_a_plain_rule_finds_a_class_just_where_its_peaks_reach(
        self, resolution, clip_threshold
    ):
        """The sweep over thresholds looks at peaks alone, and never decodes."""
        scores, _, reference = make_clips(8, whole_seconds=True)
        search = SegmentSearch(
            scores,
            reference,
            Decoding.uniform(LABELS),
            "class_f_measure",
            BOUNDS,
            SearchGrid(),
            resolution,
            0.0,
        )
        assert search.estimate_of(0, Rule(0.3, 0.3)).any()
        for median in (0.0, 0.4):
            for threshold in (0.1, 0.3, float(scores[0].scores.max()), 0.6):
                rule = Rule(threshold, threshold, median, clip_threshold=clip_threshold)
                for at in range(len(LABELS)):
                    peaks = search.peaks(at, rule)
                    np.testing.assert_array_equal(peaks >= threshold, search.estimate_of(at, rule))

    @pytest.mark.parametrize("objective", OBJECTIVES)
    def test_the_score_is_that_of_the_decoded_events(self, objective):
        scores, _, reference = make_clips(20, whole_seconds=True)
        start = Decoding.uniform(LABELS, 0.4, low_threshold=0.2, max_gap=0.3, clip_threshold=0.1)
        tuned = search_events(scores, reference, start=start, objective=objective)
        for decoding, score in ((tuned.decoding, tuned.score), (start, tuned.start_score)):
            expected = objective_of(scores, reference, decoding, objective)
            assert score == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize("objective", OBJECTIVES)
    @pytest.mark.parametrize("seed", range(4))
    def test_it_is_never_worse_than_its_start(self, objective, seed):
        scores, _, reference = make_clips(5, seed)
        rng = np.random.default_rng(seed)
        high, low = rng.uniform(0.01, 1), rng.uniform(0.3, 1)
        start = Decoding.uniform(
            LABELS,
            high,
            low_threshold=high * low,
            median=float(rng.choice([0, 0.3])),
            max_gap=float(rng.choice([0, 1.5])),
            min_duration=float(rng.choice([0, 0.3])),
            clip_threshold=float(rng.choice([0, 0.3])),
        )
        tuned = search_events(scores, reference, start=start, objective=objective)
        if objective == "error_rate":
            assert tuned.score <= tuned.start_score
        else:
            assert tuned.score >= tuned.start_score

    @pytest.mark.parametrize("objective", OBJECTIVES)
    def test_a_perfect_start_outside_the_bounds_is_kept(self, objective):
        reference = [[Event(0, 2, "cat"), Event(4, 6, "dog")], [Event(2, 4, "owl")]]
        scores = [step_scores(events, 125, 0.01, 0.02, [0.5] * 3) for events in reference]
        start = Decoding.uniform(LABELS, 0.015)
        tuned = search_events(scores, reference, start=start, objective=objective)
        assert tuned.decoding == start
        assert tuned.score == tuned.start_score == (0.0 if objective == "error_rate" else 1.0)
        assert math.copysign(1, tuned.score) == 1, "a perfect error rate is 0, not -0"

    def test_the_overall_objectives_do_not_lose_to_the_class_wise_optimum(self):
        scores, _, reference = make_clips(12, seed=3)
        tuned = {name: search_events(scores, reference, objective=name) for name in OBJECTIVES}
        own = decoded_scores(scores, reference, tuned["class_f_measure"].decoding)
        assert tuned["f_measure"].score >= own.f_measure - 1e-12
        assert tuned["error_rate"].score <= own.error_rate + 1e-12

    @pytest.mark.parametrize("resolution", [1.0, 0.3, 0.05])
    def test_any_resolution_counts_as_the_metric_does(self, resolution):
        scores, _, reference = make_clips(5, seed=1)
        tuned = search_events(scores, reference, resolution=resolution)
        result = decoded_scores(scores, reference, tuned.decoding, resolution)
        for label in LABELS:
            if tuned.classes[label].n_positive:
                expected = result.class_wise[label]["f_measure"]["f_measure"]
                assert tuned.classes[label].f_measure == pytest.approx(expected)

    def test_perfect_scores_are_decoded_perfectly(self):
        _, _, reference = make_clips(8)
        scores = [step_scores(events, 126, 0.1, 0.3) for events in reference]
        tuned = search_events(scores, reference)
        assert tuned.score == 1.0
        assert all(0.1 < rule.threshold <= 0.3 for rule in tuned.decoding.rules)

    def test_a_class_without_events_changes_only_as_the_others_and_has_a_note(self):
        scores, _, reference = make_clips(6)
        reference = [[e for e in events if e.label != "cat"] for events in reference]
        tuned = search_events(scores, reference)
        assert tuned.classes["cat"].note == "no event of this class: changed as the others"
        kept = search_events(scores, reference, shrinkage=1e6)
        assert kept.decoding["cat"] == Rule()
        assert kept.classes["cat"].note == "no event of this class: kept as at the start"
        assert math.isnan(tuned.classes["cat"].f_measure)

    def test_a_clip_without_frames_is_all_misses(self):
        scores, _, reference = make_clips(6)
        scores[0] = FrameScores(np.zeros((0, 3)), LABELS, GRID, clip_scores=[1, 1, 1])
        reference[0] = [Event(0, 3, "dog")]
        tuned = search_events(scores, reference, search_grid=self.PLAIN)
        assert tuned.classes["dog"].f_measure < 1

    def test_clips_without_any_frame_are_all_misses(self):
        empty = FrameScores(np.zeros((0, 3)), LABELS, GRID, clip_scores=[1, 1, 1])
        tuned = search_events([empty] * 2, [[Event(0, 3, "dog")]] * 2)
        assert tuned.score == tuned.start_score == 0


def shifted_clips(n_clips, seed=0, low=0.05, high=0.3):
    """Return clips whose events a threshold of 0.5 misses, all classes alike, and one of 0.2 finds.

    Scores vary a little from clip to clip, so that no two are the same.
    """
    rng = np.random.default_rng(seed)
    reference = make_clips(n_clips, seed)[2]
    scores = [step_scores(events, 126, low, high * rng.uniform(0.9, 1.1)) for events in reference]
    return scores, reference


def noise_clips(n_clips, seed=0):
    """Return scores that know nothing of the events."""
    reference = make_clips(n_clips, seed)[2]
    rng = np.random.default_rng(seed)
    scores = []
    for _ in reference:
        values = rng.beta(1, 1, (126, 3))
        scores.append(FrameScores(values, LABELS, GRID, clip_scores=rng.beta(1, 1, 3)))
    return scores, reference


class TestShrinkage:
    @pytest.mark.parametrize("objective", OBJECTIVES)
    def test_a_rule_that_is_drawn_strongly_stays_at_the_start(self, objective):
        scores, _, reference = make_clips(8)
        start = Decoding.uniform(LABELS, 0.4, low_threshold=0.2, max_gap=0.3, clip_threshold=0.1)
        tuned = search_events(scores, reference, start=start, objective=objective, shrinkage=1e6)
        assert tuned.decoding == start

    def test_the_more_it_is_drawn_the_less_it_gains_on_its_own_clips(self):
        scores, _, reference = make_clips(12, seed=3)
        tuned = [search_events(scores, reference, shrinkage=x) for x in (0.0, 1.0, 1000.0)]
        assert tuned[0].score >= tuned[1].score >= tuned[2].score == tuned[2].start_score
        away = [sum(distance(rule, Rule()) for rule in each.decoding.rules) for each in tuned]
        assert away[0] > away[1] > away[2] == 0

    def test_more_clips_outweigh_the_same_shrinkage(self):
        """Each clip three times: the objective of every rule is the same, the evidence is not."""
        scores, _, reference = make_clips(4, seed=1)
        few = search_events(scores, reference, shrinkage=2.0)
        many = search_events(scores * 30, reference * 30, shrinkage=2.0)
        assert few.start_score == pytest.approx(many.start_score)
        assert many.score > few.score

    def test_what_classes_have_in_common_is_learned_for_a_class_without_events(self):
        scores, reference = shifted_clips(8)
        reference = [[event for event in events if event.label != "owl"] for events in reference]
        tuned = search_events(scores, reference, shrinkage=1.0)
        assert tuned.decoding["owl"].threshold < 0.27

    def test_distances_are_those_between_settings_in_units(self):
        rule = Rule(0.4, 0.2, 0.3, 0.3, 0.3, 0.1)
        assert distance(rule, rule) == 0
        for name, unit in UNITS.items():
            other = replace(rule, **{name: getattr(rule, name) + 2 * unit})
            assert distance(rule, other) == distance(other, rule) == pytest.approx(2)
        doubled_odds = replace(rule, clip_threshold=2 / 11)  # 1 to 9 -> 2 to 9
        assert distance(rule, doubled_odds) == pytest.approx(math.log(2))
        assert distance(rule, replace(rule, low_threshold=0.1)) == pytest.approx(math.log(2))

    @given(st.floats(0.01, 1), st.floats(0, 1), st.sampled_from([-2.0, -0.25, 1.0]))
    def test_a_shift_stays_within_the_bounds_and_keeps_the_ratio_of_the_low_threshold(
        self, threshold, clip_threshold, shift
    ):
        rule = Rule(threshold, threshold / 2, clip_threshold=clip_threshold)
        after = moved(rule, "threshold", shift, BOUNDS)
        assert BOUNDS[0] <= after.threshold <= BOUNDS[1]
        assert after.low_threshold == pytest.approx(after.threshold / 2)
        after = moved(rule, "clip_threshold", shift, BOUNDS)
        assert BOUNDS[0] <= after.clip_threshold <= BOUNDS[1]
        assert moved(after, "clip_threshold", -math.inf, BOUNDS).clip_threshold == 0


class TestCrossValidation:
    @pytest.mark.parametrize("objective", OBJECTIVES)
    def test_a_gain_that_holds_on_other_clips_is_taken(self, objective):
        scores, reference = shifted_clips(12)
        tuned = tune_decoding(scores, reference=reference, objective=objective)
        tested = tuned.cross_validation
        assert tuned.is_adopted
        assert tuned.score == tested.in_sample_score
        assert tested.gain == pytest.approx(abs(tested.score - tuned.start_score))
        assert tested.gain > 0.9

    @pytest.mark.parametrize("objective", OBJECTIVES)
    def test_nothing_changes_where_scores_know_nothing(self, objective):
        scores, reference = noise_clips(8)
        # Without knowledge the error rate is best with no event at all: there it starts.
        threshold = 0.95 if objective == "error_rate" else 0.5
        start = Decoding.uniform(LABELS, threshold, median=0.4, max_gap=0.4)
        grid = SearchGrid((0.0, 0.4), (1.0, 0.5), (0.0, 0.4), (0.0, 0.4))
        choices = {"start": start, "objective": objective, "search_grid": grid, "shrinkage": 0.0}
        tuned = tune_decoding(scores, reference=reference, **choices)
        found = search_events(scores, reference, **choices)
        assert found.decoding != start, "there is something to overfit to"
        assert tuned.cross_validation.in_sample_score == found.score
        assert not tuned.is_adopted
        assert tuned.decoding == start
        assert tuned.score == tuned.start_score

    @pytest.mark.parametrize("objective", OBJECTIVES)
    def test_the_score_is_that_of_clips_that_were_not_tuned_on(self, objective):
        """Against tuning without each group of clips, and decoding that group with the result."""
        scores, _, reference = make_clips(6, seed=4)
        groups = ["a", "b", "a", "c", "c", "b"]
        choices = {"objective": objective, "search_grid": TestFromEvents.PLAIN, "shrinkage": 1.0}
        tuned = tune_decoding(scores, reference=reference, n_folds=3, groups=groups, **choices)
        events = {}
        for group in "abc":
            rows = [row for row, own in enumerate(groups) if own != group]
            found = search_events(
                [scores[i] for i in rows], [reference[i] for i in rows], **choices
            )
            for row in set(range(6)) - set(rows):
                events[str(row)] = decode_events(scores[row], found.decoding)
        by_file = {str(at): own for at, own in enumerate(reference)}
        score = event_scores if objective == "event_f_measure" else segment_scores
        result = score(by_file, events, LABELS, empty_as_zero=True)
        expected = {
            "class_f_measure": result.class_wise_average["f_measure"]["f_measure"],
            "error_rate": result.error_rate,
        }.get(objective, result.f_measure)
        assert tuned.cross_validation.score == pytest.approx(expected)
        assert tuned.cross_validation.n_folds == 3

    def test_the_standard_error_is_that_of_leaving_clips_out(self):
        rng = np.random.default_rng(0)
        gain, cost = rng.integers(0, 3, (7, 2)) * 1.0, rng.integers(3, 6, (7, 2)) * 1.0
        groups = np.array([0, 1, 1, 2, 3, 3, 0])
        without = Fractions(gain, cost).without_each(groups, 4)
        for group in range(4):
            kept = groups != group
            expected = (gain[kept].sum(axis=0) / cost[kept].sum(axis=0)).mean()
            assert without[group] == pytest.approx(expected)

    def test_tags_may_be_cross_validated_too(self):
        scores, tags, _ = make_clips(12)
        plain = tune_decoding(scores, tags=tags)
        assert plain.cross_validation is None
        tested = tune_decoding(scores, tags=tags, n_folds=4).cross_validation
        assert tested.n_folds == 4
        assert tested.in_sample_score == plain.score

    def test_clips_without_events_are_a_fold_like_any_other(self):
        scores, reference = shifted_clips(2)
        tuned = tune_decoding(scores, reference=[reference[0], []])
        assert tuned.cross_validation.n_folds == 2


class TestArguments:
    def test_a_result_survives_json(self):
        scores, tags, _ = make_clips()
        tuned = tune_decoding(scores, tags=tags)
        record = json.loads(json.dumps(tuned.to_dict()))
        assert Decoding.from_dict(record["decoding"]) == tuned.decoding
        assert record["supervision"] == "weak"
        assert set(record["classes"]) == set(LABELS)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"tags": None}, "either tags=... .* or reference=..."),
            ({"reference": [[]] * 4}, "either tags=... .* or reference=..."),
            ({"tags": [set()] * 3}, "one entry for each of 4 clips. Got 3"),
            ({"threshold_from": "tag"}, "did you mean 'tags'"),
            ({"shared": True}, "Got objective='class_f_measure'"),
            ({"objective": "event_f_measure"}, "needs the events of the clips"),
            ({"n_folds": 1}, "n_folds must be 2 or more"),
            ({"n_folds": 2, "groups": ["a"] * 4}, "clips of two groups or more"),
            ({"groups": ["a"]}, "groups must have one entry for each of 4 clips"),
            ({"shared": True, "tags": None, "reference": [[]] * 4}, "Got no tags"),
            ({"bounds": (0.5, 0.5)}, "bounds must be"),
            ({"start": Decoding.uniform(["dog"])}, "Clip 0 has scores of cat, dog, owl; .* of dog"),
            ({"scores": []}, "one clip or more"),
            ({"scores": [ONES, OTHER_LABELS, ONES, ONES]}, "Clip 1 has scores of cat, dog, fox"),
            ({"scores": [NO_CLIP_SCORES] * 4}, "without clip-level scores"),
            ({"scores": [LOGITS] * 4}, "probabilities from 0 to 1"),
            ({"scores": [ONES, ONES, ONES, OTHER_GRID]}, "on one frame grid"),
        ],
    )
    def test_what_cannot_work_is_an_error(self, changes, message):
        scores, tags, _ = make_clips(4)
        with pytest.raises(SettingError, match=message):
            tune_decoding(**({"scores": scores, "tags": tags} | changes))

    @pytest.mark.parametrize(
        ("changes", "error", "message"),
        [
            ({"objective": "f1"}, SettingError, "no objective 'f1'"),
            ({"resolution": 0.0}, SettingError, "resolution must be"),
            ({"shrinkage": -1.0}, SettingError, "shrinkage must be"),
            ({"reference": [[]] * 3}, SettingError, "reference must have one entry"),
            ({"reference": [[]] * 4}, DataError, "nothing to tune on"),
            ({"reference": [[Event(0, 1, "fox")]] * 4}, DataError, "events of 'fox'"),
        ],
    )
    def test_what_cannot_work_with_events_is_an_error(self, changes, error, message):
        scores, _, reference = make_clips(4)
        with pytest.raises(error, match=message):
            tune_decoding(scores, **({"reference": reference} | changes))

    @pytest.mark.parametrize(
        "search_grid", [{"median": ()}, {"max_gap": (-1,)}, {"low_ratio": (0.0,)}]
    )
    def test_a_search_grid_must_hold_values_that_can_work(self, search_grid):
        with pytest.raises(SettingError):
            SearchGrid(**search_grid)


def test_the_default_rules_are_the_measured_ones():
    measured = json.loads((REPO / "benchmarks" / "results" / "decoding.json").read_text())
    names = {pooling: f"{pooling}, single" for pooling in ("linear", "exp", "attention")}
    names |= {"auto": "autopool", "average": "average"}  # max learned nothing to choose by
    assert {pooling: dict(rule) for pooling, rule in DEFAULTS.items()} == {
        pooling: measured[name]["rule"] for pooling, name in names.items()
    }
    assert default_rule("noisy-or") == GENERAL
