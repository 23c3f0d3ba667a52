"""Data augmentation on batches of log-mels: random changes that a label survives.

Conventions: log-mels are (batch, frames, mels) in unnormalised log units (natural logarithm of
power), with `mask` (batch, frames) or None. Targets are (batch, classes), or (batch, frames,
classes) for frame-level targets, which then move with the sound. All random numbers come from the
given generator, so a training step can be repeated bit for bit. Everything is off by default.

A new augmentation is one function and one line in `AUGMENTATIONS`. Waveforms, as frames of samples,
have their own gain and mixing, and nothing that is about mel bands: `OF_WAVEFORMS`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from earmark.config import check_limits, repr_of_changes
from earmark.errors import SettingError
from earmark.frames import FrameGrid

# The largest values: louder, longer and more than any recording is.
LIMITS: dict[str, float] = {
    **dict.fromkeys(("gain_db", "eq_db"), 200.0),
    **dict.fromkeys(("time_shift", "time_mask"), 86_400.0),
    **dict.fromkeys(("n_time_masks", "n_mel_masks"), 1000),
    "mel_mask": 2**20,
    "mixup": 1e6,
}
_MIXING_DB = 6.0  # largest gain, up or down, of the clip that is added
_DB = math.log(10) / 10  # one decibel in log-mel units


@dataclass(frozen=True)
class AugmentConfig:
    """Which augmentations to apply, and how strongly; 0 is off.

    Args:
        gain_db: random gain of up to +-`gain_db`, constant over a clip.
        eq_db: random EQ: a gain per mel band of up to +-`eq_db`, piecewise linear with two random
            knots, constant over a clip. Simulates other rooms and microphones.
        time_shift: largest circular shift in seconds, in either direction.
        mixing: probability that another clip of the batch is added to a clip, at -6 to +6 dB:
            powers add, and the targets are the union.
        mixup: parameter of the beta distribution that weights pairs of clips and their targets.
        n_time_masks: number of time masks (SpecAugment).
        time_mask: largest length of a time mask in seconds.
        n_mel_masks: number of frequency masks (SpecAugment).
        mel_mask: largest width of a frequency mask in mel bands.
        label_smoothing: fraction by which targets move from 0 and 1 towards 0.5.

    >>> AugmentConfig(mixing=2.0)
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: augment.mixing is a probability, at most 1. Got 2.0.
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

    __repr__ = repr_of_changes

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value >= 0 or math.isinf(value):
                raise SettingError(f"augment.{name} must be 0 (off) or more. Got {value!r}.")
        check_limits("augment.", self, LIMITS)
        if self.mixing > 1:
            raise SettingError(f"augment.mixing is a probability, at most 1. Got {self.mixing}.")
        if self.label_smoothing >= 1:
            raise SettingError(
                f"augment.label_smoothing must be below 1. Got {self.label_smoothing}."
            )


class Batch(NamedTuple):
    """Clips of one training step.

    Shape: `log_mel` (batch, frames, mels), `mask` (batch, frames) or None, `targets`
    (batch, classes) or (batch, frames, classes).

    >>> Batch(torch.zeros(2, 500, 80), None, torch.eye(2)).targets.shape
    torch.Size([2, 2])
    """

    log_mel: Tensor
    mask: Tensor | None
    targets: Tensor


Augmentation = Callable[[Batch, AugmentConfig, FrameGrid, Generator], Batch]


def augment(
    batch: Batch,
    config: AugmentConfig,
    grid: FrameGrid,
    generator: Generator,
    kind: str = "log-mel",
) -> Batch:
    """Apply every augmentation that `config` switches on; shapes stay the same.

    Args:
        batch: the clips.
        config: which augmentations.
        grid: of the frames.
        generator: of the random numbers.
        kind: of the features, "log-mel" or "waveform".

    >>> batch = Batch(torch.zeros(2, 500, 80), None, torch.eye(2))
    >>> rng = torch.Generator().manual_seed(0)
    >>> louder = augment(batch, AugmentConfig(gain_db=6.0), FrameGrid(50), rng).log_mel
    >>> bool((louder[0] == louder[0, 0, 0]).all() and louder[0, 0, 0] != louder[1, 0, 0])
    True
    """
    for setting, function in (OF_WAVEFORMS if kind == "waveform" else AUGMENTATIONS).items():
        if getattr(config, setting):
            batch = function(batch, config, grid, generator)
    return batch


