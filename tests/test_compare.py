"""Comparisons: runs resume and are never repeated, and the statistics can be checked by hand."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tones import write_tones
from typer.testing import CliRunner

from earmark.cli import app
from earmark.errors import DataError, SettingError
from earmark.experiments import Plan, RunResult, compare_results, run_plan, table, write_tables
from earmark.experiments.compare import TEST_READ, choose_validation, read_result, read_results
from earmark.experiments.configurations import Pair
from earmark.experiments.run import FIRST_NAMES, RunOutput, Workspace, execute_run
from earmark.experiments.table import METRICS, TUNINGS, comparison_tables
from earmark.files import locked
from earmark.formats.events import read_events
from earmark.inference.decoding import decode_events
from earmark.inference.detector import Detector
from earmark.inference.ensemble import Ensemble, mean_scores
from earmark.inference.model_file import load_bundle
from earmark.inference.tuning import DECISIONS, default_rule, tune_clip_thresholds
from earmark.metrics.clip import clip_scores, tags_of
from earmark.metrics.segment import segment_scores
from earmark.training.api import MODEL, PSEUDO_LABELS
from earmark.training.checkpoint import HISTORY
from earmark.training.settings import Settings

OURS = [name for name in TUNINGS if name != "published"]  # of a network without its own stage
BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
PLAN = """
preset = "fast"

[data]
train = "train_weak.tsv"
valid = "valid_weak.tsv"
test = "test_strong.tsv"
train_events = "train_strong.tsv"
valid_events = "valid_strong.tsv"

[settings.features]
sample_rate = 8000
n_mels = 16
f_max = 4000

[settings.model]
channels = [8, 8, 8, 8]
last_channels = 16
n_recurrent = 8
dropout = 0.0

[settings.training]
batch_size = 8
learning_rate = 0.005
max_epochs = 2
threads = 1

[grid]
seeds = 2

[grid.structure]
single = {model.stages = []}
hierarchical = {model.stages = [5, 5]}

[configurations.oracle]
seeds = 1
compare_with = "single"
strong = true
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("compare")
    for seed, part in enumerate(("train", "valid", "test")):
        write_tones(home, 12, seed=seed, prefix=part)
    (home / "plan.toml").write_text(PLAN)
    return home


@pytest.fixture(scope="module")
def results(home):
    return run_plan(Plan.read(home / "plan.toml"), home / "out", home / "work", processes=1)


def test_a_plan_runs_the_first_seed_of_every_configuration_first(home):
    runs = Plan.read(home / "plan.toml").runs()
    assert [run.key for run in runs] == [
        "single-seed0", "hierarchical-seed0", "oracle-seed0", "single-seed1", "hierarchical-seed1",
    ]  # fmt: skip
    assert runs[1].settings.model.stages == (5, 5)
    assert runs[3].settings.training.seed == 1
    assert Plan.read(home / "plan.toml").pairs() == [
        ("single", "hierarchical", "hierarchical minus single"),
        ("single", "oracle", ""),
    ]


def test_every_run_leaves_a_result_with_all_scores(home, results):
    assert len(results) == 5
    for result in results:
        assert result.scores["clip_and_frame"].keys() == result.scores["strong"].keys()
        assert 0 <= result.scores["threshold_free"]["mean_average_precision"] <= 1
        # A network that finds nothing scores 0: what is nan could not be compared.
        assert all(np.isfinite(value) for of in result.scores.values() for value in of.values())
        tuned, counts = result.scores["clip_and_frame"], result.counts["clip_and_frame"]
        n_ref = sum(counts["tp"]) + sum(counts["fn"])
        assert tuned["error_rate"] == pytest.approx(sum(counts["errors"]) / n_ref)
        assert tuned["recall"] == pytest.approx(sum(counts["tp"]) / n_ref)
        assert (
            RunResult.read(home / "out" / f"{result.configuration}-seed{result.seed}.json")
            == result
        )
    assert results[2].training["supervision"] == "strong"


def test_one_tuning_shares_the_clip_threshold_among_all_classes(home, results, monkeypatch):
    thresholds = []

    def tune(*said, **choices):
        tuned = tune_clip_thresholds(*said, **choices)
        thresholds.append([rule.clip_threshold for rule in tuned.decoding.rules])
        return tuned

    monkeypatch.setattr("earmark.experiments.run.tune_clip_thresholds", tune)
    plan = Plan.read(home / "plan.toml")
    again = execute_run(Workspace(plan, home / "work"), plan.runs()[0].with_threads(1))
    assert again.scores == results[0].scores
    _, own, shared = thresholds  # clip_and_frame, clip, shared_clip
    assert len({*own}) > len({*shared}) == 1


def test_the_example_is_the_first_test_clip_with_the_most_events(results):
    examples = [result.example for result in results]
    assert len({clip["file"] for clip in examples}) == 1
    assert len(examples[0]["frame_probs"]["low"]) == 50  # 4 s at 12.5 frames per second
    assert examples[0]["thresholds"].keys() == examples[0]["detected"].keys() == set(OURS)
    start = {default_rule("linear")["threshold"]}
    for tuning in ("clip", "shared_clip"):
        assert {high for high, low in examples[0]["thresholds"][tuning].values()} == start
    assert {high for high, low in examples[0]["thresholds"]["clip_and_frame"].values()} != start


def test_a_finished_run_is_not_executed_again(home, results, caplog):
    before = {path: path.stat().st_mtime_ns for path in (home / "out").glob("*.json")}
    caplog.set_level("INFO", "earmark")
    assert run_plan(Plan.read(home / "plan.toml"), home / "out", home / "work") == results
    assert caplog.messages == ["5 of 5 runs are done."]
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_a_file_that_is_not_a_result_is_refused(home, results, tmp_path):
    path = tmp_path / "single-seed0.json"
    whole = json.loads((home / "out" / path.name).read_text())
    for slip in ({"scores": {}}, {"counts": {}}, {"scores": {"clip_and_frame": {}}}, {"format": 3}):
        path.write_text(json.dumps(whole | slip))
        with pytest.raises(DataError, match=r"single-seed0\.json is not a result of a comparison"):
            run_plan(Plan.read(home / "plan.toml"), tmp_path, home / "work")


