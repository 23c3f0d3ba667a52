"""Frame probabilities -> events.

Conventions: `frame_probs` is (frames, classes); lengths are in seconds, and `FrameGrid` turns them
into frames and back. For each class the steps are, in this order:

1. gate: where the clip probability is below `clip_threshold` no frame is active.
2. median: each frame becomes the median of a window around it, of the odd number of frames nearest
   to `median` (the longer at a tie; 1 is no filter).
3. threshold: an event is a run of frames at or above `low_threshold`, of which at least one is at
   or above `threshold`. With both equal there is no hysteresis.
4. fill: two events with a gap of up to `max_gap` between them become one.
5. drop: events shorter than `min_duration` go.

Every comparison is >=, in float64. At the edge of a clip the median mirrors the frames, the edge
frame included: an event that reaches the edge is taken to go on beyond it, so it needs only half
the length that one inside needs to survive, and what survives keeps its length. A median and a
threshold may change places (a median is at or above a threshold just where most of its window is);
that is why step 2 is a count of active frames here, and takes no sorting.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from earmark.errors import SettingError, choose
from earmark.formats.events import Event
from earmark.frames import FrameGrid

Floats = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]
Indices = NDArray[np.intp]

_MEDIAN_BLOCK = 1 << 20  # values sorted at a time: some 10 MB


class Rule(NamedTuple):
    """How one class is decoded; thresholds are probabilities, the rest are seconds."""

    threshold: float = 0.5
    low_threshold: float = 0.5
    median: float = 0.0
    min_duration: float = 0.0
    max_gap: float = 0.0
    clip_threshold: float = 0.0

    def check(self, label: str) -> None:
        """Raise a `SettingError` that names the class unless the rule can work."""
        for name, value in self._asdict().items():
            number = isinstance(value, Real) and not isinstance(value, bool)
            if not (number and math.isfinite(value) and value >= 0):
                raise SettingError(
                    f"{name} of {label!r} must be a finite number of 0 or more. Got {value!r}."
                )
        if not 0 < self.low_threshold <= self.threshold <= 1:
            raise SettingError(
                f"{label!r} needs 0 < low_threshold <= threshold <= 1. Got low_threshold="
                f"{self.low_threshold!r} and threshold={self.threshold!r}."
            )
        if self.clip_threshold > 1:
            raise SettingError(
                f"clip_threshold of {label!r} must be from 0 to 1. Got {self.clip_threshold!r}."
            )


@dataclass(frozen=True)
class Decoding:
    """How each class is decoded: one value a class, in the order of `labels`.

    Args:
        labels: the classes, in the order of the columns of `frame_probs`.
        threshold: what an event must reach somewhere.
        low_threshold: what it must keep throughout; equal to `threshold` is no hysteresis.
        median: length of the median filter in seconds; 0 is none.
        min_duration: events shorter than this are dropped, in seconds.
        max_gap: gaps up to this are filled, in seconds.
        clip_threshold: what the clip probability must reach for any event; 0 is no gate.

    >>> Decoding.uniform(["dog", "cat"], 0.4).replaced("cat", threshold=0.7).threshold
    (0.4, 0.7)
    """

    labels: tuple[str, ...]
    threshold: tuple[float, ...]
    low_threshold: tuple[float, ...]
    median: tuple[float, ...]
    min_duration: tuple[float, ...]
    max_gap: tuple[float, ...]
    clip_threshold: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("labels", *Rule._fields):
            values = getattr(self, name)
            if not isinstance(values, list | tuple):
                raise SettingError(f"{name} must be a list with one entry a class. Got {values!r}.")
            if len(values) != len(self.labels):
                raise SettingError(
                    f"{name} must have one value for each of {len(self.labels)} classes. "
                    f"Got {len(values)}."
                )
            object.__setattr__(self, name, tuple(values))  # a list from a file will do
        if not all(isinstance(label, str) and label for label in self.labels) or (
            len(set(self.labels)) < len(self.labels)
        ):
            raise SettingError(f"labels must name each class once. Got {list(self.labels)}.")
        for label in self.labels:
            self.rule(label).check(label)
        for name in Rule._fields:
            object.__setattr__(self, name, tuple(map(float, getattr(self, name))))

    @classmethod
    def uniform(
        cls,
        labels: Sequence[str],
        threshold: float = 0.5,
        *,
        low_threshold: float | None = None,
        median: float = 0.0,
        min_duration: float = 0.0,
        max_gap: float = 0.0,
        clip_threshold: float = 0.0,
    ) -> "Decoding":
        """Return the same rule for every class; without `low_threshold` there is no hysteresis.

        >>> Decoding.uniform(["dog", "cat"], median=0.4).median
        (0.4, 0.4)
        """
        low = threshold if low_threshold is None else low_threshold
        rule = Rule(threshold, low, median, min_duration, max_gap, clip_threshold)
        return cls.from_rules(labels, [rule] * len(labels))

    @classmethod
    def from_rules(cls, labels: Sequence[str], rules: Sequence[Rule]) -> "Decoding":
        """Return the decoding with one rule a class.

        >>> Decoding.from_rules(["dog"], [Rule(median=0.4)]).rule("dog").median
        0.4
        """
        columns = zip(*rules, strict=True) if rules else [()] * len(Rule._fields)
        return cls(tuple(labels), *columns)

    def rule(self, label: str) -> Rule:
        """Return how one class is decoded.

        >>> Decoding.uniform(["dog"], 0.3).rule("dog").threshold
        0.3
        """
        at = self.labels.index(choose("label", label, self.labels))
        return Rule(*(getattr(self, name)[at] for name in Rule._fields))

    def replaced(self, label: str, **changes: float) -> "Decoding":
        """Return this decoding with other settings for one class.

        A class without hysteresis stays without, unless `low_threshold` is among the changes.

        >>> Decoding.uniform(["dog"], 0.5).replaced("dog", threshold=0.2).low_threshold
        (0.2,)
        """
        for change in changes:
            choose("setting of a class", change, Rule._fields)
        rule = self.rule(label)
        if "threshold" in changes and rule.low_threshold == rule.threshold:
            changes = {"low_threshold": changes["threshold"], **changes}
        rules = [self.rule(other) for other in self.labels]
        rules[self.labels.index(label)] = rule._replace(**changes)
        return Decoding.from_rules(self.labels, rules)

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the settings as plain lists, for a file.

        >>> Decoding.from_dict(Decoding.uniform(["dog"]).to_dict()) == Decoding.uniform(["dog"])
        True
        """
        return {name: list(getattr(self, name)) for name in ("labels", *Rule._fields)}

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> "Decoding":
        """Return the decoding that `to_dict` wrote; every setting must be there, and no other.

        >>> Decoding.from_dict({"labels": ["dog"]})
        Traceback (most recent call last):
            ...
        earmark.errors.SettingError: The decoding has no 'threshold', ... Got: labels.
        """
        names = ("labels", *Rule._fields)
        if not isinstance(settings, Mapping):
            raise SettingError(f"A decoding is a table of settings. Got {settings!r}.")
        for name in settings:
            choose("setting of a decoding", name, names)
        missing = [repr(name) for name in names if name not in settings]
        if missing:
            raise SettingError(
                f"The decoding has no {', '.join(missing)}. Got: {', '.join(settings) or '-'}."
            )
        return cls(**settings)


