"""What every network has: a configuration, layers of maps, a classifier and the pooling.

A network is two classes: a dataclass of its sizes, derived from `NetworkConfig`, and an `nn.Module`
derived from `Network`, which lists its layers. The table of layers, the receptive field, the time
pooling and the fused network for inference all come from that list. `earmark.nn.networks` has the
registry of all networks.

Conventions: input is (batch, frames, features), normalised; `mask` (batch, frames) is True for a
valid frame, and padding comes last in a clip. Time may be pooled, and an incomplete last group of
frames counts as one. Padding has no effect: it is zeroed before every convolution, as beyond a
clip's own end, excluded from batch statistics and maxima, and hidden from the GRU and the pooling.
So a clip scores the same alone and padded in a batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from math import prod
from typing import Any, ClassVar, NamedTuple, Self, cast

import torch
from torch import Tensor, nn

from earmark.errors import SettingError, choose
from earmark.frames import FrameGrid, pooled_length
from earmark.nn.capsules import ClassCapsules
from earmark.nn.layers import Classifier, Dropout, Layer, MapLayer, Maps, fill_padding
from earmark.nn.recurrent import BiGRU, GatedBiGRU
from earmark.pooling import POOLINGS, Pooling
from earmark.pooling.module import check_pooling


class NetworkConfig(ABC):
    """What the configurations of all networks have; each is a frozen dataclass.

    `network` is its name in the registry, `inputs` the field with the size of an input frame, and
    `presets` are configurations with a name.

    >>> from earmark.nn.model import ModelConfig
    >>> ModelConfig(n_classes=17).network
    'crnn'
    """

    network: ClassVar[str]
    inputs: ClassVar[str]
    presets: ClassVar[Mapping[str, "NetworkConfig"]] = {}

    n_classes: int
    dropout: float
    n_recurrent: int = 0  # a network without a choice has no GRU
    pooling: str
    stages: tuple[int, ...]
    stage_weights: str

    @abstractmethod
    def build(self) -> "Network":
        """Return the network, with its first weights.

        >>> from earmark.nn.model import ModelConfig
        >>> type(ModelConfig(n_classes=17).build()).__name__
        'Model'
        """

    @property
    @abstractmethod
    def n_layers(self) -> int:
        """A lower bound of the number of its tensors, to refuse an absurd description early."""

    def check(self, sizes: list[int]) -> None:
        """Raise `SettingError` unless the sizes and the fields that all networks have are valid."""
        if any(type(size) is not int or size < 1 for size in [self.n_classes, *sizes]):
            raise SettingError(f"The sizes of a model must be integers of 1 or more. Got {self}.")
        if type(self.n_recurrent) is not int or self.n_recurrent < 0:
            raise SettingError(f"n_recurrent must be 0 (no GRU) or more. Got {self.n_recurrent!r}.")
        if not 0 <= self.dropout < 1:
            raise SettingError(f"dropout must be at least 0 and below 1. Got {self.dropout}.")
        stages = check_pooling(self.pooling, self.stages, self.stage_weights)
        object.__setattr__(self, "stages", stages)

    @classmethod
    def preset(cls, name: str, n_classes: int, **changes: Any) -> Self:
        """Return a named configuration, with `changes` to its fields.

        >>> from earmark.nn.model import ModelConfig
        >>> ModelConfig.preset("fast", n_classes=17, pooling="attention").channels
        (16, 32, 32, 48)
        """
        preset = cls.presets[choose("model preset", name, cls.presets)]
        known = set(cast("Any", cls).__dataclass_fields__)
        for change in changes:
            choose("model setting", change, known)
        return cast("Self", preset.changed(n_classes=n_classes, **changes))

    def changed(self, **changes: Any) -> Self:
        """Return a copy with some fields changed.

        >>> from earmark.nn.model import ModelConfig
        >>> ModelConfig(n_classes=17).changed(n_classes=3).n_classes
        3
        """
        return cast("Self", replace(cast("Any", self), **changes))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a file; the first network, "crnn", is not named in them.

        >>> from earmark.nn.head import HeadConfig
        >>> HeadConfig(n_classes=17).to_dict()["network"]
        'head'
        """
        name = {} if self.network == "crnn" else {"network": self.network}
        return {**name, **asdict(cast("Any", self))}

    @property
    def n_features(self) -> int:
        """Values per input frame.

        >>> from earmark.nn.model import ModelConfig
        >>> ModelConfig(n_classes=17).n_features
        80
        """
        size: int = getattr(self, self.inputs)
        return size

    @property
    def time_pool(self) -> int:
        """Number of input frames per output frame.

        >>> from earmark.nn.model import ModelConfig
        >>> ModelConfig(n_classes=17).time_pool
        4
        """
        return _on_meta(self).time_pool

    @property
    def receptive_field(self) -> int:
        """Number of input frames that one output frame depends on through the convolutions.

        >>> from earmark.nn.model import ModelConfig
        >>> ModelConfig(n_classes=17).receptive_field
        56
        """
        return _on_meta(self).receptive_field

    @property
    def mixes_classes(self) -> bool:
        """Whether the probability of a class depends on those of other classes.

        >>> from earmark.nn.model import ModelConfig
        >>> ModelConfig(n_classes=17, pooling="class-attention").mixes_classes
        True
        """
        return POOLINGS[self.pooling].mixes_classes

    def output_grid(self, grid: FrameGrid) -> FrameGrid:
        """Return the frame grid of the output, given that of the input.

        >>> from earmark.nn.model import ModelConfig
        >>> ModelConfig(n_classes=17).output_grid(FrameGrid(50)).frame_rate
        Fraction(25, 2)
        """
        return grid.pooled(self.time_pool)

    def n_frames(self, n_input_frames: int) -> int:
        """Return the number of output frames.

        >>> from earmark.nn.model import ModelConfig
        >>> ModelConfig(n_classes=17).n_frames(500)
        125
        """
        return pooled_length(n_input_frames, self.time_pool)

    def operations(self, n_input_frames: int) -> int:
        """Return the number of multiply-adds in the forward pass of one clip.

        >>> from earmark.nn.model import ModelConfig
        >>> f"{ModelConfig(n_classes=17).operations(500):.3g}"
        '5.15e+09'
        """
        return sum(layer.operations for layer in self.layers(n_input_frames))

    def layers(self, n_input_frames: int) -> list[Layer]:
        """Return `Network.layers` without allocating a network.

        >>> from earmark.nn.model import ModelConfig
        >>> [str(layer.shape) for layer in ModelConfig(n_classes=17).layers(500)][-2:]
        ['(125, 256)', '(125, 17)']
        """
        return _on_meta(self).layers(n_input_frames)


