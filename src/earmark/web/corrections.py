"""What people say about recordings -> tables to tune and to train with.

Conventions: the correction of a recording has all events that are really there, and tags that were
confirmed (True) or rejected (False). A rejected tag also removes the events of its class. Of all
corrections two tables are made:

- strong: the events of the model's classes, for `earmark tune --strong`. A recording of which only
  tags were judged is left out, and one with a confirmed tag of which nobody marked an event, since
  its events are not known.
- weak: the tags, those of events included, for `earmark train --from`.

Corrections are kept in `corrections.json` of the library, by the name of the recording.
"""

import io
import json
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from earmark.errors import DataError
from earmark.files import atomic_write
from earmark.formats.event_table import EventTable, Layout
from earmark.formats.events import Event, encode_events
from earmark.formats.tags import SEPARATORS, write_tags
from earmark.web.limits import RequestError

FILE, STRONG, WEAK = "corrections.json", "strong.tsv", "weak.tsv"
SHORTEST = 0.001  # seconds of an event: tables have milliseconds


@dataclass(frozen=True)
class Correction:
    """What somebody says about one recording.

    Args:
        events: that are there.
        tags: label -> whether it is there.
        events_checked: whether somebody looked at the events; else they are as detected.

    >>> own = Correction([Event(0, 1, "dog"), Event(1, 2, "cat")], {"cat": False, "cow": True})
    >>> own.labels, [event.label for event in own.accepted]
    (('cow', 'dog'), ['dog'])
    """

    events: Sequence[Event]
    tags: Mapping[str, bool] = field(default_factory=dict)
    events_checked: bool = True

    @property
    def accepted(self) -> list[Event]:
        """The events without those of rejected tags, in order of time."""
        return sorted(event for event in self.events if self.tags.get(event.label, True))

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes that are there, sorted."""
        confirmed = {label for label, is_there in self.tags.items() if is_there}
        return tuple(sorted(confirmed | {event.label for event in self.accepted}))

    def has_all_events(self, labels: Collection[str]) -> bool:
        """Return whether the events were checked and every class that is there, of these, has one.

        >>> Correction([Event(0, 1, "dog")], events_checked=False).has_all_events(["dog"])
        False
        """
        if not self.events_checked:
            return False
        marked = {event.label for event in self.accepted}
        return all(label in marked for label in self.labels if label in labels)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a file."""
        events = [
            {"onset": event.onset, "offset": event.offset, "event_label": event.label}
            for event in self.events
        ]
        checked = self.events_checked
        return {"events": events, "tags": dict(self.tags), "events_checked": checked}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Correction":
        """Return the correction that `to_dict` wrote."""
        events = [Event(own["onset"], own["offset"], own["event_label"])
                  for own in values["events"]]  # fmt: skip
        tags = {str(label): bool(on) for label, on in values["tags"].items()}
        return cls(events, tags, bool(values.get("events_checked", True)))


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
        for label in {*correction.tags, *(event.label for event in correction.events)}:
            check_label(label)
        events = [_checked(event, duration) for event in correction.events]
        with self._lock:
            own = Correction(sorted(events), dict(correction.tags), correction.events_checked)
            changed = {**self._by_name, name: own}
            self._save(changed)

    def remove(self, name: str) -> None:
        """Forget the correction of a recording, if there is one."""
        with self._lock:
            if name in self._by_name:
                self._save({own: x for own, x in self._by_name.items() if own != name})

    def all(self) -> dict[str, Correction]:
        """Return the name of each corrected recording -> its correction."""
        return dict(self._by_name)

    def _save(self, changed: dict[str, Correction]) -> None:
        content = {"recordings": {name: own.to_dict() for name, own in changed.items()}}
        atomic_write(self._path, json.dumps(content, ensure_ascii=False, indent=1).encode())
        self._by_name = changed


def strong_table(corrections: Mapping[str, Correction], labels: Collection[str]) -> str:
    r"""Return a table of events for `earmark tune --strong`.

    Args:
        corrections: by the name of the recording.
        labels: of the model; events of other classes are left out.

    >>> strong_table({"a.wav": Correction([Event(0, 1, "dog"), Event(0, 1, "cow")])}, ["dog"])
    'filename\tonset\toffset\tevent_label\na.wav\t0.000\t1.000\tdog\n'
    """
    events = {
        name: [event for event in own.accepted if event.label in labels]
        for name, own in corrections.items()
        if own.has_all_events(labels)
    }
    return str(encode_events(EventTable(events), Layout(), "tsv"))


def weak_table(tags: Mapping[str, Collection[str]]) -> str:
    r"""Return a table of tags for `earmark train --from`.

    >>> weak_table({"a.wav": ["dog", "cat"], "b.wav": []})
    'filename\tevent_labels\na.wav\tcat,dog\nb.wav\t\n'
    """
    text = io.StringIO()
    write_tags(text, tags)
    return text.getvalue()


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


def _checked(event: Event, duration: float) -> Event:
    """Return an event that ends with the recording; raise if nothing of it is left."""
    onset, offset = max(0.0, event.onset), min(event.offset, duration)
    if offset - onset < SHORTEST:
        raise RequestError(
            422,
            f"The event {event.label[:60]!r} from {event.onset:g} to {event.offset:g} s is shorter "
            f"than a millisecond, or outside of the recording of {duration:g} s.",
        )
    return Event(onset, offset, event.label)
