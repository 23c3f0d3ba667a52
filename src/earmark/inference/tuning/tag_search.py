"""The search for one decoding rule per class from tags; conventions in `search`."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from earmark.errors import DataError, SettingError
from earmark.frames import FrameScores
from earmark.inference.decoding import Decoding, Rule, RunFinder
from earmark.inference.runs import Mask
from earmark.inference.tuning.objectives import Bounds, Share, with_threshold
from earmark.inference.tuning.search import Search, clip_table

TAG_ROUNDS = 20  # it takes three or four


class TagSearch(Search):
    """The search on clips and their tags.

    A clip counts as tagged where it has any active frame, `min_duration` aside: its clip-level
    score reaches `clip_threshold` and the peak of its filtered scores the threshold. The threshold
    is exact, clip-level threshold aside; so is the clip-level threshold after it. With `shared`
    both are the same for all classes: all classes and clips are searched as one.
    """

    supervision = "weak"
    n_rounds = TAG_ROUNDS

    def __init__(
        self,
        scores: Sequence[FrameScores],
        tags: Sequence[Collection[str]],
        start: Decoding,
        objective: str,
        bounds: Bounds,
        *,
        tune_frames: bool,
        shared: bool,
    ) -> None:
        if objective == "event_f_measure":
            raise SettingError(
                "The objective event_f_measure needs the events of the clips, reference=..., and "
                "not tags=..."
            )
        labels = start.labels
        for at, of_clip in enumerate(tags):
            if isinstance(of_clip, str) or not set(of_clip) <= set(labels):
                raise DataError(
                    f"The tags of clip {at} must be some of {', '.join(labels)}. Got {of_clip!r}."
                )
        reference = np.array([[label in of_clip for of_clip in tags] for label in labels], bool)
        self.bounds, self.tune_frames, self.shared = bounds, tune_frames, shared
        self.finder = RunFinder(scores, max(rule.max_gap for rule in start.rules))
        reference = reference.reshape(len(labels), len(tags))
        super().__init__(reference, np.arange(len(tags)), clip_table(scores), start, objective)
        # A clip without frames has no peak, and is never tagged.
        self.peaks = [
            np.array([x.max(initial=0.0) for x in self.finder.filtered(at, rule.median)])
            for at, rule in enumerate(start.rules)
        ]

    def estimate_of(self, at: int, rule: Rule) -> Mask:
        """(clips,): where the decoder finds the class, however short."""
        starts, _ = self.finder.find(at, replace(rule, min_duration=0.0))
        tagged = np.zeros(len(self.finder.recordings), dtype=bool)
        tagged[np.searchsorted(self.finder.starts, starts, side="right") - 1] = True
        return tagged

    def run(self) -> list[Rule]:
        """See `Search.run`."""
        return self._run_shared() if self.shared else super().run()

    def note(self, at: int, rule: Rule) -> str | None:
        """See `Search.note`."""
        n_positive, n_clips = int(self.reference[at].sum()), self.reference.shape[1]
        if 0 < n_positive < n_clips:
            return None
        kept = "thresholds of the others" if self.shared else "kept as at the start"
        return f"no clip {'without' if n_positive else 'with'} this tag: {kept}"

    def improve(self, at: int, rule: Rule, share: Share) -> Rule:
        """See `Search.improve`; the value is not below that of the start either."""
        if not 0 < self.reference[at].sum() < self.reference.shape[1]:
            return rule  # without a clip with this tag, or one without it, nothing can be learned
        now, start = rule, self.start[at]
        peaks = self.peaks[at]

        def value(rule: Rule) -> float:
            return share.value(self.estimate_of(at, rule))

        rule = start
        if self.tune_frames:
            rule = with_threshold(rule, share.best_threshold(peaks, self.bounds))
        scores = np.where(peaks >= rule.threshold, self.clip_scores[:, at], -np.inf)
        tuned = replace(rule, clip_threshold=share.best_threshold(scores, self.bounds))
        # No clip-level threshold, and that of the start, may lie outside the bounds and do better.
        best = max(tuned, replace(rule, clip_threshold=0.0), start, key=value)
        return best if now == start or value(best) > value(now) else now

    def _run_shared(self) -> list[Rule]:
        if not self.reference.any():
            raise DataError("No clip has a tag: there is nothing to tune on.")
        share = Share.of_f_measure(self.reference.ravel())
        peaks, clip_scores = np.concatenate(self.peaks), self.clip_scores.T.ravel()
        rules = list(self.start)
        if self.tune_frames:
            threshold = share.best_threshold(peaks, self.bounds)
            rules = [with_threshold(rule, threshold) for rule in rules]
        wanted = np.repeat([rule.threshold for rule in rules], self.reference.shape[1])
        best = share.best_threshold(np.where(peaks >= wanted, clip_scores, -np.inf), self.bounds)
        # No clip-level threshold, and those of the start, may lie outside the bounds.
        options = (best, 0.0, *sorted({rule.clip_threshold for rule in self.start}))
        return max(
            ([replace(rule, clip_threshold=option) for rule in rules] for option in options),
            key=self.value,
        )
