"""Detection in many recordings: nothing is lost, whatever happens, and nothing is half-written."""

import io
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from commands import run

from earmark.audio.encode import write_audio
from earmark.errors import DataError, SettingError
from earmark.files import atomic_write
from earmark.formats.events import Event, read_events
from earmark.formats.registry import EVENT_FORMATS
from earmark.formats.scores import SCORE_FORMATS, read_scores
from earmark.inference import folder, outputs
from earmark.inference.batch import BatchSettings, detect_batch, parse_classes
from earmark.inference.detector import Detector, FileResult
from earmark.inference.ensemble import Ensemble
from earmark.inference.journal import Journal
from earmark.metrics.system_output import read_system_output
from earmark.synth.scenes import SceneConfig, make_scene

NAMES = ["20240517_043000.wav", "b.wav", "street/c.wav", "street/d.wav", "e.wav"]


@pytest.fixture(scope="module")
def detector():
    return Detector.load(threads=1)


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    """A folder with five short recordings, in most of which there is something."""
    folder = tmp_path_factory.mktemp("sounds") / "audio"
    for seed, name in enumerate(NAMES):
        config = SceneConfig(
            duration=1.5,
            classes=("siren", "bell"),
            n_events=(1, 1),
            event_duration=(0.5, 1.4),
            snr_db=(20, 20),
        )
        scene = make_scene(config, seed=seed)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_audio(folder / name, scene.waveform, scene.sample_rate)
    return folder


@pytest.fixture(scope="module")
def expected(detector, sounds):
    files = {name: sounds / name for name in sorted(NAMES)}
    return {x.name: x.events for x in detector.detect_each(files, sensitivity="high")}


HIGH = BatchSettings(sensitivity="high", with_scores=True)


def settings(**changes):
    return BatchSettings(**{"sensitivity": "high", **changes})


def rounded(events):
    return [Event(round(e.onset, 3), round(e.offset, 3), e.label, float(f"{e.score:.6g}"))
            for e in events]  # fmt: skip


@pytest.fixture
def alone(monkeypatch):
    """No recording is processed together with others."""
    monkeypatch.setattr(folder, "TOGETHER", 1)


class Killed(BaseException):
    """Stands for a kill: nothing of ours catches it."""


class Counting:
    """A detector that counts the recordings it detects in, and is killed after some."""

    def __init__(self, detector, limit=None):
        self._detector, self._limit, self.names = detector, limit, []

    def __getattr__(self, name):
        return getattr(self._detector, name)

    def detect_each(self, recordings, **settings):
        for result in self._detector.detect_each(recordings, **settings):
            if len(self.names) == self._limit:
                raise Killed
            self.names.append(result.name)
            yield result


def test_there_is_something_to_find(expected):
    assert sum(map(len, expected.values())) >= 5


def test_recordings_that_are_gathered_have_the_events_that_each_has_alone(
    detector, sounds, expected
):
    for name, events in expected.items():
        alone = detector.detect(sounds / name, sensitivity="high")
        assert [(e.onset, e.offset, e.label) for e in events] == [
            (e.onset, e.offset, e.label) for e in alone
        ]
        assert [e.score for e in events] == pytest.approx([e.score for e in alone], abs=1e-5)


@pytest.mark.parametrize("format", [n for n, own in EVENT_FORMATS.items() if own.holds_many])
def test_one_file_has_the_events_of_all_recordings(detector, sounds, expected, tmp_path, format):
    path = tmp_path / f"found{EVENT_FORMATS[format].suffixes[0]}"
    report = detect_batch(detector, sounds, path, settings(with_scores=True))
    kept = {name: rounded(own) for name, own in expected.items()
            if own or EVENT_FORMATS[format].keeps_empty}  # fmt: skip
    assert read_events(path) == kept
    assert list(read_events(path)) == list(kept)
    assert (report.n_detected, report.failed) == (5, {})
    assert report.seconds == pytest.approx(7.5)
    assert list(tmp_path.iterdir()) == [path]  # no journal is left
    stream = io.BytesIO()
    detect_batch(detector, sounds, stream, settings(format=format, with_scores=True))
    if format != "parquet":
        assert stream.getvalue() == path.read_bytes()


