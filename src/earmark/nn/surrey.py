"""Surrey's gated CRNN (Xu et al., first in DCASE 2017 task 4): the product of two Bi-GRUs.

Eight gated convolutions as in `earmark.nn.model`, one more with bias and rectifier but without
batch norm, two Bi-GRUs in parallel whose outputs are multiplied, and attention over the classes
that is computed from the frame probabilities. There is no dropout.

Three choices are ours. In the released code the fourth max pooling reads the output of the seventh
gated convolution, so that the eighth has no effect; here it is connected unless `as_released`. The
two GRUs are the usual ones with tanh: see `GatedBiGRU`. And the guard of the attention, weights of
1e-7 or more in the denominator, is that of all poolings here: only ratios of weights matter.

The attention over the classes is the pooling "probs-attention"; "attention" is the one over time,
from the hidden values. First weights are those of `earmark.nn.layers.initialise`.
"""

from dataclasses import dataclass
from typing import ClassVar, cast

from torch import nn

from earmark.config import repr_of_changes
from earmark.nn.layers import Convolution, initialise
from earmark.nn.model import Model, ModelConfig
from earmark.nn.recurrent import GatedBiGRU


@dataclass(frozen=True)
class SurreyConfig(ModelConfig):
    """The sizes of Surrey's network; the defaults are the preset `full`.

    The fields are those of `ModelConfig`, and one more.

    Args:
        as_released: leave out the last gated convolution, which has no effect in the released code.

    >>> len(SurreyConfig(n_classes=17).layers(500)), SurreyConfig(n_classes=17).dropout
    (21, 0.0)
    """

    network: ClassVar[str] = "surrey"

    dropout: float = 0.0
    pooling: str = "probs-attention"
    stages: tuple[int, ...] = ()
    as_released: bool = False

    __repr__ = repr_of_changes

    def build(self) -> "Surrey":
        """See `NetworkConfig.build`."""
        return Surrey(self)

    @property
    def n_layers(self) -> int:
        """See `NetworkConfig.n_layers`."""
        return super().n_layers - self.as_released


class Surrey(Model):
    """Surrey's gated CRNN with its pooling: (batch, frames, mels) -> `Prediction`.

    >>> import torch
    >>> network = Surrey(SurreyConfig.preset("fast", n_classes=3)).eval()
    >>> network(torch.zeros(2, 500, 80)).frame_probs.shape
    torch.Size([2, 125, 3])
    """

    config: SurreyConfig

    def __init__(self, config: SurreyConfig) -> None:
        super().__init__(config)
        if config.as_released:
            del cast("nn.ModuleList", self.blocks[-1])[config.n_convolutions - 1]
        initialise(self)

    def make_last(self, n_in: int) -> Convolution:
        """See `Model.make_last`."""
        n_out, kernel = self.config.last_channels, self.config.kernel
        return Convolution(n_in, n_out, kernel, gated=False, norm="none", bias=True)

    def make_recurrent(self, n_features: int) -> GatedBiGRU:
        """See `FrameNetwork.make_recurrent`."""
        return GatedBiGRU(n_features, self.config.n_recurrent)


_FULL = SurreyConfig(n_classes=1)

PRESETS: dict[str, SurreyConfig] = {
    "full": _FULL,
    "fast": _FULL.changed(channels=(14, 14, 14, 14), last_channels=56, n_recurrent=28),
    # 24 frames per second: time is not pooled.
    "native": _FULL.changed(n_mels=64, pools=((1, 2),) * 4, last_pool=(1, 4)),
}
SurreyConfig.presets = PRESETS
