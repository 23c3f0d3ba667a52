"""Criteria that decide at every threshold which detections are correct, event by event.

A criterion turns frame-level scores and reference events into the changes of true and false
positives as the threshold falls (`earmark.metrics.count_deltas`). It looks at one class of one file
at a time. There are two:

- `IntersectionCriterion`, that of PSDS (Bilen et al. 2020). A detection is relevant if reference
  events of its class cover at least the fraction `dtc` of it, otherwise it is a false positive; a
  reference event is a true positive if relevant detections cover at least the fraction `gtc` of it.
  A false positive of which reference events of another class cover at least `cttc` is also a cross
  trigger, one per such class. Events of one class that overlap or touch are merged first
  (sed_scores_eval rejects them).
- `CollarCriterion`, that of event-based scores (Mesaros et al. 2016). A detection may match a
  reference event if onset and offset are within the collars; the matching is a maximum matching.

Conventions: `decimals` rounds seconds before they are compared, so that times which differ only by
floating-point error are equal. sed_scores_eval 0.0.4 rounds to 6 decimals, sed_eval does not round
(None). With intersections, a reference event of length 0 is a true positive as soon as anything of
its class is detected in its file, as in sed_scores_eval.
"""

from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from earmark.errors import SettingError
from earmark.metrics.count_deltas import CountDeltas
from earmark.metrics.detections import Detections, count_detections, find_detections
from earmark.metrics.event_arrays import Bools, EventArrays, Ints, Reals
from earmark.metrics.matching import Collars, maximum_matching
from earmark.metrics.stacked_scores import StackedScores


