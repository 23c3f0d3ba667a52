"""The loss that training minimises: binary cross entropy of clips, and of frames.

Conventions: in nats, averaged over what is valid and annotated: padding, clips without a valid
frame, and targets that are NaN ('not annotated') are ignored. The paper's text calls it categorical
cross entropy; by its appendix it is binary, since several classes can be active simultaneously.
"""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own usage

from earmark.errors import SettingError


def clip_loss(clip_probs: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the binary cross entropy for weak labels.

    Shape: `clip_probs`, `targets` (batch, classes), `mask` (batch, frames) -> ().

    >>> clip_loss(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, float("nan")]]))
    tensor(0.6931)
    """
    valid = None if mask is None else mask.any(1, keepdim=True)
    losses, known = _cross_entropies(clip_probs, targets, valid)
    return losses.sum() / known.sum().clamp(min=1)


def frame_loss(frame_probs: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the binary cross entropy for strong labels, with known onsets and offsets.

    Every clip has the same weight, whatever its length, so that the mean over micro-batches is that
    of the batch.

    Shape: `frame_probs`, `targets` (batch, frames, classes), `mask` (batch, frames) -> ().

    >>> mask = torch.tensor([[True, False]])
    >>> frame_loss(torch.tensor([[[0.5], [1.0]]]), torch.ones(1, 2, 1), mask)
    tensor(0.6931)
    """
    losses, known = _cross_entropies(
        frame_probs, targets, None if mask is None else mask.unsqueeze(2)
    )
    n_known = known.sum((1, 2))
    of_clips = losses.sum((1, 2)) / n_known.clamp(min=1)
    return of_clips.sum() / (n_known > 0).sum().clamp(min=1)


def _cross_entropies(probs: Tensor, targets: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the cross entropy per value, 0 where it is unknown, and where it is known."""
    if probs.shape != targets.shape:
        raise SettingError(
            "Probabilities and targets must have the same shape. "
            f"Got {tuple(probs.shape)} and {tuple(targets.shape)}."
        )
    known = ~targets.isnan()
    if valid is not None:
        known = known & valid
    with torch.autocast(probs.device.type, enabled=False):  # logarithms need single precision
        wide = torch.promote_types(probs.dtype, torch.float32)
        losses = F.binary_cross_entropy(
            probs.to(wide).masked_fill(~known, 0),
            targets.to(wide).masked_fill(~known, 0),
            reduction="none",
        )
    return losses, known
