"""The pages of the API reference: one per package, with the public names of each, and an index.

Public is what `__all__` of a package lists, what the front (`import earmark`) offers of it, and
what the documents import from its modules. All of it is read from the sources, without importing
them.
"""

import re
from collections.abc import Collection, Iterable
from pathlib import Path

import griffe
from docstrings import Docstrings

REPO = Path(__file__).parents[2]
PACKAGE = "earmark"
LEFT_OUT = ("cli",)  # docs/commands.md describes it
SUBPACKAGES = ("inference.tuning",)  # with an `__all__` of their own
MADE_OF = {"pooling": "functions"}  # package -> a module whose functions are made when it is loaded
IMPORT = re.compile(r"^from (earmark\.[\w.]+) import (.+)$", re.M)
TABLE_LINE = re.compile(r"^ *[\w.]+ {2,}\S")  # of modules and what each has


def api_pages() -> dict[str, str]:
    """Return the path of each page -> its Markdown."""
    extensions = griffe.load_extensions(Docstrings)
    front = griffe.load(PACKAGE, search_paths=[REPO / "src"], extensions=extensions)
    assert isinstance(front, griffe.Module)
    names = public_names(front)
    packages = {
        name: [path for path in names.values() if path.startswith(f"{module.path}.")]
        for name, module in sorted(front.modules.items())
        if module.is_init_module
    }
    packages = {name: own for name, own in packages.items() if own}
    pages = {
        f"api/{name}.md": package_page(front.modules[name], own) for name, own in packages.items()
    }
    placed = {path for own in packages.values() for path in own}
    rest = [path for path in names.values() if path not in placed]
    pages["api/index.md"] = index_page(front, names, packages, rest)
    return pages


def public_names(front: griffe.Module) -> dict[str, str]:
    """Return where each public name is defined -> where it is documented; those of the front first.

    A name is documented as part of the package that exports it, or of the module that defines it.
    """
    found: dict[str, str] = {}
    modules = [module for name, module in front.modules.items() if name not in LEFT_OUT]
    for module in [*modules, *(front[name] for name in SUBPACKAGES)]:
        for path in exported(module):
            found.setdefault(canonical(front, path), path)
    first = {canonical(front, path) for path in exported(front)}
    for target in [*first, *(canonical(front, path) for path in used_in_documents())]:
        found.setdefault(target, target)

    def order(item: tuple[str, str]) -> tuple[bool, str]:
        return item[0] not in first, item[1].rpartition(".")[2].lower()

    return dict(sorted(found.items(), key=order))


def exported(module: griffe.Module) -> list[str]:
    """Return the paths of `__all__` of a module, as far as it can be read without running it."""
    names = [str(name) for name in module.exports or ()]
    return [f"{module.path}.{x}" for x in names if x in module.members and x != "__version__"]


def used_in_documents() -> Iterable[str]:
    """Return the names that the Python blocks of README.md and docs/ import from modules."""
    for page in (REPO / "README.md", *sorted((REPO / "docs").glob("*.md"))):
        for module, names in IMPORT.findall(page.read_text(encoding="utf-8")):
            yield from (f"{module}.{name.strip()}" for name in names.split(","))


def canonical(front: griffe.Module, path: str) -> str:
    """Return where a name is defined."""
    found = front[path.removeprefix(f"{PACKAGE}.")]
    return str(found.final_target.path if found.is_alias else found.path)


def package_page(module: griffe.Module, names: Iterable[str]) -> str:
    """Return the page of a package: its docstring, then each name."""
    parts = [f"# {module.path}", module_text(module), *(f"::: {path}" for path in names)]
    if made := MADE_OF.get(module.name):
        parts += [f"## {module.path}.{made}", module_text(module.modules[made])]
    return "\n\n".join(parts) + "\n"


def index_page(
    front: griffe.Module,
    names: dict[str, str],
    packages: Collection[str],
    rest: Iterable[str],
) -> str:
    """Return the first page: the front with summaries, the packages, what belongs to none."""
    lines = [
        "# API reference",
        "",
        "`import earmark`, then:",
        "",
        "| name | what it is |",
        "|---|---|",
    ]
    for path in exported(front):
        target = canonical(front, path)
        text = _first(front[target.removeprefix(f"{PACKAGE}.")])
        lines.append(f"| [`{path}`][{names[target]}] | {text} |")
    lines += ["", "Packages:", "", "| package | what it has |", "|---|---|"]
    for name in packages:
        lines.append(f"| [`{PACKAGE}.{name}`]({name}.md) | {_first(front.modules[name])} |")
    return "\n".join([*lines, "", *(f"::: {path}\n" for path in rest)]) + "\n"


def _first(found: griffe.Object | griffe.Alias) -> str:
    text = found.docstring.value if found.docstring else ""
    return " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")


def module_text(module: griffe.Module) -> str:
    """Return the docstring of a module as Markdown: lists of modules and doctests are code."""
    text = module.docstring.value if module.docstring else ""
    parts = []
    for part in re.split(r"\n\s*\n", text):
        lines = part.splitlines()
        if all(TABLE_LINE.match(line) or line.startswith(" ") for line in lines):
            parts.append("\n".join(["```text", *lines, "```"]))
        elif lines[0] == "Examples:":
            parts.append("\n".join(["```pycon", *(line[4:] for line in lines[1:]), "```"]))
        else:
            parts.append(part)
    return "\n\n".join(parts)
