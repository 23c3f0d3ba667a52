"""Validation curves -> a decoding tuned for each class, from tags alone or from timed events.

Conventions: `curves` holds one (frames, classes) array a clip, `clip_probs` is (clips, classes).
Thresholds are searched within `bounds` and are exact there: every threshold between two
neighbouring scores decides alike, so trying one in each gap tries them all. Where several gaps in a
row are equally good they count as one; of such plateaus the widest is taken, at its middle.

From tags (weak): a clip counts as tagged where its gate is open and the peak of its filtered curve
reaches the threshold, and the class's F1 over clips is maximised. Tags say nothing about time:
median, `min_duration` and `max_gap` stay those of `start`, `low_threshold` keeps its share of the
threshold, and `min_duration` is left aside in the count of tagged clips. A threshold that is best
for tags need only be reached somewhere in an event, and is often too high to cover all of it: give
a `start` with hysteresis, whose low threshold then covers what the tuned one has confirmed.
`threshold_from="tags"` tunes the threshold, gate aside, and then the gate behind it;
`threshold_from="start"` keeps the threshold and tunes the gate alone, for curves one trusts.

From events (strong): segment counts, as `earmark.metrics` makes them. For each class, and each
median of the grid, the threshold is exact without hysteresis, gap filling and dropping: a segment's
score is the highest filtered probability in it, and one sort gives the counts at every threshold.
(Filtering first and thresholding later is the same as the other way round.) From the best of these
and of `start` a coordinate search goes on, one setting at a time over the grid and the gate, as
long as the score rises: that part finds a good rule, not surely the best. With `f_measure` or
`error_rate`, which classes share, it then goes round the classes, the others held fixed.

Whatever is found is never worse than `start` on the data it was tuned on.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.decoding import Decoding, Floats, Mask, Rule, find_runs, median_filter, window_frames
from earmark.errors import DataError, SettingError, choose
from earmark.events import Event
from earmark.frames import Frames
from earmark.metrics.segment import touched_segments

Reals = NDArray[np.float64]
Bounds = tuple[float, float]

N_ROUNDS = 4  # of coordinate search, at most
FINE_STEPS = (-0.03, -0.01, 0.01, 0.03)  # around a threshold, beside a coarse sweep of its range


@dataclass(frozen=True)
class Grid:
    """What the search on events tries; seconds, but for shares.

    Args:
        median: lengths of the median filter.
        low_share: `low_threshold` as a share of `threshold`.
        max_gap: gaps to fill.
        min_duration: lengths to ask for.
    """

    median: tuple[float, ...] = (0.0, 0.25, 0.4, 0.75, 1.25)
    low_share: tuple[float, ...] = (1.0, 0.75, 0.5, 0.25)
    max_gap: tuple[float, ...] = (0.0, 0.2, 0.4, 0.8)
    min_duration: tuple[float, ...] = (0.0, 0.2, 0.4, 0.8)

    def __post_init__(self) -> None:
        for name, values in asdict(self).items():
            if not values or not all(math.isfinite(value) and value >= 0 for value in values):
                raise SettingError(f"{name} of a grid must be numbers of 0 or more. Got {values}.")
        if not all(0 < share <= 1 for share in self.low_share):
            raise SettingError(f"low_share must be above 0, up to 1. Got {self.low_share}.")


@dataclass(frozen=True)
class ClassReport:
    """What tuning did to one class: F1 before and after; `note` says why it was left alone.

    Positives are clips (weak) or segments (strong) of this class.
    """

    n_positive: int
    n_negative: int
    start_f_measure: float
    f_measure: float
    note: str | None = None


@dataclass(frozen=True)
class Tuned:
    """The decoding found, and how.

    Args:
        decoding: the best found.
        supervision: "weak" (tags) or "strong" (events).
        objective: what was maximised; an error rate, minimised.
        score: of `decoding` on the tuning data.
        start_score: of the start.
        classes: label -> its report.
    """

    decoding: Decoding
    supervision: str
    objective: str
    score: float
    start_score: float
    classes: Mapping[str, ClassReport] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain dicts and lists, for a record; nan stays nan.

        >>> tuned = Tuned(Decoding.uniform(["dog"]), "weak", "clip_f_measure", 0.5, 0.5)
        >>> tuned.to_dict()["decoding"]["threshold"]
        [0.5]
        """
        return asdict(self) | {"decoding": self.decoding.to_dict()}


