"""Frame probabilities -> frame weights: what sets one pooling apart from another (Table 1).

Conventions: `frame_probs` (batch, frames, classes) in single or double precision with padding
zeroed, `mask` (batch, frames, 1); weights come back in the shape of `frame_probs`, zero at padding.
Only their ratios within a clip and class matter, so rules may scale them.
"""

import torch
from torch import Tensor


def max_weights(frame_probs: Tensor, mask: Tensor) -> Tensor:
    """Return 1 for the first largest real frame of each class, 0 for the rest."""
    best = frame_probs.masked_fill(~mask, -torch.inf).argmax(1, keepdim=True)
    index = torch.arange(frame_probs.shape[1], device=frame_probs.device)
    return ((index[:, None] == best) & mask).to(frame_probs.dtype)


def average_weights(frame_probs: Tensor, mask: Tensor) -> Tensor:
    """Return 1 for every real frame."""
    return mask.to(frame_probs.dtype).expand_as(frame_probs)


def linear_weights(frame_probs: Tensor, mask: Tensor) -> Tensor:
    """Return the probabilities themselves: linear softmax."""
    return frame_probs * mask


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
    return torch.where(frame_probs > 0, weights, (power == 0).to(weights.dtype)) * mask


def attention_weights(logits: Tensor, mask: Tensor, over: str = "frames") -> Tensor:
    """Return the softmax of `logits` over the real frames, or over the classes of each frame."""
    if over == "classes":
        return logits.masked_fill(~mask, 0).softmax(2) * mask
    logits = logits.masked_fill(~mask, -torch.inf)
    # A clip without a real frame would be the softmax of nothing but -inf, which is NaN.
    return torch.where(mask.any(1, keepdim=True), logits, 0).softmax(1) * mask
