"""The model file: complete, exact, read for ever, and refused where anything is wrong with it."""

import json
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from earmark.data.features import FeatureConfig
from earmark.errors import BundleError, DataError, SettingError
from earmark.inference.calibration import Calibration
from earmark.inference.decoding import Decoding, Rule
from earmark.inference.description import describe_bundle
from earmark.inference.detector import Detector
from earmark.inference.member import Member
from earmark.inference.model_file import (
    BUNDLED,
    FORMAT,
    Bundle,
    load_bundle,
    save_bundle,
)
from earmark.nn.mlms import MlmsConfig
from earmark.nn.model import Model, ModelConfig
from earmark.tensors import load_tensors, save_tensors

LABELS = ("dog", "siren, far")
DATA = Path(__file__).parent / "data"


def make_member(seed=0, **sizes):
    torch.manual_seed(seed)
    sizes = {"pooling": "attention", "channels": (4, 4, 4, 4)} | sizes
    config = ModelConfig.preset("paper-fast", n_classes=2, **sizes)
    features = FeatureConfig(
        n_mels=config.n_mels, mean=tuple(np.linspace(-9, -4, config.n_mels)), std=(2.0,)
    )
    return Member(features, config, Model(config).state_dict(), window=8.0)


def make(*members):
    return Bundle(
        labels=LABELS,
        members=members or (make_member(),),
        decoding=Decoding.uniform(LABELS, 0.4, low_threshold=0.2, median=0.24, max_gap=0.1),
        tuning={"supervision": "weak", "n_clips": 3},
        training={"n_epochs": 7, "best_valid_loss": 0.25},
        licence="CC-BY 4.0",
        attribution=("A. Nother, bark.wav",),
    )


@pytest.fixture
def path(tmp_path):
    return save_bundle(make(), tmp_path / "model.earmark")


def test_everything_comes_back(path):
    before, after = make(), load_bundle(path)
    assert after.describe() == before.describe()
    assert after.model_config == before.model_config
    assert after.feature_config == before.feature_config
    assert after.decoding == before.decoding
    assert all(after.weights[name].equal(value) for name, value in before.weights.items())
    model = after.build_model()
    assert not model.training


