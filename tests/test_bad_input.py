"""Bad input: every reader answers damaged and crafted files with a result or one of our errors.

The short form of `make faults`: a few cases of a fixed seed per reader, and all files that once
failed, which are kept in tests/data/bad_input/READER/.
"""

import faulthandler
import os
import shutil
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from earmark.errors import DataError
from faults import bad_input, guided, readers
from faults.bad_input import RestoredFolder, cases, outcome_of
from faults.mutation import change_json, change_text, change_values
from faults.readers import READERS, Reader, spoil
from faults.results import Results

KEPT = Path(__file__).parent / "data" / "bad_input"
N_CASES = {"model": 8, "onnx": 5, "events": 40}  # the slow ones; 25 of all others


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", READERS)
def test_a_reader_reads_good_files_and_answers_bad_ones_with_a_result_or_an_error(name, tmp_path):
    good = tmp_path / "first"
    good.mkdir()
    for path in READERS[name].make(good):
        assert outcome_of(READERS[name].read, path) == ("result", ""), path
    shutil.rmtree(good)
    answers = []
    for number, path, _ in cases(name, 0, 21, tmp_path):
        outcome, reason = outcome_of(READERS[name].read, path)
        assert outcome in ("result", "error"), f"case {number}: {reason}"
        answers.append(outcome)
        if len(answers) == N_CASES.get(name, 25):
            break
    assert "error" in answers or name == "journal", "a journal that is not ours is begun anew"


@pytest.fixture(scope="module")
def good_files(tmp_path_factory):
    """Make the good files of a reader once: reader -> folder and paths in it."""
    folders = {}

    def make(name):
        if name not in folders:
            folder = tmp_path_factory.mktemp(name)
            paths = [path.relative_to(folder) for path in READERS[name].make(folder)]
            folders[name] = folder, paths
        return folders[name]

    return make


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
@settings(max_examples=10, suppress_health_check=list(HealthCheck), derandomize=True)
def test_whatever_is_changed_in_a_file_it_is_answered(name, good_files, tmp_path_factory, data):
    good, files = good_files(name)
    folder = tmp_path_factory.mktemp("spoiled") / "work"
    shutil.copytree(good, folder)
    rng = data.draw(st.randoms(use_true_random=False))
    path, content = spoil(READERS[name], rng, [folder / file for file in files])
    path.write_bytes(content)
    outcome, reason = outcome_of(READERS[name].read, path)
    assert outcome in ("result", "error"), reason


KEPT_FILES = sorted(path for path in KEPT.rglob("*") if path.is_file())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kept", KEPT_FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_file_that_once_failed_is_answered(kept, tmp_path):
    reader = READERS[kept.parent.name]
    by_name = {path.name: path for path in reader.make(tmp_path)}
    number, _, name = kept.name.partition("-")
    assert number.isdigit()
    shutil.copyfile(kept, by_name[name])
    outcome, reason = outcome_of(reader.read, by_name[name])
    assert outcome in ("result", "error"), reason


def test_an_exception_of_another_kind_is_found():
    def read(path):
        raise KeyError(path)

    assert outcome_of(read, Path("x"))[0] == "foreign"


def test_a_case_is_the_same_whenever_it_is_made(tmp_path):
    made = []
    for folder in (tmp_path / "1", tmp_path / "2"):
        folder.mkdir()
        made.append([content for *_, content in islice(cases("tables", 3, 0, folder), 5)])
    assert made[0] == made[1]


def test_a_run_that_was_stopped_continues_with_the_next_case(tmp_path):
    first = Results(tmp_path / "input.json", 0, {"memory_bytes": 1})
    for outcome in ("result", "error", "error"):
        first.of("audio").add(outcome)
    first.save()
    again = Results(tmp_path / "input.json", 0, {})
    assert (again.of("audio").done, again.of("audio").outcomes["error"]) == (3, 2)
    assert Results(tmp_path / "input.json", 1, {}).n_cases == 0, "another seed is another run"


def test_what_a_case_changed_is_undone_for_the_next(tmp_path):
    good, work = tmp_path / "good", tmp_path / "work"
    (good / "inner").mkdir(parents=True)
    for name in ("a", "b", "inner/c"):
        (good / name).write_text(name)
        os.utime(good / name, (1e9, 1e9))
    folder = RestoredFolder(good, work)
    (work / "a").write_text("A")  # of the same size
    (work / "b").unlink()
    shutil.rmtree(work / "inner")
    (work / "new").write_text("new")
    folder.restore()
    for name in ("a", "b", "inner/c"):
        assert (work / name).read_text() == name
        assert (work / name).stat().st_mtime == 1e9
    assert not (work / "new").exists()


