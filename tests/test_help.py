"""Help, info and tables fit 80 columns, and nothing of them is cut off."""

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner

from earmark.cli import app
from earmark.cli.app import ORDER
from earmark.data.doctor import examine
from earmark.data.findings import render
from earmark.data.manifest import Manifest
from earmark.errors import BundleError
from earmark.inference.description import describe_bundle, one_screen, summarise_bundle
from earmark.inference.model_file import BUNDLED, find_model, load_bundle, read_card
from earmark.training.settings import PRESETS, name_preset

COMMANDS = [command.name or command.callback.__name__ for command in app.registered_commands]
NAMES = [name.replace("_", "-") for name in COMMANDS]


def printed(*arguments, code=0):
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"}, terminal_width=80)
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.parametrize("command", [None, *NAMES])
def test_help_at_80_columns_is_whole(command):
    text = printed(*filter(None, [command]), "--help")
    assert max(map(len, text.splitlines())) <= 80
    assert "\u2026" not in text
    # What remains of three dots says that an argument may be repeated.
    assert "..." not in re.sub(r"[\]A-Z]\.\.\.", "", text)


@pytest.mark.parametrize("command", NAMES)
def test_help_says_what_to_type_for_a_value_and_names_no_type_of_python(command):
    params = get_command(app).commands[command].params
    values = [x for x in params if not getattr(x, "is_flag", False)]
    assert [x.name for x in values if not re.fullmatch(r"[A-Z][A-Z |=.]*", x.metavar or "")] == []
    text = printed(command, "--help")
    assert not re.search(r"<[a-z]|x>=|[{}]", text)
    for param in values:
        assert f"{param.opts[-1]} {param.metavar}" in text or f"  {param.metavar}" in text


def test_names_in_help_stay_on_one_line():
    text = printed("train", "--help")
    assert all(name in text for name in PRESETS)


def test_the_list_of_commands_has_the_whole_first_sentence_of_each():
    text = " ".join(printed("--help").split())
    for command in app.registered_commands:
        sentence = " ".join(command.callback.__doc__.split("\n\n")[0].split())
        assert sentence in text


def test_every_option_has_a_help_and_the_first_commands_come_first():
    group = get_command(app)
    for name, command in group.commands.items():
        assert [x.name for x in command.params if not x.help and x.name != "help"] == [], name
    listed = re.findall(r"^  ([a-z-]+)  ", printed("--help").partition("Commands:")[2], re.M)
    assert listed[: len(ORDER)] == list(ORDER)
    assert sorted(listed) == sorted(NAMES)


def test_the_tables_of_doctor_cut_no_name_off():
    label, file = "a_label_without_any_space_" * 4, "a-file-without-any-space-" * 5
    manifest = Manifest([file], [Path("nowhere.wav")], [(label,)], [label], missing=(file,))
    text = io.StringIO()
    Console(file=text, width=80).print(render(examine(manifest)))
    assert "\u2026" not in text.getvalue()
    plain = re.sub(r"[^a-z_-]", "", text.getvalue())
    assert label in plain and file in plain


def test_info_fits_one_screen_and_names_classes_preset_decision_and_scores():
    text = printed("info")
    assert text == printed("info", "everyday")
    lines = text.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    bundle = load_bundle(BUNDLED)
    flat = " ".join(text.split())
    for label in bundle.labels:
        assert f"{label} {bundle.training['classes'][label]['f1']:.2f}" in flat
    for part in ("preset best", "threshold 0.2", "mAP 0.870", "500 clips, weak labels"):
        assert part in flat
    scores = read_card()["intervals"]
    own, false = scores["event"]["f_measure"]["f_measure"], scores["false_events"]["false_events"]
    assert f"event F1 {own['value']:.2f} [{own['low']:.2f}, {own['high']:.2f}]" in flat
    assert f"{false['per_minute']['value']:.1f} [" in flat and "(--details) attribution" in flat
    assert "freesound.org" not in text


def test_the_scores_of_the_card_are_those_of_the_bundled_model_alone(tmp_path):
    copy = tmp_path / "copy.earmark"
    copy.write_bytes(BUNDLED.read_bytes())
    text = printed("info", str(copy))
    assert "unseen scenes" not in text and "6.40 per minute" in text
    assert "card" not in json.loads(printed("info", str(copy), "--json"))
    assert json.loads(printed("info", "--json"))["card"] == read_card()


def test_the_details_of_a_model_fit_80_columns_and_name_every_setting():
    path, *lines = printed("info", "--details").splitlines()
    assert path == str(BUNDLED) and max(map(len, lines)) <= 80
    flat = " ".join(" ".join(lines).split())
    for part in (
        "settings.training.learning_rate=0.001",
        "false_events.curve=11 points",
        "pools=((2, 2), (1, 2), (1, 2), (1, 1))",
        "class threshold low median min_duration max_gap clip",
    ):
        assert part in flat
    long = "a_label_of_more_than_twenty_letters"
    about = load_bundle(BUNDLED).describe()
    rule = about["decoding"]["dog"] | {"segment": 1.0}
    about |= {"labels": [long], "decoding": {long: rule}}
    about["training"] = about["training"] | {"classes": None}
    assert max(map(len, describe_bundle(about).splitlines())) <= 80


def test_the_attribution_is_printed_on_request():
    bundle = load_bundle(BUNDLED)
    lines = printed("info", "--attribution").splitlines()
    assert lines == [bundle.licence, *bundle.attribution]
    assert "freesound.org" not in printed("info", "--details")
    assert f"{len(bundle.attribution)} recordings" in describe_bundle(bundle.describe())
    done = CliRunner().invoke(app, ["info", "--json", "--details"])
    assert "exclude each other" in str(done.exception)


def test_the_bundled_model_has_a_name_that_a_file_of_that_name_takes_over(tmp_path, monkeypatch):
    assert find_model("everyday") == BUNDLED
    assert load_bundle("everyday").labels == load_bundle(BUNDLED).labels
    monkeypatch.chdir(tmp_path)
    (tmp_path / "everyday").write_bytes(b"something else")
    assert find_model("everyday").resolve() == tmp_path / "everyday"
    with pytest.raises(BundleError, match=r"no model file everyda\. The bundled model is"):
        load_bundle("everyda")


@pytest.mark.parametrize("preset", ["quick", "fast", "best", "paper", "encoder"])
def test_the_preset_of_a_model_is_found_by_its_network(preset):
    model = PRESETS[preset].model.changed(n_classes=7).to_dict()
    assert name_preset({"models": [model]}) == preset
    changed = model | {"dropout": 0.125}
    assert name_preset({"models": [changed]}) == f"{preset}, with dropout=0.125"


def test_a_summary_of_a_model_without_records_says_so():
    about = load_bundle(BUNDLED).describe() | {"training": {}, "tuning": {"supervision": "none"}}
    text = one_screen(summarise_bundle(about | {"attribution": [], "licence": ""}))
    assert text.count("not recorded") == 3 and text.count("not stated") == 2
