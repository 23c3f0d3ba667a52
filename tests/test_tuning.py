"""Tuning: exact where it says so, never worse than its start, and honest about the rest."""

import json
import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.errors import DataError, SettingError
from earmark.formats.events import Event
from earmark.frames import FrameGrid
from earmark.inference.decoding import Decoding, Rule, decode_events, median_filter, window_frames
from earmark.inference.tuning import OBJECTIVES, SearchGrid, tune_decoding
from earmark.inference.tuning.clips import Clips
from earmark.inference.tuning.line import Line
from earmark.inference.tuning.thresholds import Share
from earmark.metrics import segment_scores

RULER = FrameGrid(12.5)
LABELS = ("cat", "dog", "owl")
BOUNDS = (0.05, 0.95)


def make_clips(n_clips=12, seed=0, dtype=np.float32):
    """Return curves, clip_probs, tags and events of noisy clips of different lengths."""
    rng = np.random.default_rng(seed)
    curves, reference = [], []
    for _ in range(n_clips):
        n_frames = int(rng.integers(20, 126))
        curve = rng.beta(1, 4, (n_frames, len(LABELS)))
        events = []
        for at, label in enumerate(LABELS):
            if rng.random() < 0.5:
                first, stop = sorted(rng.choice(n_frames + 1, 2, replace=False))
                events.append(Event(RULER.onset(int(first)), RULER.onset(int(stop)), label))
                curve[first:stop, at] = rng.beta(3, 2, stop - first)
        curves.append(curve.astype(dtype))
        reference.append(events)
    clip_probs = np.stack([(x**2).sum(0) / x.sum(0) for x in curves])
    tags = [{event.label for event in events} for events in reference]
    return curves, clip_probs, tags, reference


def decoded_scores(clips, decoding, durations=None, resolution=1.0):
    """Score a decoding by the front doors: decode every clip, then count segments."""
    curves, clip_probs, _, reference = clips
    durations = durations or [None] * len(curves)
    estimate = {
        str(at): decode_events(curve, RULER, decoding, clip_probs[at], durations[at])
        for at, curve in enumerate(curves)
    }
    by_file = {str(at): events for at, events in enumerate(reference)}
    return segment_scores(by_file, estimate, LABELS, resolution, empty_as_zero=True)


def whole_seconds(curves):
    """Return durations that cut off frames, and the last one in its middle, on a segment's edge."""
    return [float(math.floor(RULER.onset(len(curve)))) for curve in curves]


def clip_f_measure(peaks, gates, truth, threshold, gate):
    tagged = (peaks >= threshold) & (gates >= gate)
    return 2 * (tagged & truth).sum() / (tagged.sum() + truth.sum())


def peaks_of(curves, at, median=0.0):
    window = window_frames(median, RULER)
    return np.array([median_filter(np.float64(x[:, at : at + 1]), window).max() for x in curves])


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
        scores, truth = np.array([s for s, _ in items]), np.array([t for _, t in items])
        share = Share.of_f_measure(truth)
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

    def test_neighbouring_floats_are_told_apart(self):
        low = 0.5
        high = np.nextafter(low, 1)
        share = Share.of_f_measure(np.array([False, True]))
        threshold = share.best_threshold(np.array([low, high]), BOUNDS)
        assert low < threshold <= high

    def test_items_that_are_never_active_stay_out(self):
        share = Share.of_f_measure(np.array([True, True, False]))
        threshold = share.best_threshold(np.array([-np.inf, 0.6, 0.2]), BOUNDS)
        assert threshold == pytest.approx(0.4)


def share(curves, clip_probs, tags, **choices):
    return tune_decoding(
        curves, clip_probs, RULER, LABELS, tags=tags, shared=True, objective="f_measure", **choices
    )


def overall_f_measure(tags, active):
    truth = np.array([[label in of_clip for of_clip in tags] for label in LABELS])
    return 2 * (truth & active).sum() / (truth.sum() + active.sum())


