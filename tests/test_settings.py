"""Settings: strict names, strict types, later sources win."""

import json

import pytest

from earmark.errors import SettingError
from earmark.training.settings import PRESETS, Settings


def test_paper_is_the_papers_training():
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


LENGTHS = ("time_mask", "mel_mask")  # how long, where n_time_masks and n_mel_masks ask for some


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
def test_settings_survive_a_file(preset):
    settings = Settings.load(preset)
    assert Settings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings


def test_the_network_follows_the_number_of_mels():
    assert Settings.load("fast", overrides=["features.n_mels=64"]).model.n_mels == 64


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("model.poolin=max", "did you mean 'model.pooling'"),
        ("training.lr=1", "no setting 'training.lr'"),
        ("training.seed=abc", "training.seed: .*integer.* Got 'abc'"),
        ("training.seed=1.5", "training.seed"),
        ("training.patience=true", "training.patience takes no such override. Got True"),
        ("training.balanced=1", "training.balanced takes true or false. Got 1"),
        ("training.checkpoint_seconds=nan", "0 or more"),
        ("training.learning_rate=inf", "above 0"),
        ("training.seed=-1", "0 or more"),
        ("training.batch_size=0", "1 or more"),
        ("training.schedule=cosin", "did you mean 'cosine'"),
        ("training.learning_rate=0", "above 0"),
        ("model.pooling=linnear", "did you mean 'linear'"),
        ("model.n_classes=4", "no setting 'model.n_classes'"),
        ("augment.mixup=-1", "0 .off. or more"),
        ("features.f_max=99999", "half the sample rate"),
        ("seed=1", r"section\.field=value"),
        ("training.seed", r"section\.field=value"),
    ],
)
def test_a_wrong_word_gets_one_clear_sentence(word, sentence):
    with pytest.raises(SettingError, match=sentence):
        Settings.load("fast", overrides=[word])


def test_a_wrong_file_or_preset_gets_one_clear_sentence(tmp_path):
    with pytest.raises(SettingError, match="did you mean 'fast'"):
        Settings.load("fasst")
    with pytest.raises(SettingError, match="no settings file"):
        Settings.load("fast", tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("training = [")
    with pytest.raises(SettingError, match=r"bad\.toml is not a TOML file"):
        Settings.load("fast", tmp_path / "bad.toml")
    (tmp_path / "flat.toml").write_text("seed = 1")
    with pytest.raises(SettingError, match="stand in sections"):
        Settings.load("fast", tmp_path / "flat.toml")


def test_what_the_machine_decides_does_not_decide_what_is_learned():
    some = Settings.load("fast", overrides=["training.threads=1", "training.checkpoint_seconds=5"])
    assert some.deciding() == Settings.load("fast").deciding()
    other = Settings.load("fast", overrides=["training.learning_rate=0.002"])
    assert other.deciding() != Settings.load("fast").deciding()
