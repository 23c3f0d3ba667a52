"""Faults of a training: one at a time in a folder, nothing dropped in silence, no damage used."""

import json

import pytest
import torch

import earmark
from earmark.data.store import FeatureStore
from earmark.errors import DataError, EarmarkWarning, SettingError
from earmark.files import locked
from earmark.synth.scenes import SceneConfig, write_scenes
from earmark.tensors import load_tensors, save_tensors
from earmark.training import api
from earmark.training.api import MODEL, TRAINING_LOCK, _check_times
from earmark.training.checkpoint import Checkpoint, Fitted

SMALL = [
    *("features.sample_rate=8000", "features.n_mels=16", "model.channels=[2,2,2,2]"),
    *("model.n_recurrent=2", "training.max_epochs=1", "training.threads=1"),
]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    config = SceneConfig(
        sample_rate=8000, duration=2.0, event_duration=(0.5, 1.5), classes=("siren", "knock")
    )
    write_scenes(folder, 8, config, seed=1)
    return folder


def train(scenes, out, **options):
    return earmark.train(
        scenes / "weak.tsv", None, scenes / "audio", out, overrides=SMALL, **options
    )


@pytest.fixture(scope="module")
def trained(scenes, tmp_path_factory):
    """The folder of a training, of a table that has two clips more than there are recordings."""
    folder = tmp_path_factory.mktemp("run")
    table = scenes / "more.tsv"
    text = (scenes / "weak.tsv").read_text()
    table.write_text(text + "lost_1.wav\tsiren\nlost_2.wav\tknock\n")
    with pytest.warns(EarmarkWarning, match="2 of 10 training clips are missing and are skipped"):
        earmark.train(table, None, scenes / "audio", folder / "run", overrides=SMALL)
    return folder / "run"


def test_a_training_without_a_validation_table_warns_of_missing_recordings(trained):
    assert json.loads((trained / "run.json").read_text())["n_train"] < 8


def test_a_second_training_in_the_same_folder_is_refused_and_changes_nothing(scenes, tmp_path):
    (tmp_path / "run").mkdir()
    held = locked(tmp_path / "run", doing="training in", name=TRAINING_LOCK)
    with held, pytest.raises(DataError, match="Another process is training in"):
        train(scenes, tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == [TRAINING_LOCK]


def test_the_model_is_written_last_so_that_resuming_leaves_nothing_out(
    scenes, tmp_path, monkeypatch
):
    def fail(folder):
        raise DataError("Cannot write history.png: No space left on device.")

    drawn, out = [], tmp_path / "run"
    monkeypatch.setattr(api, "plot_epochs", fail)
    with pytest.raises(DataError, match="No space left"):
        train(scenes, out)
    assert not (out / MODEL).exists()
    monkeypatch.setattr(api, "plot_epochs", lambda folder: drawn.append((out / MODEL).exists()))
    train(scenes, out, run=earmark.RunConfig(resume=True))
    assert drawn == [False]
    assert (out / MODEL).exists()


def test_bad_input_leaves_no_folder(scenes, tmp_path):
    with pytest.raises(DataError, match="Cannot read the table"):
        earmark.train(scenes / "none.tsv", None, scenes / "audio", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_features_that_were_damaged_after_they_were_computed_are_not_trained_on(
    scenes, trained, tmp_path
):
    frames = trained / "features" / "frames.f16"
    content = frames.read_bytes()
    try:
        frames.write_bytes(content[:-8] + bytes(8))
        run = earmark.RunConfig(store=trained / "features")
        with pytest.raises(DataError, match=r"the frames of .* were changed"):
            train(scenes, tmp_path / "run", run=run)
    finally:
        frames.write_bytes(content)
    FeatureStore.open(trained / "features").check()


def test_an_event_far_behind_its_recording_is_refused_before_memory_is_taken():
    scores = earmark.FrameScores([[0.5]] * 25, ["dog"], earmark.FrameGrid(12.5))
    _check_times("a.wav", [earmark.Event(0, 4.0, "dog")], scores)
    with pytest.raises(DataError, match=r"a\.wav: the event 'dog' ends at 1e\+12 s, and the rec"):
        _check_times("a.wav", [earmark.Event(0, 1e12, "dog")], scores)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda values, tensors: values.pop("state"),
        lambda values, tensors: values.pop("about"),
        lambda values, tensors: values["state"].update(epoch="x"),
        lambda values, tensors: values["state"].update(epoch=-1),
        lambda values, tensors: values["state"].update(history=[{"epoch": 0}]),
        lambda values, tensors: values["state"].update(history=7),
        lambda values, tensors: values["state"].update(unknown=7),
        lambda values, tensors: tensors.update({"adam.x.step": torch.zeros(1)}),
        lambda values, tensors: [tensors.pop(x) for x in [*tensors] if x.startswith("model.")],
    ],
)
def test_a_crafted_checkpoint_is_refused(trained, tmp_path, spoil):
    text, tensors = load_tensors(trained / "checkpoint.safetensors", "checkpoint")
    values = json.loads(text)
    spoil(values, tensors)
    save_tensors(tmp_path / "checkpoint.safetensors", tensors, json.dumps(values))
    with pytest.raises(DataError, match="is not a usable checkpoint"):
        Fitted.read(tmp_path)


def test_a_checkpoint_of_other_requirements_is_refused_as_before(trained):
    with pytest.raises(SettingError, match="was written with another data or settings"):
        Checkpoint.read(trained, {"data or settings": "other"})
