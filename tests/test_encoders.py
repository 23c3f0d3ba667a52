"""Pretrained encoders: patches, frames, files and registered modules, from training to events."""

import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import earmark
from earmark.cli import app
from earmark.data.encoded import feature_blocks, read_encoder
from earmark.data.features import FeatureConfig, log_mel
from earmark.encoders import ENCODERS, Encoder, EncoderConfig, register_encoder
from earmark.errors import SettingError
from earmark.inference.model_file import load_bundle
from earmark.training.settings import Settings

REPO = Path(__file__).parent.parent
YAMNET = REPO.parent / "shared" / "encoders" / "yamnet_spectra_in.tflite"
needs_yamnet = pytest.mark.skipif(
    not YAMNET.exists() or find_spec("ai_edge_litert") is None,
    reason="needs ../shared/encoders and ai-edge-litert",
)

RATE = 8000
SHORT = ["training.max_epochs=2", "training.threads=1", "model.n_hidden=16"]
LOG_MEL = {"sample_rate": RATE, "n_mels": 16, "f_max": 4000.0}


class Bands(nn.Module):
    """Log power in 8 bands of each 0.1 s: (batch, samples) -> (batch, frames, 8)."""

    def __init__(self, file: Path | None = None) -> None:
        super().__init__()
        weights = torch.ones(8) if file is None else torch.from_numpy(np.load(file))
        self.register_buffer("weights", weights)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        power = torch.fft.rfft(samples.unfold(1, 800, 800)).abs().square()[..., 1:]
        bands = power.unflatten(-1, (8, 50)).mean(-1)
        return (bands + 1e-6).log() * self.weights


@pytest.fixture
def bands():
    register_encoder(
        "bands",
        Bands,
        encoder={"patch": 0.8, "step": 0.4, "hop": 0.1, "input": "waveform"},
        features={"sample_rate": RATE},
    )
    yield "bands"
    ENCODERS.pop("bands", None)


