"""Evaluation: every part that the outputs allow for, warnings, and how systems differ."""

import dataclasses
import json
import math

import numpy as np
import pytest

from earmark.errors import DataError, SettingError
from earmark.formats.events import Event, read_events, write_events
from earmark.formats.scores import ScoreTable, write_scores
from earmark.formats.tags import write_tags
from earmark.frames import FrameGrid, FrameScores
from earmark.metrics import (
    SCENARIO_1,
    SCENARIO_2,
    CollarCriterion,
    SegmentCriterion,
    best_scores,
    bootstrap_scores,
    clip_scores,
    compare_systems,
    event_scores,
    psds_scores,
    segment_scores,
    tags_of,
)
from earmark.metrics.evaluation import Scoring, evaluate, parse_psds
from earmark.metrics.report import HEADLINES, score_tables
from earmark.metrics.system_output import SystemOutput, read_durations, read_system_output
from earmark.plots import draw_evaluation

NO_BOOTSTRAP = Scoring(n_bootstrap=0)
LABELS = ("cat", "dog")
COLLARS = {"onset_collar": 0.2, "offset_collar": 0.2, "percentage_of_length": 0.5}


def some_events(seed, n_files=30):
    rng = np.random.default_rng(seed)
    table = {}
    for number in range(n_files):
        onsets = rng.uniform(0, 8, rng.integers(0, 4))
        table[f"{number}.wav"] = [
            Event(onset, onset + rng.uniform(0.5, 2), str(rng.choice(LABELS))) for onset in onsets
        ]
    return table


def some_scores(events, seed):
    rng = np.random.default_rng(seed)
    frame_scores = {}
    for name, of_file in events.items():
        scores = rng.uniform(0, 0.6, (100, 2))
        for event in of_file:
            rows = slice(int(event.onset * 10), int(event.offset * 10) + 1)
            scores[rows, LABELS.index(event.label)] += 0.3
        frame_scores[name] = (np.arange(101) / 10, scores)
    return ScoreTable(LABELS, frame_scores)


@pytest.fixture(scope="module")
def ref():
    return some_events(0)


@pytest.fixture(scope="module")
def frame_scores(ref):
    return some_scores(ref, 1)


