"""A function and items -> its results in order, from threads on which torch keeps to one core.

Conventions: torch's own threads share one operation, and most operations of a network are too small
to be worth sharing; here every thread has items of its own, twice as fast on two cores. The threads
of a process are started once and shared by whoever asks, so that ten requests at a time do not
become twenty threads. What torch was told about threads elsewhere in the process stays as it is.
An item is computed by one core whatever their number, so the results do not depend on it.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from threading import Barrier, Lock
from typing import TypeVar

import torch

from earmark.errors import SettingError
from earmark.runtime.machine import n_cores

Item = TypeVar("Item")
Result = TypeVar("Result")

_starting = Lock()


def map_in_threads(
    function: Callable[[Item], Result],
    items: Iterator[Item],
    threads: int = 0,
    *,
    draw_here: bool = False,
) -> Iterator[Result]:
    """Yield `function(item)` of each item, in order.

    Items are drawn on the threads as well, one after another, while earlier ones are computed. No
    more than a few are held at a time. What an item or the function raises is raised here.

    Args:
        function: called on several threads at once.
        items: never None.
        threads: how many; 0 is one for every core.
        draw_here: draw items on the caller's thread, as it must be with items that come from
            another such map: a thread that waits for the others would be one that they lack.

    >>> list(map_in_threads(abs, iter([-1, -2, -3]), threads=2))
    [1, 2, 3]
    """
    count = check_threads(threads) or n_cores()
    with _starting:  # two first calls at once make one pool
        pool = _pool(count)
    pending: deque[Future[Result]] = deque()
    draw = partial(next, items, None)
    ahead: Future[Item | None] | None = None if draw_here else pool.submit(draw)
    try:
        while (item := draw() if ahead is None else ahead.result()) is not None:
            # The next item goes first in the queue: whoever computes must not wait for it.
            ahead = None if draw_here else pool.submit(draw)
            pending.append(pool.submit(function, item))
            if len(pending) > count:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:  # after an error, or where nobody wants the rest
        if ahead is not None:
            ahead.cancel()
        for future in pending:
            future.cancel()


def check_threads(threads: int) -> int:
    """Return the number of threads, or raise `SettingError` unless it is 0 or more.

    >>> check_threads(2)
    2
    """
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 0:
        raise SettingError(
            f"threads must be a whole number, 0 for one on every core. Got {threads!r}."
        )
    return threads


@lru_cache
def _pool(count: int) -> ThreadPoolExecutor:
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(count, "earmark", _keep_to_one_core)
    all_started = Barrier(count)
    for future in [pool.submit(all_started.wait) for _ in range(count)]:
        future.result()
    # torch remembers the last number set for threads to come, and each thread its own.
    torch.set_num_threads(before)
    return pool


def _keep_to_one_core() -> None:
    torch.get_num_threads()  # a new thread takes over the common number when it is first asked
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):  # a child has the pool and none of its threads
    os.register_at_fork(after_in_child=_pool.cache_clear)