@pytest.mark.parametrize("format", EVENT_FORMATS)
def test_a_folder_gets_one_file_per_recording_and_evaluate_reads_it(
    detector, sounds, expected, tmp_path, format
):
    detect_batch(detector, sounds, f"{tmp_path}/found/", settings(format=format))
    suffix = EVENT_FORMATS[format].suffixes[0]
    files = [
        p.relative_to(tmp_path / "found").as_posix() for p in (tmp_path / "found").rglob("*.*")
    ]
    assert sorted(files) == sorted(name.replace(".wav", suffix) for name in NAMES)
    found = read_system_output(tmp_path / "found").with_names_of(NAMES).events
    assert {name: [event.label for event in own] for name, own in found.items() if own} == {
        name: [event.label for event in own] for name, own in expected.items() if own
    }


def test_a_format_of_one_recording_needs_a_folder(detector, sounds, tmp_path):
    with pytest.raises(
        SettingError, match="holds one recording, and there are 5: write to a folde"
    ):
        detect_batch(detector, sounds, tmp_path / "found.txt")
    with pytest.raises(SettingError, match="is a folder: name the format"):
        detect_batch(detector, sounds, tmp_path)
    detect_batch(detector, sounds / "b.wav", tmp_path / "b.txt", settings())
    assert list(read_events(tmp_path / "b.txt")) == ["b"]


@pytest.mark.parametrize("limit", [0, 1, 4])
@pytest.mark.parametrize("out", ["found.tsv", "found.parquet", "found/"])
@pytest.mark.usefixtures("alone")
def test_a_killed_run_continues_and_ends_with_the_same_bytes(
    detector, sounds, tmp_path, out, limit
):
    own = settings(with_scores=True, format="jsonl" if out.endswith("/") else None)
    detect_batch(detector, sounds, f"{tmp_path}/whole{out[5:]}", own)
    with pytest.raises(Killed):
        detect_batch(Counting(detector, limit), sounds, f"{tmp_path}/{out}", own)
    assert out.endswith("/") or not (tmp_path / out).exists()
    again = Counting(detector)
    report = detect_batch(again, sounds, f"{tmp_path}/{out}", own)
    assert again.names == sorted(NAMES)[limit:]
    assert report.n_known == limit
    assert contents(tmp_path / out) == contents(tmp_path / f"whole{out[5:]}")


def contents(path):
    """Return the content of a file, or of all files in a folder."""
    if path.is_file():
        return path.read_bytes()
    return {p.relative_to(path): p.read_bytes() for p in path.rglob("*") if p.is_file()}


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b"{"), Path.unlink])
@pytest.mark.usefixtures("alone")
def test_a_file_that_was_damaged_after_a_kill_is_made_again(detector, sounds, tmp_path, damage):
    own = settings(format="jsonl")
    detect_batch(detector, sounds, f"{tmp_path}/whole/", own)
    with pytest.raises(Killed):
        detect_batch(Counting(detector, 4), sounds, f"{tmp_path}/found/", own)
    damage(tmp_path / "found" / "b.jsonl")
    again = Counting(detector)
    assert detect_batch(again, sounds, f"{tmp_path}/found/", own).n_known == 3
    assert again.names == ["b.wav", sorted(NAMES)[4]]
    assert contents(tmp_path / "found") == contents(tmp_path / "whole")


@pytest.mark.skipif(
    sys.platform == "win32", reason="a limit of the size of files stands for a disk"
)
def test_a_journal_on_a_full_disk_is_our_error_and_keeps_what_it_has(tmp_path):
    import resource

    recording, events = tmp_path / "a.wav", [Event(0, 1, "dog", 0.5)]
    recording.touch()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(tmp_path / "journal", "key") as journal:
        journal.add("a.wav", recording, 1.5, events)
        size = (tmp_path / "journal").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, limits[1]))
        try:
            with pytest.raises(DataError, match=r"Cannot write .*journal: File too large\."):
                journal.add("b.wav", recording, 1.5, events)
            journal.__exit__()  # while what could not be written is still held
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with Journal(tmp_path / "journal", "key") as journal:
        assert journal.entries({"a.wav": recording, "b.wav": recording}) == {"a.wav": (1.5, events)}
    assert (tmp_path / "journal").stat().st_size == size


