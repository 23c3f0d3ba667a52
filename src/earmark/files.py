"""Atomic writes, and locks on folders and files that only one process may write to.

Conventions: a file is written under a temporary name in the same folder, flushed to disk and
renamed. A reader sees the old content or the new, never a part, even if the process is killed. A
symbolic link is followed, and a file that is replaced keeps its mode. What cannot be replaced (a
FIFO, a device, `/dev/stdout`) is written to. The temporary file is locked while it is written: what
a killed process left in a folder is removed by the first write of a later process there.
"""

import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_ident
from typing import IO, Any

from earmark.errors import DataError

LOCK = "lock"
_PART = re.compile(r"\..*\.\d+-\d+\.part(\.[^.]*)?")  # as `_part_name` makes them
_swept: set[str] = set()  # folders in which this process has removed what others left


@contextmanager
def atomic_path(path: Path, keep_suffix: bool = True) -> Iterator[Path]:
    """Yield a temporary path to write to; at the end it replaces `path`, unless an error is raised.

    Whatever keeps it from being written, such as a full disk, is a `DataError`.

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
    name = _part_name(path.stem, suffix)
    try:
        if is_special(path):
            with tempfile.TemporaryDirectory() as folder:
                yield (part := Path(folder, name))
                with part.open("rb") as source, path.open("ab") as file:
                    shutil.copyfileobj(source, file)
            return
        target = Path(os.path.realpath(path))
        _remove_parts(target.parent)
        part = target.with_name(name)
        try:
            with _held(part):
                yield part
                with part.open("rb") as file:
                    os.fsync(file.fileno())  # or a power cut may leave the name without content
                if target.exists():
                    part.chmod(stat.S_IMODE(target.stat().st_mode))
                part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(f"Cannot write {path}: {error.strerror or error}.") from error


def atomic_write(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     atomic_write(Path(folder, "a.txt"), b"whole")
    ...     Path(folder, "a.txt").read_text()
    'whole'
    """
    with atomic_path(path, keep_suffix=False) as part:
        part.write_bytes(content)


def is_special(path: Path) -> bool:
    """Return whether a path is to be written to, not replaced: a FIFO, a device, /dev/stdout.

    >>> is_special(Path("/dev/null")), is_special(Path("a.tsv"))
    (True, False)
    """
    if re.match(r"/dev/(stdout|stderr|fd/)|/proc/", str(path.absolute())):
        return True  # links to what the shell opened, which may be a file that others write to
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def check_writable(path: Path) -> None:
    """Raise `DataError` if a file cannot be written, before the work whose result it is to hold.

    >>> check_writable(Path("no folder", "a.tsv"))
    Traceback (most recent call last):
        ...
    earmark.errors.DataError: Cannot write no folder/a.tsv: there is no folder 'no folder'; ...
    """
    target = path if is_special(path) else Path(os.path.realpath(path))
    probe = target.with_name(_part_name(target.name))
    try:
        if target.is_dir():
            raise DataError(f"Cannot write {path}: it is a folder; name a file in it.")
        if not target.parent.is_dir():
            raise DataError(
                f"Cannot write {path}: there is no folder {str(path.parent)!r}; make it first."
            )
        _remove_parts(target.parent)
        if target.exists() and not os.access(target, os.W_OK):
            raise DataError(f"Cannot write {path}: it is read-only. Choose another file.")
        if not is_special(path):
            probe.touch()
            probe.unlink()
    except OSError as error:
        raise DataError(f"Cannot write {path}: {error.strerror or error}.") from error


def _part_name(name: str, suffix: str = "") -> str:
    """Return a hidden name, short enough also for a file whose own name is as long as allowed."""
    short = os.fsencode(name)[:100].decode(errors="ignore")
    return f".{short}.{os.getpid()}-{get_ident()}.part{suffix}"


@contextmanager
def _held(part: Path) -> Iterator[None]:
    """Create a temporary file and hold its lock, by which others know that it is in use."""
    if sys.platform == "win32":  # where a lock keeps the writer out, too
        yield
        return
    while True:
        with part.open("ab") as file:
            with suppress(DataError):  # a file system without locks
                lock(file, f"writing {part}", wait=True)
            if not part.exists():
                continue  # another process took it for left behind, before it was locked
            yield
            return


def _remove_parts(folder: Path) -> None:
    """Remove the temporary files of processes that ended, once per process and folder."""
    if str(folder) in _swept or sys.platform == "win32":
        return
    _swept.add(str(folder))
    try:
        left = [folder / entry.name for entry in os.scandir(folder) if _PART.fullmatch(entry.name)]
    except OSError:
        return  # whatever is wrong with the folder, the write says it
    for path in left:
        try:
            with path.open("rb") as file:
                lock(file, f"writing {path}")
                path.unlink()
        except (DataError, OSError):
            continue  # in use, or not ours


def check_folder(folder: Path) -> None:
    """Make a folder; raise `DataError` if files cannot be written there, before the work.

    >>> check_folder(Path("/dev/null/results"))
    Traceback (most recent call last):
        ...
    earmark.errors.DataError: Cannot make the folder /dev/null/results: Not a directory.
    """
    make_folder(folder)
    check_writable(folder / "any file")


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; raise `DataError` if it cannot be made.

    >>> make_folder(Path("."))
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"Cannot make the folder {folder}: {error.strerror or error}.") from error


@contextmanager
def locked(
    folder: Path, wait: bool = False, doing: str = "building the store", name: str = LOCK
) -> Iterator[None]:
    """Hold the lock of a folder; the operating system releases it when the process ends.

    Args:
        folder: an existing folder.
        wait: wait for another process that holds the lock, instead of raising.
        doing: what the other process does, for the error message.
        name: of the file in the folder that is locked.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, locked(Path(folder)):
    ...     pass
    """
    try:
        file = (folder / name).open("a+")
    except OSError as error:
        raise DataError(f"Cannot write to {folder}: {error.strerror or error}.") from error
    with file:
        lock(file, f"{doing} {folder}", wait)
        yield


def lock(file: IO[Any], doing: str, wait: bool = False) -> None:
    """Lock an open file until it is closed; raise if another process holds the lock.

    Args:
        file: open for writing.
        doing: what the other process does, for the error message.
        wait: wait for it instead of raising.

    >>> with tempfile.TemporaryFile() as file:
    ...     lock(file, "writing it")
    """
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        raise DataError(f"Another process is {doing}; wait until it has finished.") from error
