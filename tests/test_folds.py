"""Plans with folds and plans on top of others: which tables a run uses, and its statistics."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tones import write_tones

from earmark.errors import DataError, SettingError
from earmark.experiments import Plan, compare_results, run_plan, write_tables
from earmark.experiments.configurations import Pair, read_configurations
from earmark.experiments.effects import ClipBootstrap
from earmark.experiments.run import RunResult, Workspace

PLAN = """
[data]
train = "fold{fold}/train_weak.tsv"
valid = "fold{fold}/valid_weak.tsv"
test = "fold{fold}/test_strong.tsv"
valid_events = "fold{fold}/valid_strong.tsv"
audio = "audio"
folds = 2

[settings]
features = {sample_rate = 8000, n_mels = 16, f_max = 4000}
model = {channels = [4, 4, 4, 4], last_channels = 4, n_recurrent = 0}
training = {max_epochs = 1, threads = 1}

[grid]
seeds = 3
structure = {single = {model.stages = []}, hierarchical = {model.stages = [5]}}
"""
PARTS = ("train", "valid", "test")


def write_folds(home, plan=PLAN):
    """Write three groups of clips; each of two folds tests another group."""
    for seed, group in enumerate("abc"):
        write_tones(home, 6, seed=seed, prefix=group)
    for fold, groups in enumerate(("abc", "cab")):
        (home / f"fold{fold}").mkdir()
        for part, group in zip(PARTS, groups, strict=True):
            for kind in ("weak", "strong"):
                text = (home / f"{group}_{kind}.tsv").read_text()
                (home / f"fold{fold}" / f"{part}_{kind}.tsv").write_text(text)
    (home / "plan.toml").write_text(plan)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("folds")
    write_folds(home)
    return home


def test_a_run_uses_the_tables_of_its_fold(home):
    plan = Plan.read(home / "plan.toml")
    runs = [run for run in plan.runs() if run.configuration == "single"]
    assert [(run.seed, run.fold, run.train.parent.name) for run in runs] == [
        (0, 0, "fold0"), (1, 1, "fold1"), (2, 0, "fold0"),
    ]  # fmt: skip
    assert len({run.fingerprint for run in runs}) == 3
    again = replace(plan, data=plan.tables(1), n_folds=1)  # the same without folds
    assert next(run for run in again.runs() if run.key == "single-seed1") == replace(
        runs[1], fold=0
    )
    workspace = Workspace(plan, home / "work")
    assert len({workspace.store_path(run) for run in runs}) == 1
    for run, group in zip(runs, "cbc", strict=True):
        workspace.compute_features(run)
        assert {file[0] for file in workspace.test.files} == {group}
        assert set(workspace.reference) == set(workspace.test.files)
        assert set(workspace.valid_events) == set(workspace.valid.files)
        assert not {*workspace.test.files} & {*workspace.clips(run.train).files}


def test_runs_on_folds_are_paired_and_compared(home):
    plan = Plan.read(home / "plan.toml")
    results = run_plan(plan, home / "out", home / "work", 1)
    assert [result.fold for result in results] == [0, 0, 1, 1, 0, 0]
    assert json.loads((home / "out" / "single-seed1.json").read_text())["fold"] == 1
    assert run_plan(plan, home / "out", home / "work", 1) == results
    for validation in (False, True):
        comparisons = write_tables(plan, results, home / "out", validation=validation)
        (verdict,) = comparisons[0].verdicts.values()
        assert (verdict.effect.n_runs, verdict.effect.n_folds) == (3, 2)


def test_a_missing_table_of_any_fold_is_named(home, tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN.replace("folds = 2", "folds = 3"))
    with pytest.raises(DataError, match=r"no table .*fold2/train_weak\.tsv \(data\.train\)"):
        Plan.read(tmp_path / "plan.toml", home)


@pytest.mark.parametrize("reference", ["teachers", "ensemble_of"])
def test_runs_that_saw_the_test_clips_of_other_folds_are_no_teachers(home, tmp_path, reference):
    more = f'[configurations.other]\n{reference} = "single"\n'
    (tmp_path / "plan.toml").write_text(PLAN + more)
    with pytest.raises(SettingError, match="trained on its test clips"):
        Plan.read(tmp_path / "plan.toml", home)


def made_result(name, seed, tp, fold):
    fn = (10 - tp).tolist()
    counts = {"tp": tp.tolist(), "fp": fn, "fn": fn, "errors": fn}
    scores = {"clip": {"f_measure": tp.sum() / 10 / len(tp)}}
    return RunResult(name, seed, "", scores, {"clip": counts}, {}, {}, {}, fold=fold)


def test_the_bootstrap_resamples_the_clips_of_each_fold_apart():
    """Clips of a fold vary together over systems and seeds; folds have different clips."""
    rng = np.random.default_rng(0)
    clips = [rng.integers(0, 11, n) for n in (30, 50)]  # what the second system gets right
    pairs = [
        [made_result("a", seed, np.full_like(clips[seed % 2], 5), seed % 2) for seed in range(6)],
        [made_result("b", seed, clips[seed % 2], seed % 2) for seed in range(6)],
    ]
    effect = ClipBootstrap([*pairs[0], *pairs[1]], "clip", 4000).effect(*pairs)
    by_hand = sum((own / 10).var() / len(own) for own in clips) / 4  # the mean of two folds
    assert effect.clip_variance == pytest.approx(by_hand, rel=0.1)
    assert effect.difference == pytest.approx(np.mean([own.mean() / 10 - 0.5 for own in clips]))
    assert (effect.n_runs, effect.n_folds) == (6, 2)


def test_a_plan_on_top_of_another_changes_some_of_it(home, tmp_path):
    (tmp_path / "first.toml").write_text(PLAN + '[configurations.more]\ncompare_with = "single"\n')
    on_top = (
        'based_on = "first.toml"\ntuning = "shared_clip"\n'
        "[data]\nlabels = ['high', 'low']\n[settings]\nmodel = {n_recurrent = 4}\n"
    )
    (tmp_path / "second.toml").write_text(on_top)
    first, second = (Plan.read(tmp_path / f"{x}.toml", home) for x in ("first", "second"))
    assert second.configurations == first.configurations
    assert (first.tuning, second.tuning) == ("clip", "shared_clip")
    assert second.n_folds == 2 and second.labels == ("high", "low")
    assert second.settings_of("single").model.n_recurrent == 4
    assert second.settings_of("single").model.channels == (4, 4, 4, 4)
    (tmp_path / "third.toml").write_text(f"{on_top}[configurations.other]\nseeds = 1\n")
    third = Plan.read(tmp_path / "third.toml", home)
    assert list(third.configurations) == ["other"]
    assert read_configurations(tmp_path / "third.toml") == third.configurations
    (tmp_path / "fourth.toml").write_text('based_on = "third.toml"\nhold_test = true\n')
    fourth = Plan.read(tmp_path / "fourth.toml", home)
    assert replace(fourth, source=third.source, hold_test=False) == third
    (tmp_path / "third.toml").write_text('based_on = "fourth.toml"\n')
    with pytest.raises(SettingError, match=r"third\.toml is based on fourth\.toml, which is based"):
        Plan.read(tmp_path / "fourth.toml", home)


def test_a_value_of_the_grid_may_change_a_table(home, tmp_path):
    axis = """
[grid.tags]
all = {}
few = {data.train = "a_weak.tsv"}
"""
    text = PLAN.split("[grid]", maxsplit=1)[0].replace("{fold}", "0").replace("folds = 2", "")
    structure = "[grid.structure]\nsingle = {model.stages = []}\ndeep = {model.stages = [5]}\n"
    (tmp_path / "plan.toml").write_text(text + axis + structure)
    plan = Plan.read(tmp_path / "plan.toml", home)
    runs = {run.configuration: run.train.name for run in plan.runs()}
    assert runs == {
        "all, single": "train_weak.tsv", "all, deep": "train_weak.tsv",
        "few, single": "a_weak.tsv", "few, deep": "a_weak.tsv",
    }  # fmt: skip
    assert plan.pairs()[1] == Pair("few, single", "few, deep", "deep minus single")
    (tmp_path / "plan.toml").write_text(text + axis.replace("a_weak", "no_weak"))
    with pytest.raises(DataError, match=r"no table .*no_weak\.tsv \(configurations\.few"):
        Plan.read(tmp_path / "plan.toml", home)
    assert compare_results([], plan.pairs()).verdicts == {}