class TestParts:
    def test_events_are_scored_as_each_scorer_alone_does(self, ref):
        found = some_events(1)
        scores = evaluate(ref, [SystemOutput("a", found)], NO_BOOTSTRAP).systems[0].scores
        assert list(scores) == ["segment", "event", "clip"]
        assert scores["segment"]["overall"] == segment_scores(ref, found).overall
        assert scores["event"]["overall"] == event_scores(ref, found, **COLLARS).overall

    def test_frame_level_scores_give_ranking_psds_and_best_thresholds(self, ref, frame_scores):
        scores = (
            evaluate(ref, [SystemOutput("a", scores=frame_scores)], NO_BOOTSTRAP).systems[0].scores
        )
        assert list(scores) == ["clip", "psds1", "psds2", "best_segment", "best_event"]
        assert list(scores["clip"]["overall"]) == ["ranking"]
        alone = psds_scores(ref, frame_scores, **SCENARIO_1).value
        assert scores["psds1"]["overall"]["psds"]["psds"] == pytest.approx(alone, abs=1e-12)

    def test_a_reference_of_tags_allows_for_clips_only(self, ref, frame_scores):
        tags = {name: {event.label for event in events} for name, events in ref.items()}
        reference, found = (
            SystemOutput("tags", tags=tags),
            SystemOutput("a", ref, scores=frame_scores),
        )
        scores = evaluate(reference, [found], NO_BOOTSTRAP).systems[0].scores
        assert list(scores) == ["clip"]
        assert scores["clip"]["overall"]["f_measure"]["f_measure"] == 1

    def test_the_order_of_the_columns_of_scores_changes_nothing(self, ref, frame_scores):
        turned = {name: (c.edges, c.scores[:, ::-1]) for name, c in frame_scores.items()}
        systems = [
            SystemOutput("a", scores=frame_scores),
            SystemOutput("b", scores=ScoreTable(LABELS[::-1], turned)),
        ]
        evaluation = evaluate(ref, systems, Scoring(n_bootstrap=50, n_score_bootstrap=50))
        for found in evaluation.differences["b"].values():
            for names in found.overall.values():
                assert all(each.difference == 0 and each.p_value == 1 for each in names.values())

    def test_every_headline_is_a_score_that_exists(self, ref, frame_scores):
        events = {
            name: [dataclasses.replace(event, score=0.5) for event in own]
            for name, own in some_events(1).items()
        }
        output = SystemOutput("a", events | {"negative.wav": []}, scores=frame_scores)
        psds = parse_psds("dtc=0.5 gtc=0.5")
        scoring = Scoring(n_bootstrap=0, psds=psds, negatives={"negative.wav": 10.0})
        scores = evaluate(ref, [output], scoring).systems[0].scores
        for part, path, _ in HEADLINES:
            value = scores[part]
            for name in path:
                value = value[name]
            assert math.isfinite(value)

    def test_a_custom_psds_is_scored_with_its_settings(self, ref, frame_scores):
        scoring = Scoring(n_bootstrap=0, psds=parse_psds("dtc=0.3, gtc=0.3 max_efpr=500"))
        scores = evaluate(ref, [SystemOutput("a", scores=frame_scores)], scoring).systems[0].scores
        alone = psds_scores(ref, frame_scores, dtc=0.3, gtc=0.3, max_efpr=500.0).value
        assert scores["psds"]["overall"]["psds"]["psds"] == pytest.approx(alone, abs=1e-12)

    @pytest.mark.parametrize(
        ("text", "message"),
        [("dtc=0.5", "gtc is missing"), ("dtc", "name=number"), ("dtx=1", "dtc"), ("dtc=x", "'x'")],
    )
    def test_invalid_settings_of_psds_raise(self, text, message):
        with pytest.raises(SettingError, match=message):
            parse_psds(text)


FOUR = ("cat", "cow", "dog", "owl")
EIGHT_SECONDS = {f"{number}.wav": 8.0 for number in range(12)}


@pytest.fixture(scope="module")
def whole():
    """A reference, and events and scores of a system that confuses owls with cows."""
    rng = np.random.default_rng(0)
    ref, found, frame_scores = {}, {}, {}
    for name in EIGHT_SECONDS:
        scores = rng.uniform(0, 0.5, 4) + rng.uniform(0, 0.2, (100, 4))
        ref[name], found[name] = [], []
        for label in rng.choice(["cat", "dog", "owl"], 3).tolist():
            onset = int(rng.integers(3, 70))
            offset = onset + int(rng.integers(8, 20))
            ref[name].append(Event(onset / 10, offset / 10, label))
            onset, offset = (int(edge + rng.integers(-3, 4)) for edge in (onset, offset))
            estimated = "cow" if label == "owl" else label
            found[name].append(Event(onset / 10, offset / 10, estimated))
            scores[onset:offset, FOUR.index(label)] += 0.4
        frame_scores[name] = (np.arange(101) * 0.10000000001, scores)  # tenths, if rounded
    return ref, found, ScoreTable(FOUR, frame_scores)


def score_alone(whole, part, other):
    """The result of a part's scorer alone, with `other` arguments than the defaults."""
    ref, found, frame_scores = whole
    peaks = {name: frame_scores[name].scores.max(axis=0) for name in ref}
    scorer, arguments, usual = {
        "segment": (segment_scores, (ref, found, FOUR), {}),
        "event": (event_scores, (ref, found, FOUR), COLLARS),
        "clip": (clip_scores, (tags_of(ref), tags_of(found), peaks, FOUR), {}),
        "psds1": (psds_scores, (ref, frame_scores), SCENARIO_1),
        "psds2": (psds_scores, (ref, frame_scores), SCENARIO_2),
        "psds": (psds_scores, (ref, frame_scores), {"dtc": 0.5, "gtc": 0.5}),
        "best_segment": (
            best_scores,
            (ref, frame_scores),
            {"criterion": SegmentCriterion(1.0)},
        ),
        "best_event": (
            best_scores,
            (ref, frame_scores),
            {"criterion": CollarCriterion(**COLLARS)},
        ),
    }[part]
    return json.dumps(scorer(*arguments, **usual | other).to_dict())


