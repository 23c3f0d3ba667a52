"""The default rule of each pooling function: what tags cannot say about when a sound ends.

Conventions: one rule for all classes, in the fields of `Rule`; the clip-level threshold is left to
tuning. Frame-level scores of a network that learned from tags are high at the clearest part of a
sound, so that events begin at one threshold, continue down to a much lower one, and have gaps
filled. How far depends on the pooling function. The numbers are those of
`python -m benchmarks.decoding` (benchmarks/results/decoding.json): they were chosen on sounds of
other classes, whose onsets and offsets are known.
"""

from collections.abc import Mapping

# Pooling -> the fields of the rule to start from.
DEFAULTS: Mapping[str, Mapping[str, float]] = {
    "linear": {
        "threshold": 0.2,
        "low_threshold": 0.03,
        "median": 0.24,
        "min_duration": 0.24,
        "max_gap": 1.04,
    },
    "exp": {
        "threshold": 0.6,
        "low_threshold": 0.3,
        "median": 0.72,
        "min_duration": 0.48,
        "max_gap": 0.8,
    },
    "attention": {
        "threshold": 0.4,
        "low_threshold": 0.07,
        "median": 0.24,
        "min_duration": 0.24,
        "max_gap": 0.8,
    },
    "auto": {
        "threshold": 0.6,
        "low_threshold": 0.3,
        "median": 0.72,
        "min_duration": 0.48,
        "max_gap": 0.8,
    },
    "average": {
        "threshold": 0.6,
        "low_threshold": 0.5,
        "median": 0.24,
        "min_duration": 0.64,
        "max_gap": 0.8,
    },
}
# Of the others: max pooling learned too little to choose by (F1 0.06), the rest was not measured. A
# median against single frames, hysteresis since an event need not be loud throughout, and gaps and
# events shorter than three frames are taken for noise.
GENERAL: Mapping[str, float] = {
    "threshold": 0.5,
    "low_threshold": 0.1,
    "median": 0.24,
    "min_duration": 0.24,
    "max_gap": 0.24,
}


def default_rule(pooling: str) -> Mapping[str, float]:
    """Return the rule of a pooling function.

    >>> default_rule("linear")["low_threshold"] < default_rule("exp")["low_threshold"]
    True
    """
    return DEFAULTS.get(pooling, GENERAL)
