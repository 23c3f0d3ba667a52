"""A batch of training clips -> the same batch, changed: what makes few recordings seem many.

Conventions: log-mels are (batch, frames, mels) in raw log units, natural logarithm of power, with
`mask` (batch, frames) or None; targets are (batch, classes), or (batch, frames, classes) where they
tell the time, and then move with the sound. Every change draws from the given
generator alone, so a step of training can be repeated to the bit. All are off by default.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor

from earmark.errors import SettingError
from earmark.frames import FrameGrid

_MIXING_DB = 6.0  # a clip laid over another is that much louder or softer at most


@dataclass(frozen=True)
class AugmentConfig:
    """Which changes, and how strong; 0 is off.

    Args:
        gain_db: louder or softer by up to this, the same for a whole clip.
        eq_db: the same by mel, up to this, smooth between four mels drawn at random: another
            room, another microphone.
        time_shift: seconds by which a clip is rotated at most, either way.
        mixing: share of the clips that another clip is laid over, up to 6 dB louder or softer, as
            if both were heard at once: powers add, and the targets of both hold.
        mixup: parameter of the beta distribution that mixes clips in pairs, and their targets.
        n_time_masks: stretches of time that are blanked (SpecAugment).
        time_mask: seconds of such a stretch at most.
        n_mel_masks: bands of mels that are blanked.
        mel_mask: mels of such a band at most.
        label_smoothing: targets move from 0 and 1 towards one half by this share.
    """

    gain_db: float = 0.0
    eq_db: float = 0.0
    time_shift: float = 0.0
    mixing: float = 0.0
    mixup: float = 0.0
    n_time_masks: int = 0
    time_mask: float = 0.5
    n_mel_masks: int = 0
    mel_mask: int = 10
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value >= 0 or math.isinf(value):
                raise SettingError(f"augment.{name} must be 0 (off) or more. Got {value!r}.")
        if self.mixing > 1:
            raise SettingError(f"augment.mixing is a share, 1 at most. Got {self.mixing}.")
        if self.label_smoothing >= 1:
            raise SettingError(
                f"augment.label_smoothing must be below 1. Got {self.label_smoothing}."
            )


def augment(
    log_mel: Tensor,
    mask: Tensor | None,
    targets: Tensor,
    config: AugmentConfig,
    grid: FrameGrid,
    generator: Generator,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return a changed batch; shapes stay.

    >>> x, t = torch.zeros(2, 500, 80), torch.eye(2)
    >>> rng = torch.Generator().manual_seed(0)
    >>> louder, _, _ = augment(x, None, t, AugmentConfig(gain_db=6.0), FrameGrid(50), rng)
    >>> bool((louder[0] == louder[0, 0, 0]).all() and louder[0, 0, 0] != louder[1, 0, 0])
    True
    """
    if config.gain_db:
        log_mel = change_gain(log_mel, config.gain_db, generator)
    if config.eq_db:
        log_mel = random_eq(log_mel, config.eq_db, generator)
    if config.time_shift:
        most_frames = grid.count(config.time_shift)
        log_mel, targets = shift_time(log_mel, mask, targets, most_frames, generator)
    if config.mixing:
        log_mel, mask, targets = mix_clips(log_mel, mask, targets, config.mixing, generator)
    if config.mixup:
        log_mel, mask, targets = mixup(log_mel, mask, targets, config.mixup, generator)
    if config.n_time_masks:
        width = max(1, grid.count(config.time_mask))
        log_mel = mask_stretches(log_mel, mask, 1, config.n_time_masks, width, generator)
    if config.n_mel_masks:
        log_mel = mask_stretches(log_mel, mask, 2, config.n_mel_masks, config.mel_mask, generator)
    if config.label_smoothing:
        targets = targets + config.label_smoothing * (0.5 - targets)
    return log_mel, mask, targets


def change_gain(log_mel: Tensor, most_db: float, generator: Generator) -> Tensor:
    """Add the same to every frame and mel of a clip, drawn from +- `most_db`."""
    change_db = (torch.rand(len(log_mel), 1, 1, generator=generator) * 2 - 1) * most_db
    return log_mel + change_db * (math.log(10) / 10)


def random_eq(log_mel: Tensor, most_db: float, generator: Generator) -> Tensor:
    """Add a line over the mels, bent at two places, to every frame of a clip, within +- `most_db`.

    >>> x = torch.zeros(1, 3, 80)
    >>> filtered = random_eq(x, 6.0, torch.Generator().manual_seed(0))
    >>> bool((filtered[:, 0] == filtered[:, 2]).all()), filtered.unique().numel() > 40
    (True, True)
    """
    batch, _, n_mels = log_mel.shape
    inner = torch.rand(batch, 2, generator=generator).sort(1).values * (n_mels - 1)
    ends = torch.tensor([0.0, n_mels - 1.0]).expand(batch, 2)
    places = torch.cat([ends[:, :1], inner, ends[:, 1:]], 1)  # (batch, 4)
    gains = (torch.rand(batch, 4, generator=generator) * 2 - 1) * most_db
    mels = torch.arange(n_mels, dtype=places.dtype).expand(batch, n_mels).contiguous()
    after = torch.searchsorted(places.contiguous(), mels).clamp(1, 3)
    left, right = places.gather(1, after - 1), places.gather(1, after)
    share = (mels - left) / (right - left).clamp(min=1e-6)
    change_db = gains.gather(1, after - 1).lerp(gains.gather(1, after), share)
    return log_mel + change_db[:, None] * (math.log(10) / 10)