def test_a_result_of_format_1_is_read_with_the_names_of_today(home, results, tmp_path):
    old_names = {new: old for old, new in FIRST_NAMES.items()}

    def old(values):
        if not isinstance(values, dict):
            return values
        return {old_names.get(name, name): old(value) for name, value in values.items()}

    tree = json.loads((home / "out" / "single-seed0.json").read_text())
    for new in ("format", "fold", "valid_scores", "valid_counts"):
        del tree[new]
    path = tmp_path / "single-seed0.json"
    path.write_text(json.dumps(old(tree)))
    assert {"cell", "shown"} <= json.loads(path.read_text()).keys()
    assert RunResult.read(path) == replace(results[0], valid_scores={}, valid_counts={})


def test_a_renamed_configuration_keeps_its_results(home, results, tmp_path, caplog):
    caplog.set_level("INFO", "earmark")
    new = '[configurations."trained on events"]\nstored_as = "oracle"'
    (tmp_path / "plan.toml").write_text(PLAN.replace("[configurations.oracle]", new))
    plan = Plan.read(tmp_path / "plan.toml", home)
    again = run_plan(plan, home / "out", home / "work")
    assert caplog.messages == ["5 of 5 runs are done."]
    assert again[2] == replace(results[2], configuration="trained on events")
    assert read_results(home / "out", plan.configurations)[-1] == again[2]


# SHA-256 of the tables that `earmark synth` writes for benchmarks/scenes.toml and everyday.toml.
TABLES = {
    "train/weak.tsv": "b479af4d999de10309ea88705e01eb5c65ed7c35a0df6309af81bf82169a2f43",
    "train/strong.tsv": "2fe07ee4f6c3848951a6fd73739bd958b1893f42f3c304c293b14b29aa711caa",
    "valid/weak.tsv": "dba463011244cba285ee55406871dcebcba5bdca185c189f1416b732bf7a0057",
    "valid/strong.tsv": "c0038429c8ce73d68a473bb821fdae5359085440e73294bf59ae0d69ad109a4c",
    "test/strong.tsv": "b096b2bd4c79bffbbc58b0afa47c3c265ed470ab0b024f3949fd4325d136cc39",
    "half/weak.tsv": "1a2b8e64e2f9a27d4357086bfe4db3bad7c638e4ecdaa680e3360c26c97e59d6",
    "half/strong.tsv": "27f98188c9bb10303659be2a2799864792ab29576b5bca57eba21db410281da5",
}


@pytest.mark.parametrize(("name", "n_runs"), [("pooling", 51), ("detector", 27)])
def test_the_committed_results_belong_to_their_plans(name, n_runs, tmp_path, monkeypatch):
    """A rename of a setting, table or configuration must not disown hours of training."""
    for file in TABLES:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    monkeypatch.setattr(
        "earmark.experiments.plan._digest",
        lambda path: TABLES[path.relative_to(tmp_path).as_posix()],
    )
    plan = Plan.read(BENCHMARKS / f"{name}.toml", tmp_path)
    runs = plan.runs()
    found = [read_result(BENCHMARKS / "results" / name, run) for run in runs]
    assert len(runs) == n_runs
    assert all(result is not None for result in found)
    by_configuration = sorted(found, key=lambda x: list(plan.configurations).index(x.configuration))
    assert read_results(BENCHMARKS / "results" / name, plan.configurations) == by_configuration


def test_another_version_of_the_scoring_makes_another_result_but_no_other_model(home, monkeypatch):
    run = Plan.read(home / "plan.toml").runs()[0]
    monkeypatch.setattr("earmark.experiments.plan.SCORING", 0)
    changed = Plan.read(home / "plan.toml").runs()[0]
    assert run.fingerprint != changed.fingerprint
    assert run.folder == changed.folder


def test_events_that_lack_a_validation_clip_are_refused_before_any_training(home, tmp_path):
    first = (home / "valid_strong.tsv").read_text().splitlines()[:2]
    few = home / "few_strong.tsv"
    few.write_text("\n".join(first) + "\n")
    (tmp_path / "plan.toml").write_text(PLAN.replace("valid_strong", "few_strong"))
    with pytest.raises(DataError, match="clips are not in the table of events"):
        run_plan(Plan.read(tmp_path / "plan.toml", home), tmp_path / "out", tmp_path / "work", 1)
    assert not (tmp_path / "out").exists()


def test_a_result_of_other_settings_is_refused(home, results, tmp_path):
    changed = tmp_path / "plan.toml"
    changed.write_text(PLAN.replace("max_epochs = 2", "max_epochs = 3"))
    with pytest.raises(SettingError, match=r"single-seed0\.json is the result of other settings"):
        run_plan(Plan.read(changed, home), home / "out", home / "work")


OWN_DATA = """
[configurations.more]
seeds = 1
compare_with = "single"
data = {train = "more/train_weak.tsv"}

[configurations."more, strong"]
seeds = 1
strong = true
data = {train = "more/train_weak.tsv", train_events = "more/train_strong.tsv"}
"""


def test_a_configuration_may_have_its_own_training_table(home, tmp_path):
    for seed, part in enumerate(("train", "valid", "test")):
        write_tones(tmp_path, 12, seed=seed, prefix=part)
    (tmp_path / "more").mkdir()
    write_tones(tmp_path / "more", 16, seed=7, prefix="train")  # the same names as in the other
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.replace("seeds = 2", "seeds = 1") + OWN_DATA)
    plan = Plan.read(path)
    runs = {run.configuration: run for run in plan.runs()}
    assert runs["more"].train == tmp_path / "more" / "train_weak.tsv"
    assert runs["more"].train_events is None
    assert runs["more, strong"].train_events == tmp_path / "more" / "train_strong.tsv"
    assert runs["single"].fingerprint == Plan.read(home / "plan.toml").runs()[0].fingerprint
    assert runs["more"].fingerprint != runs["single"].fingerprint
    workspace = Workspace(plan, tmp_path / "work")
    for name, n_clips in (("single", 12), ("more", 16)):
        store = workspace.compute_features(runs[name])
        assert len(workspace.clips(runs[name].train)) == n_clips
        assert len(store) == n_clips + 24
    assert workspace.store_path(runs["more"]) != workspace.store_path(runs["single"])
    assert execute_run(workspace, runs["more"]).configuration == "more"


