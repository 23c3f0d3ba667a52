"""The search for one decoding rule per class, from validation scores and their labels.

Conventions: `reference` and what is active are (classes, items); an item is a clip (from tags) or a
segment (from events). Classes are improved one after another, the others held fixed, until none
gets better; where the objective is each class's own, one round is enough. Whether an item is active
is always decided by the decoder itself (`RunFinder`); median-filtered scores only propose
thresholds to it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.frames import FrameScores, Reals
from earmark.inference.decoding import Decoding, Rule
from earmark.inference.tuning.objectives import OBJECTIVES, Share


class Counts(NamedTuple):
    """Correct, estimated and reference items or events.

    Shape: each (clips, classes).
    """

    n_right: Reals
    n_estimated: Reals
    n_reference: Reals


class Fractions(NamedTuple):
    """What the objective is made of, so that it can be summed over any clips.

    Shape: each (clips, groups); the objective is the mean over groups (classes, or one for all) of
    the sum of `gain` over the sum of `cost`. Classes without reference are left out.
    """

    gain: Reals
    cost: Reals

    def value(self) -> float:
        """Return the objective over all clips; nan without any group."""
        return float(_mean_fraction(self.gain.sum(axis=0), self.cost.sum(axis=0)))

    def without_each(self, group_of_clip: NDArray[np.intp], n_groups: int) -> Reals:
        """Return the objective without the clips of each group, (groups of clips,)."""
        sums = []
        for table in self:
            own = np.zeros((n_groups, table.shape[1]))
            np.add.at(own, group_of_clip, table)
            sums.append(table.sum(axis=0) - own)
        return _mean_fraction(*sums)


def _mean_fraction(gain: Reals, cost: Reals) -> Reals:
    """Return the mean of the fractions whose cost is above 0, (..., groups) -> (...)."""
    known = cost > 0
    n_known = known.sum(axis=-1)
    total = np.where(known, gain / np.where(known, cost, 1), 0).sum(axis=-1)
    return np.where(n_known > 0, total / np.maximum(n_known, 1), np.nan)


class Search(ABC):
    """The search for one rule per class; a subclass knows what an item is and what to try.

    Shape: `reference` (classes, items); `clip_of_item` (items,).
    """

    supervision: str
    n_rounds: int

    def __init__(
        self,
        reference: NDArray[Any],
        clip_of_item: NDArray[np.intp],
        clip_scores: Reals,
        start: Decoding,
        objective: str,
    ) -> None:
        self.reference, self.objective = reference, objective
        self.clip_of_item, self.clip_scores = clip_of_item, clip_scores
        self.labels, self.start = start.labels, start.rules
        self.share = OBJECTIVES[objective]

    @abstractmethod
    def estimate_of(self, at: int, rule: Rule) -> NDArray[Any]:
        """Return which items a rule makes active, (items,)."""

    @abstractmethod
    def improve(self, at: int, rule: Rule, share: Share) -> Rule:
        """Return a rule for class `at` whose value is not below that of `rule`."""

    @abstractmethod
    def note(self, at: int, rule: Rule) -> str | None:
        """Return why nothing could be tuned for a class, or None."""

    def run(self) -> list[Rule]:
        """Return the rules found."""
        return self.improve_all(self.start)

    def improve_all(self, rules: Sequence[Rule]) -> list[Rule]:
        """Improve one class after another until none gets better, or the rounds are over."""
        rules = list(rules)
        estimate = self.estimate(rules)
        for _ in range(self.n_rounds):
            before = list(rules)
            for at, rule in enumerate(before):
                rules[at] = self.improve(at, rule, self.share(self.reference, estimate, at))
                if rules[at] != rule:
                    estimate[at] = self.estimate_of(at, rules[at])
            if rules == before or self.objective == "class_f_measure":
                break
        return rules

    def estimate(self, rules: Sequence[Rule]) -> NDArray[Any]:
        """Return the estimate of each class, (classes, items)."""
        return np.stack([self.estimate_of(at, rule) for at, rule in enumerate(rules)])

    def counts(self, estimate: NDArray[Any]) -> Counts:
        """Return the counts of each clip and class."""
        tables = (self.reference & estimate, estimate, self.reference)
        return Counts(*(self._sum_by_clip(table).T for table in tables))

    def fractions(self, estimate: NDArray[Any]) -> Fractions:
        """Return the objective of an estimate as fractions of each clip."""
        n_right, n_estimated, n_reference = self.counts(estimate)
        if self.objective == "error_rate":
            # Errors of an item sum up to max(n_ref, n_est) - tp; see `share_of_error_rate`.
            worst = np.maximum(estimate.sum(axis=0), self.reference.sum(axis=0))
            n_errors = self._sum_by_clip(worst[None])[0] - n_right.sum(axis=1)
            return Fractions(-n_errors[:, None], n_reference.sum(axis=1, keepdims=True))
        fractions = Fractions(2 * n_right, n_estimated + n_reference)
        if self.objective == "class_f_measure":
            known = n_reference.any(axis=0)
            return Fractions(*(table[:, known] for table in fractions))
        return Fractions(*(table.sum(axis=1, keepdims=True) for table in fractions))

    def value(self, rules: Sequence[Rule]) -> float:
        """Return what is maximised: the mean over classes, or an overall score."""
        if not self.reference.any():
            return math.nan
        return self.fractions(self.estimate(rules)).value()

    def score(self, rules: Sequence[Rule]) -> float:
        """Return the objective; an error rate is maximised as its negative and reported as is."""
        value = self.value(rules)
        return 0.0 - value if self.objective == "error_rate" else value  # 0 without a sign

    def class_f_measure(self, at: int, rule: Rule) -> float:
        """Return the F1 of one class; nan if the reference does not contain it."""
        if not self.reference[at].any():
            return math.nan
        estimate = np.zeros_like(self.estimate(self.start))
        estimate[at] = self.estimate_of(at, rule)
        counts = [float(table[:, at].sum()) for table in self.counts(estimate)]
        return 2 * counts[0] / (counts[1] + counts[2])

    def sizes(self, at: int) -> tuple[int, int]:
        """Return how many items contain the class, and how many do not."""
        n_positive = int(self.reference[at].sum())
        return n_positive, self.reference.shape[1] - n_positive

    @property
    def n_clips(self) -> int:
        """How many clips there are."""
        return len(self.clip_scores)

    def _sum_by_clip(self, table: NDArray[Any]) -> Reals:
        """Sum over the items of each clip, (rows, items) -> (rows, clips)."""
        return np.stack(
            [np.bincount(self.clip_of_item, row, self.n_clips).astype(np.float64) for row in table]
        )


def clip_table(scores: Sequence[FrameScores]) -> Reals:
    """Return the clip-level scores of all recordings, (recordings, classes)."""
    return np.stack([recording.clip_level() for recording in scores]).astype(np.float64)
