"""Calibration: whether an event with the score 0.8 is right eight times in ten.

The task: given events with scores from 0 to 1, and which of them are right, compare the mean score
with the share of right events, among events of similar scores.

Conventions: an event is right if the reference has its class for at least half of the event's own
length, or, where the reference holds tags only, if the clip has the tag. Missed events do not
count: a score says how sure a detection is.

Metrics: the events are sorted by score and cut into `n_bins` bins with the same number of events
each (equal mass; bins of equal width would be empty where no score lies). The expected calibration
error (ECE; Naeini et al. 2015) is the mean over events of the distance between mean score and
share of right events in their bin. It is not 0 even for perfect scores: with n events in b bins it
is about 0.8 * sqrt(b / n * p * (1 - p)), for shares of p. `brier` is the mean squared distance of
the score from 1 (right) or 0 (wrong).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from earmark.errors import DataError, SettingError
from earmark.formats.events import Event
from earmark.metrics.event_arrays import Bools, Ints
from earmark.metrics.rates import divide
from earmark.metrics.weighted_scores import GroupedScores, Reals, WeightedScores, weighted_sum

Events = Mapping[str, Sequence[Event]]
Tags = Mapping[str, Collection[str]]

N_BINS = 10


@dataclass(frozen=True)
class ReliabilityBin:
    """Events of similar scores: how sure they are, and how often right.

    >>> ReliabilityBin(n_events=20, low=0.7, high=0.9, mean_score=0.8, right=0.75).right
    0.75
    """

    n_events: int
    low: float
    high: float
    mean_score: float
    right: float


@dataclass(frozen=True, repr=False)
class CalibrationScores(GroupedScores):
    """The calibration error, and the bins it comes from.

    >>> scores = {"a.wav": [Event(0, 1, "dog", 0.9)]}
    >>> calibration_scores({"a.wav": [Event(0, 1, "dog")]}, scores).bins[0].right
    1.0
    """

    bins: tuple[ReliabilityBin, ...]

    @property
    def ece(self) -> float:
        """The expected calibration error."""
        return self.overall["calibration"]["ece"]


@dataclass(frozen=True, eq=False)
class CalibrationCounts:
    """Every estimated event: its file, score, and whether it is right.

    Shape: `file_index`, `score` and `right` (events,).

    >>> estimate = {"a.wav": [Event(0, 1, "dog", 0.9), Event(2, 4, "dog", 0.5)]}
    >>> count_calibration({"a.wav": [Event(0, 1, "dog")]}, estimate).right
    array([ True, False])
    """

    files: tuple[str, ...]
    labels: tuple[str, ...]
    file_index: Ints
    score: Reals
    right: Bools
    n_bins: int = N_BINS
    missing_files: tuple[str, ...] = ()
    unknown_files: tuple[str, ...] = ()

    def weighted_scores(self, weights: Reals | None = None) -> WeightedScores:
        """Return the scores of every row of weights; the bins are those of all events.

        >>> estimate = {"a.wav": [Event(0, 1, "dog", 0.5)], "b.wav": [Event(0, 1, "dog", 0.5)]}
        >>> reference = {"a.wav": [Event(0, 1, "dog")], "b.wav": []}
        >>> counts = count_calibration(reference, estimate, n_bins=1)
        >>> weights = np.array([[1.0, 1.0], [2.0, 0.0]])
        >>> counts.weighted_scores(weights).overall["calibration"]["ece"]
        array([0. , 0.5])
        """
        order = np.argsort(self.score, kind="stable")
        bin_of = np.empty(len(order), np.int64)
        for number, events in enumerate(np.array_split(order, self.n_bins)):
            bin_of[events] = number
        gaps = np.zeros((len(self.files), self.n_bins))  # of each file and bin
        np.add.at(gaps, (self.file_index, bin_of), self.score - self.right)

        def by_file(values: Any) -> Reals:
            totals = np.bincount(self.file_index, values, minlength=len(self.files))
            return weighted_sum(weights, totals)

        n_events = by_file(np.ones(len(self.score)))
        scores = {
            "ece": divide(np.abs(weighted_sum(weights, gaps)).sum(axis=1), n_events),
            "brier": divide(by_file((self.score - self.right) ** 2), n_events),
            "mean_score": divide(by_file(self.score), n_events),
            "right": divide(by_file(self.right), n_events),
        }
        return WeightedScores({"calibration": scores}, {}, {})

    def bins(self) -> tuple[ReliabilityBin, ...]:
        """Return the reliability of events of similar scores, lowest scores first.

        >>> estimate = {"a.wav": [Event(0, 1, "dog", 0.9), Event(2, 4, "dog", 0.5)]}
        >>> counts = count_calibration({"a.wav": [Event(0, 1, "dog")]}, estimate)
        >>> [(each.mean_score, each.right) for each in counts.bins()]
        [(0.5, 0.0), (0.9, 1.0)]
        """
        order = np.argsort(self.score, kind="stable")
        return tuple(
            ReliabilityBin(
                n_events=len(events),
                low=float(self.score[events[0]]),
                high=float(self.score[events[-1]]),
                mean_score=float(self.score[events].mean()),
                right=float(self.right[events].mean()),
            )
            for events in np.array_split(order, self.n_bins)
            if len(events)
        )

    def scores(self) -> CalibrationScores:
        """Return the scores of all events, nan if there are none.

        >>> count_calibration({"a.wav": [Event(0, 1, "dog")]}, {"a.wav": []}).scores().ece
        nan
        """
        return CalibrationScores(
            **self.weighted_scores().sample(self.labels),
            n_files=len(self.files),
            missing_files=self.missing_files,
            unknown_files=self.unknown_files,
            bins=self.bins(),
        )

    def concatenate(self, other: "CalibrationCounts") -> "CalibrationCounts":
        """Return the counts of both, the files of `other` last.

        >>> counts = count_calibration({"a.wav": ["dog"]}, {"a.wav": [Event(0, 1, "dog", 0.9)]})
        >>> counts.concatenate(counts).file_index
        array([0, 1])
        """
        if self.labels != other.labels:
            raise SettingError("Only counts with the same labels can be concatenated.")
        return replace(
            self,
            files=self.files + other.files,
            file_index=np.concatenate([self.file_index, other.file_index + len(self.files)]),
            score=np.concatenate([self.score, other.score]),
            right=np.concatenate([self.right, other.right]),
        )


def count_calibration(
    reference: Events | Tags,
    estimate: Events,
    labels: Sequence[str] | None = None,
    *,
    n_bins: int = N_BINS,
) -> CalibrationCounts:
    """Judge every estimated event of the files of the reference.

    Args:
        reference: file name -> events, or tags.
        estimate: file name -> events with scores from 0 to 1.
        labels: the classes, to be compared with other systems; by default those that occur.
        n_bins: number of bins for the calibration error.

    >>> count_calibration({"a.wav": ["dog"]}, {"a.wav": [Event(0, 1, "dog", 0.9)]}).right
    array([ True])
    """
    if n_bins < 1:
        raise SettingError(f"n_bins must be 1 or more. Got {n_bins!r}.")
    rows, scores, right = [], [], []
    estimated: set[str] = set()
    for row, (name, own) in enumerate(reference.items()):
        for event in estimate.get(name, ()):
            if event.score is None or not 0 <= event.score <= 1:
                raise DataError(
                    f"Calibration needs a score from 0 to 1 for every event. Got {event} of {name}."
                )
            rows.append(row)
            scores.append(event.score)
            right.append(is_right(event, own))
            estimated.add(event.label)
    return CalibrationCounts(
        files=tuple(reference),
        labels=tuple(sorted(estimated)) if labels is None else tuple(labels),
        file_index=np.array(rows, np.int64),
        score=np.array(scores, np.float64),
        right=np.array(right, np.bool_),
        n_bins=n_bins,
        missing_files=tuple(name for name in reference if name not in estimate),
        unknown_files=tuple(name for name in estimate if name not in reference),
    )


def calibration_scores(
    reference: Events | Tags, estimate: Events, *, n_bins: int = N_BINS
) -> CalibrationScores:
    """Return how far the scores of events are from how often they are right.

    Args:
        reference: file name -> events, or tags.
        estimate: file name -> events with scores from 0 to 1.
        n_bins: number of bins.

    >>> reference = {"a.wav": [Event(0, 1, "dog")], "b.wav": []}
    >>> estimate = {name: [Event(0, 1, "dog", 0.75)] for name in reference}
    >>> calibration_scores(reference, estimate, n_bins=1).ece
    0.25
    """
    return count_calibration(reference, estimate, n_bins=n_bins).scores()


def expected_calibration_error(score: Reals, right: Reals, n_bins: int = N_BINS) -> float:
    """Return the expected calibration error of scores (events,), given which events are right.

    >>> expected_calibration_error(np.array([0.75, 0.75]), np.array([True, False]), n_bins=1)
    0.25
    """
    one_file = np.zeros(len(score), np.int64)
    counts = CalibrationCounts(("all",), (), one_file, score, right.astype(np.bool_), n_bins)
    return counts.scores().ece


def is_right(event: Event, reference: Collection[object]) -> bool:
    """Return whether an event is right: half of it in reference events, or its tag in the clip's.

    >>> parts = [Event(0, 1, "dog"), Event(0.5, 1.5, "dog")]
    >>> is_right(Event(0, 3, "dog"), parts), is_right(Event(0, 3.5, "dog"), parts)
    (True, False)
    >>> is_right(Event(0, 3, "dog"), {"dog", "cat"})
    True
    """
    spans = sorted(
        (own.onset, own.offset)
        for own in reference
        if isinstance(own, Event) and own.label == event.label
    )
    if not spans:
        return event.label in reference
    covered, end = 0.0, event.onset  # of the event, up to `end`
    for onset, offset in spans:
        covered += max(0.0, min(offset, event.offset) - max(onset, end))
        end = max(end, offset)
    return covered >= event.duration / 2
