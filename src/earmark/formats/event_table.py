"""Sound events, and the events of many recordings: what every event format is read to.

Conventions: times are float seconds from the start of the recording; an event is the half-open
interval [onset, offset). A recording without events is part of a table. A row of zero length (0 to
0, with which DCASE marks a wrong label) is no event; it is counted and dropped. Repeated events are
kept, and all keep their order, since sed_eval's substitutions depend on both.
"""

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import total_ordering

from earmark.errors import DataError

STRONG_COLUMNS = ("filename", "onset", "offset", "event_label")
TIME_COLUMNS = ("onset_time", "offset_time")


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
    """Name of a recording -> its events in the order of the file that they were read from.

    Args:
        events: name -> events.
        durations: name -> seconds, of the recordings whose duration is known.
        starts: name -> when the recording began, where that is known.

    `n_dropped` counts rows of zero length.

    >>> EventTable({"a.wav": [Event(0, 1, "dog")]}).n_dropped
    0
    """

    def __init__(
        self,
        events: Mapping[str, list[Event]] | None = None,
        durations: Mapping[str, float] | None = None,
        starts: Mapping[str, datetime] | None = None,
    ) -> None:
        super().__init__(events or {})
        self.durations = dict(durations or {})
        self.starts = dict(starts or {})
        self.n_dropped = 0

    def add(self, values: Mapping[str, object], where: str) -> None:
        """Add the event of a row: its columns by name, as text or numbers, empty if missing.

        A row with a name alone is a recording without events.

        >>> table = EventTable()
        >>> table.add({"filename": "a.wav", "onset": "0", "offset": 1.5, "event_label": "dog"}, "")
        >>> table
        {'a.wav': [Event(onset=0.0, offset=1.5, label='dog', score=None)]}
        """
        name, label = (values.get(column) for column in ("filename", "event_label"))
        if not isinstance(name, str) or not name:
            raise DataError(f"{where}: the row has no file name. Put it in the first column.")
        events = self.setdefault(name, [])
        times = [values.get("onset"), values.get("offset")]
        if all(value is None or value == "" for value in (*times, label)):
            return
        onset, offset = map(read_seconds, times, ("onset", "offset"), (where, where))
        if onset == offset:
            self.n_dropped += 1
            return
        if offset < onset:
            raise DataError(
                f"{where}: the offset {times[1]} comes before the onset {times[0]}. Both are "
                f"seconds from the start of the clip."
            )
        if not isinstance(label, str) or not label:
            raise DataError(f"{where}: no label. A row is {', '.join(STRONG_COLUMNS)}.")
        score = values.get("score")
        number = None if score is None or score == "" else read_number(score, "score", where)
        events.append(Event(onset, offset, label, number))


@dataclass(frozen=True, slots=True)
class Layout:
    """What a format writes of each event, besides its label.

    Args:
        decimals: of onset and offset, which are rounded to them; 3 is milliseconds.
        scores: write the scores.
        times: write the date and time of onset and offset as well.

    >>> Layout().decimals
    3
    """

    decimals: int = 3
    scores: bool = False
    times: bool = False

    def rounded(self, events_by_file: Mapping[str, Iterable[Event]]) -> EventTable:
        """Return the events as they are written: sorted, rounded; raise if one cannot be.

        >>> Layout(decimals=1).rounded({"a.wav": [Event(0.04, 1.06, "dog", 0.5)]})
        {'a.wav': [Event(onset=0.0, offset=1.1, label='dog', score=None)]}
        """
        table = EventTable(
            durations=getattr(events_by_file, "durations", None),
            starts=getattr(events_by_file, "starts", None),
        )
        for name, events in events_by_file.items():
            if not name:
                raise DataError("Cannot write events of a file without a name; name every file.")
            table[name] = [self._round(event, name) for event in sorted(events)]
        return table

    def _round(self, event: Event, name: str) -> Event:
        onset, offset = (round(x, self.decimals) + 0.0 for x in (event.onset, event.offset))
        if event.onset < 0 or onset == offset:
            # Read back, the first would be refused and the second dropped.
            why = "it begins before the clip" if event.onset < 0 else "its length rounds to 0"
            raise DataError(f"Cannot write {event} of {name} with {self.decimals} decimals: {why}.")
        score = float(f"{event.score:.6g}") if self.scores and event.score is not None else None
        return Event(onset, offset, event.label, score)

    def date_times(self, event: Event, start: datetime | None) -> tuple[str, str]:
        """Return the date and time of onset and offset in ISO 8601; empty without a start.

        >>> Layout().date_times(Event(0.5, 61, "dog"), datetime(2024, 5, 17, 4, 30))
        ('2024-05-17T04:30:00.500', '2024-05-17T04:31:01.000')
        """
        if start is None:
            return "", ""
        unit = "milliseconds" if self.decimals <= 3 else "microseconds"
        try:
            onset, offset = (start + timedelta(seconds=x) for x in (event.onset, event.offset))
        except OverflowError as error:
            raise DataError(
                f"Cannot write the date of {event}: it is after the year 9999."
            ) from error
        return onset.isoformat(timespec=unit), offset.isoformat(timespec=unit)


def add_seconds(onset: float, duration: float) -> float:
    """Return the sum as one adds decimals on paper: 0.1 and 0.2 s end at 0.3 s.

    >>> add_seconds(0.1, 0.2), 0.1 + 0.2
    (0.3, 0.30000000000000004)
    """
    return float(Decimal(repr(onset)) + Decimal(repr(duration)))


def subtract_seconds(offset: float, onset: float) -> float:
    """Return the difference as one subtracts decimals on paper.

    >>> subtract_seconds(0.3, 0.1), 0.3 - 0.1
    (0.2, 0.19999999999999998)
    """
    return float(Decimal(repr(offset)) - Decimal(repr(onset)))


def read_seconds(text: object, name: str, where: str) -> float:
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


def read_number(text: object, name: str, where: str) -> float:
    """Return the finite number in `text`; `name` and `where` are for the error message.

    >>> read_number("-0.5", "score", "a.tsv:1")
    -0.5
    """
    number = math.nan
    if isinstance(text, str | int | float) and not isinstance(text, bool):
        with suppress(ValueError, OverflowError):
            number = float(text)
    if not math.isfinite(number):
        raise DataError(
            f"{where}: the {name} {text!r} is not a number. "
            f"A row is {', '.join(STRONG_COLUMNS)}, with times in seconds such as 2.345."
        )
    return number