def test_the_events_of_one_training_table_are_not_those_of_another(home, tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN + OWN_DATA.replace(', train_events = "more/train_strong.tsv"', ""))
    with pytest.raises(
        DataError, match=r"There is no table .*more/train_weak\.tsv \(configurations\.more"
    ):
        Plan.read(path, home)
    path.write_text(
        PLAN + OWN_DATA.replace('"more/train_weak.tsv", train_events = "more/train_strong.tsv"',
                                '"valid_weak.tsv"').replace("more/train_weak.tsv", "valid_weak.tsv")
    )  # fmt: skip
    with pytest.raises(
        SettingError, match=r"'more, strong' has strong = true; it needs data\.train_events"
    ):
        Plan.read(path, home)


BUILT_ON = """
[configurations.longer]
based_on = "oracle"
settings = {training.max_epochs = 3}

[configurations.more]
seeds = 1
based_on = "longer"
data = {train = "more/train_weak.tsv"}
strong = false
settings = {training.batch_size = 4, model.stages = [5, 5]}

[configurations.both]
ensemble_of = "single"

[configurations.student]
seeds = 1
based_on = "single"
teachers = "single"
settings = {training.frame_loss_weight = 0.75}
"""


@pytest.fixture(scope="module")
def built(home):
    (home / "more").mkdir(exist_ok=True)
    write_tones(home / "more", 12, seed=5, prefix="train")
    path = home / "built.toml"
    path.write_text(PLAN + BUILT_ON)
    return Plan.read(path)


def test_a_configuration_inherits_from_the_one_it_is_based_on(built):
    longer, more, student = (built.configurations[name] for name in ("longer", "more", "student"))
    assert (longer.seeds, longer.strong, longer.compare_with) == (1, True, "oracle")
    assert more.settings == {
        "training": {"max_epochs": 3, "batch_size": 4},
        "model": {"stages": [5, 5]},
    }
    assert not more.strong
    assert student.settings["model"]["stages"] == []
    runs = {run.key: run for run in built.runs()}
    assert runs["longer-seed0"].train_events is not None
    assert runs["more-seed0"].train.parent.name == "more"
    assert len({run.trained_on for run in runs.values()}) == len(runs) == 9


def test_the_first_member_of_a_run_is_its_last_epoch_alone_and_trains_nothing(home, tmp_path):
    several = """
[configurations.several]
seeds = 2
settings = {training = {members = 2, checkpoint = "last"}}

[configurations.first]
first_member_of = "several"

[configurations.alone]
based_on = "several"
settings = {training.members = 1}
"""
    (tmp_path / "plan.toml").write_text(PLAN.partition("[grid]")[0] + several)
    plan = Plan.read(tmp_path / "plan.toml", home)
    assert plan.configurations["first"].compare_with == "several"
    results = run_plan(plan, tmp_path / "out", tmp_path / "work", 1)
    scores = {(x.configuration, x.seed): (x.scores, x.counts) for x in results}
    assert len(results) == 6
    for seed in range(2):
        assert scores["first", seed] == scores["alone", seed] != scores["several", seed]
    assert len([*(tmp_path / "work").glob("several-seed*/*.earmark")]) == 2
    assert not [*(tmp_path / "work").glob("first-seed*/*.earmark")]
    assert results[1].training == {"first_member_of": ["several-seed0"]}


def test_an_ensemble_averages_the_predictions_of_its_members(home, built, results):
    work = home / "work"
    runs = {run.configuration: run for run in built.runs()}
    workspace = Workspace(built, work)
    result = execute_run(workspace, runs["both"])
    assert result.training == {"ensemble_of": ["single-seed0", "single-seed1"]}
    store = workspace.compute_features(runs["both"].members[0])
    parts = [
        RunOutput.predict(Detector.load(work / member.folder / MODEL), workspace, store)
        for member in runs["both"].members
    ]
    mean = np.mean([[own.clip_level() for own in part.test] for part in parts], axis=0)
    tags = dict(zip(workspace.test.files, mean, strict=True))
    by_hand = clip_scores(tags_of(workspace.reference), probs=tags, labels=workspace.test.labels)
    own = result.scores["threshold_free"]["mean_average_precision"]
    assert own == pytest.approx(by_hand.mean_average_precision)
    means = mean_scores(part.test for part in parts)
    frame_probs = result.example["frame_probs"]
    at = workspace.test.files.index(result.example["file"])
    for label, values in frame_probs.items():
        column = means[at].scores[:, workspace.test.labels.index(label)]
        assert values == np.round(column, 4).tolist()  # to the last bit
    assert runs["both"].settings.model.stages == ()  # the members'


def test_a_run_of_several_checkpoints_is_scored_as_their_mean(home, tmp_path):
    changed = PLAN.replace("max_epochs = 2", "max_epochs = 2\nmembers = 2")
    (home / "members.toml").write_text(changed)
    plan = Plan.read(home / "members.toml")
    run, single = plan.runs()[0], Plan.read(home / "plan.toml").runs()[0]
    assert run.key == single.key and run.fingerprint != single.fingerprint
    workspace = Workspace(plan, tmp_path)
    result = execute_run(workspace, run)
    bundle = load_bundle(workspace.model_path(run))
    assert len(bundle.members) == bundle.training["n_epochs"] == 2
    store = workspace.compute_features(run)
    parts = [Ensemble([member]).predict_clips(workspace.test, [store]) for member in bundle.members]
    mean = np.mean([[own.clip_level() for own in part] for part in parts], axis=0)
    by_hand = clip_scores(
        tags_of(workspace.reference),
        probs=dict(zip(workspace.test.files, mean, strict=True)),
        labels=workspace.test.labels,
    )
    own = result.scores["threshold_free"]["mean_average_precision"]
    assert own == pytest.approx(by_hand.mean_average_precision)


