"""Tags and negatives -> the sensitivity at which false events stay below a limit.

Conventions: negatives are recordings that contain none of the classes; every event there is false
(`earmark.metrics.false_events`). The sensitivity shifts all thresholds (`Decoding.shifted`). A
higher one never detects fewer tags, so the largest recall within a limit is that of the highest
sensitivity: the highest up to which every lower one keeps the limit, too, as the number of false
events falls again where they grow together.
"""

import warnings
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from earmark.errors import DataError, EarmarkWarning, SettingError
from earmark.formats.events import Event
from earmark.frames import FrameScores
from earmark.inference.decoding import Decoding, decode_events
from earmark.metrics.false_events import RecallPoint, count_false_events, recall_curve

LOWEST, HIGHEST = -8.0, 2.0  # sensitivities to choose from
STEP = 0.1
CURVE = tuple(np.arange(-3.0, HIGHEST + 0.25, 0.5).tolist())  # of `sweep_sensitivity`


def sweep_sensitivity(
    scores: Sequence[FrameScores],
    negatives: Sequence[FrameScores],
    decoding: Decoding,
    *,
    tags: Sequence[Collection[str]] | None = None,
    reference: Sequence[Sequence[Event]] | None = None,
    sensitivities: Sequence[float] = CURVE,
) -> tuple[RecallPoint, ...]:
    """Return false events on negatives and recall on validation clips, one point per sensitivity.

    Args:
        scores: of each validation clip.
        negatives: scores of recordings without any of the classes.
        decoding: at sensitivity 0.
        tags: the labels of each validation clip.
        reference: their events, in place of tags; gives the recall of events, too.
        sensitivities: what to try.

    >>> from earmark.frames import FrameGrid
    >>> clip, negative = (
    ...     FrameScores([[p]] * 125, ["dog"], FrameGrid(12.5), clip_scores=[p]) for p in (0.6, 0.4)
    ... )
    >>> decoding = Decoding.uniform(["dog"], 0.5)
    >>> for point in sweep_sensitivity([clip], [negative], decoding, tags=[["dog"]]):
    ...     if point.setting in (-0.5, 0, 0.5):
    ...         print(point.setting, point.clip_recall, point.per_minute)
    -0.5 0.0 0.0
    0.0 1.0 0.0
    0.5 1.0 6.0
    """
    if (tags is None) == (reference is None):
        raise SettingError("A sweep takes either tags=... or reference=....")
    recordings = {f"clip {at}": own for at, own in enumerate(scores)}
    recordings |= {f"negative {at}": own for at, own in enumerate(negatives)}

    def by_clip(values: Sequence[Collection[str] | Sequence[Event]] | None) -> dict[str, list[Any]]:
        return {f"clip {at}": list(own) for at, own in enumerate(values or ())}

    return recall_curve(
        {
            sensitivity: {
                name: decode_events(own, decoding.shifted(sensitivity))
                for name, own in recordings.items()
            }
            for sensitivity in sensitivities
        },
        {f"negative {at}": own.duration for at, own in enumerate(negatives)},
        tags=None if tags is None else by_clip(tags),
        reference=None if reference is None else by_clip(reference),
    )


def find_sensitivity(
    negatives: Sequence[FrameScores], decoding: Decoding, max_per_minute: float
) -> float:
    """Return the highest sensitivity that keeps false events per minute at or below a limit.

    It is from -8 to 2. There is a warning if it is 2: then the negatives limit nothing.

    Args:
        negatives: scores of recordings without any of the classes.
        decoding: at sensitivity 0.
        max_per_minute: the limit, over all classes.

    >>> from earmark.frames import FrameGrid
    >>> negative = FrameScores([[0.6]] * 125, ["dog"], FrameGrid(12.5), clip_scores=[0.6])
    >>> find_sensitivity([negative], Decoding.uniform(["dog"], 0.5), max_per_minute=1)
    -0.5
    """
    if not 0 <= max_per_minute < np.inf:
        raise SettingError(f"max_per_minute must be 0 or more. Got {max_per_minute!r}.")
    durations = {str(at): own.duration for at, own in enumerate(negatives)}
    best = None
    for step in range(round((HIGHEST - LOWEST) / STEP) + 1):
        sensitivity = round(LOWEST + step * STEP, 6)
        shifted = decoding.shifted(sensitivity)
        events = {str(at): decode_events(own, shifted) for at, own in enumerate(negatives)}
        counts = count_false_events(events, durations)
        if counts.n_events.sum() > max_per_minute * counts.minutes.sum():
            break
        best = sensitivity
    if best is None:
        raise DataError(
            f"Even at a sensitivity of {LOWEST:g} there are more than {max_per_minute:g} false "
            "events per minute in the negatives: check that they contain none of the classes."
        )
    if best == HIGHEST:
        warnings.warn(
            f"The negatives are too easy or too few: even at a sensitivity of {HIGHEST:g} there "
            f"are no more than {max_per_minute:g} false events per minute. Add sounds like those "
            "where the detector will run.",
            EarmarkWarning,
            stacklevel=2,
        )
    return best