def collars(**other):
    """Other collars, for the two parts that have collars."""
    criterion = CollarCriterion(**COLLARS | other)
    return {"event": other, "best_event": {"criterion": criterion}}


ZERO, OF_SED_EVAL, SHORT = (
    {"empty_as_zero": True},
    {"as_sed_eval": True},
    {"durations": EIGHT_SECONDS},
)
OWN_PSDS = {"dtc": 0.3, "gtc": 0.3, "max_efpr": 500.0}
ROUNDED = {"best_event": {"criterion": CollarCriterion(**COLLARS, decimals=6)}}
# A setting, and for each part that it changes the arguments of its scorer.
SETTINGS = [
    ({}, {}),
    (
        {"resolution": 0.5},
        {"segment": {"resolution": 0.5}, "best_segment": {"criterion": SegmentCriterion(0.5)}},
    ),
    ({"onset_collar": 0.1}, collars(onset_collar=0.1)),
    ({"offset_collar": 1.0}, collars(offset_collar=1.0)),
    ({"percentage_of_length": 0.0}, collars(percentage_of_length=0.0)),
    (ZERO, {"segment": ZERO, "event": ZERO, "clip": ZERO}),
    (OF_SED_EVAL, {"segment": OF_SED_EVAL, "event": OF_SED_EVAL}),
    (
        {"as_sed_scores_eval": True},
        ROUNDED | {"best_segment": {"criterion": SegmentCriterion(1.0, decimals=6)}},
    ),
    (SHORT, {"psds1": SHORT, "psds2": SHORT}),
    (
        SHORT | {"as_sed_scores_eval": True},
        ROUNDED
        | {"psds1": SHORT, "psds2": SHORT}
        | {"best_segment": {"criterion": SegmentCriterion(1.0, 6, EIGHT_SECONDS)}},
    ),
    ({"psds": OWN_PSDS}, {"psds": OWN_PSDS}),
]
# Settings of the bootstrap, the number of samples for events and that for frame-level scores.
BOOTSTRAP = [
    ({"n_bootstrap": 60, "n_score_bootstrap": 200}, 60, 60),
    ({"n_bootstrap": 90, "n_score_bootstrap": 50}, 90, 50),
    ({"n_bootstrap": 50, "level": 0.8}, 50, 50),
    ({"n_bootstrap": 50, "seed": 3}, 50, 50),
]


def message(cases):
    return [" ".join(case[0]) or "as they are" for case in cases]


