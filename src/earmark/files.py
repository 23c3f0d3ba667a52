"""Atomic writes, and locks on folders that only one process may write to.

Conventions: a file is written under a temporary name in the same folder, flushed to disk and
renamed. A reader sees the old content or the new, never a part, even if the process is killed.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident

from earmark.errors import DataError

LOCK = "lock"


@contextmanager
def atomic_path(path: Path, keep_suffix: bool = True) -> Iterator[Path]:
    """Yield a temporary path to write to; at the end it replaces `path`, unless an error is raised.

    Args:
        path: the file to write.
        keep_suffix: end the temporary name with the suffix of `path`, for writers that choose the
            format by it. Without it, no pattern such as `*.json` matches what a killed process
            leaves behind.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_path(Path(folder, "a.txt")) as part:
    ...         _ = part.write_text("whole")
    ...     [file.name for file in Path(folder).iterdir()]
    ['a.txt']
    """
    suffix = path.suffix if keep_suffix else ""
    part = path.with_name(f".{path.stem}.{os.getpid()}-{get_ident()}.part{suffix}")
    try:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())  # otherwise a power cut may leave the name without content
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def atomic_write(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     atomic_write(Path(folder, "a.txt"), b"whole")
    ...     Path(folder, "a.txt").read_text()
    'whole'
    """
    try:
        with atomic_path(path, keep_suffix=False) as part:
            part.write_bytes(content)
    except OSError as error:
        raise DataError(f"Cannot write {path}: {error.strerror or error}.") from error


@contextmanager
def locked(folder: Path, wait: bool = False, doing: str = "building the store") -> Iterator[None]:
    """Hold the lock of a folder; the operating system releases it when the process ends.

    Args:
        folder: an existing folder; the lock is the file `lock` in it.
        wait: wait for another process that holds the lock, instead of raising.
        doing: what the other process does, for the error message.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, locked(Path(folder)):
    ...     pass
    """
    with (folder / LOCK).open("a+") as file:
        try:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            raise DataError(
                f"Another process is {doing} {folder}; wait until it has finished."
            ) from error
        yield
