"""Runs of frames and true events -> what changes as the threshold falls, event by event.

Two criteria say when a detection is right. Both look at one class of one file at a time.

- `Intersections`, those of PSDS (Bilen et al. 2020). A detection counts if true events of its
  class cover a part of `dtc` of it, else it is a false positive; a true event is found if
  detections that count cover a part of `gtc` of it. A false positive of which true events of
  another class cover `cttc` is a cross trigger too, one for each such class. Events of one class
  that overlap or touch are one event first (sed_scores_eval refuses them).
- `Collars`, those of event-based scores (Mesaros et al. 2016). A detection may stand for a true
  event if its onset is near enough and its offset too; as many pairs are made as there can be.

Conventions: `decimals` rounds seconds before they are compared, so that what is equal but for
floating point counts as equal. sed_scores_eval 0.0.4 rounds to 6 decimals, sed_eval not at all
(None). An event without length is found by intersection as soon as anything of its class is
detected in its file, as in sed_scores_eval.
"""

import math
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from earmark.errors import SettingError
from earmark.metrics.changes import Changes
from earmark.metrics.matching import take_most
from earmark.metrics.runs import Bools, Ints, Reals, Runs, Stack, count_changes, find_runs
from earmark.metrics.sides import Side


@dataclass(frozen=True)
class Intersections:
    """Detections and events that must cover a part of each other.

    Args:
        dtc: part of a detection that events must cover (detection tolerance criterion).
        gtc: part of an event that detections must cover (ground truth intersection criterion).
        cttc: part of a detection that events of another class must cover to make it a cross
            trigger (cross-trigger tolerance criterion); None counts none.
        decimals: of seconds, when they are compared.

    >>> Intersections(0.7, 1.7)
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: gtc must be a part above 0 and up to 1. Got 1.7.
    """

    dtc: float
    gtc: float
    cttc: float | None = None
    decimals: int | None = 6

    def __post_init__(self) -> None:
        for name in ("dtc", "gtc", "cttc"):
            value = getattr(self, name)
            if not (value is None and name == "cttc") and not 0 < value <= 1:
                raise SettingError(f"{name} must be a part above 0 and up to 1. Got {value!r}.")

    def prepare(self, stack: Stack) -> Stack:
        """Return the stack with events of one class that overlap or touch made one."""
        return replace(stack, reference=merge_touching(stack.reference))

    def find_changes(self, stack: Stack) -> Changes:
        """Return the changes; amounts are true positives, false positives and cross triggers.

        >>> from earmark.formats.scores import ScoreCurve, ScoreCurves
        >>> from earmark.formats.events import Event
        >>> from earmark.metrics.runs import stack_curves
        >>> curves = ScoreCurves(["dog"], {"a": ScoreCurve([0, 1, 2], [[0.9], [0.2]])})
        >>> stack = stack_curves({"a": [Event(0, 1, "dog")]}, curves)
        >>> changes = Intersections(0.7, 0.7).find_changes(stack)
        >>> [changes.amounts[:2, changes.score >= x].sum(axis=1).tolist() for x in (0.9, 0.2)]
        [[1, 0], [0, 1]]
        """
        n_events = stack.n_events()
        chosen = n_events > 0
        if self.cttc is not None:
            chosen = np.repeat(chosen.any(axis=1, keepdims=True), len(stack.labels), axis=1)
        reference = stack.reference
        need = _rounded(self.gtc * (reference.offsets - reference.onsets), self.decimals)
        parts = [_count_detections(stack, 3)]
        for runs in find_runs(stack, chosen):
            run, event = pair_up(runs, n_events)
            overlap = overlaps(runs, run, reference, event)
            covered: Reals = np.bincount(run, overlap, len(runs)).astype(np.float64, copy=False)
            dtc = _rounded(self.dtc * (runs.offset - runs.onset), self.decimals)
            relevant = _rounded(covered, self.decimals) >= dtc
            relevant &= n_events[runs.of_file, runs.of_class] > 0
            parts.append(_while_there(runs, np.flatnonzero(relevant), [[0], [-1], [0]]))
            some = np.flatnonzero(relevant[run] & (overlap > 0) & (need[event] > 0))
            parts.append(
                self._find_found(runs, run[some], event[some], overlap[some], need, reference)
            )
            if self.cttc is not None:
                parts.append(self._find_crossed(runs, relevant, n_events, reference))
        parts.append(_found_by_anything(stack, np.flatnonzero(need == 0)))
        return Changes.gathered(parts)

    def _find_found(
        self, runs: Runs, run: Ints, event: Ints, overlap: Reals, need: Reals, reference: Side
    ) -> Changes:
        """Return where an event has enough overlap with runs that count, or no longer has."""
        events = np.concatenate([event, event])
        scores = np.concatenate([runs.score[run], runs.low[run]])
        order = np.lexsort((-scores, events))
        events, scores = events[order], scores[order]
        step = np.concatenate([overlap, -overlap])[order]
        total = np.cumsum(step)
        new = np.diff(events, prepend=-1) != 0
        total -= (total - step)[new][np.cumsum(new) - 1]  # from the event's first change on
        last = np.flatnonzero(np.append(new[1:] | (scores[1:] != scores[:-1]), True)[: len(new)])
        events, scores = events[last], scores[last]
        found = (_rounded(total[last], self.decimals) >= need[events]).astype(np.int64)
        is_same = np.diff(events, prepend=-1) == 0
        change = found - np.where(is_same, np.roll(found, 1), 0)
        kinds = np.zeros((3, len(change)), np.int32)
        kinds[0] = change
        of_class = reference.of_class[events]
        return Changes(reference.of_file[events], of_class, scores, kinds, of_class)

    def _find_crossed(
        self, runs: Runs, relevant: Bools, n_events: Ints, reference: Side
    ) -> Changes:
        """Return the cross triggers: runs that do not count and lie on events of other classes."""
        assert self.cttc is not None
        run, event = pair_up(runs, n_events.sum(axis=1, keepdims=True))
        other = reference.of_class[event]
        need = _rounded(self.cttc * (runs.offset - runs.onset), self.decimals)
        overlap = overlaps(runs, run, reference, event)
        overlap[relevant[run]] = 0
        some = np.flatnonzero((other != runs.of_class[run]) & ((overlap > 0) | (need[run] == 0)))
        run, other, overlap = run[some], other[some], overlap[some]
        if not len(run):
            return _while_there(runs, run, [[0], [0], [1]])
        # events stand by class, so those of one class in one file are neighbours
        begins = np.flatnonzero((np.diff(run, prepend=-1) != 0) | (np.diff(other, prepend=-1) != 0))
        covered = _rounded(np.add.reduceat(overlap, begins), self.decimals)
        crossed = begins[covered >= need[run[begins]]]
        return _while_there(runs, run[crossed], [[0], [0], [1]], other[crossed])


