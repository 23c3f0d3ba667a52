"""Several sets of scenes from one TOML file, each from other folds of a soundbank."""

import numpy as np
import pytest
from commands import run

from earmark.audio.encode import write_audio
from earmark.errors import SettingError
from earmark.formats.events import read_events
from earmark.synth.scenes import SceneSets

FILE = """
[bank]
table = "clips.tsv"
audio = "sounds"

[scenes]
sample_rate = 8000
duration = 2.0
event_duration = [0.3, 1.0]
n_events = [1, 2]
classes = ["low", "high"]
backgrounds = ["pink"]

[sets.train]
n = 3
seed = 1
folds = [1, 2]

[sets.test]
n = 2
seed = 2
folds = [3]
"""


@pytest.fixture
def bank(tmp_path):
    (tmp_path / "sounds").mkdir()
    rows = ["filename\tcategory\tfold"]
    for fold in (1, 2, 3):
        for label, pitch in (("low", 300), ("high", 1500)):
            wave = np.sin(2 * np.pi * pitch * np.arange(8000) / 8000)
            write_audio(tmp_path / "sounds" / f"{label}{fold}.wav", 0.5 * wave, 8000)
            rows.append(f"{label}{fold}.wav\t{label}\t{fold}")
    (tmp_path / "clips.tsv").write_text("\n".join(rows))
    (tmp_path / "scenes.toml").write_text(FILE)
    return tmp_path


def test_every_set_is_written_with_unique_names(bank):
    written = SceneSets.read(bank / "scenes.toml").write(bank / "out")
    assert {name: len(files) for name, files in written.items()} == {"train": 3, "test": 2}
    assert list(written["test"]) == ["test_00000.wav", "test_00001.wav"]
    assert read_events(bank / "out" / "test" / "strong.tsv") == written["test"]


def test_a_set_uses_no_recording_of_another_fold(bank):
    for label in ("low", "high"):  # only fold 3 is left, so only the test set can be made
        for fold in (1, 2):
            (bank / "sounds" / f"{label}{fold}.wav").unlink()
    sets = SceneSets.read(bank / "scenes.toml")
    assert len(sets.write(bank / "out", ["test"])["test"]) == 2
    with pytest.raises(Exception, match="there is no recording"):
        sets.write(bank / "out", ["train"])


def test_sets_without_a_bank_are_procedural(tmp_path):
    text = FILE[FILE.index("[scenes]") :].replace("folds = [1, 2]", "").replace("folds = [3]", "")
    (tmp_path / "scenes.toml").write_text(text.replace('["low", "high"]', '["bell", "siren"]'))
    written = SceneSets.read(tmp_path / "scenes.toml").write(tmp_path / "out")
    assert {event.label for own in written["train"].values() for event in own} <= {"bell", "siren"}


def test_a_set_may_have_classes_of_its_own(bank):
    text = FILE.replace("folds = [3]", 'folds = [3]\nclasses = ["high"]')
    (bank / "scenes.toml").write_text(text)
    written = SceneSets.read(bank / "scenes.toml").write(bank / "out")
    assert {event.label for own in written["test"].values() for event in own} == {"high"}


