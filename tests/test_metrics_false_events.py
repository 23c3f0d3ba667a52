"""False events: per minute of negatives, with honest intervals, and against recall elsewhere."""

import json

import numpy as np
import pytest

from earmark.errors import DataError, SettingError
from earmark.formats.events import Event
from earmark.formats.scores import ScoreTable
from earmark.metrics import (
    bootstrap_scores,
    compare_systems,
    count_false_events,
    event_scores,
    false_event_scores,
    recall_curve,
    sweep_min_score,
)
from earmark.metrics.evaluation import Scoring, evaluate
from earmark.metrics.false_events import absent_class_curve
from earmark.metrics.report import score_tables
from earmark.metrics.system_output import SystemOutput
from earmark.plots import draw_evaluation, plot_false_events

DOG, CAT = Event(0, 1, "dog", 0.9), Event(2, 3, "cat", 0.4)


def test_rates_are_events_over_minutes_and_recordings_with_any():
    estimate = {"a.wav": [DOG, DOG, CAT], "b.wav": [CAT], "c.wav": [], "other.wav": [DOG]}
    durations = {"a.wav": 10.0, "b.wav": 20.0, "c.wav": 30.0, "d.wav": 60.0}
    scores = false_event_scores(estimate, durations, ["cat", "dog", "owl"])
    assert scores.overall["false_events"] == {"per_minute": 4 / 2, "recordings": 2 / 4}
    per_minute = {x: own["false_events"]["per_minute"] for x, own in scores.class_wise.items()}
    assert per_minute == {"cat": 1.0, "dog": 1.0, "owl": 0.0}
    assert scores.class_wise["dog"]["false_events"]["recordings"] == 1 / 4
    assert scores.missing_files == ("d.wav",)


def test_the_interval_is_wider_where_the_events_are_all_in_few_recordings():
    durations = {str(at): 60.0 for at in range(60)}
    even = {str(at): [DOG] for at in range(60) if at % 2}
    uneven = {str(at): [DOG] * 10 for at in range(3)}
    widths = []
    for estimate in (even, uneven):
        counts = count_false_events(estimate, durations)
        interval = bootstrap_scores(counts).overall["false_events"]["per_minute"]
        assert interval.value == 0.5
        assert interval.low < 0.5 < interval.high
        widths.append(interval.high - interval.low)
    assert widths[1] > 2 * widths[0]


def test_two_systems_on_the_same_negatives_are_compared():
    durations = {str(at): 60.0 for at in range(20)}
    many = count_false_events({name: [DOG] for name in durations}, durations, ["dog"])
    none = count_false_events({}, durations, ["dog"])
    difference = compare_systems(many, none).overall["false_events"]["per_minute"]
    assert difference.difference == -1
    assert difference.p_value < 0.01


@pytest.mark.parametrize(
    ("durations", "labels", "message"),
    [
        ({}, None, "one recording or more"),
        ({"a.wav": 0.0}, None, "a.wav must be above 0 s. Got 0.0"),
        ({"a.wav": float("nan")}, None, "above 0 s. Got nan"),
        ({"a.wav": 1.0}, ["cat"], "the label 'dog', which is not among the labels cat"),
    ],
)
def test_negatives_that_cannot_be_counted_are_refused(durations, labels, message):
    with pytest.raises(DataError, match=message):
        count_false_events({"a.wav": [DOG]}, durations, labels)


def some_output(rng, n_clips=30, n_negatives=20):
    """A reference, and scored events that are surer where they are right."""
    reference, estimate = {}, {}
    for at in range(n_clips):
        reference[f"{at}.wav"] = [Event(1, 3, "dog")] if at % 2 else []
        found = [Event(1.1, 3, "dog", rng.uniform(0.3, 1))] if at % 2 else []
        estimate[f"{at}.wav"] = found + [Event(5, 6, "cat", rng.uniform(0, 0.7))] * (at % 3 == 0)
    for at in range(n_negatives):
        estimate[f"neg/{at}.wav"] = [Event(0, 1, "owl", rng.uniform(0, 0.7))] * (at % 4)
    return reference, estimate, {f"neg/{at}.wav": 30.0 for at in range(n_negatives)}


