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

From events (strong labels): segment counts, as `earmark.metrics` makes them. For each class, and
each median of the search grid, the threshold is exact without hysteresis, gap filling and minimum
length: a segment's score is the highest filtered score in it, and one sort gives the counts at
every threshold. From the best of these and of `start` a coordinate search goes on, one setting at a
time over the search grid and the clip-level threshold, as long as the score rises: that part finds
a good rule, not necessarily the best. With `f_measure` or `error_rate`, which classes share, it
then improves the classes in turn, the others held fixed.

Tuning then calibrates the scores of events (`calibrate`), and may lower or raise all thresholds to
keep a limit of false events (`operating_point`).

Whatever is found is never worse than `start` on the data it was tuned on, unless it is shared.
"""

from earmark.inference.tuning.calibrate import CalibrationResult, fit_calibration
from earmark.inference.tuning.calibrated import calibrated
from earmark.inference.tuning.objectives import OBJECTIVES
from earmark.inference.tuning.operating_point import find_sensitivity, sweep_sensitivity
from earmark.inference.tuning.search import SearchGrid
from earmark.inference.tuning.tune import (
    START,
    ClassReport,
    TuningResult,
    tune_clip_thresholds,
    tune_decoding,
)

__all__ = [
    "OBJECTIVES",
    "START",
    "CalibrationResult",
    "ClassReport",
    "SearchGrid",
    "TuningResult",
    "calibrated",
    "find_sensitivity",
    "fit_calibration",
    "sweep_sensitivity",
    "tune_clip_thresholds",
    "tune_decoding",
]
