"""Ctrl-C and SIGTERM end the reading of a live source, and nothing in the middle of work.

Conventions: in the main thread, where signals arrive; elsewhere nothing happens. When the `with`
block has ended, signals have their former effect.
"""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

Item = TypeVar("Item")

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Interrupted(BaseException):
    """Raised while the next item is awaited."""


class Interrupts:
    """Whether there was an interrupt, and how to wait for items until there is one.

    >>> with Interrupts() as interrupts:
    ...     list(interrupts.read([1, 2])), interrupts.were_requested
    ([1, 2], False)
    """

    def __init__(self) -> None:
        self.were_requested = False
        self._is_waiting = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def read(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items until an interrupt; one during the work on an item ends it afterwards."""
        source, end = iter(items), object()
        while True:
            item = self.wait_for(lambda: next(source, end))
            if item is None or item is end:
                return
            yield cast("Item", item)

    def wait_for(self, function: Callable[[], Item]) -> Item | None:
        """Return what a function returns, or None after an interrupt, which ends the function.

        >>> Interrupts().wait_for(lambda: 1)
        1
        """
        if self.were_requested:
            return None
        try:
            try:
                self._is_waiting = True
                return function()
            finally:
                self._is_waiting = False
        except _Interrupted:
            return None

    def _note(self, *_: object) -> None:
        self.were_requested = True
        if self._is_waiting:
            raise _Interrupted
