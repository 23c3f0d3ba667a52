"""Networks of your own: any module from input frames to frame embeddings, with all that follows.

Derive a dataclass from `EmbeddingConfig`, with the settings of your module as fields, and return
the module from `make_encoder`. A recurrent layer, if wanted, the classifier of frames and the
pooling to clips are added; training, tuning, detection, model files and comparison take it as any
other network. docs/networks.md has an example.

Conventions: the module maps (batch, frames, features) to (batch, embeddings, n_embedding), where n
frames become ceil(n / time_pool) embeddings. Input is what `takes` names, normalised: log-mels, the
frames of an encoder, or a waveform in frames of one hop. If `forward` of the module has an argument
`mask`, it gets the whole batch and a mask (batch, frames), True for a valid frame, or None.
Otherwise padding never reaches it: clips of one length go through it together.

A module that depends on a whole clip, such as a transformer, runs on each window of a long
recording. If an embedding depends on a limited number of frames, say so by `n_context`: overlapping
windows then share embeddings, and detection is about twice as fast.
"""

import inspect
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from earmark.config import repr_of_changes
from earmark.errors import SettingError
from earmark.frames import pooled_length
from earmark.nn.frame_network import FrameNetwork, FrameNetworkConfig
from earmark.nn.layers import Layer, MapLayer, Maps, count_parameters
from earmark.nn.network import Network, Prediction


@dataclass(frozen=True)
class EmbeddingConfig(FrameNetworkConfig):
    """The settings of a network around a module of your own; derive a frozen dataclass from it.

    The class attributes `time_pool_of_module` and `n_context` describe the module, and `takes` what
    its input may be. The name `network`, by which settings and model files know it, is its import
    path unless the class has one: "my_module:MyConfig".

    Args:
        n_classes: number of classes.
        n_features: values per input frame; it follows from the features.
        dropout: share of values that are dropped in training, before the classifier.
        n_recurrent: width of a GRU per direction, behind the module; 0 is no GRU.
        pooling: from frames to clips, one of `POOLINGS`.
        stages: segment lengths of hierarchical pooling; () is single-level pooling.
        stage_weights: one of `STAGE_WEIGHTS`.

    >>> @dataclass(frozen=True)
    ... class Mine(EmbeddingConfig):
    ...     network = "mine"
    ...     n_embedding: int = 16
    ...     def make_encoder(self) -> nn.Module:
    ...         return nn.Linear(self.n_features, self.n_embedding)
    >>> Mine(n_classes=3).build().eval()(torch.zeros(2, 50, 80)).frame_probs.shape
    torch.Size([2, 50, 3])
    """

    network: ClassVar[str] = ""
    inputs: ClassVar[str] = "n_features"
    takes: ClassVar[tuple[str, ...]] = ("log-mel", "encoder")
    time_pool_of_module: ClassVar[int] = 1
    n_context: ClassVar[int | None] = None  # input frames of an embedding; None is the whole clip

    n_classes: int
    n_features: int = 80
    dropout: float = 0.2
    n_recurrent: int = 0
    pooling: str = "linear"
    stages: tuple[int, ...] = ()
    stage_weights: str = "self"

    __repr__ = repr_of_changes

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "network" not in vars(cls):
            cls.network = f"{cls.__module__}:{cls.__qualname__}"

    def __post_init__(self) -> None:
        self.check([self.n_features, self.n_embedding, self.time_pool_of_module])

    @property
    @abstractmethod
    def n_embedding(self) -> int:
        """Values per embedding: a property, or a field of the same name."""

    @abstractmethod
    def make_encoder(self) -> nn.Module:
        """Return the module, with its first weights; see the module's conventions."""

    def build(self) -> "EmbeddingNetwork":
        """See `NetworkConfig.build`."""
        return EmbeddingNetwork(self)

    @property
    def n_layers(self) -> int:
        """See `NetworkConfig.n_layers`."""
        return 1


