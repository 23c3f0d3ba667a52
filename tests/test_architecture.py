"""The architecture: who may import whom, a light front, honest names."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import earmark

SRC = Path(earmark.__file__).parent
REPO = Path(__file__).parent.parent

# Package or module -> what it may import of Earmark, besides itself. Data flows downwards: nothing
# imports what stands below it. What is absent from a line is a promise: `pooling` needs nothing
# but errors, `metrics` knows no network, `nn` knows no metric, no table and no audio.
LAYERS = {
    "errors": "",
    "config": "errors",
    "files": "errors",
    "frames": "errors",
    "tensors": "errors files",
    "runtime": "errors",
    "pooling": "errors",
    "formats": "errors files frames",
    "audio": "errors files",
    "synth": "errors config files runtime audio formats",
    "encoders": "errors",
    "data": "errors config files frames runtime audio formats encoders",
    "nn": "errors config frames runtime pooling",
    "metrics": "errors config formats",
    "plots": "errors files frames pooling formats data metrics",
    "inference": "errors config files frames tensors runtime audio formats data nn metrics plots",
    "training": "errors config files frames tensors runtime formats data nn metrics plots "
    "inference",
    "reports": "errors files frames audio formats data metrics plots inference training",
    "web": "errors files frames pooling audio formats data nn inference",
    "experiments": "errors config files frames runtime audio synth formats data metrics plots "
    "inference training",
    "cli": "errors files runtime synth formats data metrics plots inference training reports web "
    "experiments",
}
LAYERS = {name: set(allowed.split()) for name, allowed in LAYERS.items()}


def module_of(path: Path) -> str:
    parts = list(path.relative_to(SRC).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


FILES = {module_of(path): path for path in sorted(SRC.rglob("*.py")) if module_of(path)}
MODULES = [name for name in FILES if name != "__main__"]


def imports_in(code: str) -> set[str]:
    """The modules of Earmark that some code imports, anywhere in it; "" is the public front."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import; write the module's whole name"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner.removeprefix("earmark.") in FILES else node.module)
    own = {name for name in found if name.split(".")[0] == "earmark"}
    return {name.removeprefix("earmark").removeprefix(".") for name in own}


def test_imports_from_the_top_level_package_and_from_modules_are_both_seen():
    code = "from earmark import audio, Model\nfrom earmark.pooling import Stage, stages\n"
    assert imports_in(code) == {"audio", "", "pooling", "pooling.stages"}


def test_the_contract_names_every_package_and_has_no_cycle():
    there = {name.split(".")[0] for name in MODULES}
    assert set(LAYERS) == there
    order = list(LAYERS)
    for name, allowed in LAYERS.items():
        assert all(order.index(other) < order.index(name) for other in allowed), name


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_the_contract_allows(module):
    package = module.split(".")[0]
    for other in imports_in(FILES[module].read_text()):
        assert other, f"{module} imports the public front; name the module instead"
        target = other.split(".")[0]
        allowed = LAYERS[package] | {package}
        assert target in allowed, f"{module} imports {other}, which {package} may not"


@pytest.mark.parametrize("package", LAYERS)
def test_the_contract_allows_nothing_that_nobody_uses(package):
    own = [name for name in MODULES if name.split(".")[0] == package]
    used = {other.split(".")[0] for name in own for other in imports_in(FILES[name].read_text())}
    assert LAYERS[package] <= used, f"{package} does not import {LAYERS[package] - used}"


def test_the_modules_of_a_package_do_not_import_each_other_in_a_circle():
    graph = {
        name: {other for other in imports_in(FILES[name].read_text()) if other in FILES}
        for name in MODULES
    }
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"a circle of imports: {' -> '.join((*path, name))}"
        if name not in done:
            for other in graph[name]:
                visit(other, (*path, name))
            done.add(name)

    for name in MODULES:
        visit(name, ())


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_a_docstring_and_a_descriptive_name(module):
    docstring = ast.get_docstring(ast.parse(FILES[module].read_text()))
    assert docstring, f"{module} has no docstring"
    vague = {"utils", "util", "helpers", "helper", "common", "base", "core", "misc"}
    assert not vague & set(module.split("."))


