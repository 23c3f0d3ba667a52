"""How many cores a process may use, and how its threads wait for each other.

Conventions: processes that were started together share the cores of a machine evenly. Torch is not
imported here: `limit_spinning` must run before it.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from earmark.runtime.switch import custom_kernels


def n_cores() -> int:
    """Return the number of cores that this process may use.

    >>> n_cores() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_of_cores(n_processes: int) -> int:
    """Return the number of threads per process when `n_processes` train together.

    Of these, torchrun may have started only LOCAL_WORLD_SIZE on this machine.

    >>> share_of_cores(10_000)
    1
    """
    n_local = int(os.environ.get("LOCAL_WORLD_SIZE", "0")) or n_processes
    return max(1, n_cores() // n_local)


def limit_spinning() -> None:
    """Let OpenMP threads spin only briefly while they wait; call it before torch is imported.

    Threads that wait by spinning block the cores for everybody else: training next to two busy
    processes fell from 50 to below 3 clips per second. With brief spinning it falls to 20, and
    alone it loses 6 to 9 %. A value of GOMP_SPINCOUNT that the user has set is kept.

    >>> limit_spinning()
    >>> "GOMP_SPINCOUNT" in os.environ
    True
    """
    if custom_kernels():
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread, if it is loaded, as in a worker process.

    >>> import torch
    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    """
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
