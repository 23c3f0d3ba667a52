"""Why a clip-level score is what it is: the levels of the pooling over one window.

Conventions: the window lies around a time, as long as the network's, and is processed alone, as a
clip is in training. Both kinds of pooling are applied to the same frame probabilities with the same
frame weights: hierarchical pooling with the stages of the model, or those of the paper where the
model has none, and single-level pooling. Weights sum to 1 within what they are pooled to; so the
score of a segment is the sum of its parts' scores times weights, for every pooling that is a
weighted mean.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from earmark.audio.decode import read_audio
from earmark.data.encoded import feature_blocks
from earmark.errors import choose
from earmark.inference.detector import Detector
from earmark.inference.member import Member
from earmark.nn.frame_network import FrameNetwork
from earmark.pooling import Stage
from earmark.pooling.stages import pool
from earmark.web.limits import RequestError

STAGES = (5, 5, 5)  # of the paper, for a model that pools at a single level
DECIMALS = 6


def explain(
    detector: Detector, source: Path, duration: float, label: str, time: float
) -> dict[str, Any]:
    """Return the levels of the pooling of one class in the window around a time.

    Args:
        detector: whose network pools; of an ensemble, the first that pools frames.
        source: the recording.
        duration: of the recording in seconds.
        label: the class.
        time: in the recording, in seconds.
    """
    column = detector.labels.index(choose("class", label, detector.labels))
    member, network = _pooling_network(detector)
    start, end = window_around(member, duration, time)
    rate = member.feature_config.sample_rate
    waveform, _ = read_audio(source, rate, start, end - start)
    features = torch.cat(list(feature_blocks([waveform], member.feature_config)))
    with torch.inference_mode():
        device = next(network.parameters()).device
        prediction = network(features.unsqueeze(0).to(device))
        frame_probs = prediction.frame_probs
        _, own = network.pooling(frame_probs, prediction.hidden, return_stages=True)
        reduction = network.pooling.weighting.reduction
        weights = own[0].weights.to(frame_probs.dtype)
        stages = network.pooling.stages or STAGES
        levels = own
        if not network.pooling.stages:
            levels = pool(frame_probs, weights, stages=stages, reduction=reduction)
        single = pool(frame_probs, weights, reduction=reduction)
    return {
        "label": label,
        "start": start,
        "end": end,
        "pooling": network.pooling.name,
        "stages": list(stages),
        "hierarchical": {
            "levels": level_values(levels, stages, column),
            "clip": _value(levels[-1].probs[0, 0, column]),
        },
        "single": {
            "weights": _values(_shares(single[0].weights[0, :, column], None)),
            "clip": _value(single[-1].probs[0, 0, column]),
        },
    }


def window_around(member: Member, duration: float, time: float) -> tuple[float, float]:
    """Return begin and end of the window around a time, within the recording, on whole frames.

    >>> from earmark.inference.model_file import BUNDLED, load_bundle
    >>> member = load_bundle(BUNDLED).members[0]
    >>> window_around(member, 60.0, 32.0), window_around(member, 4.0, 3.0)
    ((26.96, 36.96), (0.0, 4.0))
    """
    last = max(0.0, duration - member.window)
    begin = member.grid.onset(member.grid.index(min(max(0.0, time - member.window / 2), last)))
    return begin, min(duration, begin + member.window)


def level_values(
    levels: Sequence[Stage], stages: Sequence[int], column: int
) -> list[dict[str, Any]]:
    """Return the scores and the relative weights of every level of one class.

    >>> x = torch.tensor([[[0.5], [0.25], [0.1], [0.1]]])
    >>> found = level_values(pool(x, x, stages=[2]), [2], 0)
    >>> [each["n"] for each in found], found[1]["weights"]
    ([4, 2, 1], [0.806452, 0.193548])
    """
    found = []
    for depth, level in enumerate(levels):
        probs, weights = level.probs[0, :, column], level.weights[0, :, column]
        n_parents = levels[depth + 1].probs.shape[1] if depth + 1 < len(levels) else 1
        length = stages[depth] if n_parents > 1 else None
        found.append(
            {
                "n": len(probs),
                "scores": _values(probs),
                "weights": _values(_shares(weights, length)),
            }
        )
    return found


def _shares(weights: Tensor, length: int | None) -> Tensor:
    """Return weights divided by the sum of their segment, of `length` or of all."""
    values = weights.double()
    length = length or len(values)
    segments = [values[first : first + length] for first in range(0, len(values), length)]
    # A segment whose weights are all 0 has no effect; they stay 0.
    return torch.cat([segment / segment.sum().clamp(min=1e-300) for segment in segments])


def _pooling_network(detector: Detector) -> tuple[Member, FrameNetwork]:
    ensemble = detector.ensemble
    for member, network in zip(ensemble.members, ensemble.models, strict=True):
        if isinstance(network, FrameNetwork):
            return member, network
    name = ensemble.members[0].model_config.network
    raise RequestError(
        422, f"The network {name!r} does not pool frames to clips, so there are no levels to show."
    )


def _value(value: Tensor) -> float:
    return round(float(value), DECIMALS)


def _values(values: Tensor) -> list[float]:
    return [round(value, DECIMALS) for value in values.double().tolist()]
