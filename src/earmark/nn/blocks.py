"""Blocks of convolutions, each with its max pooling: the trunk of the networks on log-mels.

Conventions: a configuration has one entry of `channels` (maps) and of `pools` (frames, mels) per
block, and one odd `kernel`. The first block takes one map, the log-mel.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, cast

from torch import nn

from earmark.errors import SettingError
from earmark.nn.frame_network import FrameNetworkConfig
from earmark.nn.layers import MapLayer, MaxPool
from earmark.runtime.kernels import Size


class BlockConfig(FrameNetworkConfig):
    """What the configurations of networks on log-mels have.

    >>> from earmark.nn.model import ModelConfig
    >>> ModelConfig(n_classes=1, pools=[[2, 2], [2, 2], [1, 2], [1, 2]]).pools
    ((2, 2), (2, 2), (1, 2), (1, 2))
    """

    inputs: ClassVar[str] = "n_mels"

    n_mels: int
    channels: tuple[int, ...]
    kernel: int
    pools: tuple[Size, ...]

    def check_blocks(self, sizes: Iterable[int]) -> None:
        """Raise `SettingError` unless these sizes, the blocks and all that is common are valid."""
        pools = [size for pool in self.pools for size in pool]
        self.check([*sizes, self.n_mels, self.kernel, *self.channels, *pools])
        check_odd(self.kernel)
        if len(self.pools) != len(self.channels) or not self.channels:
            raise SettingError(
                "channels and pools must have one entry per block. "
                f"Got channels={self.channels}, pools={self.pools}."
            )


def check_odd(kernel: int) -> None:
    """Raise `SettingError` unless the size of a convolution is odd.

    >>> check_odd(3)
    """
    if kernel % 2 == 0:
        raise SettingError(f"kernel must be odd, to keep frames in place. Got {kernel}.")


def make_blocks(
    channels: Sequence[int],
    pools: Sequence[Size],
    make_layers: Callable[[int, int], Iterable[MapLayer]],
) -> nn.ModuleList:
    """Return the blocks: the layers that turn so many maps into so many, and the max pooling.

    >>> from earmark.nn.layers import Convolution
    >>> len(make_blocks([8], [(2, 2)], lambda n_in, n_out: [Convolution(n_in, n_out, 3, True)])[0])
    2
    """
    blocks, n_in = nn.ModuleList(), 1
    for n_out, size in zip(channels, pools, strict=True):
        blocks.append(nn.ModuleList([*make_layers(n_in, n_out), MaxPool(size)]))
        n_in = n_out
    return blocks


def named_layers(blocks: nn.ModuleList) -> list[tuple[str, MapLayer]]:
    """Return the layers of all blocks with the names of their blocks, as `map_layers` does.

    >>> [name for name, _ in named_layers(make_blocks([8], [(2, 2)], lambda n_in, n_out: []))]
    ['block 1, ']
    """
    return [
        (f"block {number}, ", cast("MapLayer", layer))
        for number, block in enumerate(blocks, 1)
        for layer in cast("nn.ModuleList", block)
    ]
