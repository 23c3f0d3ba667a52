"""Validation scores and their labels -> one decoding rule per class.

Conventions: `reference` and what is active are (classes, items); an item is a clip (from tags) or a
segment (from events). Classes are improved one after another, the others held fixed, until none
gets better; where the objective is each class's own, one round is enough. Whether an item is active
is always decided by the decoder itself (`RunFinder`); median-filtered scores only propose
thresholds to it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from earmark.errors import DataError, SettingError
from earmark.formats.events import Event
from earmark.frames import FrameScores, Reals
from earmark.inference.decoding import Decoding, Mask, Rule, RunFinder
from earmark.inference.tuning.objectives import OBJECTIVES, Bounds, Share, with_threshold
from earmark.metrics.segment import touched_segments

TAG_ROUNDS = 20  # it takes three or four
EVENT_ROUNDS = 4  # over the classes, and of the coordinate search of each
FINE_STEPS = (-0.03, -0.01, 0.01, 0.03)  # around a threshold, besides a coarse sweep of its range


@dataclass(frozen=True)
class SearchGrid:
    """What the search on events tries; seconds, but for ratios.

    Args:
        median: lengths of the median filter.
        low_ratio: `low_threshold` as a fraction of `threshold`.
        max_gap: gaps to fill.
        min_duration: minimum lengths.

    >>> SearchGrid(median=(0.0, 0.5)).low_ratio
    (1.0, 0.75, 0.5, 0.25)
    """

    median: tuple[float, ...] = (0.0, 0.25, 0.4, 0.75, 1.25)
    low_ratio: tuple[float, ...] = (1.0, 0.75, 0.5, 0.25)
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


class Search(ABC):
    """The search for one rule per class; a subclass knows what an item is and what to try."""

    supervision: str
    n_rounds: int

    def __init__(self, reference: Mask, start: Decoding, objective: str) -> None:
        self.reference, self.objective = reference, objective
        self.labels, self.start = start.labels, start.rules
        self.share = OBJECTIVES[objective]

    @abstractmethod
    def active_of(self, at: int, rule: Rule) -> Mask:
        """Return which items a rule makes active, (items,)."""

    @abstractmethod
    def improve(self, at: int, rule: Rule, share: Share) -> Rule:
        """Return a rule for class `at` whose value is not below that of `rule`."""

    @abstractmethod
    def note(self, at: int, rule: Rule) -> str | None:
        """Return why nothing could be tuned for a class, or None."""

    def run(self) -> list[Rule]:
        """Return the rules found."""
        return self.improve_all(self.start)

    def improve_all(self, rules: Sequence[Rule]) -> list[Rule]:
        """Improve one class after another until none gets better, or the rounds are over."""
        rules = list(rules)
        active = self.active(rules)
        for _ in range(self.n_rounds):
            before = list(rules)
            for at, rule in enumerate(before):
                rules[at] = self.improve(at, rule, self.share(self.reference, active, at))
                active[at] = self.active_of(at, rules[at])
            if rules == before or self.objective == "class_f_measure":
                break
        return rules

    def active(self, rules: Sequence[Rule]) -> Mask:
        """Return the estimate of each class, (classes, items)."""
        return np.stack([self.active_of(at, rule) for at, rule in enumerate(rules)])

    def value(self, rules: Sequence[Rule]) -> float:
        """Return what is maximised: the mean over classes, of equals if it is an overall score."""
        active = self.active(rules)
        values = [
            self.share(self.reference, active, at).value(active[at])
            for at in np.flatnonzero(self.reference.any(axis=1)).tolist()
        ]
        known = [value for value in values if not math.isnan(value)]
        return math.fsum(known) / len(known) if known else math.nan

    def score(self, rules: Sequence[Rule]) -> float:
        """Return the objective; an error rate is maximised as its negative and reported as is."""
        value = self.value(rules)
        return 0.0 - value if self.objective == "error_rate" else value  # 0 without a sign


class TagSearch(Search):
    """The search on clips and their tags.

    A clip counts as tagged where it has any active frame, `min_duration` aside: its clip-level
    score reaches `clip_threshold` and the peak of its filtered scores the threshold. The threshold
    is exact, clip-level threshold aside; so is the clip-level threshold after it. With `shared`
    both are the same for all classes: all classes and clips are searched as one.
    """

    supervision = "weak"
    n_rounds = TAG_ROUNDS

    def __init__(
        self,
        scores: Sequence[FrameScores],
        tags: Sequence[Collection[str]],
        start: Decoding,
        objective: str,
        bounds: Bounds,
        *,
        tune_frames: bool,
        shared: bool,
    ) -> None:
        labels = start.labels
        for at, of_clip in enumerate(tags):
            if isinstance(of_clip, str) or not set(of_clip) <= set(labels):
                raise DataError(
                    f"The tags of clip {at} must be some of {', '.join(labels)}. Got {of_clip!r}."
                )
        reference = np.array([[label in of_clip for of_clip in tags] for label in labels], bool)
        super().__init__(reference.reshape(len(labels), len(tags)), start, objective)
        self.bounds, self.tune_frames, self.shared = bounds, tune_frames, shared
        self.finder = RunFinder(scores, max(rule.max_gap for rule in start.rules))
        self.clip_scores = clip_table(scores)
        # A clip without frames has no peak, and is never tagged.
        self.peaks = [
            np.array([x.max(initial=0.0) for x in self.finder.filtered(at, rule.median)])
            for at, rule in enumerate(start.rules)
        ]

    def active_of(self, at: int, rule: Rule) -> Mask:
        """(clips,): where the decoder finds the class, however short."""
        starts, _ = self.finder.find(at, replace(rule, min_duration=0.0))
        tagged = np.zeros(len(self.finder.recordings), dtype=bool)
        tagged[np.searchsorted(self.finder.starts, starts, side="right") - 1] = True
        return tagged

    def run(self) -> list[Rule]:
        """See `Search.run`."""
        return self._run_shared() if self.shared else super().run()

    def note(self, at: int, rule: Rule) -> str | None:
        """See `Search.note`."""
        n_positive, n_clips = int(self.reference[at].sum()), self.reference.shape[1]
        if 0 < n_positive < n_clips:
            return None
        kept = "thresholds of the others" if self.shared else "kept as at the start"
        return f"no clip {'without' if n_positive else 'with'} this tag: {kept}"

    def improve(self, at: int, rule: Rule, share: Share) -> Rule:
        """See `Search.improve`; the value is not below that of the start either."""
        if not 0 < self.reference[at].sum() < self.reference.shape[1]:
            return rule  # without a clip with this tag, or one without it, nothing can be learned
        now, start = rule, self.start[at]
        peaks = self.peaks[at]

        def value(rule: Rule) -> float:
            return share.value(self.active_of(at, rule))

        rule = start
        if self.tune_frames:
            rule = with_threshold(rule, share.best_threshold(peaks, self.bounds))
        scores = np.where(peaks >= rule.threshold, self.clip_scores[:, at], -np.inf)
        tuned = replace(rule, clip_threshold=share.best_threshold(scores, self.bounds))
        # No clip-level threshold, and that of the start, may lie outside the bounds and do better.
        best = max(tuned, replace(rule, clip_threshold=0.0), start, key=value)
        return best if now == start or value(best) > value(now) else now

    def _run_shared(self) -> list[Rule]:
        if not self.reference.any():
            raise DataError("No clip has a tag: there is nothing to tune on.")
        share = Share.of_f_measure(self.reference.ravel())
        peaks, clip_scores = np.concatenate(self.peaks), self.clip_scores.T.ravel()
        rules = list(self.start)
        if self.tune_frames:
            threshold = share.best_threshold(peaks, self.bounds)
            rules = [with_threshold(rule, threshold) for rule in rules]
        wanted = np.repeat([rule.threshold for rule in rules], self.reference.shape[1])
        best = share.best_threshold(np.where(peaks >= wanted, clip_scores, -np.inf), self.bounds)
        # No clip-level threshold, and those of the start, may lie outside the bounds.
        options = (best, 0.0, *sorted({rule.clip_threshold for rule in self.start}))
        return max(
            ([replace(rule, clip_threshold=option) for rule in rules] for option in options),
            key=self.value,
        )


class EventSearch(Search):
    """The search on segments of recordings with known events.

    Segments are those of `earmark.metrics`; a recording has as many as its frames or its events
    touch. For each median of the grid the threshold of a plain rule (no hysteresis, gap filling or
    minimum length) is exact; from the best of these and of the start a coordinate search goes on,
    one setting at a time, as long as the value rises.
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
    ) -> None:
        self.bounds, self.search_grid = bounds, search_grid
        gaps = [*search_grid.max_gap, *(rule.max_gap for rule in start.rules)]
        self.finder = RunFinder(scores, max(gaps))
        self.clip_scores = clip_table(scores)
        super().__init__(self._lay_out(reference, start.labels, resolution), start, objective)

    def _lay_out(
        self, reference: Sequence[Sequence[Event]], labels: Sequence[str], resolution: float
    ) -> Mask:
        """Number the segments of all recordings in a row; return the reference's, by class."""
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
                if event.label not in labels:
                    raise DataError(
                        f"The reference has events of {event.label!r}, which is not among the "
                        f"labels {', '.join(labels)}."
                    )
                event_spans.append((labels.index(event.label), begin, stop))
            n_segments += lengths[-1]
        table = np.zeros((len(labels), n_segments), dtype=bool)
        for at, begin, stop in event_spans:
            table[at, begin:stop] = True
        if not table.any():
            raise DataError("The reference has no events: there is nothing to tune on.")
        self.first, self.stop = np.concatenate(spans, axis=1)
        self.clip_of_segment = np.repeat(np.arange(len(spans)), lengths)
        return table

    def active_of(self, at: int, rule: Rule) -> Mask:
        """(segments,): where the decoder finds the class."""
        starts, stops = self.finder.find(at, rule)
        change = np.zeros(self.reference.shape[1] + 1, dtype=np.int64)
        np.add.at(change, self.first[starts], 1)
        np.add.at(change, self.stop[stops - 1], -1)
        return np.cumsum(change[:-1]) > 0

    def note(self, at: int, rule: Rule) -> str | None:
        """See `Search.note`."""
        if self.reference[at].any():
            return None
        done = "kept as at the start" if rule == self.start[at] else "set for few false alarms"
        return f"no event of this class: {done}"

    def run(self) -> list[Rule]:
        """See `Search.run`: each class for itself first, then, if asked, for the overall score."""
        objective, share = self.objective, self.share
        self.objective, self.share = "class_f_measure", OBJECTIVES["class_f_measure"]
        rules = self.improve_all(self.start)
        self.objective, self.share = objective, share
        if objective == "class_f_measure":
            return rules
        return max((self.improve_all(begin) for begin in (rules, self.start)), key=self.value)

    def improve(self, at: int, rule: Rule, share: Share) -> Rule:
        """See `Search.improve`."""
        start, bounds = rule, self.bounds

        def value(rule: Rule) -> float:
            return share.value(self.active_of(at, rule))

        def plain(median: float) -> Rule:
            rule = Rule(median=median, clip_threshold=start.clip_threshold)
            best = share.best_threshold(self._peaks(at, rule), bounds)
            return replace(rule, threshold=best, low_threshold=best)

        def with_clip_threshold(rule: Rule) -> Rule:
            active = self.active_of(at, replace(rule, clip_threshold=0.0))
            n_clips = len(self.clip_scores)
            gain, cost = (
                np.bincount(self.clip_of_segment, each * active, n_clips).astype(np.float64)
                for each in (share.gain, share.cost)
            )
            of_clips = Share(gain, cost, share.gain_before, share.cost_before)
            best = of_clips.best_threshold(self.clip_scores[:, at], bounds)
            return replace(rule, clip_threshold=best)

        # The first of equals wins: nothing changes for nothing.
        best = max([start, *map(plain, (start.median, *self.search_grid.median))], key=value)
        for _ in range(EVENT_ROUNDS):
            before = best
            best = max(
                best, replace(best, clip_threshold=0.0), with_clip_threshold(best), key=value
            )
            steps = [*np.linspace(*bounds, 19), *(best.threshold + step for step in FINE_STEPS)]
            thresholds = [float(np.clip(step, *bounds)) for step in steps]
            best = max([best, *(with_threshold(best, t) for t in thresholds)], key=value)
            lows = [best.threshold * ratio for ratio in self.search_grid.low_ratio]
            best = max([best, *(replace(best, low_threshold=low) for low in lows)], key=value)
            for name in ("max_gap", "min_duration", "median"):
                options = [replace(best, **{name: x}) for x in getattr(self.search_grid, name)]
                best = max([best, *options], key=value)
            if best == before:
                break
        return best

    def _peaks(self, at: int, rule: Rule) -> Reals:
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


def clip_table(scores: Sequence[FrameScores]) -> Reals:
    """Return the clip-level scores of all recordings, (recordings, classes)."""
    return np.stack([recording.clip_level() for recording in scores]).astype(np.float64)
