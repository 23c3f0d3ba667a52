"""Training-only changes: what they do, what they leave alone, and that a seed repeats them."""

import math

import pytest
import torch

from earmark.errors import SettingError
from earmark.frames import FrameGrid
from earmark.training.augmentation import (
    AugmentConfig,
    augment,
    change_gain,
    mask_stretches,
    mix_clips,
    mixup,
    shift_time,
)

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


def clips(batch=4, n_frames=100):
    x = torch.randn(batch, n_frames, 8, generator=rng(5))
    return x, torch.arange(n_frames) < torch.tensor([[n_frames], [60], [1], [30]])[:batch]


def test_off_by_default_and_then_nothing_changes():
    x, mask = clips()
    targets = torch.eye(4)
    got = augment(x, mask, targets, AugmentConfig(), FrameGrid(50), rng())
    assert got[0] is x
    assert got[1] is mask
    assert got[2] is targets


def test_the_same_generator_state_gives_the_same_batch():
    x, mask = clips()
    first = augment(x, mask, torch.eye(4), ALL, FrameGrid(50), rng(3))
    again = augment(x, mask, torch.eye(4), ALL, FrameGrid(50), rng(3))
    other = augment(x, mask, torch.eye(4), ALL, FrameGrid(50), rng(4))
    assert all(a.equal(b) for a, b in zip(first, again, strict=True))
    assert not first[0].equal(other[0])


def test_torchs_global_generator_is_left_alone():
    x, mask = clips()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    augment(x, mask, torch.eye(4), ALL, FrameGrid(50), rng())
    assert torch.get_rng_state().equal(before)


def test_gain_of_six_decibels_is_at_most_a_factor_of_four_in_power():
    x = torch.zeros(1000, 2, 2)
    change = change_gain(x, 6.0, rng())[:, 0, 0]
    assert change.abs().max() <= math.log(10 ** (6 / 10))
    assert change.std() > 0.5


def test_a_shift_rotates_the_real_frames_and_leaves_padding_where_it_is():
    x, mask = clips()
    shifted, _ = shift_time(x, mask, torch.zeros(len(x), 1), 20, rng())
    for clip, moved, length in zip(x, shifted, mask.sum(1).tolist(), strict=True):
        assert moved[length:].equal(clip[length:])
        rotations = [clip[:length].roll(k, 0) for k in range(-20, 21)]
        assert any(moved[:length].equal(rotation) for rotation in rotations)
    assert not shifted[0].equal(x[0])


def test_a_clip_laid_over_another_adds_its_power_and_its_targets():
    x = torch.tensor([1.0, 3.0, 5.0, 7.0])[:, None, None].expand(4, 3, 2)
    both, mask, targets = mix_clips(x, None, torch.eye(4), 1.0, rng())
    assert mask is None
    partner = torch.randperm(4, generator=rng())
    gain = (both.exp() - x.exp()) / x[partner].exp()
    assert (gain - gain[:, :1, :1]).abs().max() < 1e-3  # the same for a whole clip
    assert 0.25 < gain.min() < gain.max() < 4  # 6 dB either way
    assert targets.equal(torch.maximum(torch.eye(4), torch.eye(4)[partner]))
    frames = torch.rand(4, 3, 2, generator=rng())
    assert mix_clips(x, None, frames, 1.0, rng())[2].equal(torch.maximum(frames, frames[partner]))


def test_a_share_of_the_clips_is_laid_over_and_the_rest_stays():
    x, targets = torch.zeros(400, 2, 2), torch.zeros(400, 1)
    both, _, _ = mix_clips(x, None, targets, 0.25, rng())
    assert 60 < (both[:, 0, 0] > 0).sum() < 140
    assert mix_clips(x, None, targets, 0.0, rng())[0].equal(x)


def test_of_unequal_clips_laid_over_each_other_the_longer_goes_on_alone():
    x = torch.tensor([1.0, 2.0])[:, None, None].expand(2, 4, 1)
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    for seed in range(9):
        both, longer, targets = mix_clips(x, mask, torch.eye(2), 1.0, rng(seed))
        if targets.equal(torch.eye(2)):
            continue  # each with itself
        assert longer.all()
        assert both[0, 2:].eq(1.0).all()
        assert (both[1, 2:] - 1.0).abs().max() < 1.4  # the first, louder or softer
        assert (both[0, :2] > 1.0).all()
        return
    pytest.fail("no pair was drawn in nine draws")