def test_a_student_is_trained_after_its_teachers_and_on_their_pseudo_labels(
    home, built, results, tmp_path, caplog
):
    student = next(run for run in built.runs() if run.configuration == "student")
    both = {x: built.configurations[x] for x in ("student", "single")}
    plan = replace(built, configurations=both)
    assert [run.depth for run in plan.runs()] == [1, 0, 0]
    caplog.set_level("INFO", "earmark.experiments")
    run_plan(plan, tmp_path / "out", tmp_path / "work", 1)
    assert [message.split()[0] for message in caplog.messages[1:]] == [
        "single-seed0", "single-seed1", "student-seed0",
    ]  # fmt: skip
    assert (tmp_path / "work" / student.folder / PSEUDO_LABELS).exists()
    before = RunResult.read(tmp_path / "out" / "student-seed0.json")
    assert (
        before.scores["threshold_free"] != results[0].scores["threshold_free"]
    )  # the same but for its teachers
    (tmp_path / "out" / "student-seed0.json").unlink()
    shutil.rmtree(tmp_path / "work")  # which may be deleted
    run_plan(plan, tmp_path / "out", tmp_path / "work", 1)
    assert [message.split()[0] for message in caplog.messages[-4:]] == [
        "2", "single-seed0", "single-seed1", "student-seed0",
    ]  # fmt: skip
    assert RunResult.read(tmp_path / "out" / "student-seed0.json").scores == before.scores


def test_a_configuration_may_start_from_a_preset_of_its_own(home, tmp_path):
    path = tmp_path / "plan.toml"
    common = (
        PLAN.split("[settings.features]", maxsplit=1)[0]
        + """
[settings.training]
max_epochs = 2
[settings.model]
pooling = "exp"
[configurations.ours]
[configurations.theirs]
preset = "paper"
settings = {training.batch_size = 4}
[configurations."theirs, longer"]
based_on = "theirs"
settings = {training.max_epochs = 5}
[configurations.head]
preset = "encoder"
"""
    )
    path.write_text(common)
    runs = {run.configuration: run.settings for run in Plan.read(path, home).runs()}
    ours, theirs, head = runs["ours"], runs["theirs"], runs["head"]
    assert theirs.model.channels == Settings.load("paper").model.channels != ours.model.channels
    assert (theirs.training.max_epochs, theirs.training.batch_size) == (2, 4)
    assert theirs.training.micro_batch == Settings.load("paper").training.micro_batch
    assert theirs.model.pooling == ours.model.pooling == "exp"  # the same network
    assert runs["theirs, longer"].model == theirs.model
    assert runs["theirs, longer"].training.max_epochs == 5
    assert head.model.network == "head"
    assert head.model.pooling == Settings.load("encoder").model.pooling != "exp"  # another one
    assert head.training.max_epochs == 2
    for slip, message in (
        ('preset = "papre"', "did you mean 'paper'"),
        ('preset = "paper"\nensemble_of = "ours"', "trains nothing"),
    ):
        path.write_text(f"{common}[configurations.slip]\n{slip}\n")
        with pytest.raises(SettingError, match=message):
            Plan.read(path, home)


def test_overrides_come_last_and_reach_every_configuration(home, built):
    plan = Plan.read(home / "built.toml", overrides=["training.max_epochs=1"], seeds=1)
    runs = plan.runs()
    assert {run.settings.training.max_epochs for run in runs} == {1}
    assert {run.seed for run in runs} == {0}
    fingerprints = {run.fingerprint for run in built.runs()}
    assert not fingerprints & {run.fingerprint for run in runs}
    with pytest.raises(SettingError, match=r"or an override sets training\.seed"):
        Plan.read(home / "built.toml", overrides=["training.seed=1"])
    with pytest.raises(SettingError, match=r"did you mean 'training\.max_epochs'"):
        Plan.read(home / "built.toml", overrides=["training.max_epoch=1"])


def test_a_network_with_a_decision_stage_of_its_own_is_scored_with_it_too(
    home, results, tmp_path, monkeypatch
):
    monkeypatch.setitem(DECISIONS, "crnn", DECISIONS["gccaps"])
    plan = Plan.read(home / "plan.toml")
    run = plan.runs()[0]
    assert run.fingerprint != results[0].fingerprint
    result = execute_run(Workspace(plan, home / "work"), run.with_threads(1))
    assert {name: result.scores[name] for name in results[0].scores} == results[0].scores
    published = result.scores["published"]
    assert published.keys() == {*result.scores["clip"], "tag_f_measure"}
    assert 0 <= published["tag_f_measure"] <= 1
    result.write(tmp_path / "single-seed0.json")
    assert RunResult.read(tmp_path / "single-seed0.json").scores == result.scores
    comparisons = write_tables(plan, [result, results[1]], tmp_path)
    assert [comparison.tuning for comparison in comparisons] == list(TUNINGS)
    assert list(comparisons[0].summaries) == ["single", "hierarchical"]
    assert list(comparisons[-1].summaries) == ["single"]  # the other result is without it
    assert TUNINGS["published"] in (tmp_path / "table.md").read_text()
    with pytest.raises(SettingError, match="no tuning 'published'"):
        compare_results(results, [], "published")


