"""What changes in each file as the threshold falls -> sums at every threshold worth looking at.

Conventions: a change belongs to a file and a class and happens at a score: it holds for thresholds
at or below it. With the threshold above all scores nothing is detected, nothing is right and
nothing wrong. Changes stand class after class, and in each class by falling score, so that sums
from the first one on are the counts at each threshold. A criterion (`earmark.metrics.criteria`,
`earmark.metrics.pieces`) says what is right and what is wrong.

Files may be weighed (see `earmark.metrics.rates`); weights are never below 0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from earmark.metrics.runs import Bools, Ints, Reals


@dataclass(frozen=True, eq=False)
class Changes:
    """What changes, and where.

    Args:
        of_file: number of the file of each change.
        of_class: number of its class.
        score: where it happens.
        amounts: (kinds, changes), by how much each kind of count changes.
        other: the class that a cross trigger is of; the own one for any other change.
    """

    of_file: Ints
    of_class: Ints
    score: Reals
    amounts: NDArray[np.int32]
    other: Ints

    @classmethod
    def gathered(cls, parts: Sequence["Changes"]) -> "Changes":
        """Return all parts in one, sorted by class and falling score; what is nothing is left out.

        >>> one = np.array([0])
        >>> low = Changes(one, one, np.array([0.2]), np.array([[1]]), one)
        >>> high = Changes(one, one, np.array([0.7]), np.array([[2]]), one)
        >>> Changes.gathered([low, high]).amounts
        array([[2, 1]])
        """
        parts = [part.clean() for part in parts]
        score = np.concatenate([part.score for part in parts])
        of_class = np.concatenate([part.of_class for part in parts])
        amounts = np.concatenate([part.amounts for part in parts], axis=1)
        order = np.argsort(-score)
        # A sort of small integers is quick, and keeps the order of scores.
        small = of_class[order].astype(np.min_scalar_type(int(of_class.max(initial=0))))
        order = order[np.argsort(small, kind="stable")]
        return cls(
            np.concatenate([part.of_file for part in parts])[order],
            of_class[order],
            score[order],
            amounts[:, order],
            np.concatenate([part.other for part in parts])[order],
        )

    def __len__(self) -> int:
        return len(self.score)

    def clean(self) -> "Changes":
        """Return the changes without those that change nothing, or at no threshold.

        >>> two = np.array([0, 0])
        >>> Changes(two, two, np.array([0.5, -np.inf]), np.array([[1, 1]]), two).clean().score
        array([0.5])
        """
        some = self.amounts.any(axis=0) & (self.score > -np.inf)
        return self if some.all() else self.among(np.flatnonzero(some))

    def among(self, chosen: Ints | slice) -> "Changes":
        """Return the chosen changes.

        >>> two = np.array([0, 0])
        >>> Changes(two, two, np.array([0.5, 0.4]), np.array([[1, 1]]), two).among(two[1:]).score
        array([0.5])
        """
        return Changes(
            self.of_file[chosen],
            self.of_class[chosen],
            self.score[chosen],
            self.amounts[:, chosen],
            self.other[chosen],
        )

    def by_class(self, n_classes: int) -> Iterator["Changes"]:
        """Yield the changes of each class, which must be sorted.

        >>> two = np.array([0, 1])
        >>> both = Changes(two, two, np.array([0.5, 0.6]), np.array([[1, 1]]), two)
        >>> [float(each.score[0]) for each in both.by_class(2)]
        [0.5, 0.6]
        """
        bounds = np.searchsorted(self.of_class, np.arange(n_classes + 1)).tolist()
        for begin, end in pairwise(bounds):
            yield self.among(slice(begin, end))

    def together(self) -> "Changes":
        """Return the changes of all classes as if they were one, sorted.

        >>> two = np.array([0, 1])
        >>> both = Changes(two, two, np.array([0.5, 0.6]), np.array([[1, 1]]), two)
        >>> both.together().score.tolist()
        [0.6, 0.5]
        """
        return Changes.gathered([replace(self, of_class=np.zeros_like(self.of_class))])

    def beside(self, other: "Changes", n_files: int) -> "Changes":
        """Return the changes of both, the files of `other` numbered from `n_files` on.

        >>> one = np.array([0])
        >>> changes = Changes(one, one, np.array([0.5]), np.array([[1]]), one)
        >>> changes.beside(changes, 1).of_file.tolist()
        [0, 1]
        """
        return Changes.gathered([self, replace(other, of_file=other.of_file + n_files)])

    def turns(self, better: Bools, worse: Bools) -> Ints:
        """Return the changes after which it may be best to stop, of one class.

        Changes at one score come all or none. Where nothing gets better one should have stopped
        before, where nothing gets worse next one should go on: whatever the files weigh.

        Args:
            better: (changes,), True where stopping may gain by this change.
            worse: (changes,), True where it may lose.

        >>> some = np.zeros(4, int)
        >>> changes = Changes(some, some, np.array([0.9, 0.8, 0.7, 0.6]), some[None], some)
        >>> better = np.array([True, True, False, True])
        >>> changes.turns(better, ~better)
        array([1, 3])
        """
        if not len(self.score):
            return np.zeros(0, np.int64)
        begins = np.flatnonzero(np.diff(self.score, prepend=np.inf))
        ends = np.append(begins[1:], len(self.score)) - 1
        gains = np.logical_or.reduceat(better, begins)
        loses = np.append(np.logical_or.reduceat(worse, begins)[1:], True)
        points: Ints = ends[gains & loses]
        return points


class Tally:
    """One kind of amounts, summed up to each of some points.

    Args:
        changes: of one class.
        amount: (changes,), of this kind.
        points: numbers of the changes to sum up to, each included.

    >>> one = np.array([0, 1, 0])
    >>> changes = Changes(one, one, np.array([0.9, 0.8, 0.7]), np.array([[1, 1, -1]]), one)
    >>> tally = Tally(changes, changes.amounts[0], np.array([0, 2]))
    >>> tally.sums(), tally.sums(np.array([1.0, 2.0]))
    (array([0., 1., 1.]), array([0., 1., 2.]))
    """

    def __init__(self, changes: Changes, amount: Ints | Reals, points: Ints) -> None:
        some = np.flatnonzero(amount)
        self.amount = amount[some].astype(np.float64)
        self.of_file = changes.of_file[some]
        self.n_before = np.append(0, np.searchsorted(some, points, side="right"))

    def sums(self, weights: Reals | None = None, rates: Reals | None = None) -> Reals:
        """Return (points + 1,): the sums for one draw, that of no change at all first.

        Args:
            weights: (files,), one each without.
            rates: what each amount that is not 0 is worth; 1 without.
        """
        own = self.amount if weights is None else self.amount * weights[self.of_file]
        own = own if rates is None else own * rates
        total = np.empty(len(own) + 1)
        total[0] = 0
        np.cumsum(own, out=total[1:])
        return np.asarray(total[self.n_before])