def random_gain(
    batch: Batch, config: AugmentConfig, grid: FrameGrid, generator: Generator
) -> Batch:
    """Change the level of each clip by up to +-`gain_db`.

    >>> batch = Batch(torch.zeros(1, 500, 80), None, torch.ones(1, 1))
    >>> rng = torch.Generator().manual_seed(0)
    >>> random_gain(batch, AugmentConfig(gain_db=6.0), FrameGrid(50), rng).log_mel.unique().numel()
    1
    """
    return batch._replace(log_mel=_change_gain(batch.log_mel, config.gain_db, generator))


def random_waveform_gain(
    batch: Batch, config: AugmentConfig, grid: FrameGrid, generator: Generator
) -> Batch:
    """Change the level of each waveform by up to +-`gain_db`.

    >>> batch = Batch(torch.ones(1, 50, 441), None, torch.ones(1, 1))
    >>> rng = torch.Generator().manual_seed(0)
    >>> louder = random_waveform_gain(batch, AugmentConfig(gain_db=6.0), FrameGrid(50), rng)
    >>> 0.5 <= float(louder.log_mel.unique()) <= 2
    True
    """
    return batch._replace(log_mel=_scale(batch.log_mel, config.gain_db, generator))


def random_eq(batch: Batch, config: AugmentConfig, grid: FrameGrid, generator: Generator) -> Batch:
    """Apply a random EQ of up to +-`eq_db` to each clip, piecewise linear over the mel bands.

    >>> batch = Batch(torch.zeros(1, 3, 80), None, torch.ones(1, 1))
    >>> rng = torch.Generator().manual_seed(0)
    >>> filtered = random_eq(batch, AugmentConfig(eq_db=6.0), FrameGrid(50), rng).log_mel
    >>> bool((filtered[:, 0] == filtered[:, 2]).all()), filtered.unique().numel() > 40
    (True, True)
    """
    size, _, n_mels = batch.log_mel.shape
    inner = torch.rand(size, 2, generator=generator).sort(1).values * (n_mels - 1)
    ends = torch.tensor([0.0, n_mels - 1.0]).expand(size, 2)
    knots = torch.cat([ends[:, :1], inner, ends[:, 1:]], 1)  # (batch, 4)
    gains = (torch.rand(size, 4, generator=generator) * 2 - 1) * config.eq_db
    mels = torch.arange(n_mels, dtype=knots.dtype).expand(size, n_mels).contiguous()
    after = torch.searchsorted(knots.contiguous(), mels).clamp(1, 3)
    left, right = knots.gather(1, after - 1), knots.gather(1, after)
    fraction = (mels - left) / (right - left).clamp(min=1e-6)
    change_db = gains.gather(1, after - 1).lerp(gains.gather(1, after), fraction)
    return batch._replace(log_mel=batch.log_mel + change_db[:, None] * _DB)


def shift_time(batch: Batch, config: AugmentConfig, grid: FrameGrid, generator: Generator) -> Batch:
    """Shift each clip circularly within its valid frames, by up to `time_shift` either way.

    >>> batch = Batch(torch.arange(50.0).view(1, 50, 1), None, torch.ones(1, 1))
    >>> rng = torch.Generator().manual_seed(0)
    >>> shifted = shift_time(batch, AugmentConfig(time_shift=1.0), FrameGrid(50), rng).log_mel
    >>> bool((shifted.flatten().sort().values == batch.log_mel.flatten()).all())
    True
    """
    log_mel, mask, targets = batch
    size, n_frames, _ = log_mel.shape
    most = grid.count(config.time_shift)
    shifts = torch.randint(-most, most + 1, (size, 1), generator=generator)
    index = torch.arange(n_frames).expand(size, n_frames)
    lengths = torch.full((size, 1), n_frames) if mask is None else mask.sum(1, keepdim=True)
    shifted = torch.where(index < lengths, (index - shifts) % lengths.clamp(min=1), index)
    clip = torch.arange(size)[:, None]
    targets = targets[clip, shifted] if targets.ndim == 3 else targets
    return Batch(log_mel[clip, shifted], mask, targets)


