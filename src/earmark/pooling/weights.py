"""Frame probabilities -> frame weights: what sets one pooling apart from another (Table 1).

Conventions: `frame_probs` (batch, frames, classes) in single or double precision with padding
zeroed, `mask` (batch, frames, 1); weights come back in the shape of `frame_probs` and are never
negative. Only their ratios within a clip and class matter, so rules may scale them. What they hold
at padding does not matter either: `pool` zeroes it, and a rule looks at `mask` only where a maximum
or a softmax must not see padding.
"""

import torch
from torch import Tensor

from earmark.errors import choose

ATTENTION_OVER = ("frames", "classes")


def max_weights(frame_probs: Tensor, mask: Tensor) -> Tensor:
    """Return 1 for the first largest real frame of each class, 0 for the rest."""
    best = frame_probs.masked_fill(~mask, -torch.inf).argmax(1, keepdim=True)
    index = torch.arange(frame_probs.shape[1], device=frame_probs.device)
    return (index[:, None] == best).to(frame_probs.dtype)


def average_weights(frame_probs: Tensor, mask: Tensor) -> Tensor:
    """Return 1 for every frame."""
    return torch.ones_like(frame_probs)


def linear_weights(frame_probs: Tensor, mask: Tensor) -> Tensor:
    """Return the probabilities themselves: linear softmax."""
    return frame_probs


def exp_weights(frame_probs: Tensor, mask: Tensor, sharpness: Tensor | float = 1.0) -> Tensor:
    """Return exp(sharpness * x), scaled to 1 at its largest: exponential softmax, or autopool."""
    exponent = (frame_probs * sharpness).masked_fill(~mask, -torch.inf)
    largest = exponent.detach().amax(1, keepdim=True)
    # A clip without a real frame has no largest; -inf minus -inf would be NaN.
    return (exponent - largest.masked_fill(largest == -torch.inf, 0)).exp()


def power_weights(frame_probs: Tensor, mask: Tensor, exponent: Tensor | float = 1.0) -> Tensor:
    """Return x ** exponent, with a finite gradient at 0 too; a negative exponent counts as 0."""
    power = torch.as_tensor(exponent, dtype=frame_probs.dtype, device=frame_probs.device)
    power = power.clamp(min=0)
    smallest = torch.finfo(frame_probs.dtype).tiny
    weights = (power * frame_probs.clamp(min=smallest).log()).exp()
    # 0 ** 0 is 1, as an average wants it, and 0 ** n is 0.
    return torch.where(frame_probs > 0, weights, (power == 0).to(weights.dtype))


def attention_weights(logits: Tensor, mask: Tensor, over: str = ATTENTION_OVER[0]) -> Tensor:
    """Return the softmax of `logits` over the real frames, or over the classes of each frame."""
    if choose("axis for attention", over, ATTENTION_OVER) == "classes":
        return logits.masked_fill(~mask, 0).softmax(2)
    logits = logits.masked_fill(~mask, -torch.inf)
    # A clip without a real frame would be the softmax of nothing but -inf, which is NaN.
    return torch.where(mask.any(1, keepdim=True), logits, 0).softmax(1)
