"""Limits: what is too large, too deep or not printable is one sentence, at once."""

import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import earmark
from earmark.config import read_toml
from earmark.data.findings import Finding, Report, render
from earmark.data.manifest import Manifest
from earmark.errors import (
    MAX_MESSAGE,
    BundleError,
    DataError,
    EarmarkError,
    SettingError,
    printable,
    shorten,
)
from earmark.formats.events import Event
from earmark.formats.tags import read_tags
from earmark.inference.model_file import load_bundle, save_bundle
from earmark.metrics.report import TextTable
from earmark.nn.model import ModelConfig
from earmark.runtime.threads import check_threads
from earmark.synth.scenes import SceneConfig
from earmark.tensors import load_tensors, save_tensors
from earmark.training.settings import Settings, parse_override
from faults.samples import small_bundle

ESCAPES = "dog\x1b[2J\x9b31m\u202e"


@pytest.mark.parametrize(
    "override",
    [
        "training.threads=100000",
        "training.seed=99999999999999999999",
        "training.max_epochs=100000000000000000000",
        "augment.time_shift=1e30",
        "augment.gain_db=1e30",
        "augment.eq_db=1e30",
        "features.window=1e9",
        "features.n_mels=1000000000",
        "features.sample_rate=4000000000",
        "features.n_fft=1000000000000",
        "model.channels=[10000000,10000000,10000000,10000000]",
        "model.n_recurrent=100000000000000000000",
        f"training.seed={'9' * 5000}",
        f"training.seed={'[' * 3000}",
    ],
)
def test_an_oversized_setting_is_refused_by_name(override):
    with pytest.raises(SettingError) as caught:
        Settings.load("fast", overrides=[override])
    assert len(str(caught.value)) <= MAX_MESSAGE


def test_a_network_that_no_machine_trains_is_refused_before_it_is_built():
    with pytest.raises(SettingError, match="parameters or more"):
        ModelConfig(n_classes=2, channels=(100_000,) * 4).check_parameters()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[training]\nseed = " + "9" * 5000, "is not a TOML file: Exceeds the limit"),
        ("a = " + "[" * 3000 + "]" * 3000, "has too many levels"),
    ],
)
def test_a_settings_file_of_too_many_digits_or_levels_is_refused(tmp_path, text, reason):
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(SettingError, match=reason):
        read_toml(tmp_path / "a.toml")
    with pytest.raises(SettingError, match="Cannot read"):
        read_toml(tmp_path / "a.toml" / "b.toml")


def test_an_override_that_is_no_toml_is_a_text():
    assert parse_override(f"a.b={'9' * 5000}") == {"a": {"b": "9" * 5000}}


def test_threads_and_scenes_have_limits():
    with pytest.raises(SettingError, match="from 0 to 1024"):
        check_threads(100_000)
    with pytest.raises(SettingError, match="duration must be above 0 s, and 8389 s at most"):
        SceneConfig(duration=1e9)


def test_a_cell_of_thousands_of_labels_is_read_and_one_of_many_readings_ends_soon():
    cell = ",".join(["siren"] * 5000)
    table = f"filename\tevent_labels\na.wav\t{cell}\n"
    assert read_tags(io.StringIO(table), ["siren"]) == {"a.wav": ("siren",)}
    many = "filename\tevent_labels\na.wav\t" + ",".join(["x"] * 2000) + ",y\n"  # 2**1999 readings
    with pytest.raises(DataError, match="there is no label 'y'"):
        read_tags(io.StringIO(many), ["x", "x,x"])
    labels = ["Air horn, truck horn", "Air horn", "dog"]
    table = "filename\tevent_labels\na.wav\tdog , Air horn, truck horn;Air horn,\n"
    assert read_tags(io.StringIO(table), labels)["a.wav"] == (
        "Air horn",
        "Air horn, truck horn",
        "dog",
    )


def test_a_message_is_short_printable_and_keeps_its_advice():
    error = DataError(f"There is no label {'x' * 10**7!r}; did you mean 'dog'?")
    assert len(str(error)) < 200
    assert str(error).endswith("'; did you mean 'dog'?")
    long = SettingError("The values " + "1, " * 10**6 + "are too many; use fewer.")
    assert len(str(long)) <= MAX_MESSAGE
    assert str(long).endswith("are too many; use fewer.")
    for kind in (EarmarkError, DataError, BundleError):
        assert str(kind(f"no {ESCAPES}")).isprintable()
    assert shorten("short 'value'.") == "short 'value'."
    assert printable("a\tb\nc é 語") == "a\tb\nc é 語"
    assert printable("\udcff\x00") == "\\udcff\\x00"


def test_tables_and_findings_show_no_control_characters():
    table = TextTable("scores", ("", ESCAPES), ((ESCAPES, "0.5"),))
    assert "\x1b" not in table.to_markdown()
    from rich.console import Console

    console = Console(file=io.StringIO(), width=80)
    console.print(table.to_rich())
    finding = Finding("missing", "stops", "training", f"{ESCAPES} is missing.", {ESCAPES: ESCAPES})
    console.print(render(Report({}, (replace(finding, remedy="x"),))))
    assert not {"\x1b", "\x9b", "\u202e"} & {*console.file.getvalue()}


