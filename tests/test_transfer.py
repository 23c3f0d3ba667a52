"""Training from a trained network with other classes: what is kept, and what the file records."""

import hashlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import earmark
from earmark.cli.app import app
from earmark.data.manifest import Manifest
from earmark.errors import SettingError
from earmark.inference.model_file import load_bundle, save_bundle
from earmark.nn import NETWORKS
from earmark.synth.scenes import SceneConfig, write_scenes
from earmark.training.config import RunConfig
from earmark.training.loop import _Trainer
from earmark.training.transfer import HEAD, kept_tensors, open_origin
from tests.test_networks import small

SCENES = SceneConfig(sample_rate=8000, duration=2.0, event_duration=(0.5, 1.5))
SMALL = [
    *("features.sample_rate=8000", "features.n_mels=20", "model.channels=[4, 4]"),
    *("model.pools=[[2, 2], [1, 2]]", "model.last_channels=8", "model.n_recurrent=4"),
]
SHORT = ["training.max_epochs=2", "training.threads=1", "training.batch_size=4"]


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A model of two classes, and scenes of three others."""
    folder = tmp_path_factory.mktemp("first")
    write_scenes(folder / "old", 8, replace(SCENES, classes=("siren", "knock")), seed=1)
    write_scenes(folder / "new", 8, replace(SCENES, classes=("bell", "chirp", "horn")), seed=2)
    earmark.train(
        folder / "old" / "weak.tsv", audio=folder / "old" / "audio", out=folder / "run",
        overrides=[*SMALL, *SHORT], run=RunConfig(attribution=("A. Author",), licence="CC0"),
    )  # fmt: skip
    return folder


def transfer(first, out, *overrides, **more):
    tables = {"audio": first / "new" / "audio", "out": out}
    return earmark.train(
        first / "new" / "weak.tsv", **tables, start_from=first / "run" / "model.earmark",
        overrides=[*SHORT, *overrides], **more,
    )  # fmt: skip


def test_every_network_keeps_all_but_its_head():
    for name in NETWORKS:
        config = small(name)
        kept, shapes = kept_tensors(config), config.tensor_shapes()
        other = config.changed(n_classes=7).tensor_shapes()
        assert kept and kept < shapes.keys()
        for tensor, shape in shapes.items():
            if shape != other[tensor]:
                assert tensor not in kept, f"{name}: {tensor} depends on the classes"
            elif not tensor.startswith(HEAD):
                assert tensor in kept


def test_a_frozen_network_stays_the_same_to_the_bit_with_a_new_head(first, tmp_path):
    detector = transfer(first, tmp_path / "run", "training.kept_rate=0", "model.pooling=attention")
    source, own = load_bundle(first / "run" / "model.earmark"), detector.bundle
    assert detector.labels == ("bell", "chirp", "horn")
    assert own.feature_config == source.feature_config  # normalisation included
    assert own.model_config == source.model_config.changed(n_classes=3, pooling="attention")
    for name in kept_tensors(own.model_config):
        assert torch.equal(own.weights[name], source.weights[name]), name
    assert own.weights["classifier.weight"].shape[0] == 3
    digest = hashlib.sha256((first / "run" / "model.earmark").read_bytes()).hexdigest()
    saved = earmark.load(tmp_path / "run" / "model.earmark").bundle
    assert saved.training["from"] == {"file": "model.earmark", "sha256": digest}
    assert saved.licence == "CC0" and saved.attribution == ("A. Author",)


def test_a_kept_network_learns_less_than_its_head_and_resumes(first, tmp_path, monkeypatch):
    whole = transfer(first, tmp_path / "whole")
    source = load_bundle(first / "run" / "model.earmark").weights
    kept = [x for x in kept_tensors(whole.bundle.model_config) if "weight" in x and "norm" not in x]
    moved = max(float((whole.bundle.weights[x] - source[x]).abs().max()) for x in kept)
    assert 0 < moved < 1e-3  # Adam moves a weight by about its learning rate, 1e-4, per step

    # Killed after the first epoch, it ends with the same weights; without the model it is refused.
    run_epoch = _Trainer.run_epoch

    def killed(self, recorder):
        if self.state.epoch:
            raise KeyboardInterrupt
        run_epoch(self, recorder)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(_Trainer, "run_epoch", killed)
        transfer(first, tmp_path / "part")
    with pytest.raises(SettingError, match="another data or settings"):
        earmark.train(
            first / "new" / "weak.tsv", audio=first / "new" / "audio", out=tmp_path / "part",
            overrides=[*SMALL, *SHORT], run=RunConfig(resume=True),
        )  # fmt: skip
    resumed = transfer(first, tmp_path / "part", run=RunConfig(resume=True))
    assert resumed.bundle.training["n_epochs"] == 2
    for name, value in whole.bundle.weights.items():
        assert torch.equal(value, resumed.bundle.weights[name])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("features.n_mels=40", "features are those of the model to start from; leave out featur"),
        ("model.network=wang", "has the network 'crnn'; leave out model.network=wang"),
        ("model.last_channels=16", "only pooling, stages, stage_weights and dropout may change"),
        ("model.n_recurrent=0", "recurrent.* would be missing, and the model has"),
        ("training.kept_rate=-1", "training.kept_rate must be 0 or more"),
    ],
)
def test_settings_of_the_kept_part_cannot_change(first, tmp_path, override, message):
    with pytest.raises(SettingError, match=message):
        transfer(first, tmp_path / "run", override)


def test_an_ensemble_or_an_onnx_file_is_no_start(first, tmp_path):
    bundle = load_bundle(first / "run" / "model.earmark")
    both = save_bundle(replace(bundle, members=bundle.members * 2), tmp_path / "both.earmark")
    with pytest.raises(SettingError, match=r"model\.onnx is an ONNX file"):
        open_origin(Path("model.onnx"))
    with pytest.raises(SettingError, match="is an ensemble of 2 networks"):
        earmark.train(first / "new" / "weak.tsv", audio=first / "new" / "audio", start_from=both)


def test_the_benchmark_runs_on_a_sample(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent))
    from benchmarks import transfer as benchmark
    from docs.transfer import describe

    rows = benchmark.run_sample(tmp_path)
    assert {row["start"] for row in rows} == set(benchmark.STARTS)
    assert all(0 <= row[metric] <= 1 for row in rows for metric in benchmark.METRICS)
    results = tmp_path / "results"
    assert benchmark.missing(results, [2], 1) == []
    assert len(benchmark.missing(results, [2], 2)) == 3  # those of the other seed
    assert "**24 of 27 runs are missing.**" in describe(rows)
    assert "| 2 (" in describe(rows)
    twice = [{**row, "seed": 1} for row in rows]
    assert " ± 0.000 |" in describe([*rows, *twice])
    monkeypatch.setattr(benchmark, "RECIPE", ("training.batch_size=8",))
    assert benchmark.read_results(results) == []  # of another recipe
    assert describe([]).startswith("Not measured yet: none of the 27 runs")


def test_the_fewer_clips_of_a_seed_are_among_the_more(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent))
    from benchmarks.transfer import first_clips

    names = [f"{n}.wav" for n in range(60)]
    tags = [("a",) if n % 3 else ("a", "b") for n in range(60)]
    clips = Manifest(names, [Path(name) for name in names], tags, ("a", "b"))
    few, more = (first_clips(clips, size, seed=1) for size in (3, 10))
    assert set(few.files) < set(more.files)
    assert (few.targets.sum(0) >= 3).all()
    assert set(first_clips(clips, 3, seed=2).files) != set(few.files)
    assert first_clips(clips, 100, seed=1).targets.sum(0).tolist() == [60, 20]


def test_the_command_passes_start_groups_and_settings_on(monkeypatch):
    given = {}
    monkeypatch.setattr(
        "earmark.training.api.train", lambda *tables, **more: given.update(more) or sys.exit(0)
    )
    options = ["--from", "old.earmark", "--group", "speaker", "--group-pattern", "^(.)"]
    CliRunner().invoke(app, ["train", "--train", "a.tsv", *options])
    assert given["start_from"] == Path("old.earmark")
    assert (given["group"], given["group_pattern"]) == ("speaker", "^(.)")
