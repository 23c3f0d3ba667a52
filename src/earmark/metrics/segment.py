"""Segment-based error rate and F-measure, counted as sed_eval 0.2.1 counts them.

The task: given the reference events of each recording and the events that a system estimated,
compare which classes are active in each segment of `resolution` seconds.

Conventions: an event makes its class active in every segment that it overlaps, from
floor(onset / resolution) to ceil(offset / resolution), in floating point without rounding, as in
sed_eval. The length of a file is the last offset of reference or estimate; it affects only true
negatives, and so `accuracy`. Counts are summed over files before division.

Metrics: precision, recall and F-measure of active classes, the error rate, and accuracy. In a
segment with `n_ref` active classes in the reference, `n_est` in the estimate and `tp` in both,
there are min(n_ref, n_est) - tp substitutions, max(0, n_ref - n_est) deletions and
max(0, n_est - n_ref) insertions. The overall error rate is their sum over the sum of `n_ref`. A
single class has no substitutions: its misses are deletions, its false alarms insertions.

Undefined scores:

- If the reference is empty (of a class, or overall), recall, F-measure and all error rates are nan.
  `as_sed_eval` divides the errors by 2e-16 as sed_eval does: the error rate is 0, or 4.5e15 per
  error, and is included in the mean over classes.
- If the estimate is empty, precision and F-measure are nan, as in sed_eval, so that the mean over
  classes leaves out a class that was never detected. `empty_as_zero` makes them 0.
- `accuracy` counts 0 / 0 as 0, as sed_eval does.
- The mean over classes leaves nan out.
- An event of length 0 inside a segment makes it active; on a segment boundary it does not. Times
  before 0 s are ignored (sed_eval counts them from the end of the file); `read_events` rejects
  them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from earmark.errors import SettingError
from earmark.formats.events import Event
from earmark.metrics.event_arrays import AlignedEvents, Bools, EventArrays, Ints, align_events
from earmark.metrics.rates import (
    accuracies,
    class_averages,
    error_rates,
    f_measures,
    sed_eval_denominator,
)
from earmark.metrics.weighted_scores import GroupedScores, Reals, WeightedScores, weighted_sum

_MAX_SEGMENTS = 2**40  # per file: enough for 30,000 years in seconds


@dataclass(frozen=True, repr=False)
class SegmentScores(GroupedScores):
    """The scores, and the length of a segment in seconds.

    >>> segment_scores({"a.wav": [Event(0, 2, "dog")]}, {"a.wav": [Event(0, 1, "dog")]}).error_rate
    0.5
    """

    resolution: float


@dataclass(frozen=True, eq=False)
class SegmentCounts:
    """The counts per file.

    Shape: `tp`, `fp`, `fn` (files, classes); `substitutions`, `deletions`, `insertions` and
    `n_segments` (files,).

    >>> count_segments({"a.wav": [Event(0, 2, "dog")]}, {}).n_segments
    array([2])
    """

    files: tuple[str, ...]
    labels: tuple[str, ...]
    resolution: float
    tp: Ints
    fp: Ints
    fn: Ints
    substitutions: Ints
    deletions: Ints
    insertions: Ints
    n_segments: Ints
    missing_files: tuple[str, ...] = ()
    unknown_files: tuple[str, ...] = ()
    empty_as_zero: bool = False
    as_sed_eval: bool = False

    def weighted_scores(self, weights: Reals | None = None) -> WeightedScores:
        """Return the scores of every row of weights; see `earmark.metrics.weighted_scores`.

        >>> counts = count_segments({"a.wav": [Event(0, 1, "dog")], "b.wav": []}, {})
        >>> scores = counts.weighted_scores(np.array([[1.0, 1.0], [2.0, 0.0]]))
        >>> scores.overall["error_rate"]["error_rate"]
        array([1., 1.])
        """
        tp, fp, fn = (weighted_sum(weights, table) for table in (self.tp, self.fp, self.fn))
        s, d, i, n_segments = (
            weighted_sum(weights, each)
            for each in (self.substitutions, self.deletions, self.insertions, self.n_segments)
        )
        all_tp, all_fp, all_fn = (each.sum(axis=-1) for each in (tp, fp, fn))
        n_ref, all_ref = tp + fn, all_tp + all_fn
        if self.as_sed_eval:
            n_ref, all_ref = sed_eval_denominator(n_ref), sed_eval_denominator(all_ref)
        zero = self.empty_as_zero
        class_wise = {
            "f_measure": f_measures(tp, fp, fn, empty_as_zero=zero),
            "error_rate": error_rates(n_ref, fn, fp),
            "accuracy": accuracies(tp, fp, fn, n_segments[:, None]),
        }
        return WeightedScores(
            overall={
                "f_measure": f_measures(all_tp, all_fp, all_fn, empty_as_zero=zero),
                "error_rate": error_rates(all_ref, d, i, s),
                "accuracy": accuracies(all_tp, all_fp, all_fn, n_segments * len(self.labels)),
            },
            class_wise=class_wise | {"count": {"Nref": tp + fn, "Nsys": tp + fp}},
            class_wise_average=class_averages(class_wise),
        )

    def scores(self) -> SegmentScores:
        """Return the scores of all files.

        >>> count_segments({"a.wav": [Event(0, 1, "dog")], "b.wav": []}, {}).scores().error_rate
        1.0
        """
        return SegmentScores(
            **self.weighted_scores().sample(self.labels),
            resolution=self.resolution,
            n_files=len(self.files),
            missing_files=self.missing_files,
            unknown_files=self.unknown_files,
        )

    def concatenate(self, other: "SegmentCounts") -> "SegmentCounts":
        """Return the counts of both, the files of `other` last.

        >>> counts = count_segments({"a.wav": [Event(0, 1, "dog")]}, {})
        >>> counts.concatenate(counts).files
        ('a.wav', 'a.wav')
        """
        if (self.labels, self.resolution) != (other.labels, other.resolution):
            raise SettingError(
                "Only counts with the same labels and resolution can be concatenated."
            )
        tables = ("tp", "fp", "fn", "substitutions", "deletions", "insertions", "n_segments")
        both: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in tables
        }
        return replace(self, files=self.files + other.files, **both)


def segment_scores(
    reference: Mapping[str, Sequence[Event]],
    estimate: Mapping[str, Sequence[Event]],
    labels: Sequence[str] | None = None,
    resolution: float = 1.0,
    *,
    empty_as_zero: bool = False,
    as_sed_eval: bool = False,
) -> SegmentScores:
    """Return the segment-based scores of `estimate` against `reference`.

    Args:
        reference: file name -> reference events; these files are evaluated.
        estimate: file name -> estimated events.
        labels: the classes, in the order of the result; by default every label that occurs. A label
            that only the estimate has counts as insertions.
        resolution: length of a segment in seconds.
        empty_as_zero: precision and F-measure of a class that was never detected are 0, not nan.
        as_sed_eval: error rates of an empty reference are 0 or 4.5e15 as in sed_eval, not nan.

    >>> reference = {"a.wav": [Event(0, 2, "dog"), Event(1, 3, "cat")]}
    >>> estimate = {"a.wav": [Event(0.5, 3, "dog")]}
    >>> scores = segment_scores(reference, estimate)
    >>> scores.overall["error_rate"]["error_rate"], scores.class_wise["dog"]["f_measure"]["recall"]
    (0.5, 1.0)
    """
    counts = count_segments(
        reference,
        estimate,
        labels,
        resolution,
        empty_as_zero=empty_as_zero,
        as_sed_eval=as_sed_eval,
    )
    return counts.scores()


def count_segments(
    reference: Mapping[str, Sequence[Event]],
    estimate: Mapping[str, Sequence[Event]],
    labels: Sequence[str] | None = None,
    resolution: float = 1.0,
    *,
    empty_as_zero: bool = False,
    as_sed_eval: bool = False,
) -> SegmentCounts:
    """Count the segments of each file; arguments as in `segment_scores`.

    Time and memory grow with the number of events, not of segments: files and classes are laid end
    to end on one time line, which is split wherever an event begins or ends.

    >>> counts = count_segments({"a.wav": [Event(0, 2, "dog")]}, {"a.wav": [Event(1, 3, "dog")]})
    >>> counts.tp.tolist(), counts.fp.tolist(), counts.fn.tolist()
    ([[1]], [[1]], [[1]])
    """
    check_resolution(resolution)
    events = align_events(reference, estimate, labels)
    counts = [_count_block(block, resolution) for block in events.blocks()]
    tables: dict[str, Ints] = {
        name: np.concatenate([each[name] for each in counts]) for name in counts[0]
    }
    return SegmentCounts(
        files=events.files,
        labels=events.labels,
        resolution=float(resolution),
        **tables,
        missing_files=events.missing_files,
        unknown_files=events.unknown_files,
        empty_as_zero=empty_as_zero,
        as_sed_eval=as_sed_eval,
    )


def check_resolution(resolution: float) -> None:
    """Raise unless the resolution is a positive number of seconds.

    >>> check_resolution(0)
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: resolution must be a number of seconds above 0. Got 0.
    """
    if not (math.isfinite(resolution) and resolution > 0):
        raise SettingError(f"resolution must be a number of seconds above 0. Got {resolution!r}.")


def touched_segments(onsets: Reals, offsets: Reals, resolution: float) -> tuple[Ints, Ints]:
    """Return the first segment that each event overlaps, and the one after its last.

    >>> touched_segments(np.array([0.5, 2.0]), np.array([2.0, 2.1]), 1.0)
    (array([0, 2]), array([2, 3]))
    """
    with np.errstate(over="ignore"):  # reported below
        first, stop = np.floor(onsets / resolution), np.ceil(offsets / resolution)
    if len(stop) and stop.max() > _MAX_SEGMENTS:
        raise SettingError(
            f"An event that ends at {offsets.max():g} s has too many segments of {resolution:g} s. "
            "Pass a larger resolution=, or check that the times are in seconds."
        )
    first = np.maximum(first, 0)
    return first.astype(np.int64), np.maximum(stop, first).astype(np.int64)


def _count_block(events: AlignedEvents, resolution: float) -> dict[str, Ints]:
    n_files, n_classes = len(events.files), len(events.labels)
    # (events, 4): file, class, first segment, the one after the last
    parts = [_segment_spans(each, resolution) for each in (events.reference, events.estimate)]
    spans = np.concatenate(parts)
    in_reference = np.repeat([True, False], [len(part) for part in parts])
    n_segments = np.zeros(n_files, np.int64)
    np.maximum.at(n_segments, spans[:, 0], spans[:, 3])
    before = np.cumsum(n_segments) - n_segments
    stride = max(1, int(n_segments.sum()))
    if stride * n_classes >= 2**62:
        raise SettingError(
            f"{stride:,} segments of {resolution:g} s with {n_classes} classes cannot be counted. "
            "Pass a larger resolution=, or check that the times are in seconds."
        )

    # One time line per class, one after the other; on each of them file after file.
    shift = spans[:, 1] * stride + before[spans[:, 0]]
    either = np.stack([in_reference, ~in_reference], axis=1)
    begin, length, depth = _split(spans[:, 2] + shift, spans[:, 3] + shift, either)
    active = depth > 0  # (pieces, 2): overlapping events of one class count once
    some = active.any(axis=1)
    begin, length, (ref, est) = begin[some], length[some], active[some].T
    class_index, time = np.divmod(begin, stride)
    file_index = np.searchsorted(before, time, side="right") - 1
    tp, fp, fn = (np.zeros((n_files, n_classes), np.int64) for _ in range(3))
    for table, kind in ((tp, ref & est), (fp, est & ~ref), (fn, ref & ~est)):
        np.add.at(table, (file_index[kind], class_index[kind]), length[kind])

    # Now all classes on one time line.
    time, length, depth = _split(time, time + length, np.stack([ref, est, ref & est], axis=1))
    file_index = np.searchsorted(before, time, side="right") - 1
    n_ref, n_est, n_both = depth.T  # active classes in each piece

    def per_file_sum(n_errors: Ints) -> Ints:
        per_file = np.zeros(n_files, np.int64)
        np.add.at(per_file, file_index, n_errors * length)
        return per_file

    return {
        "tp": tp,
        "fp": fp,
        "fn": fn,
        "substitutions": per_file_sum(np.minimum(n_ref, n_est) - n_both),
        "deletions": per_file_sum(np.maximum(0, n_ref - n_est)),
        "insertions": per_file_sum(np.maximum(0, n_est - n_ref)),
        "n_segments": n_segments,
    }


def _segment_spans(events: EventArrays, resolution: float) -> Ints:
    first, stop = touched_segments(events.onsets, events.offsets, resolution)
    return np.column_stack([events.file_index, events.class_index, first, stop])


def _split(starts: Ints, stops: Ints, kinds: Bools) -> tuple[Ints, Ints, Ints]:
    """Split the time line at every start and stop.

    Returns:
        Where each piece begins, its length, and how many intervals of each kind cover it
        (pieces, kinds); `kinds` is (intervals, kinds).
    """
    bounds, index = np.unique(np.concatenate([starts, stops]), return_inverse=True)
    change = np.zeros((len(bounds), kinds.shape[1]), np.int64)
    signed = kinds.astype(np.int64)
    np.add.at(change, index, np.concatenate([signed, -signed]))
    return bounds[:-1], np.diff(bounds), np.cumsum(change, axis=0)[:-1]
