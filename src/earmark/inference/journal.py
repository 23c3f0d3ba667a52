"""The journal of a detection in many recordings, from which a killed one continues.

Conventions: it is a file of JSON lines beside the output. The first line has the key of the work:
the model and all settings; a journal with another key is of other work and is begun anew. Each
further line has the result of one recording, and the size and time of change of its file: a
recording that has changed is detected again. A line counts if it is whole, so that a process may be
killed at any moment. One process holds the journal; it is removed when the output is complete.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from earmark.errors import DataError
from earmark.files import lock
from earmark.formats.event_table import Event

FORMAT = 1
SYNC_SECONDS = 1.0  # between two flushes to the disk: what a power cut may cost


def work_key(settings: Mapping[str, Any]) -> str:
    """Return the key of a detection: settings that differ in anything differ in it.

    >>> work_key({"min_score": 0.5}) == work_key({"min_score": 0.25})
    False
    """
    text = json.dumps({"format": FORMAT, **settings}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


class Journal:
    """Results that are known so far; a context manager.

    Args:
        path: of the journal.
        key: of the work; see `work_key`.

    `entries` has name -> (duration, events) of the recordings that are done and have not changed.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> recording = Path(folder.name, "a.wav")
    >>> recording.touch()
    >>> with Journal(Path(folder.name, "journal"), "key") as journal:
    ...     journal.add("a.wav", recording, 1.5, [Event(0, 1, "dog", 0.5)])
    >>> with Journal(Path(folder.name, "journal"), "key") as journal:
    ...     journal.entries({"a.wav": recording})
    {'a.wav': (1.5, [Event(onset=0.0, offset=1.0, label='dog', score=0.5)])}
    >>> folder.cleanup()
    """

    def __init__(self, path: Path, key: str) -> None:
        self.path, self._key = path, key
        self._lines: dict[str, dict[str, Any]] = {}
        self._synced = time.monotonic()
        with self._writing():
            self._file: BinaryIO = path.open("a+b")
        try:
            lock(self._file, f"detecting to {path}")
            self._file.seek(0)
            end = self._read()
            with self._writing():
                self._file.truncate(end)
            if not end:
                self._write({"key": key})
        except BaseException:
            self._close()
            raise

    def _read(self) -> int:
        """Read the whole lines of a journal of the same work; return where they end."""
        end = 0
        for line in self._file:
            try:
                values = json.loads(line) if line.endswith(b"\n") else None
            except (ValueError, RecursionError):
                values = None
            if not isinstance(values, dict) or (not end and values.get("key") != self._key):
                break
            if end:
                self._lines[str(values.get("name"))] = values
            end += len(line)
        return end

    def entries(self, recordings: Mapping[str, Path]) -> dict[str, tuple[float, list[Event]]]:
        """Return name -> duration and events, of the recordings that are done."""
        done = {}
        for name, path in recordings.items():
            values = self._lines.get(name)
            if values is None or values.get("file") != _file_state(path):
                continue
            try:
                events = [Event(*event) for event in values["events"]]
                done[name] = (float(values["duration"]), events)
            except (KeyError, TypeError, ValueError, DataError):
                continue  # not ours: detect again
        return done

    def add(self, name: str, path: Path, duration: float, events: list[Event]) -> None:
        """Record that a recording is done."""
        rows = [[event.onset, event.offset, event.label, event.score] for event in events]
        state = _file_state(path)
        self._write({"name": name, "file": state, "duration": duration, "events": rows})

    def _write(self, values: Mapping[str, Any]) -> None:
        with self._writing():
            self._file.write(json.dumps(values).encode() + b"\n")  # in ASCII: any file name
            self._file.flush()
            if time.monotonic() - self._synced >= SYNC_SECONDS:
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Raise `DataError` if the disk is full or fails."""
        try:
            yield
        except OSError as error:
            raise DataError(f"Cannot write {self.path}: {error.strerror or error}.") from error

    def remove(self) -> None:
        """Remove the journal: the output is complete."""
        with self._writing():
            self.path.unlink(missing_ok=True)

    def _close(self) -> None:
        with suppress(OSError):  # a line that could not be written, and does not count
            self._file.close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()


def _file_state(path: Path) -> list[Any]:
    """Return what changes when a file is replaced: its place, size and time of change."""
    try:
        state = path.stat()
    except OSError:
        return []
    return [os.path.realpath(path), state.st_size, state.st_mtime_ns]
