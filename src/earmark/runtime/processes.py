"""Map a function over items in several worker processes, of this machine or of a cluster.

Conventions: the worker processes of this machine are spawned, run one thread each, and end when
their parent ends, even when it is killed. They do not run the user's script again, as spawned
processes otherwise do, so that it needs no `if __name__ == "__main__":`. Only a few results are
held in memory. With a `Cluster`, its workers get the items; see `earmark.runtime.cluster`.
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
from functools import partial
from multiprocessing.connection import wait
from types import ModuleType
from typing import TypeVar

from earmark.errors import DataError, SettingError
from earmark.runtime.cluster import Cluster, map_on_cluster
from earmark.runtime.cores import n_cores, one_thread
from earmark.runtime.extensions import import_extensions

AHEAD = 8  # items per process that may be under way while the first result is awaited

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_order(
    function: Callable[[Item], Result],
    items: Collection[Item],
    processes: int | None = None,
    cluster: Cluster[Item] | None = None,
) -> Generator[Result, None, None]:
    """Yield `function(item)` for each item, in order.

    Args:
        function: called in the worker processes; it must be importable by name.
        items: what it is called with.
        processes: number of worker processes. By default one per core, fewer where the items are
            few; with 1 everything runs in this process, on one thread.
        cluster: where to run, in place of processes of this machine.

    >>> list(map_in_order(abs, [-1, -2]))
    [1, 2]
    """
    if cluster is not None:
        _check_alone(processes)
        yield from map_on_cluster(partial(_each, function), items, cluster)
        return
    if multiprocessing.current_process().daemon:  # such as a worker of Dask, which may start none
        processes = 1
    if processes is None:  # starting one takes two seconds, as much as hundreds of short clips
        processes = min(n_cores(), max(1, len(items) // 64))
    if processes < 1:
        raise SettingError(f"processes must be 1 or more. Got {processes!r}.")
    if processes == 1:
        with one_thread():
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
    function: Callable[[Item], Result],
    items: Collection[Item],
    processes: int | None = None,
    cluster: Cluster[Item] | None = None,
) -> Generator[Result, None, None]:
    """Yield `function(item)` for each item, in the order in which they finish.

    For long work: when the caller stops, by an error or Ctrl-C, the worker processes are ended.
    (On a cluster, tasks that have not started are cancelled.) Arguments as in `map_in_order`, but
    by default there is one process per core.

    >>> sorted(map_as_done(abs, [-1, -2], processes=1))
    [1, 2]
    """
    if cluster is not None:
        _check_alone(processes)
        yield from map_on_cluster(partial(_each, function), items, cluster, in_order=False)
        return
    processes = processes or min(n_cores(), max(1, len(items)))
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


def _each(function: Callable[[Item], Result], items: list[Item]) -> list[Result]:
    return [function(item) for item in items]


def _check_alone(processes: int | None) -> None:
    if processes is not None:
        raise SettingError(
            "processes is for this machine; leave it out with a scheduler, whose workers are as "
            f"many as were started. Got {processes!r}."
        )


def is_first_process() -> bool:
    """Return whether this process writes and logs, of those that torchrun or SLURM started.

    >>> is_first_process()
    True
    """
    ranks = (os.environ.get(name, "0") for name in ("RANK", "SLURM_PROCID"))
    return all(rank == "0" for rank in ranks)


@contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    # Spawned, not forked: a fork of a process with threads (torch, BLAS) may hang.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_start_worker)
    try:
        yield pool
    except BrokenProcessPool as error:
        raise DataError(
            "A worker process died, perhaps because memory ran out; use processes=1 to start none."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def without_main() -> Iterator[None]:
    """Hide the user's script from processes that are spawned within the `with` block.

    Workers run functions that they import by name; they need nothing of the script.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _start_worker() -> None:
    """Set up a worker: one thread, and a watcher that ends it with its parent."""
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # before torch is loaded
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends the pool
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    import_extensions()