def _make_one(folder):
    (folder / "a.txt").write_text("good")
    return [folder / "a.txt"]


def _read_one(path):
    """Do what the text of a file says."""
    text = path.read_text()
    if text == "error":
        raise DataError("It is wrong.")
    if text == "foreign":
        raise KeyError("x")
    if text == "crash":
        faulthandler.disable()  # its report is not for whoever reads the output of the tests
        os.abort()
    while text == "hang":
        pass


@pytest.mark.filterwarnings("ignore")
def test_a_case_that_crashes_or_hangs_is_kept_and_the_next_one_follows(tmp_path, monkeypatch):
    texts = ["error", "crash", "hang", "foreign", "good", "error"]
    monkeypatch.setattr(bad_input, "case_rng", lambda seed, name, number: number)
    reader = Reader(_make_one, _read_one, lambda rng, path: b"", len(texts))
    monkeypatch.setitem(READERS, "one", reader)
    monkeypatch.setattr(readers, "spoil", lambda own, rng, files: (files[0], texts[rng].encode()))
    monkeypatch.setattr(bad_input, "HANG", 0.2)
    results = Results(tmp_path / "input.json", 0, {})
    bad_input.run(results, 300.0, len(texts), ["one"], 0)
    own = Results(tmp_path / "input.json", 0, {}).of("one")
    assert own.outcomes == {"error": 2, "result": 1, "foreign": 1, "crash": 1, "hang": 1}
    assert own.done == len(texts)
    found = {failure["case"]: failure["outcome"] for failure in own.failures}
    assert found == {1: "crash", 2: "hang", 3: "foreign"}
    for number in found:
        assert (tmp_path / "failures" / f"one-{number}-a.txt").read_text() == texts[number]


def test_an_answer_of_500_is_no_answer(tmp_path, monkeypatch):
    from earmark.web.library import Library

    requests = {path.stem: path for path in READERS["http"].make(tmp_path)}
    assert READERS["http"].read(requests["recording"]) == 200

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Library, "find", fail)
    assert "status 503" in outcome_of(READERS["http"].read, requests["recording"])[1]
    monkeypatch.setattr(Library, "find", lambda *_: 1 / 0)
    assert "ZeroDivisionError" in outcome_of(READERS["http"].read, requests["recording"])[1]


def test_what_a_request_changed_is_restored_for_the_next(tmp_path):
    requests = {path.stem: path for path in READERS["http"].make(tmp_path)}
    for name in ("upload-form", "delete", "correct", "recording", "recordings"):
        assert outcome_of(READERS["http"].read, requests[name]) == ("result", ""), name


def test_without_atheris_the_guided_part_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    results = Results(tmp_path / "guided.json", 0, {})
    guided.run(results, 60.0, 100, [], 0)
    assert "pip install atheris" in capsys.readouterr().out
    assert results.n_cases == 0


def test_a_guided_case_of_a_model_has_a_right_checksum_and_any_description(tmp_path):
    from earmark.tensors import load_tensors

    (path,) = READERS["model"].make(tmp_path)
    before = load_tensors(path, "file")[1]
    guided.writer(path)(b'{"format": 4}')
    text, tensors = load_tensors(path, "file")  # checks the sum
    assert text == '{"format": 4}'
    assert tensors.keys() == before.keys()
    assert outcome_of(READERS["model"].read, path)[0] == "error"


def test_values_and_texts_are_changed():
    import json
    import random

    values = {"labels": ["dog", "cat"], "rate": 8000}
    changed = [change_values(random.Random(seed), values) for seed in range(20)]
    assert sum(own != values for own in changed) > 15
    assert values == {"labels": ["dog", "cat"], "rate": 8000}, "the original stays"
    grown = {"labels": ["dog"] * 1000}
    for seed in range(40):
        grown = change_values(random.Random(seed), grown)
        assert len(json.dumps(grown)) < 8 << 20, "a list that is long is not repeated again"
    text = json.dumps(values)
    assert change_json(random.Random(3), text) != text
    assert change_text(random.Random(3), "a\tb\n") != "a\tb\n"
