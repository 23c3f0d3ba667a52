"""A tuned network -> the same at its operating point, with calibrated scores and a record of both.

Conventions: the record is what the model file says of the tuning (`Bundle.tuning`): `false_events`
(with negatives) and `calibration` are added to it.
"""

from collections.abc import Collection, Sequence
from typing import Any

from earmark.formats.events import Event
from earmark.frames import FrameScores
from earmark.inference.decoding import Decoding, decode_events
from earmark.inference.model_file import Bundle
from earmark.inference.tuning.calibrate import fit_calibration
from earmark.inference.tuning.operating_point import find_sensitivity, sweep_sensitivity
from earmark.metrics.bootstrap import bootstrap_scores
from earmark.metrics.false_events import count_false_events

# With no event seen, the upper end of the 95 % confidence interval of their number (Poisson).
NONE_SEEN = 3.69


def calibrated(
    bundle: Bundle,
    scores: Sequence[FrameScores],
    negatives: Sequence[FrameScores] = (),
    max_false_per_minute: float | None = None,
    *,
    tags: Sequence[Collection[str]] | None = None,
    reference: Sequence[Sequence[Event]] | None = None,
) -> Bundle:
    """Return the network with calibrated scores, at the sensitivity that a limit asks for.

    Args:
        bundle: with a tuned decoding.
        scores: of the validation clips.
        negatives: scores of recordings without any of the classes.
        max_false_per_minute: limit of false events per minute there; None shifts no threshold.
        tags: the labels of each validation clip.
        reference: their events. Give one of the two.

    >>> import numpy as np
    >>> from earmark.inference.model_file import BUNDLED, load_bundle
    >>> from earmark.frames import FrameGrid
    >>> bundle, high = load_bundle(BUNDLED), np.full((125, 17), 0.9)
    >>> clip = FrameScores(high, bundle.labels, FrameGrid(12.5), clip_scores=high[0])
    >>> bundle = calibrated(bundle, [clip] * 10, [clip], 0.0, tags=[bundle.labels] * 10)
    >>> bundle.tuning["false_events"]["per_minute"]
    0.0
    """
    decoding, record = bundle.decoding, dict(bundle.tuning)
    if negatives:
        sensitivity, limit = 0.0, max_false_per_minute
        (before,) = sweep_sensitivity(
            scores, negatives, decoding, tags=tags, reference=reference, sensitivities=(0.0,)
        )
        if limit is not None:
            sensitivity = find_sensitivity(negatives, decoding, limit)
            decoding = decoding.shifted(sensitivity)
        curve = sweep_sensitivity(scores, negatives, decoding, tags=tags, reference=reference)
        record["false_events"] = {
            "max_per_minute": max_false_per_minute,
            "sensitivity": sensitivity,
            "before": before.to_dict(),
            **_false_events(negatives, decoding),
            "curve": [point.to_dict() for point in curve],
        }
    nothing: list[Any] = [[] for _ in negatives]
    result = fit_calibration(
        [*scores, *negatives],
        decoding,
        tags=None if tags is None else [*tags, *nothing],
        reference=None if reference is None else [*reference, *nothing],
    )
    record["calibration"] = result.to_dict()
    return bundle.with_decoding(decoding, record, result.calibration)


def _false_events(negatives: Sequence[FrameScores], decoding: Decoding) -> dict[str, Any]:
    """Return false events per minute on negatives, with its interval if there are two or more."""
    events = {str(at): decode_events(own, decoding) for at, own in enumerate(negatives)}
    durations = {str(at): own.duration for at, own in enumerate(negatives)}
    counts = count_false_events(events, durations)
    record = {
        "n_recordings": len(negatives),
        "minutes": float(counts.minutes.sum()),
        **counts.scores().overall["false_events"],
    }
    if not counts.n_events.any():  # a bootstrap of nothing would be sure of it
        record |= {"low": 0.0, "high": NONE_SEEN / record["minutes"]}
    elif len(negatives) > 1:
        interval = bootstrap_scores(counts).overall["false_events"]["per_minute"]
        record |= {"low": interval.low, "high": interval.high}
    return record
