"""Layers: padding has no effect, and each equals its textbook definition."""

import multiprocessing
import weakref

import pytest
import torch
from maps import random, with_gradient
from torch import distributed, nn
from torch.autograd import gradcheck
from torch.nn import functional as F  # noqa: N812 - torch's own usage

from earmark.nn.layers import (
    NORMS,
    AveragePool,
    Convolution,
    Dropout,
    MaskedBatchNorm,
    MaxPool,
    fill_padding,
    initialise,
    zero_padding,
)
from earmark.nn.recurrent import BiGRU, GatedBiGRU
from earmark.runtime.switch import KERNELS, VARIABLE

MASK = torch.arange(10) < torch.tensor([[10], [4], [0]])


@pytest.fixture(params=KERNELS, autouse=True)
def switch(request, monkeypatch):
    """Every test runs with Earmark's kernels and with torch's."""
    monkeypatch.setenv(VARIABLE, request.param)


SIZES = [(1, 1), (2, 2), (1, 2), (2, 1), (1, 5), (3, 4)]


@pytest.mark.parametrize("size", SIZES)
def test_padding_wins_no_maximum_and_gets_no_gradient(size):
    mask = torch.arange(9) < torch.tensor([[9], [4], [5], [0]])
    maps, weights = random(4, 3, 9, 10), random(4, 3, 9, 10, seed=1)

    def alone(maps):
        """Each clip separately, without its padding."""
        pooled = MaxPool(size)(torch.zeros_like(maps))[0].clone()
        for number, n_frames in enumerate(mask.sum(1).tolist()):
            if n_frames:
                clip = maps[number : number + 1, :, :n_frames]
                valid = F.max_pool2d(clip, size, ceil_mode=True)
                pooled[number, :, : valid.shape[2]] = valid[0]
        return pooled

    zeroed = maps * mask[:, None, :, None]
    got = with_gradient(lambda x: MaxPool(size)(x, mask)[0], zeroed, weights)
    want = with_gradient(alone, zeroed, weights)
    assert got[0].equal(want[0])
    valid = mask[:, None, :, None].expand_as(maps)
    assert got[1][valid].equal(want[1][valid])
    if size[0] > 1:
        assert got[1][~valid].eq(0).all()
    with torch.no_grad():
        plain, short = MaxPool(size)(zeroed, mask)
    assert plain.equal(got[0])
    assert short.sum(1).tolist() == [-(-n // size[0]) for n in (9, 4, 5, 0)]


@pytest.mark.parametrize("size", SIZES)
def test_the_gradient_of_a_masked_maximum_is_that_of_finite_differences(size):
    maps = torch.randperm(2 * 2 * 5 * 7).view(2, 2, 5, 7).double().requires_grad_()
    mask = torch.arange(5) < torch.tensor([[5], [3]])
    assert gradcheck(lambda x: MaxPool(size)(x, mask)[0], maps)


def test_an_incomplete_group_is_averaged_and_maximised_over_its_valid_frames():
    clip = torch.tensor([-3.0, -1.0, -2.0, 0.0]).view(1, 1, 4, 1)
    mask = torch.tensor([[True, True, True, False]])
    averaged, short = AveragePool((2, 1))(clip, mask)
    assert averaged.flatten().tolist() == [-2, -2]
    assert short.tolist() == [[True, True]]
    pooled, _ = MaxPool((2, 1))(clip, mask)
    assert pooled.flatten().tolist() == [-1, -2]


def norms(n_maps, dtype=torch.float32):
    """Ours and torch's, with the same weights."""
    ours, theirs = MaskedBatchNorm(n_maps).to(dtype), nn.BatchNorm2d(n_maps).to(dtype)
    with torch.no_grad():
        for norm in (ours, theirs):
            norm.weight.copy_(random(n_maps, seed=1))
            norm.bias.copy_(random(n_maps, seed=2))
    return ours, theirs


@pytest.mark.parametrize("mask", [None, torch.ones(4, 10, dtype=torch.bool)])
def test_batch_norm_without_padding_is_torchs_own_with_its_running_statistics(mask):
    ours, theirs = norms(3, torch.float64)
    maps = random(4, 3, 10, 8, dtype=torch.float64)
    for _ in range(3):
        torch.testing.assert_close(ours(maps, mask), theirs(maps))
    torch.testing.assert_close(ours.eval()(maps, mask), theirs.eval()(maps))
    for (name, a), b in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, msg=name)


def test_batch_norm_with_padding_is_torchs_own_on_the_valid_frames():
    ours, theirs = norms(3, torch.float64)
    maps = random(3, 3, 10, 8, dtype=torch.float64)
    valid = torch.cat([maps[0], maps[1, :, :4]], dim=1).unsqueeze(0)
    got, want = ours(maps, MASK), theirs(valid)
    torch.testing.assert_close(got[1, :, :4], want[0, :, 10:])
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)


