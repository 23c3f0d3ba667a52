"""Segment- and event-based scores are those of sed_eval 0.2.1 to a billionth, key by key."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.formats.events import STRONG_COLUMNS, Event, read_events
from earmark.formats.tables import read_table
from earmark.metrics.event import count_events
from earmark.metrics.segment import count_segments
from oracles import plain

LABELS = ["cat", "dog", "owl"]
PARTS = ("evaluation", "testing")
RESOLUTIONS = (1.0, 0.5, 0.25, 0.3, 0.7, 2.5, 10.0)
N_SEEDS, N_COPIES = 30, 11  # 330 copies
N_FILES = 50


def flat(scores, prefix=()):
    if not isinstance(scores, dict):
        return {prefix: scores}
    return {k: v for name, s in scores.items() for k, v in flat(s, (*prefix, name)).items()}


def check(counts, theirs):
    """Compare every key; sed_eval also has an accuracy of events, but it is always empty."""
    del theirs["seconds"]
    ours = counts.weighted_scores().sample(counts.labels)
    assert flat(ours) == pytest.approx(flat(theirs), rel=1e-9, abs=1e-9, nan_ok=True)


def check_segments(oracles, reference, estimate, labels, resolution=1.0, zero=False):
    theirs = oracles.ask(
        "segment",
        reference=plain(reference),
        estimate=plain(estimate),
        labels=labels,
        resolution=resolution,
        empty_as_zero=zero,
    )
    counts = count_segments(
        reference, estimate, labels, resolution, empty_as_zero=zero, as_sed_eval=True
    )
    check(counts, theirs)


def check_events(
    oracles,
    reference,
    estimate,
    labels,
    collar=0.2,
    rate=0.5,
    judged=(True, True),
    matching="optimal",
    zero=False,
):
    theirs = oracles.ask(
        "event",
        reference=plain(reference),
        estimate=plain(estimate),
        labels=labels,
        collar=collar,
        rate=rate,
        onset=judged[0],
        offset=judged[1],
        matching=matching,
        empty_as_zero=zero,
    )
    counts = count_events(
        reference,
        estimate,
        labels,
        onset_collar=collar,
        offset_collar=collar,
        percentage_of_length=rate,
        evaluate_onset=judged[0],
        evaluate_offset=judged[1],
        matching=matching,
        empty_as_zero=zero,
        as_sed_eval=True,
    )
    check(counts, theirs)
    return counts


def check_both(oracles, reference, estimate, labels=LABELS):
    """Compare at several resolutions and under several rules."""
    for resolution in (1.0, 0.3):
        check_segments(oracles, reference, estimate, labels, resolution)
    for matching in ("optimal", "greedy"):
        check_events(oracles, reference, estimate, labels, matching=matching)
    check_events(oracles, reference, estimate, labels, 0.5, 0.0, (True, False), zero=True)
    check_events(oracles, reference, estimate, labels, 0.1, 1.0, (False, True))


def draw_rule(rng):
    """Return the settings of an event-based score."""
    return {
        "collar": float(rng.choice([0.05, 0.1, 0.2, 0.25, 0.5, 1.0])),
        "rate": float(rng.choice([0.0, 0.2, 0.5, 1.0])),
        "judged": [(True, True), (True, True), (True, False), (False, True)][rng.integers(4)],
        "matching": str(rng.choice(["optimal", "greedy"])),
        "zero": bool(rng.integers(2)),
    }


@pytest.fixture(scope="module")
def references(dcase2017):
    """The strong labels of DCASE 2017, with their rows of length 0 kept as events."""
    found = {}
    for part in PARTS:
        path = dcase2017 / f"groundtruth_strong_label_{part}_set.csv"
        ref = read_events(path)
        for row in read_table(path).rows:
            values = row.named(STRONG_COLUMNS)
            onset, offset = float(values["onset"]), float(values["offset"])
            if onset == offset:
                ref[values["filename"]].append(Event(onset, offset, values["event_label"]))
        found[part] = ref
    assert sum(len(ref) for ref in found.values()) == 1103 + 488
    return found


class Disturbed:
    """Copies of events with every kind of error that systems make."""

    def __init__(self, rng, labels):
        self.rng, self.labels = rng, labels
        self.ways = [
            *(self.keep, self.shift, self.shift_by_a_collar, self.stretch, self.drop),
            *(self.relabel, self.split, self.double, self.shrink_to_nothing, self.run_on),
        ]

    def copy(self, ref):
        estimate = {name: self.copy_file(events) for name, events in ref.items()}
        for name in list(ref):
            if self.rng.random() < 0.05:
                del estimate[name]
        return estimate | {"unknown.wav": [Event(0, 1, self.labels[0])]}

    def copy_file(self, events):
        found = [e for event in events for e in self.rng.choice(self.ways)(event)]
        if len(found) > 1 and self.rng.random() < 0.2:
            first, second, *rest = found
            onset, offset = min(first.onset, second.onset), max(first.offset, second.offset)
            found = [Event(onset, offset, first.label), *rest]
        for _ in range(self.rng.poisson(0.4)):
            onset = self.rng.uniform(0, 10)
            found.append(Event(onset, onset + self.rng.exponential(2), self.label()))
        self.rng.shuffle(found)
        return found

    def label(self):
        return self.labels[self.rng.integers(len(self.labels))]

    def moved(self, event, by):
        onset = max(0.0, event.onset + by)
        return Event(onset, max(onset, event.offset + by), event.label)

    def keep(self, event):
        return [event]

    def shift(self, event):
        return [self.moved(event, self.rng.normal(0, 0.3))]

    def shift_by_a_collar(self, event):
        """On the edge, where the last bit decides."""
        return [self.moved(event, self.rng.choice([-0.5, -0.25, -0.2, 0.1, 0.2, 0.25, 0.5, 1.0]))]

    def stretch(self, event):
        end = event.onset + event.duration * self.rng.choice([0.5, 0.8, 1.2, 1.5, 2.0])
        return [Event(event.onset, end, event.label)]

    def drop(self, event):
        return []

    def relabel(self, event):
        return [Event(event.onset, event.offset, self.label())]

    def split(self, event):
        middle = self.rng.uniform(event.onset, event.offset)
        return [
            Event(event.onset, middle, event.label),
            Event(middle, event.offset, event.label),
        ]

    def double(self, event):
        return [event, *self.shift(event), event]

    def shrink_to_nothing(self, event):
        return [Event(event.onset, event.onset, event.label)]

    def run_on(self, event):
        """Past the end of the clip, which is 10 s long."""
        return [Event(event.onset, event.offset + self.rng.uniform(5, 12), event.label)]


def labels_of(ref):
    return sorted({event.label for events in ref.values() for event in events})


@pytest.mark.parametrize("seed", range(N_SEEDS))
def test_disturbed_copies_of_the_real_reference_have_equal_scores(oracles, references, seed):
    for copy in range(N_COPIES):
        rng = np.random.default_rng([seed, copy])
        ref = references[PARTS[copy % 2]]
        labels = labels_of(ref)
        names = rng.choice(list(ref), N_FILES, replace=False).tolist()
        reference = {name: ref[name] for name in names}
        estimate = Disturbed(rng, labels).copy(reference)
        resolution = float(rng.choice(RESOLUTIONS))
        check_segments(oracles, reference, estimate, labels, resolution, zero=bool(rng.integers(2)))
        check_events(oracles, reference, estimate, labels, **draw_rule(rng))


@pytest.mark.parametrize("part", PARTS)
def test_disturbed_copies_of_a_whole_set_have_equal_scores(oracles, references, part):
    ref = references[part]
    labels = labels_of(ref)
    assert len(labels) == 17
    estimate = Disturbed(np.random.default_rng(0), labels).copy(ref)
    check_segments(oracles, ref, estimate, labels)
    check_events(oracles, ref, estimate, labels)
    check_events(oracles, ref, estimate, labels, 0.5, 0.5, matching="greedy")


def test_tables_are_scored_in_the_order_of_their_rows(oracles, dcase2017, tmp_path):
    """Substitutions depend on the order, and the official rows are not sorted."""
    path = dcase2017 / "groundtruth_strong_label_evaluation_set.csv"
    raw = {}
    for line in path.read_text().splitlines():
        name, onset, offset, label = line.split("\t")
        if float(onset) < float(offset):
            raw.setdefault(name, []).append(Event(float(onset), float(offset), label.strip()))
    table = read_events(path)
    assert {name: events for name, events in table.items() if events} == raw
    raw = {name: events for name, events in raw.items() if events != sorted(events)}
    assert len(raw) > 100
    labels = sorted({event.label for events in table.values() for event in events})
    reference = {name: table[name] for name in raw}
    for seed in range(30):
        rng = np.random.default_rng(seed)
        rows = [
            (name, event)
            for name, events in Disturbed(rng, labels).copy(raw).items()
            for event in events
            if 0 <= event.onset < event.offset
        ]
        rng.shuffle(rows)
        lines = [f"{name}\t{e.onset!r}\t{e.offset!r}\t{e.label}" for name, e in rows]
        (tmp_path / "found.tsv").write_text("\n".join(lines))
        found = {name: [e for other, e in rows if other == name] for name, _ in rows}
        lists = {"reference": plain(raw), "estimate": plain(found), "labels": labels}
        theirs = oracles.ask("event", **lists, collar=1.0, rate=0.5)
        collars = {"onset_collar": 1.0, "offset_collar": 1.0, "percentage_of_length": 0.5}
        estimate = read_events(tmp_path / "found.tsv")
        check(count_events(reference, estimate, labels, **collars, as_sed_eval=True), theirs)


def test_perfect_tags_over_whole_clips_have_the_published_scores_in_both(oracles, dcase2017):
    ref = read_events(dcase2017 / "groundtruth_strong_label_evaluation_set.csv")
    estimate = {
        name: [Event(0, 10, label) for label in sorted({event.label for event in events})]
        for name, events in ref.items()
    }
    labels = labels_of(ref)
    check_segments(oracles, ref, estimate, labels)
    check_events(oracles, ref, estimate, labels)
    overall = count_segments(ref, estimate).scores().overall
    assert round(overall["error_rate"]["error_rate"], 3) == 0.321
    assert round(overall["f_measure"]["f_measure"], 3) == 0.862


@st.composite
def events(draw):
    """Events on a coarse grid, so that onsets, offsets and collars often coincide."""
    step = draw(st.sampled_from([0.1, 0.25, 0.08, 1 / 3]))
    onset = draw(st.integers(0, 30)) * step
    return Event(onset, onset + draw(st.integers(0, 12)) * step, draw(st.sampled_from(LABELS)))


tables = st.dictionaries(st.sampled_from("abc"), st.lists(events(), max_size=8), max_size=3)


@given(reference=tables, estimate=tables, resolution=st.sampled_from([1.0, 0.1, 0.3, 0.07, 2.0]))
@settings(deadline=None, max_examples=100)
def test_segments_of_random_lists_have_equal_scores(oracles, reference, estimate, resolution):
    check_segments(oracles, reference, estimate, LABELS, resolution)


@given(reference=tables, estimate=tables, seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=150)
def test_events_of_random_lists_have_equal_scores(oracles, reference, estimate, seed):
    check_events(oracles, reference, estimate, LABELS, **draw_rule(np.random.default_rng(seed)))


@pytest.mark.parametrize("matching", ["optimal", "greedy"])
def test_crowded_events_leave_the_same_events_unmatched_for_substitutions(oracles, matching):
    """Many events of few classes in little time: of many maximum matchings, sed_eval's own."""
    rng = np.random.default_rng(1)

    def throng():
        onsets = rng.integers(0, 25, 16) / 10
        lengths = rng.integers(0, 12, 16) / 10
        labels = rng.choice(LABELS, 16).tolist()
        return [Event(*each) for each in zip(onsets, onsets + lengths, labels, strict=True)]

    reference, estimate = ({str(n): throng() for n in range(150)} for _ in range(2))
    for collar, rate in ((0.31, 0.5), (0.52, 1.0)):
        counts = check_events(oracles, reference, estimate, LABELS, collar, rate, matching=matching)
        assert counts.substitutions.sum() > 50