@lru_cache(maxsize=64)
def _on_meta(config: NetworkConfig) -> "Network":
    """Return the network without storage for its parameters, to ask it about its layers."""
    with torch.device("meta"):
        return config.build()


class Prediction(NamedTuple):
    """The output of the network for a batch.

    Shape: `clip_probs` (batch, classes), `frame_probs` (batch, frames, classes), `hidden`
    (batch, frames, features), `mask` (batch, frames) or None if every frame is valid.
    """

    clip_probs: Tensor
    frame_probs: Tensor
    hidden: Tensor
    mask: Tensor | None


class Network(nn.Module, ABC):
    """A network with its pooling: (batch, frames, features) -> `Prediction`.

    A derived class makes its layers of maps, returns them in `map_layers`, and then calls
    `finish`, which adds the GRU, the classifier and the pooling.
    """

    recurrent: BiGRU | GatedBiGRU | None
    classifier: Classifier | ClassCapsules

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config

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

    def forward(self, log_mel: Tensor, mask: Tensor | None = None) -> Prediction:
        """See the class; `mask` (batch, frames) is True for valid frames, padding comes last."""
        return self.classify(*self.encode(log_mel, mask))

    def encode(self, log_mel: Tensor, mask: Tensor | None = None) -> Maps:
        """Run the convolutions: (batch, frames, mels) -> (batch, frames, features), and the mask.

        >>> from earmark.nn.model import Model, ModelConfig
        >>> model = Model(ModelConfig.preset("fast", n_classes=3)).eval()
        >>> model.encode(torch.zeros(2, 500, 80))[0].shape
        torch.Size([2, 125, 96])
        """
        self._check(log_mel, mask)
        maps = fill_padding(self.to_maps(log_mel), mask)
        for _, layer in self.map_layers():
            maps, mask = layer(maps, mask)
        return maps.permute(0, 2, 1, 3).flatten(2), mask  # maps stacked on the frequency axis

    def classify(self, features: Tensor, mask: Tensor | None = None) -> Prediction:
        """Run what follows the convolutions: (batch, frames, features) -> the prediction.

        >>> from earmark.nn.model import Model, ModelConfig
        >>> model = Model(ModelConfig.preset("fast", n_classes=3)).eval()
        >>> model.classify(torch.zeros(2, 125, 96)).frame_probs.shape
        torch.Size([2, 125, 3])
        """
        hidden = self.recur(features, mask)
        frame_probs = self.classifier(hidden, mask)
        return Prediction(self.pooling(frame_probs, hidden, mask), frame_probs, hidden, mask)

    def recur(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Run the GRU, or dropout in its place: what the classifier and the pooling take.

        >>> from earmark.nn.model import Model, ModelConfig
        >>> model = Model(ModelConfig.preset("fast", n_classes=3)).eval()
        >>> model.recur(torch.zeros(2, 125, 96)).shape
        torch.Size([2, 125, 128])
        """
        if self.recurrent is None:
            return self.dropout.drop(features)
        hidden: Tensor = self.recurrent(features, mask)
        return hidden

    def fused(self) -> "Network":
        """Return the network for inference, with batch norm folded into the convolutions.

        What has nothing to fold (GRU, classifier, pooling) is shared with this network.

        >>> from earmark.nn.model import Model, ModelConfig
        >>> model = Model(ModelConfig.preset("fast", n_classes=3)).eval()
        >>> log_mel = torch.randn(2, 500, 80)
        >>> with torch.no_grad():
        ...     torch.allclose(model.fused()(log_mel).clip_probs, model(log_mel).clip_probs)
        True
        """
        network = type(self).__new__(type(self))
        nn.Module.__init__(network)
        network.config = self.config
        for name, module in self._modules.items():
            network.register_module(name, None if module is None else _fused(module))
        return network.eval()

    def layers(self, n_input_frames: int) -> list[Layer]:
        """Return name, output shape, parameters and multiply-adds of each layer, in order.

        The pooling from frames to clips is left out.

        >>> from earmark.nn.model import Model, ModelConfig
        >>> [layer.shape for layer in Model(ModelConfig(n_classes=17)).layers(500)][-2:]
        [(125, 256), (125, 17)]
        """
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
        """Number of input frames per output frame."""
        return prod(layer.stride[0] for layer in self._describe_encoder(1))

    @property
    def receptive_field(self) -> int:
        """Number of input frames that one output frame depends on through the convolutions."""
        seen = step = 1
        for layer in self._describe_encoder(1):
            seen += (layer.kernel[0] - 1) * step
            step *= layer.stride[0]
        return seen

    def _describe_encoder(self, n_frames: int) -> list[Layer]:
        layers: list[Layer] = []
        shape: tuple[int, ...] = self.map_shape(n_frames)
        for block, module in self.map_layers():
            layer = module.describe(shape)
            layers.append(layer._replace(name=block + layer.name))
            shape = layer.shape
        return layers

    def _check(self, log_mel: Tensor, mask: Tensor | None) -> None:
        size = self.config.n_features
        if log_mel.dim() != 3 or log_mel.shape[1] == 0 or log_mel.shape[2] != size:
            raise SettingError(
                f"log_mel must have the shape (batch, frames, {size}) with at least one frame. "
                f"Got shape {tuple(log_mel.shape)}."
            )
        if mask is None:
            return
        if mask.shape != log_mel.shape[:2] or mask.dtype != torch.bool:
            raise SettingError(
                f"mask must be a bool tensor of shape {tuple(log_mel.shape[:2])}. "
                f"Got {mask.dtype} of shape {tuple(mask.shape)}."
            )
        if (mask[:, 1:] & ~mask[:, :-1]).any():
            raise SettingError("mask must be True for the first frames of each clip, then False.")


def _fused(module: nn.Module) -> nn.Module:
    if isinstance(module, nn.ModuleList):
        return nn.ModuleList(_fused(inner) for inner in module)
    return module.fused() if isinstance(module, MapLayer) else module
