"""Validation scores -> a decoding tuned per class, from tags alone or from events.

Conventions: thresholds are searched within `bounds` and are exact there (`objectives`).

From tags (weak labels): a clip counts as tagged where its clip-level score reaches `clip_threshold`
and the peak of its filtered scores reaches `threshold`, and the objective over clips is maximised:
the F1 of each class, which for a class that is hardly recognised may mean to tag nearly every clip,
or the F1 of all classes together (what `earmark train` uses), which then rather detects nothing.
Tags say nothing about time: median, `min_duration` and `max_gap` stay those of `start`,
`low_threshold` keeps its ratio to the threshold, and `min_duration` is left aside in the count of
tagged clips. A threshold that is best for tags need only be reached somewhere in an event, and is
often too high to cover all of it: give a `start` with hysteresis, whose low threshold then covers
what the tuned one has confirmed. `threshold_from="tags"` tunes the threshold, clip-level threshold
aside, and then the clip-level threshold; `threshold_from="start"` keeps the threshold and tunes the
clip-level threshold alone, for scores one trusts. `shared` gives all classes the same: where few
recordings are behind the clips of a class, its own threshold may fit no others than those few.

From events (strong labels): segment counts, as `earmark.metrics` makes them, or, for
`event_f_measure`, events within its default collars. A dozen clips decide little, so rules are
drawn towards the start: the objective is maximised less `shrinkage` times the distance from the
start (`moves`), divided by the number of clips that speak for a change. First all classes change
alike, for which every clip that has an event speaks; then each class leaves these rules, for which
its own clips do. Each of the two is a coordinate search, one setting at a time over the search grid
and the clip-level threshold, as long as the value rises: it finds a good rule, not necessarily the
best. In the search of a class, and for each median of the search grid, the threshold of a rule
without hysteresis, gap filling and minimum length is exact for segments: a segment's score is the
highest filtered score in it, and one sort gives the counts at every threshold.

Then the whole search is repeated in cross-validation over clips (`cross_validation`). Where its
gain is not above its standard error, the start is returned: `is_adopted` is False.

Tuning then calibrates the scores of events (`calibrate`), and may lower or raise all thresholds to
keep a limit of false events (`operating_point`).

Some networks were published with a decision stage of their own (`decisions`), which needs no search
of this kind: `tune_as_published` makes it.

Whatever is found is never worse than `start` on the data it was tuned on, unless it is shared.
"""

from earmark.inference.tuning.calibrate import CalibrationResult, fit_calibration
from earmark.inference.tuning.calibrated import calibrated
from earmark.inference.tuning.cross_validation import CrossValidation
from earmark.inference.tuning.decisions import (
    DECISIONS,
    Decision,
    decide_as_published,
    has_decision,
    network_of,
    tune_as_published,
)
from earmark.inference.tuning.defaults import DEFAULTS, default_rule
from earmark.inference.tuning.event_search import SearchGrid
from earmark.inference.tuning.objectives import OBJECTIVES
from earmark.inference.tuning.operating_point import find_sensitivity, sweep_sensitivity
from earmark.inference.tuning.tune import (
    ClassReport,
    TuningResult,
    describe_tuning,
    tune_clip_thresholds,
    tune_decoding,
)

__all__ = [
    "DECISIONS",
    "DEFAULTS",
    "OBJECTIVES",
    "CalibrationResult",
    "ClassReport",
    "CrossValidation",
    "Decision",
    "SearchGrid",
    "TuningResult",
    "calibrated",
    "decide_as_published",
    "default_rule",
    "describe_tuning",
    "find_sensitivity",
    "fit_calibration",
    "has_decision",
    "network_of",
    "sweep_sensitivity",
    "tune_as_published",
    "tune_clip_thresholds",
    "tune_decoding",
]
