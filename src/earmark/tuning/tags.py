"""Checked clips and their tags -> a decoding tuned on tags alone.

Conventions: a clip counts as tagged where its gate is open and the peak of its filtered curve
reaches the threshold. The threshold is exact, gate aside; so is the gate behind it.
"""

import math
from collections.abc import Collection, Sequence

import numpy as np

from earmark.decoding import Decoding, Mask, Rule, median_filter, window_frames
from earmark.errors import DataError
from earmark.tuning.clips import Clips
from earmark.tuning.result import ClassReport, Tuned, mean_of_known
from earmark.tuning.thresholds import Share, with_threshold


def tune_on_tags(data: Clips, tags: Sequence[Collection[str]], threshold_from: str) -> Tuned:
    """Return the decoding that does best on tags; the arguments are those of `tune_decoding`.

    >>> from earmark.frames import Frames
    >>> curves = [np.full((5, 1), prob) for prob in (0.25, 0.75)]
    >>> start = Decoding.uniform(["dog"], 0.9)
    >>> clips = Clips(curves, np.array([[0.25], [0.75]]), Frames(12.5), start, (0.05, 0.95))
    >>> tune_on_tags(clips, [(), ("dog",)], "tags").decoding.threshold
    (0.5,)
    """
    data.check_length("tags", tags)
    for at, of_clip in enumerate(tags):
        if isinstance(of_clip, str) or not set(of_clip) <= set(data.labels):
            raise DataError(
                f"The tags of clip {at} must be some of {', '.join(data.labels)}. Got {of_clip!r}."
            )
    rules, reports = [], {}
    for at, label in enumerate(data.labels):
        truth = np.array([label in of_clip for of_clip in tags], dtype=bool)
        rule, reports[label] = _tune_class(data, at, truth, threshold_from)
        rules.append(rule)
    score = mean_of_known(report.f_measure for report in reports.values())
    start_score = mean_of_known(report.start_f_measure for report in reports.values())
    decoding = Decoding.from_rules(data.labels, rules)
    return Tuned(decoding, "weak", "clip_f_measure", score, start_score, reports)


def _tune_class(data: Clips, at: int, truth: Mask, threshold_from: str) -> tuple[Rule, ClassReport]:
    rule = start = data.start.rule(data.labels[at])
    share = Share.of_f_measure(truth)
    gates = data.clip_probs[:, at]
    window = window_frames(start.median, data.ruler)
    columns = (curve[:, at : at + 1].astype(np.float64) for curve in data.curves)
    # A clip without frames has no peak, and is never tagged.
    peaks = np.array([median_filter(column, window).max(initial=0.0) for column in columns])

    def f_measure(rule: Rule) -> float:
        return share.value((gates >= rule.tag_threshold) & (peaks >= rule.threshold))

    n_positive = int(truth.sum())
    n_negative = len(truth) - n_positive
    before = f_measure(start) if n_positive else math.nan
    if not (n_positive and n_negative):
        note = f"no clip {'without' if n_positive else 'with'} this tag: kept as at the start"
        return start, ClassReport(n_positive, n_negative, before, before, note)
    if threshold_from == "tags":
        rule = with_threshold(rule, share.best_threshold(peaks, data.bounds))
    scores = np.where(peaks >= rule.threshold, gates, -np.inf)
    gated = rule._replace(tag_threshold=share.best_threshold(scores, data.bounds))
    # No gate, and the gate of the start, may lie outside the bounds and do better.
    rule = max(gated, rule._replace(tag_threshold=0.0), start, key=f_measure)
    return rule, ClassReport(n_positive, n_negative, before, f_measure(rule))
