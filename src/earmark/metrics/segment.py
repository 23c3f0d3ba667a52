"""Events -> segment-based error rate and F-measure, as sed_eval 0.2.1 counts them.

Conventions: a file is cut into segments of `resolution` seconds. An event makes its class active in
every segment that it touches, from floor(onset / resolution) up to ceil(offset / resolution), in
floating point and without snapping, as in sed_eval. A file is as long as the last offset of either
side; that matters to true negatives, and so to `accuracy`, only. All counts are summed over files
before anything is divided.

In one segment with `n_ref` classes in the reference, `n_est` in the estimate and `tp` in both:
substitutions min(n_ref, n_est) - tp, deletions max(0, n_ref - n_est), insertions
max(0, n_est - n_ref). The overall error rate is their sum over the number of active classes in the
reference. A single class has no substitutions: its misses are deletions, its false alarms
insertions.

Where something is undefined:

- Without reference (of a class, or at all) recall, F-measure and every error rate are nan.
  `as_sed_eval` divides the errors by 2e-16 as sed_eval does: 0, or 4.5e15 an error, and the mean
  over classes has them in it.
- Without estimate precision and F-measure are nan, as in sed_eval, so that the mean over classes
  leaves out a class that was never found. `empty_as_zero` makes them 0.
- `accuracy` takes 0 / 0 as 0, as sed_eval does.
- The mean over classes leaves nan out.
- An event without length inside a segment touches it, one on an edge touches nothing. What lies
  before 0 s takes no part (sed_eval counts it from the end of the file); `read_events` refuses it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earmark.errors import SettingError
from earmark.formats.events import Event
from earmark.metrics.rates import (
    FileScores,
    Measured,
    Reals,
    accuracies,
    class_averages,
    error_rates,
    f_measures,
    sed_eval_whole,
    weighed,
)
from earmark.metrics.sides import Ints, Side, Sides, lay_out

_MOST_SEGMENTS = 2**40  # of a file: enough for 30,000 years in seconds


@dataclass(frozen=True)
class SegmentScores(FileScores):
    """The scores, and the length of a segment in seconds."""

    resolution: float


@dataclass(frozen=True, eq=False)
class SegmentCounts:
    """What was counted in each file, before any division.

    Shape: `tp`, `fp`, `fn` (files, classes); `substitutions`, `deletions`, `insertions` and
    `n_segments` (files,).
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

    def measure(self, weights: Reals | None = None) -> Measured:
        """Return the scores of every draw of files; see `earmark.metrics.rates`.

        >>> counts = count_segments({"a.wav": [Event(0, 1, "dog")], "b.wav": []}, {})
        >>> counts.measure(np.array([[1.0, 1.0], [2.0, 0.0]])).overall["error_rate"]["error_rate"]
        array([1., 1.])
        """
        tp, fp, fn = (weighed(weights, table) for table in (self.tp, self.fp, self.fn))
        s, d, i, n_segments = (
            weighed(weights, each)
            for each in (self.substitutions, self.deletions, self.insertions, self.n_segments)
        )
        all_tp, all_fp, all_fn = (each.sum(axis=-1) for each in (tp, fp, fn))
        n_ref, all_ref = tp + fn, all_tp + all_fn
        if self.as_sed_eval:
            n_ref, all_ref = sed_eval_whole(n_ref), sed_eval_whole(all_ref)
        zero = self.empty_as_zero
        class_wise = {
            "f_measure": f_measures(tp, fp, fn, empty_as_zero=zero),
            "error_rate": error_rates(n_ref, fn, fp),
            "accuracy": accuracies(tp, fp, fn, n_segments[:, None]),
        }
        return Measured(
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
            **self.measure().draw(self.labels),
            resolution=self.resolution,
            n_files=len(self.files),
            missing_files=self.missing_files,
            unknown_files=self.unknown_files,
        )

    def beside(self, other: "SegmentCounts") -> "SegmentCounts":
        """Return the counts of both, the files of `other` after the own.

        >>> counts = count_segments({"a.wav": [Event(0, 1, "dog")]}, {})
        >>> counts.beside(counts).files
        ('a.wav', 'a.wav')
        """
        if (self.labels, self.resolution) != (other.labels, other.resolution):
            raise SettingError("Counts go beside each other with the same labels and resolution.")
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
        reference: file name -> its true events; these files are evaluated.
        estimate: file name -> the events found.
        labels: the classes, in the order wanted; without them, every label of either side. One
            that only the estimate has counts as insertions.
        resolution: length of a segment in seconds.
        empty_as_zero: precision and F-measure of a class that was never found are 0, not nan.
        as_sed_eval: error rates without reference are 0 or 4.5e15 as in sed_eval, not nan.

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
    """Count the segments of each file; the arguments are those of `segment_scores`.

    Time and memory grow with the number of events, not with that of segments: files and classes
    are laid end to end on one line, which is cut wherever an event begins or ends.

    >>> counts = count_segments({"a.wav": [Event(0, 2, "dog")]}, {"a.wav": [Event(1, 3, "dog")]})
    >>> counts.tp.tolist(), counts.fp.tolist(), counts.fn.tolist()
    ([[1]], [[1]], [[1]])
    """
    check_resolution(resolution)
    sides = lay_out(reference, estimate, labels)
    counts = [_count(block, resolution) for block in sides.blocks()]
    tables: dict[str, Ints] = {
        name: np.concatenate([each[name] for each in counts]) for name in counts[0]
    }
    return SegmentCounts(
        files=sides.files,
        labels=sides.labels,
        resolution=float(resolution),
        **tables,
        missing_files=sides.missing_files,
        unknown_files=sides.unknown_files,
        empty_as_zero=empty_as_zero,
        as_sed_eval=as_sed_eval,
    )