@pytest.mark.parametrize(
    ("slip", "message"),
    [
        ('based_on = "later"', "trained configuration above 'new' for based_on"),
        ('teachers = "new"', "configuration above 'new' for teachers"),
        ('ensemble_of = "single"\nstrong = true', "trains nothing"),
        ('based_on = "oracle"\nensemble_of = "single"', "trains nothing"),
        ('ensemble_of = "single"\nseeds = 2', "an ensemble is one run; remove seeds = 2"),
        ('first_member_of = "single"\nseeds = 2', "has the runs of the other; remove seeds = 2"),
        ('first_member_of = "single"\nsettings = {}\npreset = "fast"', "trains nothing"),
        ('first_member_of = "single"\nensemble_of = "single"', "either ensemble_of or first_m"),
        ('based_on = "oracle"\nteachers = "single"', "either strong = true or teachers"),
        (
            'teachers = "single"\nsettings = {features.n_mels = 8}',
            "'new' cannot use teacher models of 'single'",
        ),
    ],
)
def test_an_impossible_reference_to_another_configuration_is_refused(home, tmp_path, slip, message):
    path = tmp_path / "plan.toml"
    path.write_text(
        f"{PLAN}\n[configurations.new]\n{slip}\n\n[configurations.later]\nsettings = {{}}\n"
    )
    with pytest.raises(SettingError, match=message):
        Plan.read(path, home)


def test_clips_that_cannot_be_read_are_logged_and_left_out(tmp_path, caplog):
    for seed, part in enumerate(("train", "valid", "test")):
        write_tones(tmp_path, 12, seed=seed, prefix=part)
    (tmp_path / "plan.toml").write_text(
        PLAN.replace("seeds = 2", "seeds = 1").split("[configurations")[0]
    )
    plan = Plan.read(tmp_path / "plan.toml")
    broken = sorted((tmp_path / "audio").glob("test*"))[0]
    broken.write_bytes(b"")
    results = run_plan(plan, tmp_path / "out", tmp_path / "work", 1)
    assert any(x.startswith("Left out: ") and broken.name in x for x in caplog.messages)
    assert len(results[0].counts["clip"]["tp"]) == 11


def test_a_run_that_another_process_executes_is_refused(home, tmp_path):
    plan = Plan.read(home / "plan.toml")
    folder = tmp_path / plan.runs()[0].folder
    folder.mkdir()
    with locked(folder), pytest.raises(DataError, match="Another process is training in"):
        run_plan(plan, tmp_path / "out", tmp_path, 1)


def test_other_feature_settings_have_another_store(home, tmp_path):
    path = tmp_path / "plan.toml"
    axis = "[grid.mels]\nsixteen = {features.n_mels = 16}\neight = {features.n_mels = 8}\n"
    path.write_text(PLAN.split("[grid.structure]", maxsplit=1)[0] + axis)
    plan = Plan.read(path, home)
    workspace = Workspace(plan, tmp_path)
    assert len({workspace.store_path(run) for run in plan.runs()}) == 2


def test_an_oracle_added_later_leaves_other_results_valid(home, tmp_path):
    without = PLAN.replace('train_events = "train_strong.tsv"\n', "").split(
        "[configurations.oracle]"
    )[0]
    (tmp_path / "plan.toml").write_text(without)
    before = {x.key: x.fingerprint for x in Plan.read(tmp_path / "plan.toml", home).runs()}
    after = {x.key: x.fingerprint for x in Plan.read(home / "plan.toml").runs()}
    assert before.items() < after.items()


def test_a_plan_may_spell_out_the_rule_that_tuning_starts_from(home, tmp_path):
    def first_run(decoding):
        (tmp_path / "plan.toml").write_text(PLAN + decoding)
        return Plan.read(tmp_path / "plan.toml", home).runs()[0]

    by_default, own = first_run(""), first_run("[decoding]\nthreshold = 0.4\nlow_threshold = 0.2\n")
    assert by_default.rule == default_rule("linear")
    assert own.rule == {"threshold": 0.4, "low_threshold": 0.2}
    assert own.trained_on == by_default.trained_on
    assert own.fingerprint != by_default.fingerprint
    with pytest.raises(SettingError, match=r"no setting 'decoding\.low'; did you mean"):
        first_run("[decoding]\nlow = 0.4\n")


def test_a_run_is_reproducible(home, results, tmp_path):
    plan = Plan.read(home / "plan.toml")
    again = execute_run(Workspace(plan, tmp_path), plan.runs()[0].with_threads(1))
    again.write(tmp_path / "again.json")
    again = RunResult.read(tmp_path / "again.json")
    assert replace(again, training={}) == replace(results[0], training={})


def test_a_killed_comparison_resumes(home, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(
        PLAN.replace("max_epochs = 2", "max_epochs = 8").replace("seeds = 2", "seeds = 1")
    )
    arguments = [plan, "--data", home, "--out", tmp_path / "out", "--processes", "2", "--json"]
    command = [sys.executable, "-m", "earmark", "compare", *map(str, arguments)]
    started = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )

    def half_trained():
        """Return the histories of runs that have finished some epochs and have no result."""
        found = {}
        for path in (tmp_path / "out" / "work").glob(f"*/{HISTORY}"):
            key = path.parent.name.rpartition("-")[0]
            rows = path.read_text().splitlines()[1:]
            if len(rows) > 1 and not (tmp_path / "out" / f"{key}.json").exists():
                found[path] = rows
        return found

    until = time.monotonic() + 300  # a busy machine may take that long to start Python
    while not (list(tmp_path.glob("out/*.json")) and half_trained()):
        assert started.poll() is None and time.monotonic() < until, "it never was half done"
        time.sleep(0.02)
    os.killpg(started.pid, signal.SIGKILL)  # with its workers, which would finish their run first
    started.communicate()
    done = {path.name: path.read_bytes() for path in tmp_path.glob("out/*-seed*.json")}
    started_runs = half_trained()
    assert 0 < len(done) < 3
    assert started_runs
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"{len(done)} of 3 runs are done" in again.stderr
    for name, content in done.items():
        assert (tmp_path / "out" / name).read_bytes() == content
    for path, rows in started_runs.items():  # with their seconds: these epochs were not repeated
        after = path.read_text().splitlines()[1:]
        assert after[: len(rows)] == rows
        assert len(after) == 8
    assert json.loads(again.stdout)["clip_and_frame"]["seeds"]["single"] == [0]
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {
        "table.md", "table.json", "table.csv", "table-differences.csv", "runs.png",
    }  # fmt: skip


