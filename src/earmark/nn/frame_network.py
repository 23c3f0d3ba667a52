"""Networks with layers of maps that score frames and pool them to clips.

A derived class makes its layers of maps and lists them. The table of layers, the receptive field,
the time pooling and the fused network for inference all come from that list. What follows is the
same for all: a GRU, if there is one, a classifier of frames, and the pooling from frames to clips.
"""

from abc import abstractmethod
from math import prod

import torch
from torch import Tensor

from earmark.errors import SettingError
from earmark.nn.capsules import ClassCapsules
from earmark.nn.layers import Classifier, Dropout, Layer, MapLayer, Maps, fill_padding
from earmark.nn.loss import clip_loss
from earmark.nn.network import MAX_SIZE, Network, NetworkConfig, Prediction
from earmark.nn.recurrent import BiGRU, GatedBiGRU
from earmark.pooling import POOLINGS, Pooling
from earmark.pooling.module import check_pooling

MAX_STAGES = 64


class FrameNetworkConfig(NetworkConfig):
    """What the configurations of all networks with layers of maps have.

    >>> from earmark.nn.model import ModelConfig
    >>> ModelConfig(n_classes=17).pooling
    'linear'
    """

    dropout: float
    n_recurrent: int = 0  # a network without a choice has no GRU
    pooling: str
    stages: tuple[int, ...]
    stage_weights: str

    def check(self, sizes: list[int]) -> None:
        """See `NetworkConfig.check`."""
        super().check(sizes)
        if type(self.n_recurrent) is not int or not 0 <= self.n_recurrent <= MAX_SIZE:
            raise SettingError(
                f"n_recurrent must be 0 (no GRU) or more, up to {MAX_SIZE}. "
                f"Got {self.n_recurrent!r}."
            )
        self.check_shares("dropout")
        stages = check_pooling(self.pooling, self.stages, self.stage_weights)
        if len(stages) > MAX_STAGES or any(stage > MAX_SIZE for stage in stages):
            raise SettingError(
                f"stages must be at most {MAX_STAGES} numbers of up to {MAX_SIZE}. Got {stages}."
            )
        object.__setattr__(self, "stages", stages)

    @property
    def mixes_classes(self) -> bool:
        """See `NetworkConfig.mixes_classes`."""
        return POOLINGS[self.pooling].mixes_classes

    @property
    def pooling_name(self) -> str:
        """See `NetworkConfig.pooling_name`."""
        return self.pooling


class FrameNetwork(Network):
    """Layers of maps, a GRU, a classifier of frames and the pooling.

    A derived class makes its layers of maps, returns them in `map_layers`, and then calls
    `finish`, which adds the GRU, the classifier and the pooling.
    """

    config: FrameNetworkConfig
    recurrent: BiGRU | GatedBiGRU | None
    classifier: Classifier | ClassCapsules

    def finish(self) -> None:
        """Add what follows the layers of maps."""
        config = self.config
        *_, (maps, _, mels) = (layer.shape for layer in self._describe_encoder(1))
        n_hidden = maps * mels
        self.dropout = Dropout(config.dropout)  # in place of the GRU
        self.register_module("recurrent", None)
        if config.n_recurrent:
            self.recurrent = self.make_recurrent(n_hidden)
            n_hidden = 2 * config.n_recurrent
        self.classifier = self.make_classifier(n_hidden)
        self.pooling = Pooling(
            config.pooling, config.stages, config.stage_weights, n_hidden, config.n_classes
        )

    def make_recurrent(self, n_features: int) -> BiGRU | GatedBiGRU:
        """Return the recurrent layer, of `n_recurrent` per direction, on so many features."""
        return BiGRU(n_features, self.config.n_recurrent)

    def make_classifier(self, n_hidden: int) -> Classifier | ClassCapsules:
        """Return the layer that makes frame probabilities of so many hidden values per frame."""
        return Classifier(n_hidden, self.config.n_classes)

    @abstractmethod
    def map_layers(self) -> list[tuple[str, MapLayer]]:
        """Return the layers up to the GRU, in order, with the names of their blocks."""

    def to_maps(self, features: Tensor) -> Tensor:
        """Return the input (batch, frames, features) as maps: one map with a mel per feature."""
        return features.unsqueeze(1)

    def map_shape(self, n_frames: int) -> tuple[int, int, int]:
        """Return the shape (maps, frames, mels) of what `to_maps` returns for a clip."""
        return 1, n_frames, self.config.n_features

    def encode(self, features: Tensor, mask: Tensor | None = None) -> Maps:
        """Run the layers of maps; see `Network.encode`."""
        self.check_input(features, mask)
        maps = fill_padding(self.to_maps(features), mask)
        for _, layer in self.map_layers():
            maps, mask = layer(maps, mask)
        return maps.permute(0, 2, 1, 3).flatten(2), mask  # maps stacked on the frequency axis

    def classify(self, features: Tensor, mask: Tensor | None = None) -> Prediction:
        """Run the GRU, the classifier and the pooling; see `Network.classify`."""
        hidden = self.recur(features, mask)
        frame_probs = self.classifier(hidden, mask)
        if not self.training:
            return Prediction(self.pooling(frame_probs, hidden, mask), frame_probs, hidden, mask)
        clip_probs, stages = self.pooling(frame_probs, hidden, mask, return_stages=True)
        return Prediction(clip_probs, frame_probs, hidden, mask, stages=tuple(stages))

    def level_loss(self, prediction: Prediction, targets: Tensor) -> Tensor:
        """See `Network.level_loss`."""
        lower = self.pooling.lower_levels(prediction.stages)
        if not lower:
            return super().level_loss(prediction, targets)
        return torch.stack([clip_loss(probs, targets) for probs in lower]).mean()

    def recur(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Run the GRU, or dropout in its place: what the classifier and the pooling take.

        >>> import torch
        >>> from earmark.nn.model import Model, ModelConfig
        >>> model = Model(ModelConfig.preset("paper-fast", n_classes=3)).eval()
        >>> model.recur(torch.zeros(2, 125, 96)).shape
        torch.Size([2, 125, 128])
        """
        if self.recurrent is None:
            return self.dropout.drop(features)
        hidden: Tensor = self.recurrent(features, mask)
        return hidden

    def layers(self, n_input_frames: int) -> list[Layer]:
        """See `Network.layers`."""
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
        """See `Network.time_pool`."""
        return prod(layer.stride[0] for layer in self._describe_encoder(1))

    @property
    def encoder_pool(self) -> int:
        """See `Network.encoder_pool`."""
        return self.time_pool

    @property
    def receptive_field(self) -> int:
        """See `Network.receptive_field`."""
        seen = step = 1
        for layer in self._describe_encoder(1):
            seen += (layer.kernel[0] - 1) * step
            step *= layer.stride[0]
        return seen

    def _describe_encoder(self, n_frames: int) -> list[Layer]:
        return describe_layers(self.map_layers(), self.map_shape(n_frames))


def describe_layers(layers: list[tuple[str, MapLayer]], shape: tuple[int, ...]) -> list[Layer]:
    """Return the rows of a table of layers of maps, given their names and the shape of the input.

    >>> describe_layers([("block 1, ", Dropout(0.2))], (1, 500, 80))[0].name
    'block 1, dropout'
    """
    rows: list[Layer] = []
    for block, module in layers:
        row = module.describe(shape)
        rows.append(row._replace(name=block + row.name))
        shape = row.shape
    return rows
