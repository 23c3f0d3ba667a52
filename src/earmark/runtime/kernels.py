"""Convolution, batch norm, dropout and max pooling for training on a CPU, next to torch's own.

Conventions: maps are (batch, maps, frames, mels). The mask (batch, frames) is True for a valid
frame. On a CPU the optimised version runs, unless EARMARK_KERNELS=torch; on other devices and in
compiled or exported graphs the plain one does. Values and gradients agree to rounding; only dropout
uses other random numbers. `make bench ONLY=kernels` measures what each one saves.
"""

from functools import reduce
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F  # noqa: N812 - torch's own usage

from earmark.runtime.switch import custom_kernels

Size = tuple[int, int]  # (frames, mels)
CACHED_VALUES = 1 << 14  # that stay in the cache while they are summed
BLOCK = 16  # maps that oneDNN's convolutions take at a time, in a layout of its own


def ours(maps: Tensor) -> bool:
    """Return whether the optimised kernels apply to a tensor.

    >>> ours(torch.zeros(1)), ours(torch.zeros(1, device="meta"))
    (True, False)
    """
    in_graph = torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None
    return maps.device.type == "cpu" and not in_graph and custom_kernels()


def convolve(maps: Tensor, layer: nn.Conv2d, crop: Size = (0, 0)) -> Tensor:
    """Return the convolution of maps, without its first `crop` frames and mels.

    Where the number of maps is no multiple of a block, the optimised version is that of the layout
    with channels last. All other layers are faster on maps one after the other, so they are copied
    to that layout and back.

    >>> convolve(torch.zeros(2, 6, 50, 10), nn.Conv2d(6, 8, 2, padding=1), crop=(1, 1)).shape
    torch.Size([2, 8, 50, 10])
    """
    assert (layer.groups, layer.dilation, layer.padding_mode) == (1, (1, 1), "zeros")
    n_maps = maps.shape[1]
    if n_maps == 1 or n_maps % BLOCK == 0 or not (layer.training and ours(maps)):
        convolved: Tensor = layer(maps)
        return convolved[:, :, crop[0] :, crop[1] :]
    maps, weight = (_ChannelsLast.apply(x) for x in (maps, layer.weight))  # type: ignore[no-untyped-call]
    padding = cast("Size", layer.padding)
    convolved = F.conv2d(maps, weight, layer.bias, cast("Size", layer.stride), padding)
    return convolved[:, :, crop[0] :, crop[1] :].contiguous()