class TestSettings:
    @pytest.mark.parametrize(("changed", "others"), SETTINGS, ids=message(SETTINGS))
    def test_a_setting_changes_its_parts_only_and_as_their_scorers_do(self, whole, changed, others):
        ref, found, frame_scores = whole
        scoring = Scoring(n_bootstrap=0, **changed)
        parts = (
            evaluate(ref, [SystemOutput("a", found, scores=frame_scores)], scoring)
            .systems[0]
            .to_dict()
        )
        assert set(parts) >= {"segment", "event", "clip", "psds1", "psds2"} | others.keys()
        for part, scores in parts.items():
            alone = score_alone(whole, part, others.get(part, {}))
            assert json.dumps(scores) == alone, part
            assert (alone != score_alone(whole, part, {})) == (part in others), part

    @pytest.mark.parametrize(
        ("changed", "n_of_events", "n_of_scores"), BOOTSTRAP, ids=message(BOOTSTRAP)
    )
    def test_bootstrap_samples_and_permutations_are_as_many_as_configured(
        self, whole, changed, n_of_events, n_of_scores
    ):
        ref, found, frame_scores = whole
        turned = {name: (c.edges, c.scores[::-1]) for name, c in frame_scores.items()}
        systems = [
            SystemOutput("a", found, scores=frame_scores),
            SystemOutput("b", ref, scores=ScoreTable(FOUR, turned)),
        ]
        scoring = Scoring(**changed, psds=OWN_PSDS)
        evaluation = evaluate(ref, systems, scoring)
        a, b = evaluation.systems
        assert len(a.intervals) == len(evaluation.differences["b"]) == 8
        for part, of_a in a.counts.items():
            n_bootstrap = n_of_events if part in ("segment", "event", "clip") else n_of_scores
            ways = {"level": 0.95, "seed": 0} | {
                name: value for name, value in changed.items() if name in ("level", "seed")
            }
            alone = bootstrap_scores(of_a, n_bootstrap=n_bootstrap, **ways).to_dict()
            assert json.dumps(a.intervals[part].to_dict()) == json.dumps(alone), part
            difference = compare_systems(
                of_a, b.counts[part], n_bootstrap=n_bootstrap, n_permutations=n_bootstrap, **ways
            ).to_dict()
            message = evaluation.differences["b"][part].to_dict()
            assert json.dumps(message) == json.dumps(difference), part

    def test_every_setting_there_is_has_been_tried_above(self):
        tried = {name for changed, *_ in SETTINGS + BOOTSTRAP for name in changed}
        tried.add("negatives")  # tests/test_metrics_false_events.py
        assert tried == {field.name for field in dataclasses.fields(Scoring)}

    def test_a_clip_scores_as_high_as_its_highest_frame(self):
        reference = SystemOutput("tags", tags={"a": ["dog"], "b": []})
        frame_scores = {"a": [[0.0], [0.9], [0.0]], "b": [[0.5], [0.5], [0.5]]}
        frame_scores = {name: ([0, 1, 2, 3], scores) for name, scores in frame_scores.items()}
        output = SystemOutput("x", scores=ScoreTable(["dog"], frame_scores))
        clip = evaluate(reference, [output], NO_BOOTSTRAP).systems[0].scores["clip"]
        assert clip["class_wise"]["dog"]["ranking"]["roc_auc"] == 1


class TestIntervals:
    def test_every_score_lies_in_an_interval(self, ref):
        evaluation = evaluate(ref, [SystemOutput("a", some_events(1))])
        for found in evaluation.systems[0].intervals.values():
            for names in found.overall.values():
                assert all(x.low <= x.value <= x.high for x in names.values())

    def test_a_better_system_differs_significantly_from_a_worse_one(self, ref):
        half = {name: events[:1] for name, events in ref.items()}
        evaluation = evaluate(ref, [SystemOutput("half", half), SystemOutput("all", ref)])
        found = evaluation.differences["all"]["segment"].overall["f_measure"]["f_measure"]
        assert found.difference > 0 < found.low
        assert found.p_value < 0.05

    def test_a_single_file_has_scores_and_a_warning_instead_of_intervals(self):
        one = {"a.wav": [Event(0, 1, "dog")]}
        evaluation = evaluate(one, [SystemOutput("a", one)])
        assert evaluation.systems[0].intervals == {}
        assert "one file" in evaluation.warnings[-1]

    def test_systems_of_which_only_one_has_scores_are_compared_in_what_both_have(
        self, ref, frame_scores
    ):
        systems = [
            SystemOutput("a", ref),
            SystemOutput("b", ref, scores=frame_scores),
        ]
        evaluation = evaluate(ref, systems, Scoring(n_bootstrap=50, n_score_bootstrap=50))
        assert list(evaluation.differences["b"]) == ["segment", "event"]
        assert any("clip of b has no p-value" in warning for warning in evaluation.warnings)


