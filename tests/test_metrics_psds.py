"""PSDS: known results, a brute-force twin that tries every threshold, bootstrap, errors."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.errors import DataError, SettingError
from earmark.formats.events import Event
from earmark.formats.scores import ScoreTable
from earmark.metrics.detections import find_detections
from earmark.metrics.event_criteria import IntersectionCriterion
from earmark.metrics.psds import SCENARIO_1, SCENARIO_2, SCENARIOS, count_psds, psds_scores
from earmark.metrics.stacked_scores import stack_scores

LABELS = ["cat", "dog", "owl"]


def test_a_detection_of_which_rounding_leaves_nothing_to_cover_is_a_cross_trigger():
    scores = ScoreTable(["cat", "dog"], {"a": ([0, 0.4, 0.8, 1.2], [[0.9, 0], [0, 0], [0, 0]])})
    stacked = stack_scores({"a": [Event(0.8, 1.2, "dog")]}, scores)
    for decimals, expected in ((0, 1), (6, 0)):
        criterion = IntersectionCriterion(0.5, 0.5, cttc=0.5, decimals=decimals)
        deltas = criterion.count_deltas(stacked)
        assert deltas.values[2, deltas.score >= 0.9].sum() == expected


def test_rates_up_to_100_count_by_default_as_in_the_dcase_challenge():
    """In one hour 50 detections are surer than the right one: half of the rates have it."""
    edges = [*range(102), 3600]
    scores = ScoreTable(["dog"], {"a": (edges, [*[[0.9], [0.0]] * 50, [0.5], [0.0]])})
    reference = {"a": [Event(100, 101, "dog")]}
    assert psds_scores(reference, scores).value == pytest.approx(0.5)
    assert count_psds(reference, scores).scores().value == pytest.approx(0.5)


def test_a_roc_has_one_point_per_rate_the_highest():
    """At 0.8 and at 0.6 there is one false positive: that at 0.7 grows into a detection."""
    edges = [0, 1, 10, 12, 19.5, 20, 22, 3600]
    scores = ScoreTable(["dog"], {"a": (edges, [[x] for x in (0.9, 0, 0.8, 0, 0.7, 0.6, 0)])})
    reference = {"a": [Event(10, 12, "dog"), Event(20, 22, "dog")]}
    roc = psds_scores(reference, scores).class_rocs["dog"]
    assert roc.efpr.tolist() == pytest.approx([0, 1])
    assert roc.tpr.tolist() == [0, 1]


@pytest.mark.parametrize("decimals", [0, 6])
def test_a_relevant_detection_is_no_cross_trigger_however_short_or_covered(decimals):
    scores = ScoreTable(["cat", "dog"], {"a": ([0, 0.4, 0.8], [[0.9, 0], [0, 0]])})
    stacked = stack_scores({"a": [Event(0, 0.4, "cat"), Event(0, 0.4, "dog")]}, scores)
    deltas = IntersectionCriterion(0.5, 0.5, 0.5, decimals).count_deltas(stacked)
    assert deltas.values[2, deltas.score >= 0.9].sum() == 0


def decode(file_scores, column, threshold):
    """Runs of frames at or above a threshold, as (onset, offset)."""
    active = np.concatenate([[False], file_scores.scores[:, column] >= threshold, [False]])
    edges = np.flatnonzero(np.diff(active))
    return [
        (file_scores.edges[a], file_scores.edges[b])
        for a, b in zip(edges[::2], edges[1::2], strict=True)
    ]


def count_at(reference, frame_scores, label, threshold, dtc, gtc, cttc):
    """True positives, false positives and cross triggers of one class, by the definition."""
    column = frame_scores.labels.index(label)
    n_true, n_false, n_crossed = 0, 0, dict.fromkeys(frame_scores.labels, 0)
    for name, events in reference.items():
        found = decode(frame_scores[name], column, threshold)

        def shared(a, b, of, events=events):
            own = [e for e in events if e.label == of]
            return sum(max(0, min(b, e.offset) - max(a, e.onset)) for e in own)

        good = [(a, b) for a, b in found if round(shared(a, b, label) - dtc * (b - a), 9) >= 0]
        n_false += len(found) - len(good)
        for event in events:
            if event.label == label:
                covered = sum(max(0, min(b, event.offset) - max(a, event.onset)) for a, b in good)
                n_true += round(covered - gtc * event.duration, 9) >= 0
        for other in frame_scores.labels:
            for a, b in found:
                if cttc and other != label and (a, b) not in good:
                    n_crossed[other] += round(shared(a, b, other) - cttc * (b - a), 9) >= 0
    return n_true, n_false, n_crossed


def brute_force(reference, frame_scores, *, dtc, gtc, cttc, alpha_ct, alpha_st, max_efpr):
    """PSDS from counts at every threshold, on a fine grid of rates."""
    hours = sum(frame_scores[name].duration for name in reference) / 3600
    seconds = {
        x: sum(e.duration for events in reference.values() for e in events if e.label == x)
        for x in frame_scores.labels
    }
    grid = (np.arange(2000) + 0.5) / 2000 * max_efpr
    heights = []
    for label in frame_scores.labels:
        n_ref = sum(e.label == label for events in reference.values() for e in events)
        column = frame_scores.labels.index(label)
        height = np.zeros(len(grid))
        for threshold in {x for name in reference for x in frame_scores[name].scores[:, column]}:
            true, false, crossed = count_at(
                reference, frame_scores, label, threshold, dtc, gtc, cttc
            )
            others = [crossed[x] / seconds[x] for x in frame_scores.labels if x != label]
            rate = false / hours + alpha_ct * 3600 * (np.mean(others) if others else 0)
            height = np.where(grid >= rate, np.maximum(height, true / n_ref), height)
        heights.append(height)
    joined = np.mean(heights, axis=0) - alpha_st * np.std(heights, axis=0)
    return np.maximum(joined, 0).mean()


@st.composite
def cases(draw):
    reference, frame_scores = {}, {}
    n_frames = draw(st.integers(1, 8))
    for name in "ab":
        level = st.integers(0, 3)
        scores = draw(
            st.lists(st.tuples(level, level, level), min_size=n_frames, max_size=n_frames)
        )
        frame_scores[name] = (np.arange(n_frames + 1) * 30.0, scores)
        reference[name] = []
        for label in LABELS:
            onset = draw(st.integers(0, 8)) * 30.0
            length = draw(st.integers(1, 4)) * 15.0
            reference[name].append(Event(onset, onset + length, label))
    return reference, ScoreTable(LABELS, frame_scores)


@settings(max_examples=60, deadline=None)
@given(cases(), st.sampled_from(sorted(SCENARIOS)))
def test_psds_equals_that_of_trying_every_threshold(case, scenario):
    setting = SCENARIOS[scenario] | {"max_efpr": 200.0}
    assert psds_scores(*case, **setting).value == pytest.approx(
        brute_force(*case, **setting), abs=0.02
    )


@settings(max_examples=100, deadline=None)
@given(cases())
def test_the_detections_are_those_of_all_thresholds_and_each_ends_in_its_parent(case):
    reference, frame_scores = case
    stack = stack_scores(reference, frame_scores)
    for runs in find_detections(stack, np.ones((2, 3), bool)):
        for file, name in enumerate(reference):
            for column in range(3):
                own = (runs.file_index == file) & (runs.class_index == column)
                for threshold in (0, 1, 2, 3):
                    there = own & (runs.upper >= threshold) & (runs.lower < threshold)
                    found = sorted(zip(runs.onset[there], runs.offset[there], strict=True))
                    assert found == decode(frame_scores[name], column, threshold)
        child = runs.parent >= 0
        parent = runs.parent[child]
        assert (runs.lower[~child] == -np.inf).all()
        assert (runs.upper[parent] == runs.lower[child]).all()
        assert (runs.onset[parent] <= runs.onset[child]).all()
        assert (runs.offset[parent] >= runs.offset[child]).all()


def test_long_constant_or_rising_scores_take_no_time_per_frame():
    n_frames = 200_000
    for scores in (np.zeros(n_frames), np.arange(n_frames), np.arange(n_frames) % 2):
        file_scores = (np.arange(n_frames + 1), scores[:, None])
        frame_scores = ScoreTable(["dog"], {"a": file_scores})
        assert (
            psds_scores({"a": [Event(0, n_frames, "dog")]}, frame_scores, dtc=0.5, gtc=0.5).value
            == 1
        )


class TestBootstrap:
    @pytest.fixture
    def counts(self):
        rng = np.random.default_rng(0)
        self.reference = {
            f"{n}.wav": [Event(n % 5, n % 5 + 2, LABELS[n % 3]), Event(6, 8, LABELS[(n + 1) % 3])]
            for n in range(12)
        }
        self.frame_scores = ScoreTable(
            LABELS,
            {n: (np.arange(11.0), rng.normal(0, 1, (10, 3))) for n in self.reference},
        )
        self.setting = SCENARIO_2 | {"max_efpr": 2000.0}
        return count_psds(self.reference, self.frame_scores, **self.setting)

    def test_weights_of_one_give_the_score_itself(self, counts):
        weighted = counts.weighted_scores(np.ones((1, 12)))
        scores = counts.scores()
        assert 0 < scores.value < 1
        assert weighted.overall["psds"]["psds"][0] == pytest.approx(scores.value, abs=1e-12)
        assert counts.weighted_scores().overall["psds"]["psds"][0] == scores.value
        np.testing.assert_allclose(
            weighted.class_wise["psds"]["psds"][0], list(scores.class_wise.values())
        )

    def test_a_bootstrap_sample_has_the_score_of_its_files(self, counts):
        rng = np.random.default_rng(1)
        weights = rng.multinomial(12, np.ones(12) / 12, 5).astype(float)
        weighted = counts.weighted_scores(weights).overall["psds"]["psds"]
        for draw, value in zip(weights, weighted, strict=True):
            names = [
                (name, copy)
                for name, n in zip(self.reference, draw, strict=True)
                for copy in range(int(n))
            ]
            reference = {f"{copy}_{name}": self.reference[name] for name, copy in names}
            frame_scores = {f"{copy}_{name}": self.frame_scores[name] for name, copy in names}
            again = psds_scores(reference, ScoreTable(LABELS, frame_scores), **self.setting)
            assert value == pytest.approx(again.value, abs=1e-12)

    def test_concatenated_counts_are_those_of_all_files(self, counts):
        other = count_psds(
            self.reference,
            ScoreTable(LABELS, {n: (c.edges, -c.scores) for n, c in self.frame_scores.items()}),
            **self.setting,
        )
        both = counts.concatenate(other)
        assert both.files == counts.files + other.files
        weights = np.repeat(np.eye(2), 12, axis=1)
        np.testing.assert_allclose(
            both.weighted_scores(weights).overall["psds"]["psds"],
            [counts.scores().value, other.scores().value],
        )
        with pytest.raises(SettingError, match="same labels and settings"):
            counts.concatenate(count_psds(self.reference, self.frame_scores, **SCENARIO_1))

    def test_a_class_that_is_not_in_the_sample_is_left_out(self, counts):
        reference = {"a": [Event(0, 1, "cat")], "b": [Event(0, 1, "dog")]}
        file_scores = ([0, 1, 2], [[0.9, 0.8], [0.1, 0.2]])
        frame_scores = ScoreTable(["cat", "dog"], {"a": file_scores, "b": file_scores})
        weighted = count_psds(reference, frame_scores, **SCENARIO_1).weighted_scores(
            np.array([[1.0, 0.0]])
        )
        assert weighted.class_wise["psds"]["psds"][0].tolist() == pytest.approx(
            [1.0, np.nan], nan_ok=True
        )
        assert weighted.overall["psds"]["psds"][0] == 1.0


def test_the_default_settings_are_those_of_scenario_1():
    signature = inspect.signature(psds_scores).parameters
    assert {name: signature[name].default for name in SCENARIO_1} == SCENARIO_1
    assert inspect.signature(count_psds).parameters == signature


class TestReference:
    file_scores = ([0, 1, 2, 3600], [[0.9, 0.1], [0.2, 0.1], [0.1, 0.1]])
    frame_scores = ScoreTable(["cat", "dog"], {"a": file_scores, "b": file_scores})

    def test_a_class_without_events_is_nan_and_takes_no_part(self):
        scores = psds_scores({"a.wav": [Event(0, 1, "cat")]}, self.frame_scores, **SCENARIO_2)
        assert scores.value == 1.0
        assert np.isnan(scores.class_wise["dog"])
        assert list(scores.class_rocs) == ["cat"]
        assert scores.unknown_files == ("b",)

    def test_cross_triggers_are_a_mean_over_the_other_classes_that_have_events(self):
        """The cat is detected once in the dog's ten seconds: 1 per hour, and 0.5 * 360 more."""
        scores = np.array([[0.5, 0, 0.9], [0, 0, 0.9], [0.9, 0.9, 0.1], [0, 0, 0.9]])
        file_scores = ([0, 1, 10, 20, 3600], scores)
        frame_scores = ScoreTable(LABELS, {"a": file_scores, "b": file_scores})
        events = [Event(0, 1, "cat"), Event(10, 20, "dog")]
        setting = SCENARIO_2 | {"max_efpr": 400.0, "alpha_st": 0.0}
        found = psds_scores({"a": events}, frame_scores, **setting)
        assert found.class_wise["cat"] == pytest.approx((400 - 181) / 400)
        assert found.class_wise["dog"] == 1
        assert found.value == pytest.approx((1 + 219 / 400) / 2)
        without = psds_scores({"a": events}, frame_scores, labels=["cat", "dog"], **setting)
        assert without.value == found.value
        # with owls in another file it is halved, except in a sample without that file
        counts = count_psds({"a": events, "b": [Event(0, 1, "owl")]}, frame_scores, **setting)
        weighted = counts.weighted_scores(np.array([[1.0, 0.0]])).class_wise["psds"]["psds"]
        assert weighted[0, 0] == pytest.approx(219 / 400)

    def test_nothing_at_all_gives_nan_and_no_warning(self):
        scores = psds_scores({"a.wav": []}, self.frame_scores, **SCENARIO_2)
        assert np.isnan(scores.value)
        assert scores.roc.efpr.tolist() == [0]  # defined from there on, as every ROC
        assert np.isnan(scores.roc.tpr).all()
        assert np.isnan(psds_scores({}, self.frame_scores, **SCENARIO_1).value)
        assert scores.to_dict()["n_files"] == 1

    def test_touching_events_are_merged_and_counted(self):
        parts = [Event(0, 0.5, "cat"), Event(0.5, 1, "cat"), Event(0.2, 0.4, "cat")]
        scores = psds_scores({"a": parts}, self.frame_scores, **SCENARIO_1)
        assert (scores.value, scores.n_merged) == (1.0, 2)

    def test_files_without_scores_raise_with_their_number_and_the_first(self):
        reference = {"a.wav": [], "x.wav": [], "y.wav": []}
        with pytest.raises(
            DataError, match=r"2 of 3 files .* no frame-level scores, the first is 'x.wav'"
        ):
            psds_scores(reference, self.frame_scores, **SCENARIO_1)

    def test_a_label_without_scores_raises(self):
        with pytest.raises(DataError, match="The reference has events of 'cow'"):
            psds_scores({"a": [Event(0, 1, "cow")]}, self.frame_scores, **SCENARIO_1)
        with pytest.raises(SettingError, match="no frame-level scores of the class 'cow'"):
            psds_scores({"a": []}, self.frame_scores, labels=["cow"], **SCENARIO_1)

    def test_colliding_file_names_of_the_reference_raise(self):
        with pytest.raises(DataError, match="the same without their suffix"):
            psds_scores({"a.wav": [], "a.flac": []}, self.frame_scores, **SCENARIO_1)

    def test_labels_choose_and_order_the_classes(self):
        scores = psds_scores(
            {"a": [Event(0, 1, "cat")]}, self.frame_scores, labels=["cat"], **SCENARIO_1
        )
        assert list(scores.class_wise) == ["cat"]

    def test_a_missing_duration_raises(self):
        with pytest.raises(DataError, match=r"1 of 1 files have no entry in durations, .* 'a.wav'"):
            psds_scores({"a.wav": []}, self.frame_scores, durations={"b": 1.0}, **SCENARIO_1)
        with pytest.raises(DataError, match=r"The duration of 'a.wav' is 0.0 s"):
            psds_scores({"a.wav": []}, self.frame_scores, durations={"a": 0.0}, **SCENARIO_1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dtc": 0.0}, "dtc must be a fraction above 0 and up to 1. Got 0.0"),
        ({"gtc": 1.5}, "gtc must be a fraction"),
        ({"cttc": 0.3}, "cttc and alpha_ct must be given together"),
        ({"alpha_ct": 0.5}, "cttc and alpha_ct must be given together"),
        ({"alpha_st": -1.0}, "alpha_st must be a number, 0 or more"),
        ({"max_efpr": 0.0}, "max_efpr must be a number above 0"),
        ({"unit_of_time": "hours"}, "did you mean 'hour'"),
    ],
)
def test_invalid_settings_raise(wrong, message):
    frame_scores = ScoreTable(["dog"], {"a": ([0, 1], [[0.5]])})
    with pytest.raises(SettingError, match=message):
        psds_scores({"a": []}, frame_scores, **SCENARIO_1 | wrong)