@dataclass(frozen=True)
class IntersectionCriterion:
    """Detections and reference events must cover a fraction of each other.

    Args:
        dtc: fraction of a detection that events must cover (detection tolerance criterion).
        gtc: fraction of an event that detections must cover (ground truth intersection criterion).
        cttc: fraction of a detection that events of another class must cover to make it a cross
            trigger (cross-trigger tolerance criterion); None counts no cross triggers.
        decimals: to which seconds are rounded before they are compared.

    >>> IntersectionCriterion(0.7, 1.7)
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: gtc must be a fraction above 0 and up to 1. Got 1.7.
    """

    dtc: float
    gtc: float
    cttc: float | None = None
    decimals: int | None = 6

    def __post_init__(self) -> None:
        for name in ("dtc", "gtc", "cttc"):
            value = getattr(self, name)
            if not (value is None and name == "cttc") and not 0 < value <= 1:
                raise SettingError(f"{name} must be a fraction above 0 and up to 1. Got {value!r}.")

    def prepare(self, stacked: StackedScores) -> StackedScores:
        """Return the scores with reference events merged where those of one class touch."""
        return replace(stacked, reference=merge_touching(stacked.reference))

    def count_deltas(self, stacked: StackedScores) -> CountDeltas:
        """Return the deltas of true positives, false positives and cross triggers.

        >>> from earmark.formats.scores import ScoreTable
        >>> from earmark.formats.events import Event
        >>> from earmark.metrics.stacked_scores import stack_scores
        >>> scores = ScoreTable(["dog"], {"a": ([0, 1, 2], [[0.9], [0.2]])})
        >>> stacked = stack_scores({"a": [Event(0, 1, "dog")]}, scores)
        >>> deltas = IntersectionCriterion(0.7, 0.7).count_deltas(stacked)
        >>> [deltas.values[:2, deltas.score >= x].sum(axis=1).tolist() for x in (0.9, 0.2)]
        [[1, 0], [0, 1]]
        """
        n_events = stacked.n_events()
        chosen = n_events > 0
        if self.cttc is not None:
            chosen = np.repeat(chosen.any(axis=1, keepdims=True), len(stacked.labels), axis=1)
        reference = stacked.reference
        needed = _round(self.gtc * (reference.offsets - reference.onsets), self.decimals)
        parts = [_all_as_false_positives(stacked, 3)]
        for detections in find_detections(stacked, chosen):
            detection, event = pair_with_events(detections, n_events)
            overlap = overlaps(detections, detection, reference, event)
            covered: Reals = np.bincount(detection, overlap, len(detections)).astype(
                np.float64, copy=False
            )
            tolerance = _round(self.dtc * (detections.offset - detections.onset), self.decimals)
            relevant = _round(covered, self.decimals) >= tolerance
            relevant &= n_events[detections.file_index, detections.class_index] > 0
            parts.append(_while_present(detections, np.flatnonzero(relevant), [[0], [-1], [0]]))
            some = np.flatnonzero(relevant[detection] & (overlap > 0) & (needed[event] > 0))
            parts.append(
                self._true_positives(
                    detections, detection[some], event[some], overlap[some], needed, reference
                )
            )
            if self.cttc is not None:
                parts.append(self._cross_triggers(detections, relevant, n_events, reference))
        parts.append(_events_of_length_0(stacked, np.flatnonzero(needed == 0)))
        return CountDeltas.merge(parts)

    def _true_positives(
        self,
        detections: Detections,
        detection: Ints,
        event: Ints,
        overlap: Reals,
        needed: Reals,
        reference: EventArrays,
    ) -> CountDeltas:
        """Return where relevant detections start or cease to cover enough of an event."""
        events = np.concatenate([event, event])
        scores = np.concatenate([detections.upper[detection], detections.lower[detection]])
        order = np.lexsort((-scores, events))
        events, scores = events[order], scores[order]
        change = np.concatenate([overlap, -overlap])[order]
        covered = np.cumsum(change)
        new = np.diff(events, prepend=-1) != 0
        covered -= (covered - change)[new][np.cumsum(new) - 1]  # from each event's first change on
        last = np.flatnonzero(np.append(new[1:] | (scores[1:] != scores[:-1]), True)[: len(new)])
        events, scores = events[last], scores[last]
        is_found = (_round(covered[last], self.decimals) >= needed[events]).astype(np.int64)
        same_event = np.diff(events, prepend=-1) == 0
        values = np.zeros((3, len(is_found)), np.int32)
        values[0] = is_found - np.where(same_event, np.roll(is_found, 1), 0)
        class_index = reference.class_index[events]
        return CountDeltas(reference.file_index[events], class_index, scores, values, class_index)

    def _cross_triggers(
        self, detections: Detections, relevant: Bools, n_events: Ints, reference: EventArrays
    ) -> CountDeltas:
        """Return the irrelevant detections that events of another class cover."""
        assert self.cttc is not None
        detection, event = pair_with_events(detections, n_events.sum(axis=1, keepdims=True))
        other = reference.class_index[event]
        needed = _round(self.cttc * (detections.offset - detections.onset), self.decimals)
        overlap = overlaps(detections, detection, reference, event)
        # A relevant detection is no cross trigger, however short it is.
        is_other = ~relevant[detection] & (other != detections.class_index[detection])
        some = np.flatnonzero(is_other & ((overlap > 0) | (needed[detection] == 0)))
        detection, other, overlap = detection[some], other[some], overlap[some]
        if not len(detection):
            return _while_present(detections, detection, [[0], [0], [1]])
        # Events are sorted by class, so those of one class in one file are neighbours.
        begins = np.flatnonzero(
            (np.diff(detection, prepend=-1) != 0) | (np.diff(other, prepend=-1) != 0)
        )
        covered = _round(np.add.reduceat(overlap, begins), self.decimals)
        crossed = begins[covered >= needed[detection[begins]]]
        return _while_present(detections, detection[crossed], [[0], [0], [1]], other[crossed])


@dataclass(frozen=True)
class CollarCriterion(Collars):
    """Onset and offset of a detection must be close to those of a reference event.

    Args:
        onset_collar: tolerance of the onset in seconds.
        offset_collar: tolerance of the offset in seconds.
        percentage_of_length: tolerance of the offset as a fraction of the reference event's length;
            the larger of both applies.
        decimals: to which seconds are rounded before they are compared; None for no rounding, as in
            sed_eval and `event_scores`.

    >>> CollarCriterion(-1.0)
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: onset_collar must be a number of seconds, 0 or more. Got -1.0.
    """

    decimals: int | None = None

    def prepare(self, stacked: StackedScores) -> StackedScores:
        """Return the scores unchanged: overlapping events count separately, as in sed_eval."""
        return stacked

    def count_deltas(self, stacked: StackedScores) -> CountDeltas:
        """Return the deltas of true positives and false positives.

        >>> from earmark.formats.scores import ScoreTable
        >>> from earmark.formats.events import Event
        >>> from earmark.metrics.stacked_scores import stack_scores
        >>> scores = ScoreTable(["dog"], {"a": ([0, 1, 2], [[0.9], [0.2]])})
        >>> stacked = stack_scores({"a": [Event(0, 1, "dog")]}, scores)
        >>> deltas = CollarCriterion().count_deltas(stacked)
        >>> [deltas.values[:, deltas.score >= x].sum(axis=1).tolist() for x in (0.9, 0.2)]
        [[1, 0], [0, 1]]
        """
        n_events = stacked.n_events()
        reference = stacked.reference
        tolerances = self.offset_tolerances(reference)
        parts = [_all_as_false_positives(stacked, 2)]
        for detections in find_detections(stacked, n_events > 0):
            detection, event = pair_with_events(detections, n_events)
            onset_gap = np.abs(detections.onset[detection] - reference.onsets[event])
            offset_gap = np.abs(detections.offset[detection] - reference.offsets[event])
            close = (_round(onset_gap - self.onset_collar, self.decimals) <= 0) & (
                _round(offset_gap - tolerances[event], self.decimals) <= 0
            )
            parts += _matches(detections, detection[close], event[close], len(stacked.labels))
        return CountDeltas.merge(parts)


