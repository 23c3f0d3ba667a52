"""Networks of one's own, by registration or by an import path, from training to detection."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import earmark
from earmark.cli.app import app
from earmark.cli.train import print_summary
from earmark.data.batches import pad_batch
from earmark.data.encoded import read_encoder
from earmark.data.features import FeatureConfig
from earmark.encoders.runtimes import ENCODERS, check_kind
from earmark.errors import BundleError, SettingError
from earmark.inference.predictor import Predictor
from earmark.nn import NETWORKS, EmbeddingConfig, read_network, register_network
from earmark.nn.networks import find_network
from earmark.runtime.extensions import VARIABLE, import_extensions
from earmark.runtime.processes import map_in_order
from earmark.synth.scenes import SceneConfig, write_scenes
from earmark.training.settings import Settings

EXAMPLES = Path(__file__).parent.parent / "examples"
NAME = "own_network:DilatedConfig"
SMALL = ["features.sample_rate=8000", "features.n_mels=20", "training.threads=1"]


@pytest.fixture(autouse=True)
def _only_our_networks(monkeypatch):
    """Leave the registry and the imported modules as they were."""
    before = dict(NETWORKS)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv(VARIABLE, "")
    yield
    NETWORKS.clear()
    NETWORKS.update(before)
    sys.modules.pop("own_network", None)


class Averages(nn.Module):
    """Pools three frames to one; a transposed view of what a mask-aware module does."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, frames, mask=None):
        frames = frames if mask is None else frames * mask.unsqueeze(2)
        missing = -frames.shape[1] % 3
        frames = nn.functional.pad(frames, (0, 0, 0, missing))
        return self.linear(frames.unflatten(1, (-1, 3)).sum(2)).relu()


