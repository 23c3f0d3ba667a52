"""Checked clips and their events -> one line of frames and segments, on which a rule is tried.

Conventions: the clips lie end to end, in their order. Segments are those of `earmark.metrics`; a
clip has as many as its frames or its events touch.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from earmark.errors import DataError
from earmark.formats.events import Event
from earmark.inference.decoding import Floats, Mask, Rule, find_runs, median_filter, window_frames
from earmark.inference.tuning.clips import Clips
from earmark.inference.tuning.thresholds import Reals
from earmark.metrics.segment import touched_segments


class Line:
    """All clips on one line of frames and one line of segments: a rule is tried on all at once.

    Between clips lie pads that no gap filling can cross.

    Args:
        data: the clips.
        reference: the events of each.
        max_gap: the longest gap, in seconds, that any rule to be tried fills.
        durations: the length of each clip in seconds; as long as its frames without it.
        resolution: length of a segment in seconds.

    Shape: `truth` (classes, segments of the line).

    >>> from earmark.inference.decoding import Decoding
    >>> from earmark.frames import FrameGrid
    >>> curve, gate = np.repeat([[0.9], [0.1]], 25, axis=0), np.array([[0.9]])
    >>> clips = Clips([curve], gate, FrameGrid(12.5), Decoding.uniform(["dog"]), (0.05, 0.95))
    >>> line = Line(clips, [[Event(1, 3, "dog")]], 0.0, None, 1.0)
    >>> line.truth[0].tolist(), line.active(0, Rule()).tolist()
    ([False, True, True, False], [True, True, False, False])
    """

    def __init__(
        self,
        data: Clips,
        reference: Sequence[Sequence[Event]],
        max_gap: float,
        durations: Sequence[float] | None,
        resolution: float,
    ) -> None:
        ends = [math.inf] * len(data.curves) if durations is None else durations
        data.check_length("reference", reference)
        data.check_length("durations", ends)
        self.data = data
        self.pad = data.grid.index(max([max_gap, *data.start.max_gap])) + 1
        self.curves = [
            curve if end == math.inf else curve[: data.grid.count(end)]
            for curve, end in zip(data.curves, ends, strict=True)
        ]
        longest = max(map(len, self.curves), default=0)
        edges = np.array([data.grid.onset(index) for index in range(longest + 1)])
        # of each frame: the first segment that it touches, and the one after its last
        spans: list[NDArray[np.int64]] = []
        true_spans: list[tuple[int, int, int]] = []
        lengths: list[int] = []
        n_segments = 0
        for curve, end, events in zip(self.curves, ends, reference, strict=True):
            offsets = np.minimum(edges[1 : len(curve) + 1], end)
            span = np.stack(touched_segments(edges[: len(curve)], offsets, resolution))
            true = np.array([(event.onset, event.offset) for event in events]).reshape(-1, 2)
            true_span = np.stack(touched_segments(true[:, 0], true[:, 1], resolution))
            lengths.append(int(max(span[1].max(initial=0), true_span[1].max(initial=0))))
            spans.append(np.pad(span + n_segments, ((0, 0), (0, self.pad))))
            for event, begin, stop in zip(events, *(true_span + n_segments).tolist(), strict=True):
                if event.label not in data.labels:
                    raise DataError(
                        f"The reference has events of {event.label!r}, which is not among the "
                        f"labels {', '.join(data.labels)}."
                    )
                true_spans.append((data.labels.index(event.label), begin, stop))
            n_segments += lengths[-1]
        self.truth = np.zeros((len(data.labels), n_segments), dtype=bool)
        for at, begin, stop in true_spans:
            self.truth[at, begin:stop] = True
        if not self.truth.any():
            raise DataError("The reference has no events: there is nothing to tune on.")
        self.first, self.stop = np.concatenate(spans, axis=1)
        self.clip_of_frame = np.repeat(np.arange(len(spans)), [span.shape[1] for span in spans])
        self.clip_of_segment = np.repeat(np.arange(len(spans)), lengths)
        self._filtered: dict[int, Floats] = {}

    def filtered(self, at: int, median: float) -> Reals:
        """(frames of the line,): the filtered curves of one class, 0 in the pads."""
        window = window_frames(median, self.data.grid)
        if window not in self._filtered:
            pad = np.zeros((self.pad, len(self.data.labels)), dtype=np.float32)
            pieces = [x for curve in self.curves for x in (median_filter(curve, window), pad)]
            self._filtered[window] = np.concatenate(pieces).T
        values: Reals = self._filtered[window][at].astype(np.float64)
        return values

    def active(self, at: int, rule: Rule) -> Mask:
        """(segments of the line,): where the rule finds the class."""
        grid = self.data.grid
        values = self.filtered(at, rule.median)
        is_open = (self.data.clip_probs[:, at] >= rule.clip_threshold)[self.clip_of_frame]
        low, high = ((values >= x) & is_open for x in (rule.low_threshold, rule.threshold))
        starts, stops = find_runs(
            low, high, grid.index(rule.max_gap), grid.count(rule.min_duration)
        )
        change = np.zeros(self.truth.shape[1] + 1, dtype=np.int64)
        np.add.at(change, self.first[starts], 1)
        np.add.at(change, self.stop[stops - 1], -1)
        return np.cumsum(change[:-1]) > 0

    def peaks(self, at: int, rule: Rule) -> Reals:
        """(segments of the line,): the threshold up to which a plain rule finds the class there."""
        values = self.filtered(at, rule.median)
        values[~(self.data.clip_probs[:, at] >= rule.clip_threshold)[self.clip_of_frame]] = 0
        peaks = np.zeros(self.truth.shape[1])
        span = self.stop - self.first
        for step in range(int(span.max(initial=0))):  # two, unless frames are long
            there = span > step
            np.maximum.at(peaks, self.first[there] + step, values[there])
        return peaks
