"""Networks on windows from training to events: presets, their own loss, model files, long audio."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tones import RATE, make_tone_clip, random_events, write_tones

import earmark
from earmark.errors import SettingError
from earmark.training.api import train
from earmark.training.checkpoint import Checkpoint
from earmark.training.config import RunConfig
from earmark.training.finish import MODEL

ONE_THREAD = "training.threads=1"
# Networks on windows of half a second to two seconds, on tones at 8 kHz.
SMALL = {
    "emsi-like": [
        f"features.sample_rate={RATE}",
        "features.n_mels=16",
        "model.windows=[100, 25]",
        "model.channels=[8, 8]",
    ],
    "mlms8": [
        f"features.sample_rate={RATE}",
        "model.nets=[[2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2], [3, 3, 3, 3, 3, 3, 3, 3]]",
        "model.channels=[4, 8, 8]",
        "model.n_hidden=[16]",
    ],
}
FAST = {"emsi-like": "emsi-like-fast", "mlms8": "mlms8-fast"}


@pytest.fixture(scope="module")
def tones(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tones")
    write_tones(folder, 24, seed=1, prefix="train", ragged=True)
    write_tones(folder, 8, seed=2, prefix="valid")
    return folder


def run(tones, out, name, *overrides, **how):
    tables = (tones / "train_weak.tsv", tones / "valid_weak.tsv", tones / "audio", out)
    short = ["training.batch_size=8", "training.micro_batch=0", "training.max_epochs=2"]
    return train(
        *tables,
        preset=name,
        overrides=[ONE_THREAD, *short, *SMALL[name], *overrides],
        run=RunConfig(store=tones / f"features-{name}", report=False, **how),
    )


@pytest.fixture(scope="module", params=SMALL)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def trained(name, tones, tmp_path_factory):
    """A detector, and the folder of its training."""
    folder = tmp_path_factory.mktemp("trained")
    return run(tones, folder, name), folder


def test_it_is_saved_and_detects_the_same_when_loaded(tones, trained):
    detector, folder = trained
    loaded = earmark.load(folder / MODEL)
    assert loaded.bundle.model_config == detector.bundle.model_config
    assert loaded.bundle.feature_config == detector.bundle.feature_config
    assert loaded.grid.frame_rate == 12.5
    recording = next(iter((tones / "audio").iterdir()))
    want, got = detector.frame_scores(recording), loaded.frame_scores(recording)
    np.testing.assert_array_equal(got.scores, want.scores)
    np.testing.assert_array_equal(got.clip_scores, want.clip_scores)
    assert loaded.detect(recording) == detector.detect(recording)


@pytest.mark.parametrize("name", SMALL)
def test_it_learns_tones_and_when_they_are(tones, tmp_path, name):
    overrides = ["training.max_epochs=12", "training.balanced=false"]
    if name == "emsi-like":
        overrides += ["training.learning_rate=0.005", "model.dropout=0.0"]
    detector = run(tones, tmp_path, name, *overrides)
    history = Checkpoint.read(tmp_path).state.history
    assert history[-1].train_loss < 0.9 * history[0].train_loss
    assert max(row.valid_map for row in history) > 0.9
    rng, inside, outside = np.random.default_rng(5), [], []
    for _ in range(12):
        events = random_events(rng, 4.0)
        scores = detector.frame_scores(make_tone_clip(rng, events), RATE)
        for event in events:
            column = scores.scores[:, scores.labels.index(event.label)]
            centres = (np.arange(len(column)) + 0.5) / 12.5
            within = (event.onset <= centres) & (centres < event.offset)
            inside.append(column[within].mean())
            outside.append(column[~within].mean())
    assert np.mean(inside) > np.mean(outside) + 0.02


@pytest.mark.parametrize("name", FAST.values())
def test_the_fast_preset_trains_on_scenes(tmp_path, name):
    scenes = earmark.SceneConfig(duration=4.0, n_events=(1, 1), classes=("siren", "knock"))
    earmark.write_scenes(tmp_path, 4, scenes, seed=1)
    detector = train(
        tmp_path / "weak.tsv",
        audio=tmp_path / "audio",
        out=tmp_path / "run",
        preset=name,
        overrides=[ONE_THREAD, "training.max_epochs=1"],
        run=RunConfig(report=False),
    )
    scores = detector.frame_scores(next(iter((tmp_path / "audio").iterdir())))
    assert scores.scores.shape == (50, 2)
    assert np.isfinite(scores.scores).all()


def test_stopped_between_two_epochs_it_resumes_to_the_same_weights(tones, trained, tmp_path, name):
    """The momentum of SGD and the moments of Adam are in the checkpoint."""
    _, whole = trained
    stopped = tmp_path / "stopped"
    with pytest.MonkeyPatch.context() as patch:
        wrote = []
        write = Checkpoint.write

        def write_and_stop(self, folder):
            write(self, folder)
            wrote.append(self.state.epoch)
            if self.state.epoch == 1 and self.state.step == 2:
                raise KeyboardInterrupt

        patch.setattr(Checkpoint, "write", write_and_stop)
        with pytest.raises(KeyboardInterrupt):
            run(tones, stopped, name, "training.checkpoint_seconds=0")
    assert wrote[-1] == 1
    run(tones, stopped, name, resume=True)
    want, got = (load_file(folder / MODEL) for folder in (whole, stopped))
    assert want.keys() == got.keys()
    assert all(torch.equal(want[key], got[key]) for key in want)


def test_the_optimizer_is_a_setting(tones, tmp_path):
    once = "training.max_epochs=1"
    run(tones, tmp_path / "sgd", "mlms8", once)
    run(tones, tmp_path / "adam", "mlms8", once, "training.optimizer=adam")
    kinds = {
        name: {
            key for state in Checkpoint.read(tmp_path / name).optimizer.values() for key in state
        }
        for name in ("sgd", "adam")
    }
    assert kinds["sgd"] == {"momentum_buffer"}
    assert {"exp_avg", "exp_avg_sq"} <= kinds["adam"]
    with pytest.raises(SettingError, match=r"no training\.optimizer 'sdg'; did you mean 'sgd'"):
        run(tones, tmp_path / "none", "mlms8", "training.optimizer=sdg")


@pytest.mark.parametrize("name", SMALL)
def test_it_learns_from_tags_only_and_says_so(tones, tmp_path, name):
    tables = (tones / "train_weak.tsv", tones / "valid_weak.tsv", tones / "audio", tmp_path)
    for extra in (
        {"strong": tones / "train_strong.tsv"},
        {"overrides": ["training.generations=2"]},
        {"teachers": [Path("teacher.earmark")]},
    ):
        with pytest.raises(SettingError, match="learns from the tags of clips only; leave out"):
            train(*tables, preset=name, **extra)


def test_some_of_its_classes_score_as_among_all(tones, trained):
    detector, _ = trained
    part = earmark.Detector(detector.bundle.select(["low"]))
    recording = next(iter((tones / "audio").iterdir()))
    want, got = detector.frame_scores(recording), part.frame_scores(recording)
    column = detector.labels.index("low")
    np.testing.assert_allclose(got.scores[:, 0], want.scores[:, column], atol=1e-6)


def pieces_of_noise(n_pieces, n_features, first=0):
    """Yield pieces of 2 s, each with its own seed."""
    for number in range(first, first + n_pieces):
        generator = torch.Generator().manual_seed(number)
        yield torch.randn(100, n_features, generator=generator)


def test_scores_of_a_long_recording_come_while_it_is_read(trained):
    """A quarter of an hour, of which no more than some windows of 3 s are held."""
    detector, _ = trained
    n_features, read, ahead = detector.bundle.model_config.n_features, 0, []

    def features():
        nonlocal read
        for piece in pieces_of_noise(450, n_features):
            read += len(piece)
            yield piece

    pieces = []
    for piece, _ in detector.stream_scores(features()):
        pieces.append(piece)
        ahead.append(read - 4 * sum(map(len, pieces)))
    scores = np.concatenate(pieces)
    assert 4 * len(scores) == read == 45_000
    assert max(ahead) < 10_000
    # Ten minutes in, they are those of that part alone, except near its ends.
    part = np.concatenate(
        [own for own, _ in detector.stream_scores(pieces_of_noise(20, n_features, 300))]
    )
    margin = 2 * round(12.5 * detector.bundle.window)
    assert part.std() > 1e-4
    np.testing.assert_allclose(
        scores[7500 + margin : 8000 - margin], part[margin:-margin], atol=1e-6
    )
