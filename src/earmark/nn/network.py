"""What every network has: a configuration, an encoder, a classifier and a loss.

A network is two classes: a dataclass of its sizes, derived from `NetworkConfig`, and an `nn.Module`
derived from `Network`. There are two kinds. A `FrameNetwork` (`earmark.nn.frame_network`) has
layers of maps, then scores frames and pools them to clips. A network on windows of a clip
(`earmark.nn.windows`) has nothing to compute before the clip is complete: its encoder passes frames
through, and its classifier does everything. `earmark.nn.networks` has the registry.

Conventions: input is (batch, frames, features), normalised; `mask` (batch, frames) is True for a
valid frame, and padding comes last in a clip. Time may be pooled, and an incomplete last group of
frames counts as one. Padding has no effect: it is zeroed before every convolution, as beyond a
clip's own end, excluded from batch statistics and maxima, and hidden from the GRU and the pooling.
So a clip scores the same alone and padded in a batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import copy
from dataclasses import asdict, replace
from functools import lru_cache
from math import prod
from typing import Any, ClassVar, NamedTuple, Self, cast

import torch
from torch import Tensor, nn

from earmark.errors import SettingError, choose, refusing
from earmark.frames import FrameGrid, pooled_length
from earmark.nn.layers import Layer, MapLayer, Maps
from earmark.nn.loss import clip_loss
from earmark.pooling.stages import Stage

MAX_SIZE = 2**20  # of any size of a network
MAX_PARAMETERS = 2 * 10**9  # 8 GB, and four times as much in training


class NetworkConfig(ABC):
    """What the configurations of all networks have; each is a frozen dataclass.

    `network` is its name in the registry, `inputs` the field with the size of an input frame,
    `takes` the kinds of features that it takes: "log-mel", "waveform" or "encoder".
    `learns_from_frames` is False for a network that learns from the tags of clips only, `exports`
    for one that has no graph for clips of any length. `presets` are configurations with a name.

    >>> from earmark.nn.model import ModelConfig
    >>> ModelConfig(n_classes=17).network
    'crnn'
    """

    network: ClassVar[str]
    inputs: ClassVar[str]
    takes: ClassVar[tuple[str, ...]] = ("log-mel",)
    learns_from_frames: ClassVar[bool] = True
    exports: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, "NetworkConfig"]] = {}

    n_classes: int

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
        """Raise `SettingError` unless the sizes and the fields that all networks have are valid.

        Lists, which JSON and TOML give, become tuples, which have a hash.
        """
        for name in cast("Any", self).__dataclass_fields__:
            object.__setattr__(self, name, _as_tuples(getattr(self, name)))
        sizes = [self.n_classes, *sizes]
        if any(type(size) is not int or not 1 <= size <= MAX_SIZE for size in sizes):
            raise SettingError(
                f"The sizes of a model must be integers of 1 or more, up to {MAX_SIZE}. Got {self}."
            )

    def check_parameters(self) -> None:
        """Raise `SettingError` if the network has more than `MAX_PARAMETERS`; allocates nothing.

        >>> from earmark.nn.model import ModelConfig
        >>> ModelConfig(n_classes=17, channels=(60_000,) * 4).check_parameters()
        Traceback (most recent call last):
            ...
        earmark.errors.SettingError: The network has ... parameters or more, and ...
        """
        with refusing("The network cannot be built", SettingError, "Use smaller sizes."):
            shapes = self.tensor_shapes()
        total = 0
        for shape in shapes.values():
            total += prod(shape)
            if total > MAX_PARAMETERS:
                raise SettingError(
                    f"The network has {total:,} parameters or more, and {MAX_PARAMETERS:,} are the "
                    "most that are trained; use smaller sizes."
                )

    def check_shares(self, *names: str) -> None:
        """Raise `SettingError` unless these fields, shares of values to drop, are valid."""
        for name in names:
            if not 0 <= getattr(self, name) < 1:
                raise SettingError(
                    f"{name} must be at least 0 and below 1. Got {getattr(self, name)}."
                )

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
    def segment(self) -> int:
        """Number of input frames of the segments that have one score each; 1 if frames have theirs.

        >>> from earmark.nn.model import ModelConfig
        >>> ModelConfig(n_classes=17).segment
        1
        """
        return 1

    @property
    def receptive_field(self) -> int:
        """Number of input frames that one frame of `Network.encode` depends on.

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
        return False

    @property
    def pooling_name(self) -> str:
        """The pooling function from frames to clips, one of `POOLINGS`; "" if there is none.

        >>> from earmark.nn.model import ModelConfig
        >>> ModelConfig(n_classes=17).pooling_name
        'linear'
        """
        return ""

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the name of each tensor of the network -> its shape.

        >>> from earmark.nn.model import ModelConfig
        >>> ModelConfig(n_classes=17).tensor_shapes()["classifier.weight"]
        (17, 256)
        """
        return {name: tuple(x.shape) for name, x in _on_meta(self).state_dict().items()}

    def class_axes(self) -> dict[str, int]:
        """Return the name of each tensor with one value or row per class -> the axis of classes.

        >>> from earmark.nn.model import ModelConfig
        >>> ModelConfig(n_classes=17).class_axes()
        {'classifier.weight': 0, 'classifier.bias': 0}
        """
        own = _on_meta(self).state_dict()
        more = _on_meta(self.changed(n_classes=self.n_classes + 1)).state_dict()
        pairs = {name: (value.shape, more[name].shape) for name, value in own.items()}
        return {
            name: next(axis for axis, size in enumerate(shape) if size != other[axis])
            for name, (shape, other) in pairs.items()
            if shape != other
        }

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

    def training_layers(self, n_input_frames: int) -> list[Layer]:
        """Return `Network.training_layers` without allocating a network.

        >>> from earmark.nn.model import ModelConfig
        >>> ModelConfig(n_classes=17).training_layers(500)[-1].shape
        (125, 17)
        """
        return _on_meta(self).training_layers(n_input_frames)


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list | tuple) else value


@lru_cache(maxsize=64)
def _on_meta(config: NetworkConfig) -> "Network":
    """Return the network without storage for its parameters, to ask it about its layers."""
    with torch.device("meta"):
        return config.build()


class WindowProbs(NamedTuple):
    """The probabilities that a part of a network gives each window of each clip, for its own loss.

    Shape: `probs` (batch, windows, classes), `mask` (batch, windows), True for a window that is
    there.
    """

    probs: Tensor
    mask: Tensor


class Prediction(NamedTuple):
    """The output of the network for a batch.

    Shape: `clip_probs` (batch, classes), `frame_probs` (batch, frames, classes), `hidden`
    (batch, frames, features), `mask` (batch, frames) or None if every frame is valid. `windows` has
    the probabilities of windows, of each part of a network on windows. `stages` has the levels of
    the pooling, from frames to clip, in training only.
    """

    clip_probs: Tensor
    frame_probs: Tensor
    hidden: Tensor
    mask: Tensor | None
    windows: tuple[WindowProbs, ...] = ()
    stages: tuple[Stage, ...] = ()


class Network(nn.Module, ABC):
    """(batch, frames, features) -> `Prediction`, in two steps.

    `encode` runs over recordings of any length, in parts; `classify` takes the clips, or windows of
    a recording, that it returned.
    """

    takes_masks: ClassVar[bool] = True  # False: clips of a batch must have the same length

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Prediction:
        """See the class; `mask` (batch, frames) is True for valid frames, padding comes last."""
        return self.classify(*self.encode(features, mask))

    def encode(self, features: Tensor, mask: Tensor | None = None) -> Maps:
        """Run the convolutions over recordings: (batch, frames, features) -> the same, and a mask.

        By default there are none, and frames are passed through, with zeros at padding.

        >>> from earmark.nn.model import Model, ModelConfig
        >>> model = Model(ModelConfig.preset("fast", n_classes=3)).eval()
        >>> model.encode(torch.zeros(2, 500, 80))[0].shape
        torch.Size([2, 125, 96])
        """
        self.check_input(features, mask)
        return features if mask is None else features.masked_fill(~mask.unsqueeze(2), 0), mask

    @abstractmethod
    def classify(self, features: Tensor, mask: Tensor | None = None) -> Prediction:
        """Run what follows `encode`: (batch, frames, features) -> the prediction.

        >>> from earmark.nn.model import Model, ModelConfig
        >>> model = Model(ModelConfig.preset("fast", n_classes=3)).eval()
        >>> model.classify(torch.zeros(2, 125, 96)).frame_probs.shape
        torch.Size([2, 125, 3])
        """

    def loss(self, prediction: Prediction, targets: Tensor) -> Tensor:
        """Return the loss of a batch of tagged clips, which training minimises.

        Shape: `targets` (batch, classes) -> ().

        >>> from earmark.nn.model import Model, ModelConfig
        >>> model = Model(ModelConfig.preset("fast", n_classes=3)).eval()
        >>> model.loss(model(torch.zeros(2, 500, 80)), torch.ones(2, 3)).shape
        torch.Size([])
        """
        return clip_loss(prediction.clip_probs, targets)

    def level_loss(self, prediction: Prediction, targets: Tensor) -> Tensor:
        """Return the mean loss of clips over the lower levels of hierarchical pooling.

        It is 0 if there is none: in a network without a hierarchy, or where a clip is so short that
        its first segment is all of it.

        Shape: `targets` (batch, classes) -> ().

        >>> from earmark.nn.model import Model, ModelConfig
        >>> model = Model(ModelConfig.preset("fast", n_classes=3)).train()
        >>> model.level_loss(model(torch.zeros(2, 500, 80)), torch.ones(2, 3)).shape
        torch.Size([])
        """
        return prediction.clip_probs.new_zeros(())

    @abstractmethod
    def layers(self, n_input_frames: int) -> list[Layer]:
        """Return name, output shape, parameters and multiply-adds of each layer, in order.

        The pooling from frames to clips is left out.

        >>> from earmark.nn.model import Model, ModelConfig
        >>> [layer.shape for layer in Model(ModelConfig(n_classes=17)).layers(500)][-2:]
        [(125, 256), (125, 17)]
        """

    def training_layers(self, n_input_frames: int) -> list[Layer]:
        """Return the same of a step of training, per clip; shapes are those of all outputs.

        A network on windows has theirs in front, (windows, maps, frames, mels), and may take fewer
        windows than in inference.

        >>> from earmark.nn.emsi import EmsiConfig
        >>> EmsiConfig(n_classes=17, windows=(100,)).build().training_layers(500)[0].shape
        (5, 32, 100, 80)
        """
        return self.layers(n_input_frames)

    @property
    @abstractmethod
    def time_pool(self) -> int:
        """Number of input frames per output frame."""

    @property
    def encoder_pool(self) -> int:
        """Number of input frames per frame of `encode`, of which `time_pool` is a multiple."""
        return 1

    @property
    def receptive_field(self) -> int:
        """Number of input frames that one frame of `encode` depends on."""
        return 1

    def fused(self) -> Self:
        """Return the network for inference, with batch norm folded into the convolutions.

        What has nothing to fold (GRU, classifier, pooling) is shared with this network.

        >>> from earmark.nn.model import Model, ModelConfig
        >>> model = Model(ModelConfig.preset("fast", n_classes=3)).eval()
        >>> log_mel = torch.randn(2, 500, 80)
        >>> with torch.no_grad():
        ...     torch.allclose(model.fused()(log_mel).clip_probs, model(log_mel).clip_probs)
        True
        """
        return cast("Self", _fused(self).eval())

    def check_input(self, features: Tensor, mask: Tensor | None) -> None:
        """Raise `SettingError` unless features and mask have shapes that the network takes."""
        size = self.config.n_features
        if features.dim() != 3 or features.shape[1] == 0 or features.shape[2] != size:
            raise SettingError(
                f"features must have the shape (batch, frames, {size}) with at least one frame. "
                f"Got shape {tuple(features.shape)}."
            )
        if mask is None:
            return
        if mask.shape != features.shape[:2] or mask.dtype != torch.bool:
            raise SettingError(
                f"mask must be a bool tensor of shape {tuple(features.shape[:2])}. "
                f"Got {mask.dtype} of shape {tuple(mask.shape)}."
            )
        if (mask[:, 1:] & ~mask[:, :-1]).any():
            raise SettingError("mask must be True for the first frames of each clip, then False.")


def _fused(module: nn.Module) -> nn.Module:
    """Return a copy of a module with its layers of maps fused; what has none is shared."""
    if isinstance(module, MapLayer):
        return module.fused()
    if not any(isinstance(inner, MapLayer) for inner in module.modules()):
        return module
    twin = copy(module)
    twin._modules = {
        name: None if inner is None else _fused(inner) for name, inner in module._modules.items()
    }
    return twin
