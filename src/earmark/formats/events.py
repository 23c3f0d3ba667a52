"""Sound events <-> files in any format of `earmark.formats.registry`, or one file per recording.

Conventions: see `earmark.formats.event_table` for events, and docs/formats.md for what each format
keeps. A format is named, or follows from the suffix of the file. A folder holds one file per
recording; a file of `street/a.wav` is `street/a.tsv` in it, or `street/a.wav.tsv` if `street/a.ogg`
is there too.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from earmark.errors import DataError, SettingError, choose
from earmark.files import make_folder
from earmark.formats.event_table import STRONG_COLUMNS, Event, EventTable, Layout, read_seconds
from earmark.formats.label_tracks import recording_of
from earmark.formats.names import name_inside, stem_of
from earmark.formats.registry import (
    EVENT_FORMATS,
    choose_format,
    format_of_suffix,
    recognise_format,
)
from earmark.formats.tables import Source, source_name, write_text

__all__ = [
    "STRONG_COLUMNS",
    "Event",
    "EventTable",
    "encode_events",
    "event_files",
    "event_format",
    "is_folder",
    "read_events",
    "read_seconds",
    "write_events",
]

_HEAD = 4096  # bytes that are enough to recognise a format by


def read_events(source: Source, format: str | None = None) -> EventTable:
    r"""Return the events of each recording in a file, or in all files of a folder.

    Args:
        source: a path, or an open file.
        format: a key of `EVENT_FORMATS`; by default it follows from the suffix, or from the first
            lines where that is .txt or unknown.

    >>> import io
    >>> table = read_events(io.StringIO("a.wav\t0\t1.5\tdog\na.wav\t0\t0\tcat\nb.wav\n"))
    >>> table
    {'a.wav': [Event(onset=0.0, offset=1.5, label='dog', score=None)], 'b.wav': []}
    >>> table.n_dropped
    1
    """
    if isinstance(source, str | os.PathLike) and is_folder(source):
        return _read_folder(Path(source), format)
    if format is None:
        format = event_format(source)
    return EVENT_FORMATS[choose("event format", format, EVENT_FORMATS)].read(source)


def write_events(
    target: Source,
    events_by_file: Mapping[str, Iterable[Event]],
    *,
    decimals: int = 3,
    format: str | None = None,
) -> None:
    r"""Write events: recordings in the order given, the events of each sorted by time.

    A recording without events is kept by most formats (a row with its name alone in a table).
    Scores are written, with six digits, if any event has one and the format has a place for them.

    Args:
        target: a path, a folder for one file per recording (it exists, or ends with a slash), or
            an open text stream.
        events_by_file: name of a recording -> its events; an `EventTable` may have durations.
        decimals: of onset and offset; 3 is milliseconds.
        format: a key of `EVENT_FORMATS`; by default that of the suffix, and tsv for a stream.

    >>> import io
    >>> text = io.StringIO()
    >>> write_events(text, {"a.wav": [Event(0.5, 2, "dog", 0.75)], "b.wav": []})
    >>> print(text.getvalue().replace("\t", "|"))
    filename|onset|offset|event_label|score
    a.wav|0.500|2.000|dog|0.75
    b.wav||||
    <BLANKLINE>
    """
    by_file = EventTable(
        {name: list(events) for name, events in events_by_file.items()},
        getattr(events_by_file, "durations", None),
        getattr(events_by_file, "starts", None),
    )
    scored = any(event.score is not None for events in by_file.values() for event in events)
    layout = Layout(decimals, scored, bool(by_file.starts))
    if is_folder(target):
        if format is None:
            raise SettingError(
                f"{source_name(target)} is a folder: name the format of its files, "
                f"{', '.join(EVENT_FORMATS)}."
            )
        choose_format("", format)
        files = event_files(Path(source_name(target)), by_file, format)
        for name, path in files.items():
            one = EventTable({name: by_file[name]}, by_file.durations, by_file.starts)
            make_folder(path.parent)
            write_text(path, encode_events(one, layout, format))
        return
    if isinstance(target, str | os.PathLike) or format is not None:
        format = choose_format(source_name(target), format)
    write_text(target, encode_events(by_file, layout, format or "tsv"))


def encode_events(table: EventTable, layout: Layout, format: str) -> str | bytes:
    r"""Return the content of a file of events.

    >>> encode_events(EventTable({"a.wav": [Event(0.5, 2, "dog")]}), Layout(), "rttm")
    'SPEAKER a.wav 1 0.500 1.500 <NA> <NA> dog <NA> <NA>\n'
    """
    own = EVENT_FORMATS[format]
    if not own.holds_many and len(table) != 1:
        raise SettingError(
            f"A file of the format {format} holds one recording. Got {len(table)}: write to a "
            "folder, which gets one file per recording."
        )
    return own.encode(layout.rounded(table), layout)


def event_files(folder: Path, names: Iterable[str], format: str) -> dict[str, Path]:
    """Return the name of each recording -> its file in a folder of one file per recording.

    >>> event_files(Path("out"), ["street/a.wav", "b.wav", "b.ogg"], "textgrid")["b.wav"].as_posix()
    'out/b.wav.TextGrid'
    """
    names = list(names)
    suffix = EVENT_FORMATS[format].suffixes[0]
    count = Counter(stem_of(name_inside(name)) for name in names)
    files: dict[str, Path] = {}
    of_file: dict[Path, str] = {}
    for name in names:
        inside = name_inside(name)
        stem = stem_of(inside)
        path = folder / f"{stem if count[stem] == 1 else inside}{suffix}"
        other = of_file.setdefault(path, name)
        if other != name:
            raise DataError(
                f"The recordings {other!r} and {name!r} would have the same file {path}. Pass "
                "them with other paths."
            )
        files[name] = path
    return files


def is_folder(target: object) -> bool:
    """Return whether a target is a folder: it exists as one, or ends with a slash.

    >>> is_folder("events/"), is_folder("events.tsv")
    (True, False)
    """
    if not isinstance(target, str | os.PathLike):
        return False
    return os.fspath(target).endswith(("/", os.sep)) or os.path.isdir(target)  # noqa: PTH112 - a name that is too long is no folder


def event_format(source: Source) -> str:
    """Return the format that a file is read in: by its suffix, or by its first lines.

    >>> event_format("events.json")
    'json'
    """
    guessed = format_of_suffix(source_name(source))
    is_text = guessed is None or source_name(source).lower().endswith(".txt")
    if is_text and isinstance(source, str | os.PathLike):
        try:
            with Path(source).open("rb") as file:
                head = file.read(_HEAD).decode(errors="replace")
                return recognise_format(head) if head.strip() else guessed or "tsv"
        except OSError as error:
            raise DataError(
                f"Cannot read the table {source}: {error.strerror or error}."
            ) from error
    return guessed or "tsv"


def _read_folder(folder: Path, format: str | None) -> EventTable:
    if format is not None:
        choose("event format", format, EVENT_FORMATS)
    known = [format] if format else list(EVENT_FORMATS)
    suffixes = tuple(x.lower() for own in known for x in EVENT_FORMATS[own].suffixes)
    paths = sorted(
        path
        for path in folder.rglob("*")
        if path.name.lower().endswith(suffixes) and not path.name.startswith(".") and path.is_file()
    )
    if not paths:
        raise DataError(
            f"{folder} has no file of events; their suffixes are {', '.join(suffixes)}."
        )
    table = EventTable()
    for path in paths:
        own_format = format or event_format(path)
        own = EVENT_FORMATS[own_format].read(path)
        table.n_dropped += own.n_dropped
        for name, events in own.items():
            # Named after its file, the recording is in the same sub folder.
            named_after = name == recording_of(path, EVENT_FORMATS[own_format].suffixes)
            full = (path.relative_to(folder).parent / name).as_posix() if named_after else name
            if full in table:
                raise DataError(f"{path}: the recording {full!r} is in another file of {folder}.")
            table[full] = events
            if name in own.durations:
                table.durations[full] = own.durations[name]
    return table