class TestFromTags:
    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("median", [0.0, 0.4])
    def test_the_threshold_is_the_best_of_all(self, seed, median):
        curves, clip_probs, tags, _ = make_clips(seed=seed)
        start = Decoding.uniform(LABELS, median=median)
        tuned = tune_decoding(curves, clip_probs, RULER, LABELS, tags=tags, start=start)
        for at, label in enumerate(LABELS):
            truth = np.array([label in of_clip for of_clip in tags])
            peaks, gates = peaks_of(curves, at, median), clip_probs[:, at].astype(float)
            ungated = max(
                clip_f_measure(peaks, gates, truth, t, 0.0) for t in brute_thresholds(peaks)
            )
            rule = tuned.decoding.rule(label)
            found = clip_f_measure(peaks, gates, truth, rule.threshold, rule.clip_threshold)
            assert found >= ungated
            assert found == pytest.approx(tuned.classes[label].f_measure)

    @pytest.mark.parametrize("seed", range(5))
    def test_the_gate_is_the_best_of_all_behind_the_threshold_of_the_start(self, seed):
        curves, clip_probs, tags, _ = make_clips(seed=seed)
        start = Decoding.uniform(LABELS, 0.3)
        tuned = tune_decoding(
            curves, clip_probs, RULER, LABELS, tags=tags, start=start, threshold_from="start"
        )
        assert tuned.decoding.threshold == start.threshold
        for at, label in enumerate(LABELS):
            truth = np.array([label in of_clip for of_clip in tags])
            peaks, gates = peaks_of(curves, at), clip_probs[:, at].astype(float)
            best = max(
                clip_f_measure(peaks, gates, truth, 0.3, gate)
                for gate in (0.0, *brute_thresholds(gates))
            )
            assert tuned.classes[label].f_measure == pytest.approx(best)

    @pytest.mark.parametrize("threshold_from", ["tags", "start"])
    def test_the_f1_is_that_of_the_events_that_come_out(self, threshold_from):
        curves, clip_probs, tags, _ = make_clips(30)
        tuned = tune_decoding(
            curves, clip_probs, RULER, LABELS, tags=tags, threshold_from=threshold_from
        )
        found = [
            {event.label for event in decode_events(curve, RULER, tuned.decoding, gate)}
            for curve, gate in zip(curves, clip_probs, strict=True)
        ]
        for label in LABELS:
            n_right = sum(label in f and label in t for f, t in zip(found, tags, strict=True))
            n_both = sum(label in of_clip for of_clip in (*found, *tags))
            assert tuned.classes[label].f_measure == pytest.approx(2 * n_right / n_both)

    @pytest.mark.parametrize("threshold_from", ["tags", "start"])
    @given(st.integers(0, 10**6), st.floats(0.01, 1), st.floats(0, 1), st.sampled_from([0.0, 0.4]))
    @settings(max_examples=25, deadline=None)
    def test_it_is_never_worse_than_its_start(self, threshold_from, seed, threshold, gate, median):
        curves, clip_probs, tags, _ = make_clips(8, seed)
        start = Decoding.uniform(LABELS, threshold, median=median, clip_threshold=gate)
        tuned = tune_decoding(
            curves, clip_probs, RULER, LABELS, tags=tags, start=start, threshold_from=threshold_from
        )
        for report in tuned.classes.values():
            assert math.isnan(report.f_measure) or report.f_measure >= report.start_f_measure

    @pytest.mark.parametrize("seed", range(5))
    def test_the_f1_of_all_classes_is_the_best_of_all_thresholds(self, seed):
        curves, _, tags, _ = make_clips(8, seed)
        open_gates = np.ones((len(curves), len(LABELS)))
        tuned = tune_decoding(curves, open_gates, RULER, LABELS, tags=tags, objective="f_measure")
        truth = np.array([[label in of_clip for of_clip in tags] for label in LABELS])
        assert (truth.any(axis=1) & ~truth.all(axis=1)).all()  # else a class is not tuned
        peaks = [peaks_of(curves, at) for at in range(len(LABELS))]
        best = -np.inf
        for thresholds in product(*map(brute_thresholds, peaks)):
            active = np.array([peak >= t for peak, t in zip(peaks, thresholds, strict=True)])
            best = max(best, 2 * (truth & active).sum() / (truth.sum() + active.sum()))
        assert tuned.score == pytest.approx(best)

    @pytest.mark.parametrize("seed", range(5))
    def test_the_error_rate_is_that_of_the_tags_that_come_out(self, seed):
        curves, clip_probs, tags, _ = make_clips(20, seed)
        tuned = tune_decoding(curves, clip_probs, RULER, LABELS, tags=tags, objective="error_rate")
        n_errors = 0
        for curve, gate, true in zip(curves, clip_probs, tags, strict=True):
            found = {event.label for event in decode_events(curve, RULER, tuned.decoding, gate)}
            n_errors += max(len(found), len(true)) - len(found & true)
        assert tuned.score == pytest.approx(n_errors / sum(map(len, tags)))
        assert tuned.score <= tuned.start_score

    @pytest.mark.parametrize("seed", range(5))
    def test_a_shared_gate_is_the_best_of_all_behind_the_thresholds_of_the_start(self, seed):
        curves, clip_probs, tags, _ = make_clips(8, seed)
        start = Decoding.uniform(LABELS, 0.3, low_threshold=0.15).replaced("owl", threshold=0.7)
        tuned = share(curves, clip_probs, tags, start=start, threshold_from="start")
        assert tuned.decoding.threshold == start.threshold
        assert tuned.decoding.low_threshold == start.low_threshold
        (gate,) = {*tuned.decoding.clip_threshold}
        peaks = np.array([peaks_of(curves, at) for at in range(len(LABELS))])
        asked, gates = np.array(start.threshold)[:, None], clip_probs.T.astype(float)

        def f_measure(gate):
            return overall_f_measure(tags, (peaks >= asked) & (gates >= gate))

        best = max(f_measure(option) for option in (0.0, *brute_thresholds(gates.ravel())))
        assert tuned.score == pytest.approx(best)
        assert tuned.score == pytest.approx(f_measure(gate))

    @pytest.mark.parametrize("seed", range(5))
    def test_a_shared_threshold_is_the_best_of_all(self, seed):
        curves, _, tags, _ = make_clips(8, seed)
        tuned = share(curves, np.ones((len(curves), len(LABELS))), tags)
        (threshold,) = {*tuned.decoding.threshold}
        peaks = np.array([peaks_of(curves, at) for at in range(len(LABELS))])
        best = max(overall_f_measure(tags, peaks >= t) for t in brute_thresholds(peaks.ravel()))
        assert tuned.score == pytest.approx(best)
        assert tuned.score == pytest.approx(overall_f_measure(tags, peaks >= threshold))

    def test_a_shared_start_is_never_made_worse(self):
        curves = [np.full((5, 3), prob) for prob in (0.96, 0.97)]
        start = Decoding.uniform(LABELS, 0.5, clip_threshold=0.965)
        tuned = share(curves, np.array([[0.96] * 3, [0.97] * 3]), [(), LABELS], start=start)
        assert tuned.score == tuned.start_score == 1.0

    def test_without_any_tag_nothing_is_shared(self):
        curves, clip_probs, tags, _ = make_clips()
        with pytest.raises(DataError, match="No clip has a tag"):
            share(curves, clip_probs, [()] * len(tags))

    def test_a_class_that_nothing_tells_of_shares_the_thresholds_of_the_others(self):
        curves, clip_probs, tags, _ = make_clips()
        tags = [of_clip - {"cat"} for of_clip in tags]
        tuned = share(curves, clip_probs, tags)
        assert tuned.decoding.rule("cat") == tuned.decoding.rule("dog")
        assert tuned.classes["cat"].note == "no clip with this tag: thresholds of the others"

    def test_a_class_that_is_hardly_told_apart_keeps_silent_for_the_good_of_all(self):
        rng = np.random.default_rng(0)
        sure, tags = np.repeat([0.9, 0.1], 20), [{"dog"}] * 20 + [set()] * 20
        chance = rng.random(40)
        curves = [np.array([[a, b]]) for a, b in zip(sure, chance, strict=True)]
        for number in range(0, 40, 8):
            tags[number] = tags[number] | {"cat"}
        gates = np.concatenate(curves)
        found = {}
        for objective in ("class_f_measure", "f_measure"):
            tuned = tune_decoding(
                curves, gates, RULER, ["dog", "cat"], tags=tags, objective=objective
            )
            found[objective] = (chance >= tuned.decoding.rule("cat").threshold).sum()
        assert found["f_measure"] < found["class_f_measure"]

    def test_what_tags_cannot_tell_stays_as_it_was(self):
        curves, clip_probs, tags, _ = make_clips()
        start = Decoding.uniform(
            LABELS, 0.5, low_threshold=0.2, median=0.4, min_duration=0.3, max_gap=0.2
        )
        tuned = tune_decoding(curves, clip_probs, RULER, LABELS, tags=tags, start=start).decoding
        for name in ("median", "min_duration", "max_gap"):
            assert getattr(tuned, name) == getattr(start, name)
        assert np.divide(tuned.low_threshold, tuned.threshold) == pytest.approx(0.4)

    def test_a_class_with_no_clip_or_with_all_clips_keeps_its_start_and_says_so(self):
        curves, clip_probs, tags, _ = make_clips()
        tags = [(of_clip - {"cat"}) | {"dog"} for of_clip in tags]
        tuned = tune_decoding(curves, clip_probs, RULER, LABELS, tags=tags)
        assert tuned.decoding.rule("cat") == tuned.decoding.rule("dog") == Rule()
        assert tuned.classes["cat"].note == "no clip with this tag: kept as at the start"
        assert tuned.classes["dog"].note == "no clip without this tag: kept as at the start"
        assert tuned.classes["owl"].note is None

    def test_tags_beyond_the_labels_are_told(self):
        curves, clip_probs, tags, _ = make_clips()
        with pytest.raises(DataError, match="tags of clip 0"):
            tune_decoding(curves, clip_probs, RULER, LABELS, tags=[{"fox"}, *tags[1:]])


