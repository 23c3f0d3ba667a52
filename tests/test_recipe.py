"""The recipe of DCASE 2017 task 4, with the official lists and noise in place of the audio."""

import json
import tomllib
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest
from commands import call, run
from tones import RATE, SMALL

from earmark.audio.encode import write_audio
from earmark.errors import DataError, SettingError
from earmark.experiments.dcase2017 import (
    CLASSES,
    CONFIGURATIONS,
    TABLE_2,
    TESTS,
    TRAINING,
    count_clips,
    plan_table3,
    read_classes,
    run_dcase2017,
)
from earmark.experiments.table3 import (
    OUTPUTS,
    PAPER,
    PROGRAM,
    PUBLISHED_SYSTEMS,
    estimate_cost,
    estimate_plan,
)
from earmark.formats.events import read_events
from earmark.formats.tags import read_tags
from earmark.nn.windows import even_starts
from earmark.training.settings import PRESETS, Settings

OVERRIDES = [*SMALL, "training.threads=1", "training.max_epochs=1"]
N_CLIPS = {TRAINING: 60, TESTS["development"]: 10, TESTS["evaluation"]: 10}


@pytest.fixture(scope="module")
def home(dcase2017, tmp_path_factory):
    """Rows of the real lists, and noise under the names of their clips.

    Some names have the Y of the official audio and some do not, some clips are short, some are in
    another format, and every tenth is missing.
    """
    home = tmp_path_factory.mktemp("dcase2017")
    (home / "lists").mkdir()
    (home / "audio").mkdir()
    (home / "lists" / CLASSES).write_bytes((dcase2017 / CLASSES).read_bytes())
    rng = np.random.default_rng(0)
    for file, n_clips in N_CLIPS.items():
        rows = (dcase2017 / file).read_bytes().splitlines(keepends=True)
        by_clip = {}
        for row in rows:
            by_clip.setdefault(row.split(b"\t")[0].decode(), []).append(row)
        names = list(by_clip)[:: len(by_clip) // n_clips][:n_clips]
        (home / "lists" / file).write_bytes(b"".join(row for x in names for row in by_clip[x]))
        for number, name in enumerate(names):
            if number % 10 == 8:
                continue
            wave = 0.05 * rng.standard_normal((3 if number % 5 else 2) * RATE)
            stem = name.removesuffix(".wav") + (".flac" if number % 3 == 0 else ".wav")
            write_audio(home / "audio" / ("Y" * (number % 2) + stem), wave, RATE)
    return home


@pytest.fixture(scope="module")
def done(home):
    words = [
        "recipe", "dcase2017", "--lists", "lists", "--audio", "audio", "--out", "out",
        "--preset", "fast", "--configuration", "linear, single",
        "--configuration", "linear, hierarchical",
        *(part for override in OVERRIDES for part in ("--set", override)),
    ]  # fmt: skip
    return run(*words, cwd=home)


def test_it_prints_the_rows_of_the_papers_table_next_to_the_published_ones(done):
    second, third = done.stdout.split("**Table 3 of the paper**")
    rows = [line for line in second.splitlines() if line.startswith("| ")]
    ours = [line for line in rows[1:] if "published" not in line]
    assert len(ours) == 6
    assert ours[0].startswith("| linear, development | 0.")
    assert ours[2].count(" - ") == 14  # exp was not trained
    assert "| linear, evaluation, published | 0.21 | 0.36 | 0.18 | 0.76 | 0.53" in done.stdout
    systems = [line for line in third.splitlines() if line.startswith("| ")][1:]
    assert [line.split(" | ")[0] for line in systems[-2:]] == [
        "| ours, linear, single", "| ours, linear, hierarchical",
    ]  # fmt: skip
    er, f1 = ours[0].split(" | ")[4], ours[0].split(" | ")[7]
    assert systems[-2].split(" | ")[1] == er
    assert float(systems[-2].split(" | ")[2]) == pytest.approx(float(f1), abs=0.0051)


def run_table3(home, *more):
    words = [
        "recipe", "dcase2017", "--table", "3", "--lists", "lists", "--fast",
        "--set", "training.max_epochs=1", "--set", "training.min_steps=0",
        "--set", "training.threads=1", "--set", "training.batch_size=16", *more,
    ]  # fmt: skip
    return call(*words, cwd=home)


def test_table_3_has_a_measured_row_below_each_published_one(home):
    (home / "few").mkdir()
    for path in sorted((home / "audio").iterdir())[::3]:  # every third clip is enough
        (home / "few" / path.name).symlink_to(path)
    done = run_table3(home, "--audio", "few", "--out", "out3")
    assert done.returncode == 0, done.stderr
    cost, table = done.stdout.split("**Table 3 of the paper**")
    assert "**Cost, if none stops early**" in cost
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    names = [row[0].removeprefix("| ") for row in rows]
    for name, system in PUBLISHED_SYSTEMS.items():
        at = next(n for n, row in enumerate(names) if row.startswith(f"{system.title}, published"))
        own, shared = rows[at + 1], rows[at + 2]
        assert own[0] == f"| {system.title}, own decision stage"
        assert shared[0] == f"| {system.title}, shared decision stage"
        for test, columns in (("development", slice(1, 3)), ("evaluation", slice(3, 5))):
            result = json.loads((home / "out3" / test / f"{name}-seed0.json").read_text())
            for row, tuning in ((own, "published"), (shared, "clip_and_frame")):
                wanted = [result["scores"][tuning][x] for x in ("error_rate", "f_measure")]
                texts = [f"{wanted[0]:.2f}", f"{wanted[1]:.3f}"]
                assert [text.strip(" |") for text in row[columns]] == texts
    assert names[-2:] == ["ours, linear, single", "ours, linear, hierarchical"]
    assert not [name for name in names if name.startswith("EMSI,") or name == "EMSI"]


def test_a_dry_run_prints_the_cost_and_needs_no_audio(home, tmp_path):
    done = run_table3(home, "--dry-run", "--configuration", "wang", "--seeds", "2")
    assert done.returncode == 0, done.stderr
    (row,) = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| wang")]
    gmac, in_training, passes, hours = float(row[1]), float(row[2]), row[3], float(row[4])
    assert (gmac, in_training, passes) == (0.227, 0.227, "57 x 1 x 2")
    # 57 clips of three passes each, 3 of validation and 20 of tests, in two runs
    assert hours == pytest.approx(2 * (3 * 57 + 3 + 20) * gmac / 23 / 3600, rel=0.01)
    assert "Table 3" not in done.stdout
    assert not (home / "out").exists() or not (home / "out" / "wang-seed0.json").exists()
    everything = run_table3(home, "--dry-run", "--json")
    assert set(json.loads(everything.stdout)) == {*PUBLISHED_SYSTEMS, *PAPER}


@pytest.mark.parametrize(
    ("slip", "message"),
    [
        ((), "needs --audio and --out"),
        (("--table", "2", "--dry-run"), "are for --table 3"),
        (("--dry-run", "--preset", "wang"), "--preset is for --table 2"),
        (("--dry-run", "--preset", "paper"), "--preset is for --table 2"),  # the default of Table 2
        (("--dry-run", "--configuration", "wnag"), "did you mean 'wang'"),
        (("--dry-run", "--set", "model.stages=[2]"), "sets model.pooling, model.stages"),
    ],
)
def test_a_slip_in_the_options_of_table_3_is_explained(home, slip, message):
    done = run_table3(home, *slip)
    assert done.returncode == 2
    assert message in done.stderr


def test_presets_without_a_pooling_function_are_refused_for_table_2(home, tmp_path):
    refused = set()
    for name, settings in PRESETS.items():
        # Without lists, a preset that is accepted fails at the next step.
        with pytest.raises((SettingError, DataError)) as error:
            run_dcase2017(tmp_path, tmp_path, tmp_path / "out", preset=name)
        if "Table 2 compares pooling functions" in str(error.value):
            refused.add(settings.model.network)
            assert f"the preset {name!r} has none" in str(error.value)
        else:
            assert "There is no" in str(error.value)
            assert hasattr(settings.model, "pooling")
    assert refused == {"emsi", "mlms"}


def test_all_systems_share_the_decision_stage_of_the_plan_file():
    file = Path(__file__).parents[1] / "benchmarks" / "systems.toml"
    tree = tomllib.loads(file.read_text())
    for fast in (True, False):
        plan = plan_table3(fast=fast)
        assert plan.decoding == tree["decoding"]  # else each has the default of its pooling
        assert set(plan.configurations) == set(tree["configurations"])


def test_full_width_costs_what_the_specification_says(dcase2017):
    plan = plan_table3(["linear, hierarchical", "wang", "surrey", "gccaps"])
    costs = estimate_plan(plan, **count_clips(dcase2017))
    gmac = {name: round(cost.operations / 1e9, 2) for name, cost in costs.items()}
    assert gmac == {"linear, hierarchical": 5.15, "wang": 2.18, "surrey": 5.19, "gccaps": 4.87}
    assert costs["wang"].n_clips == 48613
    assert costs["linear, hierarchical"].memory == pytest.approx(5.8e9, rel=0.05)  # docs/speed.md


def test_networks_on_windows_cost_what_their_windows_cost_in_training():
    costs = {}
    for name in ("mlms8", "emsi-like"):
        settings = Settings.load(name, overrides=["training.max_epochs=1"]).for_classes(17)
        costs[name] = (settings, estimate_cost(settings, 1000, 100, 10))
    settings, cost = costs["mlms8"]
    # Two windows of each net, of 3 to 27; the nets have 144 GMAC per 10 s of windows end to end.
    n_samples = settings.model.windows
    nets = [replace(settings.model, nets=(net,)) for net in settings.model.nets]
    for net, window in zip(nets, n_samples, strict=True):
        one, two = (
            sum(x.operations for x in replace(net, train_windows=n).training_layers(500)[:-5])
            for n in (1, 2)
        )
        assert two == 2 * one
        assert len(even_starts(441_000, window)) >= 3
    assert round(cost.operations / 1e9) == 249
    assert round(cost.training_operations / 1e9, 1) == 32.5
    expected = (
        (3 * 1000 * cost.training_operations + 110 * cost.operations) / 35e9 / 3600 * 2
    )  # slower
    assert cost.core_hours == pytest.approx(expected)
    settings, cost = costs["emsi-like"]
    assert cost.training_operations == cost.operations
    # 1, 2, 5 and 10 windows: each member has as many outputs as the one on the whole clip.
    first = [x for x in settings.model.layers(500) if x.name.startswith("windows of 500 frames")]
    outputs = (cost.memory - PROGRAM) / OUTPUTS / 4
    at_once = settings.training.micro_batch or settings.training.batch_size
    assert outputs == pytest.approx(4 * at_once * sum(prod(x.shape) for x in first), rel=0.01)


def test_missing_audio_is_counted_and_left_out(home, done):
    assert f"{TRAINING}: 54 of 60 clips exist, 6 missing, such as " in done.stderr
    assert f"{TESTS['evaluation']}: 9 of 10 clips exist, 1 missing" in done.stderr
    tables = home / "out" / "tables"
    assert len(read_events(tables / "evaluation.tsv")) == 9
    train, valid = (read_tags(tables / f"{name}.tsv") for name in ("train", "valid"))
    assert len(train) + len(valid) == 54
    assert not set(train) & set(valid)


def test_clips_with_a_wrong_label_count_without_events(home, done):
    rows = (home / "lists" / TESTS["evaluation"]).read_text().splitlines()
    wrong = {row.split("\t")[0] for row in rows if row.split("\t")[1:3] == ["0", "0"]}
    wrong -= {row.split("\t")[0] for row in rows if row.split("\t")[1:3] != ["0", "0"]}
    kept = read_events(home / "out" / "tables" / "evaluation.tsv")
    assert wrong & set(kept), "the sample should contain such a clip"
    assert all(kept[name] == [] for name in wrong & set(kept))


def test_called_again_it_has_nothing_left_to_do(home, done, caplog):
    caplog.set_level("INFO", "earmark")
    configurations = ["linear, single", "linear, hierarchical"]
    comparisons = run_dcase2017(
        home / "lists", home / "audio", home / "out", configurations,
        preset="fast", overrides=OVERRIDES,
    )  # fmt: skip
    assert [x for x in caplog.messages if "runs" in x] == ["2 of 2 runs are done."] * 2
    assert sum("clips exist" in x for x in caplog.messages) == 3  # every time
    result = json.loads((home / "out" / "development" / "linear-single-seed0.json").read_text())
    error_rate = comparisons["development"].summaries["linear, single"]["er"].mean
    assert error_rate == pytest.approx(result["scores"]["clip_and_frame"]["error_rate"])


def test_models_are_trained_once_for_both_test_sets(home, done):
    by_set = [
        json.loads((home / "out" / name / "linear-single-seed0.json").read_text())["training"]
        for name in TESTS
    ]
    assert by_set[0] == by_set[1]


def test_the_published_rows_are_sums_of_their_parts():
    for rows in TABLE_2.values():
        assert tuple(rows) == CONFIGURATIONS
        for row in rows.values():
            assert row.s + row.d + row.i == pytest.approx(row.er, abs=0.011)
            assert 2 * row.p * row.r / (row.p + row.r) == pytest.approx(row.f1, abs=2e-4)


def test_the_classes_are_the_official_ones(dcase2017):
    labels = read_classes(dcase2017 / CLASSES)
    assert len(labels) == 17
    assert "Air horn, truck horn" in labels


def test_bad_input_is_explained(home, tmp_path):
    with pytest.raises(DataError, match="must be the folder of the official lists"):
        run_dcase2017(tmp_path, home / "audio", tmp_path / "out")
    with pytest.raises(DataError, match="None of the 60 clips"):
        run_dcase2017(home / "lists", home / "lists", tmp_path / "out")
    with pytest.raises(SettingError, match="did you mean 'linear, single'"):
        run_dcase2017(home / "lists", home / "audio", tmp_path / "out", ["linear single"])
    for override in ("model.pooling=max", "model.stages=[2]", "training.seed=7"):
        with pytest.raises(SettingError, match=f"sets {override.split('=')[0]} itself"):
            run_dcase2017(home / "lists", home / "audio", tmp_path / "out", overrides=[override])
    (tmp_path / CLASSES).write_bytes(b"1\t\xff\xfe\n")
    with pytest.raises(DataError, match="is not in UTF-8"):
        read_classes(tmp_path / CLASSES)
