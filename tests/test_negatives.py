"""Negatives: recordings without any of the classes join training and validation."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from tones import RATE, SMALL, write_tones

from earmark.audio.encode import write_audio
from earmark.data.manifest import Manifest
from earmark.data.negatives import read_negatives, split_negatives
from earmark.data.store import Excerpt
from earmark.errors import DataError, SettingError
from earmark.experiments import Plan, run_plan
from earmark.experiments.run import Workspace
from earmark.inference.detector import load
from earmark.training.api import train
from earmark.training.config import RunConfig
from earmark.training.loop import Job

OVERRIDES = [*SMALL, "training.threads=1", "training.max_epochs=1"]


def write_tone(path: Path, hertz: float, seconds: float, seed: int = 0) -> None:
    """Write a tone that is none of the classes, in noise."""
    time = np.arange(round(seconds * RATE)) / RATE
    noise = 0.01 * np.random.default_rng(seed).standard_normal(len(time))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_audio(path, (noise + 0.1 * np.sin(2 * np.pi * hertz * time)).astype(np.float32), RATE)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("negatives")
    write_tones(home, 24, seed=1, prefix="train", ragged=True)
    write_tones(home, 8, seed=2, prefix="valid")
    for number in range(8):
        write_tone(home / "other" / f"short_{number}.wav", 1000.0, 2.0, number)
    write_tone(home / "other" / "deep" / "long.wav", 1100.0, 19.0)
    write_tone(home / "more" / "short_0.wav", 900.0, 4.0)
    return home


def run(home, out, *overrides, **arguments):
    tables = (home / "train_weak.tsv", home / "valid_weak.tsv", home / "audio", out)
    config = RunConfig(store=home / "features", resume=arguments.pop("resume", False))
    return train(*tables, overrides=[*OVERRIDES, *overrides], run=config, **arguments)


def test_negatives_join_training_and_validation_and_the_model_file_says_how_many(home, tmp_path):
    detector = run(home, tmp_path / "run", negatives=[home / "other", home / "more"])
    summary = load(tmp_path / "run" / "model.earmark").bundle.training
    # 19 s are six clips of the median length, 3 s, and a rest that is too short; 9 others.
    assert summary["n_negatives"] + summary["n_valid_negatives"] == 6 + 8 + 1
    assert summary["n_valid_negatives"] == 2
    assert summary["n_train"] == 24 + summary["n_negatives"]
    assert summary["n_valid"] == 8 + 2
    plain = run(home, tmp_path / "plain")
    assert plain.bundle.training["n_negatives"] == 0
    assert detector.bundle.window == plain.bundle.window == 3.0


def test_validation_may_have_negatives_of_its_own(home, tmp_path):
    folders = {"negatives": home / "other", "valid_negatives": home / "more"}
    summary = run(home, tmp_path / "run", **folders).bundle.training
    assert (summary["n_negatives"], summary["n_valid_negatives"]) == (14, 1)
    with pytest.raises(SettingError, match="valid_negatives needs negatives"):
        run(home, tmp_path / "none", valid_negatives=home / "more")


def test_a_network_that_knows_negatives_rejects_their_like(home, tmp_path):
    more = ["training.max_epochs=10", "training.learning_rate=0.01", "training.schedule=cosine"]
    with_them = run(home, tmp_path / "with", *more, negatives=home / "other")
    without = run(home, tmp_path / "without", *more)
    write_tone(tmp_path / "new.wav", 1050.0, 4.0, seed=99)
    scores = [own.frame_scores(tmp_path / "new.wav").clip_level().max()
              for own in (with_them, without)]  # fmt: skip
    assert scores[0] < 0.2, scores
    assert scores[1] > 0.5, scores


def test_strong_labels_and_a_resume_know_negatives_too(home, tmp_path):
    arguments = {"strong": home / "train_strong.tsv", "negatives": home / "other"}
    first = run(home, tmp_path / "run", **arguments)
    assert first.bundle.training["supervision"] == "strong"
    again = run(home, tmp_path / "run", **arguments, resume=True)
    assert again.bundle.training["best_valid_loss"] == first.bundle.training["best_valid_loss"]
    with pytest.raises(SettingError, match="another data or settings"):
        run(home, tmp_path / "run", strong=arguments["strong"], resume=True)


def test_a_folder_without_recordings_or_with_training_clips_is_refused(home, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no recording in .*empty, the folder of negative"):
        run(home, tmp_path / "run", negatives=tmp_path / "empty")
    with pytest.raises(DataError, match=r"is a negative recording and also the clip 'train_000"):
        run(home, tmp_path / "run", negatives=home / "audio")
    with pytest.raises(DataError, match=r"is a validation negative recording and also the clip"):
        run(home, tmp_path / "run", negatives=home / "other", valid_negatives=home / "other")
    assert not (tmp_path / "run").exists()


def test_two_folders_may_have_files_of_the_same_name(home):
    names = read_negatives([home / "other", home / "more"], ["x"]).files
    assert {"negative: short_0.wav", "negative 2: short_0.wav"} <= {*names}


@pytest.mark.parametrize("lengths", [[1] * 40, [3, 9, 1, 1, 5, 20, 2, 2], [100], [1, 1], [1]])
def test_a_split_keeps_the_clips_of_a_recording_together(lengths):
    parts = [Excerpt(f"{n}", i, 1) for n, length in enumerate(lengths) for i in range(length)]
    excerpts = {part.name: part for part in parts}
    paths = [Path(part.file) for part in parts]
    clips = Manifest(list(excerpts), paths, [()] * len(parts), ["x"], excerpts=excerpts)
    first, second = split_negatives(clips, 0.15)
    assert sorted(first.files + second.files) == sorted(clips.files)
    assert bool(len(second)) == (len(clips) > 1)
    if len(lengths) > 2:
        assert not {*first.paths} & {*second.paths}
        assert len(second) <= 0.2 * len(clips)


def test_an_excerpt_is_a_view_that_survives_pickling(home, tmp_path):
    run(home, tmp_path / "run", negatives=home / "other")
    whole = "negative: deep/long.wav"
    clips = read_negatives(home / "other", ["x"])
    store = Job(tmp_path, home / "features", None, clips, clips).open_store()  # type: ignore[arg-type]
    store = store.with_excerpts({"part": Excerpt(whole, 100, 50)})
    for own in (store, pickle.loads(pickle.dumps(store))):
        np.testing.assert_array_equal(own["part"], own[whole][100:150])
        own.check()


PLAN = """
data = {train = "train_weak.tsv", valid = "valid_weak.tsv", test = "valid_strong.tsv"}
[settings]
features = {sample_rate = 8000, n_mels = 16}
model = {channels = [4, 4, 4, 4], last_channels = 4, n_recurrent = 0}
training = {max_epochs = 1, threads = 1}
[configurations]
plain = {seeds = 1}
negatives = {based_on = "plain", data = {negatives = "other"}}
without = {based_on = "negatives", data = {negatives = ""}}
"""


def test_a_comparison_trains_and_tunes_with_negatives(home, tmp_path):
    (home / "plan.toml").write_text(PLAN)
    plan = Plan.read(home / "plan.toml")
    runs = {run.configuration: run for run in plan.runs()}
    assert runs["plain"].trained_on == runs["without"].trained_on != runs["negatives"].trained_on
    run_plan(plan, tmp_path / "out", tmp_path / "work", processes=1)
    workspace = Workspace(plan, tmp_path / "work")
    workspace.compute_features(runs["negatives"])
    bundle = load(workspace.model_path(runs["negatives"])).bundle
    assert bundle.training["n_negatives"] > 0
    assert len(workspace.valid) == bundle.training["n_valid"] > len(workspace.tagged) == 8
    workspace.compute_features(runs["plain"])
    assert len(workspace.valid) == 8
    (home / "plan.toml").write_text(PLAN.replace('"other"', '"nowhere"'))
    with pytest.raises(DataError, match=r"no folder .*nowhere .*data\.negatives"):
        Plan.read(home / "plan.toml")
