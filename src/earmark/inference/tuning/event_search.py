"""The search for one decoding rule per class from events, drawn towards the start.

Conventions as in `search`. There are two: `SegmentSearch` for segment-based scores, `CollarSearch`
for the event-based one.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earmark.errors import DataError, SettingError
from earmark.formats.events import Event
from earmark.frames import FrameScores, Reals
from earmark.inference.decoding import Decoding, Rule, RunFinder
from earmark.inference.runs import Mask
from earmark.inference.tuning.moves import distance, moved, with_low_ratio
from earmark.inference.tuning.objectives import OBJECTIVES, Bounds, Share, with_threshold
from earmark.inference.tuning.search import Counts, Search, clip_table
from earmark.metrics.event_arrays import EventArrays, align_events
from earmark.metrics.matching import EventRule, candidate_pairs, match_pairs
from earmark.metrics.segment import touched_segments

EVENT_ROUNDS = 4  # over the classes, and of the coordinate search of each
SHIFTS = (-2.0, -1.0, -0.5, -0.25, 0.25, 0.5, 1.0, 2.0)  # of the thresholds of all, in log-odds
FINE_STEPS = (-0.03, -0.01, 0.01, 0.03)  # around a threshold, besides a coarse sweep of its range
MATCHED = EventRule()  # the collars of `earmark.metrics.event`


@dataclass(frozen=True)
class SearchGrid:
    """What the search on events tries; seconds, but for ratios.

    Args:
        median: lengths of the median filter.
        low_ratio: `low_threshold` as a fraction of `threshold`.
        max_gap: gaps to fill.
        min_duration: minimum lengths.

    >>> SearchGrid(median=(0.0, 0.5)).low_ratio
    (1.0, 0.75, 0.5, 0.25, 0.1)
    """

    median: tuple[float, ...] = (0.0, 0.25, 0.4, 0.75, 1.25)
    low_ratio: tuple[float, ...] = (1.0, 0.75, 0.5, 0.25, 0.1)
    max_gap: tuple[float, ...] = (0.0, 0.2, 0.4, 0.8)
    min_duration: tuple[float, ...] = (0.0, 0.2, 0.4, 0.8)

    def __post_init__(self) -> None:
        for name, values in asdict(self).items():
            if not values or not all(math.isfinite(value) and value >= 0 for value in values):
                raise SettingError(
                    f"{name} of a search grid must be numbers of 0 or more. Got {values}."
                )
        if not all(0 < ratio <= 1 for ratio in self.low_ratio):
            raise SettingError(f"low_ratio must be above 0, up to 1. Got {self.low_ratio}.")


class EventSearch(Search):
    """The search on recordings with known events: a rule per class, drawn towards the start.

    What is maximised is the objective less a penalty, `shrinkage` times the distance of the rules
    from the start (`distance`). It is the logarithm of a prior, and the objective over n clips
    stands for a likelihood: so the penalty is divided by the number of clips that speak for a
    setting. First all classes change alike, for which every clip speaks; then each class leaves
    these rules, for which its own clips do.

    For each median of the grid the threshold of a plain rule (no hysteresis, gap filling or minimum
    length) is proposed; from the best of these and of the start a coordinate search goes on, one
    setting at a time, as long as the value rises.
    """

    supervision = "strong"
    n_rounds = EVENT_ROUNDS

    def __init__(
        self,
        scores: Sequence[FrameScores],
        reference: Sequence[Sequence[Event]],
        start: Decoding,
        objective: str,
        bounds: Bounds,
        search_grid: SearchGrid,
        resolution: float,
        shrinkage: float,
    ) -> None:
        if not (math.isfinite(resolution) and resolution > 0):
            raise SettingError(
                f"resolution must be a number of seconds above 0. Got {resolution!r}."
            )
        if not (math.isfinite(shrinkage) and shrinkage >= 0):
            raise SettingError(f"shrinkage must be a number of 0 or more. Got {shrinkage!r}.")
        self.bounds, self.search_grid, self.shrinkage = bounds, search_grid, shrinkage
        gaps = [*search_grid.max_gap, *(rule.max_gap for rule in start.rules)]
        self.finder = RunFinder(scores, max(gaps))
        for event in (event for events in reference for event in events):
            if event.label not in start.labels:
                raise DataError(
                    f"The reference has events of {event.label!r}, which is not among the "
                    f"labels {', '.join(start.labels)}."
                )
        if not any(reference):
            raise DataError("The reference has no events: there is nothing to tune on.")
        table, clip_of_item = self.lay_out(reference, start.labels, resolution)
        super().__init__(table, clip_of_item, clip_table(scores), start, objective)
        self.centre = self.start
        present = self._sum_by_clip(table) > 0  # (classes, clips)
        self.n_present = present.sum(axis=1)

    @abstractmethod
    def lay_out(
        self, reference: Sequence[Sequence[Event]], labels: Sequence[str], resolution: float
    ) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """Return the reference, (classes, items), and the clip of each item."""

    @abstractmethod
    def clip_share(self, at: int, rule: Rule, share: Share) -> Share:
        """Return what each clip gains and costs with a rule."""

    @abstractmethod
    def highest(self, at: int, share: Share) -> float:
        """Return the value that no rule of the class can exceed, with the others as they are."""

    @abstractmethod
    def plain_thresholds(self, at: int, rule: Rule, share: Share) -> list[float]:
        """Return the thresholds to try with a rule that has no other post-processing."""

    def note(self, at: int, rule: Rule) -> str | None:
        """See `Search.note`."""
        if self.reference[at].any():
            return None
        if rule == self.start[at]:
            return "no event of this class: kept as at the start"
        done = "changed as the others" if rule == self.centre[at] else "set for few false alarms"
        return f"no event of this class: {done}"

    def run(self) -> list[Rule]:
        """See `Search.run`: all classes alike first, then each class."""
        self.centre = self._improve_together(self.start)
        rules = self.improve_all(self.centre)
        if self.objective != "error_rate":
            return rules
        # One class more is no error where another is missing: classes wait for each other, so the
        # search goes on from their own best as well.
        of_classes = self._with_objective("class_f_measure").improve_all(self.centre)
        return max(rules, self.improve_all(of_classes), key=self._penalised)

    def _with_objective(self, objective: str) -> "EventSearch":
        """Return the same search for another objective."""
        other = copy(self)
        other.objective, other.share = objective, OBJECTIVES[objective]
        return other

    def _penalised(self, rules: Sequence[Rule]) -> float:
        return self.value(rules) - math.fsum(self.penalty(*own) for own in enumerate(rules))

    def penalty(self, at: int, rule: Rule) -> float:
        """Return what it costs that a class leaves the rules that all changed to."""
        own = self.objective == "class_f_measure"
        n_clips = int(self.n_present[at] if own else self.n_present.sum())
        return self.shrinkage * distance(rule, self.centre[at]) / max(1, n_clips)

    def improve(self, at: int, rule: Rule, share: Share) -> Rule:
        """See `Search.improve`; the value is less the penalty."""
        start, bounds, grid = rule, self.bounds, self.search_grid
        everywhere = np.ones(self.n_clips, dtype=bool)
        highest = self.highest(at, share)

        def value(rule: Rule) -> float:
            return self.clip_share(at, rule, share).value(everywhere) - self.penalty(at, rule)

        best, best_value, tried = start, value(start), {start}

        def choose_from(rules: Iterable[Rule]) -> None:
            """Take the best; the first of equals, so that nothing changes for nothing."""
            nonlocal best, best_value
            for option in rules:
                if option in tried:
                    continue
                tried.add(option)
                if highest - self.penalty(at, option) > best_value:  # else it cannot be better
                    own = value(option)
                    if own > best_value:
                        best, best_value = option, own

        threshold = self.centre[at].threshold
        shortest, smallest = min(grid.min_duration), min(grid.max_gap)  # 0, if they may be
        for median in dict.fromkeys((start.median, *grid.median)):
            clip_threshold = start.clip_threshold
            plain = Rule(threshold, threshold, median, shortest, smallest, clip_threshold)
            if highest - self.penalty(at, plain) > best_value:  # its threshold alone costs nothing
                thresholds = self.plain_thresholds(at, plain, share)
                choose_from(with_threshold(plain, own) for own in thresholds)
        for _ in range(EVENT_ROUNDS):
            before = best
            of_clips = self.clip_share(at, replace(best, clip_threshold=0.0), share)
            clip_threshold = of_clips.best_threshold(self.clip_scores[:, at], bounds)
            choose_from([replace(best, clip_threshold=x) for x in (0.0, clip_threshold)])
            steps = [*np.linspace(*bounds, 19), *(best.threshold + step for step in FINE_STEPS)]
            choose_from([with_threshold(best, float(np.clip(step, *bounds))) for step in steps])
            choose_from([with_low_ratio(best, ratio) for ratio in grid.low_ratio])
            for name in ("max_gap", "min_duration", "median"):
                choose_from([replace(best, **{name: x}) for x in getattr(grid, name)])
            if best == before:
                break
        return best

    def _improve_together(self, rules: Sequence[Rule]) -> tuple[Rule, ...]:
        """Change one setting of all classes at a time, as long as the value rises."""
        best, grid = tuple(rules), self.search_grid
        (best_value,) = self._values_together([best])
        tried = {best}
        options_of = {
            "threshold": SHIFTS,
            "low_ratio": grid.low_ratio,
            "clip_threshold": (-math.inf, *SHIFTS),
            "max_gap": grid.max_gap,
            "min_duration": grid.min_duration,
            "median": grid.median,
        }
        for _ in range(EVENT_ROUNDS):
            before = best
            for name, options in options_of.items():
                moves = [
                    tuple(moved(rule, name, to, self.bounds) for rule in best) for to in options
                ]
                new = [option for option in dict.fromkeys(moves) if option not in tried]
                tried.update(new)
                for option, value in zip(new, self._values_together(new), strict=True):
                    if value > best_value:
                        best, best_value = option, value
            if best == before:
                break
        return best

    def _values_together(self, options: Sequence[tuple[Rule, ...]]) -> list[float]:
        """Return the value of each, less the penalty of all classes together."""
        # A class at a time: the decoder keeps the scores of one.
        estimates = [
            [self.estimate_of(at, rule) for rule in column]
            for at, column in enumerate(zip(*options, strict=True))
        ]
        values = []
        for rules, *estimate in zip(options, *estimates, strict=True):
            away = [distance(*pair) for pair in zip(rules, self.start, strict=True)]
            penalty = self.shrinkage * math.fsum(away) / len(away) / int(self.n_present.sum())
            values.append(self.fractions(np.stack(estimate)).value() - penalty)
        return values


class SegmentSearch(EventSearch):
    """The search for segment-based scores; plain thresholds are exact.

    Segments are those of `earmark.metrics`; a recording has as many as its frames or its events
    touch.
    """

    def lay_out(
        self, reference: Sequence[Sequence[Event]], labels: Sequence[str], resolution: float
    ) -> tuple[Mask, NDArray[np.intp]]:
        """Number the segments of all recordings in a row; see `EventSearch.lay_out`."""
        # of each frame of the line: the first segment that it touches, and the one after its last
        spans: list[NDArray[np.int64]] = []
        event_spans: list[tuple[int, int, int]] = []
        lengths: list[int] = []
        n_segments = 0
        for recording, events in zip(self.finder.recordings, reference, strict=True):
            edges = recording.edges
            span = np.stack(touched_segments(edges[:-1], edges[1:], resolution))
            times = np.array([(event.onset, event.offset) for event in events]).reshape(-1, 2)
            event_span = np.stack(touched_segments(times[:, 0], times[:, 1], resolution))
            lengths.append(int(max(span[1].max(initial=0), event_span[1].max(initial=0))))
            spans.append(np.pad(span + n_segments, ((0, 0), (0, self.finder.pad))))
            for event, begin, stop in zip(events, *(event_span + n_segments).tolist(), strict=True):
                event_spans.append((labels.index(event.label), begin, stop))
            n_segments += lengths[-1]
        table = np.zeros((len(labels), n_segments), dtype=bool)
        for at, begin, stop in event_spans:
            table[at, begin:stop] = True
        self.first, self.stop = np.concatenate(spans, axis=1)
        return table, np.repeat(np.arange(len(spans)), lengths)

    def estimate_of(self, at: int, rule: Rule) -> Mask:
        """(segments,): where the decoder finds the class."""
        starts, stops = self.finder.find(at, rule)
        change = np.zeros(self.reference.shape[1] + 1, dtype=np.int64)
        np.add.at(change, self.first[starts], 1)
        np.add.at(change, self.stop[stops - 1], -1)
        return np.cumsum(change[:-1]) > 0

    def clip_share(self, at: int, rule: Rule, share: Share) -> Share:
        """See `EventSearch.clip_share`."""
        return share.by_clip(self.estimate_of(at, rule), self.clip_of_item, self.n_clips)

    def highest(self, at: int, share: Share) -> float:
        """See `EventSearch.highest`: that of all segments that gain more than they cost."""
        return share.value(share.gain > share.cost)

    def plain_thresholds(self, at: int, rule: Rule, share: Share) -> list[float]:
        """Return the best of all; see `EventSearch.plain_thresholds`."""
        return [share.best_threshold(self.peaks(at, rule), self.bounds)]

    def peaks(self, at: int, rule: Rule) -> Reals:
        """(segments,): the threshold up to which a plain rule finds the class there."""
        pad = np.zeros(self.finder.pad)
        pieces = [x for each in self.finder.filtered(at, rule.median) for x in (each, pad)]
        values = np.concatenate(pieces)
        passed = self.clip_scores[:, at] >= rule.clip_threshold
        values[~np.repeat(passed, [n + self.finder.pad for n in self.finder.lengths])] = 0
        peaks = np.zeros(self.reference.shape[1])
        span = self.stop - self.first
        for step in range(int(span.max(initial=0))):  # two, unless frames are long
            there = span > step
            np.maximum.at(peaks, self.first[there] + step, values[there])
        return peaks


class CollarSearch(EventSearch):
    """The search for event-based scores, as `earmark.metrics.event` counts them by default.

    Shape: the reference is (classes, clips), how many events each has; an estimate of a class is
    (2, clips), how many are correct, and how many there are in all.
    """

    def lay_out(
        self, reference: Sequence[Sequence[Event]], labels: Sequence[str], resolution: float
    ) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """Collect the events of each class; see `EventSearch.lay_out`."""
        named = {str(clip): events for clip, events in enumerate(reference)}
        events = align_events(named, {}, labels).reference
        self.events = [events.select(events.class_index == at) for at in range(len(labels))]
        n_clips = len(reference)
        table = [np.bincount(own.file_index, minlength=n_clips) for own in self.events]
        self.durations = np.array([own.duration for own in self.finder.recordings])
        return np.stack(table), np.arange(n_clips)

    def estimate_of(self, at: int, rule: Rule) -> NDArray[np.int64]:
        """(2, clips): how many events of the class are correct, and how many there are."""
        starts, stops = self.finder.find(at, rule)
        clips = np.searchsorted(self.finder.starts, starts, side="right") - 1
        first = np.asarray(self.finder.starts)[clips]
        onsets = self.times[starts - first]
        offsets = np.minimum(self.times[stops - first], self.durations[clips])
        estimate = EventArrays(clips, np.full(len(clips), at), onsets, offsets)
        reference = self.events[at]
        groups = (reference.file_index, clips)
        ref, est = candidate_pairs(reference, estimate, groups, MATCHED)
        matched = match_pairs(ref, est, reference.file_index[ref], MATCHED.matching)
        return np.stack(
            [np.bincount(own, minlength=self.n_clips) for own in (clips[est[matched]], clips)]
        )

    @cached_property
    def times(self) -> Reals:
        """Where frames begin, and the last one ends, in seconds."""
        return self.finder.grid.onsets(max(self.finder.lengths, default=0) + 1)

    def counts(self, estimate: NDArray[Any]) -> Counts:
        """See `Search.counts`."""
        n_right, n_estimated = np.moveaxis(estimate, 1, 0).astype(np.float64)
        return Counts(n_right.T, n_estimated.T, self.reference.T.astype(np.float64))

    def sizes(self, at: int) -> tuple[int, int]:
        """Return how many events of the class there are, and how many clips without one."""
        return int(self.reference[at].sum()), int((self.reference[at] == 0).sum())

    def clip_share(self, at: int, rule: Rule, share: Share) -> Share:
        """See `EventSearch.clip_share`."""
        n_right, n_estimated = self.estimate_of(at, rule).astype(np.float64)
        return share._replace(gain=2 * n_right, cost=n_estimated)

    def highest(self, at: int, share: Share) -> float:
        """See `EventSearch.highest`: that of the reference."""
        n_events = self.reference[at].astype(np.float64)
        return share._replace(gain=2 * n_events, cost=n_events).value(n_events > 0)

    def plain_thresholds(self, at: int, rule: Rule, share: Share) -> list[float]:
        """Return a coarse sweep; see `EventSearch.plain_thresholds`."""
        return [float(x) for x in np.linspace(*self.bounds, 19)]
