"""Scores of events -> probabilities that they are right.

The score of an event is the mean of its frame-level scores, which a network trained on tags does
not make a probability of anything: events that are right nine times in ten may have 0.6. A
`Calibration` is a logistic model with four parameters for all classes (few recordings may be behind
the validation clips of one class), fitted by `earmark.inference.tuning.fit_calibration`.

Conventions: log-odds are of probabilities clipped to [1e-6, 1 - 1e-6]. The model sees the frames of
the event and nothing else, so an event has the same score wherever in a recording it is found.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from earmark.errors import SettingError
from earmark.formats.events import Event
from earmark.frames import FrameScores, Reals

EPSILON = 1e-6


@dataclass(frozen=True)
class Calibration:
    """The weights of the logistic model; the defaults leave every score as it is.

    Args:
        intercept: added to the weighted sum.
        score: weight of the log-odds of the mean frame-level score of the event.
        peak: of its highest frame-level score.
        clip: of the highest clip-level score over the event.

    >>> from earmark.frames import FrameGrid
    >>> scores = FrameScores([[0.5], [0.7]], ["dog"], FrameGrid(12.5), clip_scores=[0.9])
    >>> (event,) = Calibration(score=0.0, clip=2.0).apply([Event(0, 0.16, "dog", 0.6)], scores)
    >>> round(event.score, 3)  # 81 : 1, the odds 9 : 1 squared
    0.988
    """

    intercept: float = 0.0
    score: float = 1.0
    peak: float = 0.0
    clip: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, int | float) or not np.isfinite(value):
                raise SettingError(
                    f"The {name} of a calibration must be a finite number. Got {value!r}."
                )

    def apply(self, events: Sequence[Event], scores: FrameScores) -> list[Event]:
        """Return the events with calibrated scores, in the same order.

        Args:
            events: decoded from the scores.
            scores: with clip-level scores.
        """
        if not events:
            return []
        return self.apply_to_features(events, event_features(events, scores))

    def apply_to_features(self, events: Sequence[Event], features: Reals) -> list[Event]:
        """Return the events with calibrated scores, given their features, (events, 4).

        >>> features = log_odds_features([0.5], [0.5], [0.5])
        >>> Calibration().apply_to_features([Event(0, 1, "dog", 0.5)], features)
        [Event(onset=0.0, offset=1.0, label='dog', score=0.5)]
        """
        # Added up per event, not as a matrix product, whose rounding depends on how many there are.
        weights = (self.intercept, self.score, self.peak, self.clip)
        total = sum(weight * column for weight, column in zip(weights, features.T, strict=True))
        probs = 1 / (1 + np.exp(-np.asarray(total)))
        return [replace(event, score=p) for event, p in zip(events, probs.tolist(), strict=True)]


def event_features(events: Sequence[Event], scores: FrameScores) -> Reals:
    """Return what a `Calibration` weighs: 1, then log-odds of mean, peak and clip-level score.

    Shape: (events, 4).

    >>> from earmark.frames import FrameGrid
    >>> scores = FrameScores([[0.5], [0.5]], ["dog"], FrameGrid(12.5), clip_scores=[0.5])
    >>> event_features([Event(0, 0.16, "dog", 0.5)], scores)
    array([[1., 0., 0., 0.]])
    """
    if scores.clip_scores is None or scores.grid is None:
        raise SettingError("Calibrated scores need frame-level and clip-level scores on a grid.")
    table = []
    for event in events:
        column = scores.labels.index(event.label)
        frames = slice(scores.grid.index(event.onset), scores.grid.count(event.offset))
        peak = scores.scores[frames, column].max()
        table.append((event.score, peak, scores.clip_scores[frames, column].max()))
    return log_odds_features(*np.array(table, np.float64).reshape(-1, 3).T)


def log_odds_features(means: ArrayLike, peaks: ArrayLike, clips: ArrayLike) -> Reals:
    """Return `event_features` of events with known scores.

    Shape: (events,) each -> (events, 4).

    Args:
        means: of the frame-level scores of each event.
        peaks: the highest of them.
        clips: the highest clip-level score over each event.

    >>> log_odds_features([0.5], [0.5], [0.5])
    array([[1., 0., 0., 0.]])
    """
    table = np.column_stack([means, peaks, clips]).astype(np.float64)
    probs = np.clip(table, EPSILON, 1 - EPSILON)
    return np.column_stack([np.ones(len(probs)), np.log(probs) - np.log1p(-probs)])