@dataclass(frozen=True)
class Collars:
    """Detections whose onset and offset must be near those of an event.

    Args:
        onset_collar: seconds by which the onsets may differ.
        offset_collar: seconds by which the offsets may differ at least.
        percentage_of_length: the part of the event's length by which the offsets may differ, where
            that is more.
        decimals: of seconds, when they are compared; None as in sed_eval and `event_scores`.

    >>> Collars(0.2, 0.2, -1.0)
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: percentage_of_length must be a number of 0 or more. Got -1.0.
    """

    onset_collar: float
    offset_collar: float
    percentage_of_length: float = 0.0
    decimals: int | None = None

    def __post_init__(self) -> None:
        for name in ("onset_collar", "offset_collar", "percentage_of_length"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise SettingError(f"{name} must be a number of 0 or more. Got {value!r}.")

    def prepare(self, stack: Stack) -> Stack:
        """Return the stack as it is: overlapping events count each, as in sed_eval."""
        return stack

    def find_changes(self, stack: Stack) -> Changes:
        """Return the changes; amounts are true positives and false positives.

        >>> from earmark.formats.scores import ScoreCurve, ScoreCurves
        >>> from earmark.formats.events import Event
        >>> from earmark.metrics.runs import stack_curves
        >>> curves = ScoreCurves(["dog"], {"a": ScoreCurve([0, 1, 2], [[0.9], [0.2]])})
        >>> stack = stack_curves({"a": [Event(0, 1, "dog")]}, curves)
        >>> changes = Collars(0.2, 0.2).find_changes(stack)
        >>> [changes.amounts[:2, changes.score >= x].sum(axis=1).tolist() for x in (0.9, 0.2)]
        [[1, 0], [0, 1]]
        """
        n_events = stack.n_events()
        reference = stack.reference
        reach = np.maximum(
            self.offset_collar, self.percentage_of_length * (reference.offsets - reference.onsets)
        )
        parts = [_count_detections(stack, 2)]
        for runs in find_runs(stack, n_events > 0):
            run, event = pair_up(runs, n_events)
            miss_onset = np.abs(runs.onset[run] - reference.onsets[event]) - self.onset_collar
            miss_offset = np.abs(runs.offset[run] - reference.offsets[event]) - reach[event]
            near = (_rounded(miss_onset, self.decimals) <= 0) & (
                _rounded(miss_offset, self.decimals) <= 0
            )
            parts += _match(runs, run[near], event[near], len(stack.labels))
        return Changes.gathered(parts)


def _match(runs: Runs, run: Ints, event: Ints, n_classes: int) -> list[Changes]:
    """Return where a pair more can be made of runs and events, or one less."""
    group = runs.of_file[run] * n_classes + runs.of_class[run]
    # Mostly a run is near one event only, and an event has one such run at any threshold: then
    # every run there is makes a pair.
    hard = np.bincount(run, minlength=len(runs))[run] > 1
    events = np.concatenate([event, event])
    scores = np.concatenate([runs.score[run], runs.low[run]])
    order = np.lexsort((-scores, events))
    n_there = np.cumsum(np.repeat([1, -1], len(run))[order])  # every event ends with 0
    is_last = np.append(scores[order][1:] != scores[order][:-1], True)[: len(order)]
    crowded = np.zeros(int(event.max(initial=-1)) + 1, np.bool_)
    crowded[events[order][is_last & (n_there > 1)]] = True
    is_hard = np.isin(group, group[hard | crowded[event]])
    parts = [_while_there(runs, run[~is_hard], [[1], [-1]])]
    rows = np.flatnonzero(is_hard)
    rows = rows[np.argsort(group[rows], kind="stable")].tolist()
    for _, members in groupby(rows, key=group.__getitem__):
        pairs = list(members)
        parts.append(_match_one(runs, run[pairs], event[pairs]))
    return parts


def _match_one(runs: Runs, run: Ints, event: Ints) -> Changes:
    """Return the same for one class of one file, threshold after threshold."""
    scores, lows = runs.score[run], runs.low[run]
    steps = np.unique(np.concatenate([scores, lows]))[::-1]
    pairs = np.column_stack([event, run])
    n_pairs = [
        len(take_most([(e, r) for e, r in pairs[(scores >= step) & (lows < step)].tolist()]))
        for step in steps
    ]
    change = np.diff(np.array(n_pairs, np.int32), prepend=np.int32(0))
    of_file, of_class = (
        np.repeat(each[run[:1]], len(steps)) for each in (runs.of_file, runs.of_class)
    )
    return Changes(of_file, of_class, steps, np.stack([change, -change]), of_class)


def merge_touching(side: Side) -> Side:
    """Return the events with those of one class and file that overlap or touch made one.

    Args:
        side: events sorted by file, class and onset.

    >>> one = np.zeros(3, int)
    >>> merge_touching(Side(one, one, np.array([0, 0.5, 2]), np.array([1.0, 2.0, 3.0]))).offsets
    array([3.])
    """
    if not len(side):
        return side
    order = np.argsort(side.offsets)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    new = (np.diff(side.of_file, prepend=-1) != 0) | (np.diff(side.of_class, prepend=-1) != 0)
    # the latest offset so far in the same group: as ranks, so that groups do not mix
    latest = np.maximum.accumulate(np.cumsum(new) * len(order) + rank) % len(order)
    reached = side.offsets[order[latest]]
    apart = new | (side.onsets > np.append(-np.inf, reached[:-1]))
    begins = np.flatnonzero(apart)
    ends = np.append(begins[1:], len(side)) - 1
    return Side(side.of_file[begins], side.of_class[begins], side.onsets[begins], reached[ends])


def pair_up(runs: Runs, n_events: Ints) -> tuple[Ints, Ints]:
    """Return the numbers of run and event of every pair in one file and class.

    Args:
        runs: the detections.
        n_events: (files, classes), events standing by file and class; (files, 1) to pair runs with
            the events of all classes.

    >>> one = np.array([0, 0])
    >>> runs = Runs(one, one, *(np.zeros(2),) * 4, one)
    >>> pair_up(runs, np.array([[2]]))
    (array([0, 0, 1, 1]), array([0, 1, 0, 1]))
    """
    first = (np.cumsum(n_events) - n_events.ravel()).reshape(n_events.shape)
    at = (runs.of_file, runs.of_class if n_events.shape[1] > 1 else 0)
    n_own = n_events[at]
    run = np.repeat(np.arange(len(runs)), n_own)
    within = np.arange(len(run)) - np.repeat(np.cumsum(n_own) - n_own, n_own)
    return run, first[at][run] + within


def overlaps(runs: Runs, run: Ints, reference: Side, event: Ints) -> Reals:
    """Return (pairs,): for how many seconds run and event are both there.

    >>> one, zero = np.array([0]), np.zeros(1)
    >>> runs = Runs(one, one, zero, zero + 2.0, zero, zero, one)
    >>> overlaps(runs, one, Side(one, one, zero + 1.5, zero + 4.0), one)
    array([0.5])
    """
    ends = np.minimum(runs.offset[run], reference.offsets[event])
    shared: Reals = ends - np.maximum(runs.onset[run], reference.onsets[event])
    return np.maximum(shared, 0)


def _rounded(seconds: Reals, decimals: int | None) -> Reals:
    return seconds if decimals is None else np.round(seconds, decimals)


def _count_detections(stack: Stack, n_kinds: int) -> Changes:
    """Return all detections as false positives, until they are found to be right."""
    of_file, of_class, score, change = count_changes(stack)
    kinds = np.zeros((n_kinds, len(change)), np.int32)
    kinds[1] = change
    return Changes(of_file, of_class, score, kinds, of_class)


def _while_there(
    runs: Runs, chosen: Ints, amounts: list[list[int]], other: Ints | None = None
) -> Changes:
    """Return what the chosen runs change: it comes with them and goes with them.

    Where a run ends in one that is chosen too, it is that one's coming which changes less.

    Args:
        runs: the detections.
        chosen: their numbers, rising; a number more than once with several `other`.
        amounts: (kinds, 1), what a run changes.
        other: the class that each is a cross trigger of, rising for one run.
    """
    width = 1 if other is None else int(other.max(initial=0)) + 1
    of_class = np.zeros_like(chosen) if other is None else other
    keys, heirs = chosen * width + of_class, runs.parent[chosen] * width + of_class
    at = np.minimum(np.searchsorted(keys, heirs), len(keys) - 1)
    is_heired = keys[at] == heirs
    n_coming = 1 - np.bincount(at[is_heired], minlength=len(keys))
    ends = np.flatnonzero(~is_heired)
    both = np.concatenate([chosen, chosen[ends]])
    n_runs = np.concatenate([n_coming, np.full(len(ends), -1)])
    return Changes(
        runs.of_file[both],
        runs.of_class[both],
        np.concatenate([runs.score[chosen], runs.low[chosen[ends]]]),
        np.array(amounts, np.int32) * n_runs.astype(np.int32),
        runs.of_class[both] if other is None else np.concatenate([other, other[ends]]),
    )


def _found_by_anything(stack: Stack, event: Ints) -> Changes:
    """Return the events that need no overlap: found by the first detection of their class."""
    of_file, of_class = stack.reference.of_file[event], stack.reference.of_class[event]
    kinds = np.repeat(np.array([[1], [0], [0]], np.int32), len(event), axis=1)
    score = np.array(
        [
            stack.scores[c, stack.first[f] : stack.last[f]].max()
            for f, c in zip(of_file, of_class, strict=True)
        ]
    )
    return Changes(of_file, of_class, score.reshape(-1), kinds, of_class)
