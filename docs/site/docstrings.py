"""Docstrings for the API reference: doctests become examples, comments describe constants.

Our docstrings end with doctests without a heading, which Markdown would take for quotations; and
constants have a comment above them or beside them.
"""

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"(?:^>>> .*\n(?:.+\n)*\n*)+", re.M)


def with_examples(text: str) -> str:
    """Return a docstring whose doctests stand below the heading "Examples:"."""

    def indent(match: re.Match[str]) -> str:
        lines = [f"    {line}".rstrip() for line in match[0].strip().splitlines()]
        return "\n".join(["Examples:", *lines, "", ""])

    return DOCTEST.sub(indent, text + "\n").rstrip()


def comment(lines: list[str], number: int) -> str:
    """Return the comment directly above a line, counted from 1, or else at its end."""
    above: list[str] = []
    for line in reversed(lines[: number - 1]):
        if not line.startswith("# "):
            break
        above.insert(0, line.removeprefix("# "))
    beside = re.search(r"  # (?!noqa|type:|fmt:)(.+)$", lines[number - 1])
    return " ".join(above) or (beside[1] if beside else "")


class Docstrings(griffe.Extension):
    """Rewrites every docstring when it is read."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring of a module, class or function, or describe a constant."""
        if obj.is_alias:
            return
        if obj.docstring:
            obj.docstring.value = with_examples(obj.docstring.value)
        elif obj.is_attribute and obj.name.isupper() and obj.lineno:
            text = comment(obj.filepath.read_text(encoding="utf-8").splitlines(), obj.lineno)
            if text:
                obj.docstring = griffe.Docstring(text[0].upper() + text[1:], parent=obj)
