"""The layers of the network: each computes, describes itself and has a fused version for inference.

Conventions: maps are (batch, maps, frames, mels). The mask (batch, frames) is True for a valid
frame, or None if all are; padding comes last in a clip. Layers of maps take `(maps, mask)` and
return both. An incomplete last group of frames or mels is pooled like a complete one, unless a
layer drops it. At padding, maps are zero before every convolution, as beyond the end of a clip.

`describe(shape)` returns what a layer makes of maps of a shape (maps, frames, mels) as a `Layer`.
`fused()` returns the layer for inference; layers without anything to fuse return themselves.
"""

from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own usage
from torch.nn.utils.fusion import fuse_conv_bn_eval

from earmark.errors import choose
from earmark.frames import pooled_length
from earmark.runtime import kernels
from earmark.runtime.kernels import Size

NORMS = ("before", "after", "none")  # places of a batch norm: the unit that follows, or none
MOMENTUM = 0.1  # torch's default: the weight of a batch in the running statistics
FEW_VALUES = 4  # per map: fewer say too little of mean and variance

Maps = tuple[Tensor, Tensor | None]  # maps and mask


class Layer(NamedTuple):
    """One row of the table of layers; the shape is (maps, frames, mels) or (frames, features)."""

    name: str
    shape: tuple[int, ...]
    n_parameters: int = 0
    operations: int = 0  # multiply-adds
    kernel: Size = (1, 1)
    stride: Size = (1, 1)


class MapLayer(nn.Module):
    """A layer of maps: `forward(maps, mask)` returns maps and mask.

    >>> Dropout(0.2).describe((1, 500, 80)).shape
    (1, 500, 80)
    """

    kind: str

    def describe(self, shape: tuple[int, ...]) -> Layer:
        """Return name, output shape, parameters and operations, given the input shape."""
        return Layer(self.kind, shape)

    def fused(self) -> "MapLayer":
        """Return the layer for inference."""
        return self


