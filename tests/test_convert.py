"""`earmark convert` and the options of `earmark detect`, as a user types them."""

import json
import sys

import numpy as np
import pytest

from earmark.audio.encode import write_audio
from earmark.cli import main
from earmark.formats.events import Event, read_events, write_events
from earmark.formats.registry import EVENT_FORMATS
from earmark.inference.model_file import BUNDLED

EVENTS = {
    "20240517_043000.wav": [Event(0.123456, 1.5, "dog", 0.75), Event(0.5, 2, "Air horn, truck")],
    "b.wav": [],
}


@pytest.fixture
def run(monkeypatch, capfdbinary, tmp_path):
    """Run a command in a folder; return its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["earmark", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfdbinary.readouterr()
        return ended.value.code, out.decode(), err.decode()

    return run


@pytest.mark.parametrize("format", [name for name, own in EVENT_FORMATS.items() if own.holds_many])
def test_events_are_converted_to_a_format_and_back(run, tmp_path, format):
    write_events(tmp_path / "in.tsv", EVENTS, decimals=6)
    suffix = EVENT_FORMATS[format].suffixes[0]
    assert run("convert", "in.tsv", f"there{suffix}")[0] == 0
    assert run("convert", f"there{suffix}", "back.tsv")[0] == 0
    kept = {n: own for n, own in EVENTS.items() if own or EVENT_FORMATS[format].keeps_empty}
    assert read_events(tmp_path / "back.tsv") == kept


@pytest.mark.parametrize("format", EVENT_FORMATS)
def test_events_are_converted_to_a_folder_and_back(run, tmp_path, format):
    write_events(tmp_path / "in.tsv", EVENTS, decimals=6)
    code, _, err = run("convert", "in.tsv", "there/", "--format", format)
    assert code == 0
    assert ("no place for scores" in err) == (not EVENT_FORMATS[format].keeps_scores)
    assert run("convert", "there", "back.json")[0] == 0
    found = read_events(tmp_path / "back.json")
    assert [(e.onset, e.offset, e.label) for own in found.values() for e in own] == [
        (e.onset, e.offset, e.label) for own in EVENTS.values() for e in own
    ]


def test_convert_prints_and_takes_formats_by_name(run, tmp_path):
    (tmp_path / "in.dat").write_text("0.5\t1.5\tdog\n")
    code, out, _ = run("convert", "in.dat", "-", "--from", "audacity", "--decimals", "1")
    assert (code, out) == (0, "filename\tonset\toffset\tevent_label\nin\t0.5\t1.5\tdog\n")
    write_events(tmp_path / "in.tsv", EVENTS)
    code, out, _ = run("convert", "in.tsv", "-", "--format", "jsonl", "--absolute-time")
    assert json.loads(out.splitlines()[0])["onset_time"] == "2024-05-17T04:30:00.123000"
    for arguments, message in (
        (["in.tsv", "out.xls"], "No event format has the suffix of 'out.xls'"),
        (["in.tsv", "out.csv", "--format", "cvs"], "did you mean 'csv'"),
        (["in.tsv", "out.txt"], "holds one recording. Got 2"),
        (["none.json", "out.tsv"], "none.json"),
        (["in.tsv", "out.rttm", "--absolute-time"], "no place for an absolute time"),
    ):
        code, _, err = run("convert", *arguments)
        assert code == 2 and message in err and len(err.splitlines()) <= 2
    assert "20240517" not in " ".join(path.name for path in tmp_path.iterdir())


def test_detect_takes_its_options(run, tmp_path):
    for name in ("x/20240517_043000.wav", "y/20240517_043000.wav"):
        (tmp_path / name).parent.mkdir()
        rng = np.random.default_rng(1)
        write_audio(tmp_path / name, 0.1 * rng.standard_normal(16000), 16000)
    (tmp_path / "y" / "bad.wav").write_bytes(b"no audio")
    options = ["--model", BUNDLED, "--sensitivity", "8", "--threads", "1", "--device", "cpu"]
    code, out, err = run(
        "detect", "x", "y", *options, "--out", "found.json", "--classes", "siren,dog",
        "--absolute-time", "--plot", "drawn", "--scores", "scores", "--scores-format", "npz",
    )  # fmt: skip
    assert (code, out) == (1, "")
    assert "bad.wav is not audio" in err and "1 of 3 recordings could not be used" in err
    found = read_events(tmp_path / "found.json")
    assert list(found) == ["x/20240517_043000.wav", "y/20240517_043000.wav"]
    labels = {event.label for own in found.values() for event in own}
    assert labels and labels <= {"siren", "dog"}
    assert "2024-05-17T04:30:0" in (tmp_path / "found.json").read_text()
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")} >= {
        "drawn/x/20240517_043000.wav.png",
        "drawn/y/20240517_043000.wav.png",
        "scores/x/20240517_043000.npz",
    }
    assert not list(tmp_path.glob("*.partial.jsonl"))
    code, out, _ = run("detect", "x", *options, "--format", "rttm", "--no-score")
    assert code == 0
    assert all(line.startswith("SPEAKER 20240517") for line in out.splitlines())
    assert {line.split()[8] for line in out.splitlines()} == {"<NA>"}
    for arguments, message in (
        (["--out", "found.xyz"], "No event format has the suffix of 'found.xyz'. Known: .tsv"),
        (["--out", "none/found.tsv"], "there is no folder 'none'"),
        (["--classes", "sirn"], "did you mean 'siren'"),
        (["--format", "jsno"], "did you mean 'json'"),
        (["--scores", "s", "--scores-format", "np"], "There is no score format 'np'"),
        (["--device", "tpu"], "tpu"),
    ):
        code, _, err = run("detect", "x", *options, *arguments)
        assert code == 2 and message in err and len(err.splitlines()) == 1
