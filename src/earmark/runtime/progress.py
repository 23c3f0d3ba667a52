"""A progress bar on standard error, drawn only where that is a terminal.

Conventions: the bar is removed when it ends. Lines that are logged or printed meanwhile appear
above it.
"""

import sys
from types import TracebackType
from typing import Any


class ProgressBar:
    """The progress of one piece of work; a context manager.

    Args:
        description: what is under way, such as "features".
        total: number of items.
        done: number of items that are done already.
        shown: False never shows the bar.
        detail: a text beside the bar, in place of the number of items.

    >>> with ProgressBar("clips", total=3, shown=False) as bar:
    ...     for _ in range(3):
    ...         bar.advance()
    """

    def __init__(
        self,
        description: str,
        total: int,
        done: int = 0,
        shown: bool = True,
        detail: str | None = None,
    ) -> None:
        self._bar: Any = None
        if shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

            count = MofNCompleteColumn() if detail is None else "{task.fields[detail]}"
            columns = ("{task.description}", BarColumn(), count)
            console = Console(stderr=True)
            self._bar = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
            self._task = self._bar.add_task(description, total=total, completed=done, detail=detail)

    def advance(self, n_items: int = 1, detail: str | None = None) -> None:
        """Count `n_items` more as done."""
        if self._bar is not None:
            self._bar.update(self._task, advance=n_items, detail=detail)

    def move_to(self, done: int) -> None:
        """Set the number of items that are done."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done)

    def __enter__(self) -> "ProgressBar":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def format_duration(seconds: float) -> str:
    """Return a duration in the unit that suits it.

    >>> format_duration(40), format_duration(1500), format_duration(9000)
    ('40 s', '25 min', '2.5 h')
    """
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 99.5 * 60 else f"{seconds / 3600:.1f} h"
