"""The map of hierarchical pooling: its data sets, and its page from results, complete or not."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from earmark.audio.decode import read_audio
from earmark.audio.encode import write_audio
from earmark.experiments.compare import TEST_READ
from earmark.experiments.configurations import read_configurations
from earmark.experiments.run import FROM_TAGS, RunResult
from earmark.formats.events import read_events
from earmark.formats.tags import read_tags, write_tags

REPO = Path(__file__).parent.parent


@pytest.fixture
def kinds(monkeypatch):
    monkeypatch.syspath_prepend(str(REPO))
    from benchmarks import kinds

    return kinds


@pytest.fixture
def page(monkeypatch):
    monkeypatch.syspath_prepend(str(REPO))
    monkeypatch.delitem(sys.modules, "docs", raising=False)
    from docs import hierarchy as page

    return page


TAGS = {f"{i}.wav": ["one", "two"] if i % 2 else ["three", "four"] for i in range(10)}


class TestData:
    def test_every_variation_changes_what_it_says_and_nothing_else(self, kinds):
        base = kinds.scene_sets("procedural")
        for name, variation in kinds.VARIATIONS.items():
            sets, plain = kinds.scene_sets(name), kinds.scene_sets(name.partition("-")[0])
            assert sets.sets.keys() == {"train", "valid", "test"}
            before = asdict(plain.scenes)
            changed = {x for x, value in asdict(sets.scenes).items() if value != before[x]}
            assert {*variation.get("scenes", ())} == changed
            counts = {x: own.n for x, own in sets.sets.items() if own.n != plain.sets[x].n}
            assert counts == variation.get("n", {})
            assert (sets.background_bank != plain.background_bank) == (
                "background_bank" in variation
            )
        lengths = [kinds.scene_sets(f"procedural-length{x}").scenes for x in ("0.3", "1", "3", "6")]
        assert [x.event_duration for x in lengths] == [(0.3, 0.3), (1, 1), (3, 3), (6, 6)]
        assert {x.n_events for x in lengths} == {(1, 2)}
        clips = kinds.scene_sets("procedural-clip30")
        assert (clips.scenes.duration, clips.scenes.n_events) == (30, base.scenes.n_events)
        assert [clips.sets[x].n for x in ("train", "valid", "test")] == [400, 100, 200]
        events = [kinds.scene_sets(f"procedural-events{x}").scenes for x in (1, 8)]
        assert [x.n_events for x in events] == [(1, 1), (8, 8)]
        assert {x.event_duration for x in events} == {(0.5, 1)}

    def test_scenes_of_a_variation_have_events_of_its_length(self, kinds, tmp_path, monkeypatch):
        from dataclasses import replace

        def few(kind):
            sets = made(kind)
            return replace(sets, sets={name: replace(x, n=1) for name, x in sets.sets.items()})

        made = kinds.scene_sets
        monkeypatch.setattr(kinds, "scene_sets", few)
        kinds.main([str(tmp_path), "--only", "procedural-length6"])
        events = read_events(tmp_path / "procedural-length6" / "test" / "strong.tsv")
        lengths = [event.offset - event.onset for own in events.values() for event in own]
        assert lengths == pytest.approx([6.0] * len(lengths), abs=0.002)

    def test_training_tags_of_digits_also_come_with_noise(self, kinds, tmp_path, monkeypatch):
        class Sets:
            def write(self, folder, processes, overwrite):
                for name in ("train", "valid", "test"):
                    (folder / name).mkdir(parents=True)
                    write_tags(folder / name / "weak.tsv", TAGS)

        monkeypatch.setattr(kinds, "scene_sets", lambda kind: Sets())
        kinds.main([str(tmp_path), "--only", "digits-backgrounds", "procedural"])
        noisy = {path.name: read_tags(path) for path in tmp_path.glob("**/weak-*.tsv")}
        assert noisy.keys() == {f"weak-{name}.tsv" for name in kinds.NOISE}
        assert all((tmp_path / "digits-backgrounds" / "train" / name).exists() for name in noisy)
        assert [sum(map(len, own.values())) for _, own in sorted(noisy.items())] == [16, 20]

    def test_noise_hits_the_share_of_tags_that_it_says(self, kinds):
        rng = np.random.default_rng(0)
        labels = np.array(["a", "b", "c", "d"])
        tags = {f"{i}.wav": sorted(labels[rng.random(4) < 0.4].tolist()) for i in range(200)}
        n_tags = sum(map(len, tags.values()))
        before = set()
        for percent in (5, 10, 20):
            n_hit = round(percent / 100 * n_tags)
            missing = kinds.add_noise(tags, "missing", percent / 100, seed=0)
            gone = {(file, tag) for file in tags for tag in {*tags[file]} - {*missing[file]}}
            assert len(gone) == n_hit
            assert before < gone  # more noise keeps the noise there was
            before = gone
            wrong = kinds.add_noise(tags, "wrong", percent / 100, seed=0)
            lost = {(file, tag) for file in tags for tag in {*tags[file]} - {*wrong[file]}}
            assert lost == gone
            full = sum(len(own) == 4 for own in tags.values())
            n_new = sum(len({*wrong[file]} - {*tags[file]}) for file in tags)
            assert n_hit - 4 * full <= n_new <= n_hit
            assert wrong == kinds.add_noise(tags, "wrong", percent / 100, seed=0)
            assert wrong != kinds.add_noise(tags, "wrong", percent / 100, seed=1)
        assert all(missing[file] == own for file, own in tags.items() if not own)

    def test_every_patient_of_the_lung_sounds_is_tested_once(self, kinds, tmp_path):
        source = tmp_path / "source"
        (source / "audio").mkdir(parents=True)
        files = [f"{number}.ogg" for number in range(20)]
        rows = [f"{file}\t{1 + i % 5}\tp{i % 10}\tcrackle,rhonchi\t9.2" for i, file in
                enumerate(files)]  # fmt: skip
        head = "filename\tfold\tpatient\tevent_labels\tduration"
        (source / "clips.tsv").write_text("\n".join([head, *rows]) + "\n")
        events = [f"{file}\t1.0\t2.0\tcrackle" for file in files]
        head = "filename\tonset\toffset\tevent_label"
        (source / "strong.tsv").write_text("\n".join([head, *events]) + "\n")
        kinds.write_lung_folds(source, tmp_path / "lungs")
        tested = []
        for fold in range(5):
            sets = {name: read_tags(tmp_path / "lungs" / f"fold{fold}" / name / "weak.tsv")
                    for name in ("train", "valid", "test")}  # fmt: skip
            assert [len(own) for own in sets.values()] == [12, 4, 4]
            assert len({file for own in sets.values() for file in own}) == 20
            assert {tag for own in sets.values() for x in own.values() for tag in x} == {"crackle"}
            tested += sets["test"]
        assert sorted(tested) == sorted(files)

    def test_a_whitened_recording_has_a_flat_spectrum_and_keeps_when_things_happen(self, kinds):
        rng = np.random.default_rng(0)
        low = np.convolve(rng.normal(size=32000), np.ones(16) / 16, "same").astype(np.float32)
        power = np.abs(np.fft.rfft(kinds.whiten(low, 8000))) ** 2
        before = np.abs(np.fft.rfft(low)) ** 2
        below, above = slice(800, 4000), slice(4000, 10000)  # 200 to 1,000 and to 2,500 Hz
        assert before[below].mean() / before[above].mean() > 10
        assert 0.8 < power[below].mean() / power[above].mean() < 1.25
        assert power[12000:].mean() < 0.01 * power[below].mean()  # above 3,000 Hz
        low[20000] += 5.0
        assert abs(int(np.abs(kinds.whiten(low, 8000)).argmax()) - 20000) <= 2
        quieter = kinds.whiten(low * np.float32(0.25), 8000)
        np.testing.assert_allclose(quieter, kinds.whiten(low, 8000), rtol=1e-3, atol=1e-4)

    def test_folds_of_lung_sounds_have_the_whitened_recordings(self, kinds, tmp_path):
        source = tmp_path / "source"
        (source / "audio").mkdir(parents=True)
        noise = 0.1 * np.random.default_rng(0).normal(size=8000)
        write_audio(source / "audio" / "0.ogg", noise, 8000)
        (source / "clips.tsv").write_text(
            "filename\tfold\tpatient\tevent_labels\n0.ogg\t1\tp\twheeze\n"
        )
        (source / "strong.tsv").write_text("filename\tonset\toffset\tevent_label\n")
        kinds.write_lung_folds(source, tmp_path / "lungs")
        linked, _ = read_audio(tmp_path / "lungs" / "fold1" / "train" / "audio" / "0.ogg")
        assert np.median(linked**2) ** 0.5 == pytest.approx(kinds.LUNG_LEVEL, rel=0.1)


def write_results(folder, plan, gain, n_seeds=5, auc=0.95, only=(), error_rate=0.5, ratio=None):
    """Write results of a plan whose hierarchies have another F1, on test and validation clips."""
    rng = np.random.default_rng(0)
    for name in read_configurations(REPO / "benchmarks" / f"{plan}.toml"):
        if only and name not in only:
            continue
        better = gain if "hierarchical" in name or name.startswith("(") else 0.0
        for seed in range(n_seeds):
            parts = []
            for more in (0.1, 0.0):  # validation scores are higher
                f1 = 0.6 + more + better * (1 + more) + rng.normal(0, 0.004)
                counts = {"tp": [6] * 50, "fp": [4] * 50, "fn": [4] * 50, "errors": [4] * 50}
                names = ("error_rate", "substitution_rate", "deletion_rate", "insertion_rate")
                names += ("precision", "recall", "event_f_measure")
                tuned = dict.fromkeys(names, 0.5) | {"f_measure": f1, "error_rate": error_rate}
                if ratio is not None:
                    tuned |= {"length_ratio": ratio + better, "intersection_f_measure": 0.5}
                free = {"psds1": 0.3, "mean_average_precision": 0.9, "mean_roc_auc": auc}
                of_tunings = {
                    tuning: {**tuned, "f_measure": f1 + (tuning == "clip_and_frame") * better}
                    for tuning in FROM_TAGS
                }
                scores = {**of_tunings, "threshold_free": free}
                parts += [scores, dict.fromkeys(FROM_TAGS, counts)]
            of_valid, counts_of_valid, of_test, counts = parts
            trained = {"n_epochs": 9, "best_epoch": 7, "seconds": 90.0}
            of_test["valid"] = {"mean_average_precision": 0.9}
            result = RunResult(
                name, seed, "", of_test, counts, {}, trained, {},
                valid_scores=of_valid, valid_counts=counts_of_valid,
            )  # fmt: skip
            key = "".join(x if x.isalnum() else "-" for x in name)
            result.write(folder / f"{key}-seed{seed}.json")


def test_without_results_the_page_says_so(page, tmp_path):
    assert page.summary(tmp_path) == "No runs yet.\n"
    assert page.effects(tmp_path) == {}
    tables = (page.verdict_table, page.difference_table, page.score_table, page.training_table)
    assert {*tables} < {*page.PARTS}
    for table in page.PARTS:
        assert table(tmp_path) == "No runs yet.\n"
    page.draw(tmp_path / "map.png", tmp_path)
    assert not (tmp_path / "map.png").exists()


def test_the_page_has_every_plan_of_the_map_and_a_title_for_every_folder(page):
    plans = {path.stem for path in (REPO / "benchmarks").glob("map*.toml")}
    assert {plan for _, plan in page.PLANS} == {*plans, "pooling"}
    assert {folder for folder, _ in page.PLANS} <= page.TITLES.keys()
    folders = {f"map/{path.name}" for path in (REPO / "benchmarks/results/map").iterdir()}
    assert folders <= {folder for folder, _ in page.PLANS}


def test_every_committed_run_of_the_map_belongs_to_a_plan_and_every_plan_is_complete(page):
    """The folders of results hold the runs of their plans, no more and no less."""
    for folder in {folder for folder, _ in page.PLANS if folder.startswith("map/")}:
        plans = [plan for other, plan in page.PLANS if other == folder]
        wanted = {
            (name, seed)
            for plan in plans
            for name, own in read_configurations(REPO / "benchmarks" / f"{plan}.toml").items()
            for seed in range(own.seeds)
        }
        results = map(RunResult.read, (page.RESULTS / folder).glob("*-seed*.json"))
        assert {(result.configuration, result.seed) for result in results} == wanted, folder


def test_the_page_shows_what_is_there(page, tmp_path):
    write_results(tmp_path / "map" / "digits-backgrounds", "map", -0.05)
    of_procedural = tmp_path / "map" / "procedural"
    write_results(of_procedural, "map", 0.0, only=("linear, single",))
    write_results(of_procedural, "map", 0.0, n_seeds=3, only=("linear, hierarchical",))
    write_results(tmp_path / "map" / "lungs", "map_lungs", 0.1, auc=0.66)
    write_results(tmp_path / "map" / "procedural-length3", "map_lengths", 0.035)
    write_results(tmp_path / "map" / "digits-backgrounds", "map_structures", -0.05)
    write_results(tmp_path / "map" / "procedural-length3", "map_stages", 0.035)
    write_results(tmp_path / "map" / "procedural-events8", "map_events", 0.0)
    write_results(tmp_path / "map" / "digits-backgrounds", "map_noise", 0.001)
    lines = page.summary(tmp_path).splitlines()
    assert len(lines) == 3
    start = "- **spoken digits** (35 of 35 runs, validation clips): linear behind by 0.05"
    assert lines[0].startswith(start)
    assert "; attention behind by 0.05" in lines[0]
    title = "- **procedural sounds** (8 of 35 runs, validation clips)"
    assert lines[1] == f"{title}: linear 3 of 5 pairs of runs so far."
    assert "linear no verdict, since tags are learned too badly (AUC 0.660)" in lines[2]
    table = page.verdict_table(tmp_path)
    assert (
        "| spoken digits (validation) | linear, hierarchical minus linear, single | behind by 0.05"
        in table
    )
    assert (
        "| procedural sounds of 3 s (validation) | (5, 5, 5) minus single | ahead by 0.03" in table
    )
    assert "| linear, single, no GRU minus linear, single | no difference larger" in table
    assert "| no verdict, since tags are learned too badly (AUC 0.660): +0.0" in table
    differences = page.difference_table(tmp_path)
    assert "| spoken digits (validation), linear | 5 | -0.05" in differences
    assert "| procedural sounds of 3 s (validation) | 5 | +0.0" in differences
    assert "(25, 5)" not in differences
    scores = page.score_table(tmp_path)
    assert "| spoken digits, validation | linear, hierarchical | 5 | 0.6" in scores
    assert "| procedural sounds, validation | linear, single | 5 | 0.7" in scores
    trained = page.training_table(tmp_path)
    assert "| spoken digits | linear, single | 16 | 9 | 8 | 0 of 5 | 1.5 |" in trained
    assert "| lung sounds | linear, single | 8 | 9 | 8 | 5 of 5 | 1.5 |" in trained
    groups = page.effects(tmp_path)
    assert list(groups) == [page.OF_KINDS, page.OF_LENGTH, page.OF_STAGES, page.OF_CLIPS]
    assert list(groups[page.OF_LENGTH]) == ["3 s (validation)"]
    stages = [f"spoken digits (validation), {stages}" for stages in ("(25, 5)", "(5, 25)")]
    at = "procedural sounds of 3 s (validation)"
    stages += [f"{at}, {x}" for x in ("(2, 5, 12)", "(25, 5)", "(3)")]
    assert list(groups[page.OF_STAGES]) == stages
    assert list(groups[page.OF_CLIPS]) == [
        "procedural sounds, eight short events per clip (validation)",
        "spoken digits (validation), missing 20 %",
        "spoken digits (validation), wrong 20 %",
    ]
    of_kinds = groups[page.OF_KINDS]
    kinds = ("linear", "exp", "attention", "linear, no GRU")  # and nothing of the others
    assert list(of_kinds) == [f"spoken digits (validation), {kind}" for kind in kinds]
    of_digits = of_kinds["spoken digits (validation), linear"]
    assert of_digits.keys() == {"F1", "event F1", "PSDS1"}
    middle, low, high = of_digits["F1"]
    assert low < middle < high < 0
    page.draw(tmp_path / "map.png", tmp_path)
    assert (tmp_path / "map.png").stat().st_size > 10_000


def test_the_page_shows_nothing_of_the_test_clips_before_the_plan_has_read_them(page, tmp_path):
    folder = tmp_path / "map" / "digits-backgrounds"
    write_results(folder, "map", -0.05)
    before = page.effects(tmp_path)[page.OF_KINDS]["spoken digits (validation), linear"]
    reads = []
    for plan, known, clips in (
        ("map_structures", [""], "validation"),
        ("map", [], "validation"),  # of other runs
        ("map", [""], "test"),
    ):
        reads.append({"plan": f"{plan}.toml", "fingerprints": known})
        (folder / TEST_READ).write_text(json.dumps(reads))
        page.load_all.cache_clear()
        assert f"(35 of 35 runs, {clips} clips)" in page.summary(tmp_path)
    after = page.effects(tmp_path)[page.OF_KINDS]["spoken digits, linear"]
    assert before["F1"][0] == pytest.approx(-0.055, abs=0.005)
    assert after["F1"][0] == pytest.approx(-0.05, abs=0.005)


def test_a_candidate_wins_if_its_events_are_ahead_and_its_segments_not_behind(page):
    from earmark.metrics.run_comparison import compare_runs

    def judge(event_f1, f1):
        runs = {"event_f1": event_f1, "f1": f1}
        return page.judge_candidate({x: compare_runs([0.5] * 5, own) for x, own in runs.items()})

    ahead, same = [0.6, 0.61, 0.62, 0.6, 0.61], [0.5, 0.51, 0.49, 0.5, 0.5]
    behind = [1 - x for x in ahead]
    assert judge(ahead, same) == judge(ahead, ahead) == "wins"
    assert judge(ahead, behind) == "ahead, but F1 behind"
    assert judge(same, ahead) == "undecided"
    assert judge(behind, ahead) == "behind"


def test_candidates_beyond_the_paper_have_a_table_of_their_own(page, tmp_path):
    folder = tmp_path / "map" / "procedural"
    write_results(folder, "map_beyond", -0.05)
    page.load_all.cache_clear()
    rows = page.candidate_table(tmp_path).splitlines()[4:]
    names = [row.split(" | ")[1] for row in rows]
    assert names == list(read_configurations(REPO / "benchmarks" / "map_beyond.toml"))[1:]
    assert rows[1].split(" | ")[2] == "+0.000 [+0.000, +0.000]"
    assert rows[1].endswith(" | undecided |")
    assert "prior" not in page.difference_table(tmp_path)  # of the map's own pairs alone
    assert "prior attention, single" in page.beyond_table(tmp_path)


def test_there_is_no_verdict_where_no_output_would_be_better(page, tmp_path):
    write_results(tmp_path / "map" / "procedural", "map", 0.1, error_rate=1.5)
    page.load_all.cache_clear()
    assert "no verdict, since no output would be better (ER 1.50): +0.1" in page.summary(tmp_path)
    assert page.effects(tmp_path) == {}


def test_data_are_in_order_of_how_long_events_come_out(page, tmp_path):
    write_results(tmp_path / "map" / "procedural-length3", "map_lengths", -0.1, ratio=1.2)
    write_results(tmp_path / "map" / "procedural-length6", "map_lengths", -0.1, ratio=0.9)
    write_results(tmp_path / "map" / "procedural-length1", "map_lengths", -0.1)  # an older result
    page.load_all.cache_clear()
    rows = [line.split(" | ") for line in page.length_table(tmp_path).splitlines()[4:]]
    assert [row[:5] for row in rows] == [
        ["| procedural sounds of 6 s (validation)", "0.90", "0.80", "0.50", "5"],
        ["| procedural sounds of 3 s (validation)", "1.20", "1.10", "0.50", "5"],
    ]
    assert rows[0][5] == "+0.000 [+0.000, +0.000]"


def test_the_mean_over_conditions_is_of_linear_pooling_and_of_several(page, tmp_path):
    write_results(tmp_path / "map" / "procedural", "map", 0.04)
    page.load_all.cache_clear()
    assert page.joint_table(tmp_path) == "No runs yet.\n"
    write_results(tmp_path / "map" / "procedural-length3", "map_lengths", -0.02)
    write_results(tmp_path / "map" / "procedural-length6", "map_lengths", 0.5, error_rate=1.5)
    write_results(tmp_path / "map" / "digits-backgrounds", "map", 0.02)
    write_results(tmp_path / "map" / "digits-backgrounds", "map_long", 0.5)
    write_results(tmp_path / "map" / "digits-backgrounds", "map_noise", -0.08)
    page.load_all.cache_clear()
    rows = [line.split(" | ") for line in page.joint_table(tmp_path).splitlines()[4:]]
    assert [row[:3] for row in rows] == [
        ["| spoken digits (validation)", "3", "clip"],
        ["| spoken digits (validation)", "3", "strong"],
        ["| procedural sounds (validation)", "2", "clip"],
        ["| procedural sounds (validation)", "2", "strong"],
    ]
    assert rows[1][3] == "-"  # was not measured
    of_digits, of_procedural = (float(row[3].split()[0]) for row in rows[::2])
    assert of_digits == pytest.approx(1.1 * (0.02 - 0.08 - 0.08) / 3, abs=0.006)
    assert of_procedural == pytest.approx(1.1 * (0.04 - 0.02) / 2, abs=0.006)


def test_differences_are_shown_for_each_tuning_of_pairs_that_are_complete(page, tmp_path):
    write_results(tmp_path / "map" / "digits-backgrounds", "map", -0.05)
    write_results(tmp_path / "map" / "procedural", "map", -0.05, n_seeds=3)
    page.load_all.cache_clear()
    rows = [line.split(" | ") for line in page.tuning_table(tmp_path).splitlines()[4:]]
    assert {row[0].split(",")[0] for row in rows} == {"| spoken digits (validation)"}
    ours = [row for row in rows if row[0] == "| spoken digits (validation), linear"]
    assert [row[1] for row in ours] == ["clip", "clip_and_frame"]  # "strong" was not measured
    assert [row[2] for row in ours] == ["0.50", "0.50"]
    first, second = (float(row[3].split()[0]) for row in ours)
    assert second == pytest.approx(first - 0.05, abs=0.002)