def tune_decoding(
    curves: Sequence[Floats],
    clip_probs: Floats,
    ruler: Frames,
    labels: Sequence[str],
    *,
    tags: Sequence[Collection[str]] | None = None,
    reference: Sequence[Sequence[Event]] | None = None,
    start: Decoding | None = None,
    threshold_from: str = "tags",
    objective: str = "class_f_measure",
    grid: Grid | None = None,
    durations: Sequence[float] | None = None,
    resolution: float = 1.0,
    bounds: tuple[float, float] = (0.05, 0.95),
) -> Tuned:
    """Return the decoding that does best on validation clips, given their tags or their events.

    Shape:
        `curves` (frames, classes) for each clip, of any number of frames; `clip_probs`
        (clips, classes).

    Args:
        curves: frame probabilities of each clip, without padding.
        clip_probs: clip probabilities.
        ruler: of the frames.
        labels: the classes, in the order of the columns.
        tags: the labels of each clip; tunes from tags.
        reference: the events of each clip; tunes from events. Give one of the two.
        start: where to start from; 0.5 for all classes without it.
        threshold_from: with tags, "tags" (tune threshold and gate) or "start" (the gate only).
        objective: with events, one of `OBJECTIVES`: the mean of the classes' F1, or the overall
            F-measure or error rate.
        grid: with events, what to try.
        durations: with events, the length of each clip in seconds, as for `decode_events`.
        resolution: with events, length of a segment in seconds.
        bounds: lowest and highest threshold to look for.

    >>> curves = [np.full((5, 1), p) for p in (0.1, 0.2, 0.4, 0.5)]
    >>> clip_probs = np.array([[0.1], [0.2], [0.4], [0.5]])
    >>> tags = [set(), set(), {"dog"}, {"dog"}]
    >>> tuned = tune_decoding(curves, clip_probs, Frames(12.5), ["dog"], tags=tags)
    >>> tuned.start_score, tuned.score, round(tuned.decoding.threshold[0], 3)
    (0.6666666666666666, 1.0, 0.3)
    """
    start = Decoding.uniform(labels) if start is None else start
    if start.labels != tuple(labels):
        raise SettingError(
            f"start must have the labels {', '.join(labels)}. Got {', '.join(start.labels)}."
        )
    data = _Clips(curves, clip_probs, ruler, start, bounds)
    if (tags is None) == (reference is None):
        raise SettingError("Tuning takes either tags=... (weak) or reference=... (strong).")
    if tags is not None:
        choose("threshold_from", threshold_from, ("start", "tags"))
        return _tune_on_tags(data, tags, threshold_from)
    assert reference is not None
    choose("objective", objective, OBJECTIVES)
    if not (math.isfinite(resolution) and resolution > 0):
        raise SettingError(f"resolution must be a number of seconds above 0. Got {resolution!r}.")
    grid = grid or Grid()
    return _tune_on_events(_Line(data, reference, grid, durations, resolution), grid, objective)


class Share(NamedTuple):
    """What one class adds to a score that is a fraction, all else held fixed.

    With some items (clips or segments) active the score is
    (gain_before + their gains) / (cost_before + their costs). F1 is one: every active item costs
    1, a right one gains 2, and the reference is there before.

    Shape: `gain` and `cost` (items,).
    """

    gain: Reals
    cost: Reals
    gain_before: float
    cost_before: float

    @classmethod
    def of_f_measure(cls, truth: Mask, gain_before: int = 0, cost_before: int = 0) -> "Share":
        """Return the F1 of a class that is really active where `truth` is.

        >>> Share.of_f_measure(np.array([True, False])).value(np.array([True, True]))
        0.6666666666666666
        """
        cost_before += int(truth.sum())
        return cls(truth * np.float64(2), np.ones(truth.shape), gain_before, cost_before)

    def value(self, active: Mask) -> float:
        """Return the score with the items of the mask `active`."""
        cost = self.cost_before + self.cost[active].sum()
        return float((self.gain_before + self.gain[active].sum()) / max(cost, 1))

    def best_threshold(self, scores: Reals, bounds: Bounds) -> float:
        """Return the best threshold within `bounds` for items that are active from their score up.

        >>> share = Share.of_f_measure(np.array([False, True, False, True]))
        >>> share.best_threshold(np.array([0.1, 0.6, 0.4, 0.8]), (0.05, 0.95))
        0.5
        """
        order = np.argsort(scores)
        ranked = scores[order]
        inside = ranked[(ranked > bounds[0]) & (ranked < bounds[1])]
        upper = np.append(
            np.unique(inside), bounds[1]
        )  # all thresholds in (lower, upper] are alike
        lower = np.append(bounds[0], upper[:-1])
        first = np.searchsorted(ranked, upper)  # active are this one and all above
        gain, cost = (
            np.append(np.cumsum(each[order][::-1])[::-1], 0.0)[first]
            for each in (self.gain, self.cost)
        )
        values = (self.gain_before + gain) / np.maximum(self.cost_before + cost, 1)
        edges = np.flatnonzero(np.diff(values == values.max(), prepend=False, append=False))
        begin, end = lower[edges[::2]], upper[edges[1::2] - 1]
        widest = np.argmax(end - begin)
        middle = (begin[widest] + end[widest]) / 2
        return float(middle if middle > begin[widest] else end[widest])


