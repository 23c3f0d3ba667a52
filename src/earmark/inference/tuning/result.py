"""A decoding found -> the record of how it was found, class by class.

Conventions: F1 is that of clips (weak) or of segments (strong), and nan where a class is never in
the reference; means leave nan out.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from earmark.inference.decoding import Decoding


@dataclass(frozen=True)
class ClassReport:
    """What tuning did to one class: F1 before and after; `note` says why it was left alone.

    Positives are clips (weak) or segments (strong) of this class.
    """

    n_positive: int
    n_negative: int
    start_f_measure: float
    f_measure: float
    note: str | None = None


@dataclass(frozen=True)
class Tuned:
    """The decoding found, and how.

    Args:
        decoding: the best found.
        supervision: "weak" (tags) or "strong" (events).
        objective: what was maximised; an error rate, minimised.
        score: of `decoding` on the tuning data.
        start_score: of the start.
        classes: label -> its report.
    """

    decoding: Decoding
    supervision: str
    objective: str
    score: float
    start_score: float
    classes: Mapping[str, ClassReport] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain dicts and lists, for a record; nan stays nan.

        >>> tuned = Tuned(Decoding.uniform(["dog"]), "weak", "clip_f_measure", 0.5, 0.5)
        >>> tuned.to_dict()["decoding"]["threshold"]
        [0.5]
        """
        return asdict(self) | {"decoding": self.decoding.to_dict()}


def mean_of_known(values: Iterable[float]) -> float:
    """Return the mean of those that are not nan; nan if there are none.

    >>> mean_of_known([1.0, math.nan, 0.5])
    0.75
    """
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan
