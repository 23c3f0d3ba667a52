"""CPU kernels: values and gradients are those of torch's own operations, with either switch."""

import pytest
import torch
from maps import random, with_gradient
from torch import nn
from torch.autograd import gradcheck
from torch.nn import functional as F  # noqa: N812 - torch's own usage

from earmark.nn.loss import clip_loss
from earmark.nn.model import Model, ModelConfig
from earmark.runtime import kernels
from earmark.runtime.switch import KERNELS, VARIABLE

MASK = torch.arange(10) < torch.tensor([[10], [4], [0]])


@pytest.fixture(params=KERNELS, autouse=True)
def switch(request, monkeypatch):
    """Every test runs with Earmark's kernels and with torch's."""
    monkeypatch.setenv(VARIABLE, request.param)
    return request.param


def test_the_switch_decides_on_a_cpu_and_torch_is_used_elsewhere(switch):
    assert kernels.ours(torch.zeros(1)) is (switch == "earmark")
    assert not kernels.ours(torch.zeros(1, device="meta"))


@pytest.mark.parametrize("n_maps", [1, 6, 16])
@pytest.mark.parametrize(("kernel", "crop"), [((3, 3), (0, 0)), ((2, 1), (1, 0)), ((2, 2), (1, 1))])
def test_a_convolution_is_torchs_own_in_value_gradients_and_layout(n_maps, kernel, crop):
    padding = (kernel[0] // 2, kernel[1] // 2)
    layer = nn.Conv2d(n_maps, 5, kernel, padding=padding).double()
    maps, weights = random(2, n_maps, 12, 20).double(), random(2, 5, 12, 20, seed=1).double()

    def own(x):
        return kernels.convolve(x, layer, crop)

    got = [*with_gradient(own, maps, weights), layer.weight.grad.clone(), layer.bias.grad.clone()]
    layer.zero_grad()
    plain = with_gradient(lambda x: layer(x)[:, :, crop[0] :, crop[1] :], maps, weights)
    for ours, torchs in zip(got, (*plain, layer.weight.grad, layer.bias.grad), strict=True):
        torch.testing.assert_close(ours, torchs, rtol=1e-12, atol=1e-12)
    assert got[1].is_contiguous()  # other kernels are slow in any other layout
    if crop == (0, 0):
        assert own(maps).is_contiguous()


def test_only_training_copies_maps_to_another_layout(switch, monkeypatch):
    copied = []
    monkeypatch.setattr(
        kernels._ChannelsLast, "apply", lambda x: copied.append(x.shape) or x, raising=True
    )
    layer, maps = nn.Conv2d(6, 4, 3, padding=1), random(2, 6, 12, 20)
    kernels.convolve(maps, layer.eval())
    assert not copied
    kernels.convolve(maps, layer.train())
    assert bool(copied) is (switch == "earmark")


SIZES = [(1, 1), (2, 2), (1, 2), (2, 1), (1, 5), (3, 4)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", [(2, 3, 12, 20), (2, 3, 13, 7), (1, 1, 1, 1)])
@pytest.mark.parametrize("kind", ["float32", "float64", "bfloat16", "ties", "channels last"])
def test_max_pooling_is_torchs_own_in_value_and_gradient(size, shape, kind):
    maps, weights = random(*shape), random(*shape, seed=1)
    if kind == "ties":  # the first of equals gets the gradient
        maps = maps.round()
    elif kind == "channels last":
        maps = maps.contiguous(memory_format=torch.channels_last)
    else:
        maps, weights = (x.to(getattr(torch, kind)) for x in (maps, weights))
    got = with_gradient(lambda x: kernels.max_pool(x, size), maps, weights)
    want = with_gradient(lambda x: F.max_pool2d(x, size, ceil_mode=True), maps, weights)
    assert got[0].equal(want[0])
    assert got[1].equal(want[1])
    with torch.no_grad():
        assert kernels.max_pool(maps, size).equal(want[0])


@pytest.mark.parametrize("size", SIZES)
def test_the_gradient_of_max_pooling_is_that_of_finite_differences(size):
    maps = torch.randperm(2 * 2 * 5 * 7).view(2, 2, 5, 7).double().requires_grad_()
    assert gradcheck(lambda x: kernels.max_pool(x, size), maps)


def test_a_maximum_that_is_used_twice_has_both_gradients():
    def twice(x):
        return kernels.max_pool(x, (2, 2)) + 3 * kernels.max_pool(x * x, (2, 2))

    def plain(x):
        return F.max_pool2d(x, 2) + 3 * F.max_pool2d(x * x, 2)

    maps, weights = random(2, 3, 8, 6), random(2, 3, 8, 6, seed=1)
    assert with_gradient(twice, maps, weights)[1].allclose(with_gradient(plain, maps, weights)[1])


def test_dropout_drops_its_share_and_keeps_the_mean():
    torch.manual_seed(0)
    for rate in (0.2, 0.5, 1 / 3, 0.999):
        dropped = kernels.dropout(torch.ones(1001, 999), rate)
        assert dropped.eq(0).float().mean().item() == pytest.approx(rate, abs=0.003)
        assert dropped.max().item() == pytest.approx(1 / (1 - rate), rel=0.01)
        assert dropped.double().mean().item() == pytest.approx(1, abs=0.2 if rate > 0.9 else 0.01)


def test_dropout_treats_every_value_independently():
    torch.manual_seed(0)
    kept = kernels.dropout(torch.ones(4, 100_000), 0.5).gt(0).double()
    assert torch.corrcoef(kept).sub(torch.eye(4)).abs().max() < 0.015
    for lag in (1, 2, 3, 4, 8):  # four values share a word of 64 bits
        pair = torch.stack([kept[0, :-lag], kept[0, lag:]])
        assert torch.corrcoef(pair)[0, 1].abs() < 0.015


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_gradient_of_dropout_is_zero_where_it_dropped(dtype):
    maps = torch.ones(3, 7, dtype=dtype).requires_grad_()
    torch.manual_seed(3)
    out = kernels.dropout(maps, 0.4)
    assert out.dtype == dtype
    out.sum().backward()
    assert maps.grad.equal(out.detach())
    torch.manual_seed(3)
    assert kernels.dropout(maps, 0.4).equal(out)
    assert kernels.dropout(torch.ones(0, 3), 0.5).shape == (0, 3)


def normed(maps, mask, weight, bias):
    return kernels.batch_norm(maps, mask, weight, bias, eps=1e-5)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(4, 3, 10, 8), (1, 5, 1, 3), (2, 1, 7, 1)])
