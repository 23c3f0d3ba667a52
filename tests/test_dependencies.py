"""What is installed: locked, explained, with a licence, and not below what we accept."""

import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from packaging.version import Version

REPO = Path(__file__).parent.parent


@pytest.fixture
def dependencies(monkeypatch):
    monkeypatch.syspath_prepend(str(REPO))
    monkeypatch.delitem(sys.modules, "docs", raising=False)
    from docs import dependencies

    return dependencies


@pytest.fixture
def lock():
    lines = (REPO / "constraints.txt").read_text().splitlines()
    pins = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): own for name, own in pins}


def test_the_lock_has_every_package_in_the_version_that_is_installed(dependencies, lock):
    if sys.version_info[:2] != dependencies.PYTHON or sys.platform != "linux":
        pytest.skip("constraints.txt is of another Python")
    installed = {name: version(name).partition("+")[0] for name in dependencies.needed_by()}
    assert lock == installed, "run make lock"


def test_the_lock_is_not_below_what_we_accept(dependencies, lock):
    for extra, own in dependencies.requirements().items():
        for name, lowest in own.items():
            if extra != "mic":  # not installed: it needs PortAudio
                assert Version(lock[name]) >= Version(lowest), name


def test_the_oracles_are_locked_in_the_versions_that_they_ask_for():
    def pins(name):
        text = (REPO / "oracles" / name).read_text()
        return dict(re.findall(r"^([\w.-]+)==([\w.]+)", text, re.M))

    asked, locked = pins("requirements.txt"), pins("constraints.txt")
    assert len(asked) >= 6
    assert asked.items() <= locked.items()


def test_every_package_has_a_licence_and_every_direct_one_a_reason(dependencies):
    page = (REPO / "docs/dependencies.md").read_text()
    assert "not named" not in page
    direct = {name for own in dependencies.requirements().values() for name in own}
    assert direct == dependencies.WHY.keys()
    for name in direct | dependencies.needed_by().keys():
        assert f"\n| `{name}` | " in page, f"{name}: run make docs ONLY=docs/dependencies.md"


def test_the_lowest_versions_are_those_of_pyproject(dependencies):
    text = (REPO / "pyproject.toml").read_text()
    lines = dependencies.lowest_versions().split()
    assert len(lines) == len(set(lines)) > 20
    for line in lines:
        assert f'"{line.replace("==", ">=")}"' in text
    assert not any(line.startswith(("pytest", "sounddevice")) for line in lines)
