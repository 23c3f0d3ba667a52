"""Intersection-based F-measure of events: known results, a twin by the definition, edge cases."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.formats.events import Event
from earmark.metrics.intersection import intersection_f_measures

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


def test_nothing_detected_is_undefined_or_zero():
    reference = {"a.wav": [Event(0, 1, "dog")]}
    assert math.isnan(intersection_f_measures(reference, {}, LABELS)["f_measure"])
    scores = intersection_f_measures(reference, {}, LABELS, empty_as_zero=True)
    assert scores["f_measure"] == scores["precision"] == scores["recall"] == 0