@pytest.mark.parametrize("moment", ["before the file", "after the file"])
def test_a_kill_around_the_last_write_loses_nothing(
    detector, sounds, tmp_path, monkeypatch, moment
):
    def write(path, content):
        if moment == "after the file":
            atomic_write(path, content)
        raise Killed

    monkeypatch.setattr(outputs, "atomic_write", write)
    with pytest.raises(Killed):
        detect_batch(detector, sounds, tmp_path / "found.tsv", HIGH)
    monkeypatch.undo()
    assert (tmp_path / "found.tsv").exists() == (moment == "after the file")
    again = Counting(detector)
    detect_batch(again, sounds, tmp_path / "found.tsv", HIGH)
    assert again.names == []
    detect_batch(detector, sounds, tmp_path / "whole.tsv", HIGH)
    assert contents(tmp_path / "found.tsv") == contents(tmp_path / "whole.tsv")


@pytest.mark.parametrize("limit", range(5))
def test_recordings_that_were_gathered_are_detected_again_together(
    detector, sounds, tmp_path, monkeypatch, limit
):
    """Alone, or together with others, the last digit of their scores may differ."""
    monkeypatch.setattr(folder, "TOGETHER", 2)
    detect_batch(detector, sounds, tmp_path / "whole.jsonl", HIGH)
    with pytest.raises(Killed):
        detect_batch(Counting(detector, limit), sounds, tmp_path / "found.jsonl", HIGH)
    again = Counting(detector)
    report = detect_batch(again, sounds, tmp_path / "found.jsonl", HIGH)
    assert report.n_known == limit // 2 * 2
    assert again.names == sorted(NAMES)[report.n_known :]
    assert contents(tmp_path / "found.jsonl") == contents(tmp_path / "whole.jsonl")


def test_a_long_recording_that_is_done_is_not_detected_again_with_its_short_neighbours(
    detector, sounds, tmp_path, monkeypatch
):
    monkeypatch.setattr(Ensemble, "window", 1.0)  # all five are longer
    with pytest.raises(Killed):
        detect_batch(Counting(detector, 3), sounds, tmp_path / "found.jsonl", HIGH)
    again = Counting(detector)
    assert detect_batch(again, sounds, tmp_path / "found.jsonl", HIGH).n_known == 3
    assert again.names == sorted(NAMES)[3:]


@pytest.mark.usefixtures("alone")
def test_only_whole_lines_of_a_journal_of_the_same_work_count(detector, sounds, tmp_path):
    path = tmp_path / "found.tsv"
    journal = tmp_path / "found.tsv.partial.jsonl"

    def detected_after(change, own=HIGH, recordings=sounds):
        with pytest.raises(Killed):
            detect_batch(Counting(detector, 3), sounds, path, HIGH)
        journal.write_bytes(change(journal.read_bytes()))
        counting = Counting(detector)
        detect_batch(counting, recordings, path, own)
        assert not journal.exists()
        return len(counting.names)

    assert detected_after(lambda lines: lines) == 2
    assert detected_after(lambda lines: lines[:-1]) == 3  # the last line is cut
    assert detected_after(lambda lines: lines[:-20] + b"\x00" * 20) == 3
    assert detected_after(lambda lines: b"") == 5
    assert detected_after(lambda lines: b"garbage\n" + lines) == 5
    assert detected_after(lambda lines: lines.replace(b'"events"', b'"sounds"')) == 5
    assert detected_after(lambda lines: lines, settings(min_score=0.1)) == 5  # other work
    assert detected_after(lambda lines: lines, settings(with_scores=True, classes=["siren"])) == 5


@pytest.mark.usefixtures("alone")
def test_a_recording_that_changed_is_detected_again_and_a_new_one_is_added(
    detector, sounds, tmp_path
):
    shutil.copytree(sounds, tmp_path / "audio")
    with pytest.raises(Killed):
        detect_batch(Counting(detector, 4), tmp_path / "audio", tmp_path / "f.tsv", HIGH)
    write_audio(tmp_path / "audio" / "b.wav", np.zeros(16000), 16000)
    write_audio(tmp_path / "audio" / "a new one.wav", np.zeros(16000), 16000)
    again = Counting(detector)
    detect_batch(again, tmp_path / "audio", tmp_path / "f.tsv", HIGH)
    assert again.names == ["a new one.wav", "b.wav", "street/d.wav"]
    assert read_events(tmp_path / "f.tsv")["b.wav"] == []


