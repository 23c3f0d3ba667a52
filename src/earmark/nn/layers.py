"""Maps -> maps: the gated convolution, dropout and the maxima between blocks, quick on a CPU.

Conventions: maps are (batch, maps, frames, mels), mask (batch, frames) is True for a real frame and
padding comes last; groups of frames or mels may be begun at the end, and count as one. Values and
gradients are those of torch's own layers, to which tests hold them; on a CPU, forwards and back,
its dropout takes three times as long as ours and its maximum nearly twice as long.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own usage

from earmark.nn.norm import MaskedBatchNorm, fill_padding, zero_padding

Size = tuple[int, int]  # (time, mels), as in every kernel of the paper's figure


class Convolution(nn.Module):
    """Convolution, batch norm, then a gate, or the rectifier of the one plain convolution.

    A gated one makes twice the maps; the first half is multiplied by the sigmoid of the second.

    >>> Convolution(1, 8, kernel=3, gated=True)(torch.zeros(2, 1, 50, 40), None).shape
    torch.Size([2, 8, 50, 40])
    """

    def __init__(self, n_in: int, n_out: int, kernel: int, gated: bool) -> None:
        super().__init__()
        n_filters = 2 * n_out if gated else n_out
        self.gated = gated
        self.convolution = nn.Conv2d(n_in, n_filters, kernel, padding="same", bias=False)
        self.norm = MaskedBatchNorm(n_filters)

    def forward(self, maps: Tensor, mask: Tensor | None) -> Tensor:
        """(batch, n_in, frames, mels) -> (batch, n_out, frames, mels), zero at padding."""
        maps = self.norm(self.convolution(maps), mask)
        return zero_padding(F.glu(maps, dim=1) if self.gated else F.relu(maps), mask)


class Dropout(nn.Dropout):
    """Dropout that draws 16 random bits for a number; the rate is rounded to them.

    >>> dropped = Dropout(0.25)(torch.ones(10_000))
    >>> sorted(round(float(value), 3) for value in dropped.unique())
    [0.0, 1.333]
    """

    def forward(self, maps: Tensor) -> Tensor:
        """Maps of any shape, a share `p` of them 0 and the others larger by 1 / (1 - p)."""
        n_dropped = min(round(self.p * 2**16), 2**16 - 1)
        if not self.training or n_dropped == 0:
            return maps
        words = torch.empty(-(-maps.numel() // 4), dtype=torch.int64, device=maps.device)
        words.random_(-(2**63), None)  # all 64 bits
        bits = words.view(torch.int16)[: maps.numel()].view(maps.shape)
        factors = torch.empty(maps.shape, dtype=maps.dtype, device=maps.device)
        torch.ge(bits, n_dropped - 2**15, out=factors)
        return maps * factors.mul_(2**16 / (2**16 - n_dropped))


def average_input(log_mel: Tensor, mask: Tensor | None, size: Size) -> tuple[Tensor, Tensor | None]:
    """(batch, frames, mels) -> (batch, 1, frames, mels), averaged over real frames only.

    >>> average_input(torch.tensor([[[1.0], [3.0], [9.0]]]), None, (2, 1))[0].flatten()
    tensor([2., 9.])
    """
    maps = fill_padding(log_mel.unsqueeze(1), mask)
    if size == (1, 1):
        return maps, mask
    averaged = F.avg_pool2d(maps, size, ceil_mode=True)
    if mask is None:
        return averaged, None
    share = F.avg_pool1d(mask.to(maps.dtype).unsqueeze(1), size[0], ceil_mode=True)
    mask = mask[:, :: size[0]]
    safe_share = torch.where(mask, share.squeeze(1), 1)
    return fill_padding(averaged / safe_share[:, None, :, None], mask), mask


def max_maps(maps: Tensor, mask: Tensor | None, size: Size) -> tuple[Tensor, Tensor | None]:
    """Pool (batch, maps, frames, mels), finite, to its maxima; padding never wins.

    >>> max_maps(torch.tensor([1.0, 3.0, 2.0]).view(1, 1, 3, 1), None, (2, 1))[0].flatten()
    tensor([3., 2.])
    """
    if not maps.requires_grad:  # torch's own has no gradient to wait for, and can be exported
        return _max_without_gradient(maps, mask, size)
    maps = _max_along(maps, 3, size[1])
    if mask is None or size[0] == 1:
        return _max_along(maps, 2, size[0]), mask
    infinite = mask[:, None, :, None].to(maps.dtype).log()  # 0 where real, else -inf
    pooled = _max_along(maps + infinite, 2, size[0])
    mask = mask[:, :: size[0]]
    return fill_padding(pooled, mask), mask


def _max_without_gradient(
    maps: Tensor, mask: Tensor | None, size: Size
) -> tuple[Tensor, Tensor | None]:
    if size == (1, 1):
        return maps, mask
    if mask is None or size[0] == 1:
        return F.max_pool2d(maps, size, ceil_mode=True), mask
    pooled = F.max_pool2d(fill_padding(maps, mask, -torch.inf), size, ceil_mode=True)
    mask = mask[:, :: size[0]]
    return fill_padding(pooled, mask), mask


def _max_along(maps: Tensor, axis: int, size: int) -> Tensor:
    """The maximum of every `size` neighbours of an axis; a group that is only begun counts."""
    if size == 1:
        return maps
    missing = -maps.shape[axis] % size
    if missing:
        maps = F.pad(maps, [0, 0] * (3 - axis) + [0, missing], value=-torch.inf)
    pooled: Tensor = _Max.apply(maps, axis, size)  # type: ignore[no-untyped-call]
    return pooled


class _Max(torch.autograd.Function):
    """The maximum of every `size` neighbours of an axis; its gradient goes to the first of them."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, axis: int, size: int) -> Tensor:
        most, *others = _neighbours(maps, axis, size)
        for other in others:
            most = torch.maximum(most, other)
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
    """The first of every group, the second of every group, and so on."""
    groups = maps.shape[axis] // size
    shape = (*maps.shape[:axis], groups, size, *maps.shape[axis + 1 :])
    return maps.view(shape).unbind(axis + 1)
