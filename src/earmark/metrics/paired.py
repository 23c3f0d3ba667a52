"""Counts of two systems on the same clips -> the difference of every score, and is it chance?

Conventions: a difference is the second system's score less the first's. Its interval comes from
draws of clips that are the same for both, so that what makes a clip hard for both drops out; ends
as in `earmark.metrics.bootstrap`. In ten simulated settings (40 to 1000 clips, 2 or 17 classes,
systems alike or not) intervals of 95 % held the true difference of F1, ER, macro F1 and lwlrap in
91 to 97 of 100 sets, that of the mAP in 87 to 96; with plain quantiles the latter are 79 to 97.

The p-value is that of a paired permutation test. If the systems were alike, it would not matter
which of them gave the answer to a clip: in each clip the two are swapped with probability 1/2, and
everything is scored anew. The p-value is the part of such swaps whose difference is at least as far
from 0, this way or that, the swap of nothing among them: (1 + as extreme) / (1 + swaps). With so
few files that all swaps can be tried, they are, and the p-value is exact. It is never 0, and it
cannot get below `smallest_p`.

Every score has its own p-value. Whoever looks at many and picks the small ones has to correct them:
`earmark.metrics.seeds.correct_p_values`. Clips tell nothing of how another training run would do;
for that see `earmark.metrics.seeds`.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from earmark.errors import DataError, SettingError
from earmark.metrics.bootstrap import (
    bound_scores,
    check_draws,
    chunk_sizes,
    draw_files,
    nest_scores,
    score_paths,
    score_table,
)
from earmark.metrics.rates import Counts, Reals

AnyCounts = TypeVar("AnyCounts", bound=Counts)

_TIE = 1e-9  # a difference nearer than this is the same one: floats were added in another order


@dataclass(frozen=True)
class Difference:
    """One score of both systems; `n_undefined` draws had no difference and were left out."""

    a: float
    b: float
    difference: float
    low: float
    high: float
    p_value: float
    n_undefined: int = 0


@dataclass(frozen=True)
class Differences:
    """Every score of two systems, nested as the scores are.

    Args:
        overall: group -> name -> difference.
        class_wise: label -> group -> name -> difference.
        class_wise_average: group -> name -> difference.
        level: how often such an interval should hold the true difference.
        n_draws: how often the files were drawn for the intervals.
        n_permutations: swaps tried for the p-values.
        smallest_p: the smallest p-value that these swaps can give.
        n_files: how many files there are.
    """

    overall: dict[str, dict[str, Difference]]
    class_wise: dict[str, dict[str, dict[str, Difference]]]
    class_wise_average: dict[str, dict[str, Difference]]
    level: float
    n_draws: int
    n_permutations: int
    smallest_p: float
    n_files: int

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain dicts and numbers; nan stays nan.

        >>> one = {"f_measure": {"recall": Difference(0.5, 0.75, 0.25, 0.0, 0.5, 0.125)}}
        >>> found = Differences(one, {}, {}, 0.95, 1000, 1000, 1 / 1001, 20).to_dict()
        >>> found["overall"]["f_measure"]["recall"]["p_value"]
        0.125
        """
        return asdict(self)


