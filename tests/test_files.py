"""Files: whole or absent, and what a path leads to stays what it is."""

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from earmark.errors import DataError
from earmark.files import (
    atomic_path,
    atomic_write,
    check_folder,
    check_writable,
    is_special,
    locked,
)
from earmark.formats.events import Event, read_events, write_events

EVENTS = {"a.wav": [Event(0, 1, "dog")]}


def test_a_symbolic_link_is_followed_and_stays_one(tmp_path):
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "real.tsv", tmp_path / "link.tsv"
    link.symlink_to(target)
    for events in (EVENTS, {"b.wav": []}):  # the target does not exist, then it does
        write_events(link, events)
        assert link.is_symlink()
        assert read_events(target) == events
    assert [path.name for path in (tmp_path / "far").iterdir()] == ["real.tsv"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path, mode):
    path = tmp_path / "a.tsv"
    path.write_text("old")
    path.chmod(mode)
    write_events(path, EVENTS)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert read_events(path) == EVENTS


def test_a_fifo_is_written_to(tmp_path):
    fifo = tmp_path / "pipe.tsv"
    os.mkfifo(fifo)
    got = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()), daemon=True)
    reader.start()
    atomic_write(fifo, b"through")
    reader.join(timeout=30)
    assert got == [b"through"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe.tsv"]


def test_a_device_stays_a_device():
    assert is_special(Path("/dev/null"))
    atomic_write(Path("/dev/null"), b"gone")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_what_cannot_be_written_is_found_before_the_work(tmp_path):
    check_writable(tmp_path / "a.tsv")
    longest = tmp_path / ("é" * 125 + ".tsv")
    check_writable(longest)
    write_events(longest, EVENTS)
    assert read_events(longest) == EVENTS
    longest.unlink()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError, match="it is a folder"):
        check_writable(tmp_path)
    with pytest.raises(DataError, match="there is no folder"):
        check_writable(tmp_path / "none" / "a.tsv")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="there is no folder"):
        check_writable(tmp_path / "file" / "a.tsv")
    with pytest.raises(DataError, match="Cannot write"):  # not even for root
        check_writable(Path("/sys/kernel/a.tsv" if Path("/sys/kernel").is_dir() else "/x/a.tsv"))


HOLD = """
import sys, time
from pathlib import Path
from earmark.files import atomic_path

with atomic_path(Path(sys.argv[1])) as part:
    part.write_text("half")
    print("begun", flush=True)
    time.sleep(600)
"""


def parts_in(folder):
    return [path for path in folder.iterdir() if ".part" in path.name]


def test_what_a_killed_process_left_is_removed_by_the_next_write_and_what_is_in_use_stays(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path / "a.tsv")]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as killed,
        subprocess.Popen(command, stdout=subprocess.PIPE) as alive,
    ):
        for process in (killed, alive):
            assert process.stdout.readline() == b"begun\n"
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        (tmp_path / ".my.part").write_text("not ours")
        assert len(parts_in(tmp_path)) == 3
        atomic_write(tmp_path / "b.tsv", b"whole")
        left = {path.name for path in parts_in(tmp_path)}
        assert left == {".my.part", *(name for name in left if f".{alive.pid}-" in name)}
        assert len(left) == 2
        alive.kill()


def test_a_full_disk_is_one_of_our_errors_and_leaves_nothing(tmp_path):
    said = pytest.raises(DataError, match=r"Cannot write .*a\.png: No space left on device\.")
    with said, atomic_path(tmp_path / "a.png") as part:
        part.write_bytes(b"some")
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_found_before_the_work(tmp_path):
    check_folder(tmp_path / "new" / "results")
    assert (tmp_path / "new" / "results").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="Cannot make the folder"):
        check_folder(tmp_path / "file" / "results")


def test_a_folder_is_locked_for_one_purpose_at_a_time(tmp_path):
    with locked(tmp_path, doing="training in", name="training.lock"):
        with locked(tmp_path):  # another purpose
            pass
        said = pytest.raises(DataError, match="Another process is training in")
        with said, locked(tmp_path, doing="training in", name="training.lock"):
            pass
