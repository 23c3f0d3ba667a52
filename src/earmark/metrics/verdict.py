"""One sentence per comparison of two systems: ahead, behind, no difference, or too few runs.

Conventions: a difference is the score of the second system minus that of the first, in the mean of
runs paired by seed. It is uncertain for two reasons, the seeds and the choice of test clips, and
the squared margins of both add up: Student's over the runs, and the normal one of a bootstrap over
the clips, in which both systems and all runs are scored on the same resampled clips.

Three outcomes are decided, in this order:

    equivalent    the 90 % interval lies within ±0.02: "no difference larger than 0.02 F1". That is
                  the test of equivalence by two one-sided tests at 5 % each (Schuirmann 1987)
    ahead/behind  the p-value of the difference, corrected for its family (Holm), is below 0.05
    undecided     neither; the sentence then has the number of runs that would decide

A fourth, "refused", is for the caller, who knows why a difference says nothing (`Verdict.refuse`).

The p-value is that of the interval: one minus the confidence level whose interval ends at 0. The
sign-flip test of `earmark.metrics.run_comparison` assumes no normal distribution, but cannot be
below 0.0625 with five runs, whatever they show; it knows nothing of the clips, either.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

from earmark.errors import DataError, SettingError
from earmark.metrics.run_comparison import correct_p_values, student_quantile

EQUIVALENCE = 0.02  # a smaller difference is called none
LEVEL = 0.95  # of the interval in a sentence
NARROW_LEVEL = 0.90  # of the interval that must lie within ±EQUIVALENCE
MOST_RUNS = 200  # nobody trains more

_NORMAL = NormalDist()


@dataclass(frozen=True)
class Effect:
    """The mean difference of two systems, and how it varies with seeds and clips.

    Args:
        difference: the mean over the runs.
        run_variance: of the differences of single runs.
        clip_variance: of the mean difference, over the choice of clips.
        n_runs: number of pairs of runs.
        n_folds: number of sets of clips on which they were scored; 1 if all share their clips.

    >>> effect = Effect(0.03, run_variance=0.0001, clip_variance=0.0, n_runs=5)
    >>> round(effect.half_width(0.95), 4), round(effect.p_value, 4)
    (0.0124, 0.0026)
    """

    difference: float
    run_variance: float
    clip_variance: float
    n_runs: int
    n_folds: int = 1

    def __post_init__(self) -> None:
        if self.n_runs < 2:
            raise DataError(f"A verdict needs at least two pairs of runs. Got {self.n_runs}.")

    def half_width(self, level: float, n_runs: int | None = None) -> float:
        """Return half the width of the confidence interval, with these or another number of runs.

        The clips do not become more with the runs, so their part stays. Where runs are scored on
        different folds, part of it is in the spread of the runs already: let a fold's clips change
        the difference by c (variance C), a seed by a (variance A), and let K folds have n / K runs
        each. The mean has the variance A / n + C / K, while the spread of the runs is
        A + C (n - n / K) / (n - 1) in expectation. What is missing is C / K, which the bootstrap
        estimates, times (n - K) / (n - 1): all of it with one fold, nothing with a fold per run.

        >>> Effect(0.0, 0.0, 0.0001, n_runs=5, n_folds=5).half_width(0.95)
        0.0
        """
        n_runs = n_runs or self.n_runs
        of_runs = student_quantile(level, n_runs - 1) ** 2 * self.run_variance / n_runs
        missing = max(0, n_runs - self.n_folds) / (n_runs - 1)
        of_clips = _NORMAL.inv_cdf((1 + level) / 2) ** 2 * self.clip_variance * missing
        return float((of_runs + of_clips) ** 0.5)

    def interval(self, level: float) -> tuple[float, float]:
        """Return both ends of the confidence interval.

        >>> Effect(0.5, 0.0, 0.0, n_runs=2).interval(0.95)
        (0.5, 0.5)
        """
        half = self.half_width(level)
        return self.difference - half, self.difference + half

    def text(self, unit: str = "F1") -> str:
        """Return the difference and its interval in words.

        >>> Effect(0.03, run_variance=0.0001, clip_variance=0.0, n_runs=5).text()
        '+0.030 F1 [+0.018, +0.042]'
        """
        low, high = self.interval(LEVEL)
        return f"{self.difference:+.3f} {unit} [{low:+.3f}, {high:+.3f}]"

    @property
    def p_value(self) -> float:
        """One minus the level of the interval that ends at 0.

        >>> Effect(0.0, 0.0001, 0.0, n_runs=5).p_value, Effect(0.1, 0.0, 0.0, n_runs=5).p_value
        (1.0, 0.0)
        """
        if self.difference == 0:
            return 1.0
        if self.half_width(0.5) == 0:
            return 0.0
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            if self.half_width(middle) < abs(self.difference):
                low = middle
            else:
                high = middle
        return 1 - low

    def n_needed(self, limit: float = EQUIVALENCE, n_tests: int = 1) -> int | None:
        """Return how many runs, more than these, would decide; None if `MOST_RUNS` would not.

        With a mean difference d and a spread as measured, n runs decide if the 90 % interval fits
        within the limit, or if the interval of the difference test excludes 0,

            h90(n) <= limit - |d|    or    h(n) < |d|,    h at the level 1 - 0.05 / n_tests,

        where h(n)² = t(n - 1)² run_variance / n + z² clip_variance is the half width with n runs,
        and a difference out of `n_tests` must pass the strictest step of Holm's correction. More
        runs shrink the first term only: if the clips leave too much, no number of runs is enough.
        Mean and spread vary: with n runs, a quarter to a half of such comparisons are decided.

        >>> Effect(0.0, run_variance=0.0009, clip_variance=0.0, n_runs=5).n_needed()
        9
        """
        size = abs(self.difference)
        for n_runs in range(self.n_runs + 1, MOST_RUNS + 1):
            equivalent = self.half_width(NARROW_LEVEL, n_runs) <= limit - size
            if equivalent or self.half_width(1 - (1 - LEVEL) / n_tests, n_runs) < size:
                return n_runs
        return None


@dataclass(frozen=True)
class Verdict:
    """What a comparison of two systems says.

    Args:
        effect: the difference and how it varies.
        p_value: corrected for the family.
        outcome: "equivalent", "ahead", "behind", "undecided" or "refused".
        limit: a difference within ± this is called none.
        n_needed: runs that would decide; None if it is decided, or no number of runs would.
        refusal: why the difference says nothing, whatever it is.

    >>> judge([Effect(0.03, run_variance=0.0001, clip_variance=0.00001, n_runs=8)])[0].sentence()
    'ahead by 0.030 F1 [0.020, 0.040], p < 0.001'
    """

    effect: Effect
    p_value: float
    outcome: str
    limit: float = EQUIVALENCE
    n_needed: int | None = None
    refusal: str = ""

    def refuse(self, reason: str) -> "Verdict":
        """Return the same difference without a verdict.

        >>> verdict = judge([Effect(0.1, run_variance=0.0001, clip_variance=0.0, n_runs=5)])[0]
        >>> verdict.refuse("both fail").sentence()
        'no verdict, since both fail: +0.100 F1 [+0.088, +0.112]'
        """
        return replace(self, outcome="refused", n_needed=None, refusal=reason)

    def sentence(self, unit: str = "F1") -> str:
        """Return it in words.

        >>> judge([Effect(0.001, 0.0001, 0.0, n_runs=8)])[0].sentence()
        'no difference larger than 0.02 F1 (+0.001, 90 % interval -0.006 to +0.008)'
        >>> judge([Effect(0.001, 0.0009, 0.0, n_runs=5)])[0].sentence()
        'too few runs to tell: at least 9 would be needed (+0.001 F1 [-0.036, +0.038] from 5)'
        """
        effect = self.effect
        if self.refusal:
            return f"no verdict, since {self.refusal}: {effect.text(unit)}"
        if self.outcome == "equivalent":
            narrow = effect.interval(NARROW_LEVEL)
            return (
                f"no difference larger than {self.limit:g} {unit} ({effect.difference:+.3f}, "
                f"{100 * NARROW_LEVEL:.0f} % interval {narrow[0]:+.3f} to {narrow[1]:+.3f})"
            )
        if self.outcome == "undecided":
            measured = f"({effect.text(unit)} from {effect.n_runs})"
            if self.n_needed is None:
                return f"too few clips to tell: not even {MOST_RUNS} runs would decide {measured}"
            return f"too few runs to tell: at least {self.n_needed} would be needed {measured}"
        size, ends = abs(effect.difference), sorted(map(abs, effect.interval(LEVEL)))
        p_text = "p < 0.001" if self.p_value < 0.001 else f"p = {self.p_value:.3f}"
        return f"{self.outcome} by {size:.3f} {unit} [{ends[0]:.3f}, {ends[1]:.3f}], {p_text}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, with both intervals and the sentence.

        >>> judge([Effect(0.0, 0.0, 0.0, n_runs=2)])[0].to_dict()["outcome"]
        'equivalent'
        """
        effect = self.effect
        (low, high), narrow = effect.interval(LEVEL), effect.interval(NARROW_LEVEL)
        return {
            "outcome": self.outcome,
            "sentence": self.sentence(),
            "refusal": self.refusal,
            "difference": effect.difference,
            "low": low,
            "high": high,
            "narrow_low": narrow[0],
            "narrow_high": narrow[1],
            "p_value": self.p_value,
            "n_runs": effect.n_runs,
            "n_needed": self.n_needed,
        }


