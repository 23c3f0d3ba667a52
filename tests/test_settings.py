"""Settings: strict names, strict types, later sources win."""

import json
import logging
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from earmark.data.features import FeatureConfig
from earmark.errors import SettingError
from earmark.training.config import RunConfig, TrainingConfig
from earmark.training.settings import ADDED, PRESETS, Settings

REPO = Path(__file__).parent.parent


def test_the_preset_paper_is_the_training_of_the_paper():
    paper = Settings.load("paper")
    assert paper.training.batch_size == 128
    assert paper.training.learning_rate == 1e-3
    assert paper.training.patience == 10
    assert paper.model.pooling == "linear"
    assert paper.model.stages == (5, 5, 5)
    off = {name: value for name, value in vars(paper.augment).items() if name not in LENGTHS}
    assert set(off.values()) == {0}
    assert not paper.training.balanced
    assert paper.training.schedule == "constant"
    assert paper.training.gradient_clip == 0


LENGTHS = ("time_mask", "mel_mask")  # lengths of masks, of which there are none


def test_the_preset_best_is_the_best_measured_configuration():
    plan = tomllib.loads((REPO / "benchmarks" / "detector.toml").read_text())
    chain, name = [], "8x epochs, wider"
    while name:
        chain.append(plan["configurations"][name].get("settings", {}))
        name = plan["configurations"][name].get("based_on")
    measured = Settings.load(plan["preset"])
    for changes in (plan["settings"], *reversed(chain)):
        measured = measured.changed(changes, "detector.toml")
    # Only the precision depends on the machine, and the floor is below what was measured.
    assert measured.training.precision == "bf16-mixed"
    best = PRESETS["best"]
    later = {name: getattr(best.training, name) for name in ("min_steps", "pseudo_labels")}
    training = replace(measured.training, precision="32-true", **later)
    assert best == replace(measured, training=training)
    assert best.training.for_clips(6000) == best.training


def test_a_preset_that_was_renamed_has_one_sentence():
    with pytest.raises(SettingError, match=r"^The preset 'accurate' is now called 'best'\.$"):
        Settings.load("accurate")


def test_a_lower_sample_rate_alone_lowers_the_highest_mel(tmp_path, caplog):
    caplog.set_level(logging.INFO, "earmark")
    assert Settings.load("fast", overrides=["features.sample_rate=8000"]).features.f_max == 4000
    assert "features.f_max is lowered to 4000 Hz" in caplog.text
    # Not where it is low enough, and not where it is given, in whatever order or place.
    assert Settings.load("fast", overrides=["features.sample_rate=48000"]).features.f_max == 14000
    low = ["features.f_max=3000", "features.sample_rate=8000"]
    assert Settings.load("fast", overrides=low).features.f_max == 3000
    high = tmp_path / "high.toml"
    high.write_text("[features]\nf_max = 5000\n")
    for given in ({"config": high}, {"overrides": ["features.f_max=5000"]}):
        overrides = ["features.sample_rate=8000", *given.pop("overrides", [])]
        with pytest.raises(SettingError, match=r"Got f_min=50\.0 and f_max=5000"):
            Settings.load("fast", overrides=overrides, **given)
    plan = Settings().changed({"features": {"sample_rate": 16000}}, "plan.toml")
    assert plan.features.f_max == 8000


@pytest.mark.parametrize(("n_clips", "epochs"), [(6000, 16), (2000, 16), (100, 250), (1, 1000)])
def test_few_clips_train_for_more_epochs(n_clips, epochs):
    config = TrainingConfig(batch_size=32, max_epochs=16, min_steps=1000)
    assert config.for_clips(n_clips).max_epochs == epochs
    assert replace(config, min_steps=0).for_clips(n_clips).max_epochs == 16


def test_later_sources_win(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("[training]\nseed = 3\nbatch_size = 8\n[model]\nstages = [5, 5]\n")
    settings = Settings.load("fast", file, ["training.seed=4", "model.pooling=attention"])
    assert settings.training.seed == 4
    assert settings.training.batch_size == 8
    assert settings.model.stages == (5, 5)
    assert settings.model.pooling == "attention"
    assert settings.model.channels == PRESETS["fast"].model.channels


@pytest.mark.parametrize("preset", PRESETS)
def test_settings_are_unchanged_after_writing_and_reading(preset):
    settings = Settings.load(preset)
    assert Settings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings


def test_the_network_follows_the_number_of_mels():
    assert Settings.load("fast", overrides=["features.n_mels=64"]).model.n_mels == 64


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.poolin=max", "did you mean 'model.pooling'"),
        ("training.lr=1", "no setting 'training.lr'"),
        ("features.rate=8000", "did you mean 'features.sample_rate'"),
        ("training.keep=last", "did you mean 'training.checkpoint'"),
        ("training.seed=abc", "training.seed: .*integer.* Got 'abc'"),
        ("training.seed=1.5", "training.seed"),
        (
            "training.patience=true",
            "training.patience takes a value that is not true or false. Got True",
        ),
        ("training.balanced=1", "training.balanced takes true or false. Got 1"),
        ("training.checkpoint_seconds=nan", "0 or more"),
        ("training.learning_rate=inf", "above 0"),
        ("training.seed=-1", "0 or more"),
        ("training.batch_size=0", "1 or more"),
        ("training.schedule=cosin", "did you mean 'cosine'"),
        ("training.monitor=mAP", "no training.monitor 'mAP'. Known: f1, loss, map"),
        ("training.learning_rate=0", "above 0"),
        ("model.pooling=linnear", "did you mean 'linear'"),
        ("model.n_classes=4", "no setting 'model.n_classes'"),
        ("augment.mixup=-1", "0 .off. or more"),
        ("features.f_max=99999", "half the sample rate"),
        ("seed=1", r"section\.field=value"),
        ("training.seed", r"section\.field=value"),
    ],
)
def test_a_wrong_override_gets_one_clear_message(override, message):
    with pytest.raises(SettingError, match=message):
        Settings.load("fast", overrides=[override])


def test_a_wrong_file_or_preset_gets_one_clear_message(tmp_path):
    with pytest.raises(SettingError, match="did you mean 'fast'"):
        Settings.load("fasst")
    with pytest.raises(SettingError, match="no settings file"):
        Settings.load("fast", tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("training = [")
    with pytest.raises(SettingError, match=r"bad\.toml is not a TOML file"):
        Settings.load("fast", tmp_path / "bad.toml")
    (tmp_path / "flat.toml").write_text("seed = 1")
    with pytest.raises(SettingError, match="belong to sections"):
        Settings.load("fast", tmp_path / "flat.toml")


def test_settings_of_the_machine_are_not_in_fingerprints():
    some = Settings.load("fast", overrides=["training.threads=1", "training.checkpoint_seconds=5"])
    assert some.deciding() == Settings.load("fast").deciding()
    other = Settings.load("fast", overrides=["training.learning_rate=0.002"])
    assert other.deciding() != Settings.load("fast").deciding()


def test_new_settings_are_in_fingerprints_only_where_they_differ_from_what_was_before():
    first_names = {"average", "frame_share", "keep"}
    first = Settings().changed(ADDED, "here").deciding()
    assert first_names <= set(first["training"])
    for section, names in ADDED.items():
        assert not set(names) & set(first[section])
    changed = Settings.load("fast", overrides=["training.monitor=map"])
    assert changed.deciding()["training"]["monitor"] == "map"


def test_a_run_needs_a_process_and_a_machine():
    with pytest.raises(SettingError, match=r"devices must be 1 or more\. Got 0"):
        RunConfig(devices=0)
    with pytest.raises(SettingError, match="nodes must be 1 or more"):
        RunConfig(nodes=0)


def test_a_network_gets_the_features_that_it_takes():
    with pytest.raises(SettingError, match=r"'mlms' takes a waveform; with log-mels, use another"):
        Settings.load("fast", overrides=["model.network=mlms"])
    with pytest.raises(SettingError, match=r"'emsi' takes log-mels; with a waveform, use the pres"):
        Settings.load("mlms8", overrides=["model.network=emsi"])
    waveform = FeatureConfig(sample_rate=22050, kind="waveform")
    with pytest.raises(SettingError, match=r"'crnn' takes log-mels; with a waveform, use the pre"):
        Settings.load("fast", features=waveform)


def test_a_waveform_is_augmented_by_gain_and_mixing_and_not_by_mel_bands():
    overrides = ["augment.gain_db=6", "augment.mixing=0.5", "augment.mixup=0.2"]
    assert Settings.load("mlms8", overrides=overrides).augment.mixing == 0.5
    for name in ("eq_db", "n_mel_masks"):
        with pytest.raises(
            SettingError, match=f"augment.{name} changes log-mels, and the features"
        ):
            Settings.load("mlms8", overrides=[f"augment.{name}=2"])


def test_another_sample_rate_changes_the_samples_per_frame_of_a_network_on_waveforms():
    settings = Settings.load("mlms8-fast", overrides=["features.sample_rate=16000"])
    assert (settings.features.n_features, settings.model.n_samples) == (320, 320)
    assert settings.features.f_max == FeatureConfig().f_max  # which says nothing here


def test_automatic_precision_keeps_the_fingerprints_of_mixed_precision():
    mixed, auto = (
        Settings.load("fast", overrides=[f"training.precision={name}"])
        for name in ("bf16-mixed", "auto")
    )
    assert auto.training.precision == "auto"
    assert auto.deciding() == mixed.deciding() != Settings.load("fast").deciding()
