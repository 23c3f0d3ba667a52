"""A network of your own: dilated convolutions over time, from log-mels to frame embeddings.

earmark train --train clips.tsv --audio audio --set model.network=own_network:DilatedConfig
earmark --import own_network detect street.wav --model run/model.earmark
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from earmark.nn import EmbeddingConfig, register_network

DILATIONS = (1, 2, 4, 8)


@register_network
@dataclass(frozen=True)
class DilatedConfig(EmbeddingConfig):
    """Its settings; `--set model.width=64` changes one."""

    n_context: ClassVar[int | None] = 1 + 2 * sum(DILATIONS)  # frames that an embedding depends on

    width: int = 32

    @property
    def n_embedding(self) -> int:
        """Values per embedding."""
        return self.width

    def make_encoder(self) -> nn.Module:
        """Return the module."""
        return Dilated(self.n_features, self.width)


class Dilated(nn.Module):
    """(batch, frames, features) -> (batch, frames, width)."""

    def __init__(self, n_features: int, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(n_features, width)
        self.layers = nn.ModuleList(
            nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
            for dilation in DILATIONS
        )

    def forward(self, frames: Tensor) -> Tensor:
        """See the class; clips of one length, without padding."""
        maps = self.first(frames).transpose(1, 2)
        for layer in self.layers:
            maps = maps + layer(maps).relu()
        return maps.transpose(1, 2)