def test_batch_norm_may_be_used_twice_before_one_backward_pass():
    ours, theirs = norms(3)
    maps, weights = random(4, 3, 10, 8), random(4, 3, 10, 8, seed=3)
    got = with_gradient(lambda x: ours(x) + ours(x * x), maps, weights)
    want = with_gradient(lambda x: theirs(x) + theirs(x * x), maps, weights)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)


def test_without_weights_batch_norm_takes_maps_of_half_precision():
    torch.manual_seed(0)
    maps, mask = torch.randn(3, 2, 4, 1), torch.tensor([[True] * 4] * 2 + [[True, False] * 2])
    norm = MaskedBatchNorm(2, affine=False)
    want, got = norm(maps, mask), norm(maps.bfloat16(), mask)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), want, atol=0.03, rtol=0)


@pytest.mark.parametrize("n_rows", [1, 3])
def test_few_values_are_normalised_by_the_running_statistics_which_they_move(n_rows):
    norm, twin = norms(3, torch.float64)
    rows = 5 + random(n_rows, 3, 1, 1, dtype=torch.float64)
    got = with_gradient(norm, rows, torch.ones_like(rows))
    torch.testing.assert_close(norm.running_mean, 0.1 * rows.mean((0, 2, 3)))
    variance = 1.0 if n_rows == 1 else 0.9 + 0.1 * rows.var((0, 2, 3))
    torch.testing.assert_close(norm.running_var, variance + torch.zeros(3).double())
    twin.load_state_dict(norm.state_dict())
    want = with_gradient(twin.eval(), rows, torch.ones_like(rows))
    torch.testing.assert_close(got, want)


def test_a_batch_without_a_valid_frame_gives_finite_statistics_and_gradients():
    norm, mask = MaskedBatchNorm(2), torch.zeros(1, 4, dtype=torch.bool)
    maps = random(1, 2, 4, 3).requires_grad_()
    zero_padding(norm(maps, mask), mask).sum().backward()
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


def test_dropout_does_nothing_in_evaluation_or_at_rate_0():
    maps = random(4, 5)
    assert Dropout(0.5).eval().drop(maps) is maps
    assert Dropout(0.0).drop(maps) is maps
    assert Dropout(0.5)(maps, MASK)[1] is MASK


def normalise_part(rank, file, splits, answers):
    """Normalise the clips of one process of two; put outputs and gradients into `answers`.

    If anything still refers to the process group when it is destroyed, its threads are not joined,
    and the process may abort when it exits.
    """
    distributed.init_process_group("gloo", init_method=file, rank=rank, world_size=2)
    for split in splits:
        clips = slice(0, split[0]) if rank == 0 else slice(split[0], sum(split))
        norm, weights = MaskedBatchNorm(2), random(7, 2, 1, 1, seed=1)[clips]
        got = with_gradient(norm, random(7, 2, 1, 1)[clips], weights)
        answers.put((rank, split, [x.tolist() for x in got], norm.running_mean.tolist()))
    distributed.barrier()
    group = weakref.ref(distributed.group.WORLD)
    distributed.destroy_process_group()
    assert group() is None


