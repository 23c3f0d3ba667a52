"""Reference events and estimated events -> pairs of them that belong together.

Conventions: an estimated event may stand for a reference event if its onset and its offset are near
enough (`EventRule`). `find_pairs` lists all such pairs inside each group (a class of a file, or a
file), `choose_pairs` takes from them so that no event is taken twice:

- `"optimal"`: as many pairs as there can be. That number is one and the same for every algorithm,
  but which events are left over is not, and on those the overall substitutions hang. So we take
  the very pairs of sed_eval 0.2.1: its algorithm (Hopcroft and Karp, by Eppstein, by way of
  mir_eval), with events in the order given. Pairs of one group have no bearing on another's, so
  each group is solved alone.
- `"greedy"`: each reference event, in the order given, takes the first estimate that is still
  free; sed_eval kept it to compare with scores of old.

Time and memory grow with events (as sorting does) and with pairs. A reference event that shares no
candidate with another needs no search at all, and most are so.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from earmark.errors import SettingError
from earmark.metrics.sides import Ints, Reals, Side

Bools = NDArray[np.bool_]
Pair = tuple[int, int]


@dataclass(frozen=True)
class EventRule:
    """When an estimated event stands for a reference event.

    Args:
        onset_collar: seconds by which the onsets may differ; sed_eval's `t_collar`.
        offset_collar: seconds by which the offsets may differ at least; again its `t_collar`,
            which is one number for both.
        percentage_of_length: the part of the reference event's length by which the offsets may
            differ, where that is more; its `percentage_of_length`. A rate of 0 is the collar alone.
        evaluate_onset: False to take any onset.
        evaluate_offset: False to take any offset.
        matching: "optimal" or "greedy"; its `event_matching_type`.

    >>> EventRule(0.2, 0.2, 0.5, matching="best")
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: matching must be one of optimal, greedy. Got 'best'.
    """

    onset_collar: float
    offset_collar: float
    percentage_of_length: float
    evaluate_onset: bool = True
    evaluate_offset: bool = True
    matching: str = "optimal"

    def __post_init__(self) -> None:
        for name in ("onset_collar", "offset_collar", "percentage_of_length"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                what = "a part of the length" if name.endswith("rate") else "a number of seconds"
                raise SettingError(f"{name} must be {what}, 0 or more. Got {value!r}.")
        if not (self.evaluate_onset or self.evaluate_offset):
            raise SettingError("Of evaluate_onset and evaluate_offset one must be True.")
        if self.matching not in MATCHINGS:
            known = ", ".join(MATCHINGS)
            raise SettingError(f"matching must be one of {known}. Got {self.matching!r}.")

    def reaches(self, reference: Side) -> Reals:
        """Return (events,): by how much the offset of each reference event may be missed.

        >>> events = Side(np.array([0, 0]), np.array([0, 0]), np.zeros(2), np.array([0.1, 1.0]))
        >>> EventRule(0.2, 0.2, 0.5).reaches(events)
        array([0.2, 0.5])
        """
        lengths = reference.offsets - reference.onsets
        return np.maximum(self.offset_collar, self.percentage_of_length * lengths)


def find_pairs(
    reference: Side, estimate: Side, groups: tuple[Ints, Ints], rule: EventRule
) -> tuple[Ints, Ints]:
    """Return the numbers of the reference and estimated event of every pair that the rule allows.

    Args:
        reference: the true events.
        estimate: those found.
        groups: of each reference and of each estimated event; only equal ones are compared.
        rule: how near is near enough.

    Returns:
        (pairs,) and (pairs,), sorted by reference event and then by estimate.

    >>> one, two = np.array([0]), np.array([0, 0])
    >>> reference = Side(one, one, np.array([1.0]), np.array([2.0]))
    >>> estimate = Side(two, two, np.array([1.1, 1.3]), np.array([2.1, 2.0]))
    >>> find_pairs(reference, estimate, (one, two), EventRule(0.2, 0.2, 0.0))
    (array([0]), array([0]))
    """
    reaches = rule.reaches(reference)
    if rule.evaluate_onset:
        collar = np.full(len(reference), float(rule.onset_collar))
        ref, est = _near(reference.onsets, collar, estimate.onsets, groups)
    else:
        ref, est = _near(reference.offsets, reaches, estimate.offsets, groups)
    if rule.evaluate_onset and rule.evaluate_offset:
        near = np.abs(reference.offsets[ref] - estimate.offsets[est]) <= reaches[ref]
        ref, est = ref[near], est[near]
    order = np.argsort(ref * max(1, len(estimate)) + est)
    return ref[order], est[order]


def _near(
    here: Reals, reaches: Reals, there: Reals, groups: tuple[Ints, Ints]
) -> tuple[Ints, Ints]:
    """Return every pair of one group with |here - there| <= reach."""
    # One line of all groups, on which each `here` is an interval. Its ends are a few roundings too
    # wide, so that the comparison itself has the last word.
    slack = 4 * np.spacing(np.abs(here) + reaches)
    places = np.concatenate([here - reaches - slack, there, here + reaches + slack])
    kinds = np.repeat(np.arange(3, dtype=np.int8), [len(here), len(there), len(here)])
    order = np.lexsort((kinds, places, np.concatenate([groups[0], groups[1], groups[0]])))
    n_before = np.empty(len(order), np.int64)
    n_before[order] = np.cumsum(kinds[order] == 1)
    first, stop = n_before[: len(here)], n_before[len(here) + len(there) :]
    sorted_there = order[kinds[order] == 1] - len(here)
    n_near = stop - first
    ref = np.repeat(np.arange(len(here)), n_near)
    within = np.arange(len(ref)) - np.repeat(np.cumsum(n_near) - n_near, n_near)
    est = sorted_there[first[ref] + within]
    near = np.abs(here[ref] - there[est]) <= reaches[ref]
    return ref[near], est[near]


def choose_pairs(ref: Ints, est: Ints, of_pair: Ints, matching: str) -> Bools:
    """Return (pairs,): True where a pair is taken; no event is in two of them.

    Args:
        ref: number of the reference event of each pair, sorted.
        est: number of the estimated event of each pair, sorted among those of one reference event.
        of_pair: the group of each pair.
        matching: "optimal" or "greedy".

    >>> ref, est = np.array([0, 0, 1]), np.array([0, 1, 0])
    >>> choose_pairs(ref, est, np.zeros(3, int), "optimal")
    array([False,  True,  True])
    >>> choose_pairs(ref, est, np.zeros(3, int), "greedy")
    array([ True, False, False])
    """
    if not len(ref):
        return np.zeros(0, np.bool_)
    shared_ref, shared_est = np.bincount(ref) > 1, np.bincount(est) > 1
    # Where all candidates of an event are its own alone, both matchings take the first of them.
    ref_apart, est_apart = np.ones(len(shared_ref), np.bool_), np.ones(len(shared_est), np.bool_)
    ref_apart[ref[shared_est[est]]] = False
    est_apart[est[shared_ref[ref]]] = False
    first_of_ref, first_of_est = _is_first(ref), _is_first(est)
    chosen = (ref_apart[ref] & first_of_ref) | (est_apart[est] & first_of_est)
    hard = np.flatnonzero(~(ref_apart[ref] | est_apart[est]))
    hard = hard[np.argsort(of_pair[hard], kind="stable")]
    rows = np.stack([of_pair[hard], hard, ref[hard], est[hard]], axis=1).tolist()
    taken: list[int] = []
    for _, group in groupby(rows, key=itemgetter(0)):
        numbers = {(r, e): number for _, number, r, e in group}
        taken += [numbers[pair] for pair in MATCHINGS[matching](list(numbers))]
    chosen[taken] = True
    return chosen


def _is_first(numbers: Ints) -> Bools:
    """Return True where a number occurs for the first time."""
    first = np.zeros(len(numbers), np.bool_)
    first[np.unique(numbers, return_index=True)[1]] = True
    return first


def take_first(pairs: list[Pair]) -> list[Pair]:
    """Return the pairs that are free when their turn comes.

    >>> take_first([(0, 0), (0, 1), (1, 0)])
    [(0, 0)]
    """
    chosen: dict[int, int] = {}
    taken: set[int] = set()
    for ref, est in pairs:
        if ref not in chosen and est not in taken:
            chosen[ref] = est
            taken.add(est)
    return list(chosen.items())


def take_most(pairs: list[Pair]) -> list[Pair]:
    """Return as many pairs as there can be, and of all such choices that of sed_eval.

    >>> take_most([(0, 0), (0, 1), (1, 0)])
    [(0, 1), (1, 0)]
    """
    graph: dict[int, list[int]] = {}  # estimate -> its candidates, as sed_eval's G
    for ref, est in pairs:
        graph.setdefault(est, []).append(ref)
    partner: dict[int, int] = {}  # reference event -> estimate
    for est, candidates in graph.items():
        for ref in candidates:
            if ref not in partner:
                partner[ref] = est
                break
    while True:
        # Layers: from estimates without partner along candidates, and back along partners.
        matched = set(partner.values())
        back: dict[int, int | None] = {est: None for est in graph if est not in matched}
        layer, reached, free = list(back), dict[int, list[int]](), list[int]()
        while layer and not free:
            new: dict[int, list[int]] = {}
            for est in layer:
                for ref in graph[est]:
                    if ref not in reached:
                        new.setdefault(ref, []).append(est)
            reached.update(new)
            layer = [partner[ref] for ref in new if ref in partner]
            back.update((partner[ref], ref) for ref in new if ref in partner)
            free = [ref for ref in new if ref not in partner]
        if not free:
            return list(partner.items())
        for ref in free:
            _swap(ref, reached, back, partner)


def _swap(
    ref: int,
    reached: dict[int, list[int]],
    back: dict[int, int | None],
    partner: dict[int, int],
) -> None:
    """Give `ref` a partner if a path back through the layers ends at an estimate without one.

    Without recursion: a path may be as long as a file has events.
    """
    trail: list[Pair] = []
    stack = [(ref, iter(reached.pop(ref)))]
    while stack:
        at, ways = stack[-1]
        for est in ways:
            if est not in back:
                continue
            behind = back.pop(est)
            if behind is None:
                partner.update([*trail, (at, est)])
                return
            if behind in reached:
                trail.append((at, est))
                stack.append((behind, iter(reached.pop(behind))))
                break
        else:
            stack.pop()
            if trail:
                trail.pop()


MATCHINGS: dict[str, Callable[[list[Pair]], list[Pair]]] = {
    "optimal": take_most,
    "greedy": take_first,
}
