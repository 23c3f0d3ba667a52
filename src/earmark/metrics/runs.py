"""Score curves -> every run of frames that any threshold can give.

Conventions: at a threshold the frames with a score at or above it are active, and a detection is a
longest run of such frames. As the threshold falls, runs appear, grow and merge; all of them
together are a tree with one node a frame at most, and each lives for one range of thresholds. So
every threshold can be scored at once, and none has to be sampled.

All files lie end to end: row after row, a row for each frame and one more for the last edge of a
file, whose score is minus infinity. No run gets past it, and what is done to one array is done to
all files and classes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from earmark.errors import DataError, SettingError
from earmark.formats.events import Event
from earmark.formats.names import stem_of, stems_of
from earmark.formats.scores import ScoreCurves
from earmark.metrics.sides import Side, lay_out

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]
Bools = NDArray[np.bool_]

_BLOCK = 1 << 19  # rows of all classes at a time: some 100 MB


@dataclass(frozen=True, eq=False)
class Stack:
    """The curves of all files end to end, and the reference.

    Shape: `edges` and `of_file` (rows,), `first` (files,) the first row of each; `scores`
    (classes, rows), minus infinity in the last row of each file.
    """

    files: tuple[str, ...]
    labels: tuple[str, ...]
    edges: Reals
    of_file: Ints
    first: Ints
    scores: Reals
    reference: Side
    unknown_files: tuple[str, ...]

    @property
    def last(self) -> Ints:
        """(files,): the row of the last edge of each file."""
        return np.append(self.first[1:], len(self.edges))[: len(self.first)] - 1

    def n_events(self) -> Ints:
        """Return (files, classes): how many events the reference has.

        >>> from earmark.formats.scores import ScoreCurve
        >>> curves = ScoreCurves(["cat", "dog"], {"a": ScoreCurve([0, 1], [[0.2, 0.9]])})
        >>> stack_curves({"a.wav": [Event(0, 1, "dog")]}, curves).n_events()
        array([[0, 1]])
        """
        shape = (len(self.files), len(self.labels))
        pairs = self.reference.of_file * shape[1] + self.reference.of_class
        return np.bincount(pairs, minlength=shape[0] * shape[1]).reshape(shape)


@dataclass(frozen=True, eq=False)
class Runs:
    """Detections: each is there for thresholds above `low` and up to `score`.

    At `low` a run becomes part of its parent, which has that score. A run over a whole file has
    none (-1) and a `low` of minus infinity.

    Shape: all (runs,).
    """

    of_file: Ints
    of_class: Ints
    onset: Reals
    offset: Reals
    score: Reals
    low: Reals
    parent: Ints

    def __len__(self) -> int:
        return len(self.score)


def stack_curves(
    reference: Mapping[str, Sequence[Event]],
    curves: ScoreCurves,
    labels: Sequence[str] | None = None,
) -> Stack:
    """Return the curves of the files of `reference`, end to end.

    Args:
        reference: file name -> its true events; these files are evaluated.
        curves: of every one of these files; others are told and left out.
        labels: the classes, in the order wanted; without them, those of the curves.

    >>> from earmark.formats.scores import ScoreCurve
    >>> curves = ScoreCurves(["dog"], {"a": ScoreCurve([0, 1, 2], [[0.2], [0.9]])})
    >>> stack_curves({"a.wav": []}, curves).scores
    array([[ 0.2,  0.9, -inf]])
    """
    stems = stems_of(reference)
    missing = [name for stem, name in stems.items() if stem not in curves]
    if missing:
        raise DataError(
            f"{len(missing)} of {len(reference)} files of the reference have no score curve, "
            f"the first is {missing[0]!r}. A curve cannot be guessed: make those that are missing, "
            "or leave the files out of the reference."
        )
    own = curves.labels if labels is None else tuple(labels)
    absent = [label for label in own if label not in curves.labels]
    if absent:
        raise SettingError(
            f"There are no curves of {absent[0]!r}; there are of {', '.join(curves.labels)}."
        )
    side = lay_out(reference, {}, own).reference
    columns = [curves.labels.index(label) for label in own]
    chosen = [curves[stem] for stem in stems]
    lengths = np.array([len(curve.edges) for curve in chosen], np.int64)
    first = np.cumsum(lengths) - lengths
    scores = np.full((len(own), int(lengths.sum())), -np.inf)
    for begin, curve in zip(first.tolist(), chosen, strict=True):
        scores[:, begin : begin + len(curve.scores)] = curve.scores.T[columns]
    return Stack(
        files=tuple(reference),
        labels=own,
        edges=np.concatenate([np.zeros(0), *(curve.edges for curve in chosen)]),
        of_file=np.repeat(np.arange(len(chosen)), lengths),
        first=first,
        scores=scores,
        reference=_in_order(side),
        unknown_files=tuple(name for name in curves if stem_of(name) not in stems),
    )


def _in_order(side: Side) -> Side:
    """Sort events by file, class and time."""
    order = np.lexsort((side.offsets, side.onsets, side.of_class, side.of_file))
    return Side(side.of_file[order], side.of_class[order], side.onsets[order], side.offsets[order])


def count_changes(stack: Stack) -> tuple[Ints, Ints, Reals, Ints]:
    """Return by how much the number of runs changes as the threshold falls to a score.

    It takes no tree: a frame above its neighbours begins a run, one below them merges two.

    Returns:
        File, class, score and change, each (changes,), class after class.

    >>> from earmark.formats.scores import ScoreCurve
    >>> curves = ScoreCurves(["dog"], {"a": ScoreCurve([0, 1, 2, 3], [[0.9], [0.2], [0.8]])})
    >>> count_changes(stack_curves({"a": []}, curves))[2:]
    (array([0.9, 0.2, 0.8]), array([ 1, -1,  1]))
    """
    flat = stack.scores.ravel()
    rises = np.empty(len(flat), np.int8)  # the last row is minus infinity: nothing rises to it
    rises[1:] = flat[1:] > flat[:-1]
    rises[:1] = flat[:1] > -np.inf
    change = rises - np.append(rises[1:], np.int8(0))
    change[flat == -np.inf] = 0
    at = np.flatnonzero(change)
    of_class, row = np.divmod(at, max(1, len(stack.edges)))
    return stack.of_file[row], of_class, flat[at], change[at].astype(np.int64)


def find_runs(stack: Stack, chosen: Bools) -> Iterator[Runs]:
    """Yield the runs of the chosen curves, some files and classes at a time.

    Args:
        stack: the curves.
        chosen: (files, classes), True where runs are wanted.

    >>> from earmark.formats.scores import ScoreCurve
    >>> curves = ScoreCurves(["dog"], {"a": ScoreCurve([0, 1, 2, 3], [[0.9], [0.2], [0.8]])})
    >>> (runs,) = find_runs(stack_curves({"a": []}, curves), np.array([[True]]))
    >>> list(zip(runs.onset.tolist(), runs.offset.tolist(), runs.score.tolist()))
    [(0.0, 1.0, 0.9), (0.0, 3.0, 0.2), (2.0, 3.0, 0.8)]
    """
    of_class, of_file = np.nonzero(chosen.T)  # class after class
    lengths = stack.last[of_file] + 1 - stack.first[of_file]
    blocks = np.cumsum(lengths) // _BLOCK
    cuts = np.flatnonzero(np.diff(blocks)) + 1
    for part in np.split(np.arange(len(lengths)), cuts):
        if len(part):
            yield _runs_of(stack, of_file[part], of_class[part], lengths[part])


def _runs_of(stack: Stack, of_file: Ints, of_class: Ints, lengths: Ints) -> Runs:
    begins = np.cumsum(lengths) - lengths
    within = np.arange(int(lengths.sum())) - np.repeat(begins, lengths)
    row = np.repeat(stack.first[of_file], lengths) + within
    series = np.repeat(np.arange(len(lengths)), lengths)
    scores = stack.scores[of_class[series], row]
    reach = int(lengths.max())
    frame = np.flatnonzero(within < lengths[series] - 1)
    # Of frames with the same score in one run, the first stands for all of them.
    left = _nearest_below(scores, frame, reach, or_equal=True)
    is_first = scores[left] < scores[frame]
    number = np.full(len(scores), -1, np.int64)  # the run that each frame stands for
    number[frame[is_first]] = np.arange(np.count_nonzero(is_first))
    stands_for = np.arange(len(scores))
    twins, before = frame[~is_first], left[~is_first]
    while len(twins):  # in steps that double, to the first of those with the same score
        stands_for[twins] = before
        farther = stands_for[before]
        is_on_its_way = farther != before
        twins, before = twins[is_on_its_way], farther[is_on_its_way]
    frame, left = frame[is_first], left[is_first]
    mirrored = _nearest_below(scores[::-1], len(scores) - 1 - frame, reach, or_equal=False)
    right = len(scores) - 1 - mirrored
    higher = np.where(scores[left] >= scores[right], left, right)
    return Runs(
        of_file=of_file[series[frame]],
        of_class=of_class[series[frame]],
        onset=stack.edges[row[left + 1]],
        offset=stack.edges[row[right]],
        score=scores[frame],
        low=scores[higher],
        parent=number[stands_for[higher]],
    )


def _nearest_below(scores: Reals, frame: Ints, reach: int, *, or_equal: bool) -> Ints:
    """Return for each of `frame` the nearest place before it with a lower score, -1 if none.

    By the lowest score of 1, 2, 4, ... places at once: as many steps as `reach` has binary digits.

    Args:
        scores: (places,), the last of them minus infinity.
        frame: the places to look back from.
        reach: no farther than this.
        or_equal: stop at an equal score too.
    """
    lowest, width = [scores], 1
    while 2 * width <= reach:
        double = np.full(len(scores), -np.inf)
        np.minimum(lowest[-1][width:], lowest[-1][:-width], out=double[width:])
        lowest.append(double)
        width *= 2
    goes_past = np.greater if or_equal else np.greater_equal
    at = frame - 1
    moving = np.flatnonzero(goes_past(scores[at], scores[frame]))
    place, own = at[moving], scores[frame[moving]]
    for level in reversed(lowest):
        place -= width * goes_past(level[place], own)
        width //= 2
    at[moving] = place
    return at
