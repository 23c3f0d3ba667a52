"""A trained network -> the same for detection: faster, its numbers equal to rounding.

Conventions: log-mels have no padding here, and nothing is learned. Two things are saved. Batch norm
is folded into the convolutions, whose maps keep the channels of a point side by side. And windows
that overlap share their convolutions, which run over the recording as over one long clip: a frame
at the edge of a window sees what really is beside it, not the silence that a clip ends in. The GRU,
which hears the whole window, takes each window for itself.

A frame's convolutions see only so far (`ModelConfig.receptive_field`), so that a recording can be
cut anywhere: with `margin` frames more on both sides, a part comes out as it would in the whole.
"""

from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own usage
from torch.nn.utils.fusion import fuse_conv_bn_eval

from earmark.frames import pooled_length
from earmark.nn.layers import Convolution, Size, average_input, max_maps
from earmark.nn.model import Model, Prediction


class FusedModel(nn.Module):
    """The network in evaluation: (batch, frames, mels) -> `Prediction`, as `Model` gives it.

    >>> from earmark.nn.model import ModelConfig
    >>> model = Model(ModelConfig.preset("fast", n_classes=3)).eval()
    >>> log_mel = torch.randn(2, 500, 80)
    >>> with torch.no_grad():
    ...     torch.allclose(FusedModel(model)(log_mel).clip_probs, model(log_mel).clip_probs)
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
        pool = self.config.time_pool
        self.margin = -(-(self.config.receptive_field - pool) // (2 * pool)) * pool

    def forward(self, log_mel: Tensor) -> Prediction:
        """See the class; every frame is real."""
        return self.classify(self._convolve(log_mel))

    def encode(self, log_mel: Tensor, before: int = 0, length: int | None = None) -> Tensor:
        """The convolutions of a part of a recording: (frames, mels) -> (frames, features).

        Args:
            log_mel: the part, and as much of what lies on both sides as `margin` says and there is.
            before: frames at its begin that are only seen, whole output frames.
            length: frames after them that are wanted; all without it.

        >>> from earmark.nn.model import ModelConfig
        >>> folded = FusedModel(Model(ModelConfig.preset("fast", n_classes=3)).eval())
        >>> with torch.no_grad():
        ...     folded.encode(torch.randn(264, 80), before=32, length=200).shape
        torch.Size([50, 96])
        """
        pool = self.config.time_pool
        length = len(log_mel) - before if length is None else length
        features = self._convolve(log_mel.unsqueeze(0))[0]
        return features[before // pool : before // pool + pooled_length(length, pool)]

    def classify(self, features: Tensor) -> Prediction:
        """What comes behind them: (batch, frames, features) -> the prediction."""
        hidden = features if self.recurrent is None else self.recurrent(features)[0]
        frame_probs = self.classifier(hidden).sigmoid()
        return Prediction(self.pooling(frame_probs, hidden, None), frame_probs, hidden, None)

    def _convolve(self, log_mel: Tensor) -> Tensor:
        """(batch, frames, mels) -> (batch, frames, features)."""
        maps, _ = average_input(log_mel, None, self.config.input_pool)
        for block, size in zip(self.blocks, self.config.pools, strict=True):
            maps = _max(block(maps), size)
        maps = _max(self.last(maps), self.config.last_pool)
        return maps.permute(0, 2, 1, 3).flatten(2)


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
