"""Per-file counts, and the scores of any weighting of the files.

A scorer counts per file first (`Counts`). Its `weighted_scores(weights)` then sums the counts over
files, each file times its weight, and divides. All ones give the score itself; how often each file
occurs in a bootstrap sample gives that sample's score; zeros and ones over the concatenated files
of two systems give a permutation test. So one implementation makes the score, its confidence
interval and its p-value.

Conventions: one row of weights is one sample. Scores are nested as in sed_eval's results: a level
(`overall`, `class_wise`, `class_wise_average`), a group such as `f_measure`, and a name such as
`recall`.

Shape: weights (samples, files); scores (samples,), or (samples, classes) where they are class-wise.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Group = dict[str, Reals]
Scores = dict[str, dict[str, float]]
Path = tuple[str, ...]


# Names of the scores that the repr of grouped scores shows.
HEADLINES = ("error_rate", "f_measure", "average_precision", "ece", "per_minute")


@dataclass(frozen=True, eq=False)
class WeightedScores:
    """The scores of every sample.

    Args:
        overall: group -> name -> (samples,), over all classes (micro average).
        class_wise: group -> name -> (samples, classes).
        class_wise_average: group -> name -> (samples,), the mean over classes (macro average).

    >>> recall = {"f_measure": {"recall": np.array([0.5])}}
    >>> WeightedScores(recall, {}, recall).overall["f_measure"]["recall"]
    array([0.5])
    """

    overall: dict[str, Group]
    class_wise: dict[str, Group]
    class_wise_average: dict[str, Group]

    def sample(self, labels: Sequence[str], index: int = 0) -> dict[str, Any]:
        """Return one sample as plain floats, nested as sed_eval nests them.

        >>> recall = {"f_measure": {"recall": np.array([0.5])}}
        >>> by_class = {"f_measure": {"recall": np.array([[0.5, np.nan]])}}
        >>> WeightedScores(recall, by_class, recall).sample(("cat", "dog"))["class_wise"]["cat"]
        {'f_measure': {'recall': 0.5}}
        """
        return nest_scores(self.paths(labels), self.table()[index].tolist())

    def paths(self, labels: Sequence[str]) -> list[Path]:
        """Return where each column of `table` belongs.

        >>> recall = {"f_measure": {"recall": np.array([0.5])}}
        >>> by_class = {"f_measure": {"recall": np.array([[0.5, 1.0]])}}
        >>> WeightedScores(recall, by_class, {}).paths(["cat", "dog"])[1:]
        [('class_wise', 'cat', 'f_measure', 'recall'), ('class_wise', 'dog', 'f_measure', 'recall')]
        """
        overall, average = (
            [
                (level, group, name)
                for group, names in getattr(self, level).items()
                for name in names
            ]
            for level in ("overall", "class_wise_average")
        )
        by_class = [
            ("class_wise", label, group, name)
            for group, names in self.class_wise.items()
            for name in names
            for label in labels
        ]
        return [*overall, *by_class, *average]

    def table(self) -> Reals:
        """Return every score of every sample as columns, (samples, scores).

        >>> recall = {"f_measure": {"recall": np.array([0.5])}}
        >>> by_class = {"f_measure": {"recall": np.array([[0.5, 1.0]])}}
        >>> WeightedScores(recall, by_class, recall).table()
        array([[0.5, 0.5, 1. , 0.5]])
        """
        levels = (self.overall, self.class_wise, self.class_wise_average)
        scores = [score for level in levels for group in level.values() for score in group.values()]
        return np.concatenate([score.reshape(len(score), -1) for score in scores], axis=1)


@dataclass(frozen=True)
class GroupedScores:
    """Scores under the group and name that sed_eval gives them.

    Args:
        overall: over all classes (micro average), group -> name -> score, as in
            `scores.overall["error_rate"]["error_rate"]`.
        class_wise: label -> the same for one class, and its `count`.
        class_wise_average: the mean over classes (macro average).
        n_files: number of files evaluated.
        missing_files: files missing from the estimate, counted as without events.
        unknown_files: files that only the estimate contains, ignored.
    """

    overall: Scores
    class_wise: dict[str, Scores]
    class_wise_average: Scores
    n_files: int
    missing_files: tuple[str, ...]
    unknown_files: tuple[str, ...]

    def __repr__(self) -> str:
        shown = [
            f"{name}={value:.3f}"
            for group in self.overall.values()
            for name, value in group.items()
            if name in HEADLINES
        ]
        n_classes = len(self.class_wise)
        parts = [f"{self.n_files} files", f"{n_classes} classes", *shown]
        return f"{type(self).__name__}({', '.join(parts)})"

    @property
    def error_rate(self) -> float:
        """The overall error rate; nan if it was not scored."""
        return self.overall.get("error_rate", {}).get("error_rate", np.nan)

    @property
    def f_measure(self) -> float:
        """The overall F-measure; nan if it was not scored."""
        return self.overall.get("f_measure", {}).get("f_measure", np.nan)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain dicts, lists and floats; nan stays nan.

        >>> sorted(GroupedScores({}, {}, {}, 2, ("a.wav",), ()).to_dict())[:3]
        ['class_wise', 'class_wise_average', 'missing_files']
        """
        files = {"missing_files": self.missing_files, "unknown_files": self.unknown_files}
        return asdict(self) | {name: list(names) for name, names in files.items()}


class Counts(Protocol):
    """What every scorer returns before it divides: counts per file, which can be weighted."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that were counted."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes."""

    def weighted_scores(self, weights: Reals | None = None) -> WeightedScores:
        """Return the scores of every row of weights (samples, files); by default one row of 1."""

    def concatenate(self, other: Self) -> Self:
        """Return the counts of both, the files of `other` last."""


def weighted_sum(weights: Reals | None, counts: NDArray[Any]) -> Reals:
    """Return (samples, ...): the sum of `counts` (files, ...) over files, times their weights.

    >>> weighted_sum(np.array([[1.0, 1.0], [0.0, 2.0]]), np.array([[1, 2], [3, 4]])).tolist()
    [[4.0, 6.0], [6.0, 8.0]]
    """
    if weights is None:
        return np.asarray(counts.sum(axis=0, dtype=np.float64)[None])
    flat = counts.reshape(len(counts), -1).astype(np.float64)
    return np.asarray((weights @ flat).reshape(len(weights), *counts.shape[1:]))


def nest_scores(paths: Sequence[Path], values: Sequence[Any]) -> dict[str, Any]:
    """Return the values nested along their paths.

    >>> nest_scores([("overall", "f_measure", "recall")], [0.5])["overall"]
    {'f_measure': {'recall': 0.5}}
    """
    nested: dict[str, Any] = {"overall": {}, "class_wise": {}, "class_wise_average": {}}
    for path, value in zip(paths, values, strict=True):
        inner = nested
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = value
    return nested