class TestFromEvents:
    PLAIN = SearchGrid(median=(0.0,), low_share=(1.0,), max_gap=(0.0,), min_duration=(0.0,))

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("median", [0.0, 0.4])
    def test_the_plain_threshold_is_the_best_of_all(self, seed, median):
        """Against decoding and scoring anew at every threshold."""
        clips = make_clips(6, seed)
        curves, clip_probs, _, reference = clips
        search_grid = SearchGrid((median,), (1.0,), (0.0,), (0.0,))
        tuned = tune_decoding(
            curves,
            clip_probs,
            RULER,
            LABELS,
            reference=reference,
            search_grid=search_grid,
            bounds=(0.2, 0.8),
        )
        edges = np.unique(np.concatenate([[0.2, 0.8], *(x.ravel() for x in curves)]).astype(float))
        edges = edges[(edges >= 0.2) & (edges <= 0.8)][::7]  # all of them would take a minute
        scores = [decoded_scores(clips, Decoding.uniform(LABELS, t, median=median)) for t in edges]
        for label in LABELS:
            if not tuned.classes[label].n_positive:
                continue
            best = max(s.class_wise[label]["f_measure"]["f_measure"] for s in scores)
            assert tuned.classes[label].f_measure >= best - 1e-12

    @pytest.mark.parametrize("gate", [0.0, 0.3])
    @pytest.mark.parametrize("resolution", [1.0, 0.3, 0.05])
    def test_a_plain_rule_finds_a_class_just_where_its_peaks_reach(self, resolution, gate):
        """The sweep over thresholds looks at peaks alone, and never decodes."""
        curves, clip_probs, _, reference = make_clips(8)
        clips = Clips(curves, clip_probs, RULER, Decoding.uniform(LABELS), BOUNDS)
        durations = whole_seconds(curves)
        line = Line(clips, reference, 0.8, durations, resolution)
        assert line.active(0, Rule(0.3, 0.3)).any()
        for median in (0.0, 0.4):
            for threshold in (0.1, 0.3, float(curves[0].max()), 0.6):
                rule = Rule(threshold, threshold, median, clip_threshold=gate)
                for at in range(len(LABELS)):
                    peaks = line.peaks(at, rule)
                    np.testing.assert_array_equal(peaks >= threshold, line.active(at, rule))

    @pytest.mark.parametrize("objective", OBJECTIVES)
    def test_the_score_is_that_of_the_events_that_come_out(self, objective):
        clips = make_clips(20)
        curves, clip_probs, _, reference = clips
        durations = whole_seconds(curves)
        start = Decoding.uniform(LABELS, 0.4, low_threshold=0.2, max_gap=0.3, clip_threshold=0.1)
        tuned = tune_decoding(
            curves,
            clip_probs,
            RULER,
            LABELS,
            reference=reference,
            start=start,
            objective=objective,
            durations=durations,
        )
        for decoding, score in ((tuned.decoding, tuned.score), (start, tuned.start_score)):
            scores = decoded_scores(clips, decoding, durations)
            expected = {
                "class_f_measure": scores.class_wise_average["f_measure"]["f_measure"],
                "f_measure": scores.f_measure,
                "error_rate": scores.error_rate,
            }
            assert score == pytest.approx(expected[objective], abs=1e-12)

    @pytest.mark.parametrize("objective", OBJECTIVES)
    @pytest.mark.parametrize("seed", range(4))
    def test_it_is_never_worse_than_its_start(self, objective, seed):
        curves, clip_probs, _, reference = make_clips(5, seed)
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
        tuned = tune_decoding(
            curves, clip_probs, RULER, LABELS, reference=reference, start=start, objective=objective
        )
        if objective == "error_rate":
            assert tuned.score <= tuned.start_score
        else:
            assert tuned.score >= tuned.start_score

    @pytest.mark.parametrize("objective", OBJECTIVES)
    def test_a_perfect_start_outside_the_bounds_is_kept(self, objective):
        reference = [[Event(0, 2, "cat"), Event(4, 6, "dog")], [Event(2, 4, "owl")]]
        curves = [np.full((125, 3), 0.01) for _ in reference]
        for curve, events in zip(curves, reference, strict=True):
            for event in events:
                span = slice(RULER.index(event.onset), RULER.index(event.offset))
                curve[span, LABELS.index(event.label)] = 0.02
        start = Decoding.uniform(LABELS, 0.015)
        tuned = tune_decoding(
            curves,
            np.full((2, 3), 0.5),
            RULER,
            LABELS,
            reference=reference,
            start=start,
            objective=objective,
        )
        assert tuned.decoding == start
        assert tuned.score == tuned.start_score == (0.0 if objective == "error_rate" else 1.0)
        assert math.copysign(1, tuned.score) == 1, "a perfect error rate is told as 0, not as -0"

    def test_the_overall_objectives_do_not_lose_to_the_class_wise_optimum(self):
        clips = make_clips(12, seed=3)
        curves, clip_probs, _, reference = clips
        arguments = (curves, clip_probs, RULER, LABELS)
        tuned = {
            name: tune_decoding(*arguments, reference=reference, objective=name)
            for name in OBJECTIVES
        }
        own = decoded_scores(clips, tuned["class_f_measure"].decoding)
        assert tuned["f_measure"].score >= own.f_measure - 1e-12
        assert tuned["error_rate"].score <= own.error_rate + 1e-12

    @pytest.mark.parametrize("resolution", [1.0, 0.3, 0.05])
    def test_any_resolution_counts_as_the_metric_does(self, resolution):
        clips = make_clips(5, seed=1)
        curves, clip_probs, _, reference = clips
        tuned = tune_decoding(
            curves, clip_probs, RULER, LABELS, reference=reference, resolution=resolution
        )
        scores = decoded_scores(clips, tuned.decoding, resolution=resolution)
        for label in LABELS:
            if tuned.classes[label].n_positive:
                expected = scores.class_wise[label]["f_measure"]["f_measure"]
                assert tuned.classes[label].f_measure == pytest.approx(expected)

    def test_perfect_curves_are_decoded_perfectly(self):
        _, _, _, reference = make_clips(8)
        curves = []
        for events in reference:
            curve = np.full((126, 3), 0.1)
            for event in events:
                span = slice(RULER.index(event.onset), RULER.index(event.offset))
                curve[span, LABELS.index(event.label)] = 0.3
            curves.append(curve)
        clip_probs = np.stack([curve.max(axis=0) for curve in curves])
        tuned = tune_decoding(curves, clip_probs, RULER, LABELS, reference=reference)
        assert tuned.score == 1.0
        assert all(0.1 < threshold <= 0.3 for threshold in tuned.decoding.threshold)

    def test_a_class_without_events_keeps_its_start_and_says_so(self):
        curves, clip_probs, _, reference = make_clips(6)
        reference = [[e for e in events if e.label != "cat"] for events in reference]
        tuned = tune_decoding(curves, clip_probs, RULER, LABELS, reference=reference)
        assert tuned.decoding.rule("cat") == Rule()
        assert tuned.classes["cat"].note == "no event of this class: kept as at the start"
        assert math.isnan(tuned.classes["cat"].f_measure)

    def test_a_clip_without_frames_is_all_misses(self):
        curves, clip_probs, _, reference = make_clips(6)
        curves[0] = curves[0][:0]
        reference[0] = [Event(0, 3, "dog")]
        tuned = tune_decoding(
            curves, clip_probs, RULER, LABELS, reference=reference, search_grid=self.PLAIN
        )
        assert tuned.classes["dog"].f_measure < 1


