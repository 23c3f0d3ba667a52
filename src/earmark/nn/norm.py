"""Maps -> maps of mean 0 and variance 1: batch norm that knows of padding and other processes.

Conventions: maps are (batch, maps, frames, mels), mask (batch, frames) is True for a real frame.
Padding takes no part in the statistics; those of several processes are of all their clips together.

On a CPU it takes half of the time of torch's own forwards and a little more backwards, three
quarters in all.
Squares are summed around the mean, so that maps far from 0 lose nothing, and in single precision
where maps are in half.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed, nn

MOMENTUM = 0.1  # torch's own: the share of a step in the running statistics


def fill_padding(maps: Tensor, mask: Tensor | None, value: float = 0.0) -> Tensor:
    """(batch, maps, frames, mels) with `value` at padding, whatever was there.

    >>> fill_padding(torch.ones(1, 1, 2, 1), torch.tensor([[True, False]])).flatten()
    tensor([1., 0.])
    """
    return maps if mask is None else maps.masked_fill(~mask[:, None, :, None], value)


def zero_padding(maps: Tensor, mask: Tensor | None) -> Tensor:
    """(batch, maps, frames, mels) with 0 at padding, where all numbers are finite.

    A product is several times as fast as filling.

    >>> zero_padding(torch.ones(1, 1, 2, 1), torch.tensor([[True, False]])).flatten()
    tensor([1., 0.])
    """
    return maps if mask is None else maps * mask[:, None, :, None].to(maps.dtype)


class Statistics(NamedTuple):
    """Of each map over all that is real: how many numbers, their mean and variance."""

    n_values: Tensor
    mean: Tensor
    variance: Tensor

    @classmethod
    def of(cls, maps: Tensor, mask: Tensor | None) -> "Statistics":
        """Measure (batch, maps, frames, mels), together with the other processes.

        >>> Statistics.of(torch.tensor([1.0, 7.0]).view(1, 1, 2, 1), None).mean
        tensor([4.])
        """
        wide = torch.promote_types(maps.dtype, torch.float32)
        if mask is None:  # then frames need not be told apart
            maps = maps.flatten(2).unsqueeze(2)
        n_frames = maps.shape[0] * maps.shape[2] if mask is None else mask.sum()
        count = torch.as_tensor(n_frames * maps.shape[3], dtype=wide, device=maps.device).view(1)
        mean = _sum(maps.sum(3, dtype=wide), mask) / count.clamp(min=1)
        squares = mean.new_zeros(mean.shape)
        for number, clip in enumerate(maps):  # one by one, they stay in the cache
            norms = torch.linalg.vector_norm(clip - mean[:, None, None], dim=2)  # (maps, frames)
            squares += _sum(norms.square()[None], None if mask is None else mask[number, None])
        return cls(*_of_all_processes(count, mean, squares))


def _sum(frames: Tensor, mask: Tensor | None) -> Tensor:
    """(batch, maps, frames) -> (maps)."""
    return (frames if mask is None else frames * mask[:, None]).sum((0, 2))


def _of_all_processes(count: Tensor, mean: Tensor, squares: Tensor) -> Statistics:
    """Put together the counts, means and sums of squares around them that each process has."""
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
    """Maps by their statistics; the gradient knows that these are made of the maps."""

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
        # Of torch's own backward pass only the two sums, over all numbers: what padding was
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
        of_maps = zero_padding(of_maps, mask)
        of_maps.addcmul_(gradient, scale[:, None, None].to(gradient.dtype))
        return of_maps, of_weight, of_bias, None, None, None


def _affine(maps: Tensor, weight: Tensor, bias: Tensor, by: Statistics, eps: float) -> Tensor:
    """(maps - mean) / deviation * weight + bias, in one pass."""
    return torch.batch_norm(maps, weight, bias, by.mean, by.variance, False, 0.0, eps, False)


class MaskedBatchNorm(nn.BatchNorm2d):
    """Batch norm whose statistics leave padding out, and are those of all processes together.

    In evaluation it is torch's own.

    >>> norm = MaskedBatchNorm(1)
    >>> maps = torch.tensor([1.0, 3.0, 99.0]).view(1, 1, 3, 1)
    >>> norm(maps, torch.tensor([[True, True, False]])).flatten()[:2].round().tolist()
    [-1.0, 1.0]
    """

    def forward(self, maps: Tensor, mask: Tensor | None = None) -> Tensor:
        """(batch, maps, frames, mels), mask (batch, frames) -> (batch, maps, frames, mels)."""
        if not self.training:
            return super().forward(maps)
        with torch.no_grad():
            statistics = Statistics.of(maps, mask)
            self._remember(statistics)
        normalised: Tensor = _Normalise.apply(  # type: ignore[no-untyped-call]
            maps, self.weight, self.bias, mask, statistics, self.eps
        )
        return normalised

    def share_update(self, n_micro_batches: int) -> None:
        """Let as many calls move the running statistics as far as one call does otherwise."""
        self.momentum = 1 - (1 - MOMENTUM) ** (1 / n_micro_batches)

    def _remember(self, statistics: Statistics) -> None:
        """Move the running statistics, as torch's own batch norm does."""
        assert self.running_mean is not None  # torch allows for norms that keep no statistics
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        count, mean, variance = statistics
        unbiased = variance * count / (count - 1).clamp(min=1)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        self.num_batches_tracked.add_(1)
