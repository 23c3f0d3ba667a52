"""ONNX files: every network that can be exported, without Earmark's features or weights."""

import json
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from earmark.audio.decode import read_audio
from earmark.audio.encode import write_audio
from earmark.cli.app import app
from earmark.data.dft import GraphFeatures
from earmark.data.features import FeatureConfig, log_mel
from earmark.encoders.config import EncoderConfig
from earmark.errors import BundleError, SettingError
from earmark.inference import onnx_export
from earmark.inference.decoding import Decoding
from earmark.inference.detector import Detector
from earmark.inference.member import Member
from earmark.inference.model_file import Bundle
from earmark.inference.onnx_export import export_onnx, open_session
from earmark.inference.onnx_file import OnnxNetwork, load_onnx
from earmark.nn import NETWORKS
from tests.test_networks import CHANGES, small, trained

ort = pytest.importorskip("onnxruntime", reason="needs the extra 'onnx'")
pytest.importorskip("onnx", reason="needs the extra 'onnx'")

REPO = Path(__file__).parent.parent
LABELS = ("a", "b", "c")
LOG_MEL = FeatureConfig(
    sample_rate=8000, f_max=4000.0, n_mels=20, mean=(-8.0,), std=(4.0,), window=0.05
)


def bundle_of(*networks, features=LOG_MEL, window=2.0):
    members = [Member(features, x.config, x.state_dict(), window) for x in networks]
    return Bundle(LABELS, members, Decoding.uniform(LABELS))