@pytest.fixture(scope="module")
def hostile_model(tmp_path_factory):
    """A valid model file whose texts have escape sequences."""
    path = tmp_path_factory.mktemp("hostile") / "model.earmark"
    bundle = small_bundle()
    labels = (f"cat{ESCAPES}", "dog")
    decoding = earmark.Decoding(labels, bundle.decoding.rules)
    texts = {"licence": ESCAPES, "attribution": (ESCAPES,), "versions": {"earmark": ESCAPES}}
    return save_bundle(replace(bundle, labels=labels, decoding=decoding, **texts), path)


def test_info_prints_texts_of_a_model_escaped(hostile_model, capsys, monkeypatch):
    from earmark.cli.app import main

    for options in ([], ["--json"]):
        monkeypatch.setattr(sys, "argv", ["earmark", "info", str(hostile_model), *options])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr().out
        assert ended.value.code == 0
        assert not {"\x1b", "\x9b", "\u202e"} & {*shown}
        if options:
            assert json.loads(shown)["licence"] == ESCAPES


def test_commands_print_through_one_function():
    """`print` knows no escaping: commands call `print_text`."""

    import earmark.cli

    for path in Path(earmark.cli.__file__).parent.glob("*.py"):
        calls = [
            line for line in path.read_text().splitlines() if line.strip().startswith("print(")
        ]
        assert path.name == "app.py" or not calls, path


def crafted(tmp_path, **changes):
    """Return a model file with a valid checksum and some values of its description changed."""
    path = save_bundle(small_bundle(), tmp_path / "model.earmark")
    text, tensors = load_tensors(path, "model")
    values = json.loads(text)
    for section, own in changes.items():
        if isinstance(own, dict) and isinstance(values[section], list):
            values[section][0].update(own)
        else:
            values[section] = own
    save_tensors(path, tensors, json.dumps(values))
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {"models": {"channels": [10**6] * 4}},
        {"models": {"channels": [10**30] * 4}},
        {"models": {"n_recurrent": 2**62}},
        {"models": {"stages": [2**62]}},
        {"features": {"n_mels": 10**9}},
        {"features": {"sample_rate": 10**12}},
        {"features": {"n_fft": 10**12}},
        {"features": {"window": 1e9}},
        {"members": {"window": 1e300}},
        {"labels": [None, "dog"]},
        {"labels": 7},
        {"attribution": [7]},
        {"decoding": []},
        {"calibration": {"a": 1}},
    ],
    ids=str,
)
def test_a_crafted_model_file_is_refused_without_memory(tmp_path, changes):
    with pytest.raises(BundleError, match="is not a usable model file"):
        load_bundle(crafted(tmp_path, **changes))


def test_a_class_folder_that_is_not_unicode_is_refused_before_training(tmp_path):
    try:
        for name in ("cat", os.fsdecode(b"d\xffg")):
            (tmp_path / name).mkdir()
            (tmp_path / name / "1.wav").touch()
    except OSError:
        pytest.skip("the file system has Unicode names only")
    with pytest.raises(DataError, match=r"the label 'd\\udcffg' is not valid Unicode; rename it"):
        Manifest.read(tmp_path)


def test_wrong_arguments_are_setting_errors():
    with pytest.raises(SettingError, match=r"evaluate takes what read_system_output"):
        earmark.evaluate("a.tsv", ["b.tsv"])
    reference = {"a.wav": [Event(0, 1, "dog")]}
    with pytest.raises(SettingError, match=r"evaluate takes .* Got 'b\.tsv'"):
        earmark.evaluate(reference, ["b.tsv"])
    detector = earmark.Detector(small_bundle(), threads=1)
    with pytest.raises(SettingError, match=r"decoding must be a Decoding"):
        detector.detect(np.zeros(8000, np.float32), 8000, decoding=0.3)


INTERRUPTED = """
import atexit, os, signal, sys

class Interrupting:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting)
if sys.argv[1] == "exit":
    atexit.register(os.kill, os.getpid(), signal.SIGINT)
from earmark.__main__ import main
sys.argv = ["earmark", "--version"]
main()
"""


@pytest.mark.parametrize("moment", ["earmark.cli", "typer", "exit"])
def test_an_interrupt_leaves_no_traceback_at_any_moment(moment):
    script = INTERRUPTED.replace("sys.argv[1]", repr(moment))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == -signal.SIGINT
    assert done.stderr == b""


def test_an_onnx_file_that_cannot_be_run_is_one_of_our_errors():
    from earmark.inference.onnx_file import OnnxNetwork

    class Broken:
        def run(self, outputs, arrays):
            raise ValueError("Required inputs (['skip']) are missing")

    network = SimpleNamespace(_session=Broken(), config=SimpleNamespace(file="m.onnx"))
    with pytest.raises(BundleError, match=r"m\.onnx cannot be run: Required inputs"):
        OnnxNetwork._run(network, ["frame_scores"], waveform=torch.zeros(1, 10))
