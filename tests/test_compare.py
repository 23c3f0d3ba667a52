"""Comparisons: units that are resumed and never repeated, statistics one can check by hand."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tones import write_tones

from earmark.errors import DataError, SettingError
from earmark.experiments import Plan, Result, compare_results, run_plan, write_tables
from earmark.experiments.plan import Pair
from earmark.experiments.run import Bench, Heard, run_unit
from earmark.experiments.table import WAYS, comparison_tables
from earmark.files import locked
from earmark.inference.detector import Detector
from earmark.inference.tuning import tune_clip_thresholds
from earmark.metrics.clip import clip_scores, tags_of
from earmark.training.api import MODEL, PSEUDO_LABELS
from earmark.training.checkpoint import HISTORY

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

[cells.oracle]
seeds = 1
against = "single"
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


def test_a_plan_runs_the_first_seed_of_every_cell_first(home):
    units = Plan.read(home / "plan.toml").units()
    assert [unit.key for unit in units] == [
        "single-seed0", "hierarchical-seed0", "oracle-seed0", "single-seed1", "hierarchical-seed1",
    ]  # fmt: skip
    assert units[1].settings.model.stages == (5, 5)
    assert units[3].settings.training.seed == 1
    assert Plan.read(home / "plan.toml").pairs() == [
        ("single", "hierarchical", "hierarchical less single"),
        ("single", "oracle", ""),
    ]


def test_every_unit_leaves_a_result_with_all_scores(home, results):
    assert len(results) == 5
    for result in results:
        assert result.scores["weak"].keys() == result.scores["strong"].keys()
        assert 0 <= result.scores["curves"]["mean_average_precision"] <= 1
        # A network that finds nothing scores 0: what is nan could not be compared.
        assert all(np.isfinite(value) for of in result.scores.values() for value in of.values())
        weak, counts = result.scores["weak"], result.counts["weak"]
        n_ref = sum(counts["tp"]) + sum(counts["fn"])
        assert weak["error_rate"] == pytest.approx(sum(counts["errors"]) / n_ref)
        assert weak["recall"] == pytest.approx(sum(counts["tp"]) / n_ref)
        assert Result.read(home / "out" / f"{result.cell}-seed{result.seed}.json") == result
    assert results[2].training["supervision"] == "strong"


def test_one_way_has_one_gate_for_all_classes(home, results, monkeypatch):
    gates = []

    def tune(*said, **choices):
        tuned = tune_clip_thresholds(*said, **choices)
        gates.append(tuned.decoding.clip_threshold)
        return tuned

    monkeypatch.setattr("earmark.experiments.run.tune_clip_thresholds", tune)
    plan = Plan.read(home / "plan.toml")
    again = run_unit(Bench(plan, home / "work"), plan.units()[0].with_threads(1))
    assert again.scores == results[0].scores
    _, own, shared = gates  # as `Result` names them: weak, gates, shared
    assert len({*own}) > len({*shared}) == 1


def test_the_clip_that_is_shown_is_the_first_with_the_most_events(results):
    shown = [result.shown for result in results]
    assert len({clip["file"] for clip in shown}) == 1
    assert len(shown[0]["frame_probs"]["low"]) == 50  # 4 s at 12.5 frames a second
    assert shown[0]["thresholds"].keys() == shown[0]["open"].keys() == set(WAYS)
    for way in ("gates", "shared"):
        assert {begin for begin, go_on in shown[0]["thresholds"][way].values()} == {0.5}
    assert {begin for begin, go_on in shown[0]["thresholds"]["weak"].values()} != {0.5}


def test_what_is_done_is_not_done_again(home, results):
    before = {path: path.stat().st_mtime_ns for path in (home / "out").glob("*.json")}
    told = []
    again = run_plan(Plan.read(home / "plan.toml"), home / "out", home / "work", tell=told.append)
    assert again == results
    assert told == ["5 units, 5 of them done already."]
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_what_is_no_result_is_told(home, results, tmp_path):
    path = tmp_path / "single-seed0.json"
    whole = json.loads((home / "out" / path.name).read_text())
    for slip in ({"scores": {}}, {"counts": {}}, {"scores": {"weak": {}}}):
        path.write_text(json.dumps(whole | slip))
        with pytest.raises(DataError, match=r"single-seed0\.json is no result of a comparison"):
            run_plan(Plan.read(home / "plan.toml"), tmp_path, home / "work")


def test_another_way_of_scoring_makes_another_result_but_no_other_model(home, monkeypatch):
    unit = Plan.read(home / "plan.toml").units()[0]
    monkeypatch.setattr("earmark.experiments.plan.SCORING", 0)
    changed = Plan.read(home / "plan.toml").units()[0]
    assert unit.fingerprint != changed.fingerprint
    assert unit.folder == changed.folder


def test_events_that_leave_out_a_validation_clip_are_told_before_any_training(home, tmp_path):
    first = (home / "valid_strong.tsv").read_text().splitlines()[:2]
    few = home / "few_strong.tsv"
    few.write_text("\n".join(first) + "\n")
    (tmp_path / "plan.toml").write_text(PLAN.replace("valid_strong", "few_strong"))
    with pytest.raises(DataError, match="clips are not in the table of events"):
        run_plan(Plan.read(tmp_path / "plan.toml", home), tmp_path / "out", tmp_path / "work", 1)
    assert not (tmp_path / "out").exists()


def test_a_result_of_other_settings_is_not_taken_for_this_one(home, results, tmp_path):
    changed = tmp_path / "plan.toml"
    changed.write_text(PLAN.replace("max_epochs = 2", "max_epochs = 3"))
    with pytest.raises(SettingError, match=r"single-seed0\.json was made with other settings"):
        run_plan(Plan.read(changed, home), home / "out", home / "work")


OWN_DATA = """
[cells.more]
seeds = 1
against = "single"
data = {train = "more/train_weak.tsv"}

