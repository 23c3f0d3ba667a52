"""Frame-level scores -> events.

Conventions: lengths are in seconds; the frame grid of the scores turns them into frames and back.
For each class the steps are, in this order:

1. clip-level threshold: where the clip-level score is below `clip_threshold` no frame is active.
2. median filter: each frame becomes the median of a window around it, of the odd number of frames
   nearest to `median` (the longer at a tie; 1 is no filter).
3. hysteresis: an event is a run of frames at or above `low_threshold`, of which at least one is at
   or above `threshold`. With both equal there is no hysteresis.
4. gap filling: two events with a gap of up to `max_gap` between them become one.
5. minimum length: events shorter than `min_duration` are dropped.

With a `segment` the scores of whole segments, one for each stretch of so many seconds, stand in
place of those of frames in all of these steps (`earmark.inference.segments`); it is the same for
all classes.

Every comparison is >=, in float64. At the edge of a recording the median mirrors the frames, the
edge frame included: an event that reaches the edge is taken to continue beyond it, so it needs only
half the length that one inside needs to survive, and what survives keeps its length. A median and a
threshold may change places (a median is at or above a threshold exactly where most of its window
is); that is why step 2 is a count of active frames here, and needs no sorting.

The score of an event is the mean of the frame-level scores over its frames (before the median
filter, filled gaps included), added up in order of time in float64.

There is one decoder. Its steps are in `earmark.inference.runs`. `RunFinder` applies them to many
recordings end to end, since tuning tries hundreds of rules on all validation clips; `decode_events`
gives it one. `earmark.inference.online.EventDecoder` applies them to pieces of a recording of any
length, and finds the same events.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from numbers import Real
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from earmark.errors import SettingError, choose, listed
from earmark.formats.events import Event
from earmark.frames import Floats, FrameGrid, FrameScores, Indices, Reals
from earmark.inference.runs import Mask, find_runs, majority, run_sums
from earmark.inference.segments import pool_segments

MAX_SHIFT = 20  # of a sensitivity, either way: beyond any use, and far from underflow
_MEDIAN_BLOCK = 1 << 20  # values sorted at a time: some 10 MB


@dataclass(frozen=True)
class Rule:
    """How one class is decoded; thresholds are probabilities, the rest are seconds.

    Args:
        threshold: what an event must reach somewhere.
        low_threshold: what it must keep throughout; equal to `threshold` is no hysteresis.
        median: length of the median filter; 0 is none.
        min_duration: events shorter than this are dropped.
        max_gap: gaps up to this are filled.
        clip_threshold: what the clip-level score must reach for any event; 0 is no threshold.
        segment: length of segments that are decided as a whole; 0 decides each frame.

    >>> Rule(median=0.4).threshold
    0.5
    """

    threshold: float = 0.5
    low_threshold: float = 0.5
    median: float = 0.0
    min_duration: float = 0.0
    max_gap: float = 0.0
    clip_threshold: float = 0.0
    segment: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            number = isinstance(value, Real) and not isinstance(value, bool)
            if not (number and math.isfinite(value) and value >= 0):
                raise SettingError(f"{name} must be a finite number of 0 or more. Got {value!r}.")
            object.__setattr__(self, name, float(value))
        if not 0 < self.low_threshold <= self.threshold <= 1:
            raise SettingError(
                "A rule needs 0 < low_threshold <= threshold <= 1. Got low_threshold="
                f"{self.low_threshold!r} and threshold={self.threshold!r}."
            )
        if self.clip_threshold > 1:
            raise SettingError(f"clip_threshold must be from 0 to 1. Got {self.clip_threshold!r}.")


RULE_FIELDS = tuple(Rule.__dataclass_fields__)
MAX_WINDOW_FRAMES = 2**24  # of a median filter, which holds them: 15 days at 12.5 frames per second


@dataclass(frozen=True)
class Decoding:
    """How each class is decoded: one `Rule` per label.

    Args:
        labels: the classes, in the order of the columns of the scores.
        rules: of each, in the same order.

    >>> decoding = Decoding(["dog", "cat"], [Rule(0.4, 0.4), Rule(median=0.2)])
    >>> decoding["cat"].median
    0.2
    """

    labels: tuple[str, ...]
    rules: tuple[Rule, ...]

    def __repr__(self) -> str:
        n_rules = len(set(self.rules))
        rules = repr(self.rules[0]) if n_rules == 1 else f"{n_rules} different rules"
        return f"Decoding({len(self.labels)} classes: {listed(self.labels)}; {rules})"

    def __post_init__(self) -> None:
        for name in ("labels", "rules"):
            values = getattr(self, name)
            if not isinstance(values, list | tuple):
                raise SettingError(
                    f"{name} must be a list with one entry per class. Got {values!r}."
                )
            object.__setattr__(self, name, tuple(values))
        if not all(isinstance(label, str) and label for label in self.labels) or (
            len(set(self.labels)) < len(self.labels)
        ):
            raise SettingError(f"labels must name each class once. Got {list(self.labels)}.")
        if len(self.rules) != len(self.labels) or not all(isinstance(r, Rule) for r in self.rules):
            raise SettingError(
                f"rules must be {len(self.labels)} rules, one per label. Got {self.rules!r}."
            )
        lengths = sorted({rule.segment for rule in self.rules})
        if len(lengths) > 1:
            raise SettingError(f"segment must be the same for all classes. Got {lengths}.")

    @classmethod
    def uniform(
        cls,
        labels: Sequence[str],
        threshold: float = 0.5,
        *,
        low_threshold: float | None = None,
        **settings: float,
    ) -> "Decoding":
        """Return the same rule for every class; without `low_threshold` there is no hysteresis.

        >>> Decoding.uniform(["dog", "cat"], median=0.4)["cat"].median
        0.4
        """
        for name in settings:
            choose("setting of a rule", name, RULE_FIELDS)
        low = threshold if low_threshold is None else low_threshold
        return cls(tuple(labels), (Rule(threshold, low, **settings),) * len(labels))

    @property
    def segment(self) -> float:
        """Seconds of the segments that are decided as a whole; 0 decides each frame.

        >>> Decoding.uniform(["dog"], segment=1.0).segment
        1.0
        """
        return self.rules[0].segment if self.rules else 0.0

    def with_segment(self, segment: float) -> "Decoding":
        """Return this decoding with segments of another length.

        >>> Decoding.uniform(["dog"]).with_segment(1.0)["dog"].segment
        1.0
        """
        return Decoding(self.labels, tuple(replace(rule, segment=segment) for rule in self.rules))

    def __getitem__(self, label: str) -> Rule:
        return self.rules[self.labels.index(choose("label", label, self.labels))]

    def replaced(self, label: str, **changes: float) -> "Decoding":
        """Return this decoding with other settings for one class.

        A class without hysteresis stays without, unless `low_threshold` is among the changes.

        >>> Decoding.uniform(["dog"], 0.5).replaced("dog", threshold=0.2)["dog"].low_threshold
        0.2
        """
        for change in changes:
            choose("setting of a rule", change, RULE_FIELDS)
        rule = self[label]
        if "threshold" in changes and rule.low_threshold == rule.threshold:
            changes = {"low_threshold": changes["threshold"], **changes}
        rules = list(self.rules)
        rules[self.labels.index(label)] = _make_rule(label, asdict(rule) | changes)
        return Decoding(self.labels, tuple(rules))

    def select(self, labels: Sequence[str]) -> "Decoding":
        """Return the rules of some classes, in their order.

        >>> Decoding.uniform(["dog", "cat"]).select(["cat"]).labels
        ('cat',)
        """
        return Decoding(tuple(labels), tuple(self[label] for label in labels))

    def thresholds(self) -> dict[str, tuple[float, float]]:
        """Return label -> the score that an event must reach, and the one that it must keep.

        >>> Decoding.uniform(["dog"], threshold=0.5, low_threshold=0.25).thresholds()
        {'dog': (0.5, 0.25)}
        """
        return {label: (self[label].threshold, self[label].low_threshold) for label in self.labels}

    def shifted(self, sensitivity: float) -> "Decoding":
        """Return this decoding with lower thresholds: by `sensitivity`, in log-odds.

        The threshold and the clip-level threshold t become sigmoid(logit(t) - sensitivity); a
        clip-level threshold of 0 (none) stays. They decide whether there is an event. The low
        threshold decides how long it is, and stays, unless it would be above the threshold; a class
        without hysteresis stays without.

        >>> rule = Rule(0.5, low_threshold=0.1, clip_threshold=0.2)
        >>> rule = Decoding(["dog"], [rule]).shifted(1.0)["dog"]
        >>> round(rule.threshold, 3), rule.low_threshold, round(rule.clip_threshold, 3)
        (0.269, 0.1, 0.084)
        """
        number = isinstance(sensitivity, Real) and not isinstance(sensitivity, bool)
        if not (number and abs(sensitivity) <= MAX_SHIFT):
            raise SettingError(
                f"sensitivity must be a number from {-MAX_SHIFT} to {MAX_SHIFT}; 0 changes "
                f"nothing. Got {sensitivity!r}."
            )
        if sensitivity == 0:
            return self

        def shift(threshold: float) -> float:
            if threshold in (0.0, 1.0):
                return threshold
            log_odds = math.log(threshold) - math.log1p(-threshold) - sensitivity
            return 1 / (1 + math.exp(-log_odds))

        rules = []
        for rule in self.rules:
            threshold = shift(rule.threshold)
            hysteresis = rule.low_threshold != rule.threshold
            low = min(rule.low_threshold, threshold) if hysteresis else threshold
            clip_threshold = shift(rule.clip_threshold)
            changes = {"threshold": threshold, "low_threshold": low}
            rules.append(replace(rule, **changes, clip_threshold=clip_threshold))
        return Decoding(self.labels, tuple(rules))

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return label -> its rule as plain values, for a file; without segments none is named.

        >>> Decoding.from_dict(Decoding.uniform(["dog"]).to_dict()) == Decoding.uniform(["dog"])
        True
        """
        # Versions of Earmark that know no segments read what has none.
        left_out = () if self.segment else ("segment",)
        return {
            label: {name: x for name, x in asdict(self[label]).items() if name not in left_out}
            for label in self.labels
        }

    @classmethod
    def from_dict(cls, rules: Mapping[str, Mapping[str, float]]) -> "Decoding":
        """Return the decoding that `to_dict` wrote; a setting that is not there has its default.

        >>> Decoding.from_dict({"dog": {"threshold": 0.5, "low_treshold": 0.2}})
        Traceback (most recent call last):
            ...
        earmark.errors.SettingError: There is no setting of a rule 'low_treshold'; did you mean ...
        """
        if not (isinstance(rules, Mapping) and all(isinstance(r, Mapping) for r in rules.values())):
            raise SettingError(f"A decoding maps each label to its settings. Got {rules!r}.")
        for rule in rules.values():
            for name in rule:
                choose("setting of a rule", name, RULE_FIELDS)
        return cls(tuple(rules), tuple(_make_rule(*item) for item in rules.items()))


