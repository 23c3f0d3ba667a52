"""Probabilities and labels -> the number that training makes small.

Conventions: binary cross entropy in nats, averaged over what is real and known: padding, clips
without a real frame, and targets that are NaN ('not annotated') take no part. What the paper's text
calls categorical cross entropy is this one, by its appendix: several classes can be active at once.
"""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own usage

from earmark.errors import SettingError


def clip_loss(clip_probs: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the cross entropy of weak labels.

    Shape: `clip_probs`, `targets` (batch, classes), `mask` (batch, frames) -> ().

    >>> clip_loss(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, float("nan")]]))
    tensor(0.6931)
    """
    real = None if mask is None else mask.any(1, keepdim=True)
    losses, known = _cross_entropies(clip_probs, targets, real)
    return losses.sum() / known.sum().clamp(min=1)


def frame_loss(frame_probs: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the cross entropy of strong labels, for training with known onsets and offsets.

    Every clip counts alike, whatever its length, so that parts of a batch add up to the whole.

    Shape: `frame_probs`, `targets` (batch, frames, classes), `mask` (batch, frames) -> ().

    >>> real = torch.tensor([[True, False]])
    >>> frame_loss(torch.tensor([[[0.5], [1.0]]]), torch.ones(1, 2, 1), real)
    tensor(0.6931)
    """
    losses, known = _cross_entropies(
        frame_probs, targets, None if mask is None else mask.unsqueeze(2)
    )
    n_known = known.sum((1, 2))
    of_clips = losses.sum((1, 2)) / n_known.clamp(min=1)
    return of_clips.sum() / (n_known > 0).sum().clamp(min=1)


def _cross_entropies(probs: Tensor, targets: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the cross entropy of each number, 0 where nothing is known, and where it is."""
    if probs.shape != targets.shape:
        raise SettingError(
            "Probabilities and targets must have one shape. "
            f"Got {tuple(probs.shape)} and {tuple(targets.shape)}."
        )
    known = ~targets.isnan()
    if real is not None:
        known = known & real
    with torch.autocast(probs.device.type, enabled=False):  # logarithms want single precision
        wide = torch.promote_types(probs.dtype, torch.float32)
        losses = F.binary_cross_entropy(
            probs.to(wide).masked_fill(~known, 0),
            targets.to(wide).masked_fill(~known, 0),
            reduction="none",
        )
    return losses, known