class TestArguments:
    def test_a_record_of_it_can_be_kept(self):
        curves, clip_probs, tags, _ = make_clips()
        tuned = tune_decoding(curves, clip_probs, RULER, LABELS, tags=tags)
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
            ({"shared": True, "tags": None, "reference": [[]] * 4}, "Got no tags"),
            ({"bounds": (0.5, 0.5)}, "bounds must be"),
            ({"start": Decoding.uniform(["dog"])}, "start must have the labels"),
            ({"clip_probs": np.zeros((4, 2))}, r"here \(4, 3\). Got the shape \(4, 2\)"),
            ({"curves": [np.zeros((3, 2))] * 4}, r"Curve 0 must be \(frames, 3\)"),
            ({"clip_probs": np.full((4, 3), np.nan)}, "probabilities from 0 to 1"),
        ],
    )
    def test_what_cannot_work_is_told(self, changes, message):
        curves, clip_probs, tags, _ = make_clips(4)
        arguments = {"curves": curves, "clip_probs": clip_probs, "tags": tags} | changes
        with pytest.raises(SettingError, match=message):
            tune_decoding(grid=RULER, labels=LABELS, **arguments)

    @pytest.mark.parametrize(
        ("changes", "error", "message"),
        [
            ({"objective": "f1"}, SettingError, "no objective 'f1'"),
            ({"resolution": 0.0}, SettingError, "resolution must be"),
            ({"reference": [[]] * 4}, DataError, "nothing to tune on"),
            ({"reference": [[Event(0, 1, "fox")]] * 4}, DataError, "events of 'fox'"),
            ({"durations": [1.0]}, SettingError, "durations must have one entry"),
        ],
    )
    def test_what_cannot_work_with_events_is_told(self, changes, error, message):
        curves, clip_probs, _, reference = make_clips(4)
        with pytest.raises(error, match=message):
            tune_decoding(curves, clip_probs, RULER, LABELS, **({"reference": reference} | changes))

    @pytest.mark.parametrize(
        "search_grid", [{"median": ()}, {"max_gap": (-1,)}, {"low_share": (0.0,)}]
    )
    def test_a_grid_must_hold_values_that_can_work(self, search_grid):
        with pytest.raises(SettingError):
            SearchGrid(**search_grid)
