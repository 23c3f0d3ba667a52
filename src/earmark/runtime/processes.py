"""A function and items -> its results in order, from several processes.

Conventions: processes are spawned, with one thread each, and end when their parent does, even when
it is killed. They do not run the user's script again, as spawned processes otherwise do, so that it
needs no `if __name__ == "__main__":`. Only a few results are held at a time.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from types import ModuleType
from typing import TypeVar

from earmark.errors import DataError, SettingError

AHEAD = 8  # items for each process to be busy with while the first of them is waited for

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_order(
    function: Callable[[Item], Result], items: Collection[Item], processes: int | None = None
) -> Generator[Result, None, None]:
    """Yield `function(item)` of each item, in order, from processes of one thread each.

    Only a few results are held at a time. Processes end when this one does, even when it is killed.

    >>> list(map_in_order(abs, [-1, -2]))
    [1, 2]
    """
    if processes is None:  # to start one takes two seconds, or hundreds of short clips
        processes = min(_n_processors(), max(1, len(items) // 64))
    if processes < 1:
        raise SettingError(f"processes must be 1 or more. Got {processes!r}.")
    if processes == 1:
        with _one_thread():
            yield from map(function, items)
        return
    pending: deque[Future[Result]] = deque()
    with _pool(processes) as pool:
        for item in items:
            with without_main():
                pending.append(pool.submit(function, item))
            if len(pending) >= AHEAD * processes:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def map_as_done(
    function: Callable[[Item], Result], items: Collection[Item], processes: int
) -> Generator[Result, None, None]:
    """Yield `function(item)` of each item as it is done, from processes of one thread each.

    For long work: where the caller stops, by an error or Ctrl-C, what is under way is ended.

    >>> sorted(map_as_done(abs, [-1, -2], processes=1))
    [1, 2]
    """
    if processes == 1:
        yield from map(function, items)
        return
    others = set(multiprocessing.active_children())
    with _pool(processes) as pool:
        with without_main():
            pending = [pool.submit(function, item) for item in items]
        try:
            for future in as_completed(pending):
                yield future.result()
        except BaseException:
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()
            raise


@contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    # Spawned, not forked: a fork of a process with threads (torch, BLAS) may hang.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_start_worker)
    try:
        yield pool
    except BrokenProcessPool as error:
        raise DataError(
            "A worker process died: memory may have run out; with processes=1 none are started."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def without_main() -> Iterator[None]:
    """Let processes that are spawned meanwhile find no script to run again.

    What they run is in rooms, which they import by name; nothing of the script is needed.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _one_thread() -> Iterator[None]:
    """Hold torch to one thread, if it is there: more would only wait for each other."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _n_processors() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _start_worker() -> None:
    """Set a worker up: one thread, and an end with its parent, which a pool does not see to."""
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # before torch is loaded
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears of Ctrl-C, and ends the pool
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
