"""Events of many files as NumPy arrays, so that a scorer can count all files at once.

Conventions: `reference` and `estimate` map a file name to its events. The files of the reference
are evaluated, in its order. A file that is missing from the estimate has no estimated events and
is listed in `missing_files`; a file that only the estimate contains is ignored and listed in
`unknown_files`.

Shape: all arrays of `EventArrays` are (events,). Events keep the order in which they were given:
greedy matching depends on it, and so does the choice among several maximum matchings. Files are
independent of each other, so a scorer processes them in blocks; its memory is that of one block
plus the counts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from earmark.errors import DataError, SettingError
from earmark.formats.events import Event

BLOCK_EVENTS = 2**16  # per block: its arrays stay in the cache, so time grows linearly

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Reals = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class EventArrays:
    """The events of all files.

    Args:
        file_index: index of the file of each event.
        class_index: index of its label.
        onsets: in seconds.
        offsets: in seconds.

    >>> zeros = np.zeros(2, int)
    >>> len(EventArrays(zeros, zeros, np.array([0.0, 2.0]), np.array([1.0, 3.0])))
    2
    """

    file_index: Ints
    class_index: Ints
    onsets: Reals
    offsets: Reals

    def __len__(self) -> int:
        return len(self.onsets)

    def select(self, chosen: Bools | Ints | slice) -> "EventArrays":
        """Return some of the events, by mask, by index or by slice.

        >>> events = align_events({"a.wav": [Event(0, 1, "dog"), Event(2, 3, "cat")]}, {}).reference
        >>> events.select(events.onsets > 1).offsets
        array([3.])
        """
        return EventArrays(
            self.file_index[chosen],
            self.class_index[chosen],
            self.onsets[chosen],
            self.offsets[chosen],
        )

    def select_files(self, first: int, stop: int) -> "EventArrays":
        """Return the events of the files from `first` to before `stop`, indexed from 0 again.

        >>> events = align_events({"a.wav": [], "b.wav": [Event(0, 1, "dog")]}, {}).reference
        >>> events.select_files(1, 2).file_index
        array([0])
        """
        chosen = self.select(slice(*np.searchsorted(self.file_index, [first, stop])))
        return replace(chosen, file_index=chosen.file_index - first)


@dataclass(frozen=True, eq=False)
class AlignedEvents:
    """Reference and estimate over the same files and labels.

    >>> align_events({"a.wav": [Event(0, 1, "dog")], "b.wav": []}, {}).files
    ('a.wav', 'b.wav')
    """

    files: tuple[str, ...]
    labels: tuple[str, ...]
    reference: EventArrays
    estimate: EventArrays
    missing_files: tuple[str, ...]
    unknown_files: tuple[str, ...]

    def blocks(self) -> Iterator["AlignedEvents"]:
        """Yield all files in order, in blocks; `file_index` starts at 0 in each, and there is one.

        >>> events = align_events({"a.wav": [Event(0, 1, "dog")], "b.wav": []}, {})
        >>> [block.files for block in events.blocks()]
        [('a.wav', 'b.wav')]
        """
        both = (self.reference, self.estimate)
        n_events = sum(np.bincount(each.file_index, minlength=len(self.files)) for each in both)
        block_index = np.cumsum(n_events) // BLOCK_EVENTS
        bounds = [0, *(np.flatnonzero(np.diff(block_index)) + 1).tolist(), len(self.files)]
        for first, stop in pairwise(bounds):
            reference, estimate = (each.select_files(first, stop) for each in both)
            yield replace(
                self, files=self.files[first:stop], reference=reference, estimate=estimate
            )


def align_events(
    reference: Mapping[str, Sequence[Event]],
    estimate: Mapping[str, Sequence[Event]],
    labels: Sequence[str] | None = None,
) -> AlignedEvents:
    """Return the events of reference and estimate as arrays.

    Args:
        reference: file name -> reference events; these files are evaluated.
        estimate: file name -> estimated events.
        labels: the classes, in the order of the result; by default every label that occurs.

    >>> events = align_events({"a.wav": [Event(0, 1, "dog")]}, {"b.wav": [Event(0, 1, "cat")]})
    >>> events.labels, events.missing_files, events.unknown_files, len(events.estimate)
    (('dog',), ('a.wav',), ('b.wav',), 0)
    """
    by_file = [[events.get(name, ()) for name in reference] for events in (reference, estimate)]
    flat = [list(chain.from_iterable(each)) for each in by_file]
    event_labels = [[event.label for event in events] for events in flat]
    names = _check_labels(set(event_labels[0]), set(event_labels[1]), labels)
    index_of = {label: index for index, label in enumerate(names)}
    reference_arrays, estimate_arrays = (
        EventArrays(
            file_index=np.repeat(np.arange(len(files)), [len(of_file) for of_file in files]),
            class_index=np.fromiter(map(index_of.__getitem__, own_labels), np.int64, len(events)),
            onsets=np.fromiter(map(attrgetter("onset"), events), np.float64, len(events)),
            offsets=np.fromiter(map(attrgetter("offset"), events), np.float64, len(events)),
        )
        for files, events, own_labels in zip(by_file, flat, event_labels, strict=True)
    )
    return AlignedEvents(
        files=tuple(reference),
        labels=names,
        reference=reference_arrays,
        estimate=estimate_arrays,
        missing_files=tuple(name for name in reference if name not in estimate),
        unknown_files=tuple(name for name in estimate if name not in reference),
    )


def _check_labels(
    in_reference: set[str], in_estimate: set[str], labels: Sequence[str] | None
) -> tuple[str, ...]:
    if labels is None:
        return tuple(sorted(in_reference | in_estimate))
    if len(set(labels)) < len(labels):
        raise SettingError(f"labels must name each class once. Got {list(labels)}.")
    for which, used in (("reference", in_reference), ("estimate", in_estimate)):
        unknown = sorted(used - set(labels))
        if unknown:
            raise DataError(
                f"The {which} has events of {unknown[0]!r}, which is not among the labels "
                f"{', '.join(labels)}. Add it to labels, or remove its events."
            )
    return tuple(labels)
