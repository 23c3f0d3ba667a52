"""Kills and other faults: the short form of `python -m faults kills`, and that losses are found."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from faults.kills import KINDS, contents, digest
from faults.operations import FULL, KILL
from faults.results import Results

ROOT = Path(__file__).resolve().parents[1]
TASKS, N_CASES = ("store", "detection"), 8


def run_python(code, *words):
    """Run code in a process of its own, since what forks must have no threads; return its text."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, "-c", code, *map(str, words)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


# Some cases of two tasks; then one each of tasks that continue, begin anew, or leave half files.
CODE = """
import sys
from pathlib import Path
from faults import kills, tasks
from faults.results import Results

folder, names, n_cases, number = sys.argv[1:]
results = Results(Path(folder, "kills.json"), 0, {})
kills.run(results, 600.0, int(n_cases), names.split(), 0)
results.save()

def count(data, out, note, continues=True):
    path = out / "count"
    first = path.stat().st_size if continues and path.exists() else 0
    for at in range(first, 20):
        note("begin", str(at))
        with path.open("ab") as file:
            file.write(b"x")
        note("done", str(at))

def write(data, out, note):
    for name in "abcdefgh":
        (out / name).write_bytes(b"12345678")

tasks.make_data = lambda folder: None
for run in (count, lambda *given: count(*given, continues=False), write):
    tasks.TASKS["own"] = tasks.Task(run, growing=("count",))
    with kills.opened("own") as bench:
        case = kills.Case(bench, int(number), 0)
        try:
            case.run()
        except kills.LossError as error:
            print("answer:", error)
        else:
            print("answer:", case.struck)
"""


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """The results, and what became of the tasks of this test."""
    folder = tmp_path_factory.mktemp("results")
    text = run_python(CODE, folder, " ".join(TASKS), N_CASES, KINDS.index(KILL))
    answers = [line for line in text.splitlines() if line.startswith("answer:")]
    return Results(folder / "kills.json", 0, {}), answers


@pytest.mark.parametrize("name", TASKS)
def test_work_that_is_killed_or_has_no_disk_loses_nothing(attacked, name):
    own = attacked[0].of(name)
    assert own.failures == []
    assert own.outcomes == {"same result": N_CASES}
    assert own.faults[KILL] >= 3
    assert own.faults[FULL] == 1


def test_work_that_begins_anew_or_leaves_half_files_is_found(attacked):
    continues, begins_anew, leaves_half = attacked[1]
    assert continues.startswith(f"answer: {{'{KILL}':")
    assert begins_anew.startswith("answer: done again: 0")
    assert leaves_half.endswith("is another than that of an undisturbed run")


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


WRITING = """
import sys
from pathlib import Path
from earmark.errors import DataError
from earmark.files import atomic_write
from faults.operations import FULL, Operations

folder = Path(sys.argv[1])
operations = Operations(str(folder), int(sys.argv[2]), FULL)
operations.install()
try:
    atomic_write(folder / "a", b"12345678")
except DataError as error:
    print(error)
print(operations.has_struck, [path.name for path in folder.iterdir()])
"""


def test_a_disk_is_full_from_an_operation_on(tmp_path):
    assert run_python(WRITING, tmp_path, -1) == "False ['a']\n"
    (tmp_path / "a").unlink()
    full = f"Cannot write {tmp_path}/a: No space left on device.\nTrue []\n"
    assert run_python(WRITING, tmp_path, 2) == full