class Convolution(MapLayer):
    """Convolution, batch norm, then a gated linear unit or a rectifier.

    A gated one computes twice the maps and multiplies the first half by the sigmoid of the second.

    Shape: (batch, n_in, frames, mels) -> (batch, n_out, frames, mels), zero at padding; with a
    `mel_stride` of 2, every second mel.

    Args:
        n_in: maps of the input.
        n_out: maps of the output.
        kernel: size in frames and mels; an even one has one more neighbour behind than in front.
        gated: with a gated linear unit, otherwise with a rectifier.
        norm: where the batch norm is, "before" or "after" that unit, or "none".
        bias: whether the convolution has a bias of its own.
        mel_stride: mels from one output to the next.

    >>> maps, mask = Convolution(1, 8, kernel=3, gated=True)(torch.zeros(2, 1, 50, 40))
    >>> maps.shape
    torch.Size([2, 8, 50, 40])
    """

    norm: "MaskedBatchNorm | None"

    def __init__(
        self,
        n_in: int,
        n_out: int,
        kernel: int | Size,
        gated: bool,
        norm: str = "before",
        bias: bool = False,
        mel_stride: int = 1,
    ) -> None:
        super().__init__()
        n_filters = 2 * n_out if gated else n_out
        self.n_out, self.gated = n_out, gated
        self.norm_place = choose("place of the batch norm", norm, NORMS)
        self.kind = "gated convolution" if gated else "convolution"
        frames, mels = (kernel, kernel) if isinstance(kernel, int) else kernel
        # With a stride, mels are padded in `convolve`. An even kernel, padded by half of it on both
        # sides, has one output too many, the first. (Padding "same" would copy its input.)
        padding = (frames // 2, mels // 2 if mel_stride == 1 else 0)
        self.extra = (1 - frames % 2, 1 - mels % 2 if mel_stride == 1 else 0)
        self.convolution = nn.Conv2d(
            n_in, n_filters, (frames, mels), (1, mel_stride), padding, bias=bias
        )
        self.register_module("norm", None)
        if norm != "none":
            self.norm = MaskedBatchNorm(n_filters if norm == "before" else n_out)

    def forward(self, maps: Tensor, mask: Tensor | None = None) -> Maps:
        """See the class."""
        maps = self.convolve(maps)
        if self.norm is not None and self.norm_place == "before":
            maps = self.norm(maps, mask)
        maps = self.activate(maps)
        if self.norm is not None and self.norm_place == "after":
            maps = self.norm(maps, mask)
        return zero_padding(maps, mask), mask

    def convolve(self, maps: Tensor) -> Tensor:
        """Return the convolution of maps and zeros beyond their edges.

        With a stride, an odd number of missing mels is one more at the upper end, as in TensorFlow.

        >>> layer = Convolution(1, 8, kernel=3, gated=False, norm="none", mel_stride=2)
        >>> layer.convolve(torch.zeros(2, 1, 50, 10)).shape
        torch.Size([2, 8, 50, 5])
        """
        kernel, stride = self.convolution.kernel_size[1], self.convolution.stride[1]
        if stride > 1:
            n_mels = maps.shape[3]
            missing = max(0, (pooled_length(n_mels, stride) - 1) * stride + kernel - n_mels)
            maps = F.pad(maps, (missing // 2, missing - missing // 2))
        return kernels.convolve(maps, self.convolution, self.extra)

    def activate(self, maps: Tensor) -> Tensor:
        """Apply the gated linear unit or the rectifier.

        >>> Convolution(1, 1, 1, gated=False).activate(torch.tensor([-1.0, 2.0]))
        tensor([0., 2.])
        """
        return F.glu(maps, dim=1) if self.gated else F.relu(maps)

    def describe(self, shape: tuple[int, ...]) -> Layer:
        """See `MapLayer.describe`."""
        _, frames, mels = shape
        weight, stride = self.convolution.weight, self.convolution.stride[1]
        mels = pooled_length(mels, stride)
        return Layer(
            self.kind,
            (self.n_out, frames, mels),
            count_parameters(self),
            operations=weight.numel() * frames * mels,
            kernel=(weight.shape[2], weight.shape[3]),
            stride=(1, stride),
        )

    def fused(self) -> "FusedConvolution":
        """See `MapLayer.fused`."""
        return FusedConvolution(self)


class FusedConvolution(Convolution):
    """A trained `Convolution` for inference, with a batch norm before its unit in its weights.

    A batch norm after the unit stays: the zeros beyond the edges of the next convolution are those
    of normalised maps, so that its weights cannot include it.

    >>> layer = Convolution(1, 8, kernel=3, gated=True).eval()
    >>> maps = torch.randn(2, 1, 50, 40)
    >>> torch.allclose(layer.fused()(maps)[0], layer(maps)[0], atol=1e-6)
    True
    """

    def __init__(self, layer: Convolution) -> None:
        MapLayer.__init__(self)
        self.n_out, self.gated, self.kind = layer.n_out, layer.gated, layer.kind
        self.norm_place, self.extra = layer.norm_place, layer.extra
        if layer.norm is not None and layer.norm_place == "before":
            self.convolution = fuse_conv_bn_eval(layer.convolution, layer.norm)
            self.register_module("norm", None)
        else:
            self.convolution = deepcopy(layer.convolution)
            self.register_module("norm", layer.norm)
        # Channels last is the faster layout on a CPU, and maps follow the weights.
        weight = self.convolution.weight.data
        self.convolution.weight.data = weight.contiguous(memory_format=torch.channels_last)

    def activate(self, maps: Tensor) -> Tensor:
        """See `Convolution.activate`; in place."""
        return F.glu(maps, dim=1) if self.gated else maps.relu_()

    def fused(self) -> "FusedConvolution":
        """See `MapLayer.fused`."""
        return self


class MaskedBatchNorm(nn.BatchNorm2d):
    """Batch norm whose statistics exclude padding and cover the clips of all processes.

    In evaluation it is torch's own. With `affine=False` it has no weights. Maps with fewer than
    `FEW_VALUES` valid values in all processes, as a classifier of clips has in a small micro-batch,
    are normalised by the running statistics in training too: their own would be those of chance.

    >>> norm = MaskedBatchNorm(1)
    >>> maps = torch.tensor([1.0, 3.0, 1.0, 3.0, 99.0]).view(1, 1, 5, 1)
    >>> norm(maps, torch.arange(5)[None] < 4).flatten()[:4].round().tolist()
    [-1.0, 1.0, -1.0, 1.0]
    """

    def forward(self, maps: Tensor, mask: Tensor | None = None) -> Tensor:
        """(batch, maps, frames, mels), mask (batch, frames) -> (batch, maps, frames, mels)."""
        few = maps.numel() < FEW_VALUES * maps.shape[1]
        if not self.training or (kernels.torch_batch_norm_suffices(maps, mask) and not few):
            return super().forward(maps)
        weight: Tensor | None = self.weight
        bias: Tensor | None = self.bias
        if weight is None or bias is None:
            assert self.running_mean is not None
            # In its precision, as weights are: maps may have half of it.
            weight, bias = torch.ones_like(self.running_mean), torch.zeros_like(self.running_mean)
        normalised, statistics = kernels.batch_norm(maps, mask, weight, bias, self.eps)
        self._update(statistics)
        # Of all processes: were it decided by each alone, their collective operations would differ.
        return normalised if statistics.n_values >= FEW_VALUES else self._normalise_few(maps)

    def _normalise_few(self, maps: Tensor) -> Tensor:
        """Normalise by the running statistics."""
        assert self.running_mean is not None
        assert self.running_var is not None
        # Copies, since the next call moves them, perhaps before the backward pass.
        mean, variance = self.running_mean.clone(), self.running_var.clone()
        return F.batch_norm(maps, mean, variance, self.weight, self.bias, False, 0.0, self.eps)

    def share_update(self, n_micro_batches: int) -> None:
        """Make as many calls move the running statistics as far as one call does otherwise."""
        self.momentum = 1 - (1 - MOMENTUM) ** (1 / n_micro_batches)

    @torch.no_grad()
    def _update(self, statistics: kernels.Statistics) -> None:
        """Move the running statistics, as torch's own batch norm does."""
        assert self.running_mean is not None  # torch allows for norms that keep no statistics
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        count, mean, variance = statistics
        unbiased = variance * count / (count - 1).clamp(min=1)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        if count > 1:  # one value has no variance
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        self.num_batches_tracked.add_(1)


class Dropout(MapLayer):
    """Dropout of maps, or of anything else by `drop`.

    >>> Dropout(0.25).eval()(torch.ones(1, 1, 2, 2))[0].sum()
    tensor(4.)
    """

    kind = "dropout"

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, maps: Tensor, mask: Tensor | None = None) -> Maps:
        """Drop maps in training; see `MapLayer`."""
        return self.drop(maps), mask

    def drop(self, values: Tensor) -> Tensor:
        """Set a share `p` of the values to 0 in training, and scale the others by 1 / (1 - p)."""
        return kernels.dropout(values, self.p) if self.training and self.p else values

    def extra_repr(self) -> str:
        """Show the rate in `print(model)`."""
        return f"p={self.p}"


class GroupPool(MapLayer):
    """What `MaxPool` and `AveragePool` share: the size of a group, (frames, mels).

    >>> MaxPool((2, 2)).describe((64, 501, 80)).shape
    (64, 251, 40)
    """

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size

    def describe(self, shape: tuple[int, ...]) -> Layer:
        """See `MapLayer.describe`."""
        maps, frames, mels = shape
        pooled = (maps, pooled_length(frames, self.size[0]), pooled_length(mels, self.size[1]))
        return Layer(self.kind, pooled, kernel=self.size, stride=self.size)

    def extra_repr(self) -> str:
        """Show the size in `print(model)`."""
        return f"size={self.size}"


class MaxPool(GroupPool):
    """The maximum over groups of (frames, mels); padding never wins.

    With `whole`, an incomplete last group is dropped.

    >>> maps, _ = MaxPool((2, 1))(torch.tensor([1.0, 3.0, 2.0]).view(1, 1, 3, 1))
    >>> maps.flatten()
    tensor([3., 2.])
    """

    kind = "max pooling"

    def __init__(self, size: Size, whole: bool = False) -> None:
        super().__init__(size)
        self.whole = whole

    def describe(self, shape: tuple[int, ...]) -> Layer:
        """See `MapLayer.describe`."""
        maps, frames, mels = shape
        return super().describe((maps, *self._kept(frames, mels)))

    def _kept(self, n_frames: int, n_mels: int) -> Size:
        """Return how many frames and mels are pooled."""
        if not self.whole:
            return n_frames, n_mels
        return n_frames - n_frames % self.size[0], n_mels - n_mels % self.size[1]

    def forward(self, maps: Tensor, mask: Tensor | None = None) -> Maps:
        """(batch, maps, frames, mels), finite, -> fewer frames and mels, and the shorter mask."""
        n_frames, n_mels = self._kept(maps.shape[2], maps.shape[3])
        maps, mask = maps[:, :, :n_frames, :n_mels], None if mask is None else mask[:, :n_frames]
        n_frames, n_mels = self.size
        if mask is None or n_frames == 1:
            return kernels.max_pool(maps, self.size), mask
        infinite = mask[:, None, :, None].to(maps.dtype).log()  # 0 where valid, else -inf
        maps = kernels.max_pool(maps, (1, n_mels)) + infinite
        pooled, mask = kernels.max_pool(maps, (n_frames, 1)), mask[:, ::n_frames]
        return fill_padding(pooled, mask), mask


class AveragePool(GroupPool):
    """The mean over groups of (frames, mels), of valid frames only.

    >>> maps, _ = AveragePool((2, 1))(torch.tensor([1.0, 3.0, 9.0]).view(1, 1, 3, 1))
    >>> maps.flatten()
    tensor([2., 9.])
    """

    kind = "average pooling"

    def forward(self, maps: Tensor, mask: Tensor | None = None) -> Maps:
        """(batch, maps, frames, mels), zero at padding, -> fewer frames and mels, shorter mask."""
        if self.size == (1, 1):
            return maps, mask
        # There is no padding to count, but an exported graph that says so is averaged otherwise at
        # its end by onnxruntime 1.27.0 and older ones.
        averaged = F.avg_pool2d(maps, self.size, ceil_mode=True, count_include_pad=False)
        if mask is None:
            return averaged, None
        n_frames = self.size[0]
        share = F.avg_pool1d(mask.to(maps.dtype).unsqueeze(1), n_frames, ceil_mode=True)
        mask = mask[:, ::n_frames]
        safe_share = torch.where(mask, share.squeeze(1), 1)
        return fill_padding(averaged / safe_share[:, None, :, None], mask), mask


class Classifier(nn.Linear):
    """A dense layer and a sigmoid, in single precision or better; 0 at padding.

    Shape: (batch, frames, features) -> (batch, frames, classes).

    >>> Classifier(4, 3)(torch.zeros(2, 50, 4)).shape
    torch.Size([2, 50, 3])
    """

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """See the class."""
        logits = super().forward(hidden)
        probs = logits.to(torch.promote_types(logits.dtype, torch.float32)).sigmoid()
        return probs if mask is None else probs.masked_fill(~mask.unsqueeze(2), 0)

    def describe(self, shape: tuple[int, ...]) -> Layer:
        """Return name, output shape, parameters and operations, given (frames, features)."""
        frames = shape[0]
        operations = self.weight.numel() * frames
        name, n_parameters = "frame probabilities", count_parameters(self)
        return Layer(name, (frames, self.out_features), n_parameters, operations)


def fill_padding(maps: Tensor, mask: Tensor | None, value: float = 0.0) -> Tensor:
    """Return (batch, maps, frames, mels) with `value` at padding, whatever was there.

    >>> fill_padding(torch.ones(1, 1, 2, 1), torch.tensor([[True, False]])).flatten()
    tensor([1., 0.])
    """
    return maps if mask is None else maps.masked_fill(~mask[:, None, :, None], value)


def zero_padding(maps: Tensor, mask: Tensor | None) -> Tensor:
    """Return (batch, maps, frames, mels) with 0 at padding; all values must be finite.

    A product is several times as fast as filling.

    >>> zero_padding(torch.ones(1, 1, 2, 1), torch.tensor([[True, False]])).flatten()
    tensor([1., 0.])
    """
    return maps if mask is None else maps * mask[:, None, :, None].to(maps.dtype)


def count_parameters(module: nn.Module) -> int:
    """Return the number of trainable parameters of a module.

    >>> count_parameters(nn.Linear(4, 3))
    15
    """
    return sum(parameter.numel() for parameter in module.parameters())


def initialise(network: nn.Module) -> None:
    """Set first weights: Xavier's uniform ones, orthogonal ones in a GRU, and biases of 0.

    >>> network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GRU(3, 2))
    >>> initialise(network)
    >>> network[0].bias.any(), network[1].bias_ih_l0.any()
    (tensor(False), tensor(False))
    """
    for module in network.modules():
        if not isinstance(module, nn.Conv2d | nn.Linear | nn.GRU):
            continue
        draw = nn.init.orthogonal_ if isinstance(module, nn.GRU) else nn.init.xavier_uniform_
        for name, parameter in module.named_parameters(recurse=False):
            if "bias" in name:
                nn.init.zeros_(parameter)
            else:
                draw(parameter)
