"""A line of clips with known events -> a decoding tuned on them.

Conventions: the threshold of a plain rule (no hysteresis, filling or dropping) is exact for each
median of the search_grid; from there a coordinate search goes on, as told in `earmark.inference.tuning`.
"""

import math
from dataclasses import asdict, dataclass

import numpy as np

from earmark.errors import SettingError
from earmark.inference.decoding import Decoding, Mask, Rule
from earmark.inference.tuning.line import Line
from earmark.inference.tuning.result import ClassReport, Tuned
from earmark.inference.tuning.thresholds import Share, with_threshold
from earmark.inference.tuning.turns import Turns

N_ROUNDS = 4  # of coordinate search, at most
FINE_STEPS = (-0.03, -0.01, 0.01, 0.03)  # around a threshold, beside a coarse sweep of its range


@dataclass(frozen=True)
class SearchGrid:
    """What the search on events tries; seconds, but for shares.

    Args:
        median: lengths of the median filter.
        low_share: `low_threshold` as a share of `threshold`.
        max_gap: gaps to fill.
        min_duration: lengths to ask for.

    >>> SearchGrid(median=(0.0, 0.5)).low_share
    (1.0, 0.75, 0.5, 0.25)
    """

    median: tuple[float, ...] = (0.0, 0.25, 0.4, 0.75, 1.25)
    low_share: tuple[float, ...] = (1.0, 0.75, 0.5, 0.25)
    max_gap: tuple[float, ...] = (0.0, 0.2, 0.4, 0.8)
    min_duration: tuple[float, ...] = (0.0, 0.2, 0.4, 0.8)

    def __post_init__(self) -> None:
        for name, values in asdict(self).items():
            if not values or not all(math.isfinite(value) and value >= 0 for value in values):
                raise SettingError(
                    f"{name} of a search_grid must be numbers of 0 or more. Got {values}."
                )
        if not all(0 < share <= 1 for share in self.low_share):
            raise SettingError(f"low_share must be above 0, up to 1. Got {self.low_share}.")


def tune_on_events(line: Line, search_grid: SearchGrid, objective: str) -> Tuned:
    """Return the decoding that does best on events, by one of `OBJECTIVES`.

    >>> from earmark.formats.events import Event
    >>> from earmark.frames import FrameGrid
    >>> from earmark.inference.tuning.clips import Clips
    >>> curve, gate = np.repeat([[0.4], [0.2]], 25, axis=0), np.array([[0.4]])
    >>> clips = Clips([curve], gate, FrameGrid(12.5), Decoding.uniform(["dog"]), (0.05, 0.95))
    >>> line = Line(clips, [[Event(0, 2, "dog")]], 0.0, None, 1.0)
    >>> tuned = tune_on_events(line, SearchGrid(max_gap=(0.0,)), "error_rate")
    >>> tuned.start_score, tuned.score
    (1.0, 0.0)
    """
    labels, truth = line.data.labels, line.truth
    start = [line.data.start.rule(label) for label in labels]
    own = _Search(line, search_grid, "class_f_measure")
    search = _Search(line, search_grid, objective)
    rules = own.go_round(start)
    if objective != "class_f_measure":
        rules = max((search.go_round(begin) for begin in (rules, start)), key=search.value)
    before, after = own.active(start), own.active(rules)
    reports = {}
    for at, label in enumerate(labels):
        n_positive = int(truth[at].sum())
        n_negative = truth.shape[1] - n_positive
        if n_positive:
            share = Share.of_f_measure(truth[at])
            scores = share.value(before[at]), share.value(after[at])
            reports[label] = ClassReport(n_positive, n_negative, *scores)
        else:
            done = "kept as at the start" if rules[at] == start[at] else "set for few false alarms"
            note = f"no event of this class: {done}"
            reports[label] = ClassReport(0, n_negative, math.nan, math.nan, note)
    scores = search.score(rules), search.score(start)
    return Tuned(Decoding.from_rules(labels, rules), "strong", objective, *scores, reports)


class _Search(Turns):
    """The search for one rule a class, on a line of clips."""

    def __init__(self, line: Line, search_grid: SearchGrid, objective: str) -> None:
        super().__init__(line.truth, objective, N_ROUNDS)
        self.line, self.search_grid = line, search_grid

    def active_of(self, at: int, rule: Rule) -> Mask:
        """(segments of the line,): where a class is found."""
        return self.line.active(at, rule)

    def improve(self, at: int, rule: Rule, share: Share) -> Rule:
        """Return a rule for one class whose value is not below that of `rule`."""
        start, line, bounds = rule, self.line, self.line.data.bounds

        def value(rule: Rule) -> float:
            return share.value(line.active(at, rule))

        def plain(median: float) -> Rule:
            rule = Rule(median=median, clip_threshold=start.clip_threshold)
            best = share.best_threshold(line.peaks(at, rule), bounds)
            return rule._replace(threshold=best, low_threshold=best)

        def gated(rule: Rule) -> Rule:
            active = line.active(at, rule._replace(clip_threshold=0.0))
            gain, cost = (
                np.bincount(line.clip_of_segment, each * active, len(line.curves)).astype(
                    np.float64
                )
                for each in (share.gain, share.cost)
            )
            of_clips = Share(gain, cost, share.gain_before, share.cost_before)
            gate = of_clips.best_threshold(line.data.clip_probs[:, at], bounds)
            return rule._replace(clip_threshold=gate)

        # The first of equals wins: nothing changes for nothing.
        best = max([start, *map(plain, (start.median, *self.search_grid.median))], key=value)
        for _ in range(N_ROUNDS):
            before = best
            best = max(best, best._replace(clip_threshold=0.0), gated(best), key=value)
            steps = [*np.linspace(*bounds, 19), *(best.threshold + step for step in FINE_STEPS)]
            thresholds = [float(np.clip(step, *bounds)) for step in steps]
            best = max([best, *(with_threshold(best, t) for t in thresholds)], key=value)
            lows = [best.threshold * low_share for low_share in self.search_grid.low_share]
            best = max([best, *(best._replace(low_threshold=low) for low in lows)], key=value)
            for name in ("max_gap", "min_duration", "median"):
                options = [best._replace(**{name: x}) for x in getattr(self.search_grid, name)]
                best = max([best, *options], key=value)
            if best == before:
                break
        return best
