"""The network: a gated CRNN that maps a log-mel to frame and clip probabilities.

Conventions: input is (batch, frames, mels); `earmark.nn.network` describes masks, and what all
networks have. Time is pooled: n frames become ceil(n / 4).

`Model` is the only description of the network: see `Model.map_layers` and `earmark.nn.layers`.

The preset `paper` follows the paper's text and the code that it builds on; its figure of the
network is missing from our copy. `fast` is ours. Both turn 50 frames per second into 12.5.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, cast

from earmark.config import repr_of_changes
from earmark.nn.blocks import BlockConfig, make_blocks, named_layers
from earmark.nn.frame_network import FrameNetwork
from earmark.nn.layers import AveragePool, Convolution, Dropout, MapLayer, MaxPool
from earmark.runtime.kernels import Size


@dataclass(frozen=True)
class ModelConfig(BlockConfig):
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

    network: ClassVar[str] = "crnn"

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

    __repr__ = repr_of_changes

    def __post_init__(self) -> None:
        sizes = [*self.input_pool, self.n_convolutions, self.last_channels, *self.last_pool]
        self.check_blocks(sizes)

    def build(self) -> "Model":
        """See `NetworkConfig.build`."""
        return Model(self)

    @property
    def n_layers(self) -> int:
        """See `NetworkConfig.n_layers`."""
        return self.n_convolutions * len(self.channels)


class Model(FrameNetwork):
    """The gated CRNN with its pooling: (batch, frames, mels) -> `Prediction`.

    >>> import torch
    >>> model = Model(ModelConfig.preset("fast", n_classes=3)).eval()
    >>> prediction = model(torch.zeros(2, 500, 80))
    >>> prediction.frame_probs.shape, prediction.clip_probs.shape
    (torch.Size([2, 125, 3]), torch.Size([2, 3]))
    """

    config: ModelConfig

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.input_pool = AveragePool(config.input_pool)
        self.blocks = make_blocks(config.channels, config.pools, self.make_layers)
        self.last = self.make_last(config.channels[-1])
        self.last_pool = MaxPool(config.last_pool)
        self.finish()

    def make_layers(self, n_in: int, n_out: int) -> list[MapLayer]:
        """Return the layers of a block, up to its max pooling."""
        config, sizes = self.config, [n_in] + [n_out] * self.config.n_convolutions
        pairs = pairwise(sizes)
        layers = [Convolution(before, after, config.kernel, True) for before, after in pairs]
        return [*layers, Dropout(config.dropout)]

    def make_last(self, n_in: int) -> Convolution:
        """Return the convolution that follows the blocks."""
        return Convolution(n_in, self.config.last_channels, self.config.kernel, gated=False)

    def map_layers(self) -> list[tuple[str, MapLayer]]:
        """See `FrameNetwork.map_layers`."""
        first, last = ("input ", self.input_pool), [("last ", self.last), ("last ", self.last_pool)]
        return cast("list[tuple[str, MapLayer]]", [first, *named_layers(self.blocks), *last])


_PAPER = ModelConfig(n_classes=1)
_PAPER_FAST = replace(
    _PAPER,
    input_pool=(2, 2),
    channels=(16, 32, 32, 48),
    pools=((2, 2), (1, 2), (1, 2), (1, 1)),
    last_channels=96,
    n_recurrent=64,
)

# Name of a preset -> the sizes of its network.
PRESETS: dict[str, ModelConfig] = {
    "paper": _PAPER,
    "paper-fast": _PAPER_FAST,
    # What is never far from the best (docs/training.md, "The defaults").
    "fast": replace(_PAPER_FAST, n_recurrent=0, stages=()),
}
ModelConfig.presets = PRESETS
