"""Rules of classes -> better rules, class after class in turns.

Conventions: `truth` and what is active are (classes, items); an item is a clip or a segment. In its
turn a class is improved with the others held fixed, until none gets better; where the objective is
each class's own, one round is all it takes.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from earmark.inference.decoding import Mask, Rule
from earmark.inference.tuning.result import mean_of_known
from earmark.inference.tuning.thresholds import OBJECTIVES, Share


class Turns(ABC):
    """The search for one rule a class; a subclass knows what an item is and what to try."""

    def __init__(self, truth: Mask, objective: str, n_rounds: int) -> None:
        self.truth, self.objective, self.n_rounds = truth, objective, n_rounds
        self.share = OBJECTIVES[objective]

    @abstractmethod
    def active_of(self, at: int, rule: Rule) -> Mask:
        """Return which items a rule makes active, (items,)."""

    @abstractmethod
    def improve(self, at: int, rule: Rule, share: Share) -> Rule:
        """Return a rule for class `at` whose value is not below that of `rule`."""

    def go_round(self, rules: Sequence[Rule]) -> list[Rule]:
        """Improve class after class until none gets better, or the rounds are over."""
        rules = list(rules)
        active = self.active(rules)
        for _ in range(self.n_rounds):
            before = list(rules)
            for at, rule in enumerate(before):
                rules[at] = self.improve(at, rule, self.share(self.truth, active, at))
                active[at] = self.active_of(at, rules[at])
            if rules == before or self.objective == "class_f_measure":
                break
        return rules

    def active(self, rules: Sequence[Rule]) -> Mask:
        """Return where each class is found, (classes, items)."""
        return np.stack([self.active_of(at, rule) for at, rule in enumerate(rules)])

    def value(self, rules: Sequence[Rule]) -> float:
        """Return what is maximised: the mean over classes, of equals if it is an overall score."""
        active = self.active(rules)
        with_reference = np.flatnonzero(self.truth.any(axis=1)).tolist()
        return mean_of_known(
            self.share(self.truth, active, at).value(active[at]) for at in with_reference
        )

    def score(self, rules: Sequence[Rule]) -> float:
        """Return the objective; an error rate is searched as its negative and told as itself."""
        value = self.value(rules)
        return 0.0 - value if self.objective == "error_rate" else value  # 0 without a sign
