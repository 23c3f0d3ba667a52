"""Kills and other faults, the short form of `python -m faults kills`, and that it finds losses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from faults.kills import KINDS, contents, digest
from faults.results import Results

ROOT = Path(__file__).resolve().parents[1]


def run_python(*words):
    """Run Python in a process of its own, since what forks must have no threads."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("results")
    # A run of this part is cut off by its time only after a case.
    words = ("--only", "store", "--only", "detection", "--cases", len(KINDS), "--out", out)
    ended = run_python("-m", "faults", "kills", "--seconds", 600, *words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return Results(out / "kills.json", 0, {})


def test_a_store_and_a_detection_that_are_killed_lose_nothing(results):
    assert results.n_failures == 0
    for name in ("store", "detection"):
        own = results.of(name)
        assert own.outcomes == {"same result": len(KINDS)}
        assert own.faults["kill at a write"] >= 5
        assert own.faults["full disk"] == own.faults["failing write"] == 1


LOSING = """
import sys
from pathlib import Path
from faults import kills, tasks

def write(data, out, note):
    path = out / "numbers"
    first = len(path.read_text().split()) if path.exists() else 0
    for number in range({start}, 20):
        note("begin", str(number))
        with path.open("a") as file:
            file.write(f"{{number}}\\n")
        note("done", str(number))

tasks.make_data = lambda folder: None
tasks.TASKS["store"] = tasks.Task(write, growing=("numbers",))
with kills.opened("store") as bench:
    case = kills.Case(bench, {number}, 0)
    try:
        case.run()
    except kills.LossError as error:
        print("lost:", error)
    else:
        print("same", case.struck)
"""


@pytest.mark.parametrize(
    ("start", "number", "answer"),
    [
        ("first", 7, "same {'kill at a write'"),
        ("0", 7, "lost: done again: 0"),  # begins anew, and appends to what is there
    ],
)
def test_work_that_begins_anew_after_a_kill_is_found(start, number, answer, tmp_path):
    assert KINDS[number] == "kill at a write"
    (tmp_path / "losing.py").write_text(LOSING.format(start=start, number=number))
    ended = run_python(tmp_path / "losing.py")
    assert ended.stdout.startswith(answer), ended.stdout + ended.stderr


def test_contents_differ_in_all_but_durations(tmp_path):
    folders = [tmp_path / "1", tmp_path / "2"]
    for number, folder in enumerate(folders):
        folder.mkdir()
        (folder / "a.json").write_text(json.dumps({"seconds": number, "loss": 0.5}))
        (folder / "history.tsv").write_text(f"epoch\tseconds\n0\t{number}\n")
    assert contents(folders[0]) == contents(folders[1])
    before = digest(folders[0] / "history.tsv")
    (folders[0] / "history.tsv").write_text("epoch\tseconds\n1\t0\n")
    assert digest(folders[0] / "history.tsv") != before


def test_operations_are_counted_and_one_fails(tmp_path):
    code = f"""
from pathlib import Path
from earmark.errors import DataError
from earmark.files import atomic_write
from faults.operations import FULL, Operations
folder = Path({str(tmp_path)!r})
operations = Operations(str(folder), AT, FULL)
operations.install()
try:
    atomic_write(folder / "a", b"12345678")
except DataError as error:
    print(error)
print(operations.n_done, operations.has_struck, sorted(x.name for x in folder.iterdir()))
"""
    assert run_python("-c", code.replace("AT", "-1")).stdout.endswith("False ['a']\n")
    (tmp_path / "a").unlink()
    said = run_python("-c", code.replace("AT", "2")).stdout
    assert said.startswith(f"Cannot write {tmp_path}/a: No space left on device.")
    assert said.endswith("True []\n")


def test_a_killed_process_has_reported_what_it_did():
    code = """
import os, signal
from faults.kills import Process

def work(report):
    report("done", "a")
    os.kill(os.getpid(), signal.SIGKILL)

print(Process(work).outcome())
"""
    said = run_python("-c", code).stdout
    assert "ended='killed'" in said
    assert "done=['a']" in said