def compare_systems(
    a: AnyCounts,
    b: AnyCounts,
    *,
    n_draws: int = 1000,
    n_permutations: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Differences:
    """Return the difference b - a of every score, with its interval and p-value.

    Args:
        a: the counts of one system.
        b: those of the other, from the same scorer, reference and labels.
        n_draws: how often the files are drawn for the intervals.
        n_permutations: swaps for the p-values. Where there are not more than that in all, each is
            tried once and the p-value is exact.
        level: how often an interval should hold the true difference.
        seed: the same seed gives the same result.

    >>> from earmark.metrics.clip import count_clips
    >>> reference = {name: ["dog"] for name in "abcdefgh"}
    >>> few, more = ({name: ["dog"] for name in found} for found in ("ab", "abcdefg"))
    >>> found = compare_systems(count_clips(reference, few), count_clips(reference, more))
    >>> recall = found.overall["f_measure"]["recall"]
    >>> recall.difference, recall.low, recall.high, recall.p_value
    (0.625, 0.25, 0.875, 0.0625)
    """
    if n_permutations < 1:
        raise SettingError(f"n_permutations must be at least 1. Got {n_permutations!r}.")
    _check_pair(a, b)
    check_draws(a, n_draws, level)
    measured, other = a.measure(), b.measure()
    if score_paths(measured, a.labels) != score_paths(other, b.labels):
        raise SettingError("Two systems are compared if they were scored in the same ways.")
    of_a, of_b = score_table(measured)[0], score_table(other)[0]
    drawn = np.concatenate(
        [
            score_table(b.measure(weights)) - score_table(a.measure(weights))
            for weights in draw_files(a, n_draws, seed)
        ]
    )
    low, high, n_undefined = bound_scores(of_b - of_a, drawn, level)
    all_swaps = 2 ** len(a.files)
    exact = all_swaps <= n_permutations
    p_values = _swap_p_values(a, b, of_b - of_a, n_permutations, seed)
    columns = (of_a, of_b, of_b - of_a, low, high, p_values, n_undefined)
    found = [Difference(*row) for row in zip(*(each.tolist() for each in columns), strict=True)]
    return Differences(
        **nest_scores(score_paths(measured, a.labels), found),
        level=level,
        n_draws=n_draws,
        n_permutations=all_swaps if exact else n_permutations,
        smallest_p=2 / all_swaps if exact else 1 / (1 + n_permutations),
        n_files=len(a.files),
    )


def _check_pair(a: Counts, b: Counts) -> None:
    if type(a) is not type(b):
        raise SettingError(
            f"Two systems are compared by one scorer. Got {type(a).__name__} and "
            f"{type(b).__name__}."
        )
    if a.labels != b.labels:
        only = sorted(set(a.labels) ^ set(b.labels))
        what = f"{only[0]!r} is in one of them only" if only else "their order differs"
        raise DataError(
            f"The two systems were counted with different labels: {what}. Pass the same "
            "labels=[...] when counting both."
        )
    if a.files != b.files:
        only = sorted(set(a.files) ^ set(b.files))
        what = f"{len(only)} are in one of them only, such as {only[0]}" if only else "in order"
        raise DataError(
            f"The two systems were counted on different files ({what}). Count both against the "
            "same reference."
        )


def _swap_p_values(
    a: AnyCounts, b: AnyCounts, observed: Reals, n_permutations: int, seed: int
) -> Reals:
    both = a.beside(b)
    n_files = len(a.files)
    exact = 2**n_files <= n_permutations
    least = np.abs(observed) - _TIE * np.maximum(1, np.abs(observed))
    n_extreme, n_defined = np.zeros((2, len(observed)), np.int64)
    for swapped in _swaps(n_files, n_permutations, seed):
        first, second = (
            score_table(both.measure(np.concatenate(chosen, axis=1).astype(np.float64)))
            for chosen in ([~swapped, swapped], [swapped, ~swapped])
        )
        found = np.abs(second - first)
        n_extreme += (found >= least).sum(axis=0)
        n_defined += (~np.isnan(found)).sum(axis=0)
    unswapped = 0 if exact else 1  # all swaps hold the swap of nothing already
    p_values = (n_extreme + unswapped) / np.maximum(n_defined + unswapped, 1)
    n_swaps = 2**n_files if exact else n_permutations
    return np.where(np.isnan(observed) | (2 * n_defined < n_swaps), np.nan, p_values)


def _swaps(n_files: int, n_permutations: int, seed: int) -> Iterator[NDArray[np.bool_]]:
    """Yield which files are swapped, (swaps, files): all there are, or some of them by chance."""
    exact = 2**n_files <= n_permutations
    rng = np.random.default_rng(seed)
    done = 0
    # Two tables of weights stand side by side, each for the files of both systems.
    for n_rows in chunk_sizes(2**n_files if exact else n_permutations, 4 * n_files):
        if exact:
            number = np.arange(done, done + n_rows)
            yield (number[:, None] >> np.arange(n_files) & 1).astype(np.bool_)
            done += n_rows
        else:
            yield rng.random((n_rows, n_files)) < 0.5
