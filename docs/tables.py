"""Tables of text for the generated parts of docs/: left-aligned, with pipes escaped."""

from collections.abc import Iterable, Sequence


def text_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""Return a Markdown table whose cells are text; `TextTable` is for numbers.

    >>> print(text_table(("option", "meaning"), [("--a", "x | y")]), end="")
    | option | meaning |
    |---|---|
    | --a | x \| y |
    """
    lines = [_line(columns), "|" + "---|" * len(columns), *map(_line, rows)]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"
