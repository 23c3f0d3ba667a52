"""Metrics of sound event detection and audio tagging, equal to the field's tools.

Each scorer compares a reference with the output of a system. It counts per file first
(`count_...`); scores, confidence intervals and p-values all come from weighted sums of these counts
(`earmark.metrics.weighted_scores`).

Conventions: `reference` and `estimate` map a file name to its events. The files of the reference
are evaluated; a file that is missing from the estimate has no events, a file that only the estimate
contains is ignored and listed.

    segment             events: error rate and F-measure in segments, as in sed_eval
    event               events: error rate and F-measure within collars, as in sed_eval
    confusion           events: confusion matrix of classes
    clip                tags and clip probabilities: F-measure, mAP, ROC AUC, lwlrap
    psds                frame-level scores: PSDS over all thresholds, as in sed_scores_eval
    best_thresholds     frame-level scores: the best scores that any threshold could reach
    calibration         scores of events: whether 0.8 is right eight times in ten
    false_events        events in recordings without any of the classes, and recall elsewhere
    bootstrap           confidence interval of every score
    system_comparison   difference of two systems on the same clips, with interval and p-value
    run_comparison      difference of two systems over several training runs
    verdict             what that difference says, in a sentence: seeds and clips, equivalence
    evaluation          all of the above for several systems at a time
    report              text tables of an evaluation

Internals: `event_arrays` (events as arrays), `matching` (of events), `rates` and `ranking`
(formulas), `weighted_scores` (counts to scores), `system_output` (reading, and checking against the
reference); for all thresholds `stacked_scores`, `detections`, `event_criteria`,
`segment_criterion`, `count_deltas` and `operating_points`.
"""

from earmark.metrics.best_thresholds import (
    BestScores,
    ThresholdCounts,
    best_scores,
    count_thresholds,
)
from earmark.metrics.bootstrap import Interval, Intervals, bootstrap_scores
from earmark.metrics.calibration import (
    CalibrationCounts,
    CalibrationScores,
    ReliabilityBin,
    calibration_scores,
    count_calibration,
)
from earmark.metrics.clip import ClipCounts, ClipScores, clip_scores, count_clips, tags_of
from earmark.metrics.confusion import Confusion, segment_confusion
from earmark.metrics.event import EventCounts, EventScores, count_events, event_scores
from earmark.metrics.event_criteria import CollarCriterion, IntersectionCriterion
from earmark.metrics.false_events import (
    FalseEventCounts,
    FalseEventScores,
    RecallPoint,
    count_false_events,
    false_event_scores,
    recall_curve,
    sweep_min_score,
)
from earmark.metrics.intersection import intersection_f_measures
from earmark.metrics.operating_points import OperatingPoint
from earmark.metrics.psds import (
    SCENARIO_1,
    SCENARIO_2,
    SCENARIOS,
    PsdsCounts,
    PsdsScores,
    count_psds,
    psds_scores,
)
from earmark.metrics.run_comparison import RunDifference, compare_runs, correct_p_values
from earmark.metrics.segment import SegmentCounts, SegmentScores, count_segments, segment_scores
from earmark.metrics.segment_criterion import SegmentCriterion
from earmark.metrics.system_comparison import Difference, Differences, compare_systems
from earmark.metrics.verdict import Effect, Verdict, judge

__all__ = [
    "SCENARIOS",
    "SCENARIO_1",
    "SCENARIO_2",
    "BestScores",
    "CalibrationCounts",
    "CalibrationScores",
    "ClipCounts",
    "ClipScores",
    "CollarCriterion",
    "Confusion",
    "Difference",
    "Differences",
    "Effect",
    "EventCounts",
    "EventScores",
    "FalseEventCounts",
    "FalseEventScores",
    "IntersectionCriterion",
    "Interval",
    "Intervals",
    "OperatingPoint",
    "PsdsCounts",
    "PsdsScores",
    "RecallPoint",
    "ReliabilityBin",
    "RunDifference",
    "SegmentCounts",
    "SegmentCriterion",
    "SegmentScores",
    "ThresholdCounts",
    "Verdict",
    "best_scores",
    "bootstrap_scores",
    "calibration_scores",
    "clip_scores",
    "compare_runs",
    "compare_systems",
    "correct_p_values",
    "count_calibration",
    "count_clips",
    "count_events",
    "count_false_events",
    "count_psds",
    "count_segments",
    "count_thresholds",
    "event_scores",
    "false_event_scores",
    "intersection_f_measures",
    "judge",
    "psds_scores",
    "recall_curve",
    "segment_confusion",
    "segment_scores",
    "sweep_min_score",
    "tags_of",
]