def shift_time(
    log_mel: Tensor, mask: Tensor | None, targets: Tensor, most_frames: int, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Rotate each clip within its real frames, by up to `most_frames` either way."""
    batch, n_frames, _ = log_mel.shape
    shifts = torch.randint(-most_frames, most_frames + 1, (batch, 1), generator=generator)
    index = torch.arange(n_frames).expand(batch, n_frames)
    lengths = torch.full((batch, 1), n_frames) if mask is None else mask.sum(1, keepdim=True)
    rotated = torch.where(index < lengths, (index - shifts) % lengths.clamp(min=1), index)
    clip = torch.arange(batch)[:, None]
    return log_mel[clip, rotated], targets[clip, rotated] if targets.ndim == 3 else targets


def mix_clips(
    log_mel: Tensor, mask: Tensor | None, targets: Tensor, share: float, generator: Generator
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Add another clip of the batch to a share of the clips: their powers, and all they hold.

    >>> x, t = torch.zeros(2, 500, 80), torch.eye(2)
    >>> rng = torch.Generator().manual_seed(1)
    >>> both, _, told = mix_clips(x, None, t, 1.0, rng)
    >>> bool((both >= 0.2).all() and (both <= 1.7).all()), told.sum()
    (True, tensor(4.))
    """
    batch = len(log_mel)
    partner = torch.randperm(batch, generator=generator)
    chosen = torch.rand(batch, generator=generator) < share
    other = change_gain(log_mel[partner], _MIXING_DB, generator)
    both = torch.logaddexp(log_mel, other)
    if mask is not None:
        other_mask = mask[partner]
        both = torch.where((mask & other_mask)[:, :, None], both, log_mel)
        both = torch.where((other_mask & ~mask)[:, :, None], other, both)
        mask = torch.where(chosen[:, None], mask | other_mask, mask)
    log_mel = torch.where(chosen[:, None, None], both, log_mel)
    chosen = chosen.view(batch, *[1] * (targets.ndim - 1))
    return log_mel, mask, torch.where(chosen, torch.maximum(targets, targets[partner]), targets)


def mixup(
    log_mel: Tensor, mask: Tensor | None, targets: Tensor, alpha: float, generator: Generator
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Mix each clip with another of the batch; both the log-mels and the targets.

    A frame that is real in one of the two only is that one alone; the mask becomes that of the
    longer clip.
    """
    partner = torch.randperm(len(log_mel), generator=generator)
    seed = int(torch.randint(2**62, (), generator=generator))  # torch's beta takes no generator
    drawn = np.random.default_rng(seed).beta(alpha, alpha, len(log_mel))
    share = torch.from_numpy(drawn).to(log_mel.dtype)
    share = torch.maximum(share, 1 - share)  # the clip itself stays the louder one
    own = share[:, None, None]
    of_targets = own if targets.ndim == 3 else share[:, None]
    targets = of_targets * targets + (1 - of_targets) * targets[partner]
    if mask is not None:
        other_mask = mask[partner]
        only_own, only_other = mask & ~other_mask, other_mask & ~mask
        own = torch.where(only_own[:, :, None], 1, torch.where(only_other[:, :, None], 0, own))
        mask = mask | other_mask
    return own * log_mel + (1 - own) * log_mel[partner], mask, targets


def mask_stretches(
    log_mel: Tensor, mask: Tensor | None, axis: int, n_masks: int, most: int, generator: Generator
) -> Tensor:
    """Set stretches of up to `most` frames (axis 1) or mels (axis 2) to the clip's mean."""
    size = log_mel.shape[axis]
    most = min(most, size)
    if mask is None:
        mean = log_mel.mean((1, 2), keepdim=True)
    else:
        real = mask[:, :, None]
        count = real.sum((1, 2), keepdim=True).clamp(min=1) * log_mel.shape[2]
        mean = log_mel.masked_fill(~real, 0).sum((1, 2), keepdim=True) / count
    index = torch.arange(size)
    for _ in range(n_masks):
        width = torch.randint(0, most + 1, (len(log_mel), 1), generator=generator)
        start = (torch.rand(len(log_mel), 1, generator=generator) * (size - width + 1)).long()
        hidden = (index >= start) & (index < start + width)
        hidden = hidden.unsqueeze(2 if axis == 1 else 1)
        log_mel = torch.where(hidden, mean, log_mel)
    return log_mel
