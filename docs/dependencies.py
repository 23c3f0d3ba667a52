"""Generate the tables of docs/dependencies.md, and the constraints of `make lowest`.

Which packages there are, and their licences, is read from the metadata of what is installed, which
`make` installs with the versions of constraints.txt. Why a package is there is written here.

    python -m docs.dependencies    the lowest versions that pyproject.toml accepts
"""

import re
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import Distribution, distribution
from pathlib import Path

from docs.tables import text_table

REPO = Path(__file__).parent.parent
PYTHON = (3, 11)  # of constraints.txt: others need a few other packages
# What users install comes first: the extras in the order of pyproject.toml, `dev` last.
WHY: Mapping[str, str] = {
    "numpy": "arrays: audio, frame-level scores, metrics",
    "torch": "networks, training, log-mels",
    "soundfile": "reads and writes recordings, with libsndfile",
    "soxr": "resampling of good quality, block by block",
    "safetensors": "model files and checkpoints that contain no code",
    "lightning-fabric": "training in several processes, on GPUs and in bfloat16",
    "pydantic": "settings: types are checked, errors name the field",
    "typer": "the command line; brings rich, for progress bars",
    "matplotlib": "plots and reports",
    "pyarrow": "Parquet files of events and of frame-level scores",
    "tensorboard": "the curves of a training while it runs",
    "onnx": "writes ONNX files",
    "onnxscript": "what torch exports ONNX with",
    "onnxruntime": "runs ONNX files: exported models, encoders",
    "sounddevice": "the microphone of `earmark live`",
    "dask": "the cluster: brings `distributed` and its settings",
    "distributed": "features, detection and comparisons on many machines",
    "fastapi": "the REST API of `earmark serve`, and its schema",
    "starlette": "the guard in front of it, and files in parts",
    "uvicorn": "the HTTP server",
    "python-multipart": "uploads that are forms",
    "ai-edge-litert": "runs encoders that are TFLite files, such as YAMNet",
    "axe-playwright-python": "checks that the page is accessible",
    "hatchling": "builds the wheel",
    "httpx": "client of the service in tests and documents",
    "hypothesis": "tests of properties: any input",
    "jams": "reads our JAMS files, in tests",
    "librosa": "log-mels to compare ours with",
    "mypy": "types",
    "pandas": "reads our tables, in tests",
    "playwright": "opens the page in a browser, in tests",
    "praatio": "reads our TextGrids, in tests",
    "pytest": "tests",
    "pytest-cov": "coverage of the tests",
    "pytest-xdist": "tests on all cores",
    "ruff": "lint and format",
    "schemathesis": "requests made from the schema of the service",
}


def requirements() -> dict[str, dict[str, str]]:
    """Return extra -> name -> the lowest version that pyproject.toml accepts; "" is no extra.

    >>> requirements()[""]["numpy"]
    '1.26'
    """
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    found = {}
    for extra, lines in {"": project["dependencies"], **project["optional-dependencies"]}.items():
        parts = [re.fullmatch(r"([\w-]+)>=([\d.]+)", x) for x in lines if "earmark[" not in x]
        found[extra] = {part[1]: part[2] for part in parts if part}
        assert all(parts), f"requirements are NAME>=VERSION. Got {lines}."
    return found


def lowest_versions() -> str:
    """Return constraints with the lowest versions of all that users install."""
    lines = {
        f"{name}=={version}"
        for extra, own in requirements().items()
        if extra not in ("dev", "mic")  # the microphone needs PortAudio
        for name, version in own.items()
    }
    return "\n".join(sorted(lines)) + "\n"


def direct_table() -> str:
    """Return the packages that pyproject.toml names, with licence and purpose."""
    extras: dict[str, list[str]] = {}
    for extra, own in requirements().items():
        for name in own:
            extras.setdefault(name, []).append(f"`{extra}`" if extra else "always")
    assert extras.keys() == WHY.keys(), f"WHY differs in {extras.keys() ^ WHY.keys()}"
    rows = [(f"`{name}`", ", ".join(extras[name]), _licence(name), WHY[name]) for name in WHY]
    return text_table(("package", "installed with", "licence", "what it is for"), rows)


def other_table() -> str:
    """Return the packages that those bring along, with licence and who needs them."""
    needed = needed_by()
    rows = [
        (f"`{name}`", _licence(name), ", ".join(f"`{own}`" for own in sorted(parents)))
        for name, parents in sorted(needed.items())
        if name not in WHY
    ]
    return text_table(("package", "licence", "needed by"), rows)


def needed_by() -> dict[str, set[str]]:
    """Return every package that `earmark[dev]` brings -> those that need it, by their metadata."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: dict[str, set[str]] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [("earmark", "dev")]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for line in distribution(name).requires or ():
            own = Requirement(line)
            if own.marker is not None and not own.marker.evaluate({"extra": extra}):
                continue
            needed = canonicalize_name(own.name)
            if needed != "earmark":
                found.setdefault(needed, set()).add(name)
            waiting += [(needed, each) for each in ("", *sorted(own.extras))]
    for parents in found.values():
        parents.discard("earmark")
    return found


# Packages that are not installed here, or whose metadata names no licence; from their sources.
_KNOWN_LICENCES = {"axe-playwright-python": "MIT", "sounddevice": "MIT"}


def _licence(name: str) -> str:
    return _KNOWN_LICENCES.get(name) or _licence_of(distribution(name))


def _licence_of(about: Distribution) -> str:
    """Return the licence of a package: its expression, its classifiers, or its first line."""
    metadata = about.metadata
    classifiers = metadata.get_all("Classifier") or []
    names = [x.rpartition(" :: ")[2] for x in classifiers if x.startswith("License :: OSI")]
    given = (metadata.get("License") or "").strip().partition("\n")[0]  # some have the whole text
    short = given if re.fullmatch(r"(?!Copyright)\w[\w .,+()-]{1,38}", given) else ""
    return metadata.get("License-Expression") or short or ", ".join(names) or "not named"


if __name__ == "__main__":
    sys.stdout.write(lowest_versions())
