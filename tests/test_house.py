"""The house itself: rooms in the order of the data flow, a light front, no drawers."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import earmark

SRC = Path(earmark.__file__).parent
REPO = Path(__file__).parent.parent

# A room imports only from rooms above it.
ROOMS = """
errors runtime runtime.isa
machine threads workers strict frames tables tensors events curves tags containers audio
sounds soundbank synth scenery features journal data store doctor augment
pooling.weights pooling.stages pooling.functions pooling.module pooling.gradients pooling
norm layers model folding loss decoding
metrics.rates metrics.sides metrics.segment metrics.matching metrics.event metrics.confusion
metrics.ranking metrics.clip metrics.bootstrap metrics.paired metrics.seeds
metrics.runs metrics.changes metrics.criteria metrics.pieces metrics.stops metrics.psds
metrics.bests metrics
answers evaluation
tuning.thresholds tuning.clips tuning.line tuning.result tuning.turns tuning.tags tuning.events
tuning.tune tuning
settings batches checkpoint training bundle detector predictions
plots.figure plots.network plots.scores plots.runs plots.evaluation plots report learning demo
compare.plan compare.unit compare.table compare.run compare recipe
cli.front cli.data cli.learn cli.hear cli.score cli.study cli __main__
""".split()  # noqa: SIM905 - read as the data flows


def room_of(path: Path) -> str:
    parts = list(path.relative_to(SRC).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


FILES = {room_of(path): path for path in sorted(SRC.rglob("*.py")) if room_of(path)}


def imports_of(room: str) -> set[str]:
    """The rooms that `room` imports, anywhere in its file."""
    return imports_in(FILES[room].read_text(), room)


def imports_in(code: str, room: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "earmark"}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{room} imports relatively; write the room's name"
            if node.module.split(".")[0] == "earmark":
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    found.add(inner if inner.removeprefix("earmark.") in FILES else node.module)
    return {name.removeprefix("earmark.") for name in found}


def test_an_import_from_the_front_is_seen_beside_that_of_a_room():
    code = "from earmark import audio, Model\nfrom earmark.pooling import Stage, stages\n"
    assert imports_in(code, "demo") == {"audio", "earmark", "pooling", "pooling.stages"}


def test_every_file_is_a_room_of_the_plan():
    assert sorted(FILES) == sorted(ROOMS)


@pytest.mark.parametrize("room", FILES)
def test_a_room_imports_only_from_rooms_above_it(room):
    for other in imports_of(room):
        assert other != "earmark", f"{room} imports the package's front; name the room instead"
        assert other in ROOMS, f"{room} imports {other}, which is no room"
        assert ROOMS.index(other) < ROOMS.index(room), f"{room} imports {other} from below"


@pytest.mark.parametrize("room", FILES)
def test_a_room_says_what_it_turns_into_what(room):
    docstring = ast.get_docstring(ast.parse(FILES[room].read_text()))
    assert docstring, f"{room} has no docstring"
    assert "->" in docstring.split("\n\n")[0] or room == "errors", docstring.split("\n")[0]


@pytest.mark.parametrize("room", FILES)
def test_a_room_has_at_most_400_lines_and_is_no_drawer(room):
    assert len(FILES[room].read_text().splitlines()) <= 400
    assert not {"utils", "util", "helpers", "common", "base", "core", "misc"} & set(room.split("."))


def test_the_front_names_everything_it_gives():
    assert set(earmark.__all__) == {*earmark._ROOM_OF, "__version__"}
    assert set(dir(earmark)) == set(earmark.__all__)
    for name, room in earmark._ROOM_OF.items():
        assert getattr(earmark, name) is getattr(import_module(f"earmark.{room}"), name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = earmark.nonsense


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_importing_earmark_is_light():
    heavy = ["torch", "numpy", "soundfile", "soxr", "typer", "matplotlib"]
    assert run(f"import sys, earmark; print([m for m in {heavy} if m in sys.modules])") == "[]"


def test_the_command_line_starts_without_torch():
    code = "import sys, earmark.cli; print('torch' in sys.modules, 'numpy' in sys.modules)"
    assert run(code) == "False False"


def test_pooling_needs_nothing_but_torch():
    heavy = ["soundfile", "soxr", "typer", "matplotlib"]
    code = f"import sys, earmark.pooling; print([m for m in {heavy} if m in sys.modules])"
    assert run(code) == "[]"


def test_the_version_is_told_once():
    assert run("from importlib.metadata import version; print(version('earmark'))") == (
        earmark.__version__
    )
    assert f"## {earmark.__version__}" in (REPO / "CHANGELOG.md").read_text()
    assert f"version: {earmark.__version__}" in (REPO / "CITATION.cff").read_text()


def test_the_map_of_files_in_the_readme_is_true():
    readme = (REPO / "README.md").read_text()
    map_ = readme.split("## The map")[1].split("```")[1]
    named = {line.split()[0] for line in map_.splitlines() if line.startswith("  ")}
    there = {
        f"{room}.py" for room in FILES if "." not in room and FILES[room].name != "__init__.py"
    }
    there |= {f"{path.parent.name}/" for path in SRC.glob("*/__init__.py")}
    assert named == there - {"__main__.py"}


def test_make_help_names_every_target():
    makefile = (REPO / "Makefile").read_text()
    for target in ("demo", "test", "check", "bench", "help", "docs", "setup"):
        assert f"\n{target}:" in makefile
        assert (
            f"make {target}"
            in (REPO / "README.md").read_text() + (REPO / "CONTRIBUTING.md").read_text()
        )
