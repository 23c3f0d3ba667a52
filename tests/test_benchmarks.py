"""Benchmarks can be imported, so that a renamed name is noticed before `make bench`."""

import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.parametrize("name", [module.name for module in iter_modules([str(FOLDER)])])
def test_every_benchmark_can_be_imported(name, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER.parent))
    monkeypatch.setattr(sys, "argv", ["benchmarks"])
    assert import_module(f"benchmarks.{name}").__doc__


def test_every_benchmark_has_its_place_in_a_page(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER.parent))
    main = import_module("benchmarks.__main__")
    for name, benchmark in main.BENCHMARKS.items():
        page = (FOLDER.parent / benchmark.page).read_text()
        _, begin, rest = page.partition(f"<!-- made by `make bench`: {name} -->")
        assert begin, name
        own, end, _ = rest.partition(main.END)
        assert end, name
        assert "<!--" not in own, name  # the next part begins after its end