A_AND_B = Pair("a", "b")


def made_result(configuration, seed, error_rate, f_measure=0.5):
    names = ("substitution_rate", "deletion_rate", "insertion_rate", "precision", "recall")
    tuned = dict.fromkeys((*names, "event_f_measure"), 0.1)
    tuned |= {"error_rate": error_rate, "f_measure": f_measure}
    errors = [round(1000 * error_rate)] * 20
    counts = {"tp": [500] * 20, "fp": [500] * 20, "fn": [500] * 20, "errors": errors}
    ap = {"mean_average_precision": 0.6}
    scores = {"clip_and_frame": tuned, "threshold_free": {"psds1": 0.3, **ap}, "valid": ap}
    return RunResult(configuration, seed, "", scores, {"clip_and_frame": counts}, {}, {}, {})


def test_statistics_agree_with_a_computation_by_hand():
    of_a, of_b = [0.70, 0.74, 0.72], [0.60, 0.70, 0.62]
    results = [made_result("a", seed, value) for seed, value in enumerate(of_a)]
    results += [made_result("b", seed, value) for seed, value in enumerate(of_b)]
    found = compare_results(results, [A_AND_B])
    summary = found.summaries["a"]["er"]
    assert summary.mean == pytest.approx(0.72)
    assert summary.deviation == pytest.approx(0.02)
    # All clips are equal, so only the runs vary: Student's 4.303 x 0.02 / sqrt(3).
    assert (summary.low, summary.high) == pytest.approx((0.72 - 0.04968, 0.72 + 0.04968), abs=1e-4)
    pair = found.pairs[A_AND_B]["er"]
    assert pair.difference == pytest.approx(-0.08)
    assert pair.p_value == pytest.approx(0.25)  # all three decrease: 2 of 8 flips
    assert found.corrected[A_AND_B]["er"] == pair.p_value


def test_an_interval_covers_other_runs_on_other_clips(monkeypatch):
    """Runs and clips both vary; 95 % of 300 simulated intervals contain the true mean."""
    monkeypatch.setattr(table, "METRICS", {"er": table.METRICS["er"]})  # a tenth of the time
    rng, true, n_within = np.random.default_rng(0), 0.6, 0
    for _ in range(300):
        difficulty = rng.normal(0, 0.1, 100)  # of each clip, for all runs
        results = []
        for seed in range(3):
            error_rates = true + difficulty + rng.normal(0, 0.02)
            errors = (1000 * error_rates).round().astype(int).tolist()
            result = made_result("a", seed, sum(errors) / 100_000)
            counts = {"tp": [500] * 100, "fp": [0] * 100, "fn": [500] * 100, "errors": errors}
            results.append(replace(result, counts={"clip_and_frame": counts}))
        summary = compare_results(results, [], n_samples=200).summaries["a"]["er"]
        n_within += summary.low <= true <= summary.high
    assert 0.93 < n_within / 300 < 0.99


def test_an_interval_is_clipped_to_the_range_of_the_score():
    results = [made_result("a", seed, 0.1 + 2.0 * seed, 0.05 + 0.9 * seed) for seed in (0, 1)]
    metrics = compare_results(results, []).summaries["a"]
    assert (metrics["er"].low, metrics["f1"].low, metrics["f1"].high) == (0.0, 0.0, 1.0)
    assert metrics["er"].high > 10


def test_one_run_has_no_interval_and_the_json_no_nan(tmp_path, home):
    found = compare_results([made_result("a", 0, 0.7)], [])
    summary = found.summaries["a"]["er"]
    assert np.isnan([summary.low, summary.high, summary.deviation]).all()
    assert comparison_tables(found)[1].rows[0] == ("a", "-", "-", "-", "-", "-")
    write_tables(Plan.read(home / "plan.toml"), [made_result("single", 0, 0.7)], tmp_path)
    assert "NaN" not in (tmp_path / "table.json").read_text()


def test_pairs_with_the_same_change_are_corrected_among_themselves_and_tested_jointly():
    pairs = [Pair("a", "b", "b minus a"), Pair("c", "d", "b minus a"), Pair("a", "e")]
    results = [made_result(name, seed, 0.5 + seed / 100 + more)
               for name, more in (("a", 0), ("b", 0.1), ("c", 0.2), ("d", 0.3), ("e", 0.1))
               for seed in range(5)]  # fmt: skip
    found = compare_results(results, pairs)
    assert [found.corrected[pair]["er"] for pair in pairs] == [0.125, 0.125, 0.0625]
    joint = found.by_change["b minus a"]["er"]
    assert (joint.n_runs, joint.p_value) == (10, 2 / 2**10)
    assert joint.difference == pytest.approx(0.1)
    assert found.by_change.keys() == {"b minus a"}
    by_seed = found.by_seed["b minus a"]["er"]
    assert (by_seed.n_runs, by_seed.p_value) == (5, 2 / 2**5)
    assert by_seed.difference == pytest.approx(0.1)
    last = [row[:2] for row in comparison_tables(found)[2].rows[-2:]]
    assert last == [("all pairs: b minus a", "10"), ("means per seed: b minus a", "5")]


def test_a_verdict_covers_the_clips_that_runs_share():
    """Both systems vary from clip to clip, in opposite ways: other clips may reverse it."""
    rng = np.random.default_rng(0)
    results = []
    for name, sign in (("a", -1), ("b", 1)):
        for seed in range(5):
            tp = (50 + sign * rng.normal(3, 20, 40)).clip(0, 100).astype(int)
            counts = {"tp": tp.tolist(), "fp": (100 - tp).tolist(), "fn": (100 - tp).tolist()}
            result = made_result(name, seed, 0.5, tp.sum() / 4000)
            errors = {"errors": (100 - tp).tolist()}
            results.append(replace(result, counts={"clip_and_frame": counts | errors}))
    found = compare_results(results, [A_AND_B])
    (verdict,) = found.verdicts.values()
    # By hand: the variance of the mean difference over clips drawn with replacement.
    per_clip = np.array([result.counts["clip_and_frame"]["tp"] for result in results]) / 100
    difference = (per_clip[5:] - per_clip[:5]).mean(axis=0)
    assert verdict.effect.clip_variance == pytest.approx(difference.var() / 40, rel=0.15)
    assert verdict.effect.difference == pytest.approx(difference.mean())
    assert list(found.verdicts) == ["b minus a"]
    assert found.to_dict()["verdicts"]["b minus a"]["sentence"] in found.sentences()[0]


