"""Frame-level scores of all files as one array, together with the reference events.

Conventions: all files lie end to end, one row per frame and one more row for the last edge of each
file, whose score is minus infinity. No detection can extend past that row, so one array operation
processes all files and classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from earmark.errors import DataError, SettingError
from earmark.formats.events import Event
from earmark.formats.names import stem_of, stems_of
from earmark.formats.scores import ScoreTable
from earmark.metrics.event_arrays import EventArrays, Ints, Reals, align_events


@dataclass(frozen=True, eq=False)
class StackedScores:
    """The frame-level scores of all files end to end, and the reference.

    Shape: `edges` and `file_index` (rows,); `first` (files,), the first row of each file; `scores`
    (classes, rows), minus infinity in the last row of each file. The reference is sorted by file,
    class and time.

    >>> scores = ScoreTable(["dog"], {"a": ([0, 1, 2], [[0.9], [0.2]])})
    >>> stack_scores({"a": []}, scores).last
    array([2])
    """

    files: tuple[str, ...]
    labels: tuple[str, ...]
    edges: Reals
    file_index: Ints
    first: Ints
    scores: Reals
    reference: EventArrays
    unknown_files: tuple[str, ...]

    @property
    def last(self) -> Ints:
        """(files,): the row of the last edge of each file."""
        return np.append(self.first[1:], len(self.edges))[: len(self.first)] - 1

    def n_events(self) -> Ints:
        """Return (files, classes): the number of reference events.

        >>> scores = ScoreTable(["cat", "dog"], {"a": ([0, 1], [[0.2, 0.9]])})
        >>> stack_scores({"a.wav": [Event(0, 1, "dog")]}, scores).n_events()
        array([[0, 1]])
        """
        shape = (len(self.files), len(self.labels))
        entry = self.reference.file_index * shape[1] + self.reference.class_index
        return np.bincount(entry, minlength=shape[0] * shape[1]).reshape(shape)


def stack_scores(
    reference: Mapping[str, Sequence[Event]],
    scores: ScoreTable,
    labels: Sequence[str] | None = None,
) -> StackedScores:
    """Return the frame-level scores of the files of `reference`, end to end.

    Args:
        reference: file name -> reference events; these files are evaluated.
        scores: frame-level scores of each of these files; other files are ignored and listed in
            `unknown_files`.
        labels: the classes, in the order of the result; by default those of the scores.

    >>> scores = ScoreTable(["dog"], {"a": ([0, 1, 2], [[0.2], [0.9]])})
    >>> stack_scores({"a.wav": []}, scores).scores
    array([[ 0.2,  0.9, -inf]])
    """
    stems = stems_of(reference)
    missing = [name for stem, name in stems.items() if stem not in scores]
    if missing:
        raise DataError(
            f"{len(missing)} of {len(reference)} files of the reference have no frame-level "
            f"scores, the first is {missing[0]!r}. Compute them, or remove the files from the "
            "reference."
        )
    own_labels = scores.labels if labels is None else tuple(labels)
    unknown = [label for label in own_labels if label not in scores.labels]
    if unknown:
        raise SettingError(
            f"There are no frame-level scores of the class {unknown[0]!r}, only of "
            f"{', '.join(scores.labels)}."
        )
    events = align_events(reference, {}, own_labels).reference
    order = np.lexsort((events.offsets, events.onsets, events.class_index, events.file_index))
    columns = [scores.labels.index(label) for label in own_labels]
    by_file = [scores[stem] for stem in stems]
    n_rows = np.array([len(each.edges) for each in by_file], np.int64)
    first = np.cumsum(n_rows) - n_rows
    stacked = np.full((len(own_labels), int(n_rows.sum())), -np.inf)
    for begin, each in zip(first.tolist(), by_file, strict=True):
        stacked[:, begin : begin + len(each.scores)] = each.scores.T[columns]
    return StackedScores(
        files=tuple(reference),
        labels=own_labels,
        edges=np.concatenate([np.zeros(0), *(each.edges for each in by_file)]),
        file_index=np.repeat(np.arange(len(by_file)), n_rows),
        first=first,
        scores=stacked,
        reference=events.select(order),
        unknown_files=tuple(name for name in scores if stem_of(name) not in stems),
    )
