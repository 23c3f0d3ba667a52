"""The loss that training minimises: binary cross entropy of clips and of frames, and contrast.

Conventions: in nats, averaged over what is valid and annotated: padding, clips without a valid
frame, and targets that are NaN ('not annotated') are ignored. Probabilities are clipped to `EPS`
from 0 and 1, beyond which rounding decides, and one clip could outweigh all others. The paper's
text calls it categorical cross entropy; by its appendix it is binary, since several classes can be
active simultaneously.
"""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own usage

from earmark.errors import SettingError

EPS = 1e-7


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


def contrast_loss(
    frame_probs: Tensor, targets: Tensor, mask: Tensor | None = None, share: float = 0.1
) -> Tensor:
    """Return how little the frames of a tagged class differ within a clip, from 0 to 1.

    It is 1 - (mean of the highest frames - mean of the lowest), where both are a share of the valid
    frames, at least one; a target weighs as much as its value, and so a class without a tag
    nothing. Tags alone do not say that an event is shorter than its clip; this term does.

    Shape: `frame_probs` (batch, frames, classes), `targets` (batch, classes), `mask`
    (batch, frames) -> ().

    >>> frame_probs = torch.tensor([[[0.9], [0.5], [0.1]]])
    >>> contrast_loss(frame_probs, torch.ones(1, 1)), contrast_loss(frame_probs, torch.zeros(1, 1))
    (tensor(0.2000), tensor(0.))
    """
    if mask is None:
        mask = torch.ones(frame_probs.shape[:2], dtype=torch.bool, device=frame_probs.device)
    n_valid = mask.sum(1, keepdim=True)  # (batch, 1)
    n_ends = (share * n_valid).ceil().clamp(min=1)
    # Padding comes last: no probability is below -1.
    ordered = frame_probs.masked_fill(~mask.unsqueeze(2), -1).sort(1, descending=True).values
    place = torch.arange(frame_probs.shape[1], device=frame_probs.device)
    highest = (place < n_ends) & (place < n_valid)  # (batch, frames)
    lowest = (place >= n_valid - n_ends) & (place < n_valid)
    ends = (highest.to(ordered.dtype) - lowest.to(ordered.dtype)) / n_ends
    distance = (ends.unsqueeze(2) * ordered).sum(1)  # (batch, classes)
    weights = targets.nan_to_num(0.0) * (n_valid > 0)
    return (weights * (1 - distance)).sum() / weights.sum().clamp(min=1)


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
            probs.to(wide).clamp(EPS, 1 - EPS).masked_fill(~known, 0),
            targets.to(wide).masked_fill(~known, 0),
            reduction="none",
        )
    return losses, known