def with_auc(result, auc):
    scores = dict(result.scores)
    scores["threshold_free"] = scores["threshold_free"] | {"mean_roc_auc": auc}
    return replace(result, scores=scores)


def test_there_is_no_verdict_where_no_output_would_be_better_or_tags_are_not_learned():
    pairs = [Pair("a", "b", "b minus a"), Pair("c", "d", "b minus a"), Pair("e", "f", "b minus a")]
    rates = {"a": 1.5, "b": 1.2, "c": 1.2, "d": 0.9, "e": 0.5, "f": 0.5}
    aucs = {"a": 0.95, "b": 0.95, "c": 0.7, "d": 0.9, "e": 0.79, "f": 0.795}
    results = [with_auc(made_result(name, seed, rates[name], 0.5 + seed / 100), aucs[name])
               for name in rates for seed in range(5)]  # fmt: skip
    joint = "means per seed: b minus a"

    def sentences(least_auc):
        found = compare_results(results, pairs, least_auc=least_auc)
        assert found.by_change["b minus a"]["f1"].n_runs == 15  # tables have all of them
        return {name: verdict.sentence() for name, verdict in found.verdicts.items()}

    equal = "no difference larger than 0.02 F1"
    found = sentences(0.0)
    assert found["b minus a"].startswith("no verdict, since no output would be better (ER 1.20): ")
    assert all(found[x].startswith(equal) for x in ("d minus c", "f minus e"))
    assert found[f"{joint} (2 of 3 pairs)"].startswith(equal)
    found = sentences(0.8)
    tags = "no verdict, since tags are learned too badly (AUC 0.795): +0.000 F1 ["
    assert found["f minus e"].startswith(tags)
    assert found["d minus c"].startswith(equal)  # one side is enough
    assert not any(name.startswith(joint) for name in found)  # one pair is not several
    assert sentences(0.795).keys() == sentences(0.0).keys()


def test_the_tables_and_the_terminal_end_with_the_verdicts(home, results):
    plan = Plan.read(home / "plan.toml")
    comparisons = write_tables(plan, results, home / "verdicts")
    (sentence,) = comparisons[1].sentences()
    assert sentence.startswith("hierarchical minus single: ")
    text = (home / "verdicts" / "table.md").read_text()
    assert f"**Verdicts; {TUNINGS['clip']}**\n\n- {sentence}\n" in text
    tree = json.loads((home / "verdicts" / "table.json").read_text())
    assert tree["clip"]["verdicts"]["hierarchical minus single"]["sentence"] in sentence
    arguments = ["compare", str(plan.source), "--out", str(home / "out")]
    printed = CliRunner().invoke(app, [*arguments, "--work", str(home / "work")]).stdout
    assert " ".join(printed.split()).endswith(sentence)
    assert all(len(line) <= 80 for line in printed.splitlines())
    assert printed.count(" hierarchical ") > 10


def test_a_result_has_the_scores_of_the_validation_clips_too(home, results):
    plan = Plan.read(home / "plan.toml")
    workspace = Workspace(plan, home / "work")
    store = workspace.compute_features(plan.runs()[0])
    detector = Detector.load(workspace.model_path(plan.runs()[0]))
    output = RunOutput.predict(detector, workspace, store)
    tuned = tune_clip_thresholds(output.valid, workspace.valid.tags, plan.runs()[0].rule).decoding
    by_file = zip(workspace.valid.files, output.valid, strict=True)
    estimate = {file: decode_events(scores, tuned) for file, scores in by_file}
    reference = read_events(home / "valid_strong.tsv")
    by_hand = segment_scores(reference, estimate, output.labels).overall
    shown = results[0].on_validation()
    assert shown.scores["clip"]["error_rate"] == by_hand["error_rate"]["error_rate"]
    assert shown.scores.keys() == results[0].scores.keys()
    free = {"mean_average_precision", "mean_roc_auc", "psds1", "psds2"}
    assert shown.scores["threshold_free"].keys() == free
    own, of_tags = (shown.scores[x]["mean_average_precision"] for x in ("threshold_free", "valid"))
    assert own == of_tags
    assert shown.counts["clip"] != results[0].counts["clip"]


def test_results_of_earlier_versions_have_fewer_scores_and_no_validation(home, results, tmp_path):
    tree = json.loads((home / "out" / "single-seed0.json").read_text())
    for name in ("valid_scores", "valid_counts", "fold"):
        del tree[name]
    del tree["scores"]["threshold_free"]["psds2"]
    (tmp_path / "single-seed0.json").write_text(json.dumps(tree))
    old = RunResult.read(tmp_path / "single-seed0.json")
    assert (old.fold, old.fingerprint) == (0, results[0].fingerprint)
    with pytest.raises(DataError, match=r"'single' with seed 0 has no scores of validation clips"):
        old.on_validation()
    columns = {x.title: x for x in (METRICS[name] for name in ("psds1", "psds2", "wide_event_f1"))}
    shown = comparison_tables(compare_results([old, *results[1:]], [], "clip"))[0].columns
    assert columns.keys() & set(shown) == {"PSDS1", "event F1, 0.5 s"}
    assert columns.keys() <= set(comparison_tables(compare_results(results, [], "clip"))[0].columns)


