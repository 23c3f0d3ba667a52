"""Frame probabilities -> clip probabilities, as plain functions: the twins of `Pooling`.

Shape, for all: `frame_probs` (batch, frames, classes), `mask` (batch, frames) -> (batch, classes).
`stages` are segment lengths; () is single pooling.
"""

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from earmark.pooling.stages import Stage, noisy_or, pool
from earmark.pooling.weights import (
    attention_weights,
    average_weights,
    exp_weights,
    linear_weights,
    max_weights,
    power_weights,
)


def max_pool(frame_probs: Tensor, mask: Tensor | None = None, stages: Sequence[int] = ()) -> Tensor:
    """Return the largest frame.

    >>> import torch
    >>> max_pool(torch.tensor([[[0.5], [0.25]]]))
    tensor([[0.5000]])
    """
    return _clip_probs(pool(frame_probs, max_weights, mask, stages))


def average_pool(
    frame_probs: Tensor, mask: Tensor | None = None, stages: Sequence[int] = ()
) -> Tensor:
    """Return the mean of the frames.

    >>> import torch
    >>> average_pool(torch.tensor([[[0.5], [0.25]]]))
    tensor([[0.3750]])
    """
    return _clip_probs(pool(frame_probs, average_weights, mask, stages))


def linear_pool(
    frame_probs: Tensor, mask: Tensor | None = None, stages: Sequence[int] = ()
) -> Tensor:
    """Return sum(x^2) / sum(x), linear softmax.

    >>> import torch
    >>> linear_pool(torch.tensor([[[0.5], [0.25]]]))
    tensor([[0.4167]])
    """
    return _clip_probs(pool(frame_probs, linear_weights, mask, stages))


def exp_pool(frame_probs: Tensor, mask: Tensor | None = None, stages: Sequence[int] = ()) -> Tensor:
    """Return sum(x exp(x)) / sum(exp(x)), exponential softmax.

    >>> import torch
    >>> exp_pool(torch.tensor([[[0.5], [0.25]]]))
    tensor([[0.3905]])
    """
    return _clip_probs(pool(frame_probs, exp_weights, mask, stages))


def attention_pool(
    frame_probs: Tensor,
    logits: Tensor,
    mask: Tensor | None = None,
    stages: Sequence[int] = (),
    over: str = "frames",
) -> Tensor:
    """Return sum(w x) / sum(w), w the softmax of `logits` over the "frames" or the "classes".

    >>> import torch
    >>> attention_pool(torch.tensor([[[0.5], [0.25]]]), torch.tensor([[[0.0], [0.0]]]))
    tensor([[0.3750]])
    """

    def weigh(probs: Tensor, real: Tensor) -> Tensor:
        return attention_weights(logits.to(probs.dtype), real, over)

    return _clip_probs(pool(frame_probs, weigh, mask, stages))


def auto_pool(
    frame_probs: Tensor,
    sharpness: Tensor | float,
    mask: Tensor | None = None,
    stages: Sequence[int] = (),
) -> Tensor:
    """Return sum(x exp(a x)) / sum(exp(a x)), autopool: average at a = 0, max as a grows.

    >>> import torch
    >>> auto_pool(torch.tensor([[[0.5], [0.25]]]), sharpness=100.0)
    tensor([[0.5000]])
    """
    return _clip_probs(pool(frame_probs, partial(exp_weights, sharpness=sharpness), mask, stages))


def power_pool(
    frame_probs: Tensor,
    exponent: Tensor | float,
    mask: Tensor | None = None,
    stages: Sequence[int] = (),
) -> Tensor:
    """Return sum(x x^n) / sum(x^n): average at n = 0, linear softmax at n = 1, max as n grows.

    >>> import torch
    >>> power_pool(torch.tensor([[[0.5], [0.25]]]), exponent=1.0)
    tensor([[0.4167]])
    """
    return _clip_probs(pool(frame_probs, partial(power_weights, exponent=exponent), mask, stages))


def noisy_or_pool(
    frame_probs: Tensor, mask: Tensor | None = None, stages: Sequence[int] = ()
) -> Tensor:
    """Return 1 - prod(1 - x); stages change nothing, since any of any is any.

    >>> import torch
    >>> noisy_or_pool(torch.tensor([[[0.5], [0.25]]]))
    tensor([[0.6250]])
    """
    return _clip_probs(pool(frame_probs, average_weights, mask, stages, reduction=noisy_or))


def _clip_probs(levels: list[Stage]) -> Tensor:
    return levels[-1].probs.squeeze(1)
