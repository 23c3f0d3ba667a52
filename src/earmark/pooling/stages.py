"""The hierarchy: frame probabilities and weights -> segments -> clip.

Conventions: each level is a `Stage`, from the frames to the clip. A segment whose weights are all
zero passes on weight 0 and has no effect: 0 / 0 never happens. Segments are counted by position,
padding included; see `earmark.pooling` about masks with gaps.
"""

from collections.abc import Callable, Sequence
from operator import index
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own usage

from earmark.errors import SettingError, choose


class Stage(NamedTuple):
    """One level of the hierarchy: probabilities, their weights, and which of them are valid.

    Shape: `probs` and `weights` are (batch, instances, classes), `mask` is (batch, instances).

    >>> Stage(torch.zeros(1, 2, 3), torch.ones(1, 2, 3), torch.ones(1, 2).bool()).mask.shape
    torch.Size([1, 2])
    """

    probs: Tensor
    weights: Tensor
    mask: Tensor


WeightRule = Callable[[Tensor, Tensor], Tensor]
Reduction = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def weighted_mean(probs: Tensor, weights: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Pool the second last axis by eq. 3 and eq. 4 of the paper.

    Shape: `probs`, `weights` (..., instances, classes), `mask` (..., instances, 1), padding already
    zero in the first two -> two tensors (..., classes): sum(w x) / sum(w) and sum(w^2) / sum(w).

    >>> probs, mask = torch.tensor([[0.5], [0.25]]), torch.ones(2, 1).bool()
    >>> weighted_mean(probs, torch.ones(2, 1), mask)
    (tensor([0.3750]), tensor([1.]))
    """
    # Dividing by the largest weight keeps squares and sums of subnormal weights from vanishing.
    # Neither result depends on that scale, so autograd may treat it as a constant.
    scale = weights.detach().amax(-2, keepdim=True)
    scale = torch.where(scale > 0, scale, 1)
    relative = weights / scale
    total = relative.sum(-2)
    counts = total > 0
    safe_total = torch.where(counts, total, 1)
    mean = (relative * probs).sum(-2) / safe_total
    # Clip the mean to the range of its frames, which rounding may exceed, without changing the
    # gradient, so that no clip probability is 1.0000001.
    low = probs.detach().masked_fill(~mask, torch.inf).amin(-2)
    high = probs.detach().masked_fill(~mask, -torch.inf).amax(-2)
    beyond = mean.detach() - torch.minimum(torch.maximum(mean.detach(), low), high)
    mean = mean - torch.where(counts, beyond, 0)
    return mean, scale.squeeze(-2) * relative.square().sum(-2) / safe_total


def noisy_or(probs: Tensor, weights: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Pool the second last axis by 1 - prod(1 - x); shapes as in `weighted_mean`.

    >>> probs, ones = torch.tensor([[0.5], [0.25]]), torch.ones(2, 1)
    >>> noisy_or(probs, ones, ones.bool())
    (tensor([0.6250]), tensor([1.]))
    """
    certain = (probs == 1).any(-2)
    # log1p keeps the digits of small probabilities but has no gradient at x = 1; a product has.
    uncertain = torch.where(certain.unsqueeze(-2), 0, probs)
    by_logarithm = -torch.expm1(torch.log1p(-uncertain).sum(-2))
    by_product = 1 - (1 - probs).prod(-2)
    return torch.where(certain, by_product, by_logarithm), weights.amax(-2)


def self_rule(segments: Stage, self_weights: Tensor, logits: Tensor | None) -> Tensor:
    """Weigh a segment by sum(w^2) / sum(w), the erratum's corrected formula (eq. 4)."""
    return self_weights


def mean_rule(segments: Stage, self_weights: Tensor, logits: Tensor | None) -> Tensor:
    """Weigh a segment by the mean of its weights, as first published: equal to single-level."""
    return segments.weights.sum(-2) / segments.mask.sum(-2).clamp(min=1)


def learned_rule(segments: Stage, self_weights: Tensor, logits: Tensor | None) -> Tensor:
    """Weigh a segment by the softmax of its logit, the erratum's alternative."""
    assert logits is not None  # checked by `pool`
    check_shape("Each of stage_logits", logits, self_weights.shape)
    # A segment of zero weight has no effect, whatever its logit.
    learned = softmax_over_frames(logits.to(self_weights.dtype), segments.mask.any(-2))
    return learned * (self_weights > 0)


def softmax_over_frames(logits: Tensor, mask: Tensor) -> Tensor:
    """Return the softmax over the valid instances.

    Shape: `logits` (batch, instances, classes), `mask` (batch, instances, 1).

    >>> softmax_over_frames(torch.zeros(1, 2, 1), torch.ones(1, 2, 1).bool()).flatten()
    tensor([0.5000, 0.5000])
    """
    logits = logits.masked_fill(~mask, -torch.inf)
    # A clip without a valid frame would be the softmax of nothing but -inf, which is NaN.
    return torch.where(mask.any(1, keepdim=True), logits, 0).softmax(1)


def pool(
    frame_probs: Tensor,
    weights: Tensor | WeightRule,
    mask: Tensor | None = None,
    stages: Sequence[int] = (),
    stage_weights: str = "self",
    stage_logits: Sequence[Tensor] | None = None,
    reduction: Reduction = weighted_mean,
) -> list[Stage]:
    """Pool frames to segments and to the clip; return each level, from frames to clip.

    Args:
        frame_probs: (batch, frames, classes) in [0, 1], which is not checked.
        weights: (batch, frames, classes), or a function that makes them from probabilities and
            mask, such as `Linear.frame_weights`. They must be >= 0, which is not checked.
        mask: (batch, frames), True for a valid frame; None if all are.
        stages: segment lengths; what remains after them is pooled once.
        stage_weights: how the weight of a segment follows from its weights; see `STAGE_WEIGHTS`.
        stage_logits: for "learned", one (batch, segments, classes) per stage.
        reduction: what pools a segment, `weighted_mean` or `noisy_or`.

    >>> x = torch.tensor([[[0.9], [0.1], [0.2], [0.2]]], dtype=torch.float64)
    >>> levels = pool(x, torch.ones_like(x), stages=[2])
    >>> [level.probs.flatten().tolist() for level in levels]
    [[0.9, 0.1, 0.2, 0.2], [0.5, 0.2], [0.35]]
    """
    valid = valid_frames(frame_probs, mask)
    lengths = checked_stages(stages)
    pass_on = STAGE_WEIGHTS[choose("rule for stage weights", stage_weights, STAGE_WEIGHTS)]
    logits = [] if stage_logits is None else list(stage_logits)
    if len(logits) != (len(lengths) if stage_weights == "learned" else 0):
        raise SettingError(
            "Learned stage weights need stage_logits, one tensor per stage; other rules take "
            f"none. Got {len(logits)} for stages={lengths} and stage_weights={stage_weights!r}."
        )
    # Precise enough to sum, and zero at padding.
    probs = frame_probs.to(torch.promote_types(frame_probs.dtype, torch.float32))
    probs = probs.masked_fill(~valid, 0)
    if callable(weights):
        weights = weights(probs, valid)
    check_shape("weights", weights, probs.shape)
    level = Stage(probs, weights.to(probs.dtype).masked_fill(~valid, 0), valid)
    levels = [level]
    for step, length in enumerate(lengths):
        segments = Stage(*(_split(values, length) for values in level))
        pooled, self_weights = reduction(*segments)
        passed_on = pass_on(segments, self_weights, logits[step] if logits else None)
        level = Stage(pooled, passed_on, segments.mask.any(-2))
        levels.append(level)
    clip_probs, clip_weights = reduction(*level)
    if lengths and level.probs.shape[1] == 1:
        levels.pop()  # one segment is left, which is the clip
    levels.append(
        Stage(clip_probs.unsqueeze(1), clip_weights.unsqueeze(1), level.mask.any(1, keepdim=True))
    )
    return [Stage(p.to(frame_probs.dtype), w, m.squeeze(2)) for p, w, m in levels]


def segment_means(values: Tensor, valid: Tensor, stages: Sequence[int]) -> list[Tensor]:
    """Average `values` over the valid frames of the segments of each stage in turn.

    Shape: `values` (batch, frames, k), zero at padding, `valid` (batch, frames, 1).

    >>> valid = torch.ones(1, 125, 1, dtype=torch.bool)
    >>> [means.shape for means in segment_means(torch.zeros(1, 125, 7), valid, (5, 5))]
    [torch.Size([1, 25, 7]), torch.Size([1, 5, 7])]
    """
    means = []
    for length in stages:
        parts, valid_parts = _split(values, length), _split(valid, length)
        values = parts.sum(-2) / valid_parts.sum(-2).clamp(min=1)
        valid = valid_parts.any(-2)
        means.append(values)
    return means


def valid_frames(frame_probs: Tensor, mask: Tensor | None) -> Tensor:
    """Check shapes and types of what is pooled; return the mask as (batch, frames, 1).

    >>> valid_frames(torch.zeros(2, 5, 3), None).shape
    torch.Size([2, 5, 1])
    """
    shape = tuple(frame_probs.shape)
    if len(shape) != 3 or shape[1] == 0 or not frame_probs.is_floating_point():
        raise SettingError(
            "frame_probs must be a float tensor (batch, frames, classes) with at least one frame; "
            f"pass an empty clip as one masked frame. Got {frame_probs.dtype} of shape {shape}."
        )
    if mask is None:
        mask = torch.ones(shape[:2], dtype=torch.bool, device=frame_probs.device)
    if mask.shape != frame_probs.shape[:2] or mask.dtype != torch.bool:
        raise SettingError(
            f"mask must be a bool tensor (batch, frames) of shape {shape[:2]}, True for a valid "
            f"frame. Got {mask.dtype} of shape {tuple(mask.shape)}."
        )
    return mask.unsqueeze(2)


def checked_stages(stages: Sequence[int]) -> tuple[int, ...]:
    """Return segment lengths as a tuple of int; NumPy integers are accepted.

    >>> checked_stages([5, 5])
    (5, 5)
    """
    try:
        lengths = tuple(0 if isinstance(length, bool) else index(length) for length in stages)
    except TypeError:
        lengths = (0,)
    if any(length < 1 for length in lengths):
        raise SettingError(
            "stages must be integers of 1 or more, such as (5, 5, 5), or () for single-level "
            f"pooling. Got {stages!r}."
        )
    return lengths


def check_shape(name: str, values: Tensor, wanted: Sequence[int]) -> None:
    """Raise unless a tensor has the wanted shape.

    >>> check_shape("weights", torch.zeros(2, 3), (2, 3))
    """
    if values.shape != wanted:
        raise SettingError(
            f"{name} must have the shape {tuple(wanted)}. Got shape {tuple(values.shape)}."
        )


def _split(values: Tensor, length: int) -> Tensor:
    """(batch, instances, k) -> (batch, segments, length, k), the last segment padded with zeros."""
    batch, n, k = values.shape
    n_segments = (n + length - 1) // length  # a modulo would defeat torch.export's symbolic sizes
    filled = F.pad(values, (0, 0, 0, n_segments * length - n))
    return filled.reshape(batch, n_segments, length, k)


# Name of a rule -> the weights of segments in the next stage.
STAGE_WEIGHTS: dict[str, Callable[[Stage, Tensor, Tensor | None], Tensor]] = {
    "self": self_rule,
    "mean": mean_rule,
    "learned": learned_rule,
}
