"""Log-mel -> hidden -> frame probabilities -> clip probabilities: the gated CRNN.

Conventions: input is (batch, frames, mels), normalised, with `mask` (batch, frames) True for a real
frame and padding at the end of a clip only. Time is pooled, and a begun group of frames counts as
one: n frames become ceil(n / 4). Padding reaches nothing: it is zeroed before every convolution (as
a clip's own edge is), left out of batch statistics and of maxima, never seen by the GRU or the
pooling. So a clip scores the same alone and padded in a batch.

The preset `paper` is our reading of the paper's text and of the code it follows: its figure of the
network is missing from our copy. `fast` is ours. Both give 12.5 frames a second from 50.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from earmark.errors import SettingError, choose
from earmark.frames import FrameGrid, pooled_length
from earmark.nn.layers import Convolution, Dropout, Size, average_input, max_maps
from earmark.pooling import Pooling
from earmark.pooling.module import check_pooling


@dataclass(frozen=True)
class ModelConfig:
    """Every size of the network; the defaults are the preset `paper`.

    >>> ModelConfig(n_classes=17).frames(FrameGrid(50)).frame_rate
    Fraction(25, 2)
    """

    n_classes: int
    n_mels: int = 80
    input_pool: Size = (1, 1)  # averaging of the input
    channels: tuple[int, ...] = (64, 64, 64, 64)  # gated maps of each block
    n_convolutions: int = 2  # gated convolutions in each block
    kernel: int = 3
    pools: tuple[Size, ...] = ((2, 2), (2, 2), (1, 2), (1, 2))  # after each block
    last_channels: int = 256
    last_pool: Size = (1, 5)
    dropout: float = 0.2
    n_recurrent: int = 128  # in each direction; 0 is no GRU: a frame is heard by itself
    pooling: str = "linear"
    stages: tuple[int, ...] = (5, 5, 5)
    stage_weights: str = "self"

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:  # lists, as JSON and TOML have them, have no hash
            object.__setattr__(self, name, _as_tuples(getattr(self, name)))
        sizes = [self.n_classes, self.n_mels, *self.input_pool, *self.channels, *self.last_pool]
        sizes += [self.n_convolutions, self.kernel, self.last_channels]
        sizes += [size for pool in self.pools for size in pool]
        if any(type(size) is not int or size < 1 for size in sizes):
            raise SettingError(f"Sizes of a model are whole numbers of 1 or more. Got {self}.")
        if type(self.n_recurrent) is not int or self.n_recurrent < 0:
            raise SettingError(f"n_recurrent must be 0 (no GRU) or more. Got {self.n_recurrent!r}.")
        if self.kernel % 2 == 0:
            raise SettingError(f"kernel must be odd, to keep frames in place. Got {self.kernel}.")
        if len(self.pools) != len(self.channels) or not self.channels:
            raise SettingError(
                "channels and pools must have one entry for each block. "
                f"Got channels={self.channels}, pools={self.pools}."
            )
        if not 0 <= self.dropout < 1:
            raise SettingError(f"dropout must be from 0 to below 1. Got {self.dropout}.")
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
        """Input frames that become one output frame."""
        return prod(pool[0] for pool in (self.input_pool, *self.pools, self.last_pool))

    @property
    def receptive_field(self) -> int:
        """Input frames that one frame sees through the convolutions; the GRU sees the whole clip.

        >>> ModelConfig(n_classes=17).receptive_field
        56
        """
        seen = step = 1
        for layer in self.layers(self.time_pool):
            seen += (layer.kernel[0] - 1) * step
            step *= layer.stride[0]
        return seen

    def frames(self, grid: FrameGrid) -> FrameGrid:
        """Return the grid of the output, given that of the input."""
        return grid.pooled(self.time_pool)

    def n_frames(self, n_input_frames: int) -> int:
        """Return the number of output frames.

        >>> ModelConfig(n_classes=17).n_frames(500)
        125
        """
        return pooled_length(n_input_frames, self.time_pool)

    def operations(self, n_input_frames: int) -> int:
        """Return the multiply-adds of one clip's forward pass.

        >>> f"{ModelConfig(n_classes=17).operations(500):.3g}"
        '5.15e+09'
        """
        return sum(layer.operations for layer in self.layers(n_input_frames))

    def layers(self, n_input_frames: int) -> "Iterator[Layer]":
        """Walk through the network: name, output shape, parameters and multiply-adds of each layer.

        >>> [str(layer.shape) for layer in ModelConfig(n_classes=17).layers(500)][-2:]
        ['(125, 256)', '(125, 17)']
        """
        maps, frames, mels = 1, n_input_frames, self.n_mels

        def pool(name: str, size: Size) -> Layer:
            nonlocal frames, mels
            frames, mels = pooled_length(frames, size[0]), pooled_length(mels, size[1])
            return Layer(name, (maps, frames, mels), kernel=size, stride=size)

        def convolve(name: str, filters: int, out: int, extra: int) -> Layer:
            nonlocal maps
            weights, maps = maps * filters * self.kernel**2, out
            operations = weights * frames * mels
            kernel = (self.kernel, self.kernel)
            return Layer(name, (maps, frames, mels), weights + extra, operations, kernel)

        yield pool("input average", self.input_pool)
        for block, (channels, size) in enumerate(zip(self.channels, self.pools, strict=True), 1):
            for number in range(1, self.n_convolutions + 1):
                name = f"block {block}, gated convolution {number}"
                yield convolve(name, 2 * channels, channels, extra=4 * channels)  # batch norm
            yield pool(f"block {block}, max", size)
        last = self.last_channels
        yield convolve("last convolution", last, last, extra=2 * last)
        yield pool("last max", self.last_pool)
        wide, deep = maps * mels, self.n_recurrent
        if deep:
            gru = 2 * 3 * deep * (wide + deep)
            yield Layer("Bi-GRU", (frames, 2 * deep), gru + 2 * 6 * deep, gru * frames)
        dense = (2 * deep or wide) * self.n_classes
        yield Layer(
            "frame probabilities", (frames, self.n_classes), dense + self.n_classes, dense * frames
        )


class Layer(NamedTuple):
    """One row of the table of shapes: maps x frames x mels, or frames x features."""

    name: str
    shape: tuple[int, ...]
    n_parameters: int = 0
    operations: int = 0
    kernel: Size = (1, 1)
    stride: Size = (1, 1)


class Prediction(NamedTuple):
    """What the network says of a batch.

    Shape: `clip_probs` (batch, classes), `frame_probs` (batch, frames, classes), `hidden`
    (batch, frames, features), `mask` (batch, frames) or None if every frame is real.
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

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.blocks = nn.ModuleList()
        n_in = 1
        for channels in config.channels:
            block = nn.ModuleList()
            for _ in range(config.n_convolutions):
                block.append(Convolution(n_in, channels, config.kernel, gated=True))
                n_in = channels
            self.blocks.append(block)
        self.dropout = Dropout(config.dropout)
        self.last = Convolution(n_in, config.last_channels, config.kernel, gated=False)
        last_max = next(layer for layer in config.layers(1) if layer.name == "last max")
        n_hidden = config.last_channels * last_max.shape[2]
        self.recurrent: nn.GRU | None = None
        if config.n_recurrent:
            self.recurrent = nn.GRU(
                n_hidden, config.n_recurrent, batch_first=True, bidirectional=True
            )
            n_hidden = 2 * config.n_recurrent
        self.classifier = nn.Linear(n_hidden, config.n_classes)
        self.pooling = Pooling(
            config.pooling, config.stages, config.stage_weights, n_hidden, config.n_classes
        )

    def forward(self, log_mel: Tensor, mask: Tensor | None = None) -> Prediction:
        """See the class; `mask` (batch, frames) is True for real frames, padding comes last."""
        return self.classify(*self.encode(log_mel, mask))

    def encode(self, log_mel: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The convolutions: (batch, frames, mels) -> (batch, frames, features), and the mask."""
        self._check(log_mel, mask)
        maps, mask = average_input(log_mel, mask, self.config.input_pool)
        for block, size in zip(self.blocks, self.config.pools, strict=True):
            for convolution in block:  # type: ignore[attr-defined]
                maps = convolution(maps, mask)
            maps, mask = max_maps(self.dropout(maps), mask, size)
        maps, mask = max_maps(self.last(maps, mask), mask, self.config.last_pool)
        return maps.permute(0, 2, 1, 3).flatten(2), mask  # maps stacked on the frequency axis

    def classify(self, features: Tensor, mask: Tensor | None = None) -> Prediction:
        """What comes behind them: (batch, frames, features) -> the prediction."""
        hidden = self._recur(features, mask)
        logits = self.classifier(hidden)
        frame_probs = logits.to(torch.promote_types(logits.dtype, torch.float32)).sigmoid()
        if mask is not None:
            frame_probs = frame_probs.masked_fill(~mask.unsqueeze(2), 0)
        clip_probs = self.pooling(frame_probs, hidden, mask)
        return Prediction(clip_probs, frame_probs, hidden, mask)

    def _recur(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """(batch, frames, features) -> (batch, frames, hidden); backwards from the last real."""
        if self.recurrent is None:
            dropped: Tensor = self.dropout(features)
            return dropped
        if mask is None or not len(mask):  # packing wants a clip
            hidden: Tensor = self.recurrent(features)[0]
            return hidden
        # Packing wants a frame in every clip too; that of an empty clip is masked again later.
        lengths = mask.sum(1).clamp(min=1).cpu()
        packed = pack_padded_sequence(features, lengths, batch_first=True, enforce_sorted=False)
        unpacked, _ = pad_packed_sequence(
            self.recurrent(packed)[0], batch_first=True, total_length=features.shape[1]
        )
        return unpacked

    def _check(self, log_mel: Tensor, mask: Tensor | None) -> None:
        if log_mel.dim() != 3 or log_mel.shape[1] == 0 or log_mel.shape[2] != self.config.n_mels:
            raise SettingError(
                f"The model takes log-mels (batch, frames, {self.config.n_mels}) of at least one "
                f"frame. Got shape {tuple(log_mel.shape)}."
            )
        if mask is None:
            return
        if mask.shape != log_mel.shape[:2] or mask.dtype != torch.bool:
            raise SettingError(
                f"mask must be a bool tensor of shape {tuple(log_mel.shape[:2])}. "
                f"Got {mask.dtype} of shape {tuple(mask.shape)}."
            )
        if (mask[:, 1:] & ~mask[:, :-1]).any():
            raise SettingError("mask must be True for the first frames of a clip, then False.")


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
