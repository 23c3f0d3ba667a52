"""GCCaps (Iqbal et al.): a gated CNN whose frame scores are the lengths of capsules, no recurrence.

Three blocks of two gated convolutions with bias, each followed by batch norm (after the gate, where
Surrey's is before it) and dropout; a convolution whose maps are grouped to primary capsules; class
capsules by routing, for each frame separately. The clip score is a mean of the lengths under a
sigmoid attention from the primary capsules, the pooling "sigmoid-attention".

On 80 mels time is pooled by 4, not by 8: 12.5 frames per second. First weights are those of
`earmark.nn.layers.initialise`, and of `ClassCapsules`.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from earmark.config import repr_of_changes
from earmark.nn.blocks import BlockConfig, make_blocks, named_layers
from earmark.nn.capsules import ClassCapsules, PrimaryCapsules
from earmark.nn.frame_network import FrameNetwork
from earmark.nn.layers import Convolution, Dropout, MapLayer, initialise
from earmark.runtime.kernels import Size


@dataclass(frozen=True)
class GCCapsConfig(BlockConfig):
    """The sizes of GCCaps; the defaults are the preset `full`.

    Args:
        n_classes: number of classes.
        n_mels: mels of the input.
        channels: gated maps per block.
        n_convolutions: gated convolutions per block.
        kernel: size of the convolutions in frames and mels, odd.
        pools: groups of (frames, mels) whose maximum is taken, one per block.
        n_groups: primary capsules per mel that is left.
        primary_size: components of a primary capsule.
        class_size: components of a class capsule.
        n_iterations: passes of the routing.
        dropout: share of values that are dropped in training, after each gated convolution.
        capsule_dropout: the same of the components of the primary capsules.
        pooling: from frames to clips, one of `POOLINGS`.
        stages: segment lengths of hierarchical pooling; () is single-level pooling.
        stage_weights: one of `STAGE_WEIGHTS`.

    >>> GCCapsConfig(n_classes=17).layers(500)[-2].shape  # 80 capsules of 4 components per frame
    (4, 125, 80)
    """

    network: ClassVar[str] = "gccaps"

    n_classes: int
    n_mels: int = 80
    channels: tuple[int, ...] = (64, 64, 64)
    n_convolutions: int = 2
    kernel: int = 3
    pools: tuple[Size, ...] = ((2, 2), (2, 2), (1, 2))
    n_groups: int = 16
    primary_size: int = 4
    class_size: int = 8
    n_iterations: int = 3
    dropout: float = 0.2
    capsule_dropout: float = 0.5
    pooling: str = "sigmoid-attention"
    stages: tuple[int, ...] = ()
    stage_weights: str = "self"

    __repr__ = repr_of_changes

    def __post_init__(self) -> None:
        sizes = [self.n_convolutions, self.n_groups, self.primary_size, self.class_size]
        self.check_blocks([*sizes, self.n_iterations])
        self.check_shares("capsule_dropout")

    def build(self) -> "GCCaps":
        """See `NetworkConfig.build`."""
        return GCCaps(self)

    @property
    def n_layers(self) -> int:
        """See `NetworkConfig.n_layers`."""
        return self.n_convolutions * len(self.channels)

    @property
    def mixes_classes(self) -> bool:
        """True: the routing divides every primary capsule among the classes.

        >>> GCCapsConfig(n_classes=17).mixes_classes
        True
        """
        return True


class GCCaps(FrameNetwork):
    """GCCaps with its pooling: (batch, frames, mels) -> `Prediction`.

    `hidden` holds the primary capsules of each frame, all capsules of the first component first.

    >>> import torch
    >>> network = GCCaps(GCCapsConfig.preset("fast", n_classes=3)).eval()
    >>> network(torch.zeros(2, 500, 80)).frame_probs.shape
    torch.Size([2, 125, 3])
    """

    config: GCCapsConfig

    def __init__(self, config: GCCapsConfig) -> None:
        super().__init__(config)
        self.blocks = make_blocks(config.channels, config.pools, self.make_layers)
        n_maps = config.n_groups * config.primary_size
        self.primary = Convolution(
            config.channels[-1],
            n_maps,
            config.kernel,
            gated=False,
            norm="none",
            bias=True,
            mel_stride=2,
        )
        self.capsules = PrimaryCapsules(config.primary_size)
        self.finish()
        self.dropout = Dropout(config.capsule_dropout)
        initialise(self)

    def make_layers(self, n_in: int, n_out: int) -> list[MapLayer]:
        """Return the layers of a block, up to its max pooling."""
        kernel, layers = self.config.kernel, list[MapLayer]()
        for before, after in pairwise([n_in] + [n_out] * self.config.n_convolutions):
            layers.append(Convolution(before, after, kernel, gated=True, norm="after", bias=True))
            layers.append(Dropout(self.config.dropout))
        return layers

    def make_classifier(self, n_hidden: int) -> ClassCapsules:
        """See `FrameNetwork.make_classifier`."""
        config = self.config
        return ClassCapsules(
            n_hidden, config.primary_size, config.n_classes, config.class_size, config.n_iterations
        )

    def map_layers(self) -> list[tuple[str, MapLayer]]:
        """See `FrameNetwork.map_layers`."""
        return [*named_layers(self.blocks), ("primary ", self.primary), ("", self.capsules)]


_FULL = GCCapsConfig(n_classes=1)

PRESETS: dict[str, GCCapsConfig] = {
    "full": _FULL,
    "fast": _FULL.changed(channels=(14, 14, 14)),
    # 3 frames per second.
    "native": _FULL.changed(n_mels=64, pools=((2, 2),) * 3),
}
GCCapsConfig.presets = PRESETS
