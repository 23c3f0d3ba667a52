"""Reference against estimate -> scores, equal to those of the field's tools, with error bars.

Conventions: `reference` and `estimate` map a file name to its events. The files of the reference
are evaluated; what the estimate lacks counts as no events, what only the estimate names is told
and left out. Counts come first and are kept for each file; scores, intervals and p-values are made
of their weighed sums (`earmark.metrics.rates`).

    segment     events: error rate and F-measure in segments, as sed_eval counts them
    event       events: error rate and F-measure within collars, as sed_eval counts them
    confusion   events: which class was taken for which
    clip        tags and clip probabilities: F-measure, mAP, ROC AUC, lwlrap
    psds        score curves: PSDS, exact at every threshold, as in sed_scores_eval
    bests       score curves: the best that any threshold could reach
    bootstrap   the interval of every score
    paired      the difference of two systems on the same clips, with interval and p-value
    seeds       the difference of two systems over several runs each

Below them: `rates` (counts -> rates), `sides` (events as arrays), `matching` (pairs of events),
`ranking` (average precision and the like), and `runs`, `changes`, `criteria`, `pieces` and `stops`
(score curves -> what changes at each threshold, and where to stop).
"""

from earmark.metrics.bests import BestCounts, BestScores, best_scores, count_bests
from earmark.metrics.bootstrap import Interval, Intervals, bootstrap_scores
from earmark.metrics.clip import ClipCounts, ClipScores, clip_scores, count_clips, tags_of
from earmark.metrics.confusion import Confusion, segment_confusion
from earmark.metrics.criteria import Collars, Intersections
from earmark.metrics.event import EventCounts, EventScores, count_events, event_scores
from earmark.metrics.paired import Difference, Differences, compare_systems
from earmark.metrics.pieces import Segments
from earmark.metrics.psds import (
    SCENARIO_1,
    SCENARIO_2,
    SCENARIOS,
    PsdsCounts,
    PsdsScores,
    count_psds,
    psds_scores,
)
from earmark.metrics.seeds import RunDifference, compare_runs, correct_p_values
from earmark.metrics.segment import SegmentCounts, SegmentScores, count_segments, segment_scores

__all__ = [
    "SCENARIOS",
    "SCENARIO_1",
    "SCENARIO_2",
    "BestCounts",
    "BestScores",
    "ClipCounts",
    "ClipScores",
    "Collars",
    "Confusion",
    "Difference",
    "Differences",
    "EventCounts",
    "EventScores",
    "Intersections",
    "Interval",
    "Intervals",
    "PsdsCounts",
    "PsdsScores",
    "RunDifference",
    "SegmentCounts",
    "SegmentScores",
    "Segments",
    "best_scores",
    "bootstrap_scores",
    "clip_scores",
    "compare_runs",
    "compare_systems",
    "correct_p_values",
    "count_bests",
    "count_clips",
    "count_events",
    "count_psds",
    "count_segments",
    "event_scores",
    "psds_scores",
    "segment_confusion",
    "segment_scores",
    "tags_of",
]