def test_processes_with_few_clips_each_normalise_them_as_one_process_does(tmp_path):
    splits = [(4, 3), (3, 3), (2, 1), (1, 4)]  # of which one has 3 clips in all: few
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    arguments = (f"file://{tmp_path / 'rendezvous'}", splits, answers)
    workers = [context.Process(target=normalise_part, args=(rank, *arguments)) for rank in (0, 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    parts = {}
    while not answers.empty():
        rank, split, got, mean = answers.get()
        parts[rank, split] = ([torch.tensor(x) for x in got], mean)
    for split in splits:
        norm, n_clips = MaskedBatchNorm(2), sum(split)
        weights = random(7, 2, 1, 1, seed=1)[:n_clips]
        want = with_gradient(norm, random(7, 2, 1, 1)[:n_clips], weights)
        (first, mean), (second, other) = parts[0, split], parts[1, split]
        for own, rest, whole in zip(first, second, want, strict=True):
            torch.testing.assert_close(torch.cat([own, rest]), whole)
        assert mean == other == pytest.approx(norm.running_mean.tolist())


@pytest.mark.parametrize("gated", [True, False])
def test_a_convolution_is_that_of_a_textbook(gated):
    ours = Convolution(2, 3, kernel=3, gated=gated).double()
    norm = nn.BatchNorm2d(6 if gated else 3).double()

    def plain(maps):
        maps = norm(F.conv2d(maps, ours.convolution.weight, padding=1))
        if not gated:
            return maps.clamp(min=0)
        return maps[:, :3] * maps[:, 3:].sigmoid()

    maps, weights = random(2, 2, 7, 6).double(), random(2, 3, 7, 6, seed=1).double()
    got = with_gradient(lambda x: ours(x)[0], maps, weights)
    of_weight = ours.convolution.weight.grad.clone()
    ours.convolution.weight.grad = None
    want = with_gradient(plain, maps, weights)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(of_weight, ours.convolution.weight.grad)


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("mask", [None, MASK])
def test_a_fused_convolution_gives_the_same_with_and_without_a_mask(gated, mask):
    layer = Convolution(2, 3, kernel=3, gated=gated).double()
    maps = zero_padding(random(3, 2, 10, 6).double(), mask)
    layer(maps, mask)
    layer.eval()
    torch.testing.assert_close(layer.fused()(maps, mask), layer(maps, mask))
    assert (
        layer.fused().describe((2, 10, 6)).shape == layer.describe((2, 10, 6)).shape == (3, 10, 6)
    )


@pytest.mark.parametrize("mask", [None, MASK])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("mel_stride", [1, 2])
def test_a_convolution_has_its_norm_where_it_is_wanted_also_fused(norm, gated, mel_stride, mask):
    layer = Convolution(2, 3, 3, gated=gated, norm=norm, bias=True, mel_stride=mel_stride).double()
    maps = zero_padding(random(3, 2, 10, 6).double(), mask)
    layer(maps, mask)
    if layer.norm is not None:
        torch.nn.init.normal_(layer.norm.bias)
    layer.eval()
    own = nn.Identity() if layer.norm is None else layer.norm

    def unit(maps):
        return maps[:, :3] * maps[:, 3:].sigmoid() if gated else maps.clamp(min=0)

    edges = (1, 1) if mel_stride == 1 else (0, 1)  # of 6 mels, every second from the first
    padded = F.pad(maps, (*edges, 1, 1))
    want = F.conv2d(
        padded, layer.convolution.weight, layer.convolution.bias, stride=(1, mel_stride)
    )
    want = own(unit(want)) if norm == "after" else unit(own(want))
    want = zero_padding(want, mask)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    torch.testing.assert_close(layer(maps, mask)[0], want)
    torch.testing.assert_close(layer.fused()(maps, mask)[0], want)
    assert all(value.equal(before[name]) for name, value in layer.state_dict().items())
    described = layer.describe((2, 10, 6))
    assert described.shape == want.shape[1:]
    assert described.operations == layer.convolution.weight.numel() * 10 * (6 // mel_stride)
    assert described == layer.fused().describe((2, 10, 6))._replace(
        n_parameters=described.n_parameters
    )


@pytest.mark.parametrize("n_mels", [5, 8])
def test_a_stride_takes_the_mels_that_tensorflow_takes(n_mels):
    """Of 8 mels the groups start at 0, 2, 4, 6; of 5 at -1, 1, 3."""
    layer = Convolution(1, 1, 3, gated=False, norm="none", mel_stride=2)
    torch.nn.init.zeros_(layer.convolution.weight)
    layer.convolution.weight.data[0, 0, 1, 0] = 1  # the first mel of a group
    mels = torch.arange(1.0, n_mels + 1).expand(1, 1, 1, n_mels)
    first = {8: [1, 3, 5, 7], 5: [0, 2, 4]}[n_mels]
    assert layer(mels)[0].flatten().tolist() == first


def test_first_weights_are_those_of_xavier_and_orthogonal_in_a_gru():
    torch.manual_seed(0)
    network = nn.ModuleList([Convolution(4, 8, 5, False, "none", bias=True), BiGRU(6, 4)])
    initialise(network)
    weight, limit = network[0].convolution.weight, (6 / (25 * (4 + 8))) ** 0.5
    assert limit * 0.95 < weight.abs().max() <= limit
    assert not network[0].convolution.bias.any()
    for name, parameter in network[1].named_parameters():
        if "bias" in name:
            assert not parameter.any()
        else:
            columns = parameter.shape[1]
            torch.testing.assert_close(parameter.T @ parameter, torch.eye(columns))


def test_a_gru_starts_backwards_at_the_last_valid_frame():
    gru, features = BiGRU(4, 3).double(), random(3, 10, 4).double()
    hidden = gru(features, MASK)
    assert hidden.shape == (3, 10, 6)
    torch.testing.assert_close(hidden[:1], gru(features[:1]))
    torch.testing.assert_close(hidden[1:2, :4], gru(features[1:2, :4]))
    assert hidden[1, 4:].eq(0).all()


def test_a_gated_gru_is_the_product_of_a_value_and_a_gate_between_0_and_1():
    gru, features = GatedBiGRU(4, 3).double(), random(3, 10, 4).double()
    hidden = gru(features, MASK)
    gate = (1 + gru.gate(features, MASK)) / 2
    assert gate.min() > 0
    assert gate.max() < 1
    torch.testing.assert_close(hidden, gru.value(features, MASK) * gate)
    torch.testing.assert_close(hidden[1:2, :4], gru(features[1:2, :4]))
    assert hidden[1, 4:].eq(0).all()
    one, both = BiGRU(4, 3).describe((10, 4)), gru.describe((10, 4))
    assert (both.shape, both.operations) == (one.shape, 2 * one.operations)
    assert both.n_parameters == sum(p.numel() for p in gru.parameters())
