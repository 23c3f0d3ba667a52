"""Freed memory stays with the process, where glibc would return it to the system each time.

The system clears each page that it hands out; for tensors of many megabytes that is a third of the
time of training on a CPU.

Conventions: for glibc only; elsewhere, and with EARMARK_KERNELS=torch, nothing happens. No computed
value changes.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from earmark.runtime.switch import custom_kernels

# From glibc's malloc.h. Once a threshold is set, glibc no longer adapts it. The values set at the
# end are those to which glibc would have adapted it in a process with large arrays.
_TRIM_THRESHOLD, _TRIM_AFTER = -1, 64 * 2**20
_MMAP_THRESHOLD, _MMAP_AFTER = -3, 32 * 2**20
_MMAP_MAX, _MMAP_MAX_DEFAULT = -4, 65536

_lock = Lock()
_n_users = 0


@contextmanager
def keep_memory() -> Iterator[None]:
    """Keep freed memory for reuse within the `with` block.

    Blocks may be nested or run on several threads; when the last one ends, the memory goes back to
    the system.

    >>> with keep_memory():
    ...     pass
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" and custom_kernels() else None
    if not hasattr(libc, "mallopt") or not hasattr(libc, "malloc_trim"):
        yield
        return
    global _n_users  # noqa: PLW0603 - there is one allocator per process
    assert libc is not None
    with _lock:
        _n_users += 1
        if _n_users == 1:
            libc.mallopt(_TRIM_THRESHOLD, -1)  # never
            libc.mallopt(_MMAP_MAX, 0)
    try:
        yield
    finally:
        with _lock:
            _n_users -= 1
            if not _n_users:
                libc.mallopt(_TRIM_THRESHOLD, _TRIM_AFTER)
                libc.mallopt(_MMAP_THRESHOLD, _MMAP_AFTER)
                libc.mallopt(_MMAP_MAX, _MMAP_MAX_DEFAULT)
                libc.malloc_trim(0)


def keep_blocks_of(n_bytes: int) -> None:
    """Let glibc reuse blocks of up to `n_bytes` from now on, at most 32 MiB.

    Freeing one block raises glibc's own threshold above its size. It is not touched, so it costs no
    memory.

    >>> keep_blocks_of(2**20)
    """
    if custom_kernels():
        import torch  # late: the command line starts without it

        torch.empty(n_bytes, dtype=torch.uint8)