def _matches(
    detections: Detections, detection: Ints, event: Ints, n_classes: int
) -> list[CountDeltas]:
    """Return where the size of the maximum matching grows or shrinks."""
    group = detections.file_index[detection] * n_classes + detections.class_index[detection]
    # Usually a detection is close to one event only, and an event has one such detection at any
    # threshold: then every detection is matched as long as it is present.
    ambiguous = np.bincount(detection, minlength=len(detections))[detection] > 1
    events = np.concatenate([event, event])
    scores = np.concatenate([detections.upper[detection], detections.lower[detection]])
    order = np.lexsort((-scores, events))
    n_present = np.cumsum(np.repeat([1, -1], len(detection))[order])  # 0 after each event
    is_last = np.append(scores[order][1:] != scores[order][:-1], True)[: len(order)]
    crowded = np.zeros(int(event.max(initial=-1)) + 1, np.bool_)
    crowded[events[order][is_last & (n_present > 1)]] = True
    needs_search = np.isin(group, group[ambiguous | crowded[event]])
    parts = [_while_present(detections, detection[~needs_search], [[1], [-1]])]
    rows = np.flatnonzero(needs_search)
    rows = rows[np.argsort(group[rows], kind="stable")].tolist()
    for _, members in groupby(rows, key=group.__getitem__):
        pairs = list(members)
        parts.append(_matches_of_one_group(detections, detection[pairs], event[pairs]))
    return parts


def _matches_of_one_group(detections: Detections, detection: Ints, event: Ints) -> CountDeltas:
    """Return the same for one class of one file, by one maximum matching per threshold."""
    upper, lower = detections.upper[detection], detections.lower[detection]
    thresholds = np.unique(np.concatenate([upper, lower]))[::-1]
    pairs = np.column_stack([event, detection])
    n_matched = [
        len(maximum_matching([(e, d) for e, d in pairs[(upper >= x) & (lower < x)].tolist()]))
        for x in thresholds
    ]
    change = np.diff(np.array(n_matched, np.int32), prepend=np.int32(0))
    file_index, class_index = (
        np.repeat(index[detection[:1]], len(thresholds))
        for index in (detections.file_index, detections.class_index)
    )
    return CountDeltas(
        file_index, class_index, thresholds, np.stack([change, -change]), class_index
    )


def merge_touching(events: EventArrays) -> EventArrays:
    """Return the events with those of one class and file merged that overlap or touch.

    Args:
        events: sorted by file, class and onset.

    >>> zeros = np.zeros(3, int)
    >>> events = EventArrays(zeros, zeros, np.array([0, 0.5, 2]), np.array([1.0, 2.0, 3.0]))
    >>> merge_touching(events).offsets
    array([3.])
    """
    if not len(events):
        return events
    order = np.argsort(events.offsets)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    new = (np.diff(events.file_index, prepend=-1) != 0) | (
        np.diff(events.class_index, prepend=-1) != 0
    )
    # The latest offset so far in the same group, computed on ranks so that groups do not mix.
    latest = np.maximum.accumulate(np.cumsum(new) * len(order) + rank) % len(order)
    end = events.offsets[order[latest]]
    begins = np.flatnonzero(new | (events.onsets > np.append(-np.inf, end[:-1])))
    last = np.append(begins[1:], len(events)) - 1
    return replace(events.select(begins), offsets=end[last])


