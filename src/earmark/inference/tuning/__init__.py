"""Validation curves -> a decoding tuned for each class, from tags alone or from timed events.

Conventions: `curves` holds one (frames, classes) array a clip, `clip_probs` is (clips, classes).
Thresholds are searched within `bounds` and are exact there: every threshold between two
neighbouring scores decides alike, so trying one in each gap tries them all. Where several gaps in a
row are equally good they count as one; of such plateaus the widest is taken, at its middle.

From tags (weak): a clip counts as tagged where its gate is open and the peak of its filtered curve
reaches the threshold, and the objective over clips is maximised: the F1 of each class, which for a
class that is hardly told apart may mean to tag nearly every clip, or the F1 of all classes together
(what `earmark train` does), which then rather finds nothing. Tags say nothing about time:
median, `min_duration` and `max_gap` stay those of `start`, `low_threshold` keeps its share of the
threshold, and `min_duration` is left aside in the count of tagged clips. A threshold that is best
for tags need only be reached somewhere in an event, and is often too high to cover all of it: give
a `start` with hysteresis, whose low threshold then covers what the tuned one has confirmed.
`threshold_from="tags"` tunes the threshold, gate aside, and then the gate behind it;
`threshold_from="start"` keeps the threshold and tunes the gate alone, for curves one trusts.
`shared` gives all classes the same: where few recordings are behind the clips of a class, its own
threshold may fit no others than those few.

From events (strong): segment counts, as `earmark.metrics` makes them. For each class, and each
median of the search_grid, the threshold is exact without hysteresis, gap filling and dropping: a segment's
score is the highest filtered probability in it, and one sort gives the counts at every threshold.
(Filtering first and thresholding later is the same as the other way round.) From the best of these
and of `start` a coordinate search goes on, one setting at a time over the search_grid and the gate, as
long as the score rises: that part finds a good rule, not surely the best. With `f_measure` or
`error_rate`, which classes share, it then goes round the classes, the others held fixed.

Whatever is found is never worse than `start` on the data it was tuned on, unless it is shared.

    thresholds  the exact search, and the objectives
    clips       what is tuned on, checked
    result      Tuned and ClassReport
    turns       class after class, the others held fixed
    tags        from weak labels
    line        all clips end to end, so that a rule is tried at once
    events      from strong labels: SearchGrid, and the search
    tune        tune_decoding, and tune_clip_thresholds as training does it
"""

from earmark.inference.tuning.events import SearchGrid
from earmark.inference.tuning.result import ClassReport, Tuned
from earmark.inference.tuning.thresholds import OBJECTIVES
from earmark.inference.tuning.tune import tune_clip_thresholds, tune_decoding

__all__ = [
    "OBJECTIVES",
    "ClassReport",
    "SearchGrid",
    "Tuned",
    "tune_clip_thresholds",
    "tune_decoding",
]