def decode_events(
    frame_probs: Floats,
    grid: FrameGrid,
    decoding: Decoding,
    clip_probs: Floats | None = None,
    duration: float | None = None,
) -> list[Event]:
    """Return the events in a curve of frame probabilities, in order of time.

    The score of an event is the mean of `frame_probs` (as they came, before gate and median) over
    its frames, filled gaps included.

    Shape:
        `frame_probs` (frames, classes); `clip_probs` (classes,) for a clip, or (frames, classes)
        for a long recording whose gate opens and closes.

    Args:
        frame_probs: one column for each of `decoding.labels`.
        grid: of the frames.
        decoding: how each class is decoded.
        clip_probs: what the gate looks at; needed if any `clip_threshold` is above 0.
        duration: of the clip in seconds. FrameGrid that begin there or later take no part, and an
            event that reaches beyond is cut; its length is judged in whole frames, before the cut.

    >>> frame_probs = np.array([[0.9], [0.7], [0.1], [0.2], [0.6]])
    >>> for event in decode_events(frame_probs, FrameGrid(12.5), Decoding.uniform(["dog"], 0.5)):
    ...     print(event)
    Event(onset=0.0, offset=0.16, label='dog', score=0.8)
    Event(onset=0.32, offset=0.4, label='dog', score=0.6)
    """
    probs = _check_probs("frame_probs", frame_probs)
    if probs.ndim != 2 or probs.shape[1] != len(decoding.labels):
        raise SettingError(
            f"frame_probs must be (frames, {len(decoding.labels)}), a column for each label. "
            f"Got the shape {probs.shape}."
        )
    gates = _check_gates(clip_probs, probs.shape, decoding)
    if duration is not None:
        if not (math.isfinite(duration) and duration >= 0):
            raise SettingError(f"duration must be 0 s or more. Got {duration!r}.")
        probs = probs[: grid.count(duration)]
    events = []
    for at, label in enumerate(decoding.labels):
        rule = decoding.rule(label)
        column = probs[:, at].astype(np.float64)
        is_open = gates[: len(column), at].astype(np.float64) >= rule.clip_threshold
        if not is_open.any():
            continue
        starts, stops = _decode_class(column, is_open, grid, rule)
        means = _means(column, starts, stops)
        for start, stop, score in zip(starts.tolist(), stops.tolist(), means, strict=True):
            offset = grid.offset(stop - 1)
            if duration is not None:
                offset = min(offset, duration)
            events.append(Event(grid.onset(start), offset, label, score))
    return sorted(events)


