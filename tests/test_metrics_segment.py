"""Segment-based scores: known results, a dense twin; see also test_against_sed_eval."""

import json
import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.errors import DataError, SettingError
from earmark.formats.events import Event, read_events
from earmark.metrics import count_segments, segment_scores

LABELS = ["cat", "dog", "owl"]


@st.composite
def events(draw, labels=LABELS):
    """Events on and off the edges of segments, overlapping, some of length 0."""
    step = draw(st.sampled_from([0.08, 0.1, 0.25, 1.0, 1 / 3]))
    onset = draw(st.integers(0, 40)) * step
    return Event(onset, onset + draw(st.integers(0, 20)) * step, draw(st.sampled_from(labels)))


tables = st.dictionaries(
    st.sampled_from(["a.wav", "b.wav", "c.wav"]), st.lists(events(), max_size=5), max_size=3
)
resolutions = st.sampled_from([1.0, 0.5, 0.1, 0.3, 2.0])


def test_a_file_without_events_has_no_segments():
    counts = count_segments({"a": [], "b": [Event(0, 2.5, "dog")]}, {})
    assert counts.n_segments.tolist() == [0, 3]


def test_without_a_negative_segment_the_specificity_is_0():
    events = {"a": [Event(0, 2, "dog")]}
    assert segment_scores(events, events).overall["accuracy"]["specificity"] == 0


def test_a_repr_names_files_classes_and_headlines():
    scores = segment_scores({"a": [Event(0, 2, "dog")]}, {"a": [Event(0, 1, "dog")]})
    shown = repr(scores)
    assert shown.startswith("SegmentScores(1 files, 1 classes, ")
    assert "f_measure=0.667" in shown


def test_of_weighted_scores_the_first_sample_is_returned_unless_another_is_named():
    reference = {"a": [Event(0, 1, "dog")], "b": [Event(0, 1, "dog")]}
    counts = count_segments(reference, {"a": reference["a"]})
    weighted = counts.weighted_scores(np.array([[2.0, 0.0], [0.0, 2.0]]))
    errors = [
        weighted.sample(["dog"], *own)["overall"]["error_rate"]["error_rate"]
        for own in ((), (0,), (1,))
    ]
    assert errors == [0, 0, 1]


def dense_counts(reference, estimate, labels, resolution):
    """Count as sed_eval does: one dense matrix per file, segment by segment."""
    total = dict.fromkeys(["tp", "fp", "fn", "tn", "s", "d", "i"], 0)
    for name, events_of_file in reference.items():
        pair = [events_of_file, estimate.get(name, [])]
        end = max([0.0] + [event.offset for each in pair for event in each])
        rolls = []
        for each in pair:
            roll = [[False] * len(labels) for _ in range(math.ceil(end / resolution))]
            for event in each:
                for at in range(
                    math.floor(event.onset / resolution), math.ceil(event.offset / resolution)
                ):
                    roll[at][labels.index(event.label)] = True
            rolls.append(roll)
        for ref, est in zip(*rolls, strict=True):
            tp = sum(r and e for r, e in zip(ref, est, strict=True))
            total["tp"] += tp
            total["fp"] += sum(est) - tp
            total["fn"] += sum(ref) - tp
            total["tn"] += len(labels) - sum(ref) - sum(est) + tp
            total["s"] += min(sum(ref), sum(est)) - tp
            total["d"] += max(0, sum(ref) - sum(est))
            total["i"] += max(0, sum(est) - sum(ref))
    return total


@given(tables, tables, resolutions)
def test_the_counts_are_those_of_a_dense_matrix(reference, estimate, resolution):
    counts = count_segments(reference, estimate, LABELS, resolution)
    n_all = counts.n_segments.sum() * len(LABELS)
    assert dense_counts(reference, estimate, LABELS, resolution) == {
        "tp": counts.tp.sum(),
        "fp": counts.fp.sum(),
        "fn": counts.fn.sum(),
        "tn": n_all - counts.tp.sum() - counts.fp.sum() - counts.fn.sum(),
        "s": counts.substitutions.sum(),
        "d": counts.deletions.sum(),
        "i": counts.insertions.sum(),
    }


@given(tables, tables, resolutions)
def test_the_counts_of_a_file_do_not_depend_on_the_others(reference, estimate, resolution):
    counts = count_segments(reference, estimate, LABELS, resolution)
    for at, name in enumerate(reference):
        alone = count_segments({name: reference[name]}, estimate, LABELS, resolution)
        for field in ("tp", "fp", "fn", "substitutions", "deletions", "insertions", "n_segments"):
            np.testing.assert_array_equal(getattr(alone, field)[0], getattr(counts, field)[at])


