"""Maps -> maps of mean 0 and variance 1: batch norm that knows of padding and other processes."""

from typing import Any

import torch
from torch import Tensor, distributed, nn


def mask_maps(maps: Tensor, mask: Tensor | None, value: float = 0.0) -> Tensor:
    """(batch, maps, frames, mels) with `value` at padding."""
    return maps if mask is None else maps.masked_fill(~mask[:, None, :, None], value)


class _SumOfProcesses(torch.autograd.Function):
    """Add up what the processes of one training have; the gradient is added up alike."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()
        distributed.all_reduce(total)
        return total


def _several_processes() -> bool:
    if not (distributed.is_available() and distributed.is_initialized()):
        return False
    return distributed.get_world_size() > 1


def _sum_of_processes(values: Tensor) -> Tensor:
    if not _several_processes():
        return values
    total: Tensor = _SumOfProcesses.apply(values)  # type: ignore[no-untyped-call]
    return total


class MaskedBatchNorm(nn.BatchNorm2d):
    """Batch norm whose statistics leave padding out, and are those of all processes together.

    Without a mask, in one process, it is torch's own. Half precision is summed in single precision,
    as torch does, and given back in half.
    """

    def forward(self, maps: Tensor, mask: Tensor | None = None) -> Tensor:
        """(batch, maps, frames, mels), mask (batch, frames) -> (batch, maps, frames, mels)."""
        if not self.training or (mask is None and not _several_processes()):
            return super().forward(maps)
        axes = (0, 2, 3)
        wide = maps.to(torch.promote_types(maps.dtype, torch.float32))
        n_frames = wide.new_tensor(maps.shape[0] * maps.shape[2]) if mask is None else mask.sum()
        count = _sum_of_processes(n_frames.to(wide.dtype)).clamp(min=1) * maps.shape[3]
        mean = _sum_of_processes(mask_maps(wide, mask).sum(axes, keepdim=True)) / count
        centred = wide - mean
        squares = mask_maps(centred, mask).square().sum(axes, keepdim=True)
        variance = _sum_of_processes(squares) / count
        unbiased = variance * count / (count - 1).clamp(min=1)
        self._remember(mean.detach().flatten(), unbiased.detach().flatten())
        scale = self.weight[:, None, None] * (variance + self.eps).rsqrt()
        return (centred * scale + self.bias[:, None, None]).to(maps.dtype)

    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics, as torch's own batch norm does."""
        assert self.running_mean is not None  # torch allows for norms that keep no statistics
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_(variance.to(self.running_var.dtype), self.momentum)
        self.num_batches_tracked.add_(1)
