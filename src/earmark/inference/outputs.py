"""Where the events of many recordings go: a stream, one file, or one file per recording.

Conventions: an output is opened and checked before any work, takes one result after the other, and
is finished at the end. `begin` returns the recordings whose result is known: those of a journal
with their seconds, and with `skip_done` those that the output has already, with None. `add` raises
`EarmarkError` if the format has no place for a result, such as a file name with a tab in a table;
the output stays as it was.
"""

import os
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from earmark.errors import SettingError
from earmark.files import atomic_write, check_folder, check_writable, is_special, make_folder
from earmark.formats.event_table import EventTable, Layout
from earmark.formats.events import (
    encode_events,
    event_files,
    is_folder,
    read_events,
)
from earmark.formats.registry import EVENT_FORMATS, choose_format
from earmark.formats.tables import encode_text
from earmark.inference.detector import FileResult, PathLike
from earmark.inference.journal import Journal

JOURNAL = ".partial.jsonl"  # the end of its name
Known = dict[str, float | None]  # name of a recording -> its seconds, None if they are not known


@dataclass(frozen=True)
class EventWriter:
    r"""Results -> the bytes of a file in one format.

    Args:
        target: name of the output, for error messages.
        format: a key of `EVENT_FORMATS`.
        layout: what is written of each event.
        starts: name of a recording -> when it began, where that is known.

    >>> EventWriter("events.tsv", "tsv").encode(EventTable({"a.wav": []}))
    b'filename\tonset\toffset\tevent_label\na.wav\t\t\t\n'
    """

    target: str
    format: str
    layout: Layout = field(default_factory=Layout)
    starts: Mapping[str, datetime] = field(default_factory=dict)

    def encode(self, table: EventTable) -> bytes:
        """Return the content of a file with the recordings of a table."""
        timed = EventTable(table, table.durations, self.starts)
        return encode_text(encode_events(timed, self.layout, self.format), self.target)

    def encode_one(self, result: FileResult) -> bytes:
        """Return the content of a file with one recording."""
        table = EventTable({result.name: result.events}, {result.name: result.duration})
        return self.encode(table)


class StreamOutput:
    r"""A binary stream, which gets each result as soon as it is known, if the format allows.

    >>> import io
    >>> from earmark.formats.event_table import Event
    >>> stream = io.BytesIO()
    >>> output = StreamOutput(EventWriter("stream", "rttm"), stream)
    >>> output.add(FileResult("a.wav", [Event(0, 1, "dog")], 10.0), Path("a.wav"))
    >>> stream.getvalue()
    b'SPEAKER a.wav 1 0.000 1.000 <NA> <NA> dog <NA> <NA>\n'
    """

    def __init__(self, writer: EventWriter, stream: BinaryIO) -> None:
        self._writer, self._stream = writer, stream
        self._table = EventTable()
        self._is_begun = False

    def begin(self, key: str) -> Known:
        """Return nothing: what was written is gone."""
        return {}

    def add(self, result: FileResult, path: Path) -> None:
        """Write a result, or keep it for the end."""
        content = self._writer.encode_one(result)
        header = EVENT_FORMATS[self._writer.format].header_lines
        if header is None:
            self._table[result.name] = result.events
            self._table.durations[result.name] = result.duration
            return
        lines = content.splitlines(keepends=True)
        self._stream.write(b"".join(lines[header if self._is_begun else 0 :]))
        self._stream.flush()
        self._is_begun = True

    def finish(self) -> None:
        """Write what was kept."""
        if not self._is_begun and (self._table or EVENT_FORMATS[self._writer.format].holds_many):
            self._stream.write(self._writer.encode(self._table))
            self._stream.flush()


class FileOutput:
    """One file of all recordings, which appears at the end; a journal is beside it until then.

    Args:
        writer: of the file.
        path: of the file.
        recordings: name -> path, in the order of the file.
        skip_done: keep what the file has, and add the rest.
        stack: closes the journal.
    """

    def __init__(
        self,
        writer: EventWriter,
        path: Path,
        recordings: Mapping[str, Path],
        skip_done: bool,
        stack: ExitStack,
    ) -> None:
        self._writer, self._path, self._recordings = writer, path, recordings
        self._old = EventTable()
        if skip_done and path.exists():
            self._old = read_events(path, writer.format)
        self._table = EventTable(self._old, self._old.durations)
        self._stack = stack

    def begin(self, key: str) -> Known:
        """Open the journal; return what is known of the recordings."""
        path = Path(os.path.realpath(self._path))
        journal = Journal(path.with_name(f"{path.name}{JOURNAL}"), key)
        self._journal = self._stack.enter_context(journal)
        known: Known = {name: None for name in self._recordings if name in self._old}
        for name, (duration, events) in journal.entries(self._recordings).items():
            if name not in self._old:
                self._table[name] = events
                self._table.durations[name] = known[name] = duration
        return known

    def add(self, result: FileResult, path: Path) -> None:
        """Add a result to the journal."""
        self._writer.encode_one(result)  # raises if the format has no place for it
        self._journal.add(result.name, path, result.duration, result.events)
        self._table[result.name] = result.events
        self._table.durations[result.name] = result.duration

    def finish(self) -> None:
        """Write the file: what it had, then the recordings in their order."""
        names = dict.fromkeys([*self._old, *self._recordings])
        table = {name: self._table[name] for name in names if name in self._table}
        if not table and not EVENT_FORMATS[self._writer.format].holds_many:
            self._journal.remove()  # its one recording could not be used
            return
        atomic_write(self._path, self._writer.encode(EventTable(table, self._table.durations)))
        self._journal.remove()