class _Clips:
    """The validation clips, checked."""

    def __init__(
        self,
        curves: Sequence[Floats],
        clip_probs: Floats,
        ruler: Frames,
        start: Decoding,
        bounds: Bounds,
    ) -> None:
        if not 0 < bounds[0] < bounds[1] <= 1:
            raise SettingError(f"bounds must be 0 < lowest < highest <= 1. Got {bounds!r}.")
        self.ruler, self.start, self.bounds, self.labels = ruler, start, bounds, start.labels
        self.curves = [np.asarray(curve) for curve in curves]
        self.clip_probs = np.asarray(clip_probs, dtype=np.float64)
        n_classes = len(self.labels)
        if self.clip_probs.shape != (len(curves), n_classes):
            raise SettingError(
                f"clip_probs must be (clips, classes), here {(len(curves), n_classes)}. "
                f"Got the shape {self.clip_probs.shape}."
            )
        for at, curve in enumerate(self.curves):
            if curve.ndim != 2 or curve.shape[1] != n_classes:
                raise SettingError(
                    f"Curve {at} must be (frames, {n_classes}). Got the shape {curve.shape}."
                )
        for values in (self.clip_probs, *self.curves):
            if values.size and not (values.min() >= 0 and values.max() <= 1):  # NaN is neither
                raise SettingError(
                    "curves and clip_probs must be probabilities from 0 to 1. "
                    f"Got values from {values.min()} to {values.max()}."
                )

    def check_length(self, name: str, values: Sequence[Any]) -> None:
        if len(values) != len(self.curves):
            raise SettingError(
                f"{name} must have one entry for each of {len(self.curves)} clips. "
                f"Got {len(values)}."
            )


def _with_threshold(rule: Rule, threshold: float) -> Rule:
    """Return the rule with another threshold; the low one keeps its share."""
    low = min(threshold, threshold * (rule.low_threshold / rule.threshold))
    return rule._replace(threshold=threshold, low_threshold=low)


def _tune_on_tags(data: _Clips, tags: Sequence[Collection[str]], threshold_from: str) -> Tuned:
    data.check_length("tags", tags)
    for at, of_clip in enumerate(tags):
        if isinstance(of_clip, str) or not set(of_clip) <= set(data.labels):
            raise DataError(
                f"The tags of clip {at} must be some of {', '.join(data.labels)}. Got {of_clip!r}."
            )
    rules, reports = [], {}
    for at, label in enumerate(data.labels):
        truth = np.array([label in of_clip for of_clip in tags], dtype=bool)
        rule, reports[label] = _tune_class_on_tags(data, at, truth, threshold_from)
        rules.append(rule)
    score = _mean(report.f_measure for report in reports.values())
    start_score = _mean(report.start_f_measure for report in reports.values())
    decoding = Decoding.from_rules(data.labels, rules)
    return Tuned(decoding, "weak", "clip_f_measure", score, start_score, reports)


def _tune_class_on_tags(
    data: _Clips, at: int, truth: Mask, threshold_from: str
) -> tuple[Rule, ClassReport]:
    rule = start = data.start.rule(data.labels[at])
    share = Share.of_f_measure(truth)
    gates = data.clip_probs[:, at]
    window = window_frames(start.median, data.ruler)
    columns = (curve[:, at : at + 1].astype(np.float64) for curve in data.curves)
    # A clip without frames has no peak, and is never tagged.
    peaks = np.array([median_filter(column, window).max(initial=0.0) for column in columns])

    def f_measure(rule: Rule) -> float:
        return share.value((gates >= rule.tag_threshold) & (peaks >= rule.threshold))

    n_positive = int(truth.sum())
    n_negative = len(truth) - n_positive
    before = f_measure(start) if n_positive else math.nan
    if not (n_positive and n_negative):
        note = f"no clip {'without' if n_positive else 'with'} this tag: kept as at the start"
        return start, ClassReport(n_positive, n_negative, before, before, note)
    if threshold_from == "tags":
        rule = _with_threshold(rule, share.best_threshold(peaks, data.bounds))
    scores = np.where(peaks >= rule.threshold, gates, -np.inf)
    gated = rule._replace(tag_threshold=share.best_threshold(scores, data.bounds))
    # No gate, and the gate of the start, may lie outside the bounds and do better.
    rule = max(gated, rule._replace(tag_threshold=0.0), start, key=f_measure)
    return rule, ClassReport(n_positive, n_negative, before, f_measure(rule))


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