def test_batch_norm_without_padding_is_torchs_own(dtype, shape):
    theirs = nn.BatchNorm2d(shape[1]).to(dtype)
    with torch.no_grad():
        theirs.weight.copy_(random(shape[1], seed=1))
        theirs.bias.copy_(random(shape[1], seed=2))
    weight, bias = (x.detach().clone().requires_grad_() for x in theirs.parameters())
    maps, weights = 2 + 3 * random(*shape, dtype=dtype), random(*shape, dtype=dtype, seed=3)
    got = with_gradient(lambda x: normed(x, None, weight, bias), maps, weights)
    want = with_gradient(theirs, maps, weights)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)
    own = (weight.grad, bias.grad)
    torch.testing.assert_close(own, (theirs.weight.grad, theirs.bias.grad), atol=1e-5, rtol=1e-4)


def test_batch_norm_with_padding_is_torchs_own_on_the_valid_frames():
    theirs = nn.BatchNorm2d(3).double()
    maps, weights = random(3, 3, 10, 8).double(), random(3, 3, 10, 8, seed=3).double()

    def valid(maps):
        return torch.cat([maps[0], maps[1, :, :4]], dim=1).unsqueeze(0)

    weight, bias = torch.ones(3).double(), torch.zeros(3).double()
    got = with_gradient(lambda x: valid(normed(x, MASK, weight, bias)), maps, valid(weights))
    want = with_gradient(lambda x: theirs(valid(x)), maps, valid(weights))
    torch.testing.assert_close(got, want)
    _, statistics = kernels.batch_norm(maps, MASK, weight, bias, 1e-5)
    torch.testing.assert_close(statistics.mean, valid(maps).mean((0, 2, 3)))
    torch.testing.assert_close(statistics.variance, valid(maps).var((0, 2, 3), unbiased=False))
    assert statistics.n_values.item() == 14 * 8
    assert not any(value.requires_grad for value in statistics)


