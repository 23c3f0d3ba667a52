"""Reference and estimate -> their events as arrays, file after file.

Conventions: `reference` and `estimate` map a file name to its events. The files of the reference
are evaluated, in its order. A file that the estimate lacks has no events there and is told in
`missing_files`; one that only the estimate names is left out and told in `unknown_files`.

Shape: the arrays of a side are (events,). Events stand in the order given: a greedy matching, and
which of several best matchings sed_eval takes, hang on it. Files have no bearing on each other, so
a scorer counts block after block of them, and its memory is that of a block and of the counts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from earmark.errors import DataError, SettingError
from earmark.formats.events import Event

BLOCK_EVENTS = 2**16  # counted at once: their arrays stay in the cache, so time grows linearly

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Side:
    """The events of all files of one side.

    Args:
        of_file: number of the file of each event.
        of_class: number of its label.
        onsets: in seconds.
        offsets: in seconds.
    """

    of_file: Ints
    of_class: Ints
    onsets: Reals
    offsets: Reals

    def __len__(self) -> int:
        return len(self.onsets)

    def among(self, chosen: NDArray[np.bool_]) -> "Side":
        """Return the events where `chosen` (events,) is True.

        >>> side = lay_out({"a.wav": [Event(0, 1, "dog"), Event(2, 3, "cat")]}, {}).reference
        >>> side.among(side.onsets > 1).offsets
        array([3.])
        """
        return Side(
            self.of_file[chosen], self.of_class[chosen], self.onsets[chosen], self.offsets[chosen]
        )

    def within(self, first: int, stop: int) -> "Side":
        """Return the events of the files from `first` to before `stop`, numbered from 0 again.

        >>> side = lay_out({"a.wav": [], "b.wav": [Event(0, 1, "dog")]}, {}).reference
        >>> side.within(1, 2).of_file
        array([0])
        """
        at = slice(*np.searchsorted(self.of_file, [first, stop]))
        return Side(self.of_file[at] - first, self.of_class[at], self.onsets[at], self.offsets[at])


@dataclass(frozen=True, eq=False)
class Sides:
    """Reference and estimate side by side, over the same files and labels."""

    files: tuple[str, ...]
    labels: tuple[str, ...]
    reference: Side
    estimate: Side
    missing_files: tuple[str, ...]
    unknown_files: tuple[str, ...]

    def blocks(self) -> Iterator["Sides"]:
        """Give all files in order, some at a time and at least once; of_file begins anew at 0.

        >>> sides = lay_out({"a.wav": [Event(0, 1, "dog")], "b.wav": []}, {})
        >>> [block.files for block in sides.blocks()]
        [('a.wav', 'b.wav')]
        """
        both = (self.reference, self.estimate)
        n_events = sum(np.bincount(side.of_file, minlength=len(self.files)) for side in both)
        of_block = np.cumsum(n_events) // BLOCK_EVENTS
        edges = [0, *(np.flatnonzero(np.diff(of_block)) + 1).tolist(), len(self.files)]
        for first, stop in pairwise(edges):
            reference, estimate = (side.within(first, stop) for side in both)
            yield replace(
                self, files=self.files[first:stop], reference=reference, estimate=estimate
            )


def lay_out(
    reference: Mapping[str, Sequence[Event]],
    estimate: Mapping[str, Sequence[Event]],
    labels: Sequence[str] | None = None,
) -> Sides:
    """Return the events of both as arrays.

    Args:
        reference: file name -> its true events; these files are evaluated.
        estimate: file name -> the events found.
        labels: the classes, in the order wanted; without them, every label of either side.

    >>> sides = lay_out({"a.wav": [Event(0, 1, "dog")]}, {"b.wav": [Event(0, 1, "cat")]})
    >>> sides.labels, sides.missing_files, sides.unknown_files, len(sides.estimate)
    (('dog',), ('a.wav',), ('b.wav',), 0)
    """
    found = [[side.get(name, ()) for name in reference] for side in (reference, estimate)]
    events = [list(chain.from_iterable(by_file)) for by_file in found]
    of_events = [[event.label for event in each] for each in events]
    names = _check_labels(set(of_events[0]), set(of_events[1]), labels)
    numbers = {label: number for number, label in enumerate(names)}
    reference_side, estimate_side = (
        Side(
            of_file=np.repeat(np.arange(len(by_file)), [len(few) for few in by_file]),
            of_class=np.fromiter(map(numbers.__getitem__, their), np.int64, len(their)),
            onsets=np.fromiter(map(attrgetter("onset"), each), np.float64, len(each)),
            offsets=np.fromiter(map(attrgetter("offset"), each), np.float64, len(each)),
        )
        for by_file, each, their in zip(found, events, of_events, strict=True)
    )
    return Sides(
        files=tuple(reference),
        labels=names,
        reference=reference_side,
        estimate=estimate_side,
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
    for side, found in (("reference", in_reference), ("estimate", in_estimate)):
        unknown = sorted(found - set(labels))
        if unknown:
            raise DataError(
                f"The {side} has events of {unknown[0]!r}, which is not among the labels "
                f"{', '.join(labels)}. Add it to them, or leave its events out."
            )
    return tuple(labels)