def median_filter(frame_probs: Floats, n_frames: int) -> Floats:
    """Return the median of each frame's window, mirrored at the edges as told above.

    Shape:
        (frames, classes) -> (frames, classes).

    Args:
        frame_probs: what to filter, along its first axis.
        n_frames: length of the window, an odd number (see `window_frames`).

    >>> median_filter(np.array([[0.9], [0.1], [0.2], [0.8], [0.1]]), 3).ravel()
    array([0.9, 0.2, 0.2, 0.2, 0.1])
    """
    if n_frames < 1 or n_frames % 2 == 0:
        raise SettingError(f"n_frames of a median must be odd. Got {n_frames!r}.")
    if n_frames == 1 or len(frame_probs) == 0:
        return frame_probs
    padded = _mirrored(frame_probs, n_frames // 2)
    windows = sliding_window_view(padded, n_frames, axis=0)  # (frames, classes, window)
    filtered = np.empty_like(frame_probs)
    step = max(1, _MEDIAN_BLOCK // max(1, n_frames * math.prod(frame_probs.shape[1:])))
    for first in range(0, len(filtered), step):
        block = np.partition(windows[first : first + step], n_frames // 2, axis=-1)
        filtered[first : first + step] = block[..., n_frames // 2]
    return filtered


def window_frames(median: float, grid: FrameGrid) -> int:
    """Return the odd number of frames nearest to `median` seconds; the longer at a tie.

    >>> [window_frames(median, FrameGrid(12.5)) for median in (0, 0.08, 0.16, 0.4)]
    [1, 1, 3, 5]
    """
    return 2 * (grid.index(median) // 2) + 1


def find_runs(low: Mask, high: Mask, max_gap: int, min_length: int) -> tuple[Indices, Indices]:
    """Return where runs begin and where they have ended: steps 3 to 5, in frames.

    Args:
        low: (frames,), True where a run goes on.
        high: (frames,), True where a run is confirmed; nowhere True where `low` is not.
        max_gap: gaps of up to so many frames are filled.
        min_length: runs of fewer frames are dropped.

    >>> low = np.array([1, 1, 0, 1, 0, 0, 1], bool)
    >>> find_runs(low, low, max_gap=1, min_length=2)
    (array([0]), array([4]))
    """
    edges = np.flatnonzero(np.diff(low, prepend=False, append=False))
    starts, stops = edges[::2], edges[1::2]
    if high is not low and len(starts):
        confirmed = np.logical_or.reduceat(high, starts)  # up to the next start: low ends before
        starts, stops = starts[confirmed], stops[confirmed]
    if max_gap > 0 and len(starts):
        apart = starts[1:] - stops[:-1] > max_gap
        starts = np.concatenate([starts[:1], starts[1:][apart]])
        stops = np.concatenate([stops[:-1][apart], stops[-1:]])
    long = stops - starts >= min_length
    return starts[long], stops[long]


def _decode_class(
    column: NDArray[np.float64], is_open: Mask, grid: FrameGrid, rule: Rule
) -> tuple[Indices, Indices]:
    half = window_frames(rule.median, grid) // 2

    def active(threshold: float) -> Mask:
        return _majority((column >= threshold) & is_open, half)

    low = active(rule.low_threshold)
    high = low if rule.low_threshold == rule.threshold else active(rule.threshold)
    return find_runs(low, high, grid.index(rule.max_gap), grid.count(rule.min_duration))


def _majority(mask: Mask, half: int) -> Mask:
    """Return where more than half of the 2 `half` + 1 frames around are True."""
    if half == 0 or len(mask) == 0:
        return mask
    total = np.cumsum(_mirrored(mask, half + 1), dtype=np.int64)  # one more: total before frame 0
    result: Mask = (total[2 * half + 1 : -1] - total[: -2 * half - 2]) > half
    return result


def _mirrored(values: NDArray[Any], n: int) -> NDArray[Any]:
    """Put n frames before and after: b a | a b c | c b, over and over if the clip is shorter."""
    return np.pad(values, [(n, n)] + [(0, 0)] * (values.ndim - 1), mode="symmetric")


def _means(column: NDArray[np.float64], starts: Indices, stops: Indices) -> list[float]:
    if not len(starts):
        return []
    bounds = np.stack([starts, stops], axis=1).ravel()
    sums = np.add.reduceat(np.append(column, 0.0), bounds)[::2]
    means: list[float] = (sums / (stops - starts)).tolist()
    return means


def _check_probs(name: str, probs: Floats) -> Floats:
    array = np.asarray(probs)
    if array.size and not (array.min() >= 0 and array.max() <= 1):  # NaN is neither
        raise SettingError(
            f"{name} must be probabilities from 0 to 1. Got values from {array.min()} to "
            f"{array.max()}; pass logits through a sigmoid first."
        )
    return array


def _check_gates(clip_probs: Floats | None, shape: tuple[int, ...], decoding: Decoding) -> Floats:
    """Return what the gate looks at as (frames or 1, classes)."""
    if clip_probs is None:
        for label, value in zip(decoding.labels, decoding.clip_threshold, strict=True):
            if value > 0:
                raise SettingError(
                    f"{label!r} has a clip_threshold of {value}: pass clip_probs, or decode with "
                    "a clip_threshold of 0."
                )
        return np.zeros((1, shape[1]))
    gates = _check_probs("clip_probs", clip_probs)
    if gates.shape not in (shape, shape[1:]):
        raise SettingError(
            f"clip_probs must be (classes,) or (frames, classes), here {shape[1:]} or {shape}. "
            f"Got the shape {gates.shape}."
        )
    return np.atleast_2d(gates)
