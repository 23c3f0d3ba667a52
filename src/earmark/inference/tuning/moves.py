"""Distances between rules, and steps from one to another, in units that settings have in common.

Conventions: thresholds are measured in log-odds, the low threshold by the logarithm of its ratio to
the threshold, lengths in seconds over `UNITS`. No clip-level threshold (0) counts as one of
`NO_THRESHOLD`, so that it has a distance from others.
"""

import math
from dataclasses import replace

from earmark.inference.decoding import Rule
from earmark.inference.tuning.objectives import Bounds, with_threshold

NO_THRESHOLD = 0.02
UNITS = {"median": 0.25, "max_gap": 0.4, "min_duration": 0.4}  # about a step of the search grid


def log_odds(probability: float) -> float:
    """Return the log-odds of a probability; 0 and 1 are taken for nearly so.

    >>> log_odds(0.5), round(log_odds(0.731), 2)
    (0.0, 1.0)
    """
    inside = min(max(probability, 1e-6), 1 - 1e-6)
    return math.log(inside / (1 - inside))


def shifted(probability: float, shift: float) -> float:
    """Return the probability whose log-odds are `shift` higher.

    >>> round(shifted(0.5, 1.0), 3)
    0.731
    """
    return 1 / (1 + math.exp(-(log_odds(probability) + shift)))


def distance(rule: Rule, other: Rule) -> float:
    """Return how far a rule is from another: the sum over its settings, in units.

    >>> distance(Rule(), Rule(max_gap=0.4)), round(distance(Rule(), Rule(0.731, 0.731)), 2)
    (1.0, 1.0)
    """
    away = abs(log_odds(rule.threshold) - log_odds(other.threshold))
    away += abs(math.log(_low_ratio(rule) / _low_ratio(other)))
    clip_odds = [log_odds(max(NO_THRESHOLD, each.clip_threshold)) for each in (rule, other)]
    away += abs(clip_odds[0] - clip_odds[1])
    for name, unit in UNITS.items():
        away += abs(getattr(rule, name) - getattr(other, name)) / unit
    return away


def moved(rule: Rule, name: str, option: float, bounds: Bounds) -> Rule:
    """Return a rule with one setting changed: thresholds by a shift in log-odds, others to a value.

    >>> moved(Rule(), "threshold", -1.0, (0.05, 0.95)).threshold
    0.2689414213699951
    >>> moved(Rule(), "max_gap", 0.4, (0.05, 0.95)).max_gap
    0.4
    """
    if name == "low_ratio":
        return with_low_ratio(rule, option)
    if name == "clip_threshold" and option == -math.inf:
        return replace(rule, clip_threshold=0.0)
    if name not in ("threshold", "clip_threshold"):
        return replace(rule, **{name: option})
    before = max(NO_THRESHOLD, getattr(rule, name))
    after = min(max(shifted(before, option), bounds[0]), bounds[1])
    if name == "threshold":
        return with_threshold(rule, after)
    return replace(rule, clip_threshold=after)


def with_low_ratio(rule: Rule, ratio: float) -> Rule:
    """Return the rule with a low threshold that is a fraction of its threshold.

    >>> with_low_ratio(Rule(0.5), 0.5).low_threshold
    0.25
    """
    return replace(rule, low_threshold=rule.threshold * ratio)


def _low_ratio(rule: Rule) -> float:
    return rule.low_threshold / rule.threshold
