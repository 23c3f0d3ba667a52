"""Wang's CRNN: three plain convolutions and a Bi-GRU, the network of the linear softmax.

5 x 5 convolutions with bias and rectifier, without batch norm; each is followed by max pooling, the
last two also in time. The clip score is the linear softmax of the frame probabilities, single-level
as published; every pooling of `POOLINGS` can take its place. First weights are Xavier's uniform
ones, orthogonal in the GRU, and all biases are 0.

The originals pad clips with the number 0; here padding is masked, as in every network. TALNet, the
large version, is not this network.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from earmark.config import repr_of_changes
from earmark.nn.blocks import BlockConfig, make_blocks, named_layers
from earmark.nn.frame_network import FrameNetwork
from earmark.nn.layers import Convolution, Dropout, MapLayer, initialise
from earmark.runtime.kernels import Size


@dataclass(frozen=True)
class WangConfig(BlockConfig):
    """The sizes of Wang's CRNN; the defaults are the preset `full`.

    Args:
        n_classes: number of classes.
        n_mels: mels of the input.
        channels: maps per convolution.
        kernel: size of the convolutions in frames and mels, odd.
        pools: groups of (frames, mels) whose maximum is taken, one per convolution.
        dropout: share of values that are dropped in training, before every layer with weights.
        n_recurrent: width of the GRU per direction; 0 is no GRU.
        pooling: from frames to clips, one of `POOLINGS`.
        stages: segment lengths of hierarchical pooling; () is single-level pooling.
        stage_weights: one of `STAGE_WEIGHTS`.

    >>> WangConfig(n_classes=17).layers(500)[-2].shape
    (125, 200)
    """

    network: ClassVar[str] = "wang"

    n_classes: int
    n_mels: int = 80
    channels: tuple[int, ...] = (32, 64, 128)
    kernel: int = 5
    pools: tuple[Size, ...] = ((1, 2), (2, 2), (2, 2))
    dropout: float = 0.0
    n_recurrent: int = 100
    pooling: str = "linear"
    stages: tuple[int, ...] = ()
    stage_weights: str = "self"

    __repr__ = repr_of_changes

    def __post_init__(self) -> None:
        self.check_blocks([])

    def build(self) -> "Wang":
        """See `NetworkConfig.build`."""
        return Wang(self)

    @property
    def n_layers(self) -> int:
        """See `NetworkConfig.n_layers`."""
        return len(self.channels)


class Wang(FrameNetwork):
    """Wang's CRNN with its pooling: (batch, frames, mels) -> `Prediction`.

    >>> import torch
    >>> network = Wang(WangConfig.preset("fast", n_classes=3)).eval()
    >>> network(torch.zeros(2, 500, 80)).frame_probs.shape
    torch.Size([2, 125, 3])
    """

    config: WangConfig

    def __init__(self, config: WangConfig) -> None:
        super().__init__(config)
        self.blocks = make_blocks(config.channels, config.pools, self.make_layers)
        self.last_dropout = Dropout(config.dropout)
        self.finish()
        initialise(self)

    def make_layers(self, n_in: int, n_out: int) -> list[MapLayer]:
        """Return the layers of a block, up to its max pooling."""
        kernel, dropout = self.config.kernel, Dropout(self.config.dropout)
        return [dropout, Convolution(n_in, n_out, kernel, gated=False, norm="none", bias=True)]

    def map_layers(self) -> list[tuple[str, MapLayer]]:
        """See `FrameNetwork.map_layers`."""
        return [*named_layers(self.blocks), ("last ", self.last_dropout)]

    def recur(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Run the GRU, then dropout: there is dropout before the GRU and before the classifier."""
        hidden = features if self.recurrent is None else self.recurrent(features, mask)
        return self.dropout.drop(hidden)


_FULL = WangConfig(n_classes=1)

PRESETS: dict[str, WangConfig] = {
    "full": _FULL,
    "fast": _FULL.changed(channels=(10, 20, 40), n_recurrent=50),
    "native": _FULL.changed(n_mels=64),
}
WangConfig.presets = PRESETS
