"""What people say about recordings -> tables to tune and to train with.

Conventions: a correction has tags that were confirmed (True) or rejected (False), and the events if
any of them was changed. An event with a score is a detection that nobody touched; one without was
drawn or changed by hand. A rejected tag also removes the events of its class. A table says of every
class whether it is there, so a recording gets a row only after somebody checked it:

- "tags": every class that is there was confirmed or drawn. The recording is a row of the weak
  table, for `earmark train --from`. Detections that nobody touched are no tags.
- "events": the tags, and all events with onset and offset. The recording is in the strong table as
  well, for `earmark tune --strong`, unless a class was confirmed of which there is no event.

`make_tables` makes both tables, to download and for the jobs. Corrections are kept in
`corrections.json` of the library, by the name of the recording.
"""

import io
import json
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple, get_args

from earmark.errors import DataError
from earmark.files import atomic_write
from earmark.formats.event_table import EventTable, Layout
from earmark.formats.events import Event, encode_events
from earmark.formats.tags import SEPARATORS, write_tags
from earmark.web.limits import RequestError

FILE, STRONG, WEAK = "corrections.json", "strong.tsv", "weak.tsv"
Checked = Literal["tags", "events"]
SHORTEST = 0.001  # seconds of an event: tables have milliseconds


@dataclass(frozen=True)
class Correction:
    """What somebody says about one recording.

    Args:
        events: all of them, if any was changed or if they were checked; None is as detected.
        tags: label -> whether it is there.
        checked: what somebody said is right and complete: "tags", or "events" and tags; None is
            neither.

    >>> own = Correction([Event(0, 1, "dog", 0.9), Event(1, 2, "cat", 0.8), Event(3, 4, "hen")])
    >>> own.labels, replace(own, tags={"cat": True}).labels
    (('hen',), ('cat', 'hen'))
    >>> own = replace(own, tags={"cat": False, "cow": True}, checked="events")
    >>> own.labels, [event.label for event in own.accepted([])]
    (('cow', 'dog', 'hen'), ['dog', 'hen'])
    """

    events: Sequence[Event] | None = None
    tags: Mapping[str, bool] = field(default_factory=dict)
    checked: Checked | None = None

    def accepted(self, detected: Iterable[Event]) -> list[Event]:
        """Return the events without those of rejected tags, in order of time.

        Args:
            detected: what the model says, for a correction without events.
        """
        events = detected if self.events is None else self.events
        return sorted(event for event in events if self.tags.get(event.label, True))

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes that somebody said are there, sorted; no detection that nobody checked."""
        confirmed = {label for label, is_there in self.tags.items() if is_there}
        is_known = self.checked == "events"
        events = (event for event in self.accepted([]) if is_known or event.score is None)
        return tuple(sorted(confirmed | {event.label for event in events}))

    def has_all_events(self, labels: Collection[str]) -> bool:
        """Return whether the events were checked and every class that is there, of these, has one.

        >>> Correction([Event(0, 1, "dog")], checked="tags").has_all_events(["dog"])
        False
        """
        if self.checked != "events":
            return False
        marked = {event.label for event in self.accepted([])}
        return all(label in marked for label in self.labels if label in labels)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a file."""
        events = None
        if self.events is not None:
            names = ("onset", "offset", "event_label", "score")
            events = [
                dict(zip(names, (own.onset, own.offset, own.label, own.score), strict=True))
                for own in self.events
            ]
        return {"events": events, "tags": dict(self.tags), "checked": self.checked}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Correction":
        """Return the correction that `to_dict` wrote."""
        events = values["events"]
        if events is not None:
            events = [Event(own["onset"], own["offset"], own["event_label"], own.get("score"))
                      for own in events]  # fmt: skip
        tags = {str(label): bool(on) for label, on in values["tags"].items()}
        checked = values.get("checked")
        if checked not in (None, *get_args(Checked)):
            raise ValueError(f"checked is {checked!r}")
        return cls(events, tags, checked)


