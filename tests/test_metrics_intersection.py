"""Intersection-based F-measure of events: known results, a twin by the definition, edge cases."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.errors import EarmarkError
from earmark.formats.events import Event
from earmark.formats.scores import ScoreTable
from earmark.metrics.event_criteria import IntersectionCriterion
from earmark.metrics.intersection import intersection_f_measures
from earmark.metrics.stacked_scores import stack_scores

LABELS = ["cat", "dog"]


def merged(spans):
    """Spans without overlaps: those that overlap or touch are one."""
    apart = []
    for onset, offset in sorted(spans):
        if apart and onset <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(apart[-1][1], offset))
        else:
            apart.append((onset, offset))
    return apart


def covered(span, others):
    return sum(max(0.0, min(span[1], b) - max(span[0], a)) for a, b in others)


def twin(reference, estimate, dtc, gtc):
    """True positives, false positives and false negatives, by the definition."""
    tp = fp = fn = 0
    for file, events in reference.items():
        for label in LABELS:
            own, found = (merged([(e.onset, e.offset) for e in some if e.label == label])
                          for some in (events, estimate.get(file, ())))  # fmt: skip
            relevant = [x for x in found if covered(x, own) >= dtc * (x[1] - x[0]) - 1e-9]
            relevant = relevant if own else []
            hits = sum(covered(x, relevant) >= gtc * (x[1] - x[0]) - 1e-9 for x in own)
            tp, fp, fn = tp + hits, fp + len(found) - len(relevant), fn + len(own) - hits
    return tp, fp, fn


events = st.lists(
    st.builds(
        lambda onset, length, label: Event(onset / 4, (onset + length) / 4, label),
        st.integers(0, 20),
        st.integers(1, 12),
        st.sampled_from(LABELS),
    ),
    max_size=5,
)
files = st.dictionaries(st.sampled_from(["a.wav", "b.wav", "c.wav"]), events, min_size=1)


@settings(max_examples=300, deadline=None)
@given(files, files, st.sampled_from([0.25, 0.5, 1.0]), st.sampled_from([0.25, 0.5, 1.0]))
def test_it_counts_as_the_definition_says(reference, estimate, dtc, gtc):
    tp, fp, fn = twin(reference, estimate, dtc, gtc)
    scores = intersection_f_measures(reference, estimate, LABELS, dtc=dtc, gtc=gtc)
    for name, above, below in (("precision", tp, tp + fp), ("recall", tp, tp + fn)):
        if below:
            assert math.isclose(scores[name], above / below)
        else:
            assert math.isnan(scores[name])


def test_an_event_in_two_pieces_is_found_and_an_event_ten_times_too_long_is_not():
    reference = {"a.wav": [Event(10, 14, "dog")]}
    pieces = {"a.wav": [Event(10, 11.5, "dog"), Event(12, 14, "dog")]}
    assert intersection_f_measures(reference, pieces, LABELS)["f_measure"] == 1
    long = {"a.wav": [Event(0, 40, "dog")]}
    assert intersection_f_measures(reference, long, LABELS)["f_measure"] == 0


def test_events_before_zero_count_and_classes_that_are_not_asked_for_are_refused():
    reference = {"a.wav": [Event(-1, 1, "dog")]}
    estimate = {"a.wav": [Event(-0.5, 1, "dog")]}
    assert intersection_f_measures(reference, estimate)["f_measure"] == 1
    with pytest.raises(EarmarkError, match="dog"):
        intersection_f_measures(reference, estimate, ["cat"])


def test_an_event_of_length_0_is_found_by_any_detection_of_its_class_in_its_file():
    reference = {"a.wav": [Event(3, 3, "dog")], "b.wav": [Event(3, 3, "dog")]}
    estimate = {"a.wav": [Event(5, 6, "dog")], "b.wav": [Event(5, 6, "cat")]}
    assert intersection_f_measures(reference, estimate, LABELS)["recall"] == 0.5


@settings(max_examples=100, deadline=None)
@given(files, files, st.sampled_from([0.3, 0.5, 0.7]), st.sampled_from([0.3, 0.5, 0.7]))
def test_it_is_what_the_criterion_of_psds_counts(reference, estimate, dtc, gtc):
    """`IntersectionCriterion` agrees with sed_scores_eval; scores are 1 within events."""
    edges = np.arange(0, 9, 0.25)
    table = {}
    for file in reference:
        scores = np.zeros((len(edges) - 1, len(LABELS)))
        for event in estimate.get(file, ()):
            inside = (edges[:-1] >= event.onset) & (edges[1:] <= event.offset)
            scores[inside, LABELS.index(event.label)] = 1.0
        table[file] = (edges, scores)
    criterion = IntersectionCriterion(dtc, gtc)
    stacked = criterion.prepare(stack_scores(reference, ScoreTable(LABELS, table)))
    deltas = criterion.count_deltas(stacked)
    tp, fp, _ = deltas.values[:, deltas.score > 0].sum(axis=1)
    scores = intersection_f_measures(reference, estimate, LABELS, dtc=dtc, gtc=gtc)
    if tp + fp:
        assert math.isclose(scores["precision"], tp / (tp + fp))
    if stacked.n_events().sum():
        assert math.isclose(scores["recall"], tp / stacked.n_events().sum())


def test_nothing_detected_is_undefined_or_zero():
    reference = {"a.wav": [Event(0, 1, "dog")]}
    assert math.isnan(intersection_f_measures(reference, {}, LABELS)["f_measure"])
    scores = intersection_f_measures(reference, {}, LABELS, empty_as_zero=True)
    assert scores["f_measure"] == scores["precision"] == scores["recall"] == 0
