"""The wheel: it builds, installs into a fresh environment, and detects events from there."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import numpy as np
import pytest

import earmark
from earmark.audio.encode import write_audio
from earmark.synth.scenes import SceneConfig, make_scene

REPO = Path(__file__).parent.parent
# Without PYTHONPATH: the code must come from the wheel, not from this checkout.
CLEAN = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(*command, **options):
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel with the hatchling of this environment, so that no network is needed."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", REPO, "--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """Install the wheel into a new virtual environment."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "--no-deps", "--no-index", wheel)
    # The dependencies are those of this environment, by a path file: installing torch again would
    # take minutes and gigabytes. Path files inside that folder, such as the one of our editable
    # install, are not followed.
    paths = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    run(
        python,
        "-c",
        "import pathlib, sys, sysconfig;"
        "pathlib.Path(sysconfig.get_path('purelib'), 'tested.pth').write_text(sys.argv[1])",
        "\n".join(sorted(paths)),
        env=CLEAN,
    )
    return python


def test_the_wheel_contains_the_package_its_model_and_the_type_marker(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = Path(earmark.__file__).parent
    modules = {path.relative_to(package.parent).as_posix() for path in package.rglob("*.py")}
    assert modules <= names
    models = {f"earmark/models/everyday.{suffix}" for suffix in ("earmark", "json")}
    assert models | {"earmark/py.typed"} <= names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"earmark"}


def test_the_installed_command_detects_events_with_the_bundled_model(environment, tmp_path):
    where = run(environment, "-c", "import earmark; print(earmark.__file__)", env=CLEAN)
    assert Path(where.strip()).is_relative_to(environment.parent.parent)
    command = environment.with_name("earmark")
    assert run(command, "--version", env=CLEAN).strip() == earmark.__version__
    config = SceneConfig(duration=5.0, n_events=(1, 1), snr_db=(20, 20), classes=("siren",))
    scene = make_scene(config, seed=1)
    write_audio(tmp_path / "siren.wav", np.asarray(scene.waveform), scene.sample_rate)
    table = run(command, "detect", "siren.wav", "--threads", "1", cwd=tmp_path, env=CLEAN)
    rows = [line.split("\t") for line in table.splitlines()]
    assert rows[0] == ["filename", "onset", "offset", "event_label"]
    assert ("siren.wav", "siren") in {(row[0], row[3]) for row in rows[1:]}
