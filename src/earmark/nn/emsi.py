"""EMSI-like: several CNNs, each on windows of another length, whose probabilities are averaged.

What was published of EMSI (DCASE 2017 task 4) is that several CNNs see inputs of several scales,
the whole clip and shorter segments, and that their predictions are combined. All sizes here are
ours, and so it is called EMSI-like. A member k gives a probability P_k(n) to each of its windows n:

    frames  p_k(t) = mean of P_k(n) over the windows that cover t
            x(t)   = sum_k alpha_k p_k(t) / sum_k alpha_k    (`frame_weights`)
    clips   q_k    = max over n of P_k(n), or their mean     (`clip_score`)
            y      = sum_k beta_k q_k / sum_k beta_k         (`clip_weights`)

The labels of a window are those of its clip. The loss is the sum of the losses of the members,
which share no weights: each learns as it would alone, except that they see the same clips in a step
and stop at the same epoch, that with the best y.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from earmark.config import repr_of_changes
from earmark.errors import SettingError, choose
from earmark.nn.blocks import named_layers
from earmark.nn.frame_network import describe_layers
from earmark.nn.layers import Classifier, Convolution, Dropout, Layer, MaxPool
from earmark.nn.loss import clip_loss, frame_loss
from earmark.nn.network import Network, NetworkConfig, Prediction, WindowProbs
from earmark.nn.windows import (
    Windows,
    average,
    clip_lengths,
    frame_averages,
    pool_mask,
    regular_starts,
)

N_CONVOLUTIONS = 2  # per block
CLIP_SCORES = ("max", "mean")
LEARNED = ("windows", "clips")


@dataclass(frozen=True)
class EmsiConfig(NetworkConfig):
    """The sizes of a network of several CNNs on windows; the defaults are the full width.

    Args:
        n_classes: number of classes.
        n_mels: mels of the input.
        windows: frames of a window, one number per member.
        hops: frames from one window to the next, one number per member; () is the windows' lengths.
        channels: maps of the blocks of each member.
        dropout: share of values that are dropped in training, after each block.
        last_dropout: the same before the classifier.
        output_pool: input frames per output frame.
        clip_score: of a member: "max" or "mean" of its windows.
        frame_weights: of the members in the scores of frames; () is 1 for all.
        clip_weights: of the members in the scores of clips; () is 1 for all.
        learns: what has the labels of a clip in training: each of its "windows", or the maximum of
            a member's windows ("clips").

    >>> EmsiConfig(n_classes=17).n_frames(500)
    125
    """

    network: ClassVar[str] = "emsi"
    exports: ClassVar[bool] = False
    inputs: ClassVar[str] = "n_mels"
    learns_from_frames: ClassVar[bool] = False

    n_classes: int
    n_mels: int = 80
    windows: tuple[int, ...] = (500, 250, 100, 50)
    hops: tuple[int, ...] = ()
    channels: tuple[int, ...] = (32, 64, 128, 256)
    dropout: float = 0.25
    last_dropout: float = 0.5
    output_pool: int = 4
    clip_score: str = "max"
    frame_weights: tuple[float, ...] = ()
    clip_weights: tuple[float, ...] = ()
    learns: str = "windows"

    __repr__ = repr_of_changes

    def __post_init__(self) -> None:
        self.check([self.n_mels, self.output_pool, *self.windows, *self.hops, *self.channels])
        self.check_shares("dropout", "last_dropout")
        choose("clip_score", self.clip_score, CLIP_SCORES)
        choose("learns", self.learns, LEARNED)
        if not self.windows or not self.channels:
            raise SettingError(f"windows and channels must have one entry or more. Got {self}.")
        smallest = 2 ** len(self.channels)
        if min(*self.windows, self.n_mels) < smallest:
            raise SettingError(
                f"{len(self.channels)} blocks halve a window as often, so windows and n_mels must "
                f"be at least {smallest}. Got windows={self.windows}, n_mels={self.n_mels}."
            )
        for name in ("hops", "frame_weights", "clip_weights"):
            values = getattr(self, name)
            if len(values) not in (0, len(self.windows)):
                raise SettingError(
                    f"{name} must have one entry per window, {len(self.windows)}. Got {values}."
                )
        for name in ("frame_weights", "clip_weights"):
            weights = getattr(self, name)
            if weights and not (min(weights) >= 0 and 0 < sum(weights) < np.inf):
                raise SettingError(
                    f"{name} must be 0 or more, and at least one above 0. Got {weights}."
                )
        if any(hop > window for hop, window in zip(self.hops, self.windows, strict=False)):
            raise SettingError(
                "hops must be at most the windows, or frames between two windows would be lost. "
                f"Got hops={self.hops}, windows={self.windows}."
            )

    def build(self) -> "Emsi":
        """See `NetworkConfig.build`."""
        return Emsi(self)

    @property
    def n_layers(self) -> int:
        """See `NetworkConfig.n_layers`."""
        return N_CONVOLUTIONS * len(self.channels) * len(self.windows)

    @property
    def members(self) -> list[tuple[int, int]]:
        """Window and hop of each member.

        >>> EmsiConfig(n_classes=17).members[-1]
        (50, 50)
        """
        return list(zip(self.windows, self.hops or self.windows, strict=True))

    @property
    def segment(self) -> int:
        """See `NetworkConfig.segment`: the shortest hop of a member."""
        return min(hop for _, hop in self.members)


class WindowCNN(nn.Module):
    """A CNN on windows of one length: (windows, frames, mels) -> probabilities (windows, classes).

    >>> WindowCNN(EmsiConfig(n_classes=3)).eval()(torch.zeros(2, 50, 80)).shape
    torch.Size([2, 3])
    """

    def __init__(self, config: EmsiConfig) -> None:
        super().__init__()
        self.blocks = nn.ModuleList()
        for n_in, n_out in pairwise([1, *config.channels]):
            maps = pairwise([n_in] + [n_out] * N_CONVOLUTIONS)
            layers = [Convolution(before, after, 3, gated=False) for before, after in maps]
            pool, dropout = MaxPool((2, 2), whole=True), Dropout(config.dropout)
            self.blocks.append(nn.ModuleList([*layers, pool, dropout]))
        self.dropout = Dropout(config.last_dropout)
        self.classifier = Classifier(config.channels[-1], config.n_classes)

    def forward(self, windows: Tensor, mask: Tensor | None = None) -> Tensor:
        """See the class; `mask` (windows, frames) is True for valid frames."""
        maps = windows.unsqueeze(1)
        for _, layer in named_layers(self.blocks):
            maps, mask = layer(maps, mask)
        # After rectifiers no value is below that of padding, which is 0.
        hidden = maps.amax((2, 3))
        probs: Tensor = self.classifier(self.dropout.drop(hidden))
        return probs

    def describe(self, shape: tuple[int, int], n_windows: int) -> list[Layer]:
        """Return the rows of the table of layers for windows of a shape (frames, mels)."""
        layers = describe_layers(named_layers(self.blocks), (1, *shape))
        n_hidden = layers[-1].shape[0]
        layers.append(Layer("global maximum", (1, n_hidden)))
        layers.append(self.classifier.describe((1, n_hidden))._replace(name="window probabilities"))
        return [layer._replace(operations=layer.operations * n_windows) for layer in layers]


class Emsi(Network):
    """Several CNNs on windows of several lengths: (batch, frames, mels) -> `Prediction`.

    `hidden` has the frame-level probabilities of the members, one after the other.

    >>> prediction = Emsi(EmsiConfig(n_classes=3, channels=(4, 8))).eval()(torch.zeros(2, 500, 80))
    >>> prediction.frame_probs.shape, prediction.clip_probs.shape
    (torch.Size([2, 125, 3]), torch.Size([2, 3]))
    """

    config: EmsiConfig

    def __init__(self, config: EmsiConfig) -> None:
        super().__init__(config)
        self.members = nn.ModuleList(WindowCNN(config) for _ in config.windows)

    def classify(self, features: Tensor, mask: Tensor | None = None) -> Prediction:
        """Run all members on their windows, and combine them; see `Network.classify`."""
        config, lengths = self.config, clip_lengths(features, mask)
        frame_probs, clip_probs, by_window = [], [], []
        for member, (window, hop) in zip(self.members, config.members, strict=True):
            windows = Windows([regular_starts(n, window, hop) for n in lengths], lengths, window)
            probs = windows.by_clip(member(*windows.cut(features)))
            by_window.append(WindowProbs(probs, windows.present(probs.device)))
            clip_probs.append(_clip_score(by_window[-1], config.clip_score))
            matrices = [frame_averages(n, window, hop, config.output_pool) for n in lengths]
            frame_probs.append(average(probs, matrices, config.n_frames(features.shape[1])))
        return Prediction(
            _weighted_mean(clip_probs, config.clip_weights),
            _weighted_mean(frame_probs, config.frame_weights),
            torch.cat(frame_probs, 2),
            pool_mask(mask, config.output_pool),
            tuple(by_window),
        )

    def loss(self, prediction: Prediction, targets: Tensor) -> Tensor:
        """Return the sum of the losses of the members; see `Network.loss`.

        >>> network = Emsi(EmsiConfig(n_classes=3, windows=(8, 4), channels=(4,)))
        >>> network.loss(network(torch.randn(2, 20, 80)), torch.eye(3)[:2]).shape
        torch.Size([])
        """
        return sum(
            (self._member_loss(own, targets) for own in prediction.windows),
            start=targets.new_zeros(()),
        )

    def _member_loss(self, own: WindowProbs, targets: Tensor) -> Tensor:
        if self.config.learns == "clips":
            return clip_loss(_clip_score(own, "max"), targets, own.mask)
        return frame_loss(own.probs, targets.unsqueeze(1).expand_as(own.probs), own.mask)

    def layers(self, n_input_frames: int) -> list[Layer]:
        """Return the layers of all members, with the operations of all their windows."""
        config, rows = self.config, []
        for member, (window, hop) in zip(self.members, config.members, strict=True):
            n_windows = len(regular_starts(n_input_frames, window, hop))
            for layer in cast("WindowCNN", member).describe((window, config.n_mels), n_windows):
                rows.append(layer._replace(name=f"windows of {window} frames, {layer.name}"))
        shape = (config.n_frames(n_input_frames), config.n_classes)
        return [*rows, Layer("mean of the members", shape)]

    def training_layers(self, n_input_frames: int) -> list[Layer]:
        """See `Network.training_layers`: all windows, as in inference."""
        *rows, mean = self.layers(n_input_frames)
        counts = [len(regular_starts(n_input_frames, *member)) for member in self.config.members]
        n_each = len(rows) // len(counts)  # members have the same layers
        return [
            *(
                row._replace(shape=(counts[at // n_each], *row.shape))
                for at, row in enumerate(rows)
            ),
            mean,
        ]

    @property
    def time_pool(self) -> int:
        """See `Network.time_pool`."""
        return self.config.output_pool


def _clip_score(own: WindowProbs, how: str) -> Tensor:
    """(batch, windows, classes) -> (batch, classes); a window that is not there has 0."""
    if how == "max":
        return own.probs.amax(1)
    return own.probs.sum(1) / own.mask.sum(1, keepdim=True).clamp(min=1)


def _weighted_mean(values: list[Tensor], weights: tuple[float, ...]) -> Tensor:
    own = torch.tensor(weights or [1.0] * len(values)).to(values[0])
    with torch.autocast(own.device.type, enabled=False):  # which would lower a product
        return torch.stack(values, -1) @ (own / own.sum())


_FULL = EmsiConfig(n_classes=1)

PRESETS: dict[str, EmsiConfig] = {
    "full": _FULL,
    "fast": _FULL.changed(channels=(6, 12, 24, 48)),
}
EmsiConfig.presets = PRESETS
