"""Confusion matrix: it sums to the counts of the segment-based scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.formats.events import Event, read_events
from earmark.metrics.confusion import segment_confusion
from earmark.metrics.segment import count_segments

LABELS = ["cat", "dog", "owl"]
onsets = st.integers(0, 40).map(lambda step: step * 0.25)
events = st.builds(
    lambda onset, length, label: Event(onset, onset + length * 0.25, label),
    onsets,
    st.integers(0, 20),
    st.sampled_from(LABELS),
)
tables = st.dictionaries(st.sampled_from("abc"), st.lists(events, max_size=6), max_size=3)


@given(tables, tables, st.sampled_from([1.0, 0.3]))
def test_the_matrix_adds_up_to_what_segments_count(reference, estimate, resolution):
    counts = count_segments(reference, estimate, LABELS, resolution)
    matrix = segment_confusion(reference, estimate, LABELS, resolution).matrix
    own, right = matrix[:-1, :-1], np.diag(matrix)[:-1]
    assert right.tolist() == counts.tp.sum(axis=0).tolist()
    assert own.sum() - right.sum() == pytest.approx(counts.substitutions.sum())
    assert matrix[:-1, -1].sum() == pytest.approx(counts.deletions.sum())
    assert matrix[-1, :-1].sum() == pytest.approx(counts.insertions.sum())
    np.testing.assert_allclose(matrix[:-1].sum(axis=1), (counts.tp + counts.fn).sum(axis=0))
    np.testing.assert_allclose(matrix[:, :-1].sum(axis=0), (counts.tp + counts.fp).sum(axis=0))
    assert matrix[-1, -1] == 0


def test_one_class_confused_with_another_is_off_the_diagonal():
    found = segment_confusion({"a": [Event(0, 3, "dog")]}, {"a": [Event(0, 3, "cat")]})
    assert found.labels == ("cat", "dog")
    assert found.matrix.tolist() == [[0, 0, 0], [3, 0, 0], [0, 0, 0]]


def test_a_confusion_of_several_classes_is_distributed_evenly():
    reference = {"a": [Event(0, 1, "cat"), Event(0, 1, "dog")]}
    matrix = segment_confusion(reference, {"a": [Event(0, 1, "owl")]}).matrix
    assert matrix[:, 2].tolist() == [0.5, 0.5, 0, 0]
    assert matrix[:, 3].tolist() == [0.5, 0.5, 0, 0]


def test_the_reference_itself_is_all_diagonal(dcase2017):
    reference = read_events(dcase2017 / "groundtruth_strong_label_evaluation_set.csv")
    matrix = segment_confusion(reference, reference).matrix
    assert np.count_nonzero(matrix) == np.count_nonzero(np.diag(matrix)) == 17


@pytest.mark.parametrize("reference", [{}, {"a": []}])
def test_no_events_at_all_make_an_empty_matrix(reference):
    assert not segment_confusion(reference, {}, LABELS).matrix.any()