def pair_with_events(detections: Detections, n_events: Ints) -> tuple[Ints, Ints]:
    """Return the indices of detection and event of every pair in one file and class.

    Args:
        detections: the detections.
        n_events: (files, classes), the number of events, which are sorted by file and class;
            (files, 1) to pair detections with the events of all classes.

    >>> zeros = np.array([0, 0])
    >>> detections = Detections(zeros, zeros, *(np.zeros(2),) * 4, zeros)
    >>> pair_with_events(detections, np.array([[2]]))
    (array([0, 0, 1, 1]), array([0, 1, 0, 1]))
    """
    first = (np.cumsum(n_events) - n_events.ravel()).reshape(n_events.shape)
    group = (detections.file_index, detections.class_index if n_events.shape[1] > 1 else 0)
    n_own = n_events[group]
    detection = np.repeat(np.arange(len(detections)), n_own)
    within = np.arange(len(detection)) - np.repeat(np.cumsum(n_own) - n_own, n_own)
    return detection, first[group][detection] + within


def overlaps(detections: Detections, detection: Ints, reference: EventArrays, event: Ints) -> Reals:
    """Return (pairs,): by how many seconds detection and event overlap.

    >>> index, zero = np.array([0]), np.zeros(1)
    >>> detections = Detections(index, index, zero, zero + 2.0, zero, zero, index)
    >>> overlaps(detections, index, EventArrays(index, index, zero + 1.5, zero + 4.0), index)
    array([0.5])
    """
    ends = np.minimum(detections.offset[detection], reference.offsets[event])
    shared: Reals = ends - np.maximum(detections.onset[detection], reference.onsets[event])
    return np.maximum(shared, 0)


def _round(seconds: Reals, decimals: int | None) -> Reals:
    return seconds if decimals is None else np.round(seconds, decimals)


def _all_as_false_positives(stacked: StackedScores, n_kinds: int) -> CountDeltas:
    """Return all detections as false positives; correct ones are subtracted later."""
    file_index, class_index, score, change = count_detections(stacked)
    values = np.zeros((n_kinds, len(change)), np.int32)
    values[1] = change
    return CountDeltas(file_index, class_index, score, values, class_index)


def _while_present(
    detections: Detections, chosen: Ints, values: list[list[int]], other: Ints | None = None
) -> CountDeltas:
    """Return deltas that apply as long as the chosen detections are present.

    Where a detection merges into a parent that is chosen too, its end is subtracted from the delta
    of the parent's appearance.

    Args:
        detections: the detections.
        chosen: their indices, ascending; repeated for several `other`.
        values: (kinds, 1), what one detection adds to each count.
        other: the class that each is a cross trigger of, ascending within one detection.
    """
    width = 1 if other is None else int(other.max(initial=0)) + 1
    class_index = np.zeros_like(chosen) if other is None else other
    keys, parents = chosen * width + class_index, detections.parent[chosen] * width + class_index
    position = np.minimum(np.searchsorted(keys, parents), len(keys) - 1)
    has_chosen_parent = keys[position] == parents
    n_added = 1 - np.bincount(position[has_chosen_parent], minlength=len(keys))
    ends = np.flatnonzero(~has_chosen_parent)
    both = np.concatenate([chosen, chosen[ends]])
    n_detections = np.concatenate([n_added, np.full(len(ends), -1)])
    return CountDeltas(
        detections.file_index[both],
        detections.class_index[both],
        np.concatenate([detections.upper[chosen], detections.lower[chosen[ends]]]),
        np.array(values, np.int32) * n_detections.astype(np.int32),
        detections.class_index[both] if other is None else np.concatenate([other, other[ends]]),
    )


def _events_of_length_0(stacked: StackedScores, event: Ints) -> CountDeltas:
    """Return the events that need no overlap: the first detection of their class finds them."""
    reference = stacked.reference.select(event)
    file_index, class_index = reference.file_index, reference.class_index
    values = np.repeat(np.array([[1], [0], [0]], np.int32), len(event), axis=1)
    score = np.array(
        [
            stacked.scores[c, stacked.first[f] : stacked.last[f]].max()
            for f, c in zip(file_index, class_index, strict=True)
        ]
    )
    return CountDeltas(file_index, class_index, score.reshape(-1), values, class_index)
