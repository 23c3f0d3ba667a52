"""Every plan of benchmarks/ runs from nothing by one command, on a few short scenes."""

from pathlib import Path

import pytest

from earmark.config import read_toml
from earmark.experiments.configurations import read_configurations
from earmark.experiments.plan import Plan
from earmark.experiments.run import RunResult
from earmark.experiments.table3 import PAPER, PUBLISHED_SYSTEMS

REPO = Path(__file__).parent.parent
PLANS = [path for path in sorted(REPO.glob("benchmarks/*.toml"))
         if {"data", "based_on"} & read_toml(path).keys()]  # fmt: skip


MAP = [path for path in PLANS if path.stem.startswith("map")]
# Configurations; other plans of the map share its settings.
N_DISTINCT = {"map": 2, "map_structures": 4, "map_beyond": 3}
# Plans of which those configurations run that differ in more than the value of a setting.
ALIKE = ("decoding", "pooling")


@pytest.mark.parametrize("plan", [x for x in PLANS if x not in MAP], ids=lambda path: path.stem)
def test_a_plan_runs_from_nothing(plan, tmp_path, monkeypatch, capsys):
    if "encoder" in read_toml(plan) and not (REPO.parent / "shared" / "encoders").is_dir():
        pytest.skip("the encoder's weights are not part of Earmark")
    monkeypatch.syspath_prepend(str(REPO))
    from benchmarks.sample import distinct, main

    configurations = read_configurations(plan)
    command = [str(plan), "--out", str(tmp_path)]
    if plan.stem in ALIKE:
        configurations = distinct(configurations)
        command += ["--distinct", str(len(configurations))]
    main(command)
    printed = capsys.readouterr().out
    results = [RunResult.read(path) for path in (tmp_path / "results").glob("*-seed0.json")]
    stored = {x.stored_as or name for name, x in configurations.items()}
    assert {result.configuration for result in results} == stored
    assert all(f"| {name} | 1 | " in printed for name in configurations)


@pytest.mark.parametrize("plan", MAP, ids=lambda path: path.stem)
def test_a_plan_of_the_map_runs_from_nothing(plan, tmp_path, monkeypatch):
    """Those of its configurations that differ in more than the value of a setting."""
    monkeypatch.syspath_prepend(str(REPO))
    from benchmarks.sample import distinct, run_sample

    results = run_sample(plan, tmp_path, N_DISTINCT.get(plan.stem, 1))
    chosen = list(distinct(read_configurations(plan)))[: N_DISTINCT.get(plan.stem, 1)]
    assert [result.configuration for result in results] == chosen
    assert all(result.on_validation().counts.keys() >= {"clip", "strong"} for result in results)
    sample = Plan.read(plan, tmp_path / "data")
    assert sample.hold_test
    for name, x in sample.configurations.items():
        own = sample.settings_of(name)
        assert own.training.monitor == "map", name
        assert own.model.changed(n_classes=2).build() is not None
        assert x.seeds >= 5 or name in FEW_SEEDS, name


FEW_SEEDS = {"linear, as first published"}  # a check of equality


TABLE_3 = pytest.mark.parametrize("plan", ["systems.toml", "systems_lungs.toml"])


@TABLE_3
def test_the_plan_of_table_3_has_every_system_and_ours(plan):
    configurations = read_configurations(REPO / "benchmarks" / plan)
    assert set(configurations) == {*PUBLISHED_SYSTEMS, *PAPER, "surrey, one checkpoint"}
    for name in PUBLISHED_SYSTEMS:
        assert configurations[name].preset == f"{name}-fast"
    assert {x.seeds for x in configurations.values()} == {3}


@TABLE_3
def test_the_plan_of_table_3_averages_no_checkpoint_of_an_untrained_network(plan, tmp_path):
    for part in ("train", "valid", "test"):
        (tmp_path / part).mkdir()
        for table in ("weak", "strong"):
            (tmp_path / part / f"{table}.tsv").touch()
    n_clips = 1055 if "lungs" in plan else 800
    plan = Plan.read(REPO / "benchmarks" / plan, tmp_path)
    training = {name: plan.settings_of(name).training for name in plan.configurations}
    for own in training.values():  # steps before the epoch of the first checkpoint
        assert (own.max_epochs - own.members) * n_clips // own.batch_size >= 500
    assert [training[name].members for name in ("surrey", "gccaps", "wang")] == [5, 5, 1]
    assert plan.configurations["surrey, one checkpoint"].first_member_of == "surrey"
