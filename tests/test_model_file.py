"""The model file: it says everything, it comes back to the bit, and damage is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from earmark.data.features import FeatureConfig
from earmark.errors import BundleError, DataError, SettingError
from earmark.inference.decoding import Decoding, Rule
from earmark.inference.model_file import FORMAT, Bundle, load_bundle, save_bundle
from earmark.nn.model import Model, ModelConfig

LABELS = ("dog", "siren, far")


def make():
    torch.manual_seed(0)
    config = ModelConfig.preset("fast", n_classes=2, pooling="attention", channels=(4, 4, 4, 4))
    return Bundle(
        labels=LABELS,
        features=FeatureConfig(mean=tuple(np.linspace(-9, -4, 80)), std=(2.0,) * 80),
        model=config,
        weights=Model(config).state_dict(),
        decoding=Decoding.uniform(LABELS, 0.4, low_threshold=0.2, median=0.24, max_gap=0.1),
        window=8.0,
        tuning={"supervision": "weak", "n_clips": 3},
        training={"n_epochs": 7, "best_valid_loss": 0.25},
        licence="CC-BY 4.0",
        attribution=("A. Nother, bark.wav",),
    )


@pytest.fixture
def path(tmp_path):
    return save_bundle(make(), tmp_path / "deep" / "model.earmark")


def test_everything_comes_back(path):
    before, after = make(), load_bundle(path)
    assert after.describe() == before.describe()
    assert after.model == before.model
    assert after.features == before.features
    assert after.decoding == before.decoding
    assert all(after.weights[name].equal(value) for name, value in before.weights.items())
    model = after.build_model()
    assert not model.training


def test_it_tells_all_that_the_issue_asks_for(path):
    about = load_bundle(path).describe()
    for name in ("labels", "features", "model", "decoding", "tuning", "training", "versions",
                 "licence", "attribution", "window"):  # fmt: skip
        assert about[name], name
    assert about["features"]["sample_rate"] == 32000
    assert about["model"]["pooling"] == "attention"
    assert about["versions"].keys() == {"earmark", "torch", "numpy"}
    json.dumps(about)


def test_the_same_bundle_gives_the_same_bytes(path, tmp_path):
    again = save_bundle(make(), tmp_path / "again.earmark")
    assert again.read_bytes() == path.read_bytes()


def test_half_precision_weights_are_read_as_single(tmp_path):
    whole = save_bundle(make(), tmp_path / "whole.earmark")
    path = save_bundle(make().halved(), tmp_path / "half.earmark")
    assert path.stat().st_size < 0.6 * whole.stat().st_size
    model = load_bundle(path).build_model()
    assert all(p.dtype == torch.float32 for p in model.parameters())


@pytest.mark.parametrize("name", ["attention", "auto", "linear"])
def test_a_network_of_some_classes_says_of_them_what_it_said_among_all(name):
    labels = ("dog", "cat", "siren", "bell")
    weights = "learned" if name == "linear" else "self"
    config = ModelConfig.preset(
        "fast", n_classes=4, pooling=name, stage_weights=weights, channels=(4, 4, 4, 4)
    )
    rules = [Rule(threshold=0.1 * n, low_threshold=0.1) for n in range(1, 5)]
    whole = Bundle(
        labels, FeatureConfig(), config, Model(config).state_dict(),
        Decoding.from_rules(labels, rules),
    )  # fmt: skip
    some = whole.only(["siren", "dog"])
    assert (some.labels, some.decoding.threshold) == (("siren", "dog"), (rules[2][0], rules[0][0]))
    sound = torch.randn(2, 100, 80, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        said, of_all = some.build_model()(sound), whole.build_model()(sound)
    torch.testing.assert_close(said.frame_probs, of_all.frame_probs[:, :, [2, 0]])
    torch.testing.assert_close(said.clip_probs, of_all.clip_probs[:, [2, 0]])


def test_classes_that_are_not_there_or_cannot_be_parted_are_refused():
    with pytest.raises(SettingError, match="did you mean 'dog'"):
        make().only(["dogs"])
    config = ModelConfig.preset("fast", n_classes=2, pooling="class-attention")
    bundle = replace(make(), model=config, weights=Model(config).state_dict())
    with pytest.raises(SettingError, match="weighs classes against each other"):
        bundle.only(["dog"])


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("where", [0.03, 0.2, 0.5, 0.9, 0.9999])
def test_a_flipped_bit_anywhere_is_refused(path, where):
    flip(path, int(path.stat().st_size * where))
    with pytest.raises(BundleError, match=r"damaged|not an Earmark model"):
        load_bundle(path)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_truncated_file_is_refused(path, share):
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(BundleError, match=r"model\.earmark"):
        load_bundle(path)


def test_another_version_is_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr("earmark.inference.model_file.FORMAT", FORMAT + 1)
    path = save_bundle(make(), tmp_path / "new.earmark")
    monkeypatch.undo()
    with pytest.raises(BundleError, match=r"has format 3 \(made by Earmark .*reads format 2"):
        load_bundle(path)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(BundleError, match="There is no model file"):
        load_bundle(tmp_path / "none.earmark")
    with pytest.raises(BundleError, match="is a folder"):
        load_bundle(tmp_path)
    (tmp_path / "text.earmark").write_text("hello")
    with pytest.raises(BundleError, match="not an Earmark model"):
        load_bundle(tmp_path / "text.earmark")
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(BundleError, match="not an Earmark model"):
        load_bundle(tmp_path / "other.safetensors")


def test_labels_and_network_must_agree():
    with pytest.raises(SettingError, match="must be the same"):
        replace(make(), labels=("dog",))


def test_a_failed_write_leaves_the_old_file(path, monkeypatch):
    before = path.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(DataError, match="No space left"):
        save_bundle(make(), path)
    assert path.read_bytes() == before
    assert load_file(path)