def judge(family: Sequence[Effect], limit: float = EQUIVALENCE) -> list[Verdict]:
    """Return the verdict on each of several differences that are tested together.

    Args:
        family: differences whose p-values are corrected for their number (Holm).
        limit: a difference within ± this is called none.

    >>> effects = [Effect(0.04, 0.0004, 0.0, n_runs=5), Effect(-0.04, 0.0004, 0.0, n_runs=5)]
    >>> [(verdict.outcome, round(verdict.p_value, 3)) for verdict in judge(effects)]
    [('ahead', 0.022), ('behind', 0.022)]
    """
    if not 0 < limit < 1:
        raise SettingError(f"limit must lie between 0 and 1, such as {EQUIVALENCE}. Got {limit!r}.")
    p_values = correct_p_values([effect.p_value for effect in family])
    return [
        _judge_one(effect, p_value, limit, len(family))
        for effect, p_value in zip(family, p_values, strict=True)
    ]


def _judge_one(effect: Effect, p_value: float, limit: float, n_tests: int) -> Verdict:
    low, high = effect.interval(NARROW_LEVEL)
    if -limit <= low and high <= limit:
        return Verdict(effect, p_value, "equivalent", limit)
    if p_value < 1 - LEVEL:
        return Verdict(effect, p_value, "ahead" if effect.difference > 0 else "behind", limit)
    return Verdict(effect, p_value, "undecided", limit, effect.n_needed(limit, n_tests))