class EmbeddingNetwork(FrameNetwork):
    """A module of your own, a GRU if there is one, a classifier of frames and the pooling."""

    config: EmbeddingConfig

    def __init__(self, config: EmbeddingConfig) -> None:
        super().__init__(config)
        self.module = ModuleLayer(config)
        self.finish()

    def to_maps(self, features: Tensor) -> Tensor:
        """Return (batch, frames, features) as maps with one mel."""
        return features.transpose(1, 2).unsqueeze(3)

    def map_shape(self, n_frames: int) -> tuple[int, int, int]:
        """See `FrameNetwork.map_shape`."""
        return self.config.n_features, n_frames, 1

    def map_layers(self) -> list[tuple[str, MapLayer]]:
        """See `FrameNetwork.map_layers`."""
        return [("", self.module)]

    def encode(self, features: Tensor, mask: Tensor | None = None) -> Maps:
        """Run the module, if an embedding depends on a limited number of frames."""
        if self.config.n_context is None:
            return Network.encode(self, features, mask)
        return super().encode(features, mask)

    def classify(self, features: Tensor, mask: Tensor | None = None) -> Prediction:
        """Run the module, if it has not run yet, and what follows it."""
        if self.config.n_context is None:
            features, mask = super().encode(features, mask)
        return super().classify(features, mask)

    @property
    def encoder_pool(self) -> int:
        """See `Network.encoder_pool`."""
        return 1 if self.config.n_context is None else self.time_pool

    @property
    def receptive_field(self) -> int:
        """See `Network.receptive_field`."""
        return self.config.n_context or 1


class ModuleLayer(MapLayer):
    """The module of an `EmbeddingConfig` as a layer of maps with one mel."""

    def __init__(self, config: EmbeddingConfig) -> None:
        super().__init__()
        self.encoder = config.make_encoder()
        if not isinstance(self.encoder, nn.Module):
            raise SettingError(f"make_encoder must return an nn.Module. Got {self.encoder!r}.")
        self.takes_mask = "mask" in inspect.signature(self.encoder.forward).parameters
        self.pool, self.n_out = config.time_pool_of_module, config.n_embedding
        self.n_context, self.kind = config.n_context or 1, type(self.encoder).__name__

    def forward(self, maps: Tensor, mask: Tensor | None = None) -> Maps:
        """See the class."""
        frames = maps.squeeze(3).transpose(1, 2)
        if self.takes_mask:
            embeddings = self._checked(self.encoder(frames, mask=mask), frames)
        elif mask is None:
            embeddings = self._checked(self.encoder(frames), frames)
        else:
            embeddings = self._by_length(frames, mask)
        if mask is not None:
            mask = mask[:, :: self.pool]
            embeddings = embeddings.masked_fill(~mask.unsqueeze(2), 0)
        return embeddings.transpose(1, 2).unsqueeze(3), mask

    def _by_length(self, frames: Tensor, mask: Tensor) -> Tensor:
        """Run the module on the clips of each length together, without their padding."""
        lengths = mask.sum(1)
        n_out = pooled_length(frames.shape[1], self.pool)
        rows, parts = [], []
        for length in sorted({*lengths.tolist()}):
            own = (lengths == length).nonzero().flatten()
            clips = frames[own, :length]
            found = clips.new_zeros(len(own), 0, self.n_out)
            if length:
                found = self._checked(self.encoder(clips), clips)
            parts.append(nn.functional.pad(found, (0, 0, 0, n_out - found.shape[1])))
            rows.append(own)
        order = torch.cat(rows).argsort()
        return torch.cat(parts)[order]

    def _checked(self, embeddings: Any, frames: Tensor) -> Tensor:
        wanted = (frames.shape[0], pooled_length(frames.shape[1], self.pool), self.n_out)
        if not isinstance(embeddings, Tensor) or tuple(embeddings.shape) != wanted:
            got = tuple(embeddings.shape) if isinstance(embeddings, Tensor) else embeddings
            raise SettingError(
                f"{self.kind} must turn frames {tuple(frames.shape)} into embeddings {wanted}: "
                f"(batch, frames / time_pool_of_module, rounded up, n_embedding). Got {got!r}."
            )
        return embeddings

    def describe(self, shape: tuple[int, ...]) -> Layer:
        """See `MapLayer.describe`; the operations of the module are not counted."""
        return Layer(
            self.kind,
            (self.n_out, pooled_length(shape[1], self.pool), 1),
            count_parameters(self.encoder),
            kernel=(self.n_context, 1),
            stride=(self.pool, 1),
        )