[cells."more, strong"]
seeds = 1
strong = true
data = {train = "more/train_weak.tsv", train_events = "more/train_strong.tsv"}
"""


def test_a_cell_may_have_a_training_table_of_its_own(home, tmp_path):
    for seed, part in enumerate(("train", "valid", "test")):
        write_tones(tmp_path, 12, seed=seed, prefix=part)
    (tmp_path / "more").mkdir()
    write_tones(tmp_path / "more", 16, seed=7, prefix="train")  # names that the other has too
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.replace("seeds = 2", "seeds = 1") + OWN_DATA)
    plan = Plan.read(path)
    units = {unit.cell: unit for unit in plan.units()}
    assert units["more"].train == tmp_path / "more" / "train_weak.tsv"
    assert units["more"].train_events is None
    assert units["more, strong"].train_events == tmp_path / "more" / "train_strong.tsv"
    assert units["single"].fingerprint == Plan.read(home / "plan.toml").units()[0].fingerprint
    assert units["more"].fingerprint != units["single"].fingerprint
    bench = Bench(plan, tmp_path / "work")
    for cell, n_clips in (("single", 12), ("more", 16)):
        store = bench.compute_features(units[cell])
        assert len(bench.clips(units[cell].train)) == n_clips
        assert len(store) == n_clips + 24
    assert bench.store_of(units["more"]) != bench.store_of(units["single"])
    assert run_unit(bench, units["more"]).cell == "more"


def test_the_events_of_one_training_table_are_not_those_of_another(home, tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN + OWN_DATA.replace(', train_events = "more/train_strong.tsv"', ""))
    with pytest.raises(DataError, match=r"There is no table .*more/train_weak\.tsv \(cells\.more"):
        Plan.read(path, home)
    path.write_text(
        PLAN + OWN_DATA.replace('"more/train_weak.tsv", train_events = "more/train_strong.tsv"',
                                '"valid_weak.tsv"').replace("more/train_weak.tsv", "valid_weak.tsv")
    )  # fmt: skip
    with pytest.raises(
        SettingError, match=r"'more, strong' is strong; it needs data\.train_events"
    ):
        Plan.read(path, home)


BUILT_ON = """
[cells.longer]
on = "oracle"
settings = {training.max_epochs = 3}

[cells.more]
seeds = 1
on = "longer"
data = {train = "more/train_weak.tsv"}
strong = false
settings = {training.batch_size = 4, model.stages = [5, 5]}