@pytest.mark.parametrize("mask", [None, MASK])
def test_the_gradient_of_batch_norm_is_that_of_finite_differences_at_padding_too(mask):
    maps = random(3, 2, 10, 2).double().requires_grad_()
    weight, bias = (random(2, seed=seed).double().requires_grad_() for seed in (1, 2))
    assert gradcheck(lambda x, w, b: normed(x, mask, w, b), (maps, weight, bias))


@pytest.mark.parametrize("mask", [None, torch.ones(4, 50, dtype=torch.bool)])
def test_maps_far_from_zero_lose_no_variance(mask):
    maps = 1000 + random(4, 3, 50, 80)
    _, found = kernels.batch_norm(maps, mask, torch.ones(3), torch.zeros(3), 1e-5)
    exact = maps.double()
    torch.testing.assert_close(found.mean.double(), exact.mean((0, 2, 3)), atol=0, rtol=1e-6)
    variance = exact.var((0, 2, 3), unbiased=False)
    torch.testing.assert_close(found.variance.double(), variance, atol=0, rtol=1e-4)


def test_clips_of_different_level_count_together():
    maps = random(3, 2, 10, 8) + torch.tensor([0.0, 50.0, -200.0]).view(3, 1, 1, 1)
    _, found = kernels.batch_norm(maps, None, torch.ones(2), torch.zeros(2), 1e-5)
    variance = maps.double().var((0, 2, 3), unbiased=False)
    torch.testing.assert_close(found.variance.double(), variance, atol=0, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_single_precision(dtype):
    # The sum of squares is far beyond the largest float16.
    maps = (8 * random(2, 3, 100, 80) + 3).to(dtype)
    got, statistics = kernels.batch_norm(maps, None, torch.ones(3), torch.zeros(3), 1e-5)
    theirs = nn.BatchNorm2d(3, momentum=1.0)
    want = theirs(maps)
    assert got.dtype == want.dtype == dtype
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(got, want, atol=4e-6, rtol=2 * eps)
    torch.testing.assert_close(statistics.mean, theirs.running_mean)


@pytest.mark.parametrize("masked", [False, True])
def test_a_training_step_is_the_same_with_both_kernels(masked, monkeypatch):
    mask = torch.arange(203) < torch.tensor([[203], [120]]) if masked else None

    def step(name):
        monkeypatch.setenv(VARIABLE, name)
        torch.manual_seed(0)
        model = Model(ModelConfig.preset("paper-fast", n_classes=5, dropout=0.0)).double().train()
        prediction = model(random(2, 203, 80).double(), mask)
        clip_loss(prediction.clip_probs, torch.eye(5)[:2].double()).backward()
        return [*model.state_dict().values(), *(p.grad for p in model.parameters())]

    torch.testing.assert_close(step("earmark"), step("torch"))


def test_a_training_step_compiles_with_torchs_operations():
    torch._dynamo.reset()

    def both(maps, weight, bias):
        maps = kernels.max_pool(kernels.dropout(maps, 0.0), (2, 2))
        return kernels.batch_norm(maps, None, weight, bias, 1e-5)[0]

    arguments = random(2, 3, 8, 6), torch.ones(3), torch.zeros(3)
    compiled = torch.compile(both, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(*arguments), both(*arguments))
