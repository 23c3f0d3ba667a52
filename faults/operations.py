"""Faults at a chosen file operation of this process: a kill, a full disk, one that fails.

Operations are counted in the folder that is attacked: opening a file to write, each write to it,
rename, remove, truncate, new folders, and fsync. Those that Python code makes are seen; a library
that writes by itself, such as NumPy, is seen only when the file is opened or renamed. There is no
way back: a process that installs this is to end soon.
"""

import builtins
import errno
import io
import os
import signal
import sys
from pathlib import Path
from typing import Any

KILL, FULL, FAIL = "kill at a write", "full disk", "failing write"
_PLACES = {  # audit events -> which of their arguments are paths
    "os.rename": (0, 1),
    "os.remove": (0,),
    "os.truncate": (0,),
    "os.mkdir": (0,),
    "os.chmod": (0,),
}
_REMOVES = ("os.remove",)  # a full disk allows it


class Operations:
    """Counts the operations in a folder, and lets one of them fail.

    Args:
        folder: that is attacked.
        at: number of the operation, counted from 0; a negative one lets none fail.
        fault: KILL ends the process, of a write after half of its bytes; with FULL this operation
            and all later ones have no space; with FAIL this one fails.
    """

    def __init__(self, folder: str, at: int = -1, fault: str = KILL) -> None:
        self.n_done, self.has_struck = 0, False
        self._folder, self._at, self._fault = folder, at, fault

    def install(self) -> None:
        """Watch this process from now on."""
        sys.addaudithook(self._on_event)
        real_open, real_fsync = io.open, os.fsync
        counted = self

        class Raw(io.FileIO):
            def write(self, content: Any) -> int:
                def write_half() -> None:
                    io.FileIO.write(self, memoryview(content)[: len(content) // 2])

                counted.count(write_half)
                return super().write(content)

        def opened(
            file: Any, mode: str = "r", buffering: int = -1, *text: Any, **options: Any
        ) -> Any:
            is_path = isinstance(file, str | bytes | os.PathLike)
            if mode.startswith("r") or not is_path or not self._is_inside(file):
                return real_open(file, mode, buffering, *text, **options)
            raw = Raw(file, mode.replace("b", "").replace("t", ""))
            buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            return buffered if "b" in mode else io.TextIOWrapper(buffered, *text, **options)

        def fsync(descriptor: int) -> None:
            if self._is_inside(Path(f"/proc/self/fd/{descriptor}").readlink()):
                self.count()
            real_fsync(descriptor)

        builtins.open = io.open = opened
        os.fsync = fsync  # type: ignore[assignment]

    def count(self, write_half: Any = None, frees: bool = False) -> None:
        """Count an operation that is about to happen, or let it fail."""
        number = self.n_done
        self.n_done += 1
        if self._at < 0 or number < self._at or (number > self._at and self._fault != FULL):
            return
        if self._fault == FULL and frees:
            return
        self.has_struck = True
        if write_half is not None:
            write_half()
        if self._fault == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        code = errno.ENOSPC if self._fault == FULL else errno.EIO
        raise OSError(code, os.strerror(code))

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if writes and isinstance(path, str | bytes) and self._is_inside(path):
                self.count()
        elif event in _PLACES and any(self._is_inside(arguments[at]) for at in _PLACES[event]):
            self.count(frees=event in _REMOVES)

    def _is_inside(self, path: Any) -> bool:
        if isinstance(path, int):
            return False
        return os.fsdecode(path).startswith(self._folder)