def test_a_recording_is_never_replaced_by_its_events(detector, sounds, tmp_path):
    path = tmp_path / "b.wav"
    shutil.copy(sounds / "b.wav", path)
    (tmp_path / "link.wav").symlink_to(path)
    before = path.read_bytes()
    for out in (path, tmp_path / "link.wav"):
        with pytest.raises(SettingError, match="is one of the recordings"):
            detect_batch(detector, path, out, settings(format="jsonl"))
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["found.TextGrid", "found.jams"])
def test_a_broken_recording_is_reported_in_formats_of_one_recording_too(detector, tmp_path, name):
    (tmp_path / "broken.wav").write_bytes(b"RIFF")
    report = detect_batch(detector, tmp_path / "broken.wav", tmp_path / name, settings())
    assert "broken.wav" in str(report.failed["broken.wav"])
    assert [path.name for path in tmp_path.iterdir()] == ["broken.wav"]


@pytest.mark.parametrize("classes", [[""], [","], []])
def test_classes_that_name_none_are_refused(detector, classes):
    with pytest.raises(SettingError, match="Got none"):
        parse_classes(classes, detector.labels)


def test_another_process_with_the_same_output_is_refused(detector, sounds, tmp_path):
    with (
        Journal(tmp_path / "found.tsv.partial.jsonl", "x"),
        pytest.raises(DataError, match="Another process is detecting to"),
    ):
        detect_batch(detector, sounds, tmp_path / "found.tsv")


def test_skip_done_keeps_what_is_there_and_adds_the_rest(detector, sounds, expected, tmp_path):
    path = tmp_path / "found.tsv"
    rows = "other.wav\t0\t1\tmine\t0.5\nb.wav\t0\t1\tx\t\n"
    old = f"filename\tonset\toffset\tevent_label\tscore\n{rows}"
    path.write_text(old)
    counting = Counting(detector)
    report = detect_batch(counting, sounds, path, settings(with_scores=True, skip_done=True))
    assert counting.names == [name for name in sorted(NAMES) if name != "b.wav"]
    assert (report.n_detected, report.n_known) == (4, 1)
    found = read_events(path)
    assert list(found)[:2] == ["other.wav", "b.wav"]
    assert found["other.wav"] == [Event(0, 1, "mine", 0.5)]
    assert found["street/c.wav"] == rounded(expected["street/c.wav"])
    again = Counting(detector)
    before = path.read_bytes()
    detect_batch(again, sounds, path, settings(with_scores=True, skip_done=True))
    assert (again.names, path.read_bytes()) == ([], before)
    (tmp_path / "each").mkdir()
    (tmp_path / "each" / "b.txt").write_text("0\t1\tmine\n")
    own = settings(format="audacity", skip_done=True)
    assert detect_batch(detector, sounds, tmp_path / "each", own).n_known == 1
    assert (tmp_path / "each" / "b.txt").read_text() == "0\t1\tmine\n"
    with pytest.raises(SettingError, match="skip_done needs a file"):
        detect_batch(detector, sounds, io.BytesIO(), settings(skip_done=True))


ODD = [" a.wav", "a\tb.wav", "a\nb.wav", os.fsdecode(b"a\xff.wav")]


