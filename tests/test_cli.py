"""The command line, as a user types it."""

import subprocess
import sys

import earmark


def run(*words, cwd=None):
    command = [sys.executable, "-m", "earmark", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_version_and_help():
    assert run("--version").stdout.strip() == earmark.__version__
    assert "clip tags" in run("--help").stdout


def test_the_demo_draws_what_it_pooled(tmp_path):
    done = run("demo", "--out", "here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "125 -> 25 -> 5 -> 1" in done.stdout
    assert (tmp_path / "here" / "hierarchy.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "here" / "scene.wav").stat().st_size > 600_000


def test_an_unknown_command_exits_with_2():
    done = run("demmo")
    assert done.returncode == 2
    assert "demmo" in done.stderr