[cells.both]
together = "single"

[cells.student]
seeds = 1
on = "single"
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


def test_a_cell_takes_over_what_the_one_it_is_on_has(built):
    longer, more, student = (built.cells[name] for name in ("longer", "more", "student"))
    assert (longer.seeds, longer.strong, longer.against) == (1, True, "oracle")
    assert more.settings == {
        "training": {"max_epochs": 3, "batch_size": 4},
        "model": {"stages": [5, 5]},
    }
    assert not more.strong
    assert student.settings["model"]["stages"] == []
    units = {unit.key: unit for unit in built.units()}
    assert units["longer-seed0"].train_events is not None
    assert units["more-seed0"].train.parent.name == "more"
    assert len({unit.learned for unit in units.values()}) == len(units) == 9


def test_runs_heard_together_are_the_mean_of_each(home, built, results):
    work = home / "work"
    units = {unit.cell: unit for unit in built.units()}
    bench = Bench(built, work)
    result = run_unit(bench, units["both"])
    assert result.training == {"together": ["single-seed0", "single-seed1"]}
    store = bench.compute_features(units["both"].members[0])
    parts = [
        Heard.by(Detector.load(work / member.folder / MODEL), bench, store)
        for member in units["both"].members
    ]
    mean = np.mean([part.test.clip_probs for part in parts], axis=0)
    tags = dict(zip(bench.test.files, mean, strict=True))
    by_hand = clip_scores(tags_of(bench.truth), probs=tags, labels=bench.test.labels)
    own = result.scores["curves"]["mean_average_precision"]
    assert own == pytest.approx(by_hand.mean_average_precision)
    curves = Heard.together(parts).test.curves
    assert_allclose(curves[0], np.mean([part.test.curves[0] for part in parts], axis=0), rtol=1e-6)
    assert units["both"].settings.model.stages == ()  # the members'


def test_a_student_is_run_after_its_teachers_and_learns_from_them(home, built, results, tmp_path):
    wanted = [unit for unit in built.units() if unit.cell in ("student", "single")]
    plan = replace(built, cells={x: built.cells[x] for x in ("student", "single")})
    assert [unit.turn for unit in plan.units()] == [1, 0, 0]
    told = []
    run_plan(plan, tmp_path / "out", tmp_path / "work", 1, told.append)
    assert [sentence.split()[0] for sentence in told[1:]] == [
        "single-seed0", "single-seed1", "student-seed0",
    ]  # fmt: skip
    student = next(unit for unit in wanted if unit.cell == "student")
    assert (tmp_path / "work" / student.folder / PSEUDO_LABELS).exists()
    before = Result.read(tmp_path / "out" / "student-seed0.json")
    assert before.scores["curves"] != results[0].scores["curves"]  # the same, but for teachers
    (tmp_path / "out" / "student-seed0.json").unlink()
    shutil.rmtree(tmp_path / "work")  # which may be thrown away
    run_plan(plan, tmp_path / "out", tmp_path / "work", 1, told.append)
    assert [sentence.split()[0] for sentence in told[-4:]] == [
        "3", "single-seed0", "single-seed1", "student-seed0",
    ]  # fmt: skip
    assert Result.read(tmp_path / "out" / "student-seed0.json").scores == before.scores


@pytest.mark.parametrize(
    ("slip", "sentence"),
    [
        ('on = "later"', "trained cell named before 'new' for on"),
        ('teachers = "new"', "cell named before 'new' for teachers"),
        ('together = "single"\nstrong = true', "trains nothing"),
        ('on = "oracle"\ntogether = "single"', "trains nothing"),
        ('together = "single"\nseeds = 2', "it has no seeds"),
        ('on = "oracle"\nteachers = "single"', "from events or from teachers"),
        (
            'teachers = "single"\nsettings = {features.n_mels = 8}',
            "'new' cannot learn from 'single'",
        ),
    ],
)
def test_a_slip_in_what_a_cell_builds_on_is_told(home, tmp_path, slip, sentence):
    path = tmp_path / "plan.toml"
    path.write_text(f"{PLAN}\n[cells.new]\n{slip}\n\n[cells.later]\nsettings = {{}}\n")
    with pytest.raises(SettingError, match=sentence):
        Plan.read(path, home)


