"""Augmentations: what they change, what they leave alone, and that a seed repeats them."""

import math

import numpy as np
import pytest
import torch

from earmark.errors import SettingError
from earmark.frames import FrameGrid
from earmark.training.augmentation import (
    AUGMENTATIONS,
    OF_WAVEFORMS,
    AugmentConfig,
    Batch,
    augment,
    mask_frequency,
    mask_time,
    mix_clips,
    mix_waveforms,
    mixup,
    random_eq,
    random_gain,
    random_waveform_gain,
    shift_time,
)

GRID = FrameGrid(50)
ALL = AugmentConfig(
    gain_db=6.0,
    eq_db=6.0,
    time_shift=1.0,
    mixing=0.5,
    mixup=1.0,
    n_time_masks=2,
    n_mel_masks=2,
    label_smoothing=0.1,
)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def clips(n_frames=100):
    log_mel = torch.randn(4, n_frames, 8, generator=rng(5))
    mask = torch.arange(n_frames) < torch.tensor([[n_frames], [60], [1], [30]])
    return Batch(log_mel, mask, torch.eye(4))


def constant(values, n_frames=3, n_mels=2):
    """Clips that have one value everywhere, without mask, each of another class."""
    log_mel = torch.tensor(values)[:, None, None].expand(len(values), n_frames, n_mels)
    return Batch(log_mel, None, torch.eye(len(values)))


def test_everything_is_off_by_default_and_then_nothing_changes():
    batch = clips()
    assert augment(batch, AugmentConfig(), GRID, rng()) is batch


@pytest.mark.parametrize(
    ("name", "function"),
    [*AUGMENTATIONS.items(), *OF_WAVEFORMS.items()],
)
def test_every_augmentation_keeps_shapes_repeats_with_its_seed_and_has_its_switch(name, function):
    assert getattr(AugmentConfig(), name) == 0
    assert getattr(ALL, name)
    batch = clips()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, again, other = (function(batch, ALL, GRID, rng(seed)) for seed in (3, 3, 4))
    assert torch.get_rng_state().equal(before), "it must use the given generator only"
    assert all(a.shape == b.shape for a, b in zip(first, batch, strict=True))
    assert all(a.equal(b) for a, b in zip(first, again, strict=True))
    assert not all(a.equal(b) for a, b in zip(first, batch, strict=True))
    if name != "label_smoothing":
        assert not first.log_mel.equal(other.log_mel)
    without_mask = function(batch._replace(mask=None), ALL, GRID, rng(3))
    assert without_mask.mask is None
    frames = batch._replace(targets=batch.log_mel[:, :, :2].sigmoid())
    assert function(frames, ALL, GRID, rng(3)).targets.shape == frames.targets.shape


def test_augment_applies_all_of_them_in_the_order_of_the_registry():
    batch, generator = clips(), rng(3)
    expected = batch
    for function in AUGMENTATIONS.values():
        expected = function(expected, ALL, GRID, generator)
    actual = augment(batch, ALL, GRID, rng(3))
    assert all(a.equal(b) for a, b in zip(actual, expected, strict=True))


def test_gain_of_six_decibels_is_at_most_a_factor_of_four_in_power():
    batch = Batch(torch.zeros(1000, 2, 2), None, torch.zeros(1000, 1))
    change = random_gain(batch, AugmentConfig(gain_db=6.0), GRID, rng()).log_mel[:, 0, 0]
    assert change.abs().max() <= math.log(10 ** (6 / 10))
    assert change.std() > 0.5


def test_random_eq_changes_every_frame_of_a_clip_alike_and_clips_differently():
    batch = Batch(torch.zeros(3, 20, 80), None, torch.zeros(3, 1))
    y = random_eq(batch, AugmentConfig(eq_db=6.0), GRID, rng()).log_mel
    assert (y == y[:, :1]).all()
    assert not torch.equal(y[0], y[1])
    assert 0 < y.abs().max() <= 6.0 * math.log(10) / 10
    assert y.diff(dim=2).abs().max() < y.abs().max()  # smooth over the mel bands


def test_random_eq_is_the_line_through_its_knots():
    batch = Batch(torch.zeros(200, 1, 80), None, torch.zeros(200, 1))
    y = random_eq(batch, AugmentConfig(eq_db=6.0), GRID, rng(5)).log_mel[:, 0].numpy()
    generator = rng(5)
    places = torch.rand(200, 2, generator=generator).numpy()
    levels = torch.rand(200, 4, generator=generator).numpy()
    for change, place, level in zip(y, places, levels, strict=True):
        knots = [0, *sorted(place * 79), 79]  # the lowest band, two between, the highest
        in_db = np.interp(np.arange(80), knots, level * 12 - 6)
        np.testing.assert_allclose(change, in_db * math.log(10) / 10, atol=1e-3)


