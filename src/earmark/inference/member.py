"""A trained network of a model file: what it takes, its sizes, its weights and its window.

A model file has one member, or several that predict as one (`earmark.inference.ensemble`). Members
may be checkpoints of one training, or different networks with different features.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from earmark.data.features import FeatureConfig
from earmark.errors import SettingError
from earmark.frames import FrameGrid
from earmark.nn.network import Network, NetworkConfig

MAX_WINDOW = 86_400.0  # seconds
WINDOW = 10.0  # seconds, where a file of an old format has none


@dataclass(frozen=True)
class Member:
    """A trained network with its features.

    Args:
        feature_config: how a waveform becomes the network's input, normalisation included.
        model_config: the sizes of the network.
        weights: its parameters and statistics, by name.
        window: seconds that the network processes at a time.

    >>> from earmark.nn.model import ModelConfig
    >>> config = ModelConfig.preset("fast", n_classes=2)
    >>> Member(FeatureConfig(), config, config.build().state_dict()).grid.frame_rate
    Fraction(25, 2)
    """

    feature_config: FeatureConfig
    model_config: NetworkConfig
    weights: Mapping[str, Tensor]
    window: float = WINDOW

    def __repr__(self) -> str:
        config = self.model_config
        return (
            f"Member({config.network}, {config.n_classes} classes, {self.n_parameters:,} "
            f"parameters, window of {self.window:g} s)"
        )

    def __post_init__(self) -> None:
        is_number = isinstance(self.window, float | int) and not isinstance(self.window, bool)
        if not (is_number and 0 < self.window <= MAX_WINDOW):
            raise SettingError(
                f"window must be a number of seconds above 0, up to {MAX_WINDOW:g}. "
                f"Got {self.window!r}."
            )
        if self.feature_config.n_features != self.model_config.n_features:
            raise SettingError(
                f"The network takes {self.model_config.n_features} values per frame, and the "
                f"features have {self.feature_config.n_features}."
            )

    @property
    def grid(self) -> FrameGrid:
        """The frame grid of its scores."""
        return self.model_config.output_grid(self.feature_config.grid)

    @property
    def n_parameters(self) -> int:
        """The number of its parameters and statistics."""
        return sum(value.numel() for value in self.weights.values())

    def check_weights(self) -> None:
        """Raise `SettingError` unless the weights are those of the network.

        Nothing is allocated: a description of a huge network costs nothing here.
        """
        n_layers = self.model_config.n_layers
        if n_layers > len(self.weights):
            raise SettingError(
                f"The network has {n_layers} convolutions or more. Got {len(self.weights)} tensors."
            )
        with torch.device("meta"):
            wanted = self.model_config.build().state_dict()
        shapes = {name: tuple(value.shape) for name, value in self.weights.items()}
        for name, value in wanted.items():
            if shapes.get(name) != tuple(value.shape):
                raise SettingError(
                    f"The network's {name} must have the shape {tuple(value.shape)}. "
                    f"Got {shapes.get(name, 'none')}."
                )
        unknown = sorted(set(shapes) - set(wanted))
        if unknown:
            raise SettingError(f"The network has no weights {unknown[0]!r}.")

    def build_model(self) -> Network:
        """Return the network, ready to predict."""
        with torch.random.fork_rng(devices=()):  # its first weights are drawn, and overwritten
            model = self.model_config.build()
        model.load_state_dict(dict(self.weights))  # half precision becomes single here
        return model.eval()

    def select(self, columns: Sequence[int]) -> "Member":
        """Return the network of some classes alone, in this order; their scores stay the same.

        Args:
            columns: of the classes in the network's output.
        """
        if self.model_config.mixes_classes:
            pooling = self.model_config.pooling_name
            with_pooling = f" with the pooling {pooling}" if pooling else ""
            raise SettingError(
                f"The network {self.model_config.network}{with_pooling} weighs classes against "
                "each other; use it with all of its classes."
            )
        rows, axes = torch.tensor(columns), self.model_config.class_axes()
        weights = {
            name: value.index_select(axes[name], rows) if name in axes else value
            for name, value in self.weights.items()
        }
        config = self.model_config.changed(n_classes=len(rows))
        return replace(self, model_config=config, weights=weights)

    def halved(self) -> "Member":
        """Return the same network in half precision, for a file of half the size."""
        return replace(self, weights={name: _halved(w) for name, w in self.weights.items()})

    def with_encoder(self, file: str) -> "Member":
        """Return the same network with the place of its encoder's file; its hash stays the same."""
        encoder = self.feature_config.encoder
        assert encoder is not None
        moved = replace(self.feature_config, encoder=replace(encoder, file=file))
        return replace(self, feature_config=moved)


def _halved(weights: Tensor) -> Tensor:
    return weights.half() if weights.is_floating_point() else weights
