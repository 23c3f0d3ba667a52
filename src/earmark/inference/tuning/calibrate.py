"""Validation scores -> a calibration of the scores of events, from tags or from events.

Conventions: which events are right is defined in `earmark.metrics.calibration`. The calibration is
fitted on the events at low, normal and high sensitivity together, so that it holds at each. Its
weights are shrunk towards those that change no score (a ridge penalty, worth about one event per
weight), and none but the intercept is negative: a louder event is never less sure. The reported
errors are cross-validated over clips; if the log loss of held-out events is not lower than without
a calibration, there is none.
"""

from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from earmark.errors import SettingError
from earmark.formats.events import Event
from earmark.frames import FrameScores, Reals
from earmark.inference.calibration import Calibration, event_features
from earmark.inference.decoding import Decoding, decode_events
from earmark.inference.detector import SENSITIVITIES
from earmark.metrics.calibration import expected_calibration_error, is_right

N_FOLDS = 5
LEAST_EVENTS = 10  # fewer say nothing about their scores
PENALTY = 1.0
IDENTITY = np.array(astuple(Calibration()))


@dataclass(frozen=True)
class CalibrationResult:
    """The calibration found, and the expected calibration error (ECE) on validation events.

    Args:
        calibration: None where it would not help, or no event was detected.
        n_events: detected at normal sensitivity.
        ece: of calibrated scores, cross-validated; that of the start if there is no calibration.
        start_ece: of the scores as they are.

    >>> CalibrationResult(None, n_events=0, ece=np.nan, start_ece=np.nan).calibration
    """

    calibration: Calibration | None
    n_events: int
    ece: float
    start_ece: float

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, for the record of the tuning.

        >>> CalibrationResult(None, 200, ece=0.04, start_ece=0.2).to_dict()
        {'n_events': 200, 'ece': 0.04, 'start_ece': 0.2}
        """
        errors = {"ece": self.ece, "start_ece": self.start_ece}
        return {"n_events": self.n_events} | (errors if self.n_events else {})


def fit_calibration(
    scores: Sequence[FrameScores],
    decoding: Decoding,
    *,
    tags: Sequence[Collection[str]] | None = None,
    reference: Sequence[Sequence[Event]] | None = None,
) -> CalibrationResult:
    """Return a calibration of the events in validation clips, given their tags or their events.

    Args:
        scores: of each clip, with clip-level scores; a clip without any class counts as well.
        decoding: how events are detected.
        tags: the labels of each clip.
        reference: the events of each clip. Give one of the two.

    >>> from earmark.frames import FrameGrid
    >>> clips = [
    ...     FrameScores([[0.6]] * 5, ["dog"], FrameGrid(12.5), clip_scores=[0.6]) for _ in range(40)
    ... ]
    >>> result = fit_calibration(clips, Decoding.uniform(["dog"]), tags=[["dog"]] * 38 + [[]] * 2)
    >>> round(result.start_ece, 2), result.ece < 0.2, result.calibration.intercept > 0
    (0.37, True, True)
    """
    annotations: Any = tags if reference is None else reference
    if annotations is None or (tags is None) == (reference is None):
        raise SettingError("A calibration takes either tags=... or reference=....")
    if len(annotations) != len(scores):
        raise SettingError(
            f"There must be one entry for each of {len(scores)} clips. Got {len(annotations)}."
        )
    features, right, clip, sensitivity = _events(scores, decoding, annotations)
    normal = sensitivity == 0
    held_out = np.empty(len(right))
    for fold in range(N_FOLDS):
        inside = clip % N_FOLDS == fold
        weights = _fit(features[~inside], right[~inside])
        held_out[inside] = _sigmoid(features[inside] @ weights)
    start = _sigmoid(features @ IDENTITY)
    errors = [expected_calibration_error(p[normal], right[normal]) for p in (held_out, start)]
    n_events = int(normal.sum())
    better = n_events >= LEAST_EVENTS and errors[0] <= errors[1]
    if not better or _log_loss(held_out, right) >= _log_loss(start, right):
        return CalibrationResult(None, n_events, errors[1], errors[1])
    calibration = Calibration(*_fit(features, right).tolist())
    return CalibrationResult(calibration, n_events, *errors)


def _events(
    scores: Sequence[FrameScores], decoding: Decoding, annotations: Sequence[Any]
) -> tuple[Reals, Reals, Any, Reals]:
    """Return features (events, 4), and which are right, of which clip, at which sensitivity."""
    features, rows = [np.zeros((0, len(IDENTITY)))], []
    for sensitivity in SENSITIVITIES.values():
        shifted = decoding.shifted(sensitivity)
        for at, (own, true) in enumerate(zip(scores, annotations, strict=True)):
            events = decode_events(own, shifted)
            features.append(event_features(events, own))
            rows += [(is_right(event, true), at, sensitivity) for event in events]
    right, clip, which = np.array(rows, np.float64).reshape(-1, 3).T
    return np.concatenate(features), right, clip.astype(np.int64), which


def _fit(features: Reals, right: Reals) -> Reals:
    """Return the weights (4,) of least penalised log loss, by Newton's method with halved steps."""
    share = 1 / len(SENSITIVITIES)  # most events are there at each of them

    def loss(weights: Reals) -> float:
        sums = features @ weights
        penalty = PENALTY * ((weights - IDENTITY) ** 2).sum() / 2
        return float(share * (np.logaddexp(0, sums) - right * sums).sum() + penalty)

    free = np.ones(len(IDENTITY), bool)
    while True:
        weights = np.where(free, IDENTITY, 0.0)
        for _ in range(50):
            probs = _sigmoid(features @ weights)
            slope = share * features.T @ (probs - right) + PENALTY * (weights - IDENTITY)
            spread = (features * (probs * (1 - probs))[:, None]).T @ features
            curvature = share * spread + PENALTY * np.eye(len(weights))
            step = np.zeros(len(weights))
            step[free] = np.linalg.solve(curvature[np.ix_(free, free)], slope[free])
            while loss(weights - step) > loss(weights) and np.abs(step).max() > 1e-8:
                step /= 2
            weights = weights - step
            if np.abs(step).max() < 1e-8:
                break
        negative = free & (weights < 0)
        negative[0] = False  # the intercept
        if not negative.any():
            return weights
        free[np.argmin(np.where(negative, weights, np.inf))] = False


def _sigmoid(values: Reals) -> Reals:
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -500, 500))))


def _log_loss(probs: Reals, right: Reals) -> float:
    probs = np.clip(probs, 1e-6, 1 - 1e-6)
    return float(-np.mean(right * np.log(probs) + (1 - right) * np.log1p(-probs)))