def test_held_back_test_scores_are_shown_on_request_and_the_request_is_recorded(home, results):
    out, plan = home / "out", home / "held.toml"
    plan.write_text("hold_test = true\n" + PLAN)
    arguments = ["compare", str(plan), "--out", str(out), "--work", str(home / "work")]
    for path in out.glob("table*"):
        path.unlink()

    def run(*more):
        done = CliRunner().invoke(app, [*arguments, *more, "--json"], catch_exceptions=False)
        return json.loads(done.stdout)["clip"]["summaries"]["oracle"]["er"]["mean"]

    of_valid, of_test = (x.scores["clip"]["error_rate"] for x in
                         (results[2].on_validation(), results[2]))  # fmt: skip
    assert of_valid != of_test
    assert run() == run("--validation") == of_valid
    assert sorted(path.name for path in out.glob("validation*")) == [
        "validation-differences.csv", "validation-runs.png", "validation.csv", "validation.json",
        "validation.md",
    ]  # fmt: skip
    assert not list(out.glob("table*")) and not (out / TEST_READ).exists()
    assert run("--read-test") == run("--read-test") == of_test
    first, second = json.loads((out / TEST_READ).read_text())
    assert first["plan"] == "held.toml" and first["plan_sha256"] == second["plan_sha256"]
    assert first["runs"] == 5 and results[0].fingerprint in first["fingerprints"]
    (out / TEST_READ).unlink()
    arguments[1] = str(home / "plan.toml")  # which holds nothing back
    assert run() == of_test and run("--validation") == of_valid
    with pytest.raises(SettingError, match="validation and read_test exclude each other"):
        choose_validation(Plan.read(plan), validation=True, read_test=True)
    without = Plan.read(plan)
    del without.data["valid_events"]
    with pytest.raises(SettingError, match=r"held\.toml has no data\.valid_events"):
        choose_validation(without)


def test_a_pair_uses_the_seeds_that_both_configurations_have():
    results = [made_result("a", seed, 0.7 + seed / 100) for seed in (0, 1, 2)]
    results += [made_result("b", seed, 0.6) for seed in (1, 2, 3)]
    assert compare_results(results, [A_AND_B]).pairs[A_AND_B]["er"].n_runs == 2
    assert compare_results(results[:4], [A_AND_B]).pairs == {}


def test_the_tables_contain_every_configuration_and_pair(home, results):
    plan = Plan.read(home / "plan.toml")
    comparisons = write_tables(plan, results, home / "tables")
    text = (home / "tables" / "table.md").read_text()
    for name in ("| single |", "| hierarchical |", "| oracle |", "hierarchical minus single"):
        assert name in text
    assert [comparison.tuning for comparison in comparisons] == OURS
    assert "oracle minus single" not in text  # one seed is not enough
    assert len(comparison_tables(comparisons[0])) == 3


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("[data]", "[dato]", "'dato'; did you mean 'data'"),
        ("[data]", 'tuning = "clop"\n[data]', "'clop'; did you mean 'clip'"),
        ("[data]", "hold_test = 1\n[data]", "hold_test must be true or false. Got 1"),
        (
            "[data]",
            "least_auc = 80\n[data]",
            "least_auc must lie between 0 and 1, such as 0.8. Got 80",
        ),
        ("[data]", "least_auc = true\n[data]", "least_auc must lie between 0 and 1"),
        ("[data]", "based_on = 1\n[data]", "based_on must be the file name of a plan. Got 1"),
        ("[data]", "[data]\nfolds = 0", r"data\.folds must be 1 or more\. Got 0"),
        ("[data]", "[data]\nfolds = 2", r"data\.folds is 2, but no path contains {fold}"),
        ("train_weak", "train{fold}_weak", r"data\.train depends on {fold}; set data\.folds"),
        ("seeds = 1", "seed = 1", "no setting 'configurations.oracle.seed'; did you mean"),
        ("model.stages = []", "model.stage = []", "no setting 'model.stage'; did you mean"),
        ("model.stages = []", "stages = []", "A setting needs its section"),
        ('compare_with = "single"', 'compare_with = "singel"', "'singel'; did you mean 'single'"),
        (
            'train_events = "train_strong.tsv"',
            "",
            "'oracle' has strong = true; it needs data.train_events",
        ),
        ('test = "test_strong.tsv"', 'test = ""', r"data\.test is empty"),
        ("seeds = 2", "seeds = 0", "seeds must be from 1 to 500"),
        ("seeds = 2", "seeds = true", "grid.seeds"),
        (
            'compare_with = "single"',
            'compare_with = "oracle"',
            "There is no configuration to compare 'oracle' with",
        ),
        ("max_epochs = 2", "max_epochs = 2\nseed = 3", "sets training.seed; remove it"),
        ("[configurations.oracle]", "[configurations.single]", "'single' is in the grid already"),
        ("[grid.structure]", "[grid.structure.deep]", "There is no setting 'single.model'"),
        ("[configurations.oracle]", '[configurations."single!"]', "would share the file"),
    ],
)
def test_a_mistake_in_a_plan_is_explained(home, tmp_path, before, after, message):
    (tmp_path / "plan.toml").write_text(PLAN.replace(before, after, 1))
    with pytest.raises(SettingError, match=message):
        Plan.read(tmp_path / "plan.toml", home)


@pytest.mark.parametrize(
    "slip", ["grid = 3", "configurations = 3", "settings = 3", "[grid]\nseeds = 2"]
)
def test_a_table_of_the_wrong_type_or_without_an_axis_is_explained(home, tmp_path, slip):
    tables = "\n".join(line for line in PLAN.splitlines() if "_" in line and ".tsv" in line)
    top, rest = (slip, "") if not slip.startswith("[") else ("", slip)
    (tmp_path / "plan.toml").write_text(f"{top}\n[data]\n{tables}\n{rest}\n")
    with pytest.raises(SettingError, match=r"must be a table|needs at least one axis"):
        Plan.read(tmp_path / "plan.toml", home)


def test_a_missing_table_is_named(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN)
    with pytest.raises(DataError, match=r"no table .*train_weak.tsv \(data.train\)"):
        Plan.read(tmp_path / "plan.toml")