def _make_rule(label: str, settings: Mapping[str, float]) -> Rule:
    """Return a rule; an error names its class."""
    try:
        return Rule(**settings)
    except SettingError as error:
        raise SettingError(f"The rule of {label!r} cannot be used: {error}") from None


def decode_events(scores: FrameScores, decoding: Decoding) -> list[Event]:
    """Return the events in frame-level scores, in order of time.

    The score of an event is the mean of the frame-level scores over its frames (before the median
    filter, filled gaps included). An event that reaches beyond the recording's duration ends there;
    its length is judged in whole frames, before that.

    Args:
        scores: probabilities on a frame grid; they need clip-level scores if any rule has a
            `clip_threshold`.
        decoding: with the labels of the scores.

    >>> from earmark.frames import FrameGrid
    >>> scores = FrameScores([[0.9], [0.7], [0.1], [0.2], [0.6]], ["dog"], FrameGrid(12.5))
    >>> for event in decode_events(scores, Decoding.uniform(["dog"], 0.5)):
    ...     print(event)
    Event(onset=0.0, offset=0.16, label='dog', score=0.8)
    Event(onset=0.32, offset=0.4, label='dog', score=0.6)
    """
    if scores.labels != decoding.labels:
        raise SettingError(
            f"The decoding is of {', '.join(decoding.labels)}, the scores are of "
            f"{', '.join(scores.labels)}."
        )
    finder = RunFinder([pool_segments(scores, decoding.segment)])
    events = []
    for column, (label, rule) in enumerate(zip(decoding.labels, decoding.rules, strict=True)):
        starts, stops = finder.find(column, rule)
        means = run_sums(finder.values(column), starts, stops) / (stops - starts)
        for start, stop, mean in zip(*(x.tolist() for x in (starts, stops, means)), strict=True):
            offset = min(finder.grid.offset(stop - 1), scores.duration)
            events.append(Event(finder.grid.onset(start), offset, label, mean))
    return sorted(events)


