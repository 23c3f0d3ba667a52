"""How much of what tuning gains on its own clips remains on others: cross-validation over clips.

The whole search is repeated without the clips of each fold, whose events are then decoded with what
it found. The counts of all held-out clips make one score, as the objective does with any clips; the
start is scored on the same clips. The standard error of the difference is that of the jackknife
over groups of clips: all counts are sums over clips, so leaving a group out is a subtraction.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from earmark.errors import DataError, SettingError
from earmark.inference.decoding import Rule
from earmark.inference.tuning.search import Fractions, Search


@dataclass(frozen=True)
class CrossValidation:
    """What the search gains on clips that it has not seen.

    Args:
        n_folds: how many parts the clips were split into.
        score: of the start's objective, each clip decoded with what was found without its fold.
        gain: by how much that is better than the start; an error rate gains as it falls.
        standard_error: of the gain.
        in_sample_score: of what was found with all clips, on these clips: it is too good.

    >>> CrossValidation(5, score=0.62, gain=0.02, standard_error=0.03, in_sample_score=0.9).is_gain
    False
    """

    n_folds: int
    score: float
    gain: float
    standard_error: float
    in_sample_score: float

    @property
    def is_gain(self) -> bool:
        """Whether the gain is above 0 by more than its standard error.

        >>> CrossValidation(5, 0.62, 0.02, 0.01, 0.9).is_gain
        True
        """
        return self.gain > self.standard_error


def cross_validate(
    search: Search,
    rules: Sequence[Rule],
    search_on: Callable[[Sequence[int]], Search],
    n_folds: int,
    groups: Sequence[Hashable],
) -> CrossValidation:
    """Return the cross-validation of a search whose result on all clips is `rules`.

    Args:
        search: on all clips.
        rules: what it found.
        search_on: returns the same search on some of the clips.
        n_folds: as many, or as there are groups, if fewer.
        groups: of each clip.
    """
    if n_folds < 2:
        raise SettingError(f"n_folds must be 2 or more, or 0 for none. Got {n_folds!r}.")
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    group_of_clip, n_groups = np.array([numbers[group] for group in groups]), len(numbers)
    if n_groups < 2:
        raise SettingError(
            "Cross-validation needs clips of two groups or more. Got one; tune on more clips, or "
            "set n_folds=0."
        )
    n_folds = min(n_folds, n_groups)
    order = np.random.default_rng(0).permutation(n_groups)
    fold_of_clip = (order % n_folds)[group_of_clip]
    start = search.fractions(search.estimate(search.start))
    gain, cost = (np.zeros_like(table) for table in start)
    for fold in range(n_folds):
        held_out = fold_of_clip == fold
        found = _rules_of(search_on, np.flatnonzero(~held_out).tolist(), search.start)
        own = search.fractions(search.estimate(found))
        gain[held_out], cost[held_out] = own.gain[held_out], own.cost[held_out]
    tuned = Fractions(gain, cost)
    gained = tuned.value() - start.value()
    left_out = [each.without_each(group_of_clip, n_groups) for each in (tuned, start)]
    differences = left_out[0] - left_out[1]
    variance = (n_groups - 1) / n_groups * ((differences - differences.mean()) ** 2).sum()
    sign = -1 if search.objective == "error_rate" else 1
    return CrossValidation(
        n_folds,
        sign * tuned.value() + 0.0,
        gained,
        math.sqrt(variance),
        search.score(rules),
    )


def _rules_of(
    search_on: Callable[[Sequence[int]], Search], rows: Sequence[int], start: Sequence[Rule]
) -> Sequence[Rule]:
    """Return what is found on some clips; the start where they have nothing to tune on."""
    try:
        return search_on(rows).run()
    except DataError:
        return start