class _Line:
    """All clips on one line of frames and one line of segments: a rule is tried on all at once.

    Between clips lie pads that no gap filling can cross.
    """

    def __init__(
        self,
        data: _Clips,
        reference: Sequence[Sequence[Event]],
        grid: Grid,
        durations: Sequence[float] | None,
        resolution: float,
    ) -> None:
        ends = [math.inf] * len(data.curves) if durations is None else durations
        data.check_length("reference", reference)
        data.check_length("durations", ends)
        self.data = data
        self.pad = data.ruler.index(max(*grid.max_gap, *data.start.max_gap)) + 1
        self.curves = [
            curve if end == math.inf else curve[: data.ruler.count(end)]
            for curve, end in zip(data.curves, ends, strict=True)
        ]
        longest = max(map(len, self.curves), default=0)
        edges = np.array([data.ruler.onset(index) for index in range(longest + 1)])
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
        window = window_frames(median, self.data.ruler)
        if window not in self._filtered:
            pad = np.zeros((self.pad, len(self.data.labels)), dtype=np.float32)
            pieces = [x for curve in self.curves for x in (median_filter(curve, window), pad)]
            self._filtered[window] = np.concatenate(pieces).T
        values: Reals = self._filtered[window][at].astype(np.float64)
        return values

    def active(self, at: int, rule: Rule) -> Mask:
        """(segments of the line,): where the rule finds the class."""
        ruler = self.data.ruler
        values = self.filtered(at, rule.median)
        is_open = (self.data.clip_probs[:, at] >= rule.tag_threshold)[self.clip_of_frame]
        low, high = ((values >= x) & is_open for x in (rule.low_threshold, rule.threshold))
        starts, stops = find_runs(
            low, high, ruler.index(rule.max_gap), ruler.count(rule.min_duration)
        )
        change = np.zeros(self.truth.shape[1] + 1, dtype=np.int64)
        np.add.at(change, self.first[starts], 1)
        np.add.at(change, self.stop[stops - 1], -1)
        return np.cumsum(change[:-1]) > 0

    def peaks(self, at: int, rule: Rule) -> Reals:
        """(segments of the line,): the threshold up to which a plain rule finds the class there."""
        values = self.filtered(at, rule.median)
        values[~(self.data.clip_probs[:, at] >= rule.tag_threshold)[self.clip_of_frame]] = 0
        peaks = np.zeros(self.truth.shape[1])
        span = self.stop - self.first
        for step in range(int(span.max(initial=0))):  # two, unless frames are long
            there = span > step
            np.maximum.at(peaks, self.first[there] + step, values[there])
        return peaks


