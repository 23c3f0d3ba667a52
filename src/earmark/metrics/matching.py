"""Matching of estimated events to reference events, as event-based scores need it.

An estimated event may match a reference event if their onsets and their offsets are close enough
(`EventRule`). `candidate_pairs` lists all such pairs within each group (one class of one file, or
one file); `match_pairs` selects from them so that no event occurs in two pairs.

Conventions: there are two matchings.

- `"optimal"`: a maximum matching. Its size does not depend on the algorithm, but which events stay
  unmatched does, and the overall substitutions depend on those. So we select the very pairs that
  sed_eval 0.2.1 selects: its algorithm (Hopcroft and Karp, implemented by Eppstein, taken from
  mir_eval), with events in the order given. Groups are independent, so each is solved alone.
- `"greedy"`: each reference event, in the order given, takes the first estimate that is still
  unmatched. sed_eval keeps it for comparison with older scores.

Time and memory grow with the number of events (as sorting does) and of candidate pairs. A reference
event that shares no candidate with another needs no search, and most do not.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np

from earmark.errors import SettingError, choose
from earmark.metrics.event_arrays import Bools, EventArrays, Ints, Reals

Pair = tuple[int, int]


@dataclass(frozen=True)
class Collars:
    """By how much onset and offset of an estimated event may differ from those of the reference.

    The defaults are those of sed_eval.

    Args:
        onset_collar: tolerance of the onset in seconds.
        offset_collar: tolerance of the offset in seconds.
        percentage_of_length: tolerance of the offset as a fraction of the reference event's length;
            the larger of both applies.

    >>> Collars(percentage_of_length=-1.0)
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: percentage_of_length must be a fraction, 0 or more. Got -1.0.
    """

    onset_collar: float = 0.2
    offset_collar: float = 0.2
    percentage_of_length: float = 0.5

    def __post_init__(self) -> None:
        for name, unit in (
            ("onset_collar", "a number of seconds"),
            ("offset_collar", "a number of seconds"),
            ("percentage_of_length", "a fraction"),
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise SettingError(f"{name} must be {unit}, 0 or more. Got {value!r}.")

    def offset_tolerances(self, reference: EventArrays) -> Reals:
        """Return (events,): by how much the offset of each reference event may be missed.

        >>> zeros = np.zeros(2, int)
        >>> Collars().offset_tolerances(EventArrays(zeros, zeros, zeros, np.array([0.1, 1.0])))
        array([0.2, 0.5])
        """
        lengths = reference.offsets - reference.onsets
        return np.maximum(self.offset_collar, self.percentage_of_length * lengths)


@dataclass(frozen=True)
class EventRule(Collars):
    """When an estimated event matches a reference event.

    Args:
        onset_collar: tolerance of the onset in seconds; sed_eval's `t_collar`.
        offset_collar: tolerance of the offset in seconds; also its `t_collar`, which is one number
            for both.
        percentage_of_length: tolerance of the offset as a fraction of the reference event's length;
            the larger of both applies. 0 leaves the collar alone.
        evaluate_onset: False to accept any onset.
        evaluate_offset: False to accept any offset.
        matching: "optimal" or "greedy"; sed_eval's `event_matching_type`.

    >>> EventRule(matching="best")
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: There is no matching 'best'. Known: greedy, optimal.
    """

    evaluate_onset: bool = True
    evaluate_offset: bool = True
    matching: str = "optimal"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.evaluate_onset or self.evaluate_offset):
            raise SettingError(
                "evaluate_onset and evaluate_offset are both False. Set at least one to True."
            )
        choose("matching", self.matching, MATCHINGS)


def candidate_pairs(
    reference: EventArrays, estimate: EventArrays, groups: tuple[Ints, Ints], rule: EventRule
) -> tuple[Ints, Ints]:
    """Return the indices of the reference and estimated event of every pair that the rule allows.

    Args:
        reference: reference events.
        estimate: estimated events.
        groups: group of each reference event and of each estimated event; only events of the same
            group are compared.
        rule: how close is close enough.

    Returns:
        (pairs,) and (pairs,), sorted by reference event and then by estimate.

    >>> one, two = np.array([0]), np.array([0, 0])
    >>> reference = EventArrays(one, one, np.array([1.0]), np.array([2.0]))
    >>> estimate = EventArrays(two, two, np.array([1.1, 1.3]), np.array([2.1, 2.0]))
    >>> candidate_pairs(reference, estimate, (one, two), EventRule(0.2, 0.2, 0.0))
    (array([0]), array([0]))
    """
    tolerances = rule.offset_tolerances(reference)
    if rule.evaluate_onset:
        collar = np.full(len(reference), float(rule.onset_collar))
        ref, est = _pairs_within(reference.onsets, collar, estimate.onsets, groups)
    else:
        ref, est = _pairs_within(reference.offsets, tolerances, estimate.offsets, groups)
    if rule.evaluate_onset and rule.evaluate_offset:
        close = np.abs(reference.offsets[ref] - estimate.offsets[est]) <= tolerances[ref]
        ref, est = ref[close], est[close]
    order = np.argsort(ref * max(1, len(estimate)) + est)
    return ref[order], est[order]


def _pairs_within(
    ref_times: Reals, tolerances: Reals, est_times: Reals, groups: tuple[Ints, Ints]
) -> tuple[Ints, Ints]:
    """Return every pair of one group with |ref_time - est_time| <= tolerance."""
    # Sort all groups on one time line, on which each reference time is an interval. Its ends are a
    # few roundings too wide; the comparison at the end decides.
    slack = 4 * np.spacing(np.abs(ref_times) + tolerances)
    times = np.concatenate(
        [ref_times - tolerances - slack, est_times, ref_times + tolerances + slack]
    )
    kinds = np.repeat(np.arange(3, dtype=np.int8), [len(ref_times), len(est_times), len(ref_times)])
    order = np.lexsort((kinds, times, np.concatenate([groups[0], groups[1], groups[0]])))
    n_before = np.empty(len(order), np.int64)
    n_before[order] = np.cumsum(kinds[order] == 1)
    first, stop = n_before[: len(ref_times)], n_before[len(ref_times) + len(est_times) :]
    sorted_est = order[kinds[order] == 1] - len(ref_times)
    n_close = stop - first
    ref = np.repeat(np.arange(len(ref_times)), n_close)
    within = np.arange(len(ref)) - np.repeat(np.cumsum(n_close) - n_close, n_close)
    est = sorted_est[first[ref] + within]
    close = np.abs(ref_times[ref] - est_times[est]) <= tolerances[ref]
    return ref[close], est[close]


def match_pairs(ref: Ints, est: Ints, groups: Ints, matching: str) -> Bools:
    """Return (pairs,): True where a pair is selected; no event occurs in two selected pairs.

    Args:
        ref: index of the reference event of each candidate pair, sorted.
        est: index of its estimated event, sorted within each reference event.
        groups: group of each pair.
        matching: "optimal" or "greedy".

    >>> ref, est = np.array([0, 0, 1]), np.array([0, 1, 0])
    >>> match_pairs(ref, est, np.zeros(3, int), "optimal")
    array([False,  True,  True])
    >>> match_pairs(ref, est, np.zeros(3, int), "greedy")
    array([ True, False, False])
    """
    if not len(ref):
        return np.zeros(0, np.bool_)
    shared_ref, shared_est = np.bincount(ref) > 1, np.bincount(est) > 1
    # If no other event competes for the candidates of an event, both matchings select the first.
    ref_alone, est_alone = np.ones(len(shared_ref), np.bool_), np.ones(len(shared_est), np.bool_)
    ref_alone[ref[shared_est[est]]] = False
    est_alone[est[shared_ref[ref]]] = False
    selected = (ref_alone[ref] & _is_first(ref)) | (est_alone[est] & _is_first(est))
    contested = np.flatnonzero(~(ref_alone[ref] | est_alone[est]))
    contested = contested[np.argsort(groups[contested], kind="stable")]
    rows = np.stack([groups[contested], contested, ref[contested], est[contested]], axis=1)
    won: list[int] = []
    for _, group in groupby(rows.tolist(), key=itemgetter(0)):
        index_of = {(r, e): index for _, index, r, e in group}
        won += [index_of[pair] for pair in MATCHINGS[matching](list(index_of))]
    selected[won] = True
    return selected


def _is_first(values: Ints) -> Bools:
    """Return True where a value occurs for the first time."""
    first = np.zeros(len(values), np.bool_)
    first[np.unique(values, return_index=True)[1]] = True
    return first


def greedy_matching(pairs: list[Pair]) -> list[Pair]:
    """Return each pair whose two events are both unmatched when its turn comes.

    >>> greedy_matching([(0, 0), (0, 1), (1, 0)])
    [(0, 0)]
    """
    matched: dict[int, int] = {}
    used: set[int] = set()
    for ref, est in pairs:
        if ref not in matched and est not in used:
            matched[ref] = est
            used.add(est)
    return list(matched.items())


def maximum_matching(pairs: list[Pair]) -> list[Pair]:
    """Return a maximum matching, and of all of them the one that sed_eval selects.

    >>> maximum_matching([(0, 0), (0, 1), (1, 0)])
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
        # Layers: from unmatched estimates along candidates, and back along partners.
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
            _augment(ref, reached, back, partner)


def _augment(
    ref: int,
    reached: dict[int, list[int]],
    back: dict[int, int | None],
    partner: dict[int, int],
) -> None:
    """Match `ref` if an augmenting path leads back through the layers to an unmatched estimate.

    Iterative, not recursive: a path may be as long as a file has events.
    """
    path: list[Pair] = []
    stack = [(ref, iter(reached.pop(ref)))]
    while stack:
        current, candidates = stack[-1]
        for est in candidates:
            if est not in back:
                continue
            previous = back.pop(est)
            if previous is None:
                partner.update([*path, (current, est)])
                return
            if previous in reached:
                path.append((current, est))
                stack.append((previous, iter(reached.pop(previous))))
                break
        else:
            stack.pop()
            if path:
                path.pop()


MATCHINGS: dict[str, Callable[[list[Pair]], list[Pair]]] = {
    "optimal": maximum_matching,
    "greedy": greedy_matching,
}