class Corrections:
    """The corrections of a library, in memory and in a file.

    Args:
        folder: of the file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Corrections(Path(folder)).put("a.wav", Correction([Event(0, 1, "dog")]), 2.0)
    ...     Corrections(Path(folder)).get("a.wav").labels
    ('dog',)
    """

    def __init__(self, folder: Path) -> None:
        self._path, self._lock = folder / FILE, Lock()
        self._by_name: dict[str, Correction] = {}
        try:
            content = json.loads(self._path.read_bytes())
            for name, values in content["recordings"].items():
                self._by_name[name] = Correction.from_dict(values)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError, DataError) as error:
            raise DataError(
                f"{self._path} cannot be read ({error}); mend it, or move it away."
            ) from error

    def get(self, name: str) -> Correction | None:
        """Return the correction of a recording, if there is one."""
        return self._by_name.get(name)

    def put(self, name: str, correction: Correction, duration: float) -> None:
        """Keep the correction of a recording that lasts so many seconds; raise if it is wrong."""
        check_name(name)
        given = correction.events or ()
        for label in {*correction.tags, *(event.label for event in given)}:
            check_label(label)
        events = None
        if correction.events is not None:
            events = sorted(_within(event, duration) for event in given)
        elif correction.checked == "events":
            raise RequestError(422, "Events that were checked must be sent; events is null.")
        with self._lock:
            own = replace(correction, events=events, tags=dict(correction.tags))
            self._save({**self._by_name, name: own})

    def remove(self, name: str) -> None:
        """Forget the correction of a recording, if there is one."""
        with self._lock:
            if name in self._by_name:
                self._save({own: x for own, x in self._by_name.items() if own != name})

    @property
    def labels(self) -> set[str]:
        """The classes that corrections name."""
        found: set[str] = set()
        for own in list(self._by_name.values()):
            found |= {*own.tags, *(event.label for event in own.events or ())}
        return found

    def _save(self, changed: dict[str, Correction]) -> None:
        content = {"recordings": {name: own.to_dict() for name, own in changed.items()}}
        atomic_write(self._path, json.dumps(content, ensure_ascii=False, indent=1).encode())
        self._by_name = changed


class Tables(NamedTuple):
    """What can be learnt from corrections: name of a recording -> its events, or its tags."""

    strong: dict[str, list[Event]]
    weak: dict[str, tuple[str, ...]]

    @property
    def strong_text(self) -> str:
        """The table for `earmark tune --strong`."""
        return str(encode_events(EventTable(self.strong), Layout(), "tsv"))

    @property
    def weak_text(self) -> str:
        """The table for `earmark train --from`."""
        text = io.StringIO()
        write_tags(text, self.weak)
        return text.getvalue()


def make_tables(corrections: Mapping[str, Correction], labels: Collection[str]) -> Tables:
    r"""Return the tables of the recordings that were checked.

    Args:
        corrections: by the name of the recording.
        labels: of the model. Events of other classes are left out, which no tuning can take; tags
            of other classes are what a training learns them from.

    >>> events = [Event(0, 1, "dog"), Event(0, 1, "cow")]
    >>> found = make_tables({"a.wav": Correction(events, checked="events")}, ["dog"])
    >>> found.strong_text
    'filename\tonset\toffset\tevent_label\na.wav\t0.000\t1.000\tdog\n'
    >>> found.weak_text
    'filename\tevent_labels\na.wav\tcow,dog\n'
    >>> make_tables({"a.wav": Correction(events)}, ["dog"])
    Tables(strong={}, weak={})
    """
    strong = {
        name: [event for event in own.accepted([]) if event.label in labels]
        for name, own in corrections.items()
        if own.has_all_events(labels)
    }
    return Tables(strong, {name: own.labels for name, own in corrections.items() if own.checked})


def check_label(label: str) -> None:
    """Raise `RequestError` if a label cannot be written to a table.

    >>> check_label("dog|cat")
    Traceback (most recent call last):
        ...
    earmark.web.limits.RequestError: The label 'dog|cat' has a sign that tables cannot hold; ...
    """
    wrong = any(unicodedata.category(c)[0] == "C" or c in SEPARATORS for c in label)
    if wrong or label != label.strip() or "  " in label:
        raise RequestError(
            422, f"The label {label[:60]!r} has a sign that tables cannot hold; use plain words."
        )


def check_name(name: str) -> None:
    """Raise `RequestError` if the name of a recording cannot be written to a table.

    >>> check_name("a.wav")
    """
    if name != name.strip() or any(unicodedata.category(c)[0] == "C" for c in name):
        raise RequestError(
            422, f"The recording {name!r} has a name that tables cannot hold; rename it."
        )


def _within(event: Event, duration: float) -> Event:
    """Return an event that ends with the recording; raise if nothing of it is left."""
    onset, offset = max(0.0, event.onset), min(event.offset, duration)
    if offset - onset < SHORTEST:
        raise RequestError(
            422,
            f"The event {event.label[:60]!r} from {event.onset:g} to {event.offset:g} s is shorter "
            f"than a millisecond, or outside of the recording of {duration:g} s.",
        )
    return replace(event, onset=onset, offset=offset)
