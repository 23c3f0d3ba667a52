"""Pieces of frame-level scores -> events as soon as they are final, in constant memory.

`EventDecoder` finds the events that `earmark.inference.decoding.decode_events` finds in the whole
recording, bit for bit, whatever the sizes of the pieces: it applies the same steps
(`earmark.inference.runs`) and holds what the next piece may still change.

When an event is final: the median needs half of its window behind a frame. A run has ended where
the filtered scores fall below the low threshold. Then `max_gap` must pass without another run; a
run that has begun there and is below the threshold so far must end or be confirmed first. With
segments, a segment must be complete. And the last frame is held until the next one is known: the
end of a recording may cut it, or attach it to the segment before.

Of a run that has not ended only sums and maxima are held, not its frames. So memory is bounded,
also if a run never ends: by a segment, the window of the median, and the largest piece.

Conventions: events come in the order in which they become final, those of one call sorted by time;
an event that starts early and is long may come after a short one that starts later.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from earmark.errors import SettingError
from earmark.formats.events import Event
from earmark.frames import Floats, FrameGrid, Indices, Reals
from earmark.inference.calibration import Calibration, log_odds_features
from earmark.inference.decoding import (
    Decoding,
    Rule,
    check_probabilities,
    reached,
    window_frames,
)
from earmark.inference.runs import (
    MajorityFilter,
    Mask,
    active_runs,
    join_runs,
    run_maxima,
    run_sums,
)
from earmark.inference.segments import pool_frames, segments_at


class _Units(NamedTuple):
    """What is decided as a whole, frames or segments: scores, and what calibration needs of them.

    Shape: (units, classes) all.
    """

    values: Floats
    clips: Floats | None
    peaks: Floats
    clip_peaks: Floats

    def of_class(self, column: int) -> "_ClassUnits":
        values, peaks, clip_peaks = (
            each[:, column].astype(np.float64)
            for each in (self.values, self.peaks, self.clip_peaks)
        )
        clips = None if self.clips is None else self.clips[:, column].astype(np.float64)
        return _ClassUnits(values, clips, peaks, clip_peaks)


class _ClassUnits(NamedTuple):
    """The same of one class, (units,) all."""

    values: Reals
    clips: Reals | None
    peaks: Reals
    clip_peaks: Reals


class _Runs(NamedTuple):
    """Runs of one class with what is known of their frames, (runs,) each; stops are exclusive."""

    starts: Indices
    stops: Indices
    sums: Reals
    peaks: Reals
    clips: Reals

    def select(self, which: slice | Mask) -> "_Runs":
        sums, peaks, clips = (each[which] for each in (self.sums, self.peaks, self.clips))
        return _Runs(self.starts[which], self.stops[which], sums, peaks, clips)


class _Reduced(NamedTuple):
    """Sum, peak and highest clip-level score of some units."""

    total: float
    peak: float
    clip: float


class EventDecoder:
    """The decoder for scores that come in pieces.

    Args:
        decoding: how each class is decoded.
        grid: the frame grid of the scores.
        calibration: of the scores of events, if there is one; it needs clip-level scores.

    >>> decoder = EventDecoder(Decoding.uniform(["dog"], 0.5), FrameGrid(12.5))
    >>> decoder.push([[0.9], [0.7], [0.1]])
    []
    >>> decoder.push([[0.2], [0.6]])
    [Event(onset=0.0, offset=0.16, label='dog', score=0.8)]
    >>> decoder.finish()
    [Event(onset=0.32, offset=0.4, label='dog', score=0.6)]
    """

    def __init__(
        self, decoding: Decoding, grid: FrameGrid, calibration: Calibration | None = None
    ) -> None:
        self.decoding, self.grid, self.calibration = decoding, grid, calibration
        if 0 < decoding.segment < grid.hop:
            raise SettingError(
                f"A segment must last at least as long as a frame, {grid.hop:g} s. Got "
                f"{decoding.segment!r}."
            )
        self._segments = FrameGrid(1 / decoding.segment) if decoding.segment else None
        self._classes = [_ClassDecoder(rule, self._segments or grid) for rule in decoding.rules]
        self._first = 0  # frame of the first that is held
        self._next = 0  # unit that comes next
        self._held: Floats | None = None
        self._held_clips: Floats | None = None
        self._is_finished = False

    @property
    def n_frames(self) -> int:
        """How many frames there were so far."""
        return self._first + (0 if self._held is None else len(self._held))

    @property
    def delay(self) -> float:
        """Seconds of scores that an event needs behind its offset to become final, at most.

        This holds once the scores of its class are below the low threshold for the time of a gap.

        >>> EventDecoder(Decoding.uniform(["dog"], median=0.4, max_gap=0.24), FrameGrid(12.5)).delay
        0.56
        """
        n_units = max((each.delay for each in self._classes), default=0)
        if self._segments is None:
            return self.grid.onset(n_units + 1)
        # The first frame with its centre behind a segment ends 1.5 frames behind it at most.
        return self._segments.onset(n_units) + 2.5 * self.grid.hop

    def push(self, scores: ArrayLike, clip_scores: ArrayLike | None = None) -> list[Event]:
        """Return the events that are final after the next frames, sorted.

        Shape: `scores` and `clip_scores` (frames, classes).
        """
        self._add(np.asarray(scores), None if clip_scores is None else np.asarray(clip_scores))
        return self._decode(self.n_frames - 1, None)

    def finish(self, duration: float | None = None) -> list[Event]:
        """Return the remaining events, sorted; nothing can be pushed afterwards.

        Args:
            duration: of the recording in seconds, which ends in the last frame, or with the frame
                before; by default all of the last frame.
        """
        n_frames = self.n_frames
        duration = self.grid.onset(n_frames) if duration is None else duration
        wanted = self.grid.count(duration)
        if not n_frames - 1 <= wanted <= n_frames:
            raise SettingError(
                f"A duration of {duration} s needs {wanted} frames of scores. Got {n_frames}."
            )
        events = self._decode(wanted, duration)
        self._is_finished = True
        return events

    def _add(self, scores: Floats, clips: Floats | None) -> None:
        if self._is_finished:
            raise SettingError("This recording is finished; decode another with another decoder.")
        shape = (len(scores), len(self.decoding.labels))
        if scores.shape != shape or (clips is not None and clips.shape != shape):
            raise SettingError(
                f"Scores must be (frames, {shape[1]}), one column per label. Got the shapes "
                f"{scores.shape} and {None if clips is None else clips.shape}."
            )
        check_probabilities("frame-level scores", scores)
        if clips is not None:
            check_probabilities("clip-level scores", clips)
        elif self.calibration is not None:
            raise SettingError("Calibrated scores need clip-level scores.")
        if self._held is None:
            self._held, self._held_clips = scores, clips
            return
        if (clips is None) != (self._held_clips is None):
            raise SettingError("All pieces of a recording need clip-level scores, or none.")
        self._held = np.concatenate([self._held, scores])
        if clips is not None and self._held_clips is not None:
            self._held_clips = np.concatenate([self._held_clips, clips])

    def _decode(self, stop: int, duration: float | None) -> list[Event]:
        """Decode the frames up to `stop`, to the end of the recording if there is a duration."""
        is_last = duration is not None
        if self._held is None or stop < self._first or (stop == self._first and not is_last):
            return []
        units = self._units(stop, duration)
        grid = self._segments or self.grid
        events: list[Event] = []
        features: list[Reals] = []
        for column, decoder in enumerate(self._classes):
            runs = decoder.push(units.of_class(column), is_last)
            if not len(runs.starts):
                continue
            means = runs.sums / (runs.stops - runs.starts)
            features.append(np.stack([means, runs.peaks, runs.clips]))
            label = self.decoding.labels[column]
            for start, end, mean in zip(
                *(x.tolist() for x in (runs.starts, runs.stops, means)), strict=True
            ):
                offset = grid.offset(end - 1)
                offset = offset if duration is None else min(offset, duration)
                events.append(Event(grid.onset(start), offset, label, mean))
        if self.calibration is not None and events:
            table = log_odds_features(*np.concatenate(features, axis=1))
            events = self.calibration.apply_to_features(events, table)
        return sorted(events)

    def _units(self, stop: int, duration: float | None) -> _Units:
        """Return the units that are complete with the frames up to `stop`, and release these."""
        assert self._held is not None
        scores = self._held[: stop - self._first]
        clips = None if self._held_clips is None else self._held_clips[: len(scores)]
        if self._segments is None:
            self._release(stop)
            return _Units(scores, clips, scores, scores if clips is None else clips)
        index = segments_at(self.grid, self._segments, self._first, stop)
        if duration is not None:
            # A frame that is cut by the end of the recording belongs to the last segment.
            index = np.minimum(index, self._segments.count(duration) - 1)
            last = int(index[-1]) + 1 if len(index) else self._next
        else:
            last = int(index[-1])  # the segment that is not complete
        own = (index >= self._next) & (index < last)
        if not own.any():
            return _Units(scores[:0], None if clips is None else clips[:0], scores[:0], scores[:0])
        pooled, pooled_clips = pool_frames(scores[own], None if clips is None else clips[own],
                                           index[own])  # fmt: skip
        peaks, clip_peaks = pooled, pooled
        if self.calibration is not None and self._held_clips is not None:
            spans = [self._frames_of(at, duration) for at in range(self._next, last)]
            peaks, clip_peaks = (
                np.stack([table[span].max(axis=0) for span in spans])
                for table in (self._held, self._held_clips)
            )
        self._next = last
        # A segment of a calibrated event has the frames that it touches, one more on each side.
        self._release(self.grid.index(self._segments.onset(last)))
        return _Units(pooled, pooled_clips, peaks, clip_peaks)

    def _frames_of(self, segment: int, duration: float | None) -> slice:
        """Return the frames that a segment touches, as `event_features` has them, in the held."""
        assert self._segments is not None
        offset = self._segments.offset(segment)
        offset = offset if duration is None else min(offset, duration)
        first = self.grid.index(self._segments.onset(segment))
        return slice(first - self._first, self.grid.count(offset) - self._first)

    def _release(self, first: int) -> None:
        assert self._held is not None
        done = max(0, first - self._first)
        self._held, self._first = self._held[done:], self._first + done
        if self._held_clips is not None:
            self._held_clips = self._held_clips[done:]


class _ClassDecoder:
    """The runs of one class in units that come in pieces.

    Of units that were passed on it holds those that the median needs, at most two runs (one that
    more may be joined to, and one that has not ended), and what is known of their units: `_open`
    from the start of the first of the two up to the last unit, `_closed` up to the stop of the run
    that more may be joined to.
    """

    def __init__(self, rule: Rule, grid: FrameGrid) -> None:
        self._rule = rule
        half = window_frames(rule.median, grid) // 2
        self._low, self._high = MajorityFilter(half), MajorityFilter(half)
        self._max_gap = grid.index(rule.max_gap)
        self._min_length = grid.count(rule.min_duration)
        self.delay = half + self._max_gap + 1  # units behind an event until it is final
        self._begin = 0  # the first unit that has not been filtered yet
        self._held: list[Reals] = [np.zeros(0)] * 3  # values, peaks, clips from `_begin` on
        self._starts = self._stops = np.zeros(0, np.intp)
        self._confirmed = np.zeros(0, bool)
        self._open = self._closed = _Reduced(0.0, 0.0, 0.0)

    def push(self, units: _ClassUnits, is_last: bool) -> _Runs:
        """Return the runs that are final after the next units."""
        rule, (values, clips, peaks, clip_peaks) = self._rule, units
        more = (values, peaks, clip_peaks)
        self._held = [np.concatenate(pair) for pair in zip(self._held, more, strict=True)]
        low = self._low.push(
            reached(values, clips, rule.low_threshold, rule.clip_threshold), is_last
        )
        high = low
        if rule.low_threshold != rule.threshold:
            high = self._high.push(
                reached(values, clips, rule.threshold, rule.clip_threshold), is_last
            )
        runs = self._advance(*active_runs(low, high), len(low), is_last)
        long = runs.stops - runs.starts >= self._min_length
        return runs.select(long)

    def _advance(
        self, starts: Indices, stops: Indices, confirmed: Mask, n_units: int, is_last: bool
    ) -> _Runs:
        """Return the runs that are final, given those of the next filtered units."""
        begin, end = self._begin, self._begin + n_units
        starts, stops = starts + begin, stops + begin
        if n_units and len(starts) and len(self._stops) and self._stops[-1] == starts[0] == begin:
            confirmed = confirmed.copy()
            confirmed[0] |= self._confirmed[-1]
            starts[0] = self._starts[-1]  # one run that the end of the piece before cut
            self._drop_last()
        starts = np.concatenate([self._starts, starts])
        stops = np.concatenate([self._stops, stops])
        confirmed = np.concatenate([self._confirmed, confirmed])
        n_closed = len(starts)
        if n_closed and stops[-1] == end and not is_last:
            n_closed -= 1  # the last run may continue
        kept = np.flatnonzero(confirmed[:n_closed])
        joined_starts, joined_stops = join_runs(starts[kept], stops[kept], self._max_gap)
        # The next run starts at `bound` at the earliest, or where the one that continues started.
        bound = end if n_closed == len(starts) else int(starts[-1])
        n_final = len(joined_starts)
        if n_final and not is_last and bound - joined_stops[-1] <= self._max_gap:
            n_final -= 1
        runs = self._reduce(joined_starts, joined_stops, begin)
        self._starts = np.concatenate([joined_starts[n_final:], starts[n_closed:]])
        self._stops = np.concatenate([joined_stops[n_final:], stops[n_closed:]])
        self._confirmed = np.concatenate(
            [np.ones(len(joined_starts) - n_final, bool), confirmed[n_closed:]]
        )
        if len(self._starts):
            first = self._starts[:1]
            whole = self._reduce(first, np.array([end]), begin)
            if n_final < len(joined_starts):
                self._closed = _Reduced(*(float(x[-1]) for x in runs[2:]))
            self._open = _Reduced(*(float(x[0]) for x in whole[2:]))
        self._held = [each[n_units:] for each in self._held]
        self._begin = end
        return runs.select(slice(n_final))

    def _drop_last(self) -> None:
        self._starts, self._stops = self._starts[:-1], self._stops[:-1]
        self._confirmed = self._confirmed[:-1]

    def _reduce(self, starts: Indices, stops: Indices, begin: int) -> _Runs:
        """Return runs with their sums and maxima; the first may start before the unit `begin`."""
        # What is known of the units before stands in place of them, in front of the next ones.
        parts = [np.concatenate([[x], own]) for x, own in zip(self._open, self._held, strict=True)]
        first = np.maximum(starts - begin, -1) + 1
        last = np.maximum(stops - begin, 0) + 1
        sums = run_sums(parts[0], first, last)
        peaks, clips = (run_maxima(part, first, last) for part in parts[1:])
        if len(stops) and stops[0] < begin:  # it ended before, and what followed is not part of it
            sums[0], peaks[0], clips[0] = self._closed
        return _Runs(starts, stops, sums, peaks, clips)
