"""Checked clips and their tags -> a decoding tuned on tags alone.

Conventions: a clip counts as tagged where its gate is open and the peak of its filtered curve
reaches the threshold. The threshold is exact, gate aside; so is the gate behind it. Where the
objective is one of all classes together, classes take turns, the others held fixed, until none gets
better. Where they are to share their thresholds, all classes and clips are searched as one.
"""

import math
from collections.abc import Collection, Sequence

import numpy as np

from earmark.errors import DataError
from earmark.inference.decoding import Decoding, Mask, Rule, median_filter, window_frames
from earmark.inference.tuning.clips import Clips
from earmark.inference.tuning.result import ClassReport, Tuned
from earmark.inference.tuning.thresholds import Share, with_threshold
from earmark.inference.tuning.turns import Turns

N_ROUNDS = 20  # it takes three or four


def tune_on_tags(
    data: Clips,
    tags: Sequence[Collection[str]],
    threshold_from: str,
    objective: str = "class_f_measure",
    shared: bool = False,
) -> Tuned:
    """Return the decoding that does best on tags; the arguments are those of `tune_decoding`.

    >>> from earmark.frames import FrameGrid
    >>> curves = [np.full((5, 1), prob) for prob in (0.25, 0.75)]
    >>> start = Decoding.uniform(["dog"], 0.9)
    >>> clips = Clips(curves, np.array([[0.25], [0.75]]), FrameGrid(12.5), start, (0.05, 0.95))
    >>> tune_on_tags(clips, [(), ("dog",)], "tags").decoding.threshold
    (0.5,)
    """
    data.check_length("tags", tags)
    for at, of_clip in enumerate(tags):
        if isinstance(of_clip, str) or not set(of_clip) <= set(data.labels):
            raise DataError(
                f"The tags of clip {at} must be some of {', '.join(data.labels)}. Got {of_clip!r}."
            )
    truth = np.array([[label in of_clip for of_clip in tags] for label in data.labels], dtype=bool)
    truth = truth.reshape(len(data.labels), len(tags))
    start = [data.start.rule(label) for label in data.labels]
    search = _Search(data, start, truth, threshold_from, objective)
    rules = search.share_thresholds() if shared else search.go_round(start)
    before, after = search.active(start), search.active(rules)
    reports = {}
    for at, label in enumerate(data.labels):
        n_positive = int(truth[at].sum())
        n_negative = len(tags) - n_positive
        f_measures = (math.nan, math.nan)
        if n_positive:
            share = Share.of_f_measure(truth[at])
            f_measures = share.value(before[at]), share.value(after[at])
        note = None
        if not (n_positive and n_negative):
            kept = "thresholds of the others" if shared else "kept as at the start"
            note = f"no clip {'without' if n_positive else 'with'} this tag: {kept}"
        reports[label] = ClassReport(n_positive, n_negative, *f_measures, note)
    scores = search.score(rules), search.score(start)
    decoding = Decoding.from_rules(data.labels, rules)
    return Tuned(decoding, "weak", f"clip_{objective}", *scores, reports)


class _Search(Turns):
    """The search for one rule a class, on clips and their tags."""

    def __init__(
        self, data: Clips, start: Sequence[Rule], truth: Mask, threshold_from: str, objective: str
    ) -> None:
        super().__init__(truth, objective, N_ROUNDS)
        self.data, self.start, self.threshold_from = data, start, threshold_from
        self.peaks = [self._peaks(at) for at in range(len(data.labels))]

    def _peaks(self, at: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        window = window_frames(self.start[at].median, self.data.grid)
        columns = (curve[:, at : at + 1].astype(np.float64) for curve in self.data.curves)
        # A clip without frames has no peak, and is never tagged.
        return np.array([median_filter(column, window).max(initial=0.0) for column in columns])

    def active_of(self, at: int, rule: Rule) -> Mask:
        """(clips,), of one class."""
        gates = self.data.clip_probs[:, at]
        return np.asarray((gates >= rule.clip_threshold) & (self.peaks[at] >= rule.threshold))

    def share_thresholds(self) -> list[Rule]:
        """Return the rules of the start, with what is tuned the same for all classes."""
        if not self.truth.any():
            raise DataError("No clip has a tag: there is nothing to tune on.")
        share, bounds = Share.of_f_measure(self.truth.ravel()), self.data.bounds
        peaks, gates = np.concatenate(self.peaks), self.data.clip_probs.T.ravel()
        rules = list(self.start)
        if self.threshold_from == "tags":
            threshold = share.best_threshold(peaks, bounds)
            rules = [with_threshold(rule, threshold) for rule in rules]
        asked = np.repeat([rule.threshold for rule in rules], self.truth.shape[1])
        gate = share.best_threshold(np.where(peaks >= asked, gates, -np.inf), bounds)
        # No gate, and those of the start, may lie outside the bounds and do better.
        options = (gate, 0.0, *sorted({rule.clip_threshold for rule in self.start}))
        return max(
            ([rule._replace(clip_threshold=option) for rule in rules] for option in options),
            key=self.value,
        )

    def improve(self, at: int, rule: Rule, share: Share) -> Rule:
        """Return a rule whose value is not below those of `rule` and of the start."""
        if not 0 < self.truth[at].sum() < self.truth.shape[1]:
            return rule  # no clip with this tag, or none without, tells anything
        now, start = rule, self.start[at]
        peaks, gates, bounds = self.peaks[at], self.data.clip_probs[:, at], self.data.bounds

        def value(rule: Rule) -> float:
            return share.value(self.active_of(at, rule))

        rule = start
        if self.threshold_from == "tags":
            rule = with_threshold(rule, share.best_threshold(peaks, bounds))
        scores = np.where(peaks >= rule.threshold, gates, -np.inf)
        gated = rule._replace(clip_threshold=share.best_threshold(scores, bounds))
        # No gate, and the gate of the start, may lie outside the bounds and do better.
        best = max(gated, rule._replace(clip_threshold=0.0), start, key=value)
        return best if now == start or value(best) > value(now) else now