class FolderOutput:
    """One file per recording, each of which appears when its recording is done.

    Args:
        writer: of the files.
        folder: made if it is missing.
        recordings: name -> path.
        skip_done: leave recordings alone whose file is there.
        stack: closes the journal, which is in the folder.
    """

    def __init__(
        self,
        writer: EventWriter,
        folder: Path,
        recordings: Mapping[str, Path],
        skip_done: bool,
        stack: ExitStack,
    ) -> None:
        self._writer, self._folder, self._recordings = writer, folder, recordings
        self._files = event_files(folder, recordings, writer.format)
        self._skip_done, self._stack = skip_done, stack
        check_folder(folder)

    def begin(self, key: str) -> Known:
        """Open the journal; return what is known of the recordings whose file is there, whole."""
        self._journal = self._stack.enter_context(Journal(self._folder / JOURNAL, key))
        known: Known = {}
        if self._skip_done:
            known = dict.fromkeys(name for name, path in self._files.items() if path.exists())
        for name, (duration, events) in self._journal.entries(self._recordings).items():
            result = FileResult(name, events, duration)
            with suppress(OSError):  # it was removed
                if self._files[name].read_bytes() == self._writer.encode_one(result):
                    known[name] = duration
        return known

    def add(self, result: FileResult, path: Path) -> None:
        """Write the file of a result."""
        content = self._writer.encode_one(result)
        make_folder(self._files[result.name].parent)
        atomic_write(self._files[result.name], content)
        self._journal.add(result.name, path, result.duration, result.events)

    def finish(self) -> None:
        """Remove the journal."""
        self._journal.remove()


Output = StreamOutput | FileOutput | FolderOutput


def open_output(
    out: PathLike | BinaryIO,
    recordings: Mapping[str, Path],
    writer: EventWriter,
    skip_done: bool,
    stack: ExitStack,
) -> Output:
    """Return the output that `out` is: a stream, a special file, a folder or a file.

    Args:
        out: a binary stream or a path; a folder exists, or ends with a slash.
        recordings: name -> path.
        writer: of the format.
        skip_done: leave recordings alone that the output has already.
        stack: closes what is opened.

    >>> with ExitStack() as stack:
    ...     output = open_output("/dev/null", {}, EventWriter("null", "tsv"), False, stack)
    ...     type(output).__name__
    'StreamOutput'
    """
    if not isinstance(out, str | os.PathLike):
        path, stream = None, out
    else:
        path, stream = Path(out), None
    if path is not None and is_folder(out):
        return FolderOutput(writer, path, recordings, skip_done, stack)
    if not EVENT_FORMATS[writer.format].holds_many and len(recordings) > 1:
        raise SettingError(
            f"A file of the format {writer.format} holds one recording, and there are "
            f"{len(recordings)}: write to a folder, with a slash at its end."
        )
    if path is not None:
        check_writable(path)
        if not is_special(path):
            return FileOutput(writer, path, recordings, skip_done, stack)
    if skip_done:
        raise SettingError(f"skip_done needs a file or a folder; {writer.target} is neither.")
    if stream is None:
        assert path is not None
        stream = stack.enter_context(path.open("ab"))
    return StreamOutput(writer, stream)


def output_format(out: PathLike | BinaryIO, format: str | None) -> str:
    """Return the format of an output: as named, by its suffix, or tsv for a stream.

    >>> output_format("events.json", None), output_format("/dev/stdout", None)
    ('json', 'tsv')
    """
    if format is None and isinstance(out, str | os.PathLike):
        if is_folder(out):
            raise SettingError(
                f"{os.fspath(out)} is a folder: name the format of its files, "
                f"{', '.join(EVENT_FORMATS)}."
            )
        if not is_special(Path(out)):
            return choose_format(os.fspath(out))
    return choose_format("", format or "tsv")