def test_clips_that_cannot_be_read_are_told_and_left_out(tmp_path):
    for seed, part in enumerate(("train", "valid", "test")):
        write_tones(tmp_path, 12, seed=seed, prefix=part)
    (tmp_path / "plan.toml").write_text(PLAN.replace("seeds = 2", "seeds = 1").split("[cells")[0])
    plan = Plan.read(tmp_path / "plan.toml")
    broken = sorted((tmp_path / "audio").glob("test*"))[0]
    broken.write_bytes(b"")
    told = []
    results = run_plan(plan, tmp_path / "out", tmp_path / "work", 1, told.append)
    assert any(line.startswith("Set aside: ") and broken.name in line for line in told)
    assert len(results[0].counts["weak"]["tp"]) == 11


def test_a_unit_that_another_command_is_at_is_refused_in_a_sentence(home, tmp_path):
    plan = Plan.read(home / "plan.toml")
    folder = tmp_path / plan.units()[0].folder
    folder.mkdir()
    with locked(folder), pytest.raises(DataError, match="Another process is training in"):
        run_plan(plan, tmp_path / "out", tmp_path, 1)


def test_features_of_other_settings_have_a_store_of_their_own(home, tmp_path):
    path = tmp_path / "plan.toml"
    axis = "[grid.mels]\nsixteen = {features.n_mels = 16}\neight = {features.n_mels = 8}\n"
    path.write_text(PLAN.split("[grid.structure]", maxsplit=1)[0] + axis)
    plan = Plan.read(path, home)
    bench = Bench(plan, tmp_path)
    assert len({bench.store_of(unit) for unit in plan.units()}) == 2


def test_an_oracle_added_later_leaves_other_results_valid(home, tmp_path):
    without = PLAN.replace('train_events = "train_strong.tsv"\n', "").split("[cells.oracle]")[0]
    (tmp_path / "plan.toml").write_text(without)
    before = {u.key: u.fingerprint for u in Plan.read(tmp_path / "plan.toml", home).units()}
    after = {u.key: u.fingerprint for u in Plan.read(home / "plan.toml").units()}
    assert before.items() < after.items()


def test_a_unit_gives_the_same_result_on_any_day(home, results):
    plan = Plan.read(home / "plan.toml")
    unit = plan.units()[0].with_threads(1)
    again = [run_unit(Bench(plan, home / f"work{day}"), unit) for day in (1, 2)]
    assert replace(again[0], training={}) == replace(again[1], training={})


def test_killed_it_goes_on_where_it_was(home, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN.replace("max_epochs = 2", "max_epochs = 8"))
    words = [plan, "--data", home, "--out", tmp_path / "out", "--processes", "2", "--json"]
    command = [sys.executable, "-m", "earmark", "compare", *map(str, words)]
    started = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )

    def half_trained():
        """Return the histories of units with some epochs behind them and no result."""
        found = {}
        for path in (tmp_path / "out" / "work").glob(f"*/{HISTORY}"):
            key = path.parent.name.rpartition("-")[0]
            rows = path.read_text().splitlines()[1:]
            if len(rows) > 1 and not (tmp_path / "out" / f"{key}.json").exists():
                found[path] = rows
        return found

    until = time.monotonic() + 60
    while not (list(tmp_path.glob("out/*.json")) and half_trained()) and time.monotonic() < until:
        time.sleep(0.02)
    os.killpg(started.pid, signal.SIGKILL)  # with its workers, which would end their unit first
    started.communicate()
    done = {path.name: path.read_bytes() for path in tmp_path.glob("out/*-seed*.json")}
    begun = half_trained()
    assert 0 < len(done) < 5
    assert begun
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"5 units, {len(done)} of them done already" in again.stderr
    for name, content in done.items():
        assert (tmp_path / "out" / name).read_bytes() == content
    for path, rows in begun.items():  # with their seconds: these epochs were not done again
        after = path.read_text().splitlines()[1:]
        assert after[: len(rows)] == rows
        assert len(after) == 8
    assert json.loads(again.stdout)["weak"]["seeds"]["single"] == [0, 1]
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {
        "table.md", "table.json", "runs.png",
    }  # fmt: skip


