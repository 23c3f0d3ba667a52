"""False events: what a system detects in recordings that contain none of its classes.

The task: given recordings that are known to hold none of the classes (negatives), and the events
that a system estimated there, say how many false events it makes per minute of audio, and what
recall this costs elsewhere.

Conventions: every event of a negative is false, whatever its length. `durations` maps the file name
of each negative to its seconds; a file that is missing from the estimate has no events.

Metrics, over all classes and per class: `per_minute`, the number of events over the minutes of
audio, and `recordings`, the share of recordings with any. Events of one recording are dependent, so
confidence intervals come from a bootstrap over recordings (`earmark.metrics.bootstrap`). A curve
(`recall_curve`) has one point per setting of the system, such as its sensitivity: false events per
minute on the negatives, and on the other clips the recall of their tags and of their events.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from earmark.errors import DataError, SettingError
from earmark.formats.events import Event
from earmark.metrics.clip import clip_scores, tags_of
from earmark.metrics.event import event_scores
from earmark.metrics.event_arrays import Ints
from earmark.metrics.rates import divide
from earmark.metrics.weighted_scores import (
    Group,
    GroupedScores,
    Reals,
    WeightedScores,
    weighted_sum,
)

Events = Mapping[str, Sequence[Event]]
Tags = Mapping[str, Collection[str]]

N_POINTS = 21  # of a curve over the scores of events, at most


@dataclass(frozen=True, repr=False)
class FalseEventScores(GroupedScores):
    """False events per minute and the share of recordings with any, under `false_events`.

    >>> false_event_scores({"a.wav": [Event(0, 1, "dog")]}, {"a.wav": 30.0}).per_minute
    2.0
    """

    @property
    def per_minute(self) -> float:
        """False events per minute, of all classes."""
        return self.overall["false_events"]["per_minute"]


@dataclass(frozen=True, eq=False)
class FalseEventCounts:
    """Events of each negative recording.

    Shape: `n_events` (files, classes), `minutes` (files,).

    >>> counts = count_false_events({"a.wav": [Event(0, 1, "dog")]}, {"a.wav": 30, "b.wav": 30})
    >>> counts.n_events.tolist(), counts.missing_files
    ([[1], [0]], ('b.wav',))
    """

    files: tuple[str, ...]
    labels: tuple[str, ...]
    n_events: Ints
    minutes: Reals
    missing_files: tuple[str, ...] = ()

    def weighted_scores(self, weights: Reals | None = None) -> WeightedScores:
        """Return the scores of every row of weights; see `earmark.metrics.weighted_scores`.

        >>> counts = count_false_events({"a.wav": [Event(0, 1, "dog")]}, {"a.wav": 60, "b.wav": 60})
        >>> scores = counts.weighted_scores(np.array([[1.0, 1.0], [2.0, 0.0]]))
        >>> scores.overall["false_events"]["per_minute"]
        array([0.5, 1. ])
        """
        minutes = weighted_sum(weights, self.minutes)
        n_files = weighted_sum(weights, np.ones(len(self.files)))

        def rates(n_events: Ints, extend: Any) -> Group:
            return {
                "per_minute": divide(weighted_sum(weights, n_events), extend(minutes)),
                "recordings": divide(weighted_sum(weights, n_events > 0), extend(n_files)),
            }

        of_all = rates(self.n_events.sum(axis=1), lambda total: total)
        of_classes = rates(self.n_events, lambda total: total[:, None])
        return WeightedScores({"false_events": of_all}, {"false_events": of_classes}, {})

    def scores(self) -> FalseEventScores:
        """Return the scores of all recordings.

        >>> counts = count_false_events({"a.wav": [Event(0, 1, "dog")]}, {"a.wav": 60, "b.wav": 60})
        >>> counts.scores().overall["false_events"]
        {'per_minute': 0.5, 'recordings': 0.5}
        """
        return FalseEventScores(
            **self.weighted_scores().sample(self.labels),
            n_files=len(self.files),
            missing_files=self.missing_files,
            unknown_files=(),
        )

    def concatenate(self, other: "FalseEventCounts") -> "FalseEventCounts":
        """Return the counts of both, the files of `other` last.

        >>> counts = count_false_events({"a.wav": [Event(0, 1, "dog")]}, {"a.wav": 60})
        >>> counts.concatenate(counts).files
        ('a.wav', 'a.wav')
        """
        if self.labels != other.labels:
            raise SettingError("Only counts with the same labels can be concatenated.")
        return replace(
            self,
            files=self.files + other.files,
            n_events=np.concatenate([self.n_events, other.n_events]),
            minutes=np.concatenate([self.minutes, other.minutes]),
        )


def count_false_events(
    estimate: Events, durations: Mapping[str, float], labels: Sequence[str] | None = None
) -> FalseEventCounts:
    """Count the events of each negative recording.

    Args:
        estimate: file name -> events; those of other files are ignored.
        durations: file name of each negative -> seconds.
        labels: the classes; by default those that occur.

    >>> count_false_events({"a.wav": [Event(0, 1, "dog")]}, {"a.wav": 30.0}).minutes
    array([0.5])
    """
    for name, seconds in durations.items():
        if not 0 < seconds < np.inf:
            raise DataError(f"The duration of {name} must be above 0 s. Got {seconds!r}.")
    if not durations:
        raise DataError("False events need one recording or more without any of the classes.")
    estimated = {event.label for name in durations for event in estimate.get(name, ())}
    names = tuple(sorted(estimated)) if labels is None else tuple(labels)
    unknown = sorted(estimated - set(names))
    if unknown:
        raise DataError(
            f"The estimate has the label {unknown[0]!r}, which is not among the labels "
            f"{', '.join(names)}. Add it to labels."
        )
    index_of = {label: index for index, label in enumerate(names)}
    n_events = np.zeros((len(durations), len(names)), np.int64)
    for row, name in enumerate(durations):
        for event in estimate.get(name, ()):
            n_events[row, index_of[event.label]] += 1
    return FalseEventCounts(
        files=tuple(durations),
        labels=names,
        n_events=n_events,
        minutes=np.array([seconds / 60 for seconds in durations.values()]),
        missing_files=tuple(name for name in durations if name not in estimate),
    )


def false_event_scores(
    estimate: Events, durations: Mapping[str, float], labels: Sequence[str] | None = None
) -> FalseEventScores:
    """Return how many false events a system makes in recordings without any of its classes.

    Args:
        estimate: file name -> events; those of other files are ignored.
        durations: file name of each negative -> seconds.
        labels: the classes; by default those that occur.

    >>> scores = false_event_scores({"a.wav": [Event(0, 1, "dog")]}, {"a.wav": 60, "b.wav": 60})
    >>> scores.class_wise["dog"]["false_events"]
    {'per_minute': 0.5, 'recordings': 0.5}
    """
    return count_false_events(estimate, durations, labels).scores()


@dataclass(frozen=True)
class RecallPoint:
    """What one setting of a system costs and brings; a score that is not known is nan.

    Args:
        setting: its value, such as the sensitivity.
        per_minute: false events per minute on the negatives.
        recordings: share of the negatives with any false event.
        clip_recall: share of the tags of the other clips that are detected, anywhere in the clip.
        clip_f_measure: F1 of these tags.
        event_recall: share of the events of the other clips that are detected within the collars.

    >>> RecallPoint(0.0, per_minute=1.5, recordings=0.2, clip_recall=0.8).event_recall
    nan
    """

    setting: float
    per_minute: float
    recordings: float
    clip_recall: float
    clip_f_measure: float = np.nan
    event_recall: float = np.nan

    def to_dict(self) -> dict[str, float]:
        """Return plain values, for a file; those that are not known are left out.

        >>> RecallPoint(0.0, 1.5, 0.2, 0.8).to_dict()
        {'setting': 0.0, 'per_minute': 1.5, 'recordings': 0.2, 'clip_recall': 0.8}
        """
        return {name: value for name, value in asdict(self).items() if not np.isnan(value)}


def recall_curve(
    estimates: Mapping[float, Events],
    durations: Mapping[str, float],
    *,
    tags: Tags | None = None,
    reference: Events | None = None,
    **collars: float,
) -> tuple[RecallPoint, ...]:
    """Return false events on negatives and recall on other clips, one point per setting.

    Args:
        estimates: setting -> the events of all recordings, by file name.
        durations: file name of each negative -> seconds.
        tags: of the other clips; by default those of `reference`.
        reference: their events, for `event_recall`.
        collars: of event-based scores, as `event_scores` takes them.

    >>> loud, quiet = Event(0, 1, "dog", 0.9), Event(2, 3, "dog", 0.4)
    >>> estimate = {"clip.wav": [loud, quiet], "negative.wav": [quiet]}
    >>> reference = {"clip.wav": [Event(0, 1, "dog"), Event(2, 3, "dog")]}
    >>> estimates = sweep_min_score(estimate, [0.0, 0.5])
    >>> for point in recall_curve(estimates, {"negative.wav": 30}, reference=reference):
    ...     print(point.setting, point.per_minute, point.clip_recall, point.event_recall)
    0.0 2.0 1.0 1.0
    0.5 0.0 1.0 0.5
    """
    if tags is None:
        if reference is None:
            raise SettingError("A curve needs tags=... or reference=... of the other clips.")
        tags = tags_of(reference)
    inside = sorted(set(tags) & set(durations))
    positive = next((name for name in inside if tags[name]), None)
    if positive is not None:
        raise DataError(f"{positive} is among the negatives, but the reference has events there.")
    points = []
    for setting, estimate in estimates.items():
        false = false_event_scores(estimate, durations).overall["false_events"]
        of_clips = {name: estimate.get(name, ()) for name in tags}
        of_tags = clip_scores(tags, tags_of(of_clips), empty_as_zero=True).overall["f_measure"]
        event_recall = np.nan
        if reference is not None:
            scores = event_scores(reference, of_clips, **collars)  # type: ignore[arg-type]
            event_recall = scores.overall["f_measure"]["recall"]
        point = RecallPoint(
            setting,
            **false,
            clip_recall=of_tags["recall"],
            clip_f_measure=of_tags["f_measure"],
            event_recall=event_recall,
        )
        points.append(point)
    return tuple(points)


def absent_class_curve(
    estimate: Events,
    durations: Mapping[str, float],
    tags: Tags,
    *,
    reference: Events | None = None,
    **collars: float,
) -> tuple[RecallPoint, ...]:
    """Return a curve without negatives: a clip is one for the classes that it does not have.

    Events of such classes are false, wherever they are; `recordings` is the share of clips with
    any. There is one point per minimum score of events, or a single one if they have no scores.

    Args:
        estimate: file name -> events.
        durations: file name of each clip -> seconds.
        tags: of the clips.
        reference: their events, for `event_recall`.
        collars: of event-based scores, as `event_scores` takes them.

    >>> estimate = {"a.wav": [Event(0, 1, "dog", 0.9), Event(2, 3, "cat", 0.4)]}
    >>> for point in absent_class_curve(estimate, {"a.wav": 30}, {"a.wav": ("dog",)}):
    ...     print(point.setting, point.per_minute, point.clip_recall)
    0.4 2.0 1.0
    0.9 0.0 1.0
    """
    others = {name: f"{name}, classes that it does not have" for name in durations}
    events = {name: list(estimate.get(name, ())) for name in tags}
    for name, other in others.items():
        own = estimate.get(name, ())
        events[other] = [event for event in own if event.label not in tags[name]]
    scored = [event.score is not None for own in events.values() for event in own]
    sweep = scored and all(scored)
    return recall_curve(
        sweep_min_score(events) if sweep else {0.0: events},
        {other: durations[name] for name, other in others.items()},
        tags=tags,
        reference=reference,
        **collars,
    )


def sweep_min_score(
    estimate: Events, min_scores: Sequence[float] | None = None
) -> dict[float, dict[str, list[Event]]]:
    """Return minimum score -> the events that reach it, for `recall_curve`.

    Args:
        estimate: events with scores.
        min_scores: what to try; by default up to 21 values that split the events evenly.

    >>> estimate = {"a.wav": [Event(0, 1, "dog", 0.9), Event(2, 3, "dog", 0.4)]}
    >>> {least: len(events["a.wav"]) for least, events in sweep_min_score(estimate).items()}
    {0.4: 2, 0.9: 1}
    """
    scores = [event.score for events in estimate.values() for event in events]
    known = sorted({score for score in scores if score is not None})
    if len(known) < len(set(scores)):
        raise DataError("A sweep over the scores of events needs a score for every event.")
    if min_scores is None:
        every = np.linspace(0, len(known) - 1, min(N_POINTS, len(known))).round().astype(int)
        min_scores = [known[index] for index in every]
    return {
        least: {
            name: [event for event in events if event.score is not None and event.score >= least]
            for name, events in estimate.items()
        }
        for least in min_scores
    }
