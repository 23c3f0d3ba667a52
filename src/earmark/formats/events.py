"""Event(onset, offset, label, score), and strong tables <-> events of each file.

Conventions: times are float seconds from the start of the clip, an event is the half-open interval
[onset, offset). A strong table has one event a row, `filename, onset, offset, event_label` and an
optional `score` (DCASE, DESED); what else a table may look like is told in `earmark.formats.tables`.

A file is known as soon as a row names it: a row without times is a clip without events. A row of
no length (0 to 0: 'the label was found wrong') is no event; it is counted and left out. Rows that
are alike are kept, and all keep their order, since sed_eval's substitutions hang on both.
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

    Events sort by onset, then offset, label and score; no score comes before any.

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
            raise DataError(f"An event needs a label of one letter or more. Got {self.label!r}.")
        for name in ("onset", "offset", "score"):
            value = getattr(self, name)
            if value is None and name == "score":
                continue
            if isinstance(value, str) or not math.isfinite(value):
                raise DataError(f"The {name} of event {self.label!r} is not finite: {value!r}.")
            object.__setattr__(self, name, float(value))  # an int or a NumPy scalar prints oddly
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
    """File name -> its events in the table's order; `n_dropped` rows of no length are left out."""

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
            raise DataError(f"{row.where}: the row names no file. Begin it with a file name.")
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
    r"""Write a strong table: files in the order given, the events of each in order of time.

    A file without events keeps a row of its own. The column `score` is written (to six digits)
    where any event has one.

    Args:
        target: where to; comma separated if its name ends in .csv, else tab separated.
        events_by_file: file name -> events.
        decimals: of onset and offset; three are milliseconds.

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
            raise DataError("Cannot write events of a file without a name.")
        if not events:
            rows.append([name, "", "", "", ""])
        for event in events:
            onset, offset = f"{event.onset + 0.0:.{decimals}f}", f"{event.offset:.{decimals}f}"
            if event.onset < 0 or onset == offset:
                # Read again, the first would be refused and the second taken for no event.
                raise DataError(
                    f"Cannot write {event} of {name} with {decimals} decimals: "
                    + ("it begins before its clip." if event.onset < 0 else "no length is left.")
                )
            score = "" if event.score is None else f"{event.score:.6g}"
            rows.append([name, onset, offset, event.label, score])
    columns = [*STRONG_COLUMNS, "score"]
    width = len(columns) if scored else len(STRONG_COLUMNS)
    write_table(target, columns[:width], (row[:width] for row in rows))


def read_seconds(text: str, name: str, where: str) -> float:
    """Return the time in `text`; `name` and `where` go into the error if it is none."""
    seconds = read_number(text, name, where)
    if seconds < 0:
        raise DataError(
            f"{where}: the {name} {text} is negative. Times are seconds from the start of the clip."
        )
    return seconds


def read_number(text: str, name: str, where: str) -> float:
    """Return the number in `text`; `name` and `where` go into the error if it is none."""
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
