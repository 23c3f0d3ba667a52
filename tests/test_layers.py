"""Layers that are quick on a CPU: values and gradients are those of torch's own."""

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck
from torch.nn import functional as F  # noqa: N812 - torch's own usage

from earmark.nn.layers import Convolution, Dropout, max_maps


def random(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype)


def with_gradient(call, maps, weights):
    """The outcome, and the gradient of its sum under `weights`."""
    maps = maps.clone().requires_grad_()
    out = call(maps)
    (out * weights[: out.shape[0], : out.shape[1], : out.shape[2], : out.shape[3]]).sum().backward()
    return out.detach(), maps.grad


SIZES = [(1, 1), (2, 2), (1, 2), (2, 1), (1, 5), (3, 4)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", [(2, 3, 12, 20), (2, 3, 13, 7), (1, 1, 1, 1)])
@pytest.mark.parametrize("kind", ["float32", "float64", "bfloat16", "ties"])
def test_the_maximum_is_torchs_own_in_value_and_gradient(size, shape, kind):
    maps, weights = random(*shape), random(*shape, seed=1)
    if kind == "ties":  # the first of equals gets the gradient
        maps = maps.round()
    else:
        maps, weights = (x.to(getattr(torch, kind)) for x in (maps, weights))
    got = with_gradient(lambda x: max_maps(x, None, size)[0], maps, weights)
    want = with_gradient(lambda x: F.max_pool2d(x, size, ceil_mode=True), maps, weights)
    assert got[0].equal(want[0])
    assert got[1].equal(want[1])


@pytest.mark.parametrize("size", SIZES)
def test_padding_wins_no_maximum_and_gets_no_gradient(size):
    mask = torch.arange(9) < torch.tensor([[9], [4], [5], [0]])
    maps, weights = random(4, 3, 9, 10), random(4, 3, 9, 10, seed=1)

    def alone(maps):
        """Every clip for itself, without its padding."""
        pooled, _ = max_maps(torch.zeros_like(maps), None, size)
        pooled = pooled.clone()
        for number, n_frames in enumerate(mask.sum(1).tolist()):
            if n_frames:
                clip = maps[number : number + 1, :, :n_frames]
                real = F.max_pool2d(clip, size, ceil_mode=True)
                pooled[number, :, : real.shape[2]] = real[0]
        return pooled

    zeroed = maps * mask[:, None, :, None]
    got = with_gradient(lambda x: max_maps(x, mask, size)[0], zeroed, weights)
    want = with_gradient(alone, zeroed, weights)
    assert got[0].equal(want[0])
    real = mask[:, None, :, None].expand_as(maps)
    assert got[1][real].equal(want[1][real])
    if size[0] > 1:
        assert got[1][~real].eq(0).all()
    with torch.no_grad():
        plain, short = max_maps(zeroed, mask, size)
    assert plain.equal(got[0])
    assert short.sum(1).tolist() == [-(-n // size[0]) for n in (9, 4, 5, 0)]


@pytest.mark.parametrize("size", SIZES)
def test_the_gradient_of_the_maximum_is_its_slope(size):
    maps = torch.randperm(2 * 2 * 5 * 7).view(2, 2, 5, 7).double().requires_grad_()
    mask = torch.arange(5) < torch.tensor([[5], [3]])
    assert gradcheck(lambda x: max_maps(x, None, size)[0], maps)
    assert gradcheck(lambda x: max_maps(x, mask, size)[0], maps)


def test_a_maximum_of_what_is_used_twice_has_both_gradients():
    def twice(x):
        return max_maps(x, None, (2, 2))[0] + 3 * max_maps(x * x, None, (2, 2))[0]

    def plainly(x):
        return F.max_pool2d(x, 2) + 3 * F.max_pool2d(x * x, 2)

    maps, weights = random(2, 3, 8, 6), random(2, 3, 8, 6, seed=1)
    assert with_gradient(twice, maps, weights)[1].allclose(with_gradient(plainly, maps, weights)[1])


def test_dropout_drops_its_share_and_keeps_the_mean():
    torch.manual_seed(0)
    for rate in (0.2, 0.5, 1 / 3, 0.999):
        dropped = Dropout(rate)(torch.ones(1001, 999))
        assert dropped.eq(0).float().mean().item() == pytest.approx(rate, abs=0.003)
        assert dropped.max().item() == pytest.approx(1 / (1 - rate), rel=0.01)
        assert dropped.double().mean().item() == pytest.approx(1, abs=0.2 if rate > 0.9 else 0.01)


def test_dropout_draws_every_number_for_itself():
    torch.manual_seed(0)
    kept = Dropout(0.5)(torch.ones(4, 100_000)).gt(0).double()
    assert torch.corrcoef(kept).sub(torch.eye(4)).abs().max() < 0.015
    for lag in (1, 2, 3, 4, 8):  # four numbers share a word of 64 bits
        pair = torch.stack([kept[0, :-lag], kept[0, lag:]])
        assert torch.corrcoef(pair)[0, 1].abs() < 0.015


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_gradient_of_dropout_is_zero_where_it_dropped(dtype):
    maps = torch.ones(3, 7, dtype=dtype).requires_grad_()
    torch.manual_seed(3)
    out = Dropout(0.4)(maps)
    assert out.dtype == dtype
    out.sum().backward()
    assert maps.grad.equal(out.detach())
    torch.manual_seed(3)
    assert Dropout(0.4)(maps).equal(out)


def test_dropout_does_nothing_in_evaluation_or_at_rate_0():
    maps = random(4, 5)
    assert Dropout(0.5).eval()(maps) is maps
    assert Dropout(0.0)(maps) is maps
    assert Dropout(0.5)(torch.ones(0, 3)).shape == (0, 3)


@pytest.mark.parametrize("gated", [True, False])
def test_a_convolution_is_the_textbooks(gated):
    ours = Convolution(2, 3, kernel=3, gated=gated).double()
    norm = nn.BatchNorm2d(6 if gated else 3).double()

    def plainly(maps):
        maps = norm(F.conv2d(maps, ours.convolution.weight, padding=1))
        if not gated:
            return maps.clamp(min=0)
        return maps[:, :3] * maps[:, 3:].sigmoid()

    maps, weights = random(2, 2, 7, 6).double(), random(2, 3, 7, 6, seed=1).double()
    got = with_gradient(lambda x: ours(x, None), maps, weights)
    of_weight = ours.convolution.weight.grad.clone()
    ours.convolution.weight.grad = None
    want = with_gradient(plainly, maps, weights)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(of_weight, ours.convolution.weight.grad)
