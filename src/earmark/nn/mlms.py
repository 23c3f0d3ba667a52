"""MLMS8: eight sample-level CNNs on raw audio, and a classifier on features of their top layers.

Each net takes windows of the waveform of one length, by convolutions of 2, 3 or 5 samples down to
a single value in time. In three stages (Lee et al., DCASE 2017 task 4):

1. Each net learns to tag its windows, which have the labels of their clip.
2. A clip is cut into floor(T / L) + 1 evenly spaced windows of the length L of a net. The outputs
   of the net's top three layers, each the maximum over time, are averaged over the windows and
   concatenated over the nets.
3. A fully connected classifier on these features, standardised, gives the clip-level scores.

Frame-level scores are not described; here, the classifier scores every second, on the features of
the windows whose centre lies in it, or, of a net whose windows are longer than a second, of one
window centred on it and shifted to stay inside the clip.

Nets and classifier are trained at once: the loss is the sum of theirs, they share no weights, and
the classifier gets the features without a gradient. So each net learns as it would alone, except
for the common stopping epoch, while the classifier follows nets that are not frozen yet. As in the
original, a step of training need not take all windows of a clip: `train_windows` are drawn. The
standardisation is a batch norm without weights. In training nothing needs the scores of seconds,
and frames have those of their clip.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from earmark.config import repr_of_changes
from earmark.errors import SettingError
from earmark.frames import Reals, pooled_length
from earmark.nn.blocks import named_layers
from earmark.nn.frame_network import describe_layers
from earmark.nn.layers import (
    Classifier,
    Convolution,
    Dropout,
    Layer,
    MapLayer,
    MaskedBatchNorm,
    MaxPool,
)
from earmark.nn.loss import clip_loss, frame_loss
from earmark.nn.network import Network, NetworkConfig, Prediction, WindowProbs
from earmark.nn.windows import (
    Windows,
    average,
    clip_lengths,
    even_starts,
    frame_averages,
    pool_mask,
)

# Samples that a net takes at a time in inference: with 128 maps, the largest layer of the full
# width is then 67 MB.
MOST_SAMPLES = 1 << 18
N_LEVELS = 4  # at least: two of the first width, one of the second, one of the third

# The filter length of the first convolution, then those of the levels, at 44.1 kHz: windows of 372,
# 557, 627, 743, 893, 1486, 2678 and 3543 ms.
NETS = (
    (2,) * 14,
    (2,) * 13 + (3,),
    (2,) * 10 + (3,) * 3,
    (2,) * 15,
    (3,) * 9 + (2,),
    (2,) * 16,
    (3,) * 10 + (2,),
    (5,) * 7 + (2,),
)


def halved_nets(nets: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Return nets for half the sample rate, which have one level of 2 samples less.

    >>> halved_nets(((3, 3, 3, 3, 3, 2),))
    ((3, 3, 3, 3, 3),)
    """
    last = [len(net) - 1 - net[::-1].index(2) for net in nets]
    return tuple((*net[:at], *net[at + 1 :]) for net, at in zip(nets, last, strict=True))