def write_onnx(path: Path, seed: int = 0) -> Path:
    """A network on log-mel patches: (batch, 10 frames, 16 mels) -> (batch, 12)."""
    from onnx import TensorProto, helper, numpy_helper, save

    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(160, 12)).astype(np.float32) / 20
    nodes = [
        helper.make_node("Flatten", ["patches"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["product"]),
        helper.make_node("Relu", ["product"], ["embedding"]),
    ]
    of_patches = helper.make_tensor_value_info("patches", TensorProto.FLOAT, ["batch", 10, 16])
    of_embedding = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", 12])
    graph = helper.make_graph(
        nodes, "tiny", [of_patches], [of_embedding], [numpy_helper.from_array(weights, "weights")]
    )
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    description = [
        "[encoder]",
        f'file = "{path.name}"',
        "patch = 0.2",
        "hop = 0.1",
        "[features]",
        f"sample_rate = {RATE}",
        "n_mels = 16",
        "f_max = 4000.0",
    ]
    path.with_suffix(".toml").write_text("\n".join(description))
    return path.with_suffix(".toml")


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    config = earmark.SceneConfig(
        sample_rate=RATE, duration=2.0, event_duration=(0.5, 1.5), classes=("siren", "knock")
    )
    earmark.write_scenes(folder, 12, config, seed=1)
    return folder


@pytest.mark.parametrize("n_samples", [1, 799, 800, 5000, 21234])
def test_an_encoder_gives_the_same_frames_for_a_waveform_in_any_blocks(bands, n_samples):
    config = read_encoder(bands)
    rng = np.random.default_rng(n_samples)
    waveform = rng.normal(size=n_samples).astype(np.float32)
    whole = torch.cat(list(feature_blocks([waveform], config)))
    cuts = np.sort(rng.integers(0, n_samples + 1, 5))
    assert whole.shape == (config.grid.count(n_samples / RATE), 8)
    assert torch.equal(whole, torch.cat(list(feature_blocks(np.split(waveform, cuts), config))))


def test_a_click_is_in_the_frame_that_covers_it(bands):
    config = read_encoder(bands)
    for second in (0.05, 0.15, 1.33, 2.98):
        waveform = np.zeros(3 * RATE, np.float32)
        waveform[round(second * RATE)] = 1.0
        (frames,) = feature_blocks([waveform], config)
        assert int(frames[:, 0].argmax()) == config.grid.index(second)


def test_a_patch_with_one_embedding_is_centred_on_its_frame():
    register_encoder("mean", lambda file: nn.AvgPool1d(9))
    try:
        encoder = Encoder(EncoderConfig("mean", patch=9, hop=3, input="waveform"), unit=1.0)
        rows = torch.arange(12.0)
        (frames,) = encoder.stream([rows])
    finally:
        del ENCODERS["mean"]
    assert frames.flatten().tolist() == pytest.approx([15 / 9, 4, 7, 51 / 9])


def test_the_log_mel_of_other_toolkits_is_computed_by_their_formula():
    config = FeatureConfig(
        sample_rate=16000, window=0.025, hop=0.01, n_fft=512, n_mels=64, f_min=125.0, f_max=7500.0,
        mel_scale="htk", spectrum="magnitude", log_offset=0.001,
    )  # fmt: skip
    waveform = np.random.default_rng(0).normal(size=4000).astype(np.float32)
    features = log_mel(waveform, config).numpy()
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    start = 10 * 160 - 120  # frame 10, whose window is centred on it
    magnitude = np.abs(np.fft.rfft(waveform[start : start + 400] * hann, 512))

    def mel(hz):
        return 1127 * np.log(1 + hz / 700)

    corners = np.linspace(mel(125), mel(7500), 66)
    expected = np.zeros(64)
    for band in range(64):
        left, centre, right = corners[band : band + 3]
        for number in range(1, 257):
            at = mel(number * 16000 / 512)
            rising, falling = (at - left) / (centre - left), (right - at) / (right - centre)
            expected[band] += max(0, min(rising, falling)) * magnitude[number]
    assert np.abs(features[10] - np.log(expected + 0.001)).max() < 1e-4


def test_a_registered_module_is_trained_on_saved_and_found_again(bands, scenes, tmp_path):
    detector = earmark.train(
        scenes / "weak.tsv", audio=scenes / "audio", out=tmp_path, encoder=bands, overrides=SHORT
    )
    recording = next((scenes / "audio").iterdir())
    expected = detector.frame_scores(recording)
    loaded = earmark.load(tmp_path / "model.earmark")
    assert loaded.bundle.model_config.network == "head"
    assert loaded.grid.frame_rate == 10
    np.testing.assert_array_equal(loaded.frame_scores(recording).scores, expected.scores)
    assert [e.label for e in loaded.detect(recording)] == [
        e.label for e in detector.detect(recording)
    ]
    register_encoder("bands", lambda file: nn.Sequential(Bands(), nn.Linear(8, 8)))
    with pytest.raises(SettingError, match="encoder bands is not the one that the features need"):
        earmark.load(tmp_path / "model.earmark")
    del ENCODERS["bands"]
    with pytest.raises(SettingError, match=r"There is no kind of encoder.*'bands'"):
        earmark.load(tmp_path / "model.earmark")


def test_an_onnx_file_is_trained_on_and_checked_by_its_hash(scenes, tmp_path):
    described = write_onnx(tmp_path / "tiny.onnx")
    options = ["--train", scenes / "weak.tsv", "--audio", scenes / "audio", "--out", tmp_path]
    words = [word for override in SHORT for word in ("--set", override)]
    run = CliRunner().invoke(
        app, [str(o) for o in ("train", *options, "--encoder", described, *words)]
    )
    assert run.exit_code == 0, run.output
    model, recording = tmp_path / "model.earmark", next((scenes / "audio").iterdir())
    about = load_bundle(model).describe()
    assert about["features"]["encoder"]["file"] == str(tmp_path / "tiny.onnx")
    assert about["features"]["encoder"]["n_features"] == 12
    expected = earmark.load(model).frame_scores(recording).scores

    moved = shutil.move(tmp_path / "tiny.onnx", tmp_path / "moved.onnx")
    with pytest.raises(SettingError, match=r"There is no encoder .*tiny\.onnx; pass where it is"):
        earmark.load(model)
    loaded = earmark.load(model, encoder=moved)
    np.testing.assert_array_equal(loaded.frame_scores(recording).scores, expected)
    # Saved again, it knows the new place.
    earmark.load(loaded.save(tmp_path / "again.earmark"))

    write_onnx(tmp_path / "other.onnx", seed=1)
    with pytest.raises(SettingError, match=r"other\.onnx is not the one that the features need"):
        earmark.load(model, encoder=tmp_path / "other.onnx")
    with pytest.raises(SettingError, match="The model has no encoder; leave out encoder="):
        earmark.load(encoder=moved)


def test_a_file_without_a_description_or_of_another_kind_is_refused(tmp_path):
    bare = tmp_path / "bare.onnx"
    with pytest.raises(SettingError, match=r"There is no encoder .*bare\.onnx; pass a TOML file"):
        read_encoder(bare)
    write_onnx(bare).unlink()
    with pytest.raises(SettingError, match=r"bare\.onnx needs bare\.toml beside it"):
        read_encoder(bare)
    described = tmp_path / "weights.toml"
    (tmp_path / "weights.pt").touch()
    described.write_text('[encoder]\nfile = "weights.pt"\npatch = 1.0\nhop = 0.5\n')
    with pytest.raises(SettingError, match=r"There is no kind of encoder.*'pt'"):
        read_encoder(described)
    described = write_onnx(tmp_path / "tiny.onnx")
    described.write_text(described.read_text().replace("hop = 0.1", "hop = 0.11"))
    with pytest.raises(SettingError, match=r"hop must be a whole number of log-mel frames of 0.02"):
        read_encoder(described)
    described.write_text(described.read_text().replace("hop = 0.11", 'hop = 0.1\ntensor = "inner"'))
    with pytest.raises(SettingError, match=r"tiny\.onnx: there is no output 'inner'"):
        read_encoder(described)


def test_settings_of_an_encoder_refuse_what_is_for_log_mels(tmp_path):
    features = read_encoder(write_onnx(tmp_path / "tiny.onnx"))
    settings = Settings.load("encoder", overrides=["model.kernel=5"], features=features)
    assert (settings.model.n_features, settings.model.kernel) == (12, 5)
    assert Settings.from_dict(settings.to_dict()) == settings
    for preset, name in (("fast", "crnn"), ("wang-fast", "wang"), ("gccaps", "gccaps")):
        with pytest.raises(SettingError, match=f"'{name}' takes log-mels; with an encoder, use"):
            Settings.load(preset, features=features)
    with pytest.raises(SettingError, match=r"augment\.mixing changes log-mels"):
        Settings.load("encoder", overrides=["augment.mixing=0.5"], features=features)
    with pytest.raises(SettingError, match=r"change features\.hop in the TOML file"):
        Settings.load("encoder", overrides=["features.hop=0.01"], features=features)
    moved = replace(features, encoder=replace(features.encoder, file="/elsewhere/tiny.onnx"))
    assert Settings.load("encoder", features=moved).deciding() == (
        Settings.load("encoder", features=features).deciding()
    )


def test_settings_without_an_encoder_are_written_as_before():
    assert {*FeatureConfig().to_dict()} == {
        *("sample_rate", "window", "hop", "n_mels", "f_min", "f_max", "log_offset", "mean", "std")
    }
    assert "network" not in Settings().deciding()["model"]
    assert {"n_fft", "encoder"}.isdisjoint(Settings().deciding()["features"])


@needs_yamnet
def test_the_patches_of_yamnet_equal_its_frames_in_torch():
    from benchmarks.yamnet import read_yamnet

    config = read_encoder(REPO / "benchmarks" / "yamnet.toml")
    assert config.n_features == 1024
    scene = earmark.make_scene(
        earmark.SceneConfig(
            sample_rate=16000,
            classes=("siren",),
            duration=2.0,
            event_duration=(1.0, 2.0),
            n_events=(1, 1),
        ),
        seed=1,
    )
    embeddings = torch.cat(list(feature_blocks([scene.waveform], config)))
    assert embeddings.shape == (config.grid.count(2.0), 1024)
    # Frame 6 is centred at 1.04 s, so its patch begins at log-mel frame 56.
    patch = log_mel(scene.waveform, config.log_mel)[56 : 56 + 96]
    with torch.no_grad():
        frames = read_yamnet(YAMNET, stride=32)(patch.unsqueeze(0))
    own = torch.corrcoef(torch.stack([embeddings[6], frames[0].mean(0)]))[0, 1]
    assert own > 0.99