class TestHardCases:
    def test_events_past_the_end_of_the_clip(self, oracles):
        reference = {"a": [Event(8, 10, "dog"), Event(9.5, 10, "cat")]}
        estimate = {"a": [Event(8, 13.4, "dog"), Event(9.5, 11, "cat"), Event(12, 14, "owl")]}
        check_both(oracles, reference, estimate)
        check_both(oracles, estimate, reference)

    def test_events_of_no_length(self, oracles):
        reference = {"a": [Event(0, 0, "dog"), Event(2.5, 2.5, "cat"), Event(3, 3, "owl")]}
        estimate = {"a": [Event(0, 0.1, "dog"), Event(2.5, 2.5, "cat"), Event(3, 3, "dog")]}
        check_both(oracles, reference, estimate)
        check_both(oracles, estimate, reference)

    def test_events_of_no_length_alone(self, oracles):
        check_both(oracles, {"a": [Event(0, 0, "dog")]}, {"a": [Event(0, 0, "dog")]})
        check_both(oracles, {"a": [Event(0, 0, "dog")]}, {"a": []})

    def test_overlaps_of_one_class(self, oracles):
        reference = {"a": [Event(0, 4, "dog"), Event(1, 3, "dog"), Event(3.5, 6, "dog")]}
        estimate = {"a": [Event(0.1, 3.2, "dog"), Event(1, 6, "dog"), Event(1.1, 3, "cat")]}
        check_both(oracles, reference, estimate)

    def test_duplicate_events(self, oracles):
        reference = {"a": [Event(1, 2, "dog")] * 3 + [Event(1, 2, "cat")]}
        estimate = {"a": [Event(1, 2, "dog")] * 2 + [Event(1, 2, "owl")] * 3}
        check_both(oracles, reference, estimate)

    def test_files_without_events_in_reference_or_estimate(self, oracles):
        some = [Event(0.2, 1.7, "dog")]
        reference = {"a": some, "b": [], "c": some, "d": []}
        check_both(oracles, reference, {"a": [], "b": some, "c": some, "d": []})

    def test_no_events_at_all(self, oracles):
        check_both(oracles, {"a": []}, {"a": []})
        check_both(oracles, {"a": []}, {"a": [Event(0, 1, "dog")]})
        check_both(oracles, {"a": [Event(0, 1, "dog")]}, {"a": []})

    def test_labels_of_only_reference_or_estimate(self, oracles):
        reference = {"a": [Event(0, 1, "dog"), Event(2, 3, "cat")], "b": [Event(0, 2, "cat")]}
        estimate = {"a": [Event(0, 1, "owl"), Event(2, 3, "cat")], "b": [Event(4, 5, "owl")]}
        check_both(oracles, reference, estimate)

    def test_durations_that_are_no_whole_segments(self, oracles):
        reference = {"a": [Event(0.05, 9.97, "dog")], "b": [Event(0, 3.3, "cat")]}
        estimate = {"a": [Event(0.31, 10.03, "dog")], "b": [Event(0.7, 3.31, "cat")]}
        for resolution in (1.0, 0.3, 0.7, 1 / 3, 4.0, 11.0):
            check_segments(oracles, reference, estimate, LABELS, resolution)

    def test_onsets_and_offsets_on_the_very_edge(self, oracles):
        """At 1.1 and 0.1 the last bit decides whether 1.0 is close, or a segment is active."""
        reference = {"a": [Event(1.0, 2.0, "dog")], "b": [Event(0.3, 0.6, "dog")]}
        for step in (0.1, 0.2, 0.5, 0.7):
            for sign in (-1, 1):
                near = [Event(1.0 + sign * step, 2.0 + sign * step, "dog")]
                estimate = {"a": near, "b": [Event(0.1 * 3, 0.1 * 6, "dog")]}
                check_segments(oracles, reference, estimate, LABELS, step)
                check_events(oracles, reference, estimate, LABELS, step, 0.0)
                check_events(oracles, reference, estimate, LABELS, 0.05, step, (False, True))

    def test_files_missing_from_the_estimate(self, oracles):
        reference = {"a": [Event(0, 1, "dog")], "b": [Event(0, 3, "cat")], "c": []}
        check_both(oracles, reference, {"a": [Event(0, 1, "dog")], "z": [Event(0, 9, "owl")]})
        check_both(oracles, reference, {})