def test_mixup_mixes_clips_and_targets_by_the_same_share():
    x = torch.arange(6.0).reshape(6, 1, 1).expand(6, 3, 2)
    targets = torch.arange(6.0)[:, None]
    mixed, mask, mixed_targets = mixup(x, None, targets, 1.0, rng())
    assert mask is None
    torch.testing.assert_close(mixed[:, 0, 0], mixed_targets[:, 0])
    assert not mixed_targets.equal(targets)
    partner = torch.randperm(6, generator=rng())
    far = partner != torch.arange(6)
    share = (mixed_targets[:, 0] - partner) / (targets[:, 0] - partner)
    assert (share[far] >= 0.5).all()  # the clip itself stays the louder one


def test_mixup_of_unequal_lengths_keeps_the_longer_clip_and_never_fades_it():
    x = torch.tensor([1.0, 2.0])[:, None, None].expand(2, 4, 1)
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    for seed in range(9):
        mixed, longer, _ = mixup(x, mask, torch.eye(2), 1.0, rng(seed))
        if mixed.equal(x):
            continue  # each with itself
        assert longer.all()
        assert mixed[:, 2:].eq(1.0).all()
        return
    pytest.fail("no pair was mixed in nine draws")


@pytest.mark.parametrize("axis", [1, 2])
def test_blanks_are_the_mean_of_the_real_frames_and_no_longer_than_asked(axis):
    x, mask = clips()
    real_mean = x[1, :60].mean()
    blanked = mask_stretches(x, mask, axis, 1, 5, rng(1))
    changed = (blanked != x).any(3 - axis)
    widths = [
        (mask_stretches(x, mask, axis, 1, 5, rng(s)) != x).any(3 - axis).sum(1).max()
        for s in range(9)
    ]
    assert max(widths) == 5
    assert changed.sum(1).max() <= 5
    assert changed.any()
    if changed[1].any():
        row = changed[1].nonzero()[0].item()
        value = blanked[1, row, 0] if axis == 1 else blanked[1, 0, row]
        torch.testing.assert_close(value, real_mean)


def test_smoothing_moves_targets_towards_one_half():
    x, _ = clips()
    _, _, targets = augment(
        x, None, torch.eye(4), AugmentConfig(label_smoothing=0.1), FrameGrid(50), rng()
    )
    assert targets.min().item() == pytest.approx(0.05)
    assert targets.max().item() == pytest.approx(0.95)


@pytest.mark.parametrize(
    "wrong", [{"mixup": -1.0}, {"mixing": 1.5}, {"gain_db": math.inf}, {"label_smoothing": 1.0}]
)
def test_what_cannot_work_is_refused(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        AugmentConfig(**wrong)


def test_targets_that_tell_the_time_move_with_the_sound():
    x = torch.randn(4, 50, 3)
    targets = (x[:, :, :2] > 0).float()
    config = AugmentConfig(time_shift=1.0)
    moved, _, of_frames = augment(x, None, targets, config, FrameGrid(50), rng())
    assert not torch.equal(moved, x)
    assert torch.equal(of_frames, (moved[:, :, :2] > 0).float())


def test_targets_that_tell_the_time_are_mixed_as_the_sound_is():
    x = torch.rand(4, 50, 3)
    mixed, _, targets = augment(
        x, None, x[:, :, :2], AugmentConfig(mixup=0.5), FrameGrid(50), rng()
    )
    torch.testing.assert_close(targets, mixed[:, :, :2])


def test_a_filter_changes_every_frame_of_a_clip_alike_and_clips_differently():
    x = torch.zeros(3, 20, 80)
    y, _, _ = augment(x, None, torch.zeros(3, 1), AugmentConfig(eq_db=6.0), FrameGrid(50), rng())
    assert (y == y[:, :1]).all()
    assert not torch.equal(y[0], y[1])
    assert 0 < y.abs().max() <= 6.0 * math.log(10) / 10
    assert y.diff(dim=2).abs().max() < y.abs().max()  # smooth over the mels