def test_a_higher_minimum_score_has_fewer_false_events_and_less_recall():
    reference, estimate, durations = some_output(np.random.default_rng(0))
    curve = recall_curve(sweep_min_score(estimate), durations, reference=reference)
    assert 10 < len(curve) <= 21
    for name in ("per_minute", "recordings", "clip_recall", "event_recall"):
        values = [getattr(point, name) for point in curve]
        assert values == sorted(values, reverse=True), name
        assert values[0] > values[-1], name
    for point in curve:
        kept = {x: [e for e in own if e.score >= point.setting] for x, own in estimate.items()}
        n_false = sum(len(kept[name]) for name in durations)
        assert point.per_minute == pytest.approx(n_false / (0.5 * len(durations)))
        of_clips = {name: kept[name] for name in reference}
        recall = event_scores(reference, of_clips).overall["f_measure"]["recall"]
        assert point.event_recall == recall
    from_tags = recall_curve({0.0: estimate}, durations, tags={x: ["dog"] for x in reference})
    assert np.isnan(from_tags[0].event_recall)
    assert from_tags[0].clip_recall == 0.5


def test_a_curve_that_cannot_be_drawn_is_refused():
    with pytest.raises(SettingError, match=r"tags=.* or reference="):
        recall_curve({}, {"a.wav": 1.0})
    with pytest.raises(DataError, match=r"a\.wav is among the negatives"):
        recall_curve({}, {"a.wav": 1.0}, tags={"a.wav": ["dog"]})
    with pytest.raises(DataError, match="a score for every event"):
        sweep_min_score({"a.wav": [DOG, Event(0, 1, "dog")]})


@pytest.mark.parametrize("score", [0.6, None])
def test_events_of_absent_classes_are_false_with_and_without_scores(score):
    """Without scores every event counts, which is a minimum score of 0."""
    estimate = {"a.wav": [Event(0, 1, "dog", score), Event(2, 3, "cat", score)], "b.wav": []}
    durations, tags = {"a.wav": 20.0, "b.wav": 40.0}, {"a.wav": ["dog"], "b.wav": ["dog"]}
    (point,) = absent_class_curve(estimate, durations, tags)
    assert point.setting == (score or 0.0)
    assert (point.per_minute, point.recordings, point.clip_recall) == (1.0, 0.5, 0.5)


