"""Threads that analyse recordings, a bounded number at a time, the urgent ones first."""

from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from queue import PriorityQueue
from threading import Lock, Thread
from typing import TypeVar

from earmark.web.limits import RequestError

Result = TypeVar("Result")

URGENT, LATER, END = 0, 1, 2  # somebody waits; the library is brought up to date; no more work

_Task = tuple[int, int, Callable[[], None]]


class Workers:
    """A fixed number of threads with one queue.

    Args:
        n_threads: how many tasks run at a time.
        max_waiting: urgent tasks that may wait; more are refused.

    >>> workers = Workers(n_threads=1, max_waiting=4)
    >>> workers.submit(lambda: 2 + 2).result()
    4
    >>> workers.close()
    """

    def __init__(self, n_threads: int, max_waiting: int) -> None:
        self._queue: PriorityQueue[_Task] = PriorityQueue()
        self._numbers = count()  # tasks of one priority run in order
        self._lock = Lock()
        self._max_waiting, self._n_waiting, self._is_closed = max_waiting, 0, False
        self._threads = [
            Thread(target=self._work, name=f"earmark-web-{n}", daemon=True)
            for n in range(n_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, function: Callable[[], Result], priority: int = URGENT) -> "Future[Result]":
        """Run a function as soon as a thread is free; raise `RequestError` if too many wait."""
        future: Future[Result] = Future()

        def run() -> None:
            if priority == URGENT:
                with self._lock:
                    self._n_waiting -= 1
            if self._is_closed:
                future.cancel()
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        with self._lock:
            if self._is_closed:
                raise RequestError(503, "The service is ending; try again later.")
            if priority == URGENT:
                if self._n_waiting >= self._max_waiting:
                    raise RequestError(
                        503,
                        f"{self._max_waiting} recordings are waiting already, the limit of this "
                        "service; try again later.",
                    )
                self._n_waiting += 1
            self._queue.put((priority, next(self._numbers), run))
        return future

    def close(self) -> None:
        """Cancel what waits and end the threads; what runs must have been stopped before."""
        with self._lock:
            self._is_closed = True
            for _ in self._threads:
                self._queue.put((END, next(self._numbers), lambda: None))
        for thread in self._threads:
            thread.join(timeout=10.0)

    def _work(self) -> None:
        while True:
            priority, _, run = self._queue.get()
            if priority == END:
                return
            run()
            del run  # it holds the result of the task until the next one comes