class _Search:
    """The search for one rule a class, on a line of clips."""

    def __init__(self, line: _Line, grid: Grid, objective: str) -> None:
        self.line, self.grid, self.share = line, grid, OBJECTIVES[objective]

    def go_round(self, rules: Sequence[Rule]) -> list[Rule]:
        """Improve class after class, the others held fixed, until none gets better."""
        rules = list(rules)
        active = self.active(rules)
        for _ in range(N_ROUNDS):
            before = list(rules)
            for at, rule in enumerate(before):
                rules[at] = self.improve(at, rule, self.share(self.line.truth, active, at))
                active[at] = self.line.active(at, rules[at])
            if rules == before or self.share is _share_of_own:
                break
        return rules

    def active(self, rules: Sequence[Rule]) -> Mask:
        """(classes, segments of the line): where each class is found."""
        return np.stack([self.line.active(at, rule) for at, rule in enumerate(rules)])

    def score(self, rules: Sequence[Rule]) -> float:
        """Return what is maximised: the mean over classes, of equals if it is an overall score."""
        truth, active = self.line.truth, self.active(rules)
        with_reference = np.flatnonzero(truth.any(axis=1)).tolist()
        return _mean(self.share(truth, active, at).value(active[at]) for at in with_reference)

    def improve(self, at: int, start: Rule, share: Share) -> Rule:
        """Return a rule for one class whose value is not below that of `start`."""
        line, bounds = self.line, self.line.data.bounds

        def value(rule: Rule) -> float:
            return share.value(line.active(at, rule))

        def plain(median: float) -> Rule:
            rule = Rule(median=median, tag_threshold=start.tag_threshold)
            best = share.best_threshold(line.peaks(at, rule), bounds)
            return rule._replace(threshold=best, low_threshold=best)

        def gated(rule: Rule) -> Rule:
            active = line.active(at, rule._replace(tag_threshold=0.0))
            gain, cost = (
                np.bincount(line.clip_of_segment, each * active, len(line.curves)).astype(
                    np.float64
                )
                for each in (share.gain, share.cost)
            )
            of_clips = Share(gain, cost, share.gain_before, share.cost_before)
            gate = of_clips.best_threshold(line.data.clip_probs[:, at], bounds)
            return rule._replace(tag_threshold=gate)

        # The first of equals wins: nothing changes for nothing.
        best = max([start, *map(plain, (start.median, *self.grid.median))], key=value)
        for _ in range(N_ROUNDS):
            before = best
            best = max(best, best._replace(tag_threshold=0.0), gated(best), key=value)
            steps = [*np.linspace(*bounds, 19), *(best.threshold + step for step in FINE_STEPS)]
            thresholds = [float(np.clip(step, *bounds)) for step in steps]
            best = max([best, *(_with_threshold(best, t) for t in thresholds)], key=value)
            lows = [best.threshold * low_share for low_share in self.grid.low_share]
            best = max([best, *(best._replace(low_threshold=low) for low in lows)], key=value)
            for name in ("max_gap", "min_duration", "median"):
                options = [best._replace(**{name: x}) for x in getattr(self.grid, name)]
                best = max([best, *options], key=value)
            if best == before:
                break
        return best


def _tune_on_events(line: _Line, grid: Grid, objective: str) -> Tuned:
    labels, truth = line.data.labels, line.truth
    start = [line.data.start.rule(label) for label in labels]
    own = _Search(line, grid, "class_f_measure")
    search = _Search(line, grid, objective)
    rules = own.go_round(start)
    if objective != "class_f_measure":
        rules = max((search.go_round(begin) for begin in (rules, start)), key=search.score)
    before, after = own.active(start), own.active(rules)
    reports = {}
    for at, label in enumerate(labels):
        n_positive = int(truth[at].sum())
        n_negative = truth.shape[1] - n_positive
        if n_positive:
            share = Share.of_f_measure(truth[at])
            scores = share.value(before[at]), share.value(after[at])
            reports[label] = ClassReport(n_positive, n_negative, *scores)
        else:
            done = "kept as at the start" if rules[at] == start[at] else "set for few false alarms"
            note = f"no event of this class: {done}"
            reports[label] = ClassReport(0, n_negative, math.nan, math.nan, note)
    sign = -1 if objective == "error_rate" else 1  # searched as its negative, told as itself
    score, start_score = sign * search.score(rules), sign * search.score(start)
    return Tuned(
        Decoding.from_rules(labels, rules), "strong", objective, score, start_score, reports
    )


def _share_of_own(truth: Mask, active: Mask, at: int) -> Share:
    """F1 of the class itself."""
    return Share.of_f_measure(truth[at])


def _share_of_f_measure(truth: Mask, active: Mask, at: int) -> Share:
    """F1 of all classes together."""
    others = np.arange(len(truth)) != at
    n_right, n_found = (truth & active)[others].sum(), active[others].sum()
    return Share.of_f_measure(truth[at], 2 * int(n_right), int(n_found + truth[others].sum()))


def _share_of_error_rate(truth: Mask, active: Mask, at: int) -> Share:
    """Minus the error rate of all classes together."""
    others = np.arange(len(truth)) != at
    n_ref, n_est = truth.sum(axis=0), active[others].sum(axis=0)
    # Substitutions, deletions and insertions of a segment sum up to max(n_ref, n_est) - tp: one
    # class more is an error more where as many as in the reference are found already.
    errors = int(np.maximum(n_ref, n_est).sum() - (truth & active)[others].sum())
    gain = truth[at].astype(np.float64) - (n_est >= n_ref)
    return Share(gain, np.zeros(len(gain)), -errors, int(n_ref.sum()))


OBJECTIVES: dict[str, Callable[[Mask, Mask, int], Share]] = {
    "class_f_measure": _share_of_own,
    "f_measure": _share_of_f_measure,
    "error_rate": _share_of_error_rate,
}
