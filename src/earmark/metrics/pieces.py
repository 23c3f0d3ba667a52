"""Score curves and true events -> what changes as the threshold falls, segment by segment.

Conventions: a class is active in a segment as soon as one of its frames there is, so a segment has
one score for each class: the highest of the frames that touch it. There are two ways to cut:

- As sed_eval and `segment_scores` do (`decimals=None`): a frame or an event touches the segments
  from floor(onset / resolution) up to ceil(offset / resolution), in floating point. A file is as
  long as its curve or its last event; where the curve has ended nothing can be found.
- As sed_scores_eval 0.0.4 does (`decimals=6`): edges of frames and of segments are rounded to so
  many decimals and compared. A file is as long as `durations` says; events beyond are left out,
  and where the curve has ended the score is 0. Without `durations` it is as long as its curve or
  its last event.

They differ where an edge is that of a segment but for floating point, and past the curve's end.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from earmark.errors import DataError, SettingError
from earmark.formats.names import stem_of
from earmark.metrics.changes import Changes
from earmark.metrics.runs import Bools, Ints, Reals, Stack
from earmark.metrics.segment import check_resolution, touched_segments

_MOST_SEGMENTS = 1 << 24  # of a file: a hundred megabytes for each class


@dataclass(frozen=True, eq=False)
class Pieces:
    """The segments of all files, end to end.

    Shape: `of_file` (segments,); `scores` and `truth` (segments, classes).
    """

    of_file: Ints
    scores: Reals
    truth: Bools

    def find_changes(self) -> Changes:
        """Return the changes; amounts are true positives, false positives and errors.

        In a segment with `n_ref` classes in the reference substitutions, deletions and insertions
        sum up to max(n_ref, n_est) - tp, all classes together: what is active beyond `n_ref`
        classes is an error more, what is right is one less.

        >>> one = np.array([0])
        >>> pieces = Pieces(one, np.array([[0.9, 0.5]]), np.array([[False, True]]))
        >>> pieces.find_changes().amounts.tolist()
        [[0, 1], [1, 0], [0, 0]]
        """
        n_classes = self.scores.shape[1]
        rank = np.argsort(np.argsort(-self.scores, axis=1, kind="stable"), axis=1)
        is_more = rank >= self.truth.sum(axis=1, keepdims=True)
        true = self.truth.ravel().astype(np.int32)
        of_class = np.tile(np.arange(n_classes), len(self.scores))
        amounts = np.stack([true, 1 - true, is_more.ravel().astype(np.int32) - true])
        of_file = np.repeat(self.of_file, n_classes)
        return Changes.gathered(
            [Changes(of_file, of_class, self.scores.ravel(), amounts, of_class)]
        )

    def n_ref(self, n_files: int) -> Ints:
        """Return (files, classes): in how many segments each class really is.

        >>> pieces = Pieces(np.array([0, 0]), np.zeros((2, 1)), np.array([[True], [True]]))
        >>> pieces.n_ref(1)
        array([[2]])
        """
        total = np.zeros((n_files, self.truth.shape[1]), np.int64)
        np.add.at(total, self.of_file, self.truth)
        return total

    def beside(self, other: "Pieces", n_files: int) -> "Pieces":
        """Return the segments of both, the files of `other` numbered from `n_files` on.

        >>> pieces = Pieces(np.array([0]), np.zeros((1, 1)), np.array([[True]]))
        >>> pieces.beside(pieces, 1).of_file
        array([0, 1])
        """
        return Pieces(
            np.concatenate([self.of_file, other.of_file + n_files]),
            np.concatenate([self.scores, other.scores]),
            np.concatenate([self.truth, other.truth]),
        )


@dataclass(frozen=True)
class Segments:
    """Detections and events are compared in segments of `resolution` seconds.

    Args:
        resolution: length of a segment.
        decimals: None to cut as sed_eval does, 6 to cut as sed_scores_eval does.
        durations: file name -> its length in seconds, for the latter.

    >>> Segments(0.0)
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: resolution must be a number of seconds above 0. Got 0.0.
    """

    resolution: float = 1.0
    decimals: int | None = None
    durations: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        check_resolution(self.resolution)
        if self.durations is not None and self.decimals is None:
            raise SettingError(
                "durations have no part in segments as sed_eval cuts them. Leave them out, or give "
                "decimals=6 for segments as sed_scores_eval cuts them."
            )

    def cut(self, stack: Stack) -> Pieces:
        """Return the segments of all files.

        >>> from earmark.formats.scores import ScoreCurve, ScoreCurves
        >>> from earmark.formats.events import Event
        >>> from earmark.metrics.runs import stack_curves
        >>> curve = ScoreCurve([0, 0.8, 1.6, 2.0], [[0.9], [0.2], [0.1]])
        >>> stack = stack_curves({"a": [Event(1, 2, "dog")]}, ScoreCurves(["dog"], {"a": curve}))
        >>> pieces = Segments(1.0).cut(stack)
        >>> pieces.scores.ravel().tolist(), pieces.truth.ravel().tolist()
        ([0.9, 0.2], [False, True])
        """
        bounds = np.searchsorted(stack.reference.of_file, np.arange(len(stack.files) + 1))
        known = {stem_of(name): seconds for name, seconds in (self.durations or {}).items()}
        scores, truth = [], []
        for file, name in enumerate(stack.files):
            edges = stack.edges[stack.first[file] : stack.last[file] + 1]
            events = slice(bounds[file], bounds[file + 1])
            onsets, offsets = stack.reference.onsets[events], stack.reference.offsets[events]
            if self.decimals is None:
                frames, spans = self._cut_by_touch(edges, onsets, offsets)
            else:
                end = max(edges[-1], offsets.max(initial=0))
                if self.durations is not None:
                    if stem_of(name) not in known:
                        raise DataError(f"The file {name!r} has no duration.")
                    end = known[stem_of(name)]
                frames, spans = self._cut_by_rounding(edges, onsets, offsets, end)
            empty = -np.inf if self.decimals is None else 0.0
            scores.append(_highest(stack, file, frames, empty))
            true = np.zeros((len(frames), len(stack.labels)), np.bool_)
            for c, (begin, stop) in zip(
                stack.reference.of_class[events].tolist(), spans.tolist(), strict=True
            ):
                true[begin:stop, c] = True
            truth.append(true)
        none = np.zeros((0, len(stack.labels)))
        return Pieces(
            of_file=np.repeat(np.arange(len(scores)), [len(own) for own in scores]),
            scores=np.concatenate([none, *scores]),
            truth=np.concatenate([none.astype(np.bool_), *truth]),
        )

    def _cut_by_touch(self, edges: Reals, onsets: Reals, offsets: Reals) -> tuple[Ints, Ints]:
        """Return (segments, 2) the frames of each segment, and (events, 2) the other way round."""
        first, stop = touched_segments(edges[:-1], edges[1:], self.resolution)
        spans = np.column_stack(touched_segments(onsets, offsets, self.resolution))
        n_segments = max(int(stop[-1]), int(spans[:, 1].max(initial=0)))
        number = np.arange(self._checked(n_segments))
        begin = np.searchsorted(stop, number, side="right")
        return np.column_stack([begin, np.searchsorted(first, number, side="right")]), spans

    def _cut_by_rounding(
        self, edges: Reals, onsets: Reals, offsets: Reals, end: float
    ) -> tuple[Ints, Ints]:
        n_segments = self._checked(math.ceil(end / self.resolution))
        decimals = self.decimals or 0
        edges = np.round(edges, decimals)
        cuts = np.round(np.arange(n_segments + 1) * self.resolution, decimals)
        begin = np.maximum(np.searchsorted(edges, cuts[:-1], side="right") - 1, 0)
        stop = np.minimum(np.searchsorted(edges, cuts[1:], side="left"), len(edges) - 1)
        first = np.searchsorted(cuts[1:], onsets, side="right")
        last = np.searchsorted(cuts[:-1], offsets, side="left")
        return np.column_stack([begin, stop]), np.column_stack([first, last])

    def _checked(self, n_segments: int) -> int:
        if n_segments > _MOST_SEGMENTS:
            raise SettingError(
                f"A file has {n_segments} segments of {self.resolution:g} s, too many to hold. "
                "Give a coarser resolution."
            )
        return n_segments


def _highest(stack: Stack, file: int, frames: Ints, empty: float) -> Reals:
    """Return (segments, classes): the highest score of the frames of each segment."""
    # One column more, so that a segment may end where the frames end: it is minus infinity.
    own = stack.scores[:, stack.first[file] : stack.last[file] + 1]
    is_empty = frames[:, 0] >= frames[:, 1]
    if not len(frames):
        return np.zeros((0, len(own)))
    highest = np.maximum.reduceat(own, frames.ravel(), axis=1)[:, ::2].T
    return np.where(is_empty[:, None], empty, highest)