class TestEvaluation:
    def scored(self, **changes):
        reference, estimate, durations = some_output(np.random.default_rng(0))
        scoring = Scoring(n_bootstrap=60, negatives=durations)
        return reference, [SystemOutput("mine", estimate | changes)], scoring

    def test_one_system_with_events_is_enough_for_negatives(self):
        reference, systems, scoring = self.scored()
        tags = SystemOutput("tags", tags=dict.fromkeys(reference, ("dog",)))
        evaluation = evaluate(reference, [*systems, tags], scoring)
        assert ["false_events" in own.scores for own in evaluation.systems] == [True, False]

    def test_negatives_give_false_events_and_a_curve_and_change_no_other_score(self, tmp_path):
        reference, systems, scoring = self.scored()
        evaluation = evaluate(reference, systems, scoring)
        assert not any("neg/" in warning for warning in evaluation.warnings)
        (system,) = evaluation.systems
        plain = evaluate(reference, systems, Scoring(n_bootstrap=0)).systems[0]
        for part in ("segment", "event", "clip", "calibration"):
            assert json.dumps(system.scores[part]) == json.dumps(plain.scores[part])
        false = system.scores["false_events"]
        assert false["overall"]["false_events"]["per_minute"] == pytest.approx(30 / 10)
        assert list(false["class_wise"]) == ["cat", "dog", "owl"]
        interval = system.intervals["false_events"].overall["false_events"]["per_minute"]
        assert interval.low < 3 < interval.high
        values = json.loads(json.dumps(evaluation.to_dict()))
        assert values["false_events"]["curve"][0]["per_minute"] == pytest.approx(3.0)
        tables = {table.title.split(":")[0]: table for table in score_tables(evaluation)}
        assert len(tables["false events and recall"].rows) == len(system.curve)
        assert tables["false_events"].rows[0][:2] == ("overall", "3.000")
        names = [path.name for path in draw_evaluation(tmp_path, *self.outputs(reference, systems),
                                                       evaluation)]  # fmt: skip
        assert {"false_events.png", "reliability.png"} <= set(names)

    def outputs(self, reference, systems):
        return SystemOutput("the reference", reference), systems

    def test_events_without_scores_give_one_point_and_no_calibration(self):
        reference, (system,), scoring = self.scored()
        plain = {
            name: [Event(e.onset, e.offset, e.label) for e in own]
            for name, own in system.events.items()
        }
        (scored,) = evaluate(reference, [SystemOutput("mine", plain)], scoring).systems
        assert len(scored.curve) == 1
        assert "calibration" not in scored.scores

    def test_systems_are_compared_on_negatives_over_the_same_classes(self):
        reference, (system,), scoring = self.scored()
        quiet = {name: own for name, own in system.events.items() if "neg" not in name}
        quiet["neg/0.wav"] = []
        systems = [system, SystemOutput("quiet", quiet)]
        evaluation = evaluate(reference, systems, scoring)
        assert evaluation.systems[0].counts["false_events"].labels == ("cat", "dog", "owl")
        difference = evaluation.differences["quiet"]["false_events"]
        assert difference.overall["false_events"]["per_minute"].difference == pytest.approx(-3.0)
        assert any("19 of 20 negatives are missing" in text for text in evaluation.warnings)

    def test_clips_of_the_reference_without_events_may_be_negatives(self):
        reference, systems, _ = self.scored()
        empty = {name: 10.0 for name, events in reference.items() if not events}
        (system,) = evaluate(reference, systems, Scoring(n_bootstrap=0, negatives=empty)).systems
        n_false = sum(len(systems[0].events[name]) for name in empty)
        per_minute = system.scores["false_events"]["overall"]["false_events"]["per_minute"]
        assert per_minute == pytest.approx(n_false / (len(empty) / 6))
        assert len(system.counts["clip"].files) == len(reference)

    def test_frame_level_scores_of_negatives_are_not_reported_as_unknown(self):
        reference = {"a.wav": [Event(0, 1, "dog")], "b.wav": []}
        scores = ScoreTable(["dog"], {x: ([0, 1, 2], [[0.9], [0.1]]) for x in ("a", "b", "neg")})
        events = {x: [Event(0, 1, "dog", 0.9)] for x in ("a.wav", "b.wav", "neg.wav")}
        output = SystemOutput("mine", events, scores=scores)
        scoring = Scoring(n_bootstrap=0, negatives={"neg.wav": 2.0})
        assert evaluate(reference, [output], scoring).warnings == ()

    def test_negatives_that_cannot_be_used_are_refused(self):
        reference, (system,), scoring = self.scored()
        with pytest.raises(DataError, match=r"1\.wav is among the negatives, but the reference"):
            evaluate(reference, [system], Scoring(negatives={"1.wav": 10.0}))
        with pytest.raises(DataError, match=r"none of the negatives, such as 'x\.wav'"):
            evaluate(reference, [system], Scoring(negatives={"x.wav": 10.0}))
        tags = SystemOutput("tags", tags={name: ["dog"] for name in reference})
        with pytest.raises(SettingError, match="need events"):
            evaluate(reference, [tags], scoring)


def test_curves_are_drawn_at_their_rates_with_their_settings():
    curve = recall_curve(
        {-1.0: {}, 0.0: {"a.wav": [DOG], "neg.wav": [DOG]}},
        {"neg.wav": 30.0},
        reference={"a.wav": [Event(0, 1, "dog")]},
    )
    (axes,) = plot_false_events({"one": curve, "other": curve[:1]}).axes
    assert [line.get_label() for line in axes.lines[:2]] == [
        "one, clip recall",
        "one, event recall",
    ]
    for line in axes.lines[:2]:
        assert line.get_xydata().tolist() == [[0.0, 0.0], [2.0, 1.0]]
    assert [text.get_text() for text in axes.texts] == ["-1", "0"]