class TestWarnings:
    def test_files_and_labels_of_only_one_table_give_warnings(self):
        reference = {"a": [Event(0, 1, "dog")], "b": [Event(0, 1, "cat")]}
        found = {"a": [Event(0, 1, "owl")], "z": [Event(0, 1, "dog")]}
        message = " ".join(
            evaluate(reference, [SystemOutput("mine", found)], NO_BOOTSTRAP).warnings
        )
        assert "1 files of the reference are missing from mine, such as 'b'" in message
        assert "1 files of mine are not in the reference, such as 'z': ignored" in message
        assert "1 labels of mine are not in the reference: 'owl'" in message
        assert (
            "2 labels of the reference are not in mine: 'cat', 'dog'" in message
        )  # the dog in z is ignored

    def test_most_events_from_the_end_of_the_reference_on_are_reported(self):
        reference = {"a": [Event(0, 2, "dog")]}
        found = {"a": [Event(0, 1, "dog"), Event(2, 3, "dog"), Event(2.5, 3, "dog")]}
        late = evaluate(reference, [SystemOutput("mine", found)], NO_BOOTSTRAP).warnings
        assert any("2 of 3 events of mine start after the last event" in x for x in late)
        half = SystemOutput("mine", {"a": found["a"][:2]})
        early = evaluate(reference, [half], NO_BOOTSTRAP).warnings
        assert not any("start after" in x for x in early)

    def test_scores_without_a_file_of_the_reference_are_an_error(self):
        reference = {"a": [Event(0, 1, "dog")], "b": [Event(0, 1, "dog")]}
        scores = ScoreTable(["dog"], {"a": ([0, 1], [[0.9]])})
        system = SystemOutput("mine", reference, scores=scores)
        message = "1 of 2 files of the reference have no frame-level scores in mine, such as 'b'"
        with pytest.raises(DataError, match=message):
            evaluate(reference, [system], NO_BOOTSTRAP)

    @pytest.mark.parametrize("whose", ["the reference", "mine"])
    def test_scores_without_a_class_of_the_events_are_an_error(self, whose):
        dogs, both = ([Event(0, 1, x) for x in labels] for labels in (["dog"], ["cat", "dog"]))
        reference, found = (both, dogs) if whose == "the reference" else (dogs, both)
        scores = ScoreTable(["dog"], {"a": ([0, 1], [[0.9]])})
        system = SystemOutput("mine", {"a": found}, scores=scores)
        message = f"{whose} has the label 'cat', but the frame-level scores of mine have no such"
        with pytest.raises(DataError, match=message):
            evaluate({"a": reference}, [system], NO_BOOTSTRAP)

    def test_a_system_without_any_output_is_an_error(self):
        with pytest.raises(SettingError, match="output of mine is empty"):
            SystemOutput("mine")

    @pytest.mark.parametrize("label", ["Dog bark", "dog_bark ", "DOG-BARK"])
    def test_labels_that_differ_in_case_or_spaces_only_are_named(self, label):
        reference = {"a": [Event(0, 1, "dog_bark"), Event(1, 2, "cat")]}
        found = {"a": [Event(0, 1, label), Event(1, 2, "cat")]}
        evaluation = evaluate(reference, [SystemOutput("mine", found)], NO_BOOTSTRAP)
        named = [x for x in evaluation.warnings if "differs only in case" in x]
        assert len(named) == 1
        assert repr(label) in named[0] and "'dog_bark'" in named[0]
        same = evaluate(reference, [SystemOutput("mine", reference)], NO_BOOTSTRAP)
        assert not same.warnings

    def test_a_class_that_is_never_detected_is_marked_beside_the_class_mean(self):
        reference = {"a": [Event(0, 1, "dog"), Event(2, 3, "cat")]}
        system = SystemOutput("mine", {"a": [Event(0, 1, "dog")]})
        evaluation = evaluate(reference, [system], NO_BOOTSTRAP)
        assert any("1 in segment" in x and "'cat'" in x for x in evaluation.warnings)
        rows = dict(score_tables(evaluation)[0].rows)
        assert rows["segment F1, class mean"] == "1.000, 1 of 2 classes"
        zero = dataclasses.replace(NO_BOOTSTRAP, empty_as_zero=True)
        evaluation = evaluate(reference, [system], zero)
        assert not any("leave out" in x for x in evaluation.warnings)
        assert dict(score_tables(evaluation)[0].rows)["segment F1, class mean"] == "0.500"

    def test_a_best_score_below_that_of_the_events_is_explained(self):
        grid = FrameGrid(1.0)
        frames = FrameScores([[0.9, 0.2], [0.1, 0.6], [0.8, 0.1]], ["cat", "dog"], grid)
        # One threshold cannot have both: cat is right above 0.85, dog above 0.15.
        reference = {"a": [Event(0, 1, "cat"), Event(0, 2, "dog")]}
        table = ScoreTable(("cat", "dog"), {"a": frames})
        system = SystemOutput("mine", reference, scores=table)
        evaluation = evaluate(reference, [system], NO_BOOTSTRAP)
        assert any(x.startswith("best segment F1 of mine") for x in evaluation.warnings)
        assert all("1.000" in x for x in evaluation.warnings if x.startswith("best"))

    def test_rows_without_length_are_counted(self, tmp_path):
        (tmp_path / "r.tsv").write_text("a.wav\t0\t1\tdog\na.wav\t0\t0\tcat\n")
        output = read_system_output(tmp_path / "r.tsv")
        evaluation = evaluate(output, [SystemOutput("a", {"a.wav": []})], NO_BOOTSTRAP)
        assert any("1 rows of" in warning for warning in evaluation.warnings)

    def test_no_common_file_is_an_error_that_shows_both_names(self):
        with pytest.raises(DataError, match=r"'b\.wav' and 'a\.wav'"):
            evaluate({"a.wav": [Event(0, 1, "dog")]}, [SystemOutput("x", {"b.wav": []})])

    def test_a_reference_without_events_is_an_error(self):
        with pytest.raises(DataError, match="no events or tags to compare with"):
            evaluate({"a.wav": []}, [SystemOutput("x", {"a.wav": []})])

    def test_a_class_without_a_column_of_scores_is_an_error(self, frame_scores):
        reference = {name: [Event(0, 1, "owl")] for name in frame_scores}
        with pytest.raises(DataError, match="owl"):
            evaluate(reference, [SystemOutput("x", scores=frame_scores)], NO_BOOTSTRAP)

    def test_systems_need_different_names(self, ref):
        with pytest.raises(SettingError, match="each with its own name"):
            evaluate(
                ref,
                [SystemOutput("a", ref), SystemOutput("a", ref)],
            )