class _ChannelsLast(torch.autograd.Function):
    """A copy with channels last; the gradient is copied back, as other layers want it."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor) -> Tensor:
        return maps.contiguous(memory_format=torch.channels_last)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0].contiguous()


def dropout(maps: Tensor, p: float) -> Tensor:
    """Set a share `p` of the values to 0 and scale the others by 1 / (1 - p).

    The optimised version takes 16 random bits per value, so that `p` is rounded to a 65,536th.

    >>> sorted(round(float(value), 3) for value in dropout(torch.ones(10_000), 0.25).unique())
    [0.0, 1.333]
    """
    if not ours(maps):
        return F.dropout(maps, p)
    n_dropped = min(round(p * 2**16), 2**16 - 1)
    if n_dropped == 0:
        return maps
    words = torch.empty(-(-maps.numel() // 4), dtype=torch.int64, device=maps.device)
    words.random_(-(2**63), None)  # all 64 bits
    bits = words.view(torch.int16)[: maps.numel()].view(maps.shape)
    factors = torch.empty(maps.shape, dtype=maps.dtype, device=maps.device)
    torch.ge(bits, n_dropped - 2**15, out=factors)
    return maps * factors.mul_(2**16 / (2**16 - n_dropped))


def max_pool(maps: Tensor, size: Size) -> Tensor:
    """Return the maximum of each group of `size` neighbours; an incomplete last group counts.

    >>> max_pool(torch.tensor([1.0, 3.0, 2.0]).view(1, 1, 3, 1), (2, 1)).flatten()
    tensor([3., 2.])
    """
    if size == (1, 1):
        return maps
    if not ours(maps):
        return F.max_pool2d(maps, size, ceil_mode=True)
    return _max_along(_max_along(maps, 3, size[1]), 2, size[0])


def _max_along(maps: Tensor, axis: int, size: int) -> Tensor:
    if size == 1:
        return maps
    missing = -maps.shape[axis] % size
    if missing:
        maps = F.pad(maps, [0, 0] * (3 - axis) + [0, missing], value=-torch.inf)
    pooled: Tensor = _Max.apply(maps, axis, size)  # type: ignore[no-untyped-call]
    return pooled


class _Max(torch.autograd.Function):
    """The maximum of each `size` neighbours of an axis; the first maximum gets the gradient.

    Torch's own pooling visits every output for itself and stores an index per output. Here whole
    maps are compared: the first neighbour of every group, the second of every group, and so on.
    """

    @staticmethod
    def forward(ctx: Any, maps: Tensor, axis: int, size: int) -> Tensor:
        most = reduce(torch.maximum, _neighbours(maps, axis, size))
        ctx.axis, ctx.size = axis, size
        ctx.save_for_backward(maps, most)
        return most

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        maps, most = ctx.saved_tensors
        of_maps = torch.empty_like(maps)
        *parts, _ = _neighbours(maps, ctx.axis, ctx.size)
        *of_parts, of_last = _neighbours(of_maps, ctx.axis, ctx.size)
        (left,) = gradients
        for part, of_part in zip(parts, of_parts, strict=True):
            torch.mul(left, part == most, out=of_part)
            left = left - of_part  # nothing is left for those that follow the first maximum
        of_last.copy_(left)
        return of_maps, None, None


def _neighbours(maps: Tensor, axis: int, size: int) -> tuple[Tensor, ...]:
    """Return the first of every group, the second of every group, and so on."""
    groups = maps.shape[axis] // size
    shape = (*maps.shape[:axis], groups, size, *maps.shape[axis + 1 :])
    return maps.view(shape).unbind(axis + 1)


class Statistics(NamedTuple):
    """Number of valid values, mean and variance per map, over the clips of all processes."""

    n_values: Tensor
    mean: Tensor
    variance: Tensor


def torch_batch_norm_suffices(maps: Tensor, mask: Tensor | None) -> bool:
    """Return whether torch's own batch norm does the work of `batch_norm`, and as fast.

    It knows neither padding nor, without CUDA, other processes, and refuses a single value per map.

    >>> torch_batch_norm_suffices(torch.zeros(1, 1, 2, 2, device="meta"), None)
    True
    """
    single = maps.numel() == maps.shape[1]
    return not (single or mask is not None or ours(maps) or _several_processes())


def batch_norm(
    maps: Tensor, mask: Tensor | None, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Statistics]:
    """Normalise maps by the statistics of their valid frames, over all processes.

    Half precision is summed in single precision. Squares are summed around the mean, so that maps
    far from 0 lose no digits. At padding, maps must be finite.

    Shape: `maps` (batch, maps, frames, mels), `mask` (batch, frames) or None, `weight` and `bias`
    (maps,) -> maps, and statistics without a gradient.

    >>> maps, mask = torch.tensor([1.0, 3.0, 99.0]), torch.tensor([[True, True, False]])
    >>> weight, bias = torch.ones(1), torch.zeros(1)
    >>> normalised, statistics = batch_norm(maps.view(1, 1, 3, 1), mask, weight, bias, 1e-5)
    >>> normalised.flatten()[:2].round().tolist(), statistics.mean
    ([-1.0, 1.0], tensor([2.]))
    """
    if not ours(maps):
        return _torch_batch_norm(maps, mask, weight, bias, eps)
    with torch.no_grad():
        statistics = _statistics(maps, mask)
    normalised: Tensor = _Normalise.apply(  # type: ignore[no-untyped-call]
        maps, weight, bias, mask, statistics, eps
    )
    return normalised, statistics


def _torch_batch_norm(
    maps: Tensor, mask: Tensor | None, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Statistics]:
    """Compute the same by the definition; gradients are left to autograd."""
    wide = maps.to(torch.promote_types(maps.dtype, torch.float32))
    n_frames = maps.shape[0] * maps.shape[2] if mask is None else mask.sum()
    own_count = torch.as_tensor(n_frames * maps.shape[3], dtype=wide.dtype, device=maps.device)
    count = _sum_of_processes(own_count.view(1)).clamp(min=1)

    def mean_of(values: Tensor) -> Tensor:
        valid = values if mask is None else values * mask[:, None, :, None]
        return _sum_of_processes(valid.sum((0, 2, 3))) / count

    mean = mean_of(wide)
    centred = wide - mean[:, None, None]
    variance = mean_of(centred.square())
    scale = weight * (variance + eps).rsqrt()
    normalised = centred * scale[:, None, None] + bias[:, None, None]
    return normalised.to(maps.dtype), Statistics(count, mean.detach(), variance.detach())


def _sum_of_processes(values: Tensor) -> Tensor:
    if not _several_processes():
        return values
    total: Tensor = _SumOfProcesses.apply(values)  # type: ignore[no-untyped-call]
    return total


class _SumOfProcesses(torch.autograd.Function):
    """The sum over all processes, and that of its gradients.

    torch.distributed.nn.functional.all_reduce does the same, but binds the process group of its
    first import for good: threads of a group that nothing ends abort the process when it exits.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _SumOfProcesses.apply(*gradients)  # type: ignore[no-untyped-call]


