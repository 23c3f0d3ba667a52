"""Mutation testing: mutants are made as described, put into living functions, and noticed.

The short form of `python -m faults mutants`: a few mutants of the loss.
"""

import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from faults.mutant_tests import (
    EQUIVALENT,
    cases_of,
    equivalents,
    functions_of,
    modules,
    put,
    sample,
    score,
)
from faults.mutants import make_mutants

ROOT = Path(__file__).resolve().parents[1]
SOURCE = '''
"""Not this text: 1 < 2."""
import functools

LIMIT: int = 3


def larger(a: "1 < 2", b=2, *, strict=True):
    """Nor this: 1 < 2."""
    if not strict:
        raise ValueError(f"not {1 + 1}")
    return max(a, b)


class Box:
    @functools.cache
    def area(self, width):
        def doubled(x):
            return 2 * x

        return doubled(width)
'''


def changes(body):
    return {mutant.change for mutant in make_mutants(f"def f(a, b):\n    {body}")}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return a < b", {"a < b -> a <= b", "a < b -> a >= b", "return a < b -> left out"}),
        ("a += b", {"a += b -> a -= b", "a += b -> left out"}),
        ("x = a and b", {"a and b -> a or b"}),
        ("x = a[1:b]", {"1:b -> 2:b", "1:b -> 0:b", "1:b -> :b", "1:b -> 1:"}),
        ("x = min(a, b).sum(True)", None),
        ("raise ValueError(1 + 1)", {"raise ValueError(1 + 1) -> left out"}),
        ("log.info(1 + 1)", set()),
        ("x: int = -a", {"-a -> a"}),
        ("x = zip(a, b, strict=True)", set()),
        ("x = 'a' + b", set()),
        ("x = b if a else a", {"a -> not a"}),
    ],
)
def test_small_changes_are_made_where_behaviour_is_described(body, expected):
    if expected is None:
        expected = {
            "min -> max",
            "min(a, b).sum -> min(a, b).mean",
            "min(a, b).sum(True) -> min(a, b).sum(False)",
        }
    assert changes(body) == expected


def test_a_change_is_undone_before_the_next():
    original = ast.dump(ast.parse(SOURCE))
    trees = [ast.dump(mutant.tree) for mutant in make_mutants(SOURCE) if mutant.default is None]
    assert len(set(trees)) == len(trees)
    assert original not in trees
    *_, last = make_mutants(SOURCE)
    assert ast.dump(last.tree) == original


def test_texts_annotations_messages_and_module_level_code_are_left_alone():
    made = list(make_mutants(SOURCE))
    assert {mutant.function for mutant in made} == {"larger", "Box.area"}
    assert not any("1 < 2" in mutant.change or "1 + 1 ->" in mutant.change for mutant in made)


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "mutated.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("mutated", path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return path, made


@pytest.mark.parametrize(
    ("change", "call", "before", "after"),
    [
        ("max -> min", lambda own: own.larger(1), 2, 1),
        ("b=2 -> 3", lambda own: own.larger(1), 2, 3),
        ("not strict -> strict", lambda own: own.larger(4, strict=False), None, 4),
        ("strict=True -> False", lambda own: own.larger(1), 2, None),
        ("2 * x -> 3 * x", lambda own: own.Box().area(2), 4, 6),
        ("return doubled(width) -> left out", lambda own: own.Box().area(2), 4, None),
    ],
)
def test_a_mutant_is_put_into_functions_that_live(module, change, call, before, after):
    path, own = module

    def result():
        try:
            return call(own)
        except ValueError:
            return None

    made = [mutant.change for mutant in make_mutants(SOURCE)]
    (case,) = cases_of(path, [made.index(change)])
    assert result() == before
    put(case, functions_of(path)[path])
    assert result() == after


def test_a_sample_is_the_same_for_a_seed_and_large_enough():
    of = modules()
    chosen = sample(of, 0)
    assert chosen == sample(of, 0) != sample(of, 1)
    assert sum(map(len, chosen.values())) >= 500
    assert all(len(set(numbers)) == len(numbers) > 1 for numbers in chosen.values())


def test_every_mutant_that_is_called_equivalent_exists_and_has_a_reason():
    of = modules()
    known = {
        (name, mutant.function, mutant.change)
        for name, own in of.items()
        for mutant in make_mutants(own.path.read_text())
    }
    listed = equivalents()
    assert not set(listed) - known, f"no longer a mutant: remove it from {EQUIVALENT.name}"
    assert all(reason.endswith(".") for reason in listed.values())


def test_the_reported_run_has_500_mutants_and_a_score_of_95_percent():
    values = json.loads((ROOT / "faults" / "results" / "mutants.json").read_text())
    groups = values["groups"].values()
    assert sum(own["done"] for own in groups) >= 500
    assert score([own["outcomes"] for own in groups]) >= 0.95


def test_mutants_of_the_loss_are_noticed(tmp_path):
    command = [sys.executable, "-m", "faults", "mutants", "--only", "earmark.nn.loss"]
    command += ["--cases", "4", "--out", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    values = json.loads((tmp_path / "mutants.json").read_text())
    assert values["groups"]["earmark.nn.loss"]["outcomes"] == {"killed": 4}
