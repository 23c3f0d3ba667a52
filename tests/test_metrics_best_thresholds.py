"""Best thresholds: each reaches its score, and no threshold tried one by one is better."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.errors import DataError, SettingError
from earmark.formats.events import Event, read_events
from earmark.formats.scores import ScoreTable
from earmark.metrics.best_thresholds import (
    CollarCriterion,
    IntersectionCriterion,
    SegmentCriterion,
    best_scores,
    count_thresholds,
)
from earmark.metrics.count_deltas import CountDeltas
from earmark.metrics.event import event_scores
from earmark.metrics.operating_points import OperatingPoints, threshold_between
from earmark.metrics.segment import segment_scores
from earmark.metrics.stacked_scores import stack_scores

LABELS = ["cat", "dog", "owl"]
CRITERIA = [
    SegmentCriterion(1.0),
    SegmentCriterion(0.5),
    CollarCriterion(0.5, 0.5, 0.5),
    CollarCriterion(2.0, 2.0, 0.0),
]


def decode(frame_scores, thresholds):
    """Plain thresholds: runs of frames at or above that of their class."""
    estimate = {}
    for name, file_scores in frame_scores.items():
        estimate[name] = []
        for column, label in enumerate(frame_scores.labels):
            active = file_scores.scores[:, column] >= thresholds[label]
            edges = np.flatnonzero(np.diff(np.concatenate([[False], active, [False]])))
            for a, b in zip(edges[::2], edges[1::2], strict=True):
                estimate[name].append(Event(file_scores.edges[a], file_scores.edges[b], label))
    return estimate


def score(reference, frame_scores, criterion, thresholds):
    """(F-measure, error rate) overall and class-wise, by our other scorers."""
    estimate = decode(frame_scores, thresholds)
    if isinstance(criterion, SegmentCriterion):
        scores = segment_scores(reference, estimate, frame_scores.labels, criterion.resolution)
    else:
        scores = event_scores(
            reference,
            estimate,
            frame_scores.labels,
            onset_collar=criterion.onset_collar,
            offset_collar=criterion.offset_collar,
            percentage_of_length=criterion.percentage_of_length,
        )
    figures = {None: scores.overall} | scores.class_wise
    # A wrong class of an event is two errors in best_scores and one substitution in event_scores.
    twice = 0 if isinstance(criterion, SegmentCriterion) else 1
    return {
        at: (
            np.nan_to_num(own["f_measure"]["f_measure"]),
            own["error_rate"]["error_rate"] + twice * own["error_rate"].get("substitution_rate", 0),
        )
        for at, own in figures.items()
    }


@st.composite
def cases(draw):
    labels = LABELS[: draw(st.integers(1, 3))]
    step = draw(st.sampled_from([0.4, 0.5, 1.0, 0.08]))
    reference, frame_scores = {}, {}
    for name in "ab":
        n_frames = draw(st.integers(1, 8))
        level = st.integers(0, 4)
        rows = st.lists(level, min_size=n_frames * len(labels), max_size=n_frames * len(labels))
        scores = np.reshape(draw(rows), (n_frames, len(labels)))
        frame_scores[name] = (np.arange(n_frames + 1) * step, scores)
        reference[name] = [
            Event(onset * step, (onset + length) * step, label)
            for onset, length, label in draw(
                st.lists(
                    st.tuples(st.integers(0, 9), st.integers(0, 5), st.sampled_from(labels)),
                    max_size=4,
                )
            )
        ]
    reference["a"].append(Event(0, step, labels[0]))
    return reference, ScoreTable(labels, frame_scores)


@settings(max_examples=60, deadline=None)
@given(cases(), st.sampled_from(CRITERIA))
def test_no_threshold_is_better_and_the_reported_one_reaches_the_score(case, criterion):
    reference, frame_scores = case
    result = best_scores(reference, frame_scores, criterion)
    levels = [*range(5), np.inf]
    tried = [
        score(reference, frame_scores, criterion, dict.fromkeys(frame_scores.labels, level))
        for level in levels
    ]
    for kind, choose, name in ((0, max, "f_measure"), (1, min, "error_rate")):
        best = result.overall[name]
        assert best.value == pytest.approx(choose(each[None][kind] for each in tried))
        reached = score(reference, frame_scores, criterion, best.thresholds)[None][kind]
        assert reached == pytest.approx(best.value)
        for label in frame_scores.labels:
            own = result.class_wise[label][name]
            if own.n_ref == 0:
                assert np.isnan(own.value)
                continue
            assert own.value == pytest.approx(choose(each[label][kind] for each in tried))
            thresholds = dict.fromkeys(frame_scores.labels, np.inf) | own.thresholds
            assert score(reference, frame_scores, criterion, thresholds)[label][
                kind
            ] == pytest.approx(own.value)


@settings(max_examples=40, deadline=None)
@given(cases(), st.sampled_from([CRITERIA[0], CRITERIA[2]]))
def test_with_one_threshold_per_class_nothing_is_better_either(case, criterion):
    reference, frame_scores = case
    result = best_scores(reference, frame_scores, criterion)
    levels = [*range(5), np.inf]
    tried = [
        score(
            reference, frame_scores, criterion, dict(zip(frame_scores.labels, chosen, strict=True))
        )[None]
        for chosen in itertools.product(levels, repeat=len(frame_scores.labels))
    ]
    best, least = max(each[0] for each in tried), min(each[1] for each in tried)
    f_measure, error_rate = (result.overall_by_class[x] for x in ("f_measure", "error_rate"))
    assert f_measure.value == pytest.approx(best)
    assert least - 1e-12 <= error_rate.value <= result.overall["error_rate"].value
    if not isinstance(criterion, SegmentCriterion):
        assert error_rate.value == pytest.approx(least)
    for at, claimed in enumerate((f_measure, error_rate)):
        reached = score(reference, frame_scores, criterion, claimed.thresholds)[None][at]
        assert reached == pytest.approx(claimed.value)


def in_seconds(scores, ref):
    """Scores of one frame per second, and the reference events of each file."""
    scores, ref = np.array(scores), np.array(ref)
    labels = LABELS[: scores.shape[1]]
    events = [Event(at, at + 1, labels[column]) for at, column in np.argwhere(ref).tolist()]
    file_scores = (np.arange(len(scores) + 1.0), scores)
    return {"a": events}, ScoreTable(labels, {"a": file_scores})


def try_all(scores):
    """Thresholds (tried, classes), and the active classes with each (tried, seconds, classes)."""
    levels = [*np.unique(scores), np.inf]
    thresholds = np.array(list(itertools.product(levels, repeat=scores.shape[1])))
    return thresholds, scores >= thresholds[:, None]


def table(labels, **files):
    """Frame-level scores of one second each: file -> label -> scores."""
    columns = {name: np.array([own[label] for label in labels]).T for name, own in files.items()}
    return ScoreTable(labels, {name: (np.arange(len(x) + 1), x) for name, x in columns.items()})


def test_the_deltas_of_all_classes_pooled_are_those_of_one_class():
    two = np.array([0, 1])
    deltas = CountDeltas(two, two, np.array([0.5, 0.6]), np.array([[1, 2]]), two)
    (pooled,) = deltas.pool_classes().split_by_class(1)
    assert pooled.score.tolist() == [0.6, 0.5]
    assert pooled.values.tolist() == [[2, 1]]


def operating_points(scores, tp, fp, errors):
    """Operating points of deltas in one file."""
    zeros = np.zeros(len(scores), int)
    values = np.array([tp, fp, errors], np.int32)
    return OperatingPoints(
        CountDeltas(zeros, zeros, np.array(scores), values, zeros), count_substitutions=True
    )


def test_the_thresholds_between_lower_and_upper_have_the_counts_of_their_operating_point():
    scores = np.array([0.9, 0.8, 0.7, 0.7, 0.6, 0.5, 0.4])
    tp, fp = np.array([1, 0, 1, 0, 0, 1, 0]), np.array([0, 1, 0, 1, 1, 0, 1])
    points = operating_points(scores, tp, fp, fp - tp)
    assert points.upper.tolist() == [np.inf, 0.9, 0.7, 0.5]
    assert points.lower.tolist() == [0.9, 0.8, 0.6, 0.4]
    for at, (upper, lower) in enumerate(zip(points.upper, points.lower, strict=True)):
        for threshold in (upper, np.nextafter(lower, np.inf), points.threshold(at)):
            assert points.tp[at] == tp[scores >= threshold].sum()
            assert points.fp[at] == fp[scores >= threshold].sum()


def test_a_threshold_may_be_the_best_since_one_false_positive_has_gone():
    """At 0.8 another class is missed in its place, so that the number of errors stays."""
    points = operating_points([0.9, 0.8, 0.7], tp=[1, 0, 0], fp=[1, -1, 1], errors=[0, 0, 0])
    best = points.best(("dog",), n_ref=2)["f_measure"]
    assert (best.value, best.tp, best.fp) == (pytest.approx(2 / 3), 1, 0)
    assert 0.7 < best.thresholds["dog"] <= 0.8


@pytest.mark.parametrize("second", [0.9, 0.8])
def test_of_two_detections_near_one_event_one_is_false(second):
    scores = table(["dog"], a={"dog": [0, 0.9, 0, second, 0, 0]})
    stacked = stack_scores({"a": [Event(2, 3, "dog")]}, scores)
    deltas = CollarCriterion(1.0, 1.0, 0.0).count_deltas(stacked)
    tp, fp = deltas.values[:2, deltas.score >= second].sum(axis=1)
    assert (tp, fp) == (1, 1)


@pytest.mark.parametrize("decimals", [None, 0, 6])
def test_rounded_edges_give_the_segments_of_whole_seconds(decimals):
    scores = table(["dog"], a={"dog": [0.9, 0.1, 0.8, 0.2]})
    reference = {"a": [Event(0, 1, "dog"), Event(2, 3, "dog")]}
    best = best_scores(reference, scores, SegmentCriterion(1.0, decimals=decimals))
    point = best.overall["f_measure"]
    assert (point.value, point.tp, point.fp) == (1, 2, 0)


def test_a_wrong_class_in_a_segment_is_one_error_not_two():
    scores = table(["cat", "dog"], a={"cat": [0.9, 0], "dog": [0, 0.8]})
    best = best_scores({"a": [Event(0, 2, "dog")]}, scores, SegmentCriterion(1.0))
    # Half of the reference is found at a threshold that also finds the wrong class.
    assert best.overall["error_rate"].value == 0.5


def test_the_errors_of_events_are_the_sum_over_classes_each_at_its_own_threshold():
    scores = table(
        ["cat", "dog", "owl"],
        a={
            "cat": [0, 0, 0.3, 0, 0, 0, 0, 0, 0],
            "dog": [0.9, 0, 0, 0, 0.1, 0, 0.5, 0, 0.5],  # one found, one missed, or two false
            "owl": [0, 0.95, 0, 0, 0, 0, 0, 0, 0],  # is nowhere
        },
    )
    reference = {"a": [Event(0, 1, "dog"), Event(2, 3, "cat"), Event(4, 5, "dog")]}
    best = best_scores(reference, scores, CollarCriterion(0.2, 0.2, 0.0))
    point = best.overall_by_class["error_rate"]
    assert (point.value, point.tp, point.fp, point.n_ref) == (pytest.approx(1 / 3), 2, 0, 3)
    assert 0 < point.thresholds["cat"] < 0.3
    assert 0.5 < point.thresholds["dog"] < 0.9
    assert point.thresholds["owl"] == np.inf


def test_counts_of_segments_are_concatenated_with_all_that_their_scores_need():
    reference = {"a": [Event(0, 1, "dog")], "b": [Event(1, 3, "dog"), Event(0, 1, "cat")]}
    files = {
        "a": {"cat": [0.2, 0.9], "dog": [0.7, 0.1]},
        "b": {"cat": [0.5, 0.4, 0.1], "dog": [0.8, 0.3, 0.6]},
    }
    whole = count_thresholds(reference, table(["cat", "dog"], **files), SegmentCriterion(1.0))
    first, second = (
        count_thresholds(
            {name: reference[name]}, table(["cat", "dog"], **{name: own}), SegmentCriterion(1.0)
        )
        for name, own in files.items()
    )
    assert first.concatenate(second).scores() == whole.scores() != first.scores()


def test_the_f_measure_with_one_threshold_per_class_takes_several_iterations():
    """One iteration: in each class the best if the F-measure were that of a single threshold."""
    rng = np.random.default_rng(0)
    n_short = 0
    for _ in range(40):
        scores = rng.integers(0, 8, (30, 3))
        ref = rng.random((30, 3)) < [0.05, 0.2, 0.6]
        thresholds, active = try_all(scores)
        tp, n_est = (each.sum(axis=1) for each in (active & ref, active))
        values = 2 * tp.sum(axis=1) / (n_est.sum(axis=1) + ref.sum())
        result = best_scores(*in_seconds(scores, ref), SegmentCriterion(1.0))
        assert result.overall_by_class["f_measure"].value == pytest.approx(values.max())
        is_single = (thresholds == thresholds[:, :1]).all(axis=1)
        gains = (2 * tp - values[is_single].max() * n_est).sum(axis=1)
        n_short += values[np.argmax(gains)] < values.max() - 1e-9
    assert n_short >= 10


@pytest.mark.parametrize(
    ("scores", "ref"),
    [
        ([[1, 2], [3, 3], [0, 0]], [[0, 1], [1, 0], [1, 0]]),
        (
            [[3, 1, 2], [3, 0, 2], [2, 2, 3], [2, 0, 3]],
            [[1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 1]],
        ),
    ],
    ids=["from the best of each class only", "from the best single threshold only"],
)
def test_the_least_error_rate_of_segments_is_found_from_either_start(scores, ref):
    scores, ref = np.array(scores), np.array(ref, bool)
    _, active = try_all(scores)
    most = np.maximum(active.sum(axis=2), ref.sum(axis=1)).sum(axis=1)
    errors = most - (active & ref).sum(axis=(1, 2))
    result = best_scores(*in_seconds(scores, ref), SegmentCriterion(1.0))
    assert result.overall_by_class["error_rate"].value == errors.min() / ref.sum()
    assert result.overall["error_rate"].value > errors.min() / ref.sum()


@pytest.mark.parametrize("criterion", CRITERIA[:3])
@pytest.mark.parametrize("low", [0.5, np.nextafter(0.5, 1), 1.0, -1.0, 3.0, 0.0])
def test_a_threshold_also_separates_neighbouring_floats(criterion, low):
    high = np.nextafter(low, np.inf)
    assert low < threshold_between(high, low) <= high  # or the coordinate descent would not end
    reference, frame_scores = in_seconds(
        [[low] * 2, [high] * 2, [low] * 2], [[0, 0], [1, 1], [0, 0]]
    )
    result = best_scores(reference, frame_scores, criterion)
    for at, name in enumerate(("f_measure", "error_rate")):
        for best in (
            result.overall[name],
            result.overall_by_class[name],
            *(own[name] for own in result.class_wise.values()),
        ):
            assert all(low < threshold <= high for threshold in best.thresholds.values())
        reached = score(reference, frame_scores, criterion, result.overall[name].thresholds)[None][
            at
        ]
        assert reached == pytest.approx(result.overall[name].value)


@given(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300))
def test_at_the_threshold_between_two_scores_the_upper_is_active_and_the_lower_is_not(a, b):
    lower, upper = sorted((a, b if a != b else np.nextafter(a, np.inf)))
    for above in (upper, np.nextafter(lower, np.inf)):
        assert lower < threshold_between(above, lower) <= above


@pytest.fixture(scope="module")
def real(dcase2017):
    """The evaluation set with scores of noise, higher where the events are."""
    reference = read_events(dcase2017 / "groundtruth_strong_label_evaluation_set.csv")
    rng = np.random.default_rng(0)
    labels = sorted({event.label for events in reference.values() for event in events})
    edges = np.arange(126) * 0.08
    frame_scores = {}
    for name, events in reference.items():
        logits = rng.normal(-3, 0.5, (125, len(labels)))
        for event in events:
            inside = (edges[1:] > event.onset) & (edges[:-1] < event.offset)
            logits[inside, labels.index(event.label)] += 3
        frame_scores[name] = (edges, 1 / (1 + np.exp(-logits)))
    return reference, ScoreTable(labels, frame_scores)


def test_the_best_scores_of_real_lists_are_reached_by_their_thresholds(real):
    reference, frame_scores = real
    # names without suffix, as in the scores
    reference = {name.removesuffix(".wav"): events for name, events in reference.items()}
    for criterion in (SegmentCriterion(1.0), CollarCriterion(0.5, 0.5, 0.5)):
        result = best_scores(reference, frame_scores, criterion)
        for kind in (result.overall, result.overall_by_class):
            for at, name in enumerate(("f_measure", "error_rate")):
                reached = score(reference, frame_scores, criterion, kind[name].thresholds)[None][at]
                assert reached == pytest.approx(kind[name].value, abs=1e-12)
        by_class = result.overall_by_class
        assert by_class["f_measure"].value > result.overall["f_measure"].value
        assert by_class["error_rate"].value < result.overall["error_rate"].value


def test_a_bootstrap_sample_has_the_best_score_of_its_files(real):
    reference = dict(itertools.islice(real[0].items(), 30))
    weights = np.random.default_rng(1).multinomial(30, np.ones(30) / 30, 3).astype(float)
    for criterion in (
        SegmentCriterion(1.0),
        CollarCriterion(0.5, 0.5, 0.5),
        IntersectionCriterion(0.5, 0.5),
    ):
        counts = count_thresholds(reference, real[1], criterion)
        weighted = counts.weighted_scores(weights)
        for at, draw in enumerate(weights):
            copies = {
                f"{copy}_{name}": name
                for name, n in zip(reference, draw, strict=True)
                for copy in range(int(n))
            }
            frame_scores = {copy: real[1][name] for copy, name in copies.items()}
            again = best_scores(
                {copy: reference[name] for copy, name in copies.items()},
                ScoreTable(real[1].labels, frame_scores),
                criterion,
            )
            for name in ("f_measure", "error_rate"):
                value = weighted.overall[name][name][at]
                assert value == pytest.approx(again.overall[name].value)
                average = weighted.class_wise_average[name][name][at]
                assert average == pytest.approx(again.class_wise_average[name])
        both = counts.concatenate(counts)
        assert both.scores().overall["f_measure"].value == pytest.approx(
            counts.scores().overall["f_measure"].value
        )


def test_precision_and_recall_are_those_at_each_threshold(real):
    reference = {
        name.removesuffix(".wav"): events for name, events in itertools.islice(real[0].items(), 20)
    }
    frame_scores = ScoreTable(real[1].labels, {name: real[1][name] for name in reference})
    found = count_thresholds(reference, frame_scores, SegmentCriterion(1.0)).precision_recall()
    label = max(found, key=lambda name: len(found[name].threshold))
    own = found[label]
    assert (np.diff(own.threshold) < 0).all()
    assert own.recall[-1] == 1.0
    for at in (0, len(own.threshold) // 2, -1):
        estimate = decode(frame_scores, dict.fromkeys(frame_scores.labels, own.threshold[at]))
        scores = segment_scores(reference, estimate, frame_scores.labels).class_wise[label][
            "f_measure"
        ]
        assert scores["precision"] == pytest.approx(own.precision[at])
        assert scores["recall"] == pytest.approx(own.recall[at])


class TestEdges:
    file_scores = ([0, 1, 2], [[0.9, 0.3], [0.2, 0.3]])
    frame_scores = ScoreTable(["cat", "dog"], {"a": file_scores})

    def test_a_class_without_reference_is_nan_alone_but_counts_overall(self):
        result = best_scores(
            {"a.wav": [Event(0, 2, "cat")]}, self.frame_scores, SegmentCriterion(1.0)
        )
        assert np.isnan(result.class_wise["dog"]["f_measure"].value)
        assert result.class_wise_average["f_measure"] == 1.0
        assert result.overall["f_measure"].value == pytest.approx(2 / 3)
        assert result.overall_by_class["f_measure"].value == 1.0
        assert result.overall_by_class["error_rate"].value == 0.0
        assert result.overall_by_class["error_rate"].thresholds["dog"] > 0.3

    def test_nothing_at_all_gives_nan_and_no_warning(self):
        for criterion in (*CRITERIA, IntersectionCriterion(0.5, 0.5)):
            for reference in ({}, {"a": []}):
                result = best_scores(reference, self.frame_scores, criterion)
                assert np.isnan(result.overall["f_measure"].value)
                assert np.isnan(result.overall_by_class["error_rate"].value)
                assert np.isnan(result.class_wise_average["error_rate"])
                assert json.loads(json.dumps(result.to_dict()))["n_files"] == len(reference)

    def test_events_past_the_end_of_the_scores_cannot_be_detected(self):
        result = best_scores({"a": [Event(0, 5, "cat")]}, self.frame_scores, SegmentCriterion(1.0))
        assert result.class_wise["cat"]["f_measure"].recall == 0.4

    def test_durations_limit_the_segments_as_in_sed_scores_eval(self):
        reference = {"a": [Event(0, 5, "cat")]}
        criterion = SegmentCriterion(1.0, decimals=6, durations={"a.wav": 2.0})
        assert (
            best_scores(reference, self.frame_scores, criterion)
            .class_wise["cat"]["f_measure"]
            .n_ref
            == 2
        )
        with pytest.raises(DataError, match="'a' has no entry in durations"):
            best_scores(reference, self.frame_scores, SegmentCriterion(1.0, 6, {"b": 2.0}))

    def test_invalid_settings_raise(self):
        with pytest.raises(SettingError, match="durations have no effect"):
            SegmentCriterion(1.0, durations={"a": 1.0})
        with pytest.raises(SettingError, match="more than the"):
            best_scores({"a": []}, self.frame_scores, SegmentCriterion(1e-9))
        with pytest.raises(SettingError, match="onset_collar"):
            CollarCriterion(np.nan, 0.2)