class _Windows(NamedTuple):
    """Where the frames around each frame are, recordings mirrored at their edges.

    Shape: `frames` (mirrored frames,), of the line; `first` (frames,), where a window begins there.
    """

    frames: Indices
    first: Indices


class RunFinder:
    """The decoder: finds the runs of active frames of one class in recordings laid end to end.

    Between recordings lie empty frames that no gap filling can cross.

    Args:
        recordings: probabilities with the same labels, on one frame grid.
        max_gap: the longest gap, in seconds, that any rule fills; needed with several recordings.

    >>> scores = FrameScores([[0.9], [0.7], [0.1], [0.6]], ["dog"], FrameGrid(12.5))
    >>> RunFinder([scores, scores]).find(0, Rule())
    (array([0, 3, 5, 8]), array([2, 4, 7, 9]))
    """

    def __init__(self, recordings: Sequence[FrameScores], max_gap: float = 0.0) -> None:
        grids = {recording.grid for recording in recordings}
        grid = grids.pop() if len(grids) == 1 else None
        if grid is None:
            raise SettingError("Scores to decode must be on one frame grid.")
        self.grid: FrameGrid = grid
        for recording in recordings:
            check_probabilities("frame-level scores", recording.scores)
            if recording.clip_scores is not None:
                check_probabilities("clip-level scores", recording.clip_scores)
        self.recordings = recordings
        self.lengths = [len(recording) for recording in recordings]
        self.pad = grid.index(max_gap) + 1 if len(recordings) > 1 else 0
        ends = np.cumsum([length + self.pad for length in self.lengths])
        self.starts: list[int] = [0, *ends[:-1].tolist()]
        self.n_frames = int(ends[-1]) if len(ends) else 0
        self._columns: dict[int, tuple[Reals, Reals | None]] = {}
        self._windows: dict[int, _Windows] = {}

    def find(self, column: int, rule: Rule) -> tuple[Indices, Indices]:
        """Return where runs start and where they stop, in frames of the line."""
        # A median is not above the highest score.
        is_absent = self._peaks[column] < rule.threshold
        if rule.clip_threshold > 0:  # without clip-level scores it is an error, raised below
            peaks = self._clip_peaks
            is_absent = peaks is not None and (is_absent or peaks[column] < rule.clip_threshold)
        if is_absent:
            return np.zeros(0, np.intp), np.zeros(0, np.intp)  # most classes are in no recording
        low = self.active(column, rule, rule.low_threshold)
        high = low
        if rule.low_threshold != rule.threshold:
            high = self.active(column, rule, rule.threshold)
        max_gap, min_length = self.grid.index(rule.max_gap), self.grid.count(rule.min_duration)
        return find_runs(low, high, max_gap, min_length)

    def active(self, column: int, rule: Rule, threshold: float) -> Mask:
        """Return where the filtered scores of a class reach a threshold, (frames of the line,)."""
        values, clip_values = self._column(column)
        mask = reached(values, clip_values, threshold, rule.clip_threshold)
        half = window_frames(rule.median, self.grid) // 2
        if half == 0 or not len(mask):
            return mask
        windows = self._windows_of(half)
        result = np.zeros(self.n_frames, dtype=bool)
        result[self._real_frames] = majority(mask[windows.frames], half)[windows.first]
        return result

    def values(self, column: int) -> Reals:
        """Return the scores of a class, (frames of the line,), and -1 between recordings."""
        return self._column(column)[0]

    def filtered(self, column: int, median: float) -> list[Floats]:
        """Return the median-filtered scores of a class in each recording."""
        window = window_frames(median, self.grid)
        return [
            median_filter(recording.scores[:, column].astype(np.float64), window)
            for recording in self.recordings
        ]

    @cached_property
    def _peaks(self) -> Floats:
        """The highest frame-level score of each class, in float64; -1 without any."""
        peaks: Floats = np.max(
            [own.scores.max(axis=0, initial=-1.0) for own in self.recordings], axis=0
        ).astype(np.float64)
        return peaks

    @cached_property
    def _clip_peaks(self) -> Floats | None:
        """The highest clip-level score of each class; None where recordings have none."""
        tables = [recording.clip_scores for recording in self.recordings if len(recording)]
        known = [table for table in tables if table is not None]
        if not known or len(known) < len(tables):
            return None
        peaks: Floats = np.max([table.max(axis=0) for table in known], axis=0)
        return peaks

    @cached_property
    def _real_frames(self) -> Indices:
        spans = zip(self.starts, self.lengths, strict=True)
        return np.concatenate([np.arange(start, start + length) for start, length in spans])

    def _column(self, column: int) -> tuple[Reals, Reals | None]:
        """Return frame-level and clip-level scores on the line; -1 is below any threshold."""
        if column not in self._columns:
            values, clip_values = np.full((2, self.n_frames), -1.0)
            for recording, start in zip(self.recordings, self.starts, strict=True):
                span = slice(start, start + len(recording))
                values[span] = recording.scores[:, column]
                if recording.clip_scores is not None:
                    clip_values[span] = recording.clip_scores[:, column]
            known = all(recording.clip_scores is not None for recording in self.recordings)
            self._columns = {column: (values, clip_values if known else None)}  # one at a time
        return self._columns[column]

    def _windows_of(self, half: int) -> _Windows:
        if half not in self._windows:
            # Lists that are never empty: all recordings may be.
            frames, first, n_frames = [np.zeros(0, np.intp)], [np.zeros(0, np.intp)], 0
            for start, length in zip(self.starts, self.lengths, strict=True):
                if not length:
                    continue
                own = np.pad(np.arange(start, start + length), half, mode="symmetric")
                first.append(np.arange(n_frames, n_frames + length))
                frames.append(own)
                n_frames += len(own)
            self._windows[half] = _Windows(np.concatenate(frames), np.concatenate(first))
        return self._windows[half]