def test_the_description_is_complete(path):
    about = load_bundle(path).describe()
    for name in ("labels", "features", "models", "members", "decoding", "tuning", "training",
                 "versions", "licence", "attribution"):  # fmt: skip
        assert about[name], name
    assert about["features"][0]["sample_rate"] == 32000
    assert about["models"][0]["pooling"] == "attention"
    assert about["members"] == [{"features": 0, "model": 0, "window": 8.0}]
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
def test_a_network_of_some_classes_scores_them_as_it_did_among_all(name):
    labels = ("dog", "cat", "siren", "bell")
    weights = "learned" if name == "linear" else "self"
    config = ModelConfig.preset(
        "paper-fast", n_classes=4, pooling=name, stage_weights=weights, channels=(4, 4, 4, 4)
    )
    rules = [Rule(threshold=0.1 * n, low_threshold=0.1) for n in range(1, 5)]
    member = Member(FeatureConfig(), config, Model(config).state_dict())
    whole = Bundle(labels, (member,), Decoding(labels, rules))
    some = whole.select(["siren", "dog"])
    assert some.decoding == Decoding(["siren", "dog"], [rules[2], rules[0]])
    assert some.labels == ("siren", "dog")
    some.check_weights()
    log_mel = torch.randn(2, 100, 80, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        selected, of_all = some.build_model()(log_mel), whole.build_model()(log_mel)
    torch.testing.assert_close(selected.frame_probs, of_all.frame_probs[:, :, [2, 0]])
    torch.testing.assert_close(selected.clip_probs, of_all.clip_probs[:, [2, 0]])


def test_classes_that_are_unknown_or_depend_on_each_other_are_not_selected():
    with pytest.raises(SettingError, match="did you mean 'dog'"):
        make().select(["dogs"])
    bundle = make(make_member(), make_member(pooling="class-attention"))
    with pytest.raises(SettingError, match="weighs classes against each other"):
        bundle.select(["dog"])


def make_ensemble():
    """Two checkpoints of one training, and a network with other features."""
    return make(make_member(0), make_member(1), make_member(2, n_mels=64, pooling="linear"))


def test_an_ensemble_comes_back_and_describes_what_its_members_share_once(tmp_path):
    before = make_ensemble()
    path = save_bundle(before, tmp_path / "all.earmark")
    after = load_bundle(path)
    about = after.describe()
    assert about == before.describe()
    assert [own["n_mels"] for own in about["features"]] == [80, 64]
    assert [own["pooling"] for own in about["models"]] == ["attention", "linear"]
    assert [(own["features"], own["model"]) for own in about["members"]] == [(0, 0), (0, 0), (1, 1)]
    assert about["n_parameters"] == sum(make(x).describe()["n_parameters"] for x in before.members)
    for own, other in zip(before.members, after.members, strict=True):
        assert own.feature_config == other.feature_config
        assert own.model_config == other.model_config
        assert all(other.weights[name].equal(value) for name, value in own.weights.items())
    text = describe_bundle(about)
    assert text.startswith("2 classes, 3 networks, ")
    assert "\nmodel of member 0, 1: " in text and "\nmodel of member 2: " in text
    with pytest.raises(SettingError, match="an ensemble of 3 networks; ask one of its members"):
        _ = after.weights


def test_the_text_of_a_waveform_has_no_settings_of_log_mels():
    features = FeatureConfig(sample_rate=8000, kind="waveform", mean=(0.5,), std=(2.0,))
    config = MlmsConfig(2, n_samples=160, nets=((2,) * 6,), channels=(2, 4, 6), n_hidden=(4,))
    member = Member(features, config, config.build().state_dict())
    text = describe_bundle(Bundle(("a", "b"), (member,), Decoding.uniform(("a", "b"))).describe())
    assert "\nfeatures: sample_rate=8000, hop=0.02, kind=waveform\n" in text
    assert "\nnormalisation: one mean and one standard deviation for all values\n" in text
    assert "n_mels=80" in describe_bundle(load_bundle(BUNDLED).describe())


def test_an_ensemble_is_halved_and_selected_member_by_member(tmp_path):
    whole = make_ensemble()
    half = load_bundle(save_bundle(whole.halved(), tmp_path / "half.earmark"))
    assert {w.dtype for x in half.members for w in x.weights.values() if w.is_floating_point()} == {
        torch.float16
    }
    one = whole.select(["siren, far"])
    one.check_weights()
    assert (one.labels, one.decoding.labels) == (("siren, far",), ("siren, far",))
    log_mel = torch.randn(1, 40, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        of_one, of_all = (x.members[2].build_model()(log_mel).clip_probs for x in (one, whole))
    torch.testing.assert_close(of_one, of_all[:, [1]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda w: w.pop("1.classifier.weight"),
            r"member 1: The network's classifier\.weight must",
        ),
        (lambda w: w.update({"2.more": torch.zeros(1)}), "member 2: The network has no weights"),
        (lambda w: w.update({"01.more": torch.zeros(1)}), r"has no weights '01\.more'"),
        (lambda w: [w.pop(x) for x in list(w) if x.startswith("2.")], "member 2: .*Got 0 tensors"),
    ],
)
def test_every_member_must_have_its_weights(tmp_path, change, message):
    path = save_bundle(make_ensemble(), tmp_path / "all.earmark")
    text, weights = load_tensors(path, "model")
    change(weights)
    save_tensors(path, weights, text)
    with pytest.raises(BundleError, match=message):
        load_bundle(path)


@pytest.mark.parametrize(
    ("names", "value", "message"),
    [
        (("models", 1, "channels"), [10**6] * 4, r"member 2: .*must have the shape \(2000000,"),
        (("models", 1, "n_convolutions"), 10**6, "member 2: .*4000000 convolutions or more"),
        (("models", 1, "n_classes"), 3, "must be the same"),
        (("members", 2, "model"), 0, "takes 80 values per frame, and the features have 64"),
    ],
)
def test_a_member_that_is_wrong_is_refused(tmp_path, names, value, message):
    path = save_bundle(make_ensemble(), tmp_path / "all.earmark")
    rewrite(path, set_field(*names, value=value))
    with pytest.raises(BundleError, match=message) as caught:
        load_bundle(path)
    assert str(path) in str(caught.value)


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
    with pytest.raises(BundleError, match=r"has format 5 \(made by Earmark .*reads up to format 4"):
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


def test_labels_network_features_and_decoding_must_agree():
    with pytest.raises(SettingError, match="must be the same"):
        replace(make(), labels=("dog",))
    with pytest.raises(SettingError, match="must be the same"):
        replace(make(), labels=LABELS[::-1])
    with pytest.raises(SettingError, match="one network or more"):
        replace(make(), members=())
    with pytest.raises(SettingError, match="takes 80 values per frame, and the features have 64"):
        replace(make_member(), feature_config=FeatureConfig(n_mels=64))


def test_a_file_of_format_1_is_read_for_ever_and_gives_the_same_events():
    detector = Detector.load(DATA / "format-1.earmark")
    rng = np.random.default_rng(5)
    waveform = rng.standard_normal(40000) * np.repeat(rng.random(50), 800) * 0.3
    events = detector.detect(waveform.astype(np.float32), 8000)
    expected = json.loads((DATA / "format-1.json").read_text())["events"]
    assert len(expected) == 5
    assert [list(astuple(event))[:3] for event in events] == [event[:3] for event in expected]
    # Other CPUs round the scores otherwise.
    assert [event.score for event in events] == pytest.approx([x[3] for x in expected], abs=1e-6)


def test_a_file_of_format_1_is_written_in_the_newest_format(tmp_path):
    old = load_bundle(DATA / "format-1.earmark")
    new = load_bundle(save_bundle(old, tmp_path / "new.earmark"))
    assert new.describe() == old.describe()
    assert new.describe()["format"] == FORMAT
    assert old.feature_config.sample_rate == 8000


def to_format_3(path):
    """Write a file of one network as an older Earmark did."""
    text, weights = load_tensors(path, "model")
    values = json.loads(text) | {"format": 3}
    ((values["features"],), (values["model"],)) = values["features"], values.pop("models")
    values["window"] = values.pop("members")[0]["window"]
    old = {name.removeprefix("0."): value for name, value in weights.items()}
    save_tensors(path, old, json.dumps(values, sort_keys=True))


def test_a_file_of_format_3_is_read_as_one_network(path):
    to_format_3(path)
    bundle = load_bundle(path)
    assert bundle.describe() == make().describe()
    assert all(bundle.weights[name].equal(value) for name, value in make().weights.items())


def test_a_file_of_format_2_is_read_and_has_no_calibration(path):
    to_format_3(path)
    rewrite(path, set_field("format", value=2))
    rewrite(path, remove_field("calibration"))
    bundle = load_bundle(path)
    assert bundle.calibration is None
    assert bundle.describe() == make().describe()


def test_a_calibration_comes_back_and_a_wrong_one_is_refused(tmp_path):
    bundle = replace(make(), calibration=Calibration(0.5, 0.0, 0.25, 2.0))
    path = save_bundle(bundle, tmp_path / "calibrated.earmark")
    assert load_bundle(path).calibration == bundle.calibration
    assert "calibration: intercept=0.5, score=0, peak=0.25, clip=2" in describe_bundle(
        load_bundle(path).describe()
    )
    for value, message in (
        ({"clpi": 1.0}, "did you mean 'calibration.clip'"),
        ({"clip": None}, "calibration.clip"),
        (3.0, "calibration must be a table"),
    ):
        rewrite(path, set_field("calibration", value=value))
        with pytest.raises(BundleError, match=message):
            load_bundle(path)


def test_the_bundled_model_file_is_read():
    bundle = load_bundle(BUNDLED)
    assert len(bundle.labels) == bundle.model_config.n_classes == 17
    bundle.check_weights()


def rewrite(path, change):
    """Change the description of a model file, with a checksum that fits again."""
    text, weights = load_tensors(path, "model")
    values = json.loads(text)
    changed = change(values)
    save_tensors(path, weights, json.dumps(values if changed is None else changed))


def set_field(*names, value):
    def change(values):
        for name in names[:-1]:
            values = values[name]
        values[names[-1]] = value

    return change


def remove_field(*names):
    def change(values):
        for name in names[:-1]:
            values = values[name]
        del values[names[-1]]

    return change


@pytest.mark.parametrize(
    ("names", "default"),
    [
        (("members", 0, "window"), 10.0),
        (("tuning",), {"supervision": "none"}),
        (("training",), {}),
        (("licence",), ""),
        (("attribution",), ()),
        (("calibration",), None),
    ],
)
def test_a_field_that_a_file_does_not_have_gets_its_default(path, names, default):
    rewrite(path, remove_field(*names))
    assert getattr(load_bundle(path), names[-1]) == default


def test_a_setting_that_a_file_does_not_have_gets_its_default(path):
    for names in (
        ("features", 0, "log_offset"),
        ("models", 0, "dropout"),
        ("decoding", "dog", "max_gap"),
    ):
        rewrite(path, remove_field(*names))
    bundle = load_bundle(path)
    assert bundle.feature_config.log_offset == FeatureConfig.log_offset
    assert bundle.model_config.dropout == ModelConfig.dropout
    assert (bundle.decoding["dog"].max_gap, bundle.decoding["siren, far"].max_gap) == (0.0, 0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda values: [], "its description must be a table"),
        (remove_field("format"), "it lacks 'format'"),
        (remove_field("labels"), "it lacks 'labels'"),
        (remove_field("features"), "it lacks 'features'"),
        (remove_field("models"), "it lacks 'models'"),
        (remove_field("decoding"), "it lacks 'decoding'"),
        (remove_field("models", 0, "n_classes"), "n_classes"),
        (remove_field("decoding", "dog"), "must be the same"),
        (set_field("lisence", value="MIT"), "did you mean 'licence'"),
        (set_field("features", 0, "n_mel", value=80), "did you mean 'features.n_mels'"),
        (set_field("models", 0, "kernal", value=3), "did you mean 'model.kernel'"),
        (set_field("decoding", "dog", "medain", value=1), "did you mean 'median'"),
        (set_field("format", value=[1]), "its format must be a number from 1 on"),
        (set_field("format", value="1"), "its format must be a number from 1 on"),
        (set_field("labels", value=3), "not iterable"),
        (set_field("labels", value=["dog", "dog"]), "must be the same"),
        (set_field("features", 0, value=[]), "features must be a table of settings"),
        (set_field("features", 0, "hop", value="short"), "features.hop"),
        (set_field("features", 0, "n_mels", value=64), "80"),
        (set_field("models", 0, "channels", value="many"), "model.channels"),
        (set_field("models", 0, "n_recurrent", value=True), "model.n_recurrent must be a number"),
        (set_field("models", 0, "pooling", value="liner"), "did you mean 'linear'"),
        (set_field("decoding", value="dog"), "maps each label to its settings"),
        (set_field("decoding", "dog", "threshold", value="high"), "rule of 'dog'"),
        (set_field("decoding", "dog", "threshold", value=2), "rule of 'dog'"),
        (set_field("members", 0, "window", value="long"), "window must be"),
        (set_field("members", 0, "window", value=0), "window must be"),
        (set_field("members", 0, "window", value=float("nan")), "window must be"),
        (set_field("tuning", value=None), "tuning must be"),
        (set_field("versions", value=[]), "versions must be"),
        (set_field("licence", value=1), "licence must be"),
        (set_field("attribution", value="A. Nother"), "attribution must be"),
        (set_field("models", 0, "channels", value=[10**6] * 4), r"must have the shape \(2000000,"),
        (set_field("models", 0, "channels", value=[10**12] * 4), "not a usable model file"),
        (set_field("models", 0, "channels", value=[10**30] * 4), "not a usable model file"),
        (set_field("models", 0, "n_recurrent", value=10**6), r"must have the shape \(3000000,"),
        (
            set_field("models", 0, "n_recurrent", value=10**7),
            "n_recurrent must be .* up to 1048576",
        ),
        (set_field("models", 0, "n_convolutions", value=10**6), "4000000 convolutions or more"),
        (set_field("features", value={}), "its features must be a list"),
        (set_field("models", value="crnn"), "its models must be a list"),
        (set_field("members", value=[]), "has no weights"),
        (remove_field("members", 0, "model"), "it lacks 'model'"),
        (set_field("members", 0, "modle", value=0), "did you mean 'model'"),
        (set_field("members", 0, value=3), "not iterable"),
        (set_field("members", 0, "model", value=1), r"models\[1\], and there are 1"),
        (set_field("members", 0, "model", value=-1), r"models\[-1\], and there are 1"),
        (set_field("members", 0, "features", value=True), r"features\[True\], and there are 1"),
        (
            set_field("models", 0, "channels", value=[4, 4, 4, 5]),
            r"must have the shape \(10, 4, 3, 3\)",
        ),
    ],
)
def test_a_description_that_is_wrong_is_refused_with_the_name_of_the_file(path, change, message):
    """Huge networks would take terabytes, were they allocated."""
    rewrite(path, change)
    with pytest.raises(BundleError, match=message) as caught:
        load_bundle(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.update(more=torch.zeros(1)), "has no weights 'more'"),
        (lambda w: w.update({"0.more": torch.zeros(1)}), "has no weights 'more'"),
        (lambda w: w.update({"1.more": torch.zeros(1)}), r"has no weights '1\.more'"),
        (lambda w: w.pop("0.classifier.weight"), r"classifier\.weight must have .* Got none"),
        (lambda w: w.update({"0.classifier.bias": torch.zeros(3)}), r"shape \(2,\)\. Got \(3,\)"),
        (lambda w: w.clear(), "Got 0 tensors"),
    ],
)
def test_weights_of_another_network_are_refused_with_the_name_of_the_file(path, change, message):
    text, weights = load_tensors(path, "model")
    change(weights)
    save_tensors(path, weights, text)
    with pytest.raises(BundleError, match=message) as caught:
        load_bundle(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["threshold", "median", "tag_threshold"])