def check_resolution(resolution: float) -> None:
    """Raise unless it is a length.

    >>> check_resolution(0)
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: resolution must be a number of seconds above 0. Got 0.
    """
    if not (math.isfinite(resolution) and resolution > 0):
        raise SettingError(f"resolution must be a number of seconds above 0. Got {resolution!r}.")


def touched_segments(
    onsets: NDArray[np.float64], offsets: NDArray[np.float64], resolution: float
) -> tuple[Ints, Ints]:
    """Return the first segment that each event touches and the one after its last.

    >>> touched_segments(np.array([0.5, 2.0]), np.array([2.0, 2.1]), 1.0)
    (array([0, 2]), array([2, 3]))
    """
    with np.errstate(over="ignore"):  # told below, as what it is
        first, stop = np.floor(onsets / resolution), np.ceil(offsets / resolution)
    if len(stop) and stop.max() > _MOST_SEGMENTS:
        raise SettingError(
            f"An event that ends at {offsets.max():g} s has too many segments of {resolution:g} s. "
            "Give a coarser resolution, or check the times: they are seconds."
        )
    first = np.maximum(first, 0)
    return first.astype(np.int64), np.maximum(stop, first).astype(np.int64)


def _count(sides: Sides, resolution: float) -> dict[str, Ints]:
    n_files, n_classes = len(sides.files), len(sides.labels)
    # (events, 4): file, class, first segment, the one after the last
    found = [_find_spans(side, resolution) for side in (sides.reference, sides.estimate)]
    spans = np.concatenate(found)
    in_reference = np.repeat([True, False], [len(side) for side in found])
    n_segments = np.zeros(n_files, np.int64)
    np.maximum.at(n_segments, spans[:, 0], spans[:, 3])
    before = np.cumsum(n_segments) - n_segments
    stride = max(1, int(n_segments.sum()))
    if stride * n_classes >= 2**62:
        raise SettingError(
            f"{stride:,} segments of {resolution:g} s with {n_classes} classes cannot be counted. "
            "Give a coarser resolution, or check the times: they are seconds."
        )

    offsets = spans[:, 1] * stride + before[spans[:, 0]]
    either = np.stack([in_reference, ~in_reference], axis=1)
    begin, length, level = _cut(spans[:, 2] + offsets, spans[:, 3] + offsets, either)
    active = level > 0  # (pieces, 2): overlapping events of one class count once
    some = active.any(axis=1)
    begin, length, (ref, est) = begin[some], length[some], active[some].T
    of_class, time = np.divmod(begin, stride)
    of_file = np.searchsorted(before, time, side="right") - 1
    tp, fp, fn = (np.zeros((n_files, n_classes), np.int64) for _ in range(3))
    for table, kind in ((tp, ref & est), (fp, est & ~ref), (fn, ref & ~est)):
        np.add.at(table, (of_file[kind], of_class[kind]), length[kind])

    time, length, level = _cut(time, time + length, np.stack([ref, est, ref & est], axis=1))
    of_file = np.searchsorted(before, time, side="right") - 1
    n_ref, n_est, n_both = level.T  # active classes in each piece

    def summed(n_errors: Ints) -> Ints:
        per_file = np.zeros(n_files, np.int64)
        np.add.at(per_file, of_file, n_errors * length)
        return per_file

    return {
        "tp": tp,
        "fp": fp,
        "fn": fn,
        "substitutions": summed(np.minimum(n_ref, n_est) - n_both),
        "deletions": summed(np.maximum(0, n_ref - n_est)),
        "insertions": summed(np.maximum(0, n_est - n_ref)),
        "n_segments": n_segments,
    }


def _find_spans(side: Side, resolution: float) -> Ints:
    first, stop = touched_segments(side.onsets, side.offsets, resolution)
    return np.column_stack([side.of_file, side.of_class, first, stop])


def _cut(starts: Ints, stops: Ints, weights: NDArray[np.bool_]) -> tuple[Ints, Ints, Ints]:
    """Cut the line at every start and stop.

    Returns:
        Where each piece begins, its length, and the sums (pieces, kinds) of `weights`
        (intervals, kinds) over the intervals that cover it.
    """
    places, place = np.unique(np.concatenate([starts, stops]), return_inverse=True)
    change = np.zeros((len(places), weights.shape[1]), np.int64)
    signed = weights.astype(np.int64)
    np.add.at(change, place, np.concatenate([signed, -signed]))
    return places[:-1], np.diff(places), np.cumsum(change, axis=0)[:-1]
