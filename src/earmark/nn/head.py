"""A small network on the embeddings of a pretrained encoder.

Each feature of the encoder is a map with one mel: a projection, then convolutions in time, all with
batch norm, a rectifier and dropout. An encoder with short hops may have its frames averaged before.
"""

from dataclasses import dataclass
from typing import ClassVar, cast

from torch import Tensor, nn

from earmark.config import repr_of_changes
from earmark.nn.blocks import check_odd
from earmark.nn.frame_network import FrameNetwork, FrameNetworkConfig
from earmark.nn.layers import AveragePool, Convolution, Dropout, MapLayer


@dataclass(frozen=True)
class HeadConfig(FrameNetworkConfig):
    """The sizes of a network on embeddings.

    Args:
        n_classes: number of classes.
        n_features: values per frame of the encoder.
        input_pool: frames of the encoder that are averaged to one.
        n_hidden: maps of the projection and of the convolutions.
        n_convolutions: convolutions in time, after the projection; 0 is none.
        kernel: frames of a convolution, odd.
        input_dropout: share of the encoder's values that are dropped in training.
        dropout: share of values that are dropped in training, after each layer.
        n_recurrent: width of the GRU per direction; 0 is no GRU.
        pooling: from frames to clips, one of `POOLINGS`.
        stages: segment lengths of hierarchical pooling; () is single-level pooling.
        stage_weights: one of `STAGE_WEIGHTS`.

    >>> HeadConfig(n_classes=17, n_features=1024).receptive_field
    3
    """

    network: ClassVar[str] = "head"
    inputs: ClassVar[str] = "n_features"
    takes: ClassVar[tuple[str, ...]] = ("log-mel", "encoder")

    n_classes: int
    n_features: int = 80
    input_pool: int = 1
    n_hidden: int = 256
    n_convolutions: int = 1
    kernel: int = 3
    input_dropout: float = 0.2
    dropout: float = 0.5
    n_recurrent: int = 0
    pooling: str = "linear"
    stages: tuple[int, ...] = ()
    stage_weights: str = "self"

    __repr__ = repr_of_changes

    def __post_init__(self) -> None:
        sizes = [self.n_features, self.input_pool, self.n_hidden, self.kernel]
        self.check([*sizes, self.n_convolutions + 1])
        check_odd(self.kernel)
        self.check_shares("input_dropout")

    def build(self) -> "Head":
        """See `NetworkConfig.build`."""
        return Head(self)

    @property
    def n_layers(self) -> int:
        """See `NetworkConfig.n_layers`."""
        return self.n_convolutions + 1


class Head(FrameNetwork):
    """A projection and convolutions in time: (batch, frames, features) -> `Prediction`.

    >>> import torch
    >>> head = Head(HeadConfig(n_classes=3, n_features=1024)).eval()
    >>> head(torch.zeros(2, 63, 1024)).frame_probs.shape
    torch.Size([2, 63, 3])
    """

    config: HeadConfig

    def __init__(self, config: HeadConfig) -> None:
        super().__init__(config)
        self.input_pool = AveragePool((config.input_pool, 1))
        self.input_dropout = Dropout(config.input_dropout)
        self.projection = Convolution(config.n_features, config.n_hidden, 1, gated=False)
        self.convolutions = nn.ModuleList()
        for _ in range(config.n_convolutions):
            self.convolutions.append(Dropout(config.dropout))
            self.convolutions.append(
                Convolution(config.n_hidden, config.n_hidden, (config.kernel, 1), gated=False)
            )
        self.finish()

    def to_maps(self, features: Tensor) -> Tensor:
        """Return (batch, frames, features) as maps with one mel."""
        return features.transpose(1, 2).unsqueeze(3)

    def map_shape(self, n_frames: int) -> tuple[int, int, int]:
        """See `FrameNetwork.map_shape`."""
        return self.config.n_features, n_frames, 1

    def map_layers(self) -> list[tuple[str, MapLayer]]:
        """See `FrameNetwork.map_layers`."""
        layers = [self.input_pool, self.input_dropout, self.projection, *self.convolutions]
        return [("", layer) for layer in cast("list[MapLayer]", layers)]