def loaded_by(code: str, *modules: str) -> list[str]:
    """Which of the modules are loaded after the code has run in a process of its own."""
    return run(f"import sys; {code}; print([m for m in {modules} if m in sys.modules])")


@pytest.mark.parametrize("name", ["SYSTEMS", "DECISIONS", "PUBLISHED", "NEVER"])
def test_a_word_of_the_published_systems_names_one_constant(name):
    """Systems, decisions and published figures occur in training, tuning and experiments alike."""
    constant = re.compile(rf"^{name}\b.* = ", re.M)
    bound = [str(path.relative_to(SRC)) for path in sorted(SRC.rglob("*.py"))
             if constant.search(path.read_text())]  # fmt: skip
    assert len(bound) <= 1, f"{name} is bound in {bound}: one name for one thing"


def test_loading_a_detector_does_not_import_the_scorer_or_the_trainer():
    unwanted = ("earmark.metrics", "earmark.training", "lightning_fabric", "matplotlib")
    assert loaded_by("import earmark; earmark.load()", *unwanted) == "[]"


def test_the_front_names_everything_it_gives():
    assert set(earmark.__all__) == {*earmark._MODULE_OF, "__version__"}
    assert set(dir(earmark)) == {*earmark.__all__, *earmark._SUBPACKAGES}
    for name, module in earmark._MODULE_OF.items():
        assert getattr(earmark, name) is getattr(import_module(f"earmark.{module}"), name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = earmark.nonsense


def test_every_library_that_is_imported_is_declared():
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    declared = [*project["dependencies"], *(text for extra in extras for text in extra)]
    names = {re.split(r"[<>=!~;\[ ]", text)[0].replace("-", "_").lower() for text in declared}
    known = names | {"rich"}  # comes with typer
    for module, path in FILES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            found = []
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                found = [node.module]
            for name in (each.split(".")[0] for each in found):
                ours = name == "earmark" or name in sys.stdlib_module_names
                assert ours or name in known, f"{module} imports {name}, which is not declared"


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


def test_the_version_is_defined_once():
    assert run("from importlib.metadata import version; print(version('earmark'))") == (
        earmark.__version__
    )
    assert f"## {earmark.__version__}" in (REPO / "CHANGELOG.md").read_text()
    assert f"version: {earmark.__version__}" in (REPO / "CITATION.cff").read_text()


def test_the_map_of_files_in_the_readme_is_true():
    readme = (REPO / "README.md").read_text()
    map_ = readme.split("## The map")[1].split("```")[1]
    named = {line.split()[0] for line in map_.splitlines() if line.startswith("  ")}
    there = {path.name for path in SRC.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert named == there | {f"{path.parent.name}/" for path in SRC.glob("*/__init__.py")}


def test_make_help_names_every_target():
    makefile = (REPO / "Makefile").read_text()
    for target in ("demo", "test", "check", "bench", "help", "docs", "setup"):
        assert f"\n{target}:" in makefile
        assert (
            f"make {target}"
            in (REPO / "README.md").read_text() + (REPO / "CONTRIBUTING.md").read_text()
        )


def test_the_picture_of_the_packages_follows_the_contract(monkeypatch):
    monkeypatch.syspath_prepend(str(REPO))
    monkeypatch.delitem(sys.modules, "docs", raising=False)
    from docs.architecture import DETECT, ROWS, TRAIN

    height = {name: row for row, names in enumerate(ROWS) for name in names}
    assert set(height) == set(LAYERS)
    for name, allowed in LAYERS.items():
        assert all(height[other] < height[name] for other in allowed), name
    assert {*TRAIN, *DETECT} <= set(LAYERS)
