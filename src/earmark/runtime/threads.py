"""Map a function over items on several threads, with one core per thread.

Torch's own threads split each operation, and most operations of a network are too small for that.
Here each thread computes whole items, which is twice as fast on two cores.

Conventions: the threads of a process are started once and shared by all callers, so that ten
concurrent requests do not become twenty threads. Torch's number of threads elsewhere in the process
does not change. An item is always computed on one core, so results do not depend on the number of
threads.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from threading import Barrier, Event, Lock, Thread
from typing import TypeVar

import torch

from earmark.errors import SettingError
from earmark.runtime.cores import n_cores

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_THREADS = 1024  # more than cores of a machine; with some ten thousand, threads cannot start

_starting = Lock()


def map_in_threads(
    function: Callable[[Item], Result],
    items: Iterator[Item],
    threads: int = 0,
    *,
    iterate_here: bool = False,
    ahead: bool = True,
) -> Iterator[Result]:
    """Yield `function(item)` for each item, in order.

    By default the threads also fetch the items, one after another, while earlier ones are computed.
    Only a few items are held in memory. Errors of the iterator and of the function are raised here.

    Args:
        function: called on several threads concurrently.
        items: none of them may be None.
        threads: number of threads; 0 is one per core.
        iterate_here: fetch items on the caller's thread. Needed when the items come from another
            `map_in_threads`: a thread of the pool that waits for the others could block them all.
        ahead: False fetches an item, on the caller's thread, only when the result of the one before
            was yielded and another is wanted; needed when items may take long to come, as those of
            a live recording.

    >>> list(map_in_threads(abs, iter([-1, -2, -3]), threads=2))
    [1, 2, 3]
    """
    count = check_threads(threads) or n_cores()
    with _starting:  # concurrent first calls must make one pool
        pool = _pool(count)
    if not ahead:
        for each in items:
            yield pool.submit(function, each).result()
        return
    pending: deque[Future[Result]] = deque()
    fetch = partial(next, items, None)
    fetched: Future[Item | None] | None = None if iterate_here else pool.submit(fetch)
    try:
        while (item := fetch() if fetched is None else fetched.result()) is not None:
            # Fetching comes first in the queue, so that no thread waits for an item.
            fetched = None if iterate_here else pool.submit(fetch)
            pending.append(pool.submit(function, item))
            if len(pending) > count:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:  # after an error, or when the caller stops early
        if fetched is not None:
            fetched.cancel()
        for future in pending:
            future.cancel()


def start_thread(function: Callable[[], None]) -> None:
    """Run a function on a daemon thread of its own, which computes on one core.

    >>> from threading import Event
    >>> has_run = Event()
    >>> start_thread(has_run.set)
    >>> has_run.wait()
    True
    """
    ready = Event()

    def run() -> None:
        _keep_to_one_core()
        ready.set()
        function()

    with _starting:
        before = torch.get_num_threads()
        Thread(target=run, name="earmark-push", daemon=True).start()
        ready.wait()
        torch.set_num_threads(before)  # as in `_pool`


def share_items(items: Iterable[Item], n_readers: int) -> list[Iterator[Item]]:
    """Return iterators of which each yields all items, also if threads read them concurrently.

    An item is held until the last reader has it: readers that keep pace hold few. An error of the
    items is raised for every reader.

    >>> one, other = share_items(iter("ab"), 2)
    >>> next(one), list(other), list(one)
    ('a', ['a', 'b'], ['b'])
    """
    source, lock = iter(items), Lock()
    held: list[deque[Item]] = [deque() for _ in range(n_readers)]
    failed: list[BaseException] = []

    def read(own: deque[Item]) -> Iterator[Item]:
        while True:
            with lock:
                if not own:
                    if failed:
                        raise failed[0]
                    try:
                        item = next(source)
                    except StopIteration:
                        return
                    except BaseException as error:
                        failed.append(error)
                        raise
                    for reader in held:
                        reader.append(item)
                item = own.popleft()
            yield item

    return [read(own) for own in held]


def check_threads(threads: int) -> int:
    """Return the number of threads, or raise `SettingError` unless it is 0 to `MAX_THREADS`.

    >>> check_threads(2)
    2
    """
    is_number = isinstance(threads, int) and not isinstance(threads, bool)
    if not is_number or not 0 <= threads <= MAX_THREADS:
        raise SettingError(
            f"threads must be an integer from 0 to {MAX_THREADS}, where 0 is one per core. "
            f"Got {threads!r}."
        )
    return threads


@lru_cache
def _pool(count: int) -> ThreadPoolExecutor:
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(count, "earmark", _keep_to_one_core)
    all_started = Barrier(count)
    for future in [pool.submit(all_started.wait) for _ in range(count)]:
        future.result()
    # Each thread keeps its own number, but torch gives the last one set to new threads.
    torch.set_num_threads(before)
    return pool


def _keep_to_one_core() -> None:
    torch.get_num_threads()  # a new thread adopts the global number on its first call
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):  # a child inherits the pool without its threads
    os.register_at_fork(after_in_child=_pool.cache_clear)