@given(tables, tables)
def test_the_counts_of_a_class_do_not_depend_on_the_others(reference, estimate):
    together = segment_scores(reference, estimate, LABELS)
    for label in LABELS:
        own = [
            {name: [e for e in found if e.label == label] for name, found in each.items()}
            for each in (reference, estimate)
        ]
        alone = segment_scores(*own, [label]).class_wise[label]
        for group in ("f_measure", "error_rate", "count"):
            assert alone[group] == pytest.approx(together.class_wise[label][group], nan_ok=True)


@given(tables)
def test_the_reference_itself_is_perfect(reference):
    scores = segment_scores(reference, reference)
    if scores.class_wise and any(c["count"]["Nref"] for c in scores.class_wise.values()):
        assert scores.error_rate == 0
        assert scores.f_measure == 1


@pytest.mark.parametrize(
    ("part", "error_rate", "f_measure"), [("evaluation", 0.321, 0.862), ("testing", 0.308, 0.867)]
)
def test_perfect_tags_without_any_timing_score_as_published(dcase2017, part, error_rate, f_measure):
    reference = read_events(dcase2017 / f"groundtruth_strong_label_{part}_set.csv")
    estimate = {
        name: [Event(0, 10, label) for label in {event.label for event in found}]
        for name, found in reference.items()
    }
    scores = segment_scores(reference, estimate)
    assert round(scores.error_rate, 3) == error_rate
    assert round(scores.f_measure, 3) == f_measure
    assert len(scores.class_wise) == 17
    assert scores.missing_files == scores.unknown_files == ()


class TestCounting:
    def test_one_wrong_class_is_a_substitution_and_not_two_errors(self):
        scores = segment_scores({"a": [Event(0, 2, "dog")]}, {"a": [Event(0, 2, "cat")]})
        assert scores.overall["error_rate"] == {
            "error_rate": 1.0,
            "substitution_rate": 1.0,
            "deletion_rate": 0.0,
            "insertion_rate": 0.0,
        }

    def test_an_event_is_active_in_every_segment_that_it_touches(self):
        counts = count_segments({"a": [Event(0.9, 2.1, "dog")]}, {})
        assert counts.fn.tolist() == [[3]]
        assert count_segments({"a": [Event(1.0, 2.0, "dog")]}, {}).fn.tolist() == [[1]]

    def test_overlapping_events_of_one_class_count_once(self):
        twice = [Event(0, 2, "dog"), Event(1, 3, "dog"), Event(0, 2, "dog")]
        assert count_segments({"a": twice}, {"a": [Event(0, 3, "dog")]}).tp.tolist() == [[3]]

    def test_the_last_offset_of_reference_or_estimate_is_the_length_of_the_file(self):
        for reference, estimate in ((3.0, 7.5), (7.5, 3.0)):
            counts = count_segments(
                {"a": [Event(0, reference, "dog")]}, {"a": [Event(0, estimate, "dog")]}
            )
            assert counts.n_segments.tolist() == [8]

    def test_what_lies_before_the_clip_takes_no_part(self):
        counts = count_segments({"a": [Event(-2, 1, "dog"), Event(-3, -1, "cat")]}, {})
        assert counts.fn.tolist() == [[0, 1]]

    def test_a_label_that_only_the_estimate_has_is_an_insertion(self):
        scores = segment_scores({"a": [Event(0, 1, "dog")]}, {"a": [Event(1, 2, "cat")]})
        assert scores.overall["error_rate"]["insertion_rate"] == 1.0
        assert scores.class_wise["cat"]["count"] == {"Nref": 0.0, "Nsys": 1.0}

    @given(tables, tables)
    def test_counts_do_not_depend_on_the_block_size(self, reference, estimate):
        whole = count_segments(reference, estimate, LABELS)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("earmark.metrics.event_arrays.BLOCK_EVENTS", 2)
            blocks = count_segments(reference, estimate, LABELS)
        for table in ("tp", "fp", "fn", "substitutions", "insertions", "n_segments"):
            assert getattr(blocks, table).tolist() == getattr(whole, table).tolist()

    def test_files_of_only_the_reference_or_only_the_estimate_are_listed(self):
        reference = {"a": [Event(0, 1, "dog")], "b": [Event(0, 1, "dog")], "c": []}
        estimate = {"b": [Event(0, 1, "dog")], "z": [Event(0, 9, "dog")], "c": []}
        scores = segment_scores(reference, estimate)
        assert (scores.missing_files, scores.unknown_files) == (("a",), ("z",))
        assert scores.overall["error_rate"]["deletion_rate"] == 0.5
        assert scores.overall["error_rate"]["insertion_rate"] == 0.0
        assert scores.n_files == 3

    def test_files_can_be_weighted(self):
        reference = {"a": [Event(0, 1, "dog")], "b": [Event(0, 3, "dog")]}
        counts = count_segments(reference, {"b": [Event(0, 3, "dog")]})
        weights = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 2.0]])
        recall = counts.weighted_scores(weights).overall["f_measure"]["recall"]
        assert recall.tolist() == [0, 1, 6 / 7]

    def test_a_day_at_a_fine_resolution_takes_no_memory_for_its_segments(self):
        rng = np.random.default_rng(0)
        day = [
            Event(onset, onset + 2, LABELS[at % 3])
            for at, onset in enumerate(rng.uniform(0, 86_400, 20_000))
        ]
        begin = time.perf_counter()
        counts = count_segments({"day": day[::2]}, {"day": day}, resolution=1e-5)
        assert time.perf_counter() - begin < 5
        assert counts.n_segments[0] > 8e9
        assert counts.fn.sum() == 0


