"""PSDS and best thresholds equal those of sed_scores_eval 0.0.4, on real and random lists."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from earmark.formats.events import Event, read_events
from earmark.formats.names import stem_of
from earmark.formats.scores import ScoreTable
from earmark.metrics.best_thresholds import (
    CollarCriterion,
    IntersectionCriterion,
    SegmentCriterion,
    best_scores,
    count_thresholds,
)
from earmark.metrics.psds import SCENARIO_1, SCENARIO_2, count_psds, psds_scores
from oracles import OracleError, plain

SETTINGS = [
    SCENARIO_1,
    SCENARIO_2,
    SCENARIO_1 | {"max_efpr": 3000.0, "alpha_st": 0.0},
    {"dtc": 0.5, "gtc": 0.5, "cttc": 0.3, "alpha_ct": 1.0, "alpha_st": 0.5, "max_efpr": 800.0},
    {"dtc": 1.0, "gtc": 0.3, "alpha_st": 0.0, "max_efpr": 2.0, "unit_of_time": "minute"},
    {
        "dtc": 0.3,
        "gtc": 1.0,
        "cttc": 1.0,
        "alpha_ct": 0.2,
        "alpha_st": 0.0,
        "max_efpr": 0.5,
        "unit_of_time": "second",
    },
]
THEIRS = {"dtc": "dtc_threshold", "gtc": "gtc_threshold", "cttc": "cttc_threshold"}


def merged(events):
    """Merge events of one class that overlap or touch: sed_scores_eval rejects them."""
    apart = []
    for event in sorted(events, key=lambda e: (e.label, e.onset, e.offset)):
        last = apart[-1] if apart else None
        if last and last.label == event.label and event.onset <= last.offset:
            apart[-1] = Event(last.onset, max(last.offset, event.offset), event.label)
        else:
            apart.append(event)
    return apart


class Asker:
    """sed_scores_eval with the same arguments as ours."""

    def __init__(self, oracles, folder):
        self.oracles, self.path = oracles, folder / "scores.npz"

    def ask(self, question, reference, frame_scores, **values):
        names = [stem_of(name) for name in reference]
        own = [frame_scores[name] for name in names]
        np.savez(
            self.path,
            names=names,
            labels=frame_scores.labels,
            lengths=[len(file_scores.scores) for file_scores in own],
            edges=np.concatenate([file_scores.edges for file_scores in own]),
            scores=np.concatenate([file_scores.scores for file_scores in own]),
        )
        apart = {stem_of(name): merged(events) for name, events in reference.items()}
        return self.oracles.ask(question, reference=plain(apart), scores=str(self.path), **values)

    def psds(self, reference, frame_scores, durations=None, **setting):
        seconds = {name: frame_scores[name].duration for name in frame_scores}
        seconds |= {stem_of(name): value for name, value in (durations or {}).items()}
        given = {THEIRS.get(name, name): value for name, value in setting.items()}
        return self.ask("psds", reference, frame_scores, durations=seconds, **given)


@pytest.fixture(scope="module")
def asker(oracles, tmp_path_factory):
    return Asker(oracles, tmp_path_factory.mktemp("scores"))


@pytest.fixture(scope="module")
def ref(dcase2017):
    return {
        part: read_events(dcase2017 / f"groundtruth_strong_label_{part}_set.csv")
        for part in ("evaluation", "testing")
    }


def make_scores(reference, rng, n_frames=125, hop=0.08, step=0.0, smooth=1):
    """Noise, higher near the events; some columns are constant."""
    labels = sorted({event.label for events in reference.values() for event in events})
    frame_scores = {}
    for name, events in reference.items():
        length = n_frames if rng.random() < 0.7 else int(rng.integers(1, n_frames + 1))
        edges = np.arange(length + 1) * hop
        if rng.random() < 0.2:
            edges = edges + np.append(0, np.cumsum(rng.uniform(0, hop, length)))
        logits = rng.normal(-1, 1, (length + smooth - 1, len(labels)))
        logits = sum(logits[at : at + length] for at in range(smooth)) / np.sqrt(smooth)
        for event in events:
            onset, offset = rng.normal([event.onset, event.offset], 0.3)
            inside = (edges[:-1] >= onset) & (edges[1:] <= offset)
            logits[inside, labels.index(event.label)] += rng.uniform(0, 4)
        if rng.random() < 0.1:
            logits[:, rng.integers(len(labels))] = 0.5
        frame_scores[name] = (edges, np.round(logits / step) * step if step else logits)
    return ScoreTable(labels, frame_scores)


def disturb(reference, rng):
    """Some files of a table, with events past the end, of length 0 or overlapping."""
    names = rng.choice(list(reference), rng.integers(2, 6), replace=False)
    table = {}
    for name in names.tolist():
        events = []
        for event in reference[name]:
            onset = max(0.0, event.onset + rng.choice([0, 0, 0.04, -0.3, 6.0]))
            length = event.duration * rng.choice([1, 1, 0.3, 2.0, 0])
            events.append(Event(onset, onset + length, event.label))
            if rng.random() < 0.2:
                events.append(Event(onset + length / 2, onset + 2 * length, event.label))
        table[name] = events if rng.random() < 0.9 else []
    if not any(table.values()):
        table[names[0]] = [Event(1.0, 2.0, "Car")]
    return table


def has_a_still_class(deltas, labels):
    """Whether no count of some class changes at any threshold: sed_scores_eval fails there."""

    def is_still(own):
        return not any(own.values[:, own.score == score].sum(axis=1).any() for score in own.score)

    return any(is_still(own) for own in deltas.split_by_class(len(labels)))


def check_psds(asker, reference, frame_scores, **setting):
    if len(frame_scores.labels) == 1:  # sed_scores_eval fails where there is no other class
        setting |= {"cttc": None, "alpha_ct": 0.0}
    ours = psds_scores(reference, frame_scores, **setting)
    try:
        theirs = asker.psds(reference, frame_scores, **setting)
    except OracleError:
        assert has_a_still_class(
            count_psds(reference, frame_scores, **setting).deltas, frame_scores.labels
        )
        assert min(ours.class_wise.values()) == 0
        return
    assert ours.value == pytest.approx(theirs["value"], abs=1e-9)
    assert ours.class_wise == pytest.approx(theirs["by_class"], abs=1e-9)
    for roc, (tpr, efpr) in [
        (ours.roc, theirs["roc"]),
        *((ours.class_rocs[label], theirs["rocs"][label]) for label in frame_scores.labels),
    ]:
        if not setting.get("alpha_ct"):
            np.testing.assert_allclose(roc.tpr, tpr, atol=1e-9)
            np.testing.assert_allclose(roc.efpr, efpr, atol=1e-9)
        # Equal rates that differ in the last bit are two points here: compare the areas.
        twin = type(roc)(np.array(efpr), np.array(tpr))
        for part in (0.01, 0.1, 0.37, 0.8, 1.0):
            bound = part * setting.get("max_efpr", 100.0)
            assert roc.area(bound) == pytest.approx(twin.area(bound), abs=1e-9)


@pytest.mark.parametrize("block", range(10))
def test_psds_of_disturbed_real_lists_is_equal(asker, ref, block):
    rng = np.random.default_rng(block)
    for case in range(24):
        reference = disturb(ref["evaluation"], rng)
        step = [0.0, 0.1, 0.5, 1.0][case % 4]
        frame_scores = make_scores(
            reference, rng, n_frames=40, hop=0.25, step=step, smooth=1 + case % 5
        )
        check_psds(asker, reference, frame_scores, **SETTINGS[case % 6])


def test_psds_of_the_whole_evaluation_set_is_equal(asker, ref):
    reference = ref["evaluation"]
    frame_scores = make_scores(reference, np.random.default_rng(0), smooth=9)
    check_psds(asker, reference, frame_scores, **SCENARIO_1)
    check_psds(
        asker, reference, frame_scores, **SCENARIO_1 | {"dtc": 0.2, "gtc": 0.2, "alpha_st": 0.0}
    )


def test_psds_of_the_whole_testing_set_with_cross_triggers_is_equal(asker, ref):
    frame_scores = make_scores(ref["testing"], np.random.default_rng(1), smooth=9, step=0.01)
    check_psds(asker, ref["testing"], frame_scores, **SCENARIO_2)


def test_durations_beyond_the_scores_are_used_alike(asker, ref):
    rng = np.random.default_rng(3)
    reference = disturb(ref["evaluation"], rng)
    frame_scores = make_scores(reference, rng, n_frames=40, hop=0.25)
    durations = dict.fromkeys(reference, 30.0)
    theirs = asker.psds(reference, frame_scores, durations, **SETTINGS[2])
    ours = psds_scores(reference, frame_scores, durations=durations, **SETTINGS[2])
    assert ours.value == pytest.approx(theirs["value"], abs=1e-9)


@st.composite
def small_cases(draw):
    """Few frames, many ties, and events anywhere."""
    labels = ["cat", "dog", "owl"][: draw(st.integers(1, 3))]
    n_frames = draw(st.integers(1, 12))
    step = draw(st.sampled_from([0.1, 0.25, 1 / 3]))
    reference, frame_scores = {}, {}
    for name in ("a", "b")[: draw(st.integers(1, 2))]:
        scores = draw(
            st.lists(
                st.integers(0, 4), min_size=n_frames * len(labels), max_size=n_frames * len(labels)
            )
        )
        frame_scores[name] = (
            np.arange(n_frames + 1) * step,
            np.reshape(scores, (n_frames, len(labels))),
        )
        reference[name] = []
    first = draw(st.sampled_from(sorted(reference)))
    for label in labels:  # each has at least one event: sed_scores_eval needs it
        for name in {first, draw(st.sampled_from(sorted(reference)))}:
            onset = draw(st.integers(0, 14)) * step
            reference[name].append(
                Event(onset, onset + draw(st.integers(0, 6)) * step * 0.5, label)
            )
    return reference, ScoreTable(labels, frame_scores)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(small_cases(), st.sampled_from(SETTINGS))
def test_psds_of_small_cases_is_equal(asker, case, setting):
    check_psds(asker, *case, **setting)


CRITERIA = {
    "segment": [
        (SegmentCriterion(1.0, 6), {"segment_length": 1.0}),
        (SegmentCriterion(0.1, 6), {"segment_length": 0.1}),
        (SegmentCriterion(0.3, 6), {"segment_length": 0.3}),
    ],
    "collar": [
        (
            CollarCriterion(collar, collar, rate, 6),
            {"onset_collar": collar, "offset_collar": collar, "offset_collar_rate": rate},
        )
        for collar, rate in ((0.2, 0.2), (0.5, 0.5), (1.5, 0.0))
    ],
    "intersection": [
        (IntersectionCriterion(dtc, gtc), {"dtc_threshold": dtc, "gtc_threshold": gtc})
        for dtc, gtc in ((0.7, 0.7), (0.1, 0.1), (0.5, 1.0))
    ],
}


def check_bests(asker, kind, criterion, given, reference, frame_scores):
    reference = {name: merged(events) for name, events in reference.items()}
    ours = best_scores(reference, frame_scores, criterion)
    try:
        theirs = asker.ask("best", reference, frame_scores, kind=kind, **given)
    except OracleError:
        deltas = count_thresholds(reference, frame_scores, criterion).deltas
        assert has_a_still_class(deltas, frame_scores.labels)
        return
    for name in ("f_measure", "error_rate"):
        mean = theirs[name].pop("macro_average")
        theirs[name].pop("micro_average", None)
        assert ours.class_wise_average[name] == pytest.approx(mean, abs=1e-9)
        own = {label: bests[name].value for label, bests in ours.class_wise.items()}
        assert own == pytest.approx(theirs[name], abs=1e-9)
    for label in frame_scores.labels:
        best = ours.class_wise[label]["f_measure"]
        if best.value:
            assert 2 / (1 / best.precision + 1 / best.recall) == pytest.approx(best.value)


@pytest.mark.parametrize("kind", CRITERIA)
@pytest.mark.parametrize("block", range(3))
def test_best_scores_of_disturbed_real_lists_are_equal(asker, ref, kind, block):
    rng = np.random.default_rng(block)
    for case in range(9):
        reference = disturb(ref["evaluation"], rng)
        if (
            kind == "segment"
        ):  # without a segment it has no recall, and an event on an edge has none
            reference = {
                name: [Event(e.onset, e.offset + 0.01, e.label) for e in events]
                for name, events in reference.items()
            }
        step = [0.0, 0.1, 0.5][block]
        frame_scores = make_scores(
            reference, rng, n_frames=40, hop=0.25, step=step, smooth=1 + case % 5
        )
        check_bests(asker, kind, *CRITERIA[kind][case % 3], reference, frame_scores)


@pytest.mark.parametrize("kind", CRITERIA)
def test_best_scores_of_the_whole_testing_set_are_equal(asker, ref, kind):
    frame_scores = make_scores(ref["testing"], np.random.default_rng(2), smooth=9)
    check_bests(asker, kind, *CRITERIA[kind][0], ref["testing"], frame_scores)


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(small_cases(), st.integers(0, 2))
def test_best_scores_of_small_cases_are_equal(asker, case, number):
    for kind in ("collar", "intersection"):
        check_bests(asker, kind, *CRITERIA[kind][number], *case)