def noise(seconds, sample_rate, seed=0):
    rng = np.random.default_rng(seed)
    loudness = np.repeat(rng.uniform(0.001, 0.3, round(10 * seconds) + 1), sample_rate // 10)
    n_samples = round(seconds * sample_rate)
    return (rng.normal(size=n_samples) * loudness[:n_samples]).astype(np.float32)


@pytest.fixture(scope="module")
def bundled(tmp_path_factory):
    return Detector.load().export(tmp_path_factory.mktemp("onnx") / "model.onnx")


class TestFeatures:
    @pytest.mark.parametrize(
        "config",
        [
            FeatureConfig(),
            LOG_MEL,  # its window is no multiple of the hop
            FeatureConfig(
                sample_rate=16000, window=0.025, hop=0.01, n_fft=512, n_mels=64, f_max=8000.0,
                mel_scale="htk", spectrum="magnitude",
            ),
            FeatureConfig(sample_rate=8000, f_max=4000.0, n_mels=20, window=0.025, n_fft=601),
        ],
    )  # fmt: skip
    def test_are_those_of_the_fft(self, config):
        graph = GraphFeatures(config)
        for n_samples in (1, config.hop_samples, 7777):
            waveform = torch.from_numpy(noise(1, 16000)[:n_samples]).expand(2, -1)
            torch.testing.assert_close(
                graph(waveform), log_mel(waveform, config), atol=1e-4, rtol=0
            )

    def test_may_be_the_samples_of_a_waveform(self):
        config = FeatureConfig(sample_rate=8000, kind="waveform", mean=(0.5,), std=(2.0,))
        frames = GraphFeatures(config)(torch.ones(1, 161))
        assert frames.shape == (1, 2, 160)
        assert frames.flatten()[[0, 160, 161]].tolist() == [0.25, 0.25, -0.25]


@pytest.mark.parametrize("name", [x for x in NETWORKS if NETWORKS[x].exports])
def test_every_network_that_can_be_exported_is(name, tmp_path):
    bundle = bundle_of(trained(name, CHANGES.get(name, [{}])[-1]))
    path = export_onnx(bundle, tmp_path / "model.onnx")
    ours, exported = Detector(bundle, threads=1), Detector.load(path, threads=1)
    for seconds in (0.01, 2.0, 11.3):  # a part of a frame, a window, several with margins
        waveform = noise(seconds, 8000)
        wanted = ours.frame_scores(waveform, 8000)
        found = exported.frame_scores(waveform, 8000)
        assert found.grid == wanted.grid and found.duration == wanted.duration
        np.testing.assert_allclose(found.scores, wanted.scores, atol=1e-5)
        np.testing.assert_allclose(found.clip_scores, wanted.clip_scores, atol=1e-5)


@pytest.mark.parametrize("name", [x for x in NETWORKS if not NETWORKS[x].exports])
def test_others_are_refused(name, tmp_path):
    features = LOG_MEL
    if "waveform" in NETWORKS[name].takes:
        features = FeatureConfig(sample_rate=1000, kind="waveform")
    with pytest.raises(SettingError, match=f"The network '{name}' cannot be exported: how many"):
        export_onnx(bundle_of(small(name).build(), features=features), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_an_ensemble_with_the_same_features_is_one_graph(tmp_path):
    bundle = bundle_of(trained("head", {"n_recurrent": 0}), trained("head", {"n_recurrent": 4}))
    exported = Detector.load(export_onnx(bundle, tmp_path / "model.onnx"), threads=1)
    for seconds in (2.0, 5.1):
        waveform = noise(seconds, 8000)
        wanted = Detector(bundle, threads=1).frame_scores(waveform, 8000)
        found = exported.frame_scores(waveform, 8000)
        np.testing.assert_allclose(found.scores, wanted.scores, atol=1e-5)
        if seconds == 2.0:  # one window
            np.testing.assert_allclose(found.clip_scores, wanted.clip_scores, atol=1e-5)
        else:  # the highest of means, not the mean of the highest
            assert (found.clip_scores < wanted.clip_scores + 1e-5).all()
    one, other = bundle.members
    moved = replace(other, feature_config=replace(LOG_MEL, mean=(0.0,)))
    with pytest.raises(SettingError, match="different features or frame grids"):
        export_onnx(replace(bundle, members=(one, moved)), tmp_path / "other.onnx")


class TestBundledModel:
    def test_averages_the_last_frames_as_older_releases_of_onnxruntime_do(self, bundled):
        import onnx

        pools = [own for own in onnx.load(bundled).graph.node if own.op_type == "AveragePool"]
        assert pools
        for pool in pools:
            values = {own.name: onnx.helper.get_attribute_value(own) for own in pool.attribute}
            assert values["ceil_mode"] == 1
            assert not values.get("count_include_pad", 0)

    def test_takes_any_batch_and_length_with_onnxruntime_alone(self, bundled):
        session = ort.InferenceSession(bundled)
        assert [(x.name, x.shape) for x in session.get_inputs()] == [
            ("waveform", ["batch", "samples"])
        ]
        detector = Detector.load()
        model, config = detector.ensemble.models[0], detector.bundle.feature_config
        for n_clips, n_samples in ((1, 1), (3, 32001), (2, 500_000)):
            waveforms = np.stack([noise(16, 32000, seed)[:n_samples] for seed in range(n_clips)])
            frames, clips, _ = session.run(None, {"waveform": waveforms})
            with torch.no_grad():
                wanted = model(log_mel(waveforms, config))
            np.testing.assert_allclose(frames, wanted.frame_probs, atol=1e-5)
            np.testing.assert_allclose(clips, wanted.clip_probs, atol=1e-5)

    def test_says_what_its_numbers_mean(self, bundled):
        about = open_session(str(bundled)).get_modelmeta().custom_metadata_map
        detector = Detector.load()
        assert tuple(json.loads(about["labels"])) == detector.labels
        assert int(about["sample_rate"]) == detector.sample_rate
        assert float(about["frame_rate"]) == detector.grid.frame_rate
        assert json.loads(about["decoding"]) == detector.bundle.decoding.to_dict()
        whole = json.loads(about["earmark"])
        assert whole["licence"] == detector.bundle.licence
        assert whole["attribution"] == list(detector.bundle.attribution)

    def test_finds_the_same_in_real_recordings(self, bundled, esc50):
        ours, exported = Detector.load(), Detector.load(bundled)
        files = sorted((esc50 / "audio").iterdir())[::170]
        # The worst of a hundred: a log-mel that is off by 5e-5, and a probability by 3e-6.
        files += [esc50 / "audio" / f"{name}.ogg" for name in ("4-164859-A", "4-117630-A")]
        found_any = 0
        for file in files:
            wanted, found = ours.frame_scores(file), exported.frame_scores(file)
            np.testing.assert_allclose(found.scores, wanted.scores, atol=1e-4)
            np.testing.assert_allclose(found.clip_scores, wanted.clip_scores, atol=1e-4)
            pairs = list(zip(ours.detect(file), exported.detect(file), strict=True))
            found_any += len(pairs)
            for one, other in pairs:
                assert (one.label, one.onset, one.offset) == (
                    other.label,
                    other.onset,
                    other.offset,
                )
                assert one.score == pytest.approx(other.score, abs=1e-4)
        assert found_any

    def test_is_detected_with_by_the_command(self, bundled, tmp_path, esc50):
        names = ("1-100032-A", "1-110389-A", "1-17367-A")
        long = np.concatenate([read_audio(esc50 / f"audio/{x}.ogg", 32000)[0] for x in names])
        write_audio(tmp_path / "long.wav", np.tile(long, 2), 32000)
        tables = []
        for model in ([], ["--model", str(bundled)]):
            done = CliRunner().invoke(app, ["detect", str(tmp_path / "long.wav"), *model])
            assert done.exit_code == 0, done.output
            tables.append([row.split("\t") for row in done.stdout.splitlines()])
        assert len(tables[0]) > 1
        for one, other in zip(*tables, strict=True):
            assert one[:4] == other[:4]

    def test_runs_in_the_example_without_earmark(self, bundled, tmp_path):
        from earmark.synth.scenes import SceneConfig, make_scene

        scene = make_scene(SceneConfig(classes=("siren",), snr_db=(20, 20), n_events=(1, 1)), 1)
        write_audio(tmp_path / "siren.wav", scene.waveform, 32000)
        file = REPO / "examples" / "onnx_only.py"
        blocked = "import sys; sys.modules['earmark'] = sys.modules['torch'] = None\n"
        code = f"{blocked}sys.argv[1:] = {[str(bundled), str(tmp_path / 'siren.wav')]!r}\n"
        done = subprocess.run(
            [sys.executable, "-c", code + file.read_text()],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        events = [x for x in Detector.load().detect(tmp_path / "siren.wav") if x.label == "siren"]
        rows = {row.split("\t")[0]: row.split("\t") for row in done.stdout.splitlines()}
        assert float(rows["siren"][1]) == pytest.approx(events[0].onset, abs=0.25)
        assert float(rows["siren"][2]) == pytest.approx(events[-1].offset, abs=0.25)


class TestRefusals:
    def test_of_what_cannot_be_exported(self, tmp_path):
        network = trained("head", {})
        encoder = EncoderConfig("onnx", 0.5, 0.5, n_features=20, sha256="0", file="x.onnx")
        with pytest.raises(SettingError, match="on the embeddings of an encoder"):
            features = replace(LOG_MEL, encoder=encoder, window=0.04)
            export_onnx(bundle_of(network, features=features), tmp_path / "model.onnx")
        done = CliRunner().invoke(app, ["export", "none.earmark", str(tmp_path / "model.onnx")])
        assert isinstance(done.exception, BundleError)

    def test_of_a_network_whose_graph_depends_on_the_length(self, tmp_path, monkeypatch):
        network = trained("head", {})
        with monkeypatch.context() as patch:
            encode = type(network).encode

            def fixed(self, features, mask=None):
                maps, mask = encode(self, features, mask)
                return maps.reshape(maps.shape[0], int(maps.shape[1]), int(maps.shape[2])), mask

            patch.setattr(type(network), "encode", fixed)
            with pytest.raises(SettingError, match="'head' cannot be exported: its graph is not"):
                export_onnx(bundle_of(network), tmp_path / "model.onnx")
        assert not list(tmp_path.iterdir())

    def test_of_other_onnx_files_and_of_what_an_onnx_file_lacks(self, bundled, tmp_path):
        import onnx

        model = onnx.load(bundled)
        (own,) = (x for x in model.metadata_props if x.key == "earmark")
        own.value = own.value.replace('"format": 1', '"format": 99', 1)
        onnx.save(model, tmp_path / "newer.onnx")
        with pytest.raises(BundleError, match="its format is 99, and this version reads 1"):
            Detector.load(tmp_path / "newer.onnx")
        del model.metadata_props[:]
        onnx.save(model, tmp_path / "foreign.onnx")
        with pytest.raises(BundleError, match="was not written by earmark export"):
            Detector.load(tmp_path / "foreign.onnx")
        (tmp_path / "damaged.onnx").write_bytes(bundled.read_bytes()[:100])
        with pytest.raises(SettingError, match=r"damaged\.onnx cannot be opened as an ONNX file"):
            Detector.load(tmp_path / "damaged.onnx")
        with pytest.raises(BundleError, match="There is no ONNX file"):
            Detector.load(tmp_path / "none.onnx")
        detector = Detector.load(bundled)
        with pytest.raises(SettingError, match="copy the ONNX file"):
            detector.save(tmp_path / "model.earmark")
        with pytest.raises(SettingError, match="with all of its classes"):
            detector.bundle.select(["siren"])
        assert not [x for x in tmp_path.iterdir() if x.suffix == ".earmark"]

    def test_of_a_file_whose_scores_are_not_those_of_its_labels(self, bundled):
        config = load_onnx(bundled).members[0].model_config
        network = OnnxNetwork(replace(config, n_classes=config.n_classes - 1))
        waveform = torch.zeros(2, 50, config.n_samples)
        with pytest.raises(BundleError, match=r"shape \(2, 17\) for 2 clips and 16 labels"):
            network.classify(network.encode(waveform)[0])

    def test_without_the_extra_say_what_to_install(self, tmp_path, monkeypatch):
        monkeypatch.setattr(onnx_export, "import_module", lambda name: __import__("no_" + name))
        with pytest.raises(SettingError, match=r"onnx is not installed; .*earmark\[onnx\]"):
            Detector.load().export(tmp_path / "model.onnx")


def test_recordings_of_different_lengths_are_detected_in_one_call(bundled, tmp_path):
    """A graph has no masks, so only recordings of equal length share a batch."""
    seconds = (3.0, 5.0, 0.25, 3.0, 12.0)
    files = {f"{number}.wav": tmp_path / f"{number}.wav" for number in range(len(seconds))}
    for seed, (path, own) in enumerate(zip(files.values(), seconds, strict=True)):
        write_audio(path, noise(own, 32000, seed), 32000)
    there, here = (
        list(detector.detect_each(files, sensitivity=8.0, keep_scores=True))
        for detector in (Detector.load(bundled), Detector.load())
    )
    assert sum(len(result.events) for result in here) > 3
    for one, other in zip(there, here, strict=True):
        assert one.error is None
        np.testing.assert_allclose(one.scores.scores, other.scores.scores, atol=1e-4)


def test_exporting_warns_about_nothing(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        export_onnx(bundle_of(trained("head", {})), tmp_path / "model.onnx")
