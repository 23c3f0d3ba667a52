"""Changes of counts as the threshold falls, and the cumulative counts at every threshold.

Counts such as true positives change only at scores that occur. A delta belongs to one file and one
class and has a score: it applies to thresholds at or below that score. Above all scores nothing is
detected and all counts are 0, so the sum of the deltas down to a threshold is the count there.

Conventions: deltas are sorted by class and, within a class, by falling score. A criterion
(`earmark.metrics.event_criteria`, `earmark.metrics.segment_criterion`) defines what is a true or a
false positive. Files may be weighted (`earmark.metrics.weighted_scores`); weights are never
negative.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from earmark.metrics.event_arrays import Bools, Ints, Reals


@dataclass(frozen=True, eq=False)
class CountDeltas:
    """Changes of counts, each at one score.

    Args:
        file_index: (deltas,), the file of each delta.
        class_index: (deltas,), its class.
        score: (deltas,), the highest threshold at which it applies.
        values: (kinds, deltas), by how much each kind of count changes.
        other_class: (deltas,), the reference class of a cross trigger; `class_index` otherwise.

    >>> zero = np.array([0])
    >>> len(CountDeltas(zero, zero, np.array([0.2]), np.array([[1]]), zero))
    1
    """

    file_index: Ints
    class_index: Ints
    score: Reals
    values: NDArray[np.int32]
    other_class: Ints

    @classmethod
    def merge(cls, parts: Sequence["CountDeltas"]) -> "CountDeltas":
        """Return all parts as one, sorted by class and falling score, without zeros.

        >>> zero = np.array([0])
        >>> low = CountDeltas(zero, zero, np.array([0.2]), np.array([[1]]), zero)
        >>> high = CountDeltas(zero, zero, np.array([0.7]), np.array([[2]]), zero)
        >>> CountDeltas.merge([low, high]).values
        array([[2, 1]])
        """
        parts = [part.drop_zeros() for part in parts]
        score = np.concatenate([part.score for part in parts])
        class_index = np.concatenate([part.class_index for part in parts])
        values = np.concatenate([part.values for part in parts], axis=1)
        order = np.argsort(-score)
        # Sorting small integers is fast, and a stable sort keeps the order of scores.
        small = class_index[order].astype(np.min_scalar_type(int(class_index.max(initial=0))))
        order = order[np.argsort(small, kind="stable")]
        return cls(
            np.concatenate([part.file_index for part in parts])[order],
            class_index[order],
            score[order],
            values[:, order],
            np.concatenate([part.other_class for part in parts])[order],
        )

    def __len__(self) -> int:
        return len(self.score)

    def drop_zeros(self) -> "CountDeltas":
        """Return the deltas without those that change nothing, or that no threshold reaches.

        >>> two = np.array([0, 0])
        >>> deltas = CountDeltas(two, two, np.array([0.5, -np.inf]), np.array([[1, 1]]), two)
        >>> deltas.drop_zeros().score
        array([0.5])
        """
        some = self.values.any(axis=0) & (self.score > -np.inf)
        return self if some.all() else self.select(np.flatnonzero(some))

    def select(self, chosen: Ints | slice) -> "CountDeltas":
        """Return some of the deltas, by index or by slice.

        >>> two = np.array([0, 0])
        >>> deltas = CountDeltas(two, two, np.array([0.5, 0.4]), np.array([[1, 1]]), two)
        >>> deltas.select(slice(1, 2)).score
        array([0.4])
        """
        return CountDeltas(
            self.file_index[chosen],
            self.class_index[chosen],
            self.score[chosen],
            self.values[:, chosen],
            self.other_class[chosen],
        )

    def split_by_class(self, n_classes: int) -> Iterator["CountDeltas"]:
        """Yield the deltas of each class.

        >>> two = np.array([0, 1])
        >>> deltas = CountDeltas(two, two, np.array([0.5, 0.6]), np.array([[1, 1]]), two)
        >>> [float(own.score[0]) for own in deltas.split_by_class(2)]
        [0.5, 0.6]
        """
        bounds = np.searchsorted(self.class_index, np.arange(n_classes + 1)).tolist()
        for begin, end in pairwise(bounds):
            yield self.select(slice(begin, end))

    def pool_classes(self) -> "CountDeltas":
        """Return the deltas of all classes as if they were one class, sorted.

        >>> two = np.array([0, 1])
        >>> deltas = CountDeltas(two, two, np.array([0.5, 0.6]), np.array([[1, 1]]), two)
        >>> deltas.pool_classes().score.tolist()
        [0.6, 0.5]
        """
        return CountDeltas.merge([replace(self, class_index=np.zeros_like(self.class_index))])

    def concatenate(self, other: "CountDeltas", n_files: int) -> "CountDeltas":
        """Return the deltas of both, the files of `other` indexed from `n_files` on.

        >>> zero = np.array([0])
        >>> deltas = CountDeltas(zero, zero, np.array([0.5]), np.array([[1]]), zero)
        >>> deltas.concatenate(deltas, 1).file_index.tolist()
        [0, 1]
        """
        return CountDeltas.merge([self, replace(other, file_index=other.file_index + n_files)])

    def candidate_points(self, better: Bools, worse: Bools) -> Ints:
        """Return the deltas, of one class, after which a threshold may be optimal.

        Deltas of equal score apply together. Whatever the weights of the files, a threshold cannot
        be the only optimum if nothing improved since the next higher one, or if nothing gets worse
        at the next lower one.

        Args:
            better: (deltas,), True where a score may improve by this delta.
            worse: (deltas,), True where it may get worse.

        >>> some = np.zeros(4, int)
        >>> deltas = CountDeltas(some, some, np.array([0.9, 0.8, 0.7, 0.6]), some[None], some)
        >>> better = np.array([True, True, False, True])
        >>> deltas.candidate_points(better, ~better)
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


class CumulativeCounts:
    """The counts of one kind at some thresholds.

    Args:
        deltas: of one class.
        values: (deltas,), of this kind.
        points: indices of the deltas up to which to sum, inclusive.

    >>> files = np.array([0, 1, 0])
    >>> deltas = CountDeltas(files, files, np.array([0.9, 0.8, 0.7]), np.array([[1, 1, -1]]), files)
    >>> counts = CumulativeCounts(deltas, deltas.values[0], np.array([0, 2]))
    >>> counts.at_points(), counts.at_points(np.array([1.0, 2.0]))
    (array([0., 1., 1.]), array([0., 1., 2.]))
    """

    def __init__(self, deltas: CountDeltas, values: Ints | Reals, points: Ints) -> None:
        some = np.flatnonzero(values)
        self.values = values[some].astype(np.float64)
        self.file_index = deltas.file_index[some]
        self.n_before = np.append(0, np.searchsorted(some, points, side="right"))

    def at_points(self, weights: Reals | None = None, costs: Reals | None = None) -> Reals:
        """Return (points + 1,): the count above all scores, then the count at each point.

        Args:
            weights: (files,), by default 1 each.
            costs: a factor for each value that is not 0, by default 1.
        """
        weighted = self.values if weights is None else self.values * weights[self.file_index]
        weighted = weighted if costs is None else weighted * costs
        total = np.empty(len(weighted) + 1)
        total[0] = 0
        np.cumsum(weighted, out=total[1:])
        return np.asarray(total[self.n_before])
