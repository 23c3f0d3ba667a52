"""When a recording began, from its file name, and so the date and time of its events.

Conventions: recorders write the date and time of the start into the name: `20240517_043000.WAV`
(AudioMoth), `SM4_20240517_043000.wav` (Song Meter), `2024-05-17T04-30-00Z.flac`, with or without
separators, a fraction of a second, and a zone (`Z`, `+0200`). Without a zone the time is that of
the recorder's clock, and is written without one. The last date and time of a name counts.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import PurePosixPath

from earmark.errors import DataError, SettingError
from earmark.formats.event_table import EventTable
from earmark.formats.registry import EVENT_FORMATS, choose_format

_START = re.compile(
    r"(?<!\d)(?P<year>(?:19|20)\d\d)(?P<mark>[-_.]?)(?P<month>\d\d)(?P=mark)(?P<day>\d\d)"
    r"(?:[T _\-.]{0,3})"
    r"(?P<hour>\d\d)(?P<sign>[-_:.h]?)(?P<minute>\d\d)(?P=sign)(?P<second>\d\d)"
    r"(?:[.,](?P<fraction>\d{1,6})(?!\d))?"
    r"(?:(?P<utc>Z)|(?P<zone>[+-]\d\d):?(?P<zone_minute>\d\d))?"
    r"(?!\d)",
    re.IGNORECASE,
)


def start_time(name: str) -> datetime | None:
    """Return when the recording of this name began, or None if the name does not say.

    >>> start_time("SM4_20240517_043000.wav")
    datetime.datetime(2024, 5, 17, 4, 30)
    >>> start_time("a/2024-05-17T04-30-00.5Z.flac").isoformat()
    '2024-05-17T04:30:00.500000+00:00'
    >>> start_time("street.wav"), start_time("20241399_250000.wav")
    (None, None)
    """
    for match in reversed(list(_START.finditer(PurePosixPath(name).name))):
        zone = None
        if match["utc"]:
            zone = UTC
        names = ("year", "month", "day", "hour", "minute", "second")
        parts = {part: int(match[part]) for part in names}
        parts["microsecond"] = int((match["fraction"] or "0").ljust(6, "0"))
        try:
            if match["zone"]:
                sign = -1 if match["zone"].startswith("-") else 1
                hours, minutes = int(match["zone"][1:]), int(match["zone_minute"])
                zone = timezone(sign * timedelta(hours=hours, minutes=minutes))
            return datetime(**parts, tzinfo=zone)
        except ValueError:  # no such date
            continue
    return None


def start_times(names: Iterable[str]) -> dict[str, datetime]:
    """Return name -> start, of the names that have one; raise if none has.

    >>> start_times(["20240517_043000.wav", "street.wav"])
    {'20240517_043000.wav': datetime.datetime(2024, 5, 17, 4, 30)}
    """
    names = list(names)
    found = {name: start for name in names if (start := start_time(name)) is not None}
    if names and not found:
        raise DataError(
            f"No recording has its start in its name, such as 20240517_043000.wav. Got "
            f"{names[0]!r}: rename the files, or leave out the absolute time."
        )
    return found


def check_keeps_times(target: str, format: str | None) -> None:
    """Raise if the format of a target has no place for date and time.

    >>> check_keeps_times("events.tsv", None)
    """
    name = choose_format(target, format)
    if not EVENT_FORMATS[name].keeps_times:
        able = ", ".join(key for key, own in EVENT_FORMATS.items() if own.keeps_times)
        raise SettingError(
            f"The format {name} has no place for an absolute time. Formats that have: {able}."
        )


def with_start_times(table: EventTable, target: str, format: str | None = None) -> EventTable:
    """Return a table with the starts of its recordings, to be written to `target`.

    >>> with_start_times(EventTable({"20240517_043000.wav": []}), "events.tsv").starts
    {'20240517_043000.wav': datetime.datetime(2024, 5, 17, 4, 30)}
    """
    check_keeps_times(target, format)
    return EventTable(table, table.durations, start_times(table))