@pytest.mark.parametrize(
    ("format", "refused"),
    [("tsv", ODD), ("csv", ODD), ("json", ODD[3:]), ("jsonl", ODD[3:]), ("parquet", ODD[3:])],
)
def test_a_name_that_a_format_has_no_place_for_costs_nothing_else(
    detector, tmp_path, format, refused
):
    for name in (*ODD, "good.wav"):
        write_audio(tmp_path / "x.wav", np.zeros(8000), 16000)
        (tmp_path / "x.wav").rename(tmp_path / name)
    (tmp_path / "broken.wav").write_bytes(b"no audio")
    out = tmp_path / f"found.{format}"
    report = detect_batch(detector, tmp_path, out)
    assert set(report.failed) == {*refused, "broken.wav"}
    assert all("Cannot write" in str(report.failed[name]) for name in refused)
    assert set(read_events(out)) == {*ODD, "good.wav"} - set(refused)
    report = detect_batch(detector, tmp_path, f"{tmp_path}/each/", settings(format="audacity"))
    assert set(report.failed) == {"broken.wav"}  # here the names are those of the files
    assert len(list((tmp_path / "each").glob("*.txt"))) == 5


def test_an_output_that_cannot_be_written_is_refused_before_any_work(detector, sounds, tmp_path):
    counting = Counting(detector)
    (tmp_path / "file").write_text("")
    for out, message in (
        (tmp_path / "none" / "found.tsv", "there is no folder"),
        (tmp_path / "file" / "found.tsv", "there is no folder"),
        (f"{tmp_path}/file/", "Cannot make the folder"),
        ("/proc/none/found.tsv", "there is no folder"),
        (tmp_path / f"{'x' * 300}.tsv", "File name too long"),
        (tmp_path / "found.xyz", "No event format has the suffix"),
    ):
        own = settings(format="tsv" if str(out).endswith("/") else None)
        with pytest.raises((DataError, SettingError), match=message):
            detect_batch(counting, sounds, out, own)
    with pytest.raises(DataError, match="Cannot make the folder"):
        own = settings(score_folder=tmp_path / "file")
        detect_batch(counting, sounds, tmp_path / "found.tsv", own)
    assert counting.names == []


def test_a_full_disk_ends_the_run_and_the_next_one_continues(
    detector, sounds, tmp_path, monkeypatch
):
    def no_space(path, content):
        raise DataError("Cannot write: No space left.") from OSError(28, "No space left on device")

    monkeypatch.setattr(outputs, "atomic_write", no_space)
    counting = Counting(detector)
    with pytest.raises(DataError, match="No space left"):
        detect_batch(counting, sounds, f"{tmp_path}/each/", settings(format="tsv"))
    assert len(counting.names) == 1  # not all recordings for nothing
    with pytest.raises(DataError, match="No space left"):
        detect_batch(detector, sounds, tmp_path / "found.tsv", HIGH)
    monkeypatch.undo()
    again = Counting(detector)
    detect_batch(again, sounds, tmp_path / "found.tsv", HIGH)
    assert again.names == []


def test_only_the_classes_that_are_named_are_written(detector, sounds, expected, tmp_path):
    label = next(event.label for own in expected.values() for event in own)
    detect_batch(detector, sounds, tmp_path / "found.jsonl", settings(classes=[label]))
    assert read_events(tmp_path / "found.jsonl") == {
        name: [event for event in rounded(own) if event.label == label]
        for name, own in expected.items()
    }
    with pytest.raises(SettingError, match="There is no class 'sirn'; did you mean 'siren'"):
        detect_batch(detector, sounds, tmp_path / "found.jsonl", settings(classes=["sirn"]))


def test_scores_are_written_where_the_format_has_a_field_or_on_request(detector, sounds, tmp_path):
    for name, given, scored in (
        ("a.tsv", None, False), ("a.tsv", True, True), ("a.jsonl", None, True),
        ("a.jsonl", False, False),
    ):  # fmt: skip
        detect_batch(detector, sounds, tmp_path / name, settings(with_scores=given))
        found = [event for own in read_events(tmp_path / name).values() for event in own]
        assert {event.score is not None for event in found} == {scored}
    with pytest.raises(SettingError, match="audacity has no place for scores"):
        detect_batch(detector, sounds / "b.wav", tmp_path / "b.txt", HIGH)


