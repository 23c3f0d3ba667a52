"""The network: a gated CRNN that maps a log-mel to frame and clip probabilities.

Conventions: input is (batch, frames, mels), normalised; `mask` (batch, frames) is True for a valid
frame, and padding comes last in a clip. Time is pooled, and an incomplete last group of frames
counts as one: n frames become ceil(n / 4). Padding has no effect: it is zeroed before every
convolution, as beyond a clip's own end, excluded from batch statistics and maxima, and hidden from
the GRU and the pooling. So a clip scores the same alone and padded in a batch.

`Model` is the only description of the network. The table of layers, the receptive field, the time
pooling and the fused network for inference all come from its modules; see `earmark.nn.layers`.

The preset `paper` follows the paper's text and the code that it builds on; its figure of the
network is missing from our copy. `fast` is ours. Both turn 50 frames per second into 12.5.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from earmark.errors import SettingError, choose
from earmark.frames import FrameGrid, pooled_length
from earmark.nn.layers import (
    AveragePool,
    BiGRU,
    Classifier,
    Convolution,
    Dropout,
    Layer,
    MapLayer,
    Maps,
    MaxPool,
    fill_padding,
)
from earmark.pooling import POOLINGS, Pooling
from earmark.pooling.module import check_pooling
from earmark.runtime.kernels import Size


@dataclass(frozen=True)
class ModelConfig:
    """The sizes of the network; the defaults are the preset `paper`.

    Args:
        n_classes: number of classes.
        n_mels: mels of the input.
        input_pool: groups of (frames, mels) of the input that are averaged.
        channels: gated maps per block.
        n_convolutions: gated convolutions per block.
        kernel: size of the convolutions in frames and mels, odd.
        pools: groups of (frames, mels) whose maximum is taken, one per block.
        last_channels: maps of the last convolution.
        last_pool: as `pools`, after the last convolution.
        dropout: share of values that are dropped in training, after each block.
        n_recurrent: width of the GRU per direction. With 0 there is no GRU, and an output frame
            depends on the input within the receptive field of the convolutions only.
        pooling: from frames to clips, one of `POOLINGS`.
        stages: segment lengths of hierarchical pooling; () is single-level pooling.
        stage_weights: one of `STAGE_WEIGHTS`.

    >>> ModelConfig(n_classes=17).channels
    (64, 64, 64, 64)
    """

    n_classes: int
    n_mels: int = 80
    input_pool: Size = (1, 1)
    channels: tuple[int, ...] = (64, 64, 64, 64)
    n_convolutions: int = 2
    kernel: int = 3
    pools: tuple[Size, ...] = ((2, 2), (2, 2), (1, 2), (1, 2))
    last_channels: int = 256
    last_pool: Size = (1, 5)
    dropout: float = 0.2
    n_recurrent: int = 128
    pooling: str = "linear"
    stages: tuple[int, ...] = (5, 5, 5)
    stage_weights: str = "self"

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:  # JSON and TOML give lists, which have no hash
            object.__setattr__(self, name, _as_tuples(getattr(self, name)))
        sizes = [self.n_classes, self.n_mels, *self.input_pool, *self.channels, *self.last_pool]
        sizes += [self.n_convolutions, self.kernel, self.last_channels]
        sizes += [size for pool in self.pools for size in pool]
        if any(type(size) is not int or size < 1 for size in sizes):
            raise SettingError(f"The sizes of a model must be integers of 1 or more. Got {self}.")
        if type(self.n_recurrent) is not int or self.n_recurrent < 0:
            raise SettingError(f"n_recurrent must be 0 (no GRU) or more. Got {self.n_recurrent!r}.")
        if self.kernel % 2 == 0:
            raise SettingError(f"kernel must be odd, to keep frames in place. Got {self.kernel}.")
        if len(self.pools) != len(self.channels) or not self.channels:
            raise SettingError(
                "channels and pools must have one entry per block. "
                f"Got channels={self.channels}, pools={self.pools}."
            )
        if not 0 <= self.dropout < 1:
            raise SettingError(f"dropout must be at least 0 and below 1. Got {self.dropout}.")
        stages = check_pooling(self.pooling, self.stages, self.stage_weights)
        object.__setattr__(self, "stages", stages)

    @classmethod
    def preset(cls, name: str, n_classes: int, **changes: Any) -> "ModelConfig":
        """Return a named configuration, with `changes` to its fields.

        >>> ModelConfig.preset("fast", n_classes=17, pooling="attention").channels
        (16, 32, 32, 48)
        """
        preset = PRESETS[choose("model preset", name, PRESETS)]
        known = set(cls.__dataclass_fields__)
        for change in changes:
            choose("model setting", change, known)
        return replace(preset, n_classes=n_classes, **changes)

    @property
    def time_pool(self) -> int:
        """Number of input frames per output frame.

        >>> ModelConfig(n_classes=17).time_pool
        4
        """
        return _on_meta(self).time_pool

    @property
    def receptive_field(self) -> int:
        """Number of input frames that one output frame depends on through the convolutions.

        >>> ModelConfig(n_classes=17).receptive_field
        56
        """
        return _on_meta(self).receptive_field

    @property
    def mixes_classes(self) -> bool:
        """Whether the probability of a class depends on those of other classes.

        >>> ModelConfig(n_classes=17, pooling="class-attention").mixes_classes
        True
        """
        return POOLINGS[self.pooling].mixes_classes

    def output_grid(self, grid: FrameGrid) -> FrameGrid:
        """Return the frame grid of the output, given that of the input.

        >>> ModelConfig(n_classes=17).output_grid(FrameGrid(50)).frame_rate
        Fraction(25, 2)
        """
        return grid.pooled(self.time_pool)

    def n_frames(self, n_input_frames: int) -> int:
        """Return the number of output frames.

        >>> ModelConfig(n_classes=17).n_frames(500)
        125
        """
        return pooled_length(n_input_frames, self.time_pool)

    def operations(self, n_input_frames: int) -> int:
        """Return the number of multiply-adds in the forward pass of one clip.

        >>> f"{ModelConfig(n_classes=17).operations(500):.3g}"
        '5.15e+09'
        """
        return sum(layer.operations for layer in self.layers(n_input_frames))

    def layers(self, n_input_frames: int) -> list[Layer]:
        """Return `Model.layers` without allocating a model.

        >>> [str(layer.shape) for layer in ModelConfig(n_classes=17).layers(500)][-2:]
        ['(125, 256)', '(125, 17)']
        """
        return _on_meta(self).layers(n_input_frames)


@lru_cache(maxsize=64)
def _on_meta(config: ModelConfig) -> "Model":
    """Return the model without storage for its parameters, to ask it about its layers."""
    with torch.device("meta"):
        return Model(config)


class Prediction(NamedTuple):
    """The output of the network for a batch.

    Shape: `clip_probs` (batch, classes), `frame_probs` (batch, frames, classes), `hidden`
    (batch, frames, features), `mask` (batch, frames) or None if every frame is valid.
    """

    clip_probs: Tensor
    frame_probs: Tensor
    hidden: Tensor
    mask: Tensor | None


class Model(nn.Module):
    """The gated CRNN with its pooling: (batch, frames, mels) -> `Prediction`.

    >>> model = Model(ModelConfig.preset("fast", n_classes=3)).eval()
    >>> prediction = model(torch.zeros(2, 500, 80))
    >>> prediction.frame_probs.shape, prediction.clip_probs.shape
    (torch.Size([2, 125, 3]), torch.Size([2, 3]))
    """

    recurrent: BiGRU | None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.input_pool = AveragePool(config.input_pool)
        self.blocks = nn.ModuleList()
        n_in = 1
        for channels, size in zip(config.channels, config.pools, strict=True):
            block = nn.ModuleList()
            for _ in range(config.n_convolutions):
                block.append(Convolution(n_in, channels, config.kernel, gated=True))
                n_in = channels
            block.extend([Dropout(config.dropout), MaxPool(size)])
            self.blocks.append(block)
        self.last = Convolution(n_in, config.last_channels, config.kernel, gated=False)
        self.last_pool = MaxPool(config.last_pool)
        *_, (maps, _, mels) = (layer.shape for layer in self._describe_encoder(1))
        n_hidden = maps * mels
        self.dropout = Dropout(config.dropout)  # in place of the GRU
        self.register_module("recurrent", None)
        if config.n_recurrent:
            self.recurrent = BiGRU(n_hidden, config.n_recurrent)
            n_hidden = 2 * config.n_recurrent
        self.classifier = Classifier(n_hidden, config.n_classes)
        self.pooling = Pooling(
            config.pooling, config.stages, config.stage_weights, n_hidden, config.n_classes
        )

    def forward(self, log_mel: Tensor, mask: Tensor | None = None) -> Prediction:
        """See the class; `mask` (batch, frames) is True for valid frames, padding comes last."""
        return self.classify(*self.encode(log_mel, mask))

    def encode(self, log_mel: Tensor, mask: Tensor | None = None) -> Maps:
        """Run the convolutions: (batch, frames, mels) -> (batch, frames, features), and the mask.

        >>> model = Model(ModelConfig.preset("fast", n_classes=3)).eval()
        >>> model.encode(torch.zeros(2, 500, 80))[0].shape
        torch.Size([2, 125, 96])
        """
        self._check(log_mel, mask)
        maps = fill_padding(log_mel.unsqueeze(1), mask)
        for _, layer in self._encoder():
            maps, mask = layer(maps, mask)
        return maps.permute(0, 2, 1, 3).flatten(2), mask  # maps stacked on the frequency axis

    def classify(self, features: Tensor, mask: Tensor | None = None) -> Prediction:
        """Run what follows the convolutions: (batch, frames, features) -> the prediction.

        >>> model = Model(ModelConfig.preset("fast", n_classes=3)).eval()
        >>> model.classify(torch.zeros(2, 125, 96)).frame_probs.shape
        torch.Size([2, 125, 3])
        """
        if self.recurrent is None:
            hidden = self.dropout.drop(features)
        else:
            hidden = self.recurrent(features, mask)
        frame_probs = self.classifier(hidden, mask)
        return Prediction(self.pooling(frame_probs, hidden, mask), frame_probs, hidden, mask)

    def fused(self) -> "Model":
        """Return the network for inference, with batch norm folded into the convolutions.

        What has nothing to fold (GRU, classifier, pooling) is shared with this network.

        >>> model = Model(ModelConfig.preset("fast", n_classes=3)).eval()
        >>> log_mel = torch.randn(2, 500, 80)
        >>> with torch.no_grad():
        ...     torch.allclose(model.fused()(log_mel).clip_probs, model(log_mel).clip_probs)
        True
        """
        network = Model.__new__(Model)
        nn.Module.__init__(network)
        network.config = self.config
        for name, module in self._modules.items():
            network.register_module(name, None if module is None else _fused(module))
        return network.eval()

    def layers(self, n_input_frames: int) -> list[Layer]:
        """Return name, output shape, parameters and multiply-adds of each layer, in order.

        The pooling from frames to clips is left out.

        >>> [layer.shape for layer in Model(ModelConfig(n_classes=17)).layers(500)][-2:]
        [(125, 256), (125, 17)]
        """
        layers = self._describe_encoder(n_input_frames)
        maps, frames, mels = layers[-1].shape
        shape: tuple[int, ...] = (frames, maps * mels)
        for module in (self.recurrent, self.classifier):
            if module is not None:
                layers.append(module.describe(shape))
                shape = layers[-1].shape
        return layers

    @property
    def time_pool(self) -> int:
        """Number of input frames per output frame."""
        return prod(layer.stride[0] for layer in self._describe_encoder(1))

    @property
    def receptive_field(self) -> int:
        """Number of input frames that one output frame depends on through the convolutions."""
        seen = step = 1
        for layer in self._describe_encoder(1):
            seen += (layer.kernel[0] - 1) * step
            step *= layer.stride[0]
        return seen

    def _encoder(self) -> list[tuple[str, MapLayer]]:
        """Return the layers up to the GRU, in order, with the names of their blocks."""
        blocks = [
            (f"block {number}, ", layer)
            for number, block in enumerate(self.blocks, 1)
            for layer in cast("nn.ModuleList", block)
        ]
        first, last = ("input ", self.input_pool), [("last ", self.last), ("last ", self.last_pool)]
        return cast("list[tuple[str, MapLayer]]", [first, *blocks, *last])

    def _describe_encoder(self, n_frames: int) -> list[Layer]:
        layers: list[Layer] = []
        shape: tuple[int, ...] = (1, n_frames, self.config.n_mels)
        for block, module in self._encoder():
            layer = module.describe(shape)
            layers.append(layer._replace(name=block + layer.name))
            shape = layer.shape
        return layers

    def _check(self, log_mel: Tensor, mask: Tensor | None) -> None:
        if log_mel.dim() != 3 or log_mel.shape[1] == 0 or log_mel.shape[2] != self.config.n_mels:
            raise SettingError(
                f"log_mel must have the shape (batch, frames, {self.config.n_mels}) with at least "
                f"one frame. Got shape {tuple(log_mel.shape)}."
            )
        if mask is None:
            return
        if mask.shape != log_mel.shape[:2] or mask.dtype != torch.bool:
            raise SettingError(
                f"mask must be a bool tensor of shape {tuple(log_mel.shape[:2])}. "
                f"Got {mask.dtype} of shape {tuple(mask.shape)}."
            )
        if (mask[:, 1:] & ~mask[:, :-1]).any():
            raise SettingError("mask must be True for the first frames of each clip, then False.")


def _fused(module: nn.Module) -> nn.Module:
    if isinstance(module, nn.ModuleList):
        return nn.ModuleList(_fused(inner) for inner in module)
    return module.fused() if isinstance(module, MapLayer) else module


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list | tuple) else value


_PAPER = ModelConfig(n_classes=1)

PRESETS: dict[str, ModelConfig] = {
    "paper": _PAPER,
    "fast": replace(
        _PAPER,
        input_pool=(2, 2),
        channels=(16, 32, 32, 48),
        pools=((2, 2), (1, 2), (1, 2), (1, 1)),
        last_channels=96,
        n_recurrent=64,
    ),
}