@dataclass(frozen=True)
class MlmsConfig(NetworkConfig):
    """The sizes of the nets and of the classifier; the defaults are the full width at 44.1 kHz.

    Args:
        n_classes: number of classes.
        n_samples: samples of the waveform per input frame.
        nets: of each net, the filter lengths of its first convolution and of its levels; their
            product is its window in samples.
        channels: maps of the first convolution and the first two levels; of the middle levels; of
            the last level and the layer after it.
        dropout: share of values that are dropped in training, before the output of a net and in the
            classifier.
        n_hidden: widths of the hidden layers of the classifier.
        train_windows: windows of a clip, drawn at random, that a net takes in a step of training; 0
            is all of them.
        second: input frames of a segment that gets frame-level scores, one second.
        output_pool: input frames per output frame.

    >>> config = MlmsConfig(n_classes=17)
    >>> [round(1000 * window / 44100) for window in config.windows]
    [372, 557, 627, 743, 893, 1486, 2678, 3543]
    """

    network: ClassVar[str] = "mlms"
    exports: ClassVar[bool] = False
    inputs: ClassVar[str] = "n_samples"
    takes: ClassVar[tuple[str, ...]] = ("waveform",)
    learns_from_frames: ClassVar[bool] = False

    n_classes: int
    n_samples: int = 882
    nets: tuple[tuple[int, ...], ...] = NETS
    channels: tuple[int, int, int] = (128, 256, 512)
    dropout: float = 0.5
    n_hidden: tuple[int, ...] = (512, 512)
    train_windows: int = 2
    second: int = 50
    output_pool: int = 4

    __repr__ = repr_of_changes

    def __post_init__(self) -> None:
        lengths = [length for net in self.nets for length in net]
        sizes = [self.n_samples, self.second, self.output_pool, *self.channels, *self.n_hidden]
        self.check([*sizes, *lengths])
        self.check_shares("dropout")
        if type(self.train_windows) is not int or self.train_windows < 0:
            raise SettingError(
                f"train_windows must be 0 (all windows) or more. Got {self.train_windows!r}."
            )
        if len(self.channels) != 3 or not self.n_hidden:
            raise SettingError(
                "channels must have three entries, and n_hidden one or more. "
                f"Got channels={self.channels}, n_hidden={self.n_hidden}."
            )
        if not self.nets or any(len(net) <= N_LEVELS for net in self.nets):
            raise SettingError(
                "nets must have one entry or more, each with the filter lengths of the first "
                f"convolution and of {N_LEVELS} levels or more. Got {self.nets}."
            )

    def build(self) -> "Mlms":
        """See `NetworkConfig.build`."""
        return Mlms(self)

    @property
    def n_layers(self) -> int:
        """See `NetworkConfig.n_layers`."""
        return sum(map(len, self.nets))

    @property
    def windows(self) -> list[int]:
        """Samples of a window of each net.

        >>> MlmsConfig(n_classes=17, nets=halved_nets(NETS)).windows[4] == 3**9
        True
        """
        return [prod(net) for net in self.nets]

    @property
    def segment(self) -> int:
        """See `NetworkConfig.segment`."""
        return self.second


@lru_cache(maxsize=256)
def place_windows(
    n_samples: int, window: int, second: int, localise: bool
) -> tuple[tuple[int, ...], Reals]:
    """Return where the windows of a clip begin, and the averages for the clip and each second.

    Args:
        n_samples: of the clip.
        window: in samples.
        second: samples of a second.
        localise: whether there are averages for seconds, and the windows that they need.

    >>> starts, averages = place_windows(4, window=2, second=2, localise=True)
    >>> starts, averages.round(2).tolist()
    ((0, 1, 2), [[0.33, 0.33, 0.33], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    """
    starts = even_starts(n_samples, window)
    n_clip = len(starts)
    of_clip = np.ones((1, n_clip)) / max(1, n_clip)
    if not localise or not n_clip:
        return starts, of_clip
    middles = (np.arange(pooled_length(n_samples, second)) + 0.5) * second
    if window > second:
        last = max(0, n_samples - window)
        own = tuple(int(np.clip(round(middle - window / 2), 0, last)) for middle in middles)
        both = np.zeros((1 + len(own), n_clip + len(own)))
        both[:1, :n_clip], both[1:, n_clip:] = of_clip, np.eye(len(own))
        return (*starts, *own), both
    distances = np.array(starts) + window / 2 - middles[:, None]  # (seconds, windows)
    inside = (-second / 2 <= distances) & (distances < second / 2)
    nearest = np.abs(distances) == np.abs(distances).min(axis=1, keepdims=True)
    # The rest of a second at the end of a clip may have none.
    chosen = np.where(inside.any(axis=1, keepdims=True), inside, nearest)
    return starts, np.concatenate([of_clip, chosen / chosen.sum(axis=1, keepdims=True)])


