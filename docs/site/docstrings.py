"""Docstrings as the API reference needs them: doctests become sections of examples.

Our docstrings end with doctests without a heading, which Markdown would take for quotations.
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


class Doctests(griffe.Extension):
    """Rewrites every docstring when it is read."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if not obj.is_alias and obj.docstring:
            obj.docstring.value = with_examples(obj.docstring.value)