class TestWithoutReferenceOrEstimate:
    def test_a_class_without_reference_has_no_rates_and_stays_out_of_the_mean(self):
        scores = segment_scores({"a": [Event(0, 1, "dog")]}, {"a": [Event(0, 1, "cat")]})
        assert all(math.isnan(rate) for rate in scores.class_wise["cat"]["error_rate"].values())
        assert math.isnan(scores.class_wise["cat"]["f_measure"]["f_measure"])
        assert scores.class_wise_average["error_rate"]["error_rate"] == 1.0

    def test_as_sed_eval_it_divides_by_almost_nothing_and_means_over_all(self):
        reference, estimate = {"a": [Event(0, 1, "dog")]}, {"a": [Event(0, 1, "cat")]}
        ours = segment_scores(reference, estimate, LABELS)
        theirs = segment_scores(reference, estimate, LABELS, as_sed_eval=True)
        assert theirs.class_wise["cat"]["error_rate"]["error_rate"] == 2.0**52
        assert theirs.class_wise["owl"]["error_rate"]["error_rate"] == 0
        assert theirs.class_wise_average["error_rate"]["error_rate"] == (1 + 2.0**52) / 3
        assert theirs.overall == ours.overall
        assert repr(theirs.class_wise["dog"]) == repr(ours.class_wise["dog"])  # nan is not nan

    def test_a_class_never_detected_is_left_out_of_the_mean_unless_it_counts_as_zero(self):
        reference = {"a": [Event(0, 1, "dog"), Event(0, 1, "cat")]}
        estimate = {"a": [Event(0, 1, "dog")]}
        as_nan = segment_scores(reference, estimate)
        as_zero = segment_scores(reference, estimate, empty_as_zero=True)
        assert as_nan.class_wise_average["f_measure"]["f_measure"] == 1.0
        assert as_zero.class_wise_average["f_measure"]["f_measure"] == 0.5
        assert as_zero.f_measure == as_nan.f_measure

    @pytest.mark.parametrize("reference", [{}, {"a": []}])
    def test_nothing_at_all_gives_nan_and_no_warning(self, reference):
        scores = segment_scores(reference, {}, LABELS)
        assert math.isnan(scores.error_rate)
        assert math.isnan(scores.class_wise_average["f_measure"]["f_measure"])
        assert json.loads(json.dumps(scores.to_dict()))["n_files"] == len(reference)


class TestErrors:
    def test_an_event_that_is_not_of_the_labels_raises_with_its_table(self):
        with pytest.raises(DataError, match="The estimate has events of 'cat'"):
            segment_scores({"a": []}, {"a": [Event(0, 1, "cat")]}, ["dog"])

    @pytest.mark.parametrize("resolution", [0, -1.0, math.nan, math.inf])
    def test_a_resolution_must_be_a_length(self, resolution):
        with pytest.raises(SettingError, match="resolution must be"):
            segment_scores({}, {}, resolution=resolution)

    def test_times_that_are_not_seconds_raise_before_they_overflow(self):
        with pytest.raises(SettingError, match="too many segments"):
            segment_scores({"a": [Event(0, 1e300, "dog")]}, {}, resolution=1e-200)

    def test_labels_must_differ(self):
        with pytest.raises(SettingError, match="once"):
            segment_scores({}, {}, ["dog", "dog"])