class TestReading:
    def test_a_table_of_tags_is_known_by_its_header_or_on_request(self, tmp_path):
        write_tags(tmp_path / "tags.tsv", {"a.wav": ["dog"]})
        assert read_system_output(tmp_path / "tags.tsv").tags == {"a.wav": ("dog",)}
        (tmp_path / "bare.tsv").write_text("a.wav\tdog\n")
        assert read_system_output(tmp_path / "bare.tsv", weak=True).tags == {"a.wav": ("dog",)}

    def test_a_folder_of_scores_is_read_alone_or_with_a_table(self, tmp_path, ref, frame_scores):
        write_scores(tmp_path / "scores", frame_scores)
        write_events(tmp_path / "estimate.tsv", ref)
        assert read_system_output(tmp_path / "scores").events is None
        both = read_system_output(tmp_path / "estimate.tsv", tmp_path / "scores")
        assert both.scores is not None and both.events is not None
        with pytest.raises(SettingError, match="Pass a table"):
            read_system_output(tmp_path / "scores", tmp_path / "scores")

    def test_durations_come_from_a_table(self, tmp_path, ref, frame_scores):
        path = tmp_path / "durations.tsv"
        path.write_text("filename\tduration\n" + "".join(f"{n}\t20\n" for n in ref))
        scoring = Scoring(n_bootstrap=0, durations=read_durations(path))
        longer = (
            evaluate(ref, [SystemOutput("a", scores=frame_scores)], scoring)
            .systems[0]
            .counts["psds1"]
        )
        assert longer.durations.tolist() == [20.0] * len(ref)
        path.write_text("a.wav\t10\na.wav\t11\n")
        with pytest.raises(
            DataError, match=r"durations.tsv:2: the duration of a.wav is 11 s here and 10 s"
        ):
            read_durations(path)