A_AND_B = Pair("a", "b")


def made_result(cell, seed, error_rate, f_measure=0.5):
    names = ("substitution_rate", "deletion_rate", "insertion_rate", "precision", "recall")
    tuned = dict.fromkeys((*names, "event_f_measure"), 0.1)
    tuned |= {"error_rate": error_rate, "f_measure": f_measure}
    errors = [round(1000 * error_rate)] * 20
    counts = {"tp": [500] * 20, "fp": [500] * 20, "fn": [500] * 20, "errors": errors}
    ap = {"mean_average_precision": 0.6}
    scores = {"weak": tuned, "curves": {"psds1": 0.3, **ap}, "valid": ap}
    return Result(cell, seed, "", scores, {"weak": counts}, {}, {}, {})


def test_statistics_are_those_one_computes_by_hand():
    of_a, of_b = [0.70, 0.74, 0.72], [0.60, 0.70, 0.62]
    results = [made_result("a", seed, value) for seed, value in enumerate(of_a)]
    results += [made_result("b", seed, value) for seed, value in enumerate(of_b)]
    found = compare_results(results, [A_AND_B])
    cell = found.cells["a"]["er"]
    assert cell.mean == pytest.approx(0.72)
    assert cell.deviation == pytest.approx(0.02)
    # Clips are all alike here, so that runs alone spread: Student's 4.303 x 0.02 / sqrt(3).
    assert (cell.low, cell.high) == pytest.approx((0.72 - 0.04968, 0.72 + 0.04968), abs=1e-4)
    pair = found.pairs[A_AND_B]["er"]
    assert pair.difference == pytest.approx(-0.08)
    assert pair.p_value == pytest.approx(0.25)  # all three fall: 2 of 8 flips
    assert found.corrected[A_AND_B]["er"] == pair.p_value


def test_an_interval_covers_other_runs_on_other_clips():
    """Runs and clips both spread; of 300 made-up cells, the true mean is within 95 % of them."""
    rng, true, within = np.random.default_rng(0), 0.6, 0
    for _ in range(300):
        hard = rng.normal(0, 0.1, 100)  # of a clip, whatever run
        results = []
        for seed in range(3):
            sample_rate = true + hard + rng.normal(0, 0.02)
            errors = (1000 * rate).round().astype(int).tolist()
            result = made_result("a", seed, sum(errors) / 100_000)
            counts = {"tp": [500] * 100, "fp": [0] * 100, "fn": [500] * 100, "errors": errors}
            results.append(replace(result, counts={"weak": counts}))
        cell = compare_results(results, [], n_draws=200).cells["a"]["er"]
        within += cell.low <= true <= cell.high
    assert 0.93 < within / 300 < 0.99


def test_an_interval_ends_where_the_score_does():
    results = [made_result("a", seed, 0.1 + 2.0 * seed, 0.05 + 0.9 * seed) for seed in (0, 1)]
    cell = compare_results(results, []).cells["a"]
    assert (cell["er"].low, cell["f1"].low, cell["f1"].high) == (0.0, 0.0, 1.0)
    assert cell["er"].high > 10


def test_one_run_has_no_interval_and_the_json_no_nan(tmp_path, home):
    found = compare_results([made_result("a", 0, 0.7)], [])
    assert np.isnan([found.cells["a"]["er"].low, found.cells["a"]["er"].deviation]).all()
    assert comparison_tables(found)[1].rows[0] == ("a", "-", "-", "-", "-", "-")
    write_tables(Plan.read(home / "plan.toml"), [made_result("single", 0, 0.7)], tmp_path)
    assert "NaN" not in (tmp_path / "table.json").read_text()


