"""Sound events, and strong tables <-> the events of each file.

Conventions: times are float seconds from the start of the clip; an event is the half-open interval
[onset, offset). A strong table has one event per row, `filename, onset, offset, event_label` and an
optional `score` (DCASE, DESED), in any layout that `earmark.formats.tables` reads.

A row without times is a clip without events. A row of zero length (0 to 0, with which DCASE marks a
wrong label) is no event; it is counted and dropped. Repeated rows are kept, and all rows keep their
order, since sed_eval's substitutions depend on both.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import total_ordering

from earmark.errors import DataError
from earmark.formats.tables import Source, read_table, write_table

STRONG_COLUMNS = ("filename", "onset", "offset", "event_label")


@total_ordering
@dataclass(frozen=True, slots=True)
class Event:
    """A sound of class `label` from `onset` to `offset`, in seconds.

    Events sort by onset, then offset, label and score; no score sorts before any score.

    >>> Event(0.5, 2, "dog").duration
    1.5
    >>> Event(2.0, 0.5, "dog")
    Traceback (most recent call last):
        ...
    earmark.errors.DataError: The event 'dog' ends (0.5 s) before it begins (2.0 s).
    """

    onset: float
    offset: float
    label: str
    score: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.label, str) or not self.label:
            raise DataError(f"The label of an event must not be empty. Got {self.label!r}.")
        for name in ("onset", "offset", "score"):
            value = getattr(self, name)
            if value is None and name == "score":
                continue
            if isinstance(value, str) or not math.isfinite(value):
                raise DataError(f"The {name} of event {self.label!r} is not finite: {value!r}.")
            object.__setattr__(self, name, float(value))  # not an int or a NumPy scalar
        if self.offset < self.onset:
            raise DataError(
                f"The event {self.label!r} ends ({self.offset} s) before it begins "
                f"({self.onset} s)."
            )

    def __lt__(self, other: "Event") -> bool:
        return self._key() < other._key()

    def _key(self) -> tuple[float, float, str, float]:
        score = -math.inf if self.score is None else self.score
        return self.onset, self.offset, self.label, score

    @property
    def duration(self) -> float:
        """Seconds from onset to offset."""
        return self.offset - self.onset


class EventTable(dict[str, list[Event]]):
    """File name -> its events in the order of the table; `n_dropped` counts rows of zero length.

    >>> EventTable({"a.wav": [Event(0, 1, "dog")]}).n_dropped
    0
    """

    n_dropped: int = 0


def read_events(source: Source) -> EventTable:
    r"""Return the events of each file in a strong table.

    >>> import io
    >>> table = read_events(io.StringIO("a.wav\t0\t1.5\tdog\na.wav\t0\t0\tcat\nb.wav\n"))
    >>> table
    {'a.wav': [Event(onset=0.0, offset=1.5, label='dog', score=None)], 'b.wav': []}
    >>> table.n_dropped
    1
    """
    table = read_table(source)
    table.require(*STRONG_COLUMNS)
    events = EventTable()
    for row in table.rows:
        values = row.named(table.columns or STRONG_COLUMNS)
        if not values["filename"]:
            raise DataError(f"{row.where}: the row has no file name. Put it in the first column.")
        of_file = events.setdefault(values["filename"], [])
        if not (values["onset"] or values["offset"] or values["event_label"]):
            continue
        onset, offset = (
            read_seconds(values[name], name, row.where) for name in ("onset", "offset")
        )
        if onset == offset:
            events.n_dropped += 1
            continue
        if offset < onset:
            raise DataError(
                f"{row.where}: the offset {values['offset']} comes before the onset "
                f"{values['onset']}. Both are seconds from the start of the clip."
            )
        if not values["event_label"]:
            raise DataError(f"{row.where}: no label. A row is {', '.join(STRONG_COLUMNS)}.")
        score = read_number(values["score"], "score", row.where) if values.get("score") else None
        of_file.append(Event(onset, offset, values["event_label"], score))
    return events


def write_events(
    target: Source, events_by_file: Mapping[str, Iterable[Event]], *, decimals: int = 3
) -> None:
    r"""Write a strong table: files in the order given, the events of each sorted by time.

    A file without events gets one row with its name alone. The column `score` is written, with six
    digits, if any event has a score.

    Args:
        target: path or text stream; comma separated if its name ends in .csv, else tab separated.
        events_by_file: file name -> events.
        decimals: of onset and offset; 3 is milliseconds.

    >>> import io
    >>> text = io.StringIO()
    >>> write_events(text, {"a.wav": [Event(0.5, 2, "dog", 0.75)], "b.wav": []})
    >>> print(text.getvalue().replace("\t", "|"))
    filename|onset|offset|event_label|score
    a.wav|0.500|2.000|dog|0.75
    b.wav||||
    <BLANKLINE>
    """
    by_file = {name: sorted(events) for name, events in events_by_file.items()}
    scored = any(event.score is not None for events in by_file.values() for event in events)
    rows = []
    for name, events in by_file.items():
        if not name:
            raise DataError("Cannot write events of a file without a name; name every file.")
        if not events:
            rows.append([name, "", "", "", ""])
        for event in events:
            onset, offset = f"{event.onset + 0.0:.{decimals}f}", f"{event.offset:.{decimals}f}"
            if event.onset < 0 or onset == offset:
                # Read back, the first would be refused and the second dropped.
                why = "it begins before the clip" if event.onset < 0 else "its length rounds to 0"
                raise DataError(f"Cannot write {event} of {name} with {decimals} decimals: {why}.")
            score = "" if event.score is None else f"{event.score:.6g}"
            rows.append([name, onset, offset, event.label, score])
    columns = [*STRONG_COLUMNS, "score"]
    width = len(columns) if scored else len(STRONG_COLUMNS)
    write_table(target, columns[:width], (row[:width] for row in rows))


def read_seconds(text: str, name: str, where: str) -> float:
    """Return the time in `text`; `name` and `where` are for the error message.

    >>> read_seconds("2.5", "onset", "a.tsv:1")
    2.5
    """
    seconds = read_number(text, name, where)
    if seconds < 0:
        raise DataError(
            f"{where}: the {name} {text} is negative. Times are seconds from the start of the clip."
        )
    return seconds


def read_number(text: str, name: str, where: str) -> float:
    """Return the finite number in `text`; `name` and `where` are for the error message.

    >>> read_number("-0.5", "score", "a.tsv:1")
    -0.5
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise DataError(
            f"{where}: the {name} {text!r} is not a number. "
            f"A row is {', '.join(STRONG_COLUMNS)}, with times in seconds such as 2.345."
        )
    return number