def reached(
    values: Reals, clip_values: Reals | None, threshold: float, clip_threshold: float
) -> Mask:
    """Return where scores of a class reach a threshold, and clip-level scores theirs: step 1.

    >>> reached(np.array([0.6, 0.6, 0.4]), np.array([0.1, 0.9, 0.9]), 0.5, 0.2)
    array([False,  True, False])
    """
    mask = values >= threshold
    if clip_threshold > 0:
        if clip_values is None:
            raise SettingError(
                f"A clip_threshold of {clip_threshold} needs clip-level scores, and these scores "
                "have none; decode with a clip_threshold of 0."
            )
        mask &= clip_values >= clip_threshold
    return mask


def median_filter(scores: Floats, n_frames: int) -> Floats:
    """Return the median of each frame's window, mirrored at the edges as described above.

    Shape:
        (frames, ...) -> (frames, ...).

    Args:
        scores: what to filter, along its first axis.
        n_frames: length of the window, an odd number (see `window_frames`).

    >>> median_filter(np.array([0.9, 0.1, 0.2, 0.8, 0.1]), 3)
    array([0.9, 0.2, 0.2, 0.2, 0.1])
    """
    if n_frames < 1 or n_frames % 2 == 0:
        raise SettingError(f"n_frames of a median must be odd. Got {n_frames!r}.")
    if n_frames == 1 or len(scores) == 0:
        return scores
    half = n_frames // 2
    padded = np.pad(scores, [(half, half)] + [(0, 0)] * (scores.ndim - 1), mode="symmetric")
    windows = sliding_window_view(padded, n_frames, axis=0)  # (frames, ..., window)
    filtered = np.empty_like(scores)
    step = max(1, _MEDIAN_BLOCK // max(1, n_frames * math.prod(scores.shape[1:])))
    for first in range(0, len(filtered), step):
        block = np.partition(windows[first : first + step], half, axis=-1)
        filtered[first : first + step] = block[..., half]
    return filtered


def window_frames(median: float, grid: FrameGrid) -> int:
    """Return the odd number of frames nearest to `median` seconds; the longer at a tie.

    >>> [window_frames(median, FrameGrid(12.5)) for median in (0, 0.08, 0.16, 0.4)]
    [1, 1, 3, 5]
    """
    n_frames = 2 * (grid.index(median) // 2) + 1
    if n_frames > MAX_WINDOW_FRAMES:
        raise SettingError(
            f"A median of {median:g} s has {n_frames:,} frames; give a shorter one, of at most "
            f"{MAX_WINDOW_FRAMES:,}."
        )
    return n_frames


def check_probabilities(name: str, values: Floats) -> None:
    """Raise `SettingError` unless all values are from 0 to 1.

    >>> check_probabilities("scores", np.array([0.5, 1.5]))
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: The scores must be probabilities from 0 to 1. Got values from ...
    """
    if values.size and not (values.min() >= 0 and values.max() <= 1):  # NaN is neither
        raise SettingError(
            f"The {name} must be probabilities from 0 to 1. Got values from {values.min()} to "
            f"{values.max()}; pass logits through a sigmoid first."
        )