def test_a_time_shift_rotates_the_valid_frames_and_leaves_padding_in_place():
    batch = clips()
    shifted = shift_time(batch, AugmentConfig(time_shift=0.4), GRID, rng()).log_mel
    lengths = batch.mask.sum(1).tolist()
    for clip, moved, length in zip(batch.log_mel, shifted, lengths, strict=True):
        assert moved[length:].equal(clip[length:])
        rotations = [clip[:length].roll(k, 0) for k in range(-20, 21)]
        assert any(moved[:length].equal(rotation) for rotation in rotations)
    assert not shifted[0].equal(batch.log_mel[0])


def test_mixing_adds_powers_and_joins_targets():
    batch = constant([1.0, 3.0, 5.0, 7.0])
    config = AugmentConfig(mixing=1.0)
    both, mask, targets = mix_clips(batch, config, GRID, rng())
    assert mask is None
    partner = torch.randperm(4, generator=rng())
    gain = (both.exp() - batch.log_mel.exp()) / batch.log_mel[partner].exp()
    assert (gain - gain[:, :1, :1]).abs().max() < 1e-3  # constant over a clip
    assert 0.25 < gain.min() < gain.max() < 4  # 6 dB either way
    assert targets.equal(torch.maximum(torch.eye(4), torch.eye(4)[partner]))
    frames = torch.rand(4, 3, 2, generator=rng())
    mixed = mix_clips(batch._replace(targets=frames), config, GRID, rng())
    assert mixed.targets.equal(torch.maximum(frames, frames[partner]))


def test_mixing_changes_a_fraction_of_the_clips():
    batch = Batch(torch.zeros(400, 2, 2), None, torch.zeros(400, 1))
    mixed = mix_clips(batch, AugmentConfig(mixing=0.25), GRID, rng()).log_mel
    assert 60 < (mixed[:, 0, 0] > 0).sum() < 140
    assert mix_clips(batch, AugmentConfig(), GRID, rng()).log_mel.equal(batch.log_mel)


def two_of_unequal_length():
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    return constant([1.0, 2.0], n_frames=4, n_mels=1)._replace(mask=mask)


def test_after_mixing_clips_of_unequal_length_the_longer_continues_alone():
    for seed in range(9):
        mixed, mask, targets = mix_clips(
            two_of_unequal_length(), AugmentConfig(mixing=1.0), GRID, rng(seed)
        )
        if targets.equal(torch.eye(2)):
            continue  # each with itself
        assert mask.all()
        assert mixed[0, 2:].eq(1.0).all()
        assert (mixed[1, 2:] - 1.0).abs().max() < 1.4  # the first clip, with its gain
        assert (mixed[0, :2] > 1.0).all()
        return
    pytest.fail("no pair was mixed with nine seeds")


