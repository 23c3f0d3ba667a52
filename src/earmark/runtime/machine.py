"""This machine -> how many cores there are to use, and memory that is not fetched anew every time.

Conventions: a process has `n_cores()` to share with others that were started with it. Nothing here
changes a number that is computed.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

# Of glibc's malloc.h. Once a threshold is set, glibc no longer moves it by itself; what it is set
# to afterwards are the ends to which glibc would have moved it in a process with large arrays.
_TRIM_THRESHOLD, _TRIM_AFTER = -1, 64 * 2**20
_MMAP_THRESHOLD, _MMAP_AFTER = -3, 32 * 2**20
_MMAP_MAX, _MMAP_MAX_DEFAULT = -4, 65536

_keeping = Lock()
_keepers = 0


def n_cores() -> int:
    """Return the number of cores that this process may use.

    >>> n_cores() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_of_cores(n_processes: int) -> int:
    """Return the threads for each of `n_processes`, of which this machine may run only some.

    >>> share_of_cores(10_000)
    1
    """
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "0")) or n_processes  # torchrun's word
    return max(1, n_cores() // here)


@contextmanager
def keep_memory() -> Iterator[None]:
    """Within, memory that is set free stays with the process to be used again.

    By default glibc gives every large tensor back to the system at once, and the system clears each
    page that it lends: a third of the time of a training on a CPU. When the last of those who are
    within leaves, it is all given back. Elsewhere than in glibc nothing happens.

    >>> with keep_memory():
    ...     pass
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if not hasattr(libc, "mallopt") or not hasattr(libc, "malloc_trim"):
        yield
        return
    global _keepers  # noqa: PLW0603 - there is one allocator in a process
    assert libc is not None
    with _keeping:
        _keepers += 1
        if _keepers == 1:
            libc.mallopt(_TRIM_THRESHOLD, -1)  # never
            libc.mallopt(_MMAP_MAX, 0)
    try:
        yield
    finally:
        with _keeping:
            _keepers -= 1
            if not _keepers:
                libc.mallopt(_TRIM_THRESHOLD, _TRIM_AFTER)
                libc.mallopt(_MMAP_THRESHOLD, _MMAP_AFTER)
                libc.mallopt(_MMAP_MAX, _MMAP_MAX_DEFAULT)
                libc.malloc_trim(0)