class TestReports:
    def test_json_has_the_names_of_sed_eval_and_no_nan_is_lost(self, ref):
        output = SystemOutput("a", some_events(1))
        plain = evaluate(ref, [output], Scoring(n_bootstrap=100)).to_dict()
        again = json.loads(json.dumps(plain))
        assert set(again) == {"segment", "event", "clip", "warnings"}
        assert set(again["segment"]["overall"]["error_rate"]) == {
            "error_rate",
            "substitution_rate",
            "deletion_rate",
            "insertion_rate",
        }
        interval = again["segment"]["intervals"]["overall"]["error_rate"]["error_rate"]
        assert interval["low"] <= interval["value"] <= interval["high"]

    def test_tables_show_every_system_class_and_difference(self, ref, frame_scores):
        systems = [SystemOutput("one", some_events(1)), SystemOutput("two", some_events(2))]
        tables = score_tables(evaluate(ref, systems, Scoring(n_bootstrap=100)))
        assert [table.title.split(":")[0] for table in tables[2:5]] == ["segment", "event", "clip"]
        assert tables[1].columns == ("", "A", "B", "B - A", "interval", "p")
        assert [row[0] for row in tables[2].rows] == ["overall", "class mean", "cat", "dog"]
        best = score_tables(evaluate(ref, [SystemOutput("a", scores=frame_scores)], NO_BOOTSTRAP))[
            -2
        ]
        assert best.title == "best_segment: a"
        assert [row[0] for row in best.rows[-2:]] == ["cat", "dog"]
        text = tables[2].to_markdown()
        assert text.count("\n") == 3 + len(tables[2].rows)

    def test_every_possible_figure_is_drawn(self, tmp_path, ref, frame_scores):
        systems = [SystemOutput("a", some_events(1), scores=frame_scores)]
        evaluation = evaluate(ref, systems, Scoring(n_bootstrap=50, n_score_bootstrap=50))
        output = SystemOutput("ref", ref)
        names = {path.name for path in draw_evaluation(tmp_path, output, systems, evaluation)}
        assert names == {
            "segment_f1.png",
            "event_f1.png",
            "clip_f1.png",
            "confusion_1.png",
            "precision_recall_1.png",
            "psd_roc1_1.png",
            "psd_roc2_1.png",
        }
        assert all((tmp_path / name).stat().st_size > 5000 for name in names)


def test_the_whole_evaluation_set_of_dcase_is_scored(dcase2017):
    path = dcase2017 / "groundtruth_strong_label_evaluation_set.csv"
    whole = {
        name: [Event(0, 10, label) for label in {event.label for event in found}]
        for name, found in read_events(path).items()
    }
    evaluation = evaluate(
        read_system_output(path), [SystemOutput("tags", whole)], Scoring(n_bootstrap=200)
    )
    assert evaluation.n_files == 1103
    rates = evaluation.systems[0].intervals["segment"].overall["error_rate"]["error_rate"]
    assert round(rates.value, 3) == 0.321
    assert 0.28 < rates.low < rates.value < rates.high < 0.37
    assert any("150 rows" in warning for warning in evaluation.warnings)
