"""A trained network -> the same for detection: faster, its numbers equal to rounding.

Conventions: log-mels have no padding here, and nothing is learned. Two things are saved. Batch norm
is folded into the convolutions, whose maps keep the channels of a point side by side. And windows
that overlap share what their convolutions have in common:

    window 0    |---------------------------|
    window 1                  |---------------------------|
    pieces      |-------------|             |             zero beyond both edges, as is a window
                              |-------------|
    seams                  |-----|                        where two pieces of a window meet

A frame's convolutions see only so far (`ModelConfig.receptive_field`). Every window is two pieces,
the second of which is the first of the next window; only where they meet each sees an edge that is
none, and there, in the seam, they are computed again. That is three quarters of the work. The GRU,
which hears the whole window, takes each window for itself.
"""

from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own usage
from torch.nn.utils.fusion import fuse_conv_bn_eval

from earmark.layers import Convolution, Size, average_input, max_maps
from earmark.model import Model, Prediction

BATCH = 4  # parts of a recording in one convolution: more do not run faster on a CPU


class FoldedModel(nn.Module):
    """The network in evaluation: (batch, frames, mels) -> `Prediction`, as `Model` gives it.

    >>> from earmark.model import ModelConfig
    >>> model = Model(ModelConfig.preset("fast", n_classes=3)).eval()
    >>> log_mel = torch.randn(2, 500, 80)
    >>> with torch.no_grad():
    ...     torch.allclose(FoldedModel(model)(log_mel).clip_probs, model(log_mel).clip_probs)
    True
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.config = model.config
        self.blocks = nn.ModuleList(
            nn.Sequential(*(_Folded(convolution) for convolution in block))  # type: ignore[attr-defined]
            for block in model.blocks
        )
        self.last = _Folded(model.last)
        self.recurrent = model.recurrent
        self.classifier = model.classifier
        self.pooling = model.pooling
        self.eval()

    def forward(self, log_mel: Tensor) -> Prediction:
        """See the class; every frame is real."""
        return self._classify(self._convolve(log_mel))

    def listen(self, strip: Tensor, window: int, hop: int) -> Prediction:
        """Predict every window of a strip of a recording.

        Shape: `strip` (frames, mels), of `window` frames and any number of hops; the batch of the
        prediction are its windows.

        Args:
            strip: the log-mel.
            window: frames of a window, or more than the strip has, which then is one window.
            hop: from one window to the next, at most half of it; both are whole output frames.

        >>> from earmark.model import ModelConfig
        >>> folded = FoldedModel(Model(ModelConfig.preset("fast", n_classes=3)).eval())
        >>> with torch.no_grad():
        ...     folded.listen(torch.randn(1000, 80), window=500, hop=100).frame_probs.shape
        torch.Size([6, 125, 3])
        """
        if len(strip) <= window:
            return self.forward(strip.unsqueeze(0))
        pool = self.config.time_pool
        piece = window - hop
        reach = -(-(self.config.receptive_field - pool) // (2 * pool))  # output frames
        first, after = piece // pool - reach, max(hop // pool + reach, piece // pool - reach)
        begin, end = (first - reach) * pool, (after + reach) * pool  # what the seam's frames see
        if begin < 0 or piece + end - begin >= window:
            return self.forward(_cut(strip, window, hop))
        pieces = self._convolve(_cut(strip, piece, hop))
        parts = [pieces[:-1, :first], pieces[1:, after - hop // pool :]]
        if after > first:
            seams = _cut(strip[begin:], end - begin, hop)[: len(pieces) - 1]
            parts.insert(1, self._convolve(seams)[:, reach : after - first + reach])
        return self._classify(torch.cat(parts, dim=1))

    def _convolve(self, log_mel: Tensor) -> Tensor:
        """(batch, frames, mels) -> (batch, frames, features)."""
        return torch.cat([self._convolve_few(few) for few in torch.split(log_mel, BATCH)])

    def _convolve_few(self, log_mel: Tensor) -> Tensor:
        maps, _ = average_input(log_mel, None, self.config.input_pool)
        for block, size in zip(self.blocks, self.config.pools, strict=True):
            maps = _max(block(maps), size)
        maps = _max(self.last(maps), self.config.last_pool)
        return maps.permute(0, 2, 1, 3).flatten(2)

    def _classify(self, features: Tensor) -> Prediction:
        """(batch, frames, features) -> the prediction."""
        hidden = self.recurrent(features)[0]
        frame_probs = self.classifier(hidden).sigmoid()
        return Prediction(self.pooling(frame_probs, hidden, None), frame_probs, hidden, None)


class _Folded(nn.Module):
    """Convolution and batch norm in one, then the gate or the rectifier."""

    def __init__(self, convolution: Convolution) -> None:
        super().__init__()
        self.gated = convolution.gated
        self.convolution = fuse_conv_bn_eval(convolution.convolution, convolution.norm)
        weight = self.convolution.weight.data
        self.convolution.weight.data = weight.contiguous(memory_format=torch.channels_last)

    def forward(self, maps: Tensor) -> Tensor:
        maps = self.convolution(maps)
        return F.glu(maps, dim=1) if self.gated else maps.relu_()


def _max(maps: Tensor, size: Size) -> Tensor:
    """As `max_maps`; where groups are whole, their first, second, ... are compared as whole maps.

    That takes a twentieth off all of the preset `fast`.
    """
    if maps.shape[2] % size[0] or maps.shape[3] % size[1]:
        return max_maps(maps, None, size)[0]
    for axis, length in ((3, size[1]), (2, size[0])):
        maps = reduce(torch.maximum, torch.unflatten(maps, axis, (-1, length)).unbind(axis + 1))
    return maps


def _cut(strip: Tensor, size: int, hop: int) -> Tensor:
    """(frames, mels) -> (parts, frames, mels): parts of `size` frames, a hop apart."""
    return strip.unfold(0, size, hop).transpose(1, 2)