def test_columns_of_format_1_must_be_as_long_as_the_labels(tmp_path, name):
    path = tmp_path / "old.earmark"
    path.write_bytes((DATA / "format-1.earmark").read_bytes())
    rewrite(path, set_field("decoding", name, value=[0.5]))
    with pytest.raises(BundleError, match=r"old\.earmark"):
        load_bundle(path)


def test_a_failed_write_leaves_the_old_file(path, monkeypatch):
    before = path.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(DataError, match="No space left"):
        save_bundle(make(), path)
    assert path.read_bytes() == before
    assert load_file(path)


@pytest.mark.parametrize("number", [0, 1.0, True, None, "1"])
def test_a_format_that_is_no_number_from_1_on_is_refused(path, number):
    rewrite(path, lambda values: values.update(format=number))
    with pytest.raises(BundleError, match="its format must be a number from 1 on"):
        load_bundle(path)


def test_settings_of_the_training_in_a_file_of_format_1_have_their_new_names():
    settings = load_bundle(DATA / "format-1.earmark").training["settings"]
    assert settings == {
        "training": {"ema_decay": 0.9, "checkpoint": "last"},
        "augment": {"mixing": 0.5},
    }


def test_labels_that_are_not_in_alphabetical_order_keep_theirs(tmp_path):
    labels = ("siren", "dog")
    rules = (Rule(0.7, 0.3), Rule(0.2, 0.1))
    bundle = replace(make(), labels=labels, decoding=Decoding(labels, rules))
    again = load_bundle(save_bundle(bundle, tmp_path / "model.earmark"))
    assert (again.labels, again.decoding) == (labels, Decoding(labels, rules))
