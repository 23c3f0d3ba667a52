"""Batch norm with masks: values and gradients are torch's own on what is real."""

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

from earmark.nn.norm import MaskedBatchNorm, Statistics, fill_padding, zero_padding

MASK = torch.arange(10) < torch.tensor([[10], [4], [0]])


def random(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype)


def norms(n_maps, dtype=torch.float32):
    """Ours and torch's, with the same weights."""
    ours, theirs = MaskedBatchNorm(n_maps).to(dtype), nn.BatchNorm2d(n_maps).to(dtype)
    with torch.no_grad():
        for norm in (ours, theirs):
            norm.weight.copy_(random(n_maps, seed=1))
            norm.bias.copy_(random(n_maps, seed=2))
    return ours, theirs


def gradients(norm, call, maps, weights):
    maps = maps.clone().requires_grad_()
    (call(maps) * weights).sum().backward()
    return maps.grad, norm.weight.grad, norm.bias.grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(4, 3, 10, 8), (1, 5, 1, 3), (2, 1, 7, 1)])
def test_without_padding_it_is_torchs_own(dtype, shape):
    ours, theirs = norms(shape[1], dtype)
    maps, weights = 2 + 3 * random(*shape, dtype=dtype), random(*shape, dtype=dtype, seed=3)
    for _ in range(2):
        torch.testing.assert_close(ours(maps), theirs(maps))
    got = gradients(ours, ours, maps, weights)
    want = gradients(theirs, theirs, maps, weights)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)
    for (name, a), b in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, msg=name)


def test_with_padding_it_is_torchs_own_on_the_real_frames():
    ours, theirs = norms(3, torch.float64)
    maps, weights = random(3, 3, 10, 8).double(), random(3, 3, 10, 8, seed=3).double()

    def real(maps):
        return torch.cat([maps[0], maps[1, :, :4]], dim=1).unsqueeze(0)

    got = gradients(ours, lambda x: real(ours(x, MASK)), maps, real(weights))
    want = gradients(theirs, lambda x: theirs(real(x)), maps, real(weights))
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)


@pytest.mark.parametrize("mask", [None, MASK])
def test_its_gradient_is_its_slope_at_padding_too(mask):
    norm, _ = norms(2, torch.float64)

    def call(maps, weight, bias):
        return torch.func.functional_call(norm, {"weight": weight, "bias": bias}, (maps, mask))

    maps = random(3, 2, 10, 2).double().requires_grad_()
    parameters = [x.detach().clone().requires_grad_() for x in (norm.weight, norm.bias)]
    assert gradcheck(call, (maps, *parameters))


def test_it_may_be_used_twice_before_one_step_back():
    ours, theirs = norms(3)
    maps, weights = random(4, 3, 10, 8), random(4, 3, 10, 8, seed=3)
    got = gradients(ours, lambda x: ours(x) + ours(x * x), maps, weights)
    want = gradients(theirs, lambda x: theirs(x) + theirs(x * x), maps, weights)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("mask", [None, torch.ones(4, 50, dtype=torch.bool)])
def test_maps_far_from_zero_lose_no_variance(mask):
    maps = 1000 + random(4, 3, 50, 80)
    found = Statistics.of(maps, mask)
    exact = maps.double()
    torch.testing.assert_close(found.mean.double(), exact.mean((0, 2, 3)), atol=0, rtol=1e-6)
    variance = exact.var((0, 2, 3), unbiased=False)
    torch.testing.assert_close(found.variance.double(), variance, atol=0, rtol=1e-4)


def test_clips_of_different_loudness_count_together():
    maps = random(3, 2, 10, 8) + torch.tensor([0.0, 50.0, -200.0]).view(3, 1, 1, 1)
    found = Statistics.of(maps, None)
    variance = maps.double().var((0, 2, 3), unbiased=False)
    torch.testing.assert_close(found.variance.double(), variance, atol=0, rtol=1e-5)


def test_a_batch_without_a_real_frame_moves_nothing_out_of_bounds():
    norm = MaskedBatchNorm(2)
    maps = random(1, 2, 4, 3).requires_grad_()
    out = norm(maps, torch.zeros(1, 4, dtype=torch.bool))
    zero_padding(out, torch.zeros(1, 4, dtype=torch.bool)).sum().backward()
    assert maps.grad.isfinite().all()
    assert all(value.isfinite().all() for value in norm.state_dict().values())


def test_several_updates_move_the_running_statistics_as_far_as_one():
    whole, parts = MaskedBatchNorm(2), MaskedBatchNorm(2)
    maps = 5 + random(4, 2, 10, 8)
    parts.share_update(4)
    whole(maps)
    for _ in range(4):
        parts(maps)
    torch.testing.assert_close(parts.running_mean, whole.running_mean)
    torch.testing.assert_close(parts.running_var, whole.running_var)


def test_padding_is_filled_whatever_it_held_and_zeroed_where_it_is_finite():
    maps = random(3, 2, 10, 4)
    assert zero_padding(maps, MASK).equal(fill_padding(maps, MASK))
    maps[1, :, 4:] = float("nan")
    assert fill_padding(maps, MASK, 7.0)[1, :, 4:].eq(7).all()
    assert zero_padding(maps, None) is fill_padding(maps, None) is maps
