"""A function that pulls its input -> an object to which the input is pushed.

Most of this project pulls: a function takes an iterator of blocks and yields results. A live source
pushes: a block comes when it comes. `Pushed` runs the function on a thread of its own, which waits
where the function asks for an item that has not come yet. Only one of the two threads runs at a
time, so nothing is computed sooner or later than by a call.

Conventions: the thread is a daemon and ends with `finish`, `close`, an error, or when the object is
deleted. It computes on one core, as those of `earmark.runtime.threads` do. An error of the function
is raised by the call that caused it and by every later one. An interrupt (Ctrl-C) during `push`
loses nothing: the item stays, and the next call returns its results too.
"""

from collections import deque
from collections.abc import Callable, Iterator
from threading import Condition
from typing import Generic, TypeVar
from weakref import finalize

from earmark.runtime.threads import start_thread

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Closed(BaseException):
    """Ends the function where it waits for an item; no `except Exception` swallows it."""


class _Shared(Generic[Item, Result]):
    """What both threads see, under one lock."""

    def __init__(self) -> None:
        self.changed = Condition()
        self.items: deque[Item] = deque()
        self.results: list[Result] = []
        self.is_complete = self.is_closed = False  # no more items; and no more wanted
        self.is_waiting = self.has_ended = False  # the function for an item; the thread
        self.error: BaseException | None = None

    def read(self) -> Iterator[Item]:
        """Yield the items, on the function's thread; wait for those that have not come."""
        while True:
            with self.changed:
                while not (self.items or self.is_complete or self.is_closed):
                    self.is_waiting = True
                    self.changed.notify_all()
                    self.changed.wait()
                self.is_waiting = False
                if self.is_closed:
                    raise _Closed
                if not self.items:
                    return
                item = self.items.popleft()
            yield item

    def run(self, function: Callable[[Iterator[Item]], Iterator[Result]]) -> None:
        """Run the function to its end, on its thread."""
        try:
            for result in function(self.read()):
                with self.changed:
                    self.results.append(result)
        except _Closed:
            pass
        except BaseException as error:
            self.error = error
        with self.changed:
            self.has_ended = True
            self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()


class Pushed(Generic[Item, Result]):
    """A function from an iterator to an iterator, whose items are pushed one by one.

    Args:
        function: called once, on another thread, with the iterator of the items.

    >>> with Pushed(lambda numbers: (2 * number for number in numbers)) as doubled:
    ...     doubled.push(1), doubled.push(2), doubled.finish()
    ([2], [4], [])
    """

    def __init__(self, function: Callable[[Iterator[Item]], Iterator[Result]]) -> None:
        shared: _Shared[Item, Result] = _Shared()
        self._shared = shared
        # The thread must not hold this object, or it would never be deleted.
        start_thread(lambda: shared.run(function))
        self._close = finalize(self, shared.close)

    def push(self, item: Item) -> list[Result]:
        """Return the results that the function yields before it asks for the next item."""
        with self._shared.changed:
            self._shared.items.append(item)
            return self._answer()

    def finish(self) -> list[Result]:
        """Return the remaining results; the items are complete."""
        with self._shared.changed:
            self._shared.is_complete = True
            return self._answer()

    def close(self) -> None:
        """End the thread without a result; nothing happens if it has ended."""
        self._close()

    def _answer(self) -> list[Result]:
        shared = self._shared
        shared.changed.notify_all()
        shared.changed.wait_for(
            lambda: (
                shared.has_ended
                or (shared.is_waiting and not shared.items and not shared.is_complete)
            )
        )
        if shared.error is not None:
            raise shared.error
        results, shared.results = shared.results, []
        return results

    def __enter__(self) -> "Pushed[Item, Result]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