def test_absolute_times_come_from_names(detector, sounds, tmp_path):
    detect_batch(detector, sounds, tmp_path / "found.jsonl", settings(absolute_time=True))
    lines = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    timed = [line for line in lines if "onset" in line and line["filename"] == NAMES[0]]
    assert timed and all(line["onset_time"].startswith("2024-05-17T04:30:0") for line in timed)
    assert all("onset_time" not in line for line in lines if line["filename"] != NAMES[0])
    counting = Counting(detector)
    with pytest.raises(DataError, match="No recording has its start in its name"):
        detect_batch(counting, sounds / "b.wav", tmp_path / "b.tsv", settings(absolute_time=True))
    with pytest.raises(SettingError, match="rttm has no place for an absolute time"):
        detect_batch(counting, sounds, tmp_path / "b.rttm", settings(absolute_time=True))
    assert counting.names == []


@pytest.mark.parametrize("format", SCORE_FORMATS)
def test_frame_level_scores_are_those_of_the_detector(detector, sounds, tmp_path, format):
    own = settings(score_folder=tmp_path / "scores", score_format=format)
    detect_batch(detector, sounds, tmp_path / "found.tsv", own)
    found = read_scores(tmp_path / "scores")
    assert sorted(found) == sorted(name.removesuffix(".wav") for name in NAMES)
    expected = detector.frame_scores(sounds / "street" / "c.wav")
    np.testing.assert_allclose(found["street/c.wav"].scores, expected.scores, atol=1e-5)
    assert found["street/c.wav"].grid == expected.grid
    output = read_system_output(tmp_path / "scores")
    assert output.scores is not None and output.events is None


def test_results_are_passed_on_before_they_are_written(detector, sounds, tmp_path):
    got: list[FileResult] = []

    def refuse_one(result):
        got.append(result)
        if result.name == "b.wav":
            raise DataError("Cannot draw b.wav.")

    report = detect_batch(detector, sounds, tmp_path / "f.tsv", HIGH, on_result=refuse_one)
    assert [result.name for result in got] == sorted(NAMES)
    assert all(result.scores is not None for result in got)
    assert list(report.failed) == ["b.wav"]
    assert "b.wav" not in read_events(tmp_path / "f.tsv")


def test_a_fifo_gets_the_events_and_stays_a_fifo(detector, sounds, expected, tmp_path):
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    got = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_text()), daemon=True)
    reader.start()
    detect_batch(detector, sounds, fifo, HIGH)
    reader.join(timeout=60)
    assert read_events(io.StringIO(got[0])) == {n: rounded(own) for n, own in expected.items()}
    assert fifo.is_fifo()
    assert list(tmp_path.iterdir()) == [fifo]


def test_progress_shows_files_minutes_and_time_left(detector, sounds, tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    detect_batch(detector, sounds, tmp_path / "f.tsv", show_progress=True)
    assert "5/5 files, 0.1 min" in sys.stderr.getvalue()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    detect_batch(detector, sounds, tmp_path / "f.tsv", show_progress=True)
    assert sys.stderr.getvalue() == ""


KILLED = """
import os, signal
from earmark.inference.journal import Journal
from earmark.cli import main

add, done = Journal.add, []

def add_and_die(self, name, *more):
    add(self, name, *more)
    done.append(name)
    if len(done) == 3:
        self._file.write(b'{"name": "torn')  # the next line, cut
        self._file.flush()
        os.kill(os.getpid(), signal.SIGKILL)

Journal.add = add_and_die
main()
"""


def test_the_command_continues_after_kill_9_and_writes_the_same_table(sounds, tmp_path):
    arguments = ["detect", str(sounds), "--out", "found.csv", "--score", "--sensitivity", "high",
                 "--threads", "1"]  # fmt: skip

    command = [sys.executable, "-c", KILLED, *arguments]
    killed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert killed.returncode == -9, killed.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["found.csv.partial.jsonl"]
    n_lines = (tmp_path / "found.csv.partial.jsonl").read_bytes().count(b"\n")
    assert n_lines == 4  # the key of the work, and three recordings
    continued = run("--verbose", *arguments, cwd=tmp_path)
    assert continued.stderr.count("events in") <= 2, "recordings were detected twice"
    whole = run(*("whole.csv" if x == "found.csv" else x for x in arguments), cwd=tmp_path)
    assert (whole.stdout, whole.stderr) == ("", "")
    assert contents(tmp_path / "found.csv") == contents(tmp_path / "whole.csv")
    assert {path.name for path in tmp_path.iterdir()} == {"found.csv", "whole.csv"}
