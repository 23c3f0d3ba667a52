"""What another model changes: the events that come, and those that go."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from earmark.formats.events import Event

SAME = 0.5  # of the union of two events that they must share to be one event
_CHUNK = 1 << 22  # pairs of events that are compared at a time


class Change(NamedTuple):
    """The change in one recording.

    Args:
        before: number of events.
        after: number of events.
        added: events that were not there before.
        removed: events that are there no more.

    >>> Change(1, 1, [], []).before
    1
    """

    before: int
    after: int
    added: list[Event]
    removed: list[Event]


def find_change(before: Sequence[Event], after: Sequence[Event]) -> Change:
    """Return what changed; an event that only moved a little is the same.

    >>> old = [Event(0, 1, "dog"), Event(3, 4, "dog")]
    >>> change = find_change(old, [Event(0.1, 1, "dog"), Event(3, 4, "cat")])
    >>> [event.label for event in change.added], [event.onset for event in change.removed]
    (['cat'], [3.0])
    """
    return Change(len(before), len(after), _without(after, before), _without(before, after))


def _without(events: Sequence[Event], others: Sequence[Event]) -> list[Event]:
    """Return the events that none of the others is the same as."""
    lonely = []
    for label in sorted({event.label for event in events}):
        own = [event for event in events if event.label == label]
        known = np.array([(x.onset, x.offset) for x in others if x.label == label]).reshape(-1, 2)
        step = max(1, _CHUNK // max(1, len(known)))
        for first in range(0, len(own), step):
            part = own[first : first + step]
            times = np.array([(x.onset, x.offset) for x in part])
            shared = np.minimum(times[:, None, 1], known[:, 1]) - np.maximum(
                times[:, None, 0], known[:, 0]
            )
            union = np.maximum(times[:, None, 1], known[:, 1]) - np.minimum(
                times[:, None, 0], known[:, 0]
            )
            is_same = (shared >= SAME * union).any(axis=1)
            lonely += [event for event, same in zip(part, is_same, strict=True) if not same]
    return sorted(lonely)