def test_pairs_of_one_change_are_corrected_among_themselves_and_tested_together():
    pairs = [Pair("a", "b", "b less a"), Pair("c", "d", "b less a"), Pair("a", "e")]
    results = [made_result(cell, seed, 0.5 + seed / 100 + more)
               for cell, more in (("a", 0), ("b", 0.1), ("c", 0.2), ("d", 0.3), ("e", 0.1))
               for seed in range(5)]  # fmt: skip
    found = compare_results(results, pairs)
    assert [found.corrected[pair]["er"] for pair in pairs] == [0.125, 0.125, 0.0625]
    together = found.together["b less a"]["er"]
    assert (together.n_runs, together.p_value) == (10, 2 / 2**10)
    assert together.difference == pytest.approx(0.1)
    assert found.together.keys() == {"b less a"}
    by_seed = found.by_seed["b less a"]["er"]
    assert (by_seed.n_runs, by_seed.p_value) == (5, 2 / 2**5)
    assert by_seed.difference == pytest.approx(0.1)
    last = [row[:2] for row in comparison_tables(found)[2].rows[-2:]]
    assert last == [("all: b less a", "10"), ("mean of a seed: b less a", "5")]


def test_pairs_are_of_the_seeds_that_both_have():
    results = [made_result("a", seed, 0.7 + seed / 100) for seed in (0, 1, 2)]
    results += [made_result("b", seed, 0.6) for seed in (1, 2, 3)]
    assert compare_results(results, [A_AND_B]).pairs[A_AND_B]["er"].n_runs == 2
    assert compare_results(results[:4], [A_AND_B]).pairs == {}


def test_the_tables_name_every_cell_and_pair(home, results):
    plan = Plan.read(home / "plan.toml")
    comparisons = write_tables(plan, results, home / "tables")
    text = (home / "tables" / "table.md").read_text()
    for name in ("| single |", "| hierarchical |", "| oracle |", "hierarchical less single"):
        assert name in text
    assert [comparison.tuning for comparison in comparisons] == list(WAYS)
    assert "oracle less single" not in text  # one seed is no comparison
    assert len(comparison_tables(comparisons[0])) == 3


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("[data]", "[dato]", "'dato'; did you mean 'data'"),
        ("seeds = 1", "seed = 1", "no setting 'cells.oracle.seed'; did you mean"),
        ("model.stages = []", "model.stage = []", "no setting 'model.stage'; did you mean"),
        ("model.stages = []", "stages = []", "A setting has a section"),
        ('against = "single"', 'against = "singel"', "'singel'; did you mean 'single'"),
        ('train_events = "train_strong.tsv"', "", "'oracle' is strong; it needs data.train_events"),
        ('test = "test_strong.tsv"', 'test = ""', r"data\.test is empty"),
        ("seeds = 2", "seeds = 0", "seeds must be 1 or more"),
        ("seeds = 2", "seeds = true", "grid.seeds"),
        ('against = "single"', 'against = "oracle"', "There is no cell to compare 'oracle' with"),
        ("max_epochs = 2", "max_epochs = 2\nseed = 3", "seeds are 0, 1 and so on"),
        ("[cells.oracle]", "[cells.single]", "'single' is in the grid already"),
        ("[grid.structure]", "[grid.structure.deep]", "There is no setting 'single.model'"),
        ("[cells.oracle]", '[cells."single!"]', "would share files"),
    ],
)
def test_a_slip_in_a_plan_is_told_in_a_sentence(home, tmp_path, before, after, sentence):
    (tmp_path / "plan.toml").write_text(PLAN.replace(before, after, 1))
    with pytest.raises(SettingError, match=sentence):
        Plan.read(tmp_path / "plan.toml", home)


@pytest.mark.parametrize("slip", ["grid = 3", "cells = 3", "settings = 3", "[grid]\nseeds = 2"])
def test_a_table_that_is_none_or_has_no_axis_is_told_in_a_sentence(home, tmp_path, slip):
    tables = "\n".join(line for line in PLAN.splitlines() if "_" in line and ".tsv" in line)
    top, rest = (slip, "") if not slip.startswith("[") else ("", slip)
    (tmp_path / "plan.toml").write_text(f"{top}\n[data]\n{tables}\n{rest}\n")
    with pytest.raises(SettingError, match=r"is a table|has an axis"):
        Plan.read(tmp_path / "plan.toml", home)


def test_a_table_that_is_not_there_is_named(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN)
    with pytest.raises(DataError, match=r"no table .*train_weak.tsv \(data.train\)"):
        Plan.read(tmp_path / "plan.toml")