def _statistics(maps: Tensor, mask: Tensor | None) -> Statistics:
    """Measure (batch, maps, frames, mels)."""
    wide = torch.promote_types(maps.dtype, torch.float32)
    if mask is None:  # then frames and mels need not be distinguished
        maps = maps.flatten(2).unsqueeze(2)
    n_frames = maps.shape[0] * maps.shape[2] if mask is None else mask.sum()
    count = torch.as_tensor(n_frames * maps.shape[3], dtype=wide, device=maps.device).view(1)
    mean = _sum_frames(maps.sum(3, dtype=wide), mask) / count.clamp(min=1)
    squares = mean.new_zeros(mean.shape)
    # Few at a time, they stay in the cache: one by one, unless they are short windows of clips.
    size = max(1, CACHED_VALUES // max(1, maps[:1].numel()))
    for first in range(0, len(maps), size):
        some = maps[first : first + size]
        norms = torch.linalg.vector_norm(some - mean[:, None, None], dim=3)  # (some, maps, frames)
        squares += _sum_frames(norms.square(), None if mask is None else mask[first : first + size])
    return _of_all_processes(count, mean, squares)


def _sum_frames(frames: Tensor, mask: Tensor | None) -> Tensor:
    """(batch, maps, frames) -> (maps)."""
    return (frames if mask is None else frames * mask[:, None]).sum((0, 2))


def _of_all_processes(count: Tensor, mean: Tensor, squares: Tensor) -> Statistics:
    """Combine the counts, means and sums of squares around them of each process."""
    own = torch.cat([count, mean, squares])
    parts = [own]
    if _several_processes():
        parts = [torch.empty_like(own) for _ in range(distributed.get_world_size())]
        distributed.all_gather(parts, own)
    n_maps = len(mean)
    counts, means, sums = torch.split(torch.stack(parts), [1, n_maps, n_maps], dim=1)
    total = counts.sum(0).clamp(min=1)
    mean = (counts * means).sum(0) / total
    variance = (sums + counts * (means - mean).square()).sum(0) / total
    return Statistics(total, mean, variance)


def _several_processes() -> bool:
    if not (distributed.is_available() and distributed.is_initialized()):
        return False
    return distributed.get_world_size() > 1


class _Normalise(torch.autograd.Function):
    """Normalise maps by their statistics; the gradient includes that of the statistics."""

    @staticmethod
    def forward(
        ctx: Any,
        maps: Tensor,
        weight: Tensor,
        bias: Tensor,
        mask: Tensor | None,
        statistics: Statistics,
        eps: float,
    ) -> Tensor:
        ctx.save_for_backward(maps, weight, mask, *statistics)
        ctx.eps = eps
        return _affine(maps, weight, bias, statistics, eps)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (gradient,) = gradients
        maps, weight, mask, *rest = ctx.saved_tensors
        statistics, eps = Statistics(*rest), ctx.eps
        # Of torch's own backward pass only the two sums, over all values: what padding was
        # normalised to depends on the statistics as well.
        _, of_weight, of_bias = torch.ops.aten.native_batch_norm_backward(
            gradient, maps, weight, statistics.mean, statistics.variance, None, None,
            False, eps, [False, True, True],
        )  # fmt: skip
        if not ctx.needs_input_grad[0]:
            return None, of_weight, of_bias, None, None, None
        sums = torch.stack([of_weight, of_bias])
        if _several_processes():
            distributed.all_reduce(sums)
        scale = weight * (statistics.variance + eps).rsqrt()
        through_variance, through_mean = -scale * sums / statistics.n_values
        of_maps = _affine(maps, through_variance, through_mean, statistics, eps)
        if mask is not None:
            of_maps = of_maps * mask[:, None, :, None].to(of_maps.dtype)
        of_maps.addcmul_(gradient, scale[:, None, None].to(gradient.dtype))
        return of_maps, of_weight, of_bias, None, None, None


def _affine(maps: Tensor, weight: Tensor, bias: Tensor, by: Statistics, eps: float) -> Tensor:
    """(maps - mean) / deviation * weight + bias, in one pass."""
    return torch.batch_norm(maps, weight, bias, by.mean, by.variance, False, 0.0, eps, False)