class TestBackgroundBank:
    """Backgrounds from another soundbank, each set with folds of its own."""

    @pytest.fixture
    def two_banks(self, bank):
        rng = np.random.default_rng(0)
        rows = ["filename\tcategory\tfold"]
        for label, fold in (("rain", 7), ("rain", 8), ("car", 7), ("car", 8)):
            write_audio(bank / "sounds" / f"{label}{fold}.wav", 0.1 * rng.normal(size=8000), 8000)
            rows.append(f"{label}{fold}.wav\t{label}\t{fold}")
        (bank / "behind.tsv").write_text("\n".join(rows))
        text = FILE.replace('["pink"]', '["rain"]').replace('classes = ["low", "high"]', "")
        text = text.replace(
            "[scenes]", '[background_bank]\ntable = "behind.tsv"\naudio = "sounds"\n\n[scenes]'
        )
        text = text.replace("folds = [1, 2]", "folds = [1, 2]\nbackground_folds = [7]")
        text = text.replace("folds = [3]", "folds = [3]\nbackground_folds = [8]")
        (bank / "scenes.toml").write_text(text)
        return bank

    def test_its_backgrounds_are_behind_the_events_and_give_none(self, two_banks):
        sets = SceneSets.read(two_banks / "scenes.toml")
        joined = sets.open_bank("test")
        assert joined.categories == ("high", "low", "rain")  # the car is no background
        assert [file.name for file in joined.files["rain"]] == ["rain8.wav"]
        assert [file.name for file in sets.open_bank("train").files["rain"]] == ["rain7.wav"]
        written = sets.write(two_banks / "out")
        labels = {
            event.label for files in written.values() for own in files.values() for event in own
        }
        assert labels <= {"low", "high"}

    @pytest.mark.parametrize(
        ("before", "after", "sentence"),
        [
            ("background_folds = [8]", "", "sets.test: background_folds belong to"),
            (
                '[background_bank]\ntable = "behind.tsv"\naudio = "sounds"',
                "",
                "sets.train: background",
            ),
            ('[bank]\ntable = "clips.tsv"\naudio = "sounds"', "", r"needs a table \[bank\]"),
        ],
    )
    def test_a_mistake_in_it_is_reported_in_one_sentence(self, two_banks, before, after, sentence):
        path = two_banks / "scenes.toml"
        path.write_text(path.read_text().replace(before, after))
        with pytest.raises(SettingError, match=sentence):
            SceneSets.read(path)

    def test_a_background_in_both_banks_and_one_in_neither_are_refused(self, two_banks):
        path = two_banks / "scenes.toml"
        text = path.read_text()
        path.write_text(text.replace('["rain"]', '["snow"]'))
        with pytest.raises(SettingError, match="no background 'snow'"):
            SceneSets.read(path).write(two_banks / "out")
        table = two_banks / "clips.tsv"
        table.write_text(table.read_text() + "\nrain7.wav\train\t3")
        path.write_text(text)
        with pytest.raises(SettingError, match="'rain' is a category of the soundbank and of"):
            SceneSets.read(path).open_bank("test")


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("[sets.train]", "[set.train]", "no table in .* 'set'; did you mean 'sets'"),
        ("folds = [3]", "fold = [3]", "no setting 'sets.test.fold'; did you mean 'sets.test.folds"),
        ("n = 2\nseed", 'n = "two"\nseed', "sets.test.n"),
        ("folds = [3]", "folds = []", "sets.test needs .* and a fold"),
        (FILE[FILE.index("[sets") :], "[sets]", r"needs a table \[sets\]"),
        (FILE, 'sets = [1]\n[bank]\ntable = "a"\naudio = "b"', r"needs a table \[sets\]"),
        ("sample_rate = 8000", "sample_rate = 80", "sample_rate must be 8000 Hz or more"),
        ('[bank]\ntable = "clips.tsv"\naudio = "sounds"', "", "no folds, since there is no bank"),
    ],
)
def test_a_mistake_in_the_file_is_reported_in_one_sentence(bank, before, after, sentence):
    (bank / "scenes.toml").write_text(FILE.replace(before, after))
    with pytest.raises(SettingError, match=sentence):
        SceneSets.read(bank / "scenes.toml")


def test_the_command_writes_all_sets_and_refuses_options_of_a_single_set(bank):
    command = ["synth", "out", "--config", "scenes.toml"]
    assert "train: 3 scenes" in run(*command, cwd=bank).stdout
    assert (bank / "out" / "train" / "weak.tsv").exists()
    wrong = run(*command, "--n", "3", cwd=bank, code=2)
    assert "--n cannot be combined with --config" in wrong.stderr