class SampleNet(nn.Module):
    """A sample-level CNN: windows (windows, samples) -> features (windows, features).

    The features are the maxima over time of its top three layers.

    >>> config = MlmsConfig(n_classes=3, channels=(2, 4, 8))
    >>> SampleNet(config, (2,) * 6).eval()(torch.zeros(5, 64)).shape
    torch.Size([5, 20])
    """

    def __init__(self, config: MlmsConfig, lengths: tuple[int, ...]) -> None:
        super().__init__()
        first, *levels = lengths
        low, middle, high = config.channels
        # A convolution as long as its stride is one of 1 on groups of samples as maps.
        self.stem = Convolution(first, low, 1, gated=False, bias=True)
        self.levels = nn.ModuleList()
        widths = [low, low, low, *[middle] * (len(levels) - 3), high]
        for length, (n_in, n_out) in zip(levels, pairwise(widths), strict=True):
            layer = Convolution(n_in, n_out, (length, 1), gated=False, bias=True)
            self.levels.append(nn.ModuleList([layer, MaxPool((length, 1))]))
        self.top = Convolution(high, high, 1, gated=False, bias=True)
        self.dropout = Dropout(config.dropout)
        self.classifier = Classifier(high, config.n_classes)
        self.first = first
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
                assert module.bias is not None
                nn.init.zeros_(module.bias)

    def forward(self, windows: Tensor, mask: Tensor | None = None) -> Tensor:
        """See the class; `mask` (windows, samples) is True for valid samples."""
        # (windows, samples) -> (windows, maps, groups, 1)
        maps = windows.view(len(windows), windows.shape[1] // self.first, self.first, 1)
        maps = maps.transpose(1, 2)
        mask = pool_mask(mask, self.first)
        outputs = []
        for _, layer in self.map_layers():
            maps, mask = layer(maps, mask)
            outputs.append(maps)
        # The last layers are: ..., convolution, pooling, convolution, pooling, top. The maximum
        # after pooling is that before it, and padding, 0, is below no value of a rectifier.
        return torch.cat([outputs[at].amax((2, 3)) for at in (-4, -2, -1)], 1)

    def classify(self, features: Tensor) -> Tensor:
        """Return the probabilities (windows, classes) that the net alone gives its windows."""
        n_top = self.classifier.in_features
        probs: Tensor = self.classifier(self.dropout.drop(features[:, -n_top:]))
        return probs

    def map_layers(self) -> list[tuple[str, MapLayer]]:
        """Return the layers up to the classifier, in order, with the names of their levels."""
        levels = [(name.replace("block", "level"), own) for name, own in named_layers(self.levels)]
        return [("first ", self.stem), *levels, ("top ", self.top)]

    def describe(self, window: int, n_windows: int) -> list[Layer]:
        """Return the rows of the table of layers, with the operations of some windows."""
        layers = describe_layers(self.map_layers(), (self.first, window // self.first, 1))
        output = self.classifier.describe((1, self.classifier.in_features))
        layers.append(output._replace(name="window probabilities"))
        return [layer._replace(operations=layer.operations * n_windows) for layer in layers]


class FeatureClassifier(nn.Module):
    """The classifier on standardised features: (rows, features) -> the last hidden layer.

    `output` turns that into probabilities.

    >>> config = MlmsConfig(n_classes=3, n_hidden=(4,))
    >>> FeatureClassifier(config, n_features=20).eval()(torch.zeros(2, 20)).shape
    torch.Size([2, 4])
    """

    def __init__(self, config: MlmsConfig, n_features: int) -> None:
        super().__init__()
        self.standardise = MaskedBatchNorm(n_features, affine=False)
        self.layers = nn.ModuleList()
        for n_hidden in config.n_hidden:
            self.layers.append(Convolution(n_features, n_hidden, 1, gated=False, bias=True))
            self.layers.append(Dropout(config.dropout))
            n_features = n_hidden
        self.output = Classifier(n_features, config.n_classes)

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """See the class; `mask` (rows, 1) is False for rows that are not there."""
        # Each row is maps of one frame and one mel.
        maps: Tensor = self.standardise(features[:, :, None, None], mask)
        for layer in self.layers:
            maps, mask = layer(maps, mask)
        return maps.flatten(1)

    def describe(self, n_features: int, n_rows: int) -> list[Layer]:
        """Return the rows of the table of layers, with the operations of some rows."""
        layers = [("classifier, ", layer) for layer in cast("list[MapLayer]", [*self.layers])]
        rows = describe_layers(layers, (n_features, 1, 1))
        rows.append(self.output.describe((1, self.output.in_features)))
        return [row._replace(operations=row.operations * n_rows) for row in rows]


class Mlms(Network):
    """Sample-level CNNs, and a classifier: (batch, frames, samples) -> `Prediction`.

    `hidden` is the last hidden layer of the classifier.

    >>> config = MlmsConfig(n_classes=3, n_samples=8, nets=((2,) * 6,), channels=(2, 4, 8))
    >>> prediction = Mlms(config).eval()(torch.zeros(2, 100, 8))
    >>> prediction.frame_probs.shape, prediction.clip_probs.shape
    (torch.Size([2, 25, 3]), torch.Size([2, 3]))
    """

    config: MlmsConfig

    def __init__(self, config: MlmsConfig) -> None:
        super().__init__(config)
        self.nets = nn.ModuleList(SampleNet(config, net) for net in config.nets)
        self.classifier = FeatureClassifier(config, len(config.nets) * self._n_features)

    @property
    def _n_features(self) -> int:
        """Number of features of one net."""
        _, middle, high = self.config.channels
        return middle + 2 * high

    def classify(self, features: Tensor, mask: Tensor | None = None) -> Prediction:
        """Run all nets on their windows, then the classifier; see `Network.classify`."""
        config, n_frames = self.config, clip_lengths(features, mask)
        lengths = [n * config.n_samples for n in n_frames]
        waveform = features.flatten(1).unsqueeze(2)
        n_seconds = 0 if self.training else pooled_length(features.shape[1], config.second)
        pooled, by_window = [], []
        for net, window in zip(self.nets, config.windows, strict=True):
            second = config.second * config.n_samples
            placed = [self._place(n, window, second) for n in lengths]
            windows = Windows([starts for starts, _ in placed], lengths, window)
            own = self._run(cast("SampleNet", net), windows, waveform)
            averages = [matrix for _, matrix in placed]
            pooled.append(average(windows.by_clip(own), averages, 1 + n_seconds))
            probs = windows.by_clip(cast("SampleNet", net).classify(own))
            counts = torch.tensor([np.count_nonzero(matrix[0]) for matrix in averages])
            slots = torch.arange(probs.shape[1])
            by_window.append(WindowProbs(probs, (slots < counts[:, None]).to(probs.device)))
        rows = torch.cat(pooled, 2).detach()  # (batch, clip and seconds, features)
        valid = torch.tensor(n_frames, device=rows.device) > 0
        hidden = self.classifier(
            rows.flatten(0, 1), valid[:, None].repeat_interleave(1 + n_seconds, 0)
        ).unflatten(0, rows.shape[:2])
        probs = self.classifier.output(hidden) * valid[:, None, None]
        return self._spread(probs, hidden, tuple(by_window), n_frames, features.shape[1], mask)

    def _place(self, n_samples: int, window: int, second: int) -> tuple[tuple[int, ...], Reals]:
        """Return the windows of a clip and their averages; in training, some windows."""
        starts, averages = place_windows(n_samples, window, second, not self.training)
        n_drawn = self.config.train_windows
        if not self.training or not 0 < n_drawn < len(starts):
            return starts, averages
        drawn = torch.randperm(len(starts))[:n_drawn].tolist()
        return tuple(starts[at] for at in drawn), np.full((1, n_drawn), 1 / n_drawn)

    def _run(self, net: SampleNet, windows: Windows, waveform: Tensor) -> Tensor:
        """Return the features of all windows of a net, (windows, features)."""
        # Batch norm needs all windows at once in training.
        most = len(windows) if self.training else MOST_SAMPLES // windows.window
        outputs = []
        for part in windows.parts(most):
            samples, mask = windows.cut(waveform, part)
            outputs.append(net(samples.squeeze(2), mask))
        return torch.cat(outputs) if outputs else waveform.new_zeros(0, self._n_features)

    def _spread(
        self,
        probs: Tensor,
        hidden: Tensor,
        by_window: tuple[WindowProbs, ...],
        n_frames: list[int],
        n_most: int,
        mask: Tensor | None,
    ) -> Prediction:
        """Bring what is known of clips and seconds, (batch, clip and seconds, ...), to frames."""
        config = self.config
        pool, first = config.output_pool, min(1, probs.shape[1] - 1)
        # Without seconds, the one segment is the clip.
        second = config.second if first else max(1, n_most)
        averages = [frame_averages(n, second, second, pool) for n in n_frames]
        frame_probs, frame_hidden = (
            average(each[:, first:], averages, config.n_frames(n_most)) for each in (probs, hidden)
        )
        return Prediction(probs[:, 0], frame_probs, frame_hidden, pool_mask(mask, pool), by_window)

    def loss(self, prediction: Prediction, targets: Tensor) -> Tensor:
        """Return the sum of the losses of the nets and of the classifier; see `Network.loss`.

        >>> config = MlmsConfig(n_classes=3, n_samples=8, nets=((2,) * 6,), channels=(2, 4, 8))
        >>> network = Mlms(config)
        >>> network.loss(network(torch.randn(2, 20, 8)), torch.eye(3)[:2]).shape
        torch.Size([])
        """
        of_nets = [
            frame_loss(own.probs, targets.unsqueeze(1).expand_as(own.probs), own.mask)
            for own in prediction.windows
        ]
        return sum(of_nets, start=clip_loss(prediction.clip_probs, targets))

    def layers(self, n_input_frames: int) -> list[Layer]:
        """Return the layers of all nets and of the classifier, with the operations of a clip."""
        config = self.config
        n_samples, second = n_input_frames * config.n_samples, config.second * config.n_samples
        counts = [
            len(place_windows(n_samples, window, second, localise=True)[0])
            for window in config.windows
        ]
        nets, (*hidden, output) = self._describe(counts, 1 + pooled_length(n_samples, second))
        shape = (config.n_frames(n_input_frames), config.n_classes)
        return [*(row for own in nets for row in own), *hidden, output._replace(shape=shape)]

    def training_layers(self, n_input_frames: int) -> list[Layer]:
        """See `Network.training_layers`: the windows that are drawn, and no seconds."""
        config = self.config
        counts = [
            len(even_starts(n_input_frames * config.n_samples, window)) for window in config.windows
        ]
        if config.train_windows:
            counts = [min(count, config.train_windows) for count in counts]
        nets, classifier = self._describe(counts, 1)
        rows = [
            row._replace(shape=(count, *row.shape))
            for count, own in zip(counts, nets, strict=True)
            for row in own
        ]
        return [*rows, *classifier]

    def _describe(self, counts: list[int], n_rows: int) -> tuple[list[list[Layer]], list[Layer]]:
        """Return the layers of each net for a number of windows, and those of the classifier."""
        nets = [
            [
                layer._replace(name=f"windows of {window} samples, {layer.name}")
                for layer in cast("SampleNet", net).describe(window, count)
            ]
            for net, window, count in zip(self.nets, self.config.windows, counts, strict=True)
        ]
        return nets, self.classifier.describe(len(nets) * self._n_features, n_rows)

    @property
    def time_pool(self) -> int:
        """See `Network.time_pool`."""
        return self.config.output_pool


_FULL = MlmsConfig(n_classes=1)

PRESETS: dict[str, MlmsConfig] = {
    "full": _FULL,
    # At 22.05 kHz.
    "fast": _FULL.changed(
        n_samples=441, nets=halved_nets(NETS), channels=(6, 12, 24), n_hidden=(128, 128)
    ),
}
MlmsConfig.presets = PRESETS
