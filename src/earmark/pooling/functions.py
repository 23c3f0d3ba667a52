"""Frame probabilities -> clip probabilities, as plain functions: the twins of `Pooling`.

Shape, for all: `frame_probs` (batch, frames, classes), `mask` (batch, frames) -> (batch, classes).
Probabilities are in [0, 1], which nothing checks. `stages` are segment lengths, () is single
pooling. `stage_weights` is "self" or "mean"; learned ones are for `Pooling`, or for `pool`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from earmark.errors import SettingError
from earmark.pooling.stages import Stage, check_shape, noisy_or, pool
from earmark.pooling.weights import (
    attention_weights,
    average_weights,
    exp_weights,
    linear_weights,
    max_weights,
    power_weights,
)


def max_pool(
    frame_probs: Tensor,
    mask: Tensor | None = None,
    stages: Sequence[int] = (),
    stage_weights: str = "self",
) -> Tensor:
    """Return the largest frame.

    >>> import torch
    >>> max_pool(torch.tensor([[[0.5], [0.25]]]))
    tensor([[0.5000]])
    """
    return _clip_probs(pool(frame_probs, max_weights, mask, stages, stage_weights))


def average_pool(
    frame_probs: Tensor,
    mask: Tensor | None = None,
    stages: Sequence[int] = (),
    stage_weights: str = "self",
) -> Tensor:
    """Return the mean of the frames.

    >>> import torch
    >>> average_pool(torch.tensor([[[0.5], [0.25]]]))
    tensor([[0.3750]])
    """
    return _clip_probs(pool(frame_probs, average_weights, mask, stages, stage_weights))


def linear_pool(
    frame_probs: Tensor,
    mask: Tensor | None = None,
    stages: Sequence[int] = (),
    stage_weights: str = "self",
) -> Tensor:
    """Return sum(x^2) / sum(x), linear softmax.

    >>> import torch
    >>> linear_pool(torch.tensor([[[0.5], [0.25]]]))
    tensor([[0.4167]])
    """
    return _clip_probs(pool(frame_probs, linear_weights, mask, stages, stage_weights))


def exp_pool(
    frame_probs: Tensor,
    mask: Tensor | None = None,
    stages: Sequence[int] = (),
    stage_weights: str = "self",
) -> Tensor:
    """Return sum(x exp(x)) / sum(exp(x)), exponential softmax.

    >>> import torch
    >>> exp_pool(torch.tensor([[[0.5], [0.25]]]))
    tensor([[0.3905]])
    """
    return _clip_probs(pool(frame_probs, exp_weights, mask, stages, stage_weights))


def attention_pool(
    frame_probs: Tensor,
    logits: Tensor,
    mask: Tensor | None = None,
    stages: Sequence[int] = (),
    over: str = "frames",
    stage_weights: str = "self",
) -> Tensor:
    """Return sum(w x) / sum(w), w the softmax of `logits` over the "frames" or the "classes".

    Shape: `logits` (batch, frames, classes).

    >>> import torch
    >>> attention_pool(torch.tensor([[[0.5], [0.25]]]), torch.tensor([[[0.0], [0.0]]]))
    tensor([[0.3750]])
    """

    def weigh(probs: Tensor, real: Tensor) -> Tensor:
        check_shape("logits", logits, probs.shape)
        return attention_weights(logits.to(probs.dtype), real, over)

    return _clip_probs(pool(frame_probs, weigh, mask, stages, stage_weights))


def auto_pool(
    frame_probs: Tensor,
    sharpness: Tensor | float,
    mask: Tensor | None = None,
    stages: Sequence[int] = (),
    stage_weights: str = "self",
) -> Tensor:
    """Return sum(x exp(a x)) / sum(exp(a x)), autopool: average at a = 0, max as a grows.

    Shape: `sharpness`, the a, is one number or (classes,).

    >>> import torch
    >>> auto_pool(torch.tensor([[[0.5], [0.25]]]), sharpness=100.0)
    tensor([[0.5000]])
    """

    def weigh(probs: Tensor, real: Tensor) -> Tensor:
        return exp_weights(probs, real, _for_classes("sharpness", sharpness, probs))

    return _clip_probs(pool(frame_probs, weigh, mask, stages, stage_weights))


def power_pool(
    frame_probs: Tensor,
    exponent: Tensor | float,
    mask: Tensor | None = None,
    stages: Sequence[int] = (),
    stage_weights: str = "self",
) -> Tensor:
    """Return sum(x x^n) / sum(x^n): average at n = 0, linear softmax at n = 1, max as n grows.

    Shape: `exponent`, the n >= 0, is one number or (classes,).

    >>> import torch
    >>> power_pool(torch.tensor([[[0.5], [0.25]]]), exponent=1.0)
    tensor([[0.4167]])
    """

    def weigh(probs: Tensor, real: Tensor) -> Tensor:
        return power_weights(probs, real, _for_classes("exponent", exponent, probs))

    return _clip_probs(pool(frame_probs, weigh, mask, stages, stage_weights))


def noisy_or_pool(
    frame_probs: Tensor,
    mask: Tensor | None = None,
    stages: Sequence[int] = (),
    stage_weights: str = "self",
) -> Tensor:
    """Return 1 - prod(1 - x); stages change nothing, since any of any is any.

    >>> import torch
    >>> noisy_or_pool(torch.tensor([[[0.5], [0.25]]]))
    tensor([[0.6250]])
    """
    return _clip_probs(
        pool(frame_probs, average_weights, mask, stages, stage_weights, reduction=noisy_or)
    )


def _clip_probs(levels: list[Stage]) -> Tensor:
    return levels[-1].probs.squeeze(1)


def _for_classes(name: str, values: Tensor | float, probs: Tensor) -> Tensor:
    """Return one number, or one for each class, as a tensor beside `probs`."""
    tensor = torch.as_tensor(values, dtype=probs.dtype, device=probs.device)
    n_classes = probs.shape[2]
    if tensor.dim() > 1 or tensor.numel() not in (1, n_classes):
        raise SettingError(
            f"{name} must be one number or ({n_classes},), one a class. "
            f"Got shape {tuple(tensor.shape)}."
        )
    return tensor
