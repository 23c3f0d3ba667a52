"""Blocks of convolutions, each with its max pooling: the trunk of the networks on log-mels.

Conventions: a configuration has one entry of `channels` (maps) and of `pools` (frames, mels) per
block, and one odd `kernel`. The first block takes one map, the log-mel.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, cast

from torch import nn

from earmark.errors import SettingError
from earmark.nn.layers import MapLayer, MaxPool
from earmark.runtime.kernels import Size


class BlockSizes(Protocol):
    """The fields of a configuration that describe its blocks."""

    @property
    def channels(self) -> tuple[int, ...]:
        """Maps per block."""

    @property
    def pools(self) -> tuple[Size, ...]:
        """Groups of (frames, mels) whose maximum is taken, one per block."""

    @property
    def kernel(self) -> int:
        """Size of the convolutions in frames and mels."""


def tuples_for_lists(config: object) -> None:
    """Make tuples of the lists in a frozen configuration, which JSON and TOML give: for a hash.

    >>> from earmark.nn.model import ModelConfig
    >>> ModelConfig(n_classes=1, pools=[[2, 2], [2, 2], [1, 2], [1, 2]]).pools
    ((2, 2), (2, 2), (1, 2), (1, 2))
    """
    for name in cast("Any", config).__dataclass_fields__:
        object.__setattr__(config, name, _as_tuples(getattr(config, name)))


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list | tuple) else value


def sizes_of_blocks(config: BlockSizes) -> list[int]:
    """Return all sizes of the blocks, to be checked with those of the rest.

    >>> from earmark.nn.model import ModelConfig
    >>> sizes_of_blocks(ModelConfig(n_classes=1, channels=(8,), pools=((1, 2),)))
    [3, 8, 1, 2]
    """
    return [config.kernel, *config.channels, *(size for pool in config.pools for size in pool)]


def check_blocks(config: BlockSizes) -> None:
    """Raise `SettingError` unless the fields that describe the blocks fit together.

    >>> from earmark.nn.model import ModelConfig
    >>> check_blocks(ModelConfig(n_classes=1))
    """
    check_odd(config.kernel)
    if len(config.pools) != len(config.channels) or not config.channels:
        raise SettingError(
            "channels and pools must have one entry per block. "
            f"Got channels={config.channels}, pools={config.pools}."
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
