"""The criterion that compares reference and detections in segments, at every threshold.

A class is active in a segment as soon as one of its frames there is. So a segment has one score per
class, the highest of the frames that overlap it, and everything about any threshold follows from
these segment scores.

Conventions: there are two ways to divide a file into segments.

- As sed_eval and `segment_scores` do (`decimals=None`): a frame or an event overlaps the segments
  from floor(onset / resolution) to ceil(offset / resolution), in floating point. The length of a
  file is the end of its scores or its last event; past the end of the scores nothing is detected.
- As sed_scores_eval 0.0.4 does (`decimals=6`): edges of frames and of segments are rounded to that
  many decimals and compared. The length of a file is taken from `durations`; events beyond it are
  ignored, and past the end of the scores the score is 0. Without `durations`, the length is the end
  of the scores or the last event.

They differ where a frame edge equals a segment edge but for floating-point error, and past the end
of the scores.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from earmark.errors import DataError, SettingError
from earmark.formats.names import stem_of
from earmark.metrics.count_deltas import CountDeltas
from earmark.metrics.event_arrays import Bools, Ints, Reals
from earmark.metrics.segment import check_resolution, touched_segments
from earmark.metrics.stacked_scores import StackedScores

_MAX_SEGMENTS = 1 << 24  # per file: a hundred megabytes per class


@dataclass(frozen=True, eq=False)
class SegmentTable:
    """The segments of all files, end to end.

    Shape: `file_index` (segments,); `scores` and `reference` (segments, classes).

    >>> SegmentTable(np.array([0]), np.array([[0.9]]), np.array([[True]])).scores.shape
    (1, 1)
    """

    file_index: Ints
    scores: Reals
    reference: Bools

    def count_deltas(self) -> CountDeltas:
        """Return the deltas of true positives, false positives and errors of all classes.

        In a segment with `n_ref` classes in the reference, substitutions, deletions and insertions
        sum to max(n_ref, n_est) - tp over all classes: an active class beyond the first `n_ref`
        adds an error, a true positive removes one.

        >>> scores, reference = np.array([[0.9, 0.5]]), np.array([[False, True]])
        >>> SegmentTable(np.array([0]), scores, reference).count_deltas().values.tolist()
        [[0, 1], [1, 0], [0, 0]]
        """
        n_classes = self.scores.shape[1]
        rank = np.argsort(np.argsort(-self.scores, axis=1, kind="stable"), axis=1)
        is_surplus = rank >= self.reference.sum(axis=1, keepdims=True)
        true = self.reference.ravel().astype(np.int32)
        class_index = np.tile(np.arange(n_classes), len(self.scores))
        values = np.stack([true, 1 - true, is_surplus.ravel().astype(np.int32) - true])
        file_index = np.repeat(self.file_index, n_classes)
        return CountDeltas.merge(
            [CountDeltas(file_index, class_index, self.scores.ravel(), values, class_index)]
        )

    def n_ref(self, n_files: int) -> Ints:
        """Return (files, classes): in how many segments each class is active in the reference.

        >>> table = SegmentTable(np.array([0, 0]), np.zeros((2, 1)), np.array([[True], [True]]))
        >>> table.n_ref(1)
        array([[2]])
        """
        total = np.zeros((n_files, self.reference.shape[1]), np.int64)
        np.add.at(total, self.file_index, self.reference)
        return total

    def concatenate(self, other: "SegmentTable", n_files: int) -> "SegmentTable":
        """Return the segments of both, the files of `other` indexed from `n_files` on.

        >>> table = SegmentTable(np.array([0]), np.zeros((1, 1)), np.array([[True]]))
        >>> table.concatenate(table, 1).file_index
        array([0, 1])
        """
        return SegmentTable(
            np.concatenate([self.file_index, other.file_index + n_files]),
            np.concatenate([self.scores, other.scores]),
            np.concatenate([self.reference, other.reference]),
        )


@dataclass(frozen=True)
class SegmentCriterion:
    """Detections and reference events are compared in segments of `resolution` seconds.

    Args:
        resolution: length of a segment.
        decimals: None to divide files as sed_eval does, 6 to divide them as sed_scores_eval does.
        durations: file name -> its length in seconds, for the latter.

    >>> SegmentCriterion(0.0)
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
                "durations have no effect with decimals=None (segments as in sed_eval). Omit them, "
                "or pass decimals=6 for segments as in sed_scores_eval."
            )

    def segments(self, stacked: StackedScores) -> SegmentTable:
        """Return the segments of all files.

        >>> from earmark.formats.scores import ScoreTable
        >>> from earmark.formats.events import Event
        >>> from earmark.metrics.stacked_scores import stack_scores
        >>> scores = ScoreTable(["dog"], {"a": ([0, 0.8, 2.0], [[0.9], [0.2]])})
        >>> stacked = stack_scores({"a": [Event(1, 2, "dog")]}, scores)
        >>> table = SegmentCriterion(1.0).segments(stacked)
        >>> table.scores.ravel().tolist(), table.reference.ravel().tolist()
        ([0.9, 0.2], [False, True])
        """
        bounds = np.searchsorted(stacked.reference.file_index, np.arange(len(stacked.files) + 1))
        durations = {stem_of(name): seconds for name, seconds in (self.durations or {}).items()}
        scores, reference = [], []
        for file, name in enumerate(stacked.files):
            edges = stacked.edges[stacked.first[file] : stacked.last[file] + 1]
            events = stacked.reference.select(slice(bounds[file], bounds[file + 1]))
            if self.decimals is None:
                frames, spans = self._divide_exactly(edges, events.onsets, events.offsets)
            else:
                end = max(edges[-1], events.offsets.max(initial=0))
                if self.durations is not None:
                    if stem_of(name) not in durations:
                        raise DataError(
                            f"The file {name!r} has no entry in durations. Add its seconds."
                        )
                    end = durations[stem_of(name)]
                frames, spans = self._divide_rounded(edges, events.onsets, events.offsets, end)
            if_empty = -np.inf if self.decimals is None else 0.0
            scores.append(_maximum_per_segment(stacked, file, frames, if_empty))
            active = np.zeros((len(frames), len(stacked.labels)), np.bool_)
            for c, (begin, stop) in zip(events.class_index.tolist(), spans.tolist(), strict=True):
                active[begin:stop, c] = True
            reference.append(active)
        none = np.zeros((0, len(stacked.labels)))
        return SegmentTable(
            file_index=np.repeat(np.arange(len(scores)), [len(own) for own in scores]),
            scores=np.concatenate([none, *scores]),
            reference=np.concatenate([none.astype(np.bool_), *reference]),
        )

    def _divide_exactly(self, edges: Reals, onsets: Reals, offsets: Reals) -> tuple[Ints, Ints]:
        """Return the frames of each segment (segments, 2), the segments of each event (events, 2).

        Both are half-open ranges of indices.
        """
        first, stop = touched_segments(edges[:-1], edges[1:], self.resolution)
        spans = np.column_stack(touched_segments(onsets, offsets, self.resolution))
        n_segments = max(int(stop[-1]), int(spans[:, 1].max(initial=0)))
        segment = np.arange(self._checked(n_segments))
        begin = np.searchsorted(stop, segment, side="right")
        return np.column_stack([begin, np.searchsorted(first, segment, side="right")]), spans

    def _divide_rounded(
        self, edges: Reals, onsets: Reals, offsets: Reals, end: float
    ) -> tuple[Ints, Ints]:
        n_segments = self._checked(math.ceil(end / self.resolution))
        decimals = self.decimals or 0
        edges = np.round(edges, decimals)
        bounds = np.round(np.arange(n_segments + 1) * self.resolution, decimals)
        begin = np.maximum(np.searchsorted(edges, bounds[:-1], side="right") - 1, 0)
        stop = np.minimum(np.searchsorted(edges, bounds[1:], side="left"), len(edges) - 1)
        first = np.searchsorted(bounds[1:], onsets, side="right")
        last = np.searchsorted(bounds[:-1], offsets, side="left")
        return np.column_stack([begin, stop]), np.column_stack([first, last])

    def _checked(self, n_segments: int) -> int:
        if n_segments > _MAX_SEGMENTS:
            raise SettingError(
                f"A file has {n_segments} segments of {self.resolution:g} s, more than the "
                f"{_MAX_SEGMENTS} supported. Pass a larger resolution."
            )
        return n_segments


def _maximum_per_segment(stacked: StackedScores, file: int, frames: Ints, if_empty: float) -> Reals:
    """Return (segments, classes): the highest score of the frames of each segment."""
    # Includes the last row, minus infinity, so that a segment may end where the frames end.
    own = stacked.scores[:, stacked.first[file] : stacked.last[file] + 1]
    is_empty = frames[:, 0] >= frames[:, 1]
    if not len(frames):
        return np.zeros((0, len(own)))
    highest = np.maximum.reduceat(own, frames.ravel(), axis=1)[:, ::2].T
    return np.where(is_empty[:, None], if_empty, highest)