def mix_clips(batch: Batch, config: AugmentConfig, grid: FrameGrid, generator: Generator) -> Batch:
    """Add another clip of the batch to a clip, with probability `mixing`.

    Powers add, and the targets are the union. The mask becomes that of the longer clip.

    >>> batch = Batch(torch.zeros(2, 500, 80), None, torch.eye(2))
    >>> rng = torch.Generator().manual_seed(1)
    >>> mixed = mix_clips(batch, AugmentConfig(mixing=1.0), FrameGrid(50), rng)
    >>> bool((mixed.log_mel >= 0.2).all() and (mixed.log_mel <= 1.7).all()), mixed.targets.sum()
    (True, tensor(4.))
    """
    return _mix(batch, config, generator, _change_gain, torch.logaddexp)


def mix_waveforms(
    batch: Batch, config: AugmentConfig, grid: FrameGrid, generator: Generator
) -> Batch:
    """Add another waveform of the batch to a waveform, with probability `mixing`.

    Otherwise as `mix_clips`.

    >>> batch = Batch(torch.ones(2, 50, 441), None, torch.eye(2))
    >>> rng = torch.Generator().manual_seed(1)
    >>> mixed = mix_waveforms(batch, AugmentConfig(mixing=1.0), FrameGrid(50), rng)
    >>> bool((mixed.log_mel >= 1.5).all() and (mixed.log_mel <= 3).all()), mixed.targets.sum()
    (True, tensor(4.))
    """
    return _mix(batch, config, generator, _scale, torch.add)


def _mix(
    batch: Batch,
    config: AugmentConfig,
    generator: Generator,
    change_gain: Callable[[Tensor, float, Generator], Tensor],
    add: Callable[[Tensor, Tensor], Tensor],
) -> Batch:
    log_mel, mask, targets = batch
    size = len(log_mel)
    partner = torch.randperm(size, generator=generator)
    chosen = torch.rand(size, generator=generator) < config.mixing
    other = change_gain(log_mel[partner], _MIXING_DB, generator)
    both = add(log_mel, other)
    if mask is not None:
        other_mask = mask[partner]
        both = torch.where((mask & other_mask)[:, :, None], both, log_mel)
        both = torch.where((other_mask & ~mask)[:, :, None], other, both)
        mask = torch.where(chosen[:, None], mask | other_mask, mask)
    log_mel = torch.where(chosen[:, None, None], both, log_mel)
    chosen = chosen.view(size, *[1] * (targets.ndim - 1))
    union = torch.maximum(targets, targets[partner])
    return Batch(log_mel, mask, torch.where(chosen, union, targets))


def mixup(batch: Batch, config: AugmentConfig, grid: FrameGrid, generator: Generator) -> Batch:
    """Average each clip with another of the batch, log-mels and targets, by a random weight.

    The weight of the clip itself is at least 0.5. A frame that is valid in one of the two only is
    taken from that one; the mask becomes that of the longer clip.

    >>> batch = Batch(torch.tensor([0.0, 1.0]).view(2, 1, 1), None, torch.tensor([[0.0], [1.0]]))
    >>> mixed = mixup(batch, AugmentConfig(mixup=0.5), FrameGrid(50), torch.Generator())
    >>> bool((mixed.log_mel.flatten() == mixed.targets.flatten()).all())
    True
    """
    log_mel, mask, targets = batch
    partner = torch.randperm(len(log_mel), generator=generator)
    seed = int(torch.randint(2**62, (), generator=generator))  # torch's beta takes no generator
    drawn = np.random.default_rng(seed).beta(config.mixup, config.mixup, len(log_mel))
    weight = torch.from_numpy(drawn).to(log_mel.dtype)
    weight = torch.maximum(weight, 1 - weight)
    own = weight[:, None, None]
    of_targets = own if targets.ndim == 3 else weight[:, None]
    targets = of_targets * targets + (1 - of_targets) * targets[partner]
    if mask is not None:
        other_mask = mask[partner]
        only_own, only_other = mask & ~other_mask, other_mask & ~mask
        own = torch.where(only_own[:, :, None], 1, torch.where(only_other[:, :, None], 0, own))
        mask = mask | other_mask
    return Batch(own * log_mel + (1 - own) * log_mel[partner], mask, targets)