class WholeClip(nn.Module):
    """Every embedding depends on the whole clip."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, frames):
        return self.linear(frames - frames.mean(1, keepdim=True) / frames.shape[1] ** 0.5).tanh()


@dataclass(frozen=True)
class AveragesConfig(EmbeddingConfig):
    network = "averages"
    time_pool_of_module: ClassVar[int] = 3
    n_context: ClassVar[int | None] = 3
    n_embedding: int = 8

    def make_encoder(self):
        return Averages(self.n_features, self.n_embedding)


@dataclass(frozen=True)
class WholeClipConfig(EmbeddingConfig):
    network = "whole-clip"
    n_embedding: int = 8

    def make_encoder(self):
        return WholeClip(self.n_features, self.n_embedding)


def configs(**changes):
    dilated = find_network(NAME)(n_classes=3, n_features=20, **changes)
    return [
        dilated,
        AveragesConfig(n_classes=3, n_features=20, **changes),
        WholeClipConfig(n_classes=3, n_features=20, **changes),
    ]


class TestEveryNetworkOfOnesOwn:
    def test_scores_a_clip_alone_as_padded_in_a_batch(self):
        for config in configs(n_recurrent=4, stages=(5,)):
            torch.manual_seed(0)
            network = config.build().eval()
            clips = [torch.randn(n_frames, 20) for n_frames in (37, 16, 3, 16)]
            batch, mask = pad_batch(clips)
            with torch.no_grad():
                together = network(batch, mask)
                for row, clip in enumerate(clips):
                    alone = network(clip.unsqueeze(0))
                    n_frames = alone.frame_probs.shape[1]
                    own = together.frame_probs[row]
                    torch.testing.assert_close(own[:n_frames], alone.frame_probs[0])
                    assert not own[n_frames:].any()
                    torch.testing.assert_close(together.clip_probs[row], alone.clip_probs[0])

    def test_has_the_same_embeddings_in_parts_of_a_recording(self):
        for config in configs():
            torch.manual_seed(0)
            network, log_mel = config.build().eval(), torch.randn(2500, 20)
            predictor = Predictor(network, 3000)  # one window, of several strips
            ((frames, _),) = predictor.predict([[log_mel]])
            with torch.no_grad():
                wanted = network(log_mel.unsqueeze(0)).frame_probs[0]
            np.testing.assert_allclose(frames, wanted, atol=1e-6)

    def test_is_described_by_settings_that_can_be_read_back(self):
        for config in configs(dropout=0.3):
            register_network(type(config))
            assert read_network(config.to_dict()) == config
            assert config.layers(30)[0].n_parameters > 0
            assert len(config.class_axes()) == 2  # weight and bias of the classifier


class TestInterface:
    def test_names_a_network_by_its_import_path_unless_it_has_a_name(self):
        assert find_network(NAME).network == NAME
        assert Settings.load("fast", overrides=[f"model.network={NAME}"]).model.width == 32
        changed = Settings.load("fast", overrides=[f"model.network={NAME}", "model.width=8"])
        assert changed.model.n_embedding == 8 and changed.model.network in NETWORKS

    def test_refuses_what_is_no_network(self):
        with pytest.raises(SettingError, match="'no_such_module' cannot be imported"):
            find_network("no_such_module:Config")
        with pytest.raises(SettingError, match="has no 'Nothing'"):
            find_network("own_network:Nothing")
        with pytest.raises(SettingError, match="frozen dataclass derived from NetworkConfig"):
            find_network("own_network:Dilated")

    def test_refuses_embeddings_of_another_shape(self):
        @dataclass(frozen=True)
        class Wrong(AveragesConfig):
            time_pool_of_module: ClassVar[int] = 2

        with pytest.raises(
            SettingError, match=r"Averages must turn frames .* \(1, 4, 8\).*\(1, 3, "
        ):
            Wrong(n_classes=3, n_features=20).build()(torch.zeros(1, 7, 20))

    def test_a_file_never_imports_code(self, monkeypatch):
        monkeypatch.setattr("importlib.import_module", pytest.fail)
        with pytest.raises(SettingError, match=r"earmark --import own_network ..., or in Python"):
            read_network({"network": NAME, "n_classes": 3})
        assert "own_network" not in sys.modules

    def test_modules_to_import_are_passed_on_to_other_processes(self):
        import_extensions(["own_network", "json"])
        assert NAME in NETWORKS
        assert os.environ[VARIABLE] == "own_network,json"


def test_an_encoder_of_ones_own_is_known_by_name_in_worker_processes_too(tmp_path, monkeypatch):
    (tmp_path / "own_levels.py").write_text(
        "import earmark, torch\n"
        "own = {'patch': 0.5, 'hop': 0.5, 'input': 'waveform'}\n"
        "pool = lambda file: torch.nn.AvgPool1d(2000)\n"
        "features = {'sample_rate': 8000}\n"
        "earmark.register_encoder('own-levels', pool, encoder=own, features=features)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    try:
        done = CliRunner().invoke(app, ["--import", "own_levels", "info", "--json"])
        assert done.exit_code == 0, done.output
        assert read_encoder("own-levels").n_features == 2
        assert list(map_in_order(check_kind, ["own-levels"] * 2, processes=2)) == [None, None]
    finally:
        ENCODERS.pop("own-levels", None)
        sys.modules.pop("own_levels", None)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    config = SceneConfig(
        sample_rate=8000, duration=2.0, event_duration=(0.5, 1.5), classes=("siren", "knock")
    )
    write_scenes(folder, 12, config, seed=1)
    return folder


def test_a_network_of_ones_own_is_trained_saved_loaded_exported_and_detected_with(
    scenes, tmp_path, capsys
):
    pytest.importorskip("onnx", reason="needs the extra 'onnx'")
    overrides = [*SMALL, f"model.network={NAME}", "model.width=8", "training.max_epochs=2"]
    tables = {"audio": scenes / "audio", "out": tmp_path / "run", "overrides": overrides}
    detector = earmark.train(scenes / "weak.tsv", **tables)
    model, wave = tmp_path / "run" / "model.earmark", scenes / "audio" / "scene_00000.wav"
    assert earmark.load(model).detect(wave) == detector.detect(wave)
    assert detector.bundle.model_config.network == NAME
    print_summary(Path("m.earmark"), detector.bundle)
    assert "earmark --import own_network detect RECORDING" in capsys.readouterr().out
    exported = earmark.load(detector.export(tmp_path / "model.onnx"))
    wanted = detector.frame_scores(wave).scores
    np.testing.assert_allclose(exported.frame_scores(wave).scores, wanted, atol=1e-5)
    # Another process does not know the network until it is asked to import it.
    del NETWORKS[NAME]
    with pytest.raises(BundleError, match=r"code of its author.*earmark --import own_network"):
        earmark.load(model)
    command = [sys.executable, "-m", "earmark", "--import", "own_network", "detect", str(wave)]
    done = subprocess.run(
        [*command, "--model", str(model)], capture_output=True, text=True, cwd=EXAMPLES, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_network_on_waveforms_gets_frames_of_samples(scenes, tmp_path):
    @dataclass(frozen=True)
    class OnSamples(EmbeddingConfig):
        network = "on-samples"
        takes: ClassVar[tuple[str, ...]] = ("waveform",)
        n_embedding: int = 4

        def make_encoder(self):
            return nn.Sequential(nn.Linear(self.n_features, 4), nn.ReLU())

    register_network(OnSamples)
    overrides = ["features.sample_rate=8000", "features.kind=waveform", "model.network=on-samples"]
    settings = Settings.load("fast", overrides=overrides)
    assert settings.model.n_features == 160
    assert settings.features == FeatureConfig(sample_rate=8000, kind="waveform")
    with pytest.raises(SettingError, match="takes a waveform"):
        Settings.load("fast", overrides=["model.network=on-samples"])