def test_mixup_weights_clips_and_targets_alike():
    batch = constant([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    targets = torch.arange(6.0)[:, None]
    mixed = mixup(batch._replace(targets=targets), AugmentConfig(mixup=1.0), GRID, rng())
    assert mixed.mask is None
    torch.testing.assert_close(mixed.log_mel[:, 0, 0], mixed.targets[:, 0])
    assert not mixed.targets.equal(targets)
    partner = torch.randperm(6, generator=rng())
    other = partner != torch.arange(6)
    weight = (mixed.targets[:, 0] - partner) / (targets[:, 0] - partner)
    assert (weight[other] >= 0.5).all()  # the clip itself has the larger weight


def test_mixup_of_unequal_lengths_keeps_the_longer_clip_at_its_level():
    batch = two_of_unequal_length()
    for seed in range(9):
        mixed = mixup(batch, AugmentConfig(mixup=1.0), GRID, rng(seed))
        if mixed.log_mel.equal(batch.log_mel):
            continue  # each with itself
        assert mixed.mask.all()
        assert mixed.log_mel[:, 2:].eq(1.0).all()
        return
    pytest.fail("no pair was mixed with nine seeds")


@pytest.mark.parametrize("axis", [1, 2])
def test_masks_hold_the_mean_of_the_valid_frames_and_are_no_longer_than_configured(axis):
    function = mask_time if axis == 1 else mask_frequency
    config = AugmentConfig(n_time_masks=1, time_mask=0.1, n_mel_masks=1, mel_mask=5)
    batch = clips()
    x = batch.log_mel
    widths = [
        (function(batch, config, GRID, rng(seed)).log_mel != x).any(3 - axis).sum(1).max()
        for seed in range(9)
    ]
    assert max(widths) == 5
    masked = function(batch, config, GRID, rng(1)).log_mel
    changed = (masked != x).any(3 - axis)
    assert changed.any()
    if changed[1].any():
        at = changed[1].nonzero()[0].item()
        value = masked[1, at, 0] if axis == 1 else masked[1, 0, at]
        torch.testing.assert_close(value, x[1, :60].mean())


def test_label_smoothing_moves_targets_towards_one_half():
    targets = augment(clips(), AugmentConfig(label_smoothing=0.1), GRID, rng()).targets
    assert targets.min().item() == pytest.approx(0.05)
    assert targets.max().item() == pytest.approx(0.95)


@pytest.mark.parametrize(
    "wrong", [{"mixup": -1.0}, {"mixing": 1.5}, {"gain_db": math.inf}, {"label_smoothing": 1.0}]
)
def test_invalid_settings_are_refused(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        AugmentConfig(**wrong)


def test_frame_level_targets_are_shifted_with_the_sound():
    x = torch.randn(4, 50, 3)
    batch = Batch(x, None, (x[:, :, :2] > 0).float())
    moved = augment(batch, AugmentConfig(time_shift=1.0), GRID, rng())
    assert not torch.equal(moved.log_mel, x)
    assert torch.equal(moved.targets, (moved.log_mel[:, :, :2] > 0).float())


def test_frame_level_targets_are_mixed_as_the_sound_is():
    x = torch.rand(4, 50, 3)
    mixed = augment(Batch(x, None, x[:, :, :2]), AugmentConfig(mixup=0.5), GRID, rng())
    torch.testing.assert_close(mixed.targets, mixed.log_mel[:, :, :2])


def test_waveforms_have_no_augmentation_of_mel_bands_and_the_same_order():
    names = [name for name in AUGMENTATIONS if name in OF_WAVEFORMS]
    assert list(OF_WAVEFORMS) == names
    assert set(AUGMENTATIONS) - set(OF_WAVEFORMS) == {"eq_db", "n_mel_masks"}
    batch = constant([1.0, -2.0])
    config = AugmentConfig(gain_db=6.0)
    got = augment(batch, config, GRID, rng(1), "waveform").log_mel
    assert got.equal(random_waveform_gain(batch, config, GRID, rng(1)).log_mel)
    assert not got.equal(augment(batch, config, GRID, rng(1)).log_mel)


def test_a_gain_of_a_waveform_is_a_factor_of_the_decibels_of_its_log_mel():
    """The same random numbers change the power of a waveform and its log-mel alike."""
    config = AugmentConfig(gain_db=6.0)
    power = random_waveform_gain(constant([1.0, 1.0, 1.0]), config, GRID, rng(2)).log_mel.square()
    log_power = random_gain(constant([0.0, 0.0, 0.0]), config, GRID, rng(2)).log_mel
    torch.testing.assert_close(power.log(), log_power)


def test_mixed_waveforms_are_added_and_the_rest_of_the_longer_one_stays():
    mask = torch.arange(4) < torch.tensor([[4], [2]])
    waveforms = torch.tensor([1.0, 10.0])[:, None, None] * mask[:, :, None]
    batch = Batch(waveforms.expand(2, 4, 3), mask, torch.eye(2))
    seed = next(s for s in range(9) if torch.randperm(2, generator=rng(s)).tolist() == [1, 0])
    mixed = mix_waveforms(batch, AugmentConfig(mixing=1.0), GRID, rng(seed))
    assert mixed.mask.all()
    assert mixed.targets.eq(1).all()
    first, second = mixed.log_mel[:, :, 0]
    factors = (first[0] - 1) / 10, second[0] - 10  # of the clip that is added
    assert all(10 ** (-6 / 20) <= factor <= 10 ** (6 / 20) for factor in factors)
    torch.testing.assert_close(first, torch.tensor([1 + 10 * factors[0]] * 2 + [1.0, 1.0]))
    torch.testing.assert_close(second, torch.tensor([10 + factors[1]] * 2 + [factors[1]] * 2))