def mask_time(batch: Batch, config: AugmentConfig, grid: FrameGrid, generator: Generator) -> Batch:
    """Set `n_time_masks` stretches of up to `time_mask` seconds to the mean of the clip.

    >>> batch = Batch(torch.rand(1, 50, 8), None, torch.ones(1, 1))
    >>> config = AugmentConfig(n_time_masks=1, time_mask=0.2)
    >>> masked = mask_time(batch, config, FrameGrid(50), torch.Generator().manual_seed(1)).log_mel
    >>> bool((masked != batch.log_mel).all(2).sum() <= 10)
    True
    """
    most = max(1, grid.count(config.time_mask))
    return batch._replace(log_mel=_mask(batch, 1, config.n_time_masks, most, generator))


def mask_frequency(
    batch: Batch, config: AugmentConfig, grid: FrameGrid, generator: Generator
) -> Batch:
    """Set `n_mel_masks` groups of up to `mel_mask` mel bands to the mean of the clip.

    >>> batch = Batch(torch.rand(1, 50, 8), None, torch.ones(1, 1))
    >>> config = AugmentConfig(n_mel_masks=1, mel_mask=2)
    >>> rng = torch.Generator().manual_seed(1)
    >>> masked = mask_frequency(batch, config, FrameGrid(50), rng).log_mel
    >>> bool((masked != batch.log_mel).all(1).sum() <= 2)
    True
    """
    log_mel = _mask(batch, 2, config.n_mel_masks, config.mel_mask, generator)
    return batch._replace(log_mel=log_mel)


def smooth_labels(
    batch: Batch, config: AugmentConfig, grid: FrameGrid, generator: Generator
) -> Batch:
    """Move targets towards 0.5 by the fraction `label_smoothing`.

    >>> batch = Batch(torch.zeros(1, 50, 8), None, torch.tensor([[0.0, 1.0]]))
    >>> config = AugmentConfig(label_smoothing=0.1)
    >>> smooth_labels(batch, config, FrameGrid(50), torch.Generator()).targets
    tensor([[0.0500, 0.9500]])
    """
    targets = batch.targets
    return batch._replace(targets=targets + config.label_smoothing * (0.5 - targets))


# Setting that switches it on (0 is off) -> augmentation, in the order in which they are applied.
AUGMENTATIONS: Mapping[str, Augmentation] = {
    "gain_db": random_gain,
    "eq_db": random_eq,
    "time_shift": shift_time,
    "mixing": mix_clips,
    "mixup": mixup,
    "n_time_masks": mask_time,
    "n_mel_masks": mask_frequency,
    "label_smoothing": smooth_labels,
}
# The same for waveforms.
OF_WAVEFORMS: Mapping[str, Augmentation] = {
    **{name: own for name, own in AUGMENTATIONS.items() if name not in ("eq_db", "n_mel_masks")},
    "gain_db": random_waveform_gain,
    "mixing": mix_waveforms,
}


def _change_gain(log_mel: Tensor, most_db: float, generator: Generator) -> Tensor:
    return log_mel + _random_db(log_mel, most_db, generator) * _DB


def _scale(waveform: Tensor, most_db: float, generator: Generator) -> Tensor:
    return waveform * 10 ** (_random_db(waveform, most_db, generator) / 20)


def _random_db(batch: Tensor, most_db: float, generator: Generator) -> Tensor:
    return (torch.rand(len(batch), 1, 1, generator=generator) * 2 - 1) * most_db


def _mask(batch: Batch, axis: int, n_masks: int, most: int, generator: Generator) -> Tensor:
    """Set stretches of up to `most` frames (axis 1) or mel bands (axis 2) to the clip's mean."""
    log_mel, mask, _ = batch
    size = log_mel.shape[axis]
    most = min(most, size)
    if mask is None:
        mean = log_mel.mean((1, 2), keepdim=True)
    else:
        valid = mask[:, :, None]
        count = valid.sum((1, 2), keepdim=True).clamp(min=1) * log_mel.shape[2]
        mean = log_mel.masked_fill(~valid, 0).sum((1, 2), keepdim=True) / count
    index = torch.arange(size)
    for _ in range(n_masks):
        width = torch.randint(0, most + 1, (len(log_mel), 1), generator=generator)
        start = (torch.rand(len(log_mel), 1, generator=generator) * (size - width + 1)).long()
        masked = (index >= start) & (index < start + width)
        masked = masked.unsqueeze(2 if axis == 1 else 1)
        log_mel = torch.where(masked, mean, log_mel)
    return log_mel
