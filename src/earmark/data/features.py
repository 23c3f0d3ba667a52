"""Waveform -> log-mel spectrogram, as a module (`LogMel`), a function or a stream; or its samples.

Conventions: frame `i` covers [i * hop, (i + 1) * hop) and its window is centred on that interval:
(window - hop) / 2 zeros are put in front of the waveform, and zeros behind it until the last,
incomplete frame is full, so that 10 s at a hop of 20 ms are exactly 500 frames. The window is a
periodic Hann window, the spectrum is a power spectrum; mel scale and filter areas are Slaney's, as
in librosa. A log-mel is the natural logarithm of mel power plus an offset, in float32. No gradient
flows back to the waveform. Pretrained encoders may need another log-mel, and turn it into other
features: see `FeatureConfig` and `earmark.data.encoded`.

For networks on raw audio, the features are the waveform itself: frame `i` has the samples of
[i * hop, (i + 1) * hop), and the last one is filled with zeros. Mean and standard deviation are
then one value for all samples.

Shape: (samples,) -> (frames, mels) and (batch, samples) -> (batch, frames, mels).

Frames are computed in chunks of 256, counted from the first one, whether the waveform comes whole,
in blocks or in a batch: all three give the same values bit for bit.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own usage

from earmark.config import check_limits, repr_of_changes
from earmark.encoders.config import EncoderConfig, whole_multiple
from earmark.errors import SettingError, choose
from earmark.frames import SNAP, FrameGrid, pooled_length
from earmark.runtime.memory import keep_blocks_of

CHUNK = 256  # frames per chunk: few calls, and yet their spectra stay in the cache
LIVE_CHUNK = 16  # frames per chunk of a live recording, which are computed sooner
CHUNK_BYTES = 24 << 20  # more than any buffer of a chunk takes
BAND = 16  # mels per matrix product, with only the bins that they use: most of a filter is zero

# A float32 spectrum has an error of about 1e-7 of its mean, which shows in the logarithm of a far
# fainter mel. Frames in which a mel's power is below the frame's mean by this factor, one in
# twenty, are computed again in float64. Measured on 30 clips of ESC-50 and the two worst known:
# without the second pass a log-mel is off by up to 5.6e-4 (with it, 4e-5), which breaks the
# agreement with librosa within 1e-4 that tests demand; the frame probabilities of the bundled model
# change by at most 5e-6, and no event changes. The second pass takes a fifth to a third of the
# time; float64 for all frames would double it.
FAINT = 5e3

KINDS = ("log-mel", "waveform")
# The largest values: a description, which may be anyone's, must not take the memory of a machine.
LIMITS: dict[str, float] = {
    "sample_rate": 10_000_000,
    "n_mels": 4096,
    "n_fft": 2**20,
    **dict.fromkeys(("window", "hop"), 3600.0),
}
MAX_FILTERS = 2**24  # values of all mel filters, 128 MB
MAX_FRAME = 2**20  # samples of a frame
MEL_SCALES = ("slaney", "htk")
SPECTRA = ("power", "magnitude")
# Fields that are newer than the first files: at their defaults, files do not have them.
ADDED = ("n_fft", "mel_scale", "spectrum", "encoder", "kind")
# Fields that say nothing about samples, and must have their defaults there.
OF_LOG_MELS = (
    *("window", "n_mels", "f_min", "f_max", "log_offset", "n_fft", "mel_scale", "spectrum"),
    "encoder",
)


@dataclass(frozen=True)
class FeatureConfig:
    """How a waveform becomes the input of a network; times in seconds, frequencies in Hz.

    It becomes a log-mel, what an encoder makes of a log-mel or of the waveform itself, or frames of
    its samples.

    Args:
        sample_rate: samples per second.
        window: length of the window and, by default, of the FFT.
        hop: distance between frames.
        n_mels: number of mel filters, between `f_min` and `f_max`.
        f_min: lower edge of the first filter.
        f_max: upper edge of the last filter.
        log_offset: added to the mel power. A full-scale tone has a power of about 2,000 and the
            rounding of 16-bit audio about 1e-9; an offset between them makes rounded, encoded and
            digital silence look alike, and keeps what is audible.
        mean: subtracted from the features; one value, or one per mel or feature of the encoder.
        std: what the result is divided by; as many values.
        n_fft: samples of the FFT, to which a window is extended by zeros; 0 is the window's length.
        mel_scale: "slaney", triangles of equal area as in librosa; or "htk", triangles of equal
            height that are linear on the HTK mel scale, as in TensorFlow and Kaldi.
        spectrum: "power" or "magnitude".
        encoder: a pretrained network that makes the features, if there is one.
        kind: "log-mel" or "waveform", frames of samples, which `sample_rate` and `hop` describe.

    >>> FeatureConfig(sample_rate=22050, kind="waveform").n_features
    441
    >>> config = FeatureConfig()
    >>> config.window_samples, config.hop_samples, config.grid.count(10.0)
    (1280, 640, 500)
    >>> FeatureConfig(sample_rate=11025)
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: hop must be a whole number of samples. Got 0.02 s, ...
    """

    sample_rate: int = 32000
    window: float = 0.040
    hop: float = 0.020
    n_mels: int = 80
    f_min: float = 50.0
    f_max: float = 14000.0
    log_offset: float = 1e-6
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    n_fft: int = 0
    mel_scale: str = "slaney"
    spectrum: str = "power"
    encoder: EncoderConfig | None = None
    kind: str = "log-mel"

    __repr__ = repr_of_changes

    def __post_init__(self) -> None:
        for name in ("mean", "std"):  # a file gives lists
            object.__setattr__(self, name, tuple(float(value) for value in getattr(self, name)))
        if isinstance(self.encoder, dict):
            object.__setattr__(self, "encoder", EncoderConfig(**self.encoder))
        for name in ("sample_rate", "n_mels"):
            value = getattr(self, name)
            if not (isinstance(value, int) and value > 0):
                raise SettingError(f"{name} must be an integer above 0. Got {value!r}.")
        check_limits("", self, LIMITS)
        choose("features.kind", self.kind, KINDS)
        if self.kind == "waveform":
            self._check_waveform()
        self._check_normalisation()
        if self.kind == "log-mel" and (self.encoder is None or self.encoder.input == "log-mel"):
            self._check_log_mel()
        if self.encoder is not None:
            units = "samples" if self.encoder.input == "waveform" else "log-mel frames"
            for name in ("patch", "hop"):
                whole_multiple(name, getattr(self.encoder, name), self.input_hop, units)

    def _check_waveform(self) -> None:
        self._check_whole("hop")
        fields = self.__dataclass_fields__
        for name in OF_LOG_MELS:
            if getattr(self, name) != fields[name].default:
                raise SettingError(
                    f"{name} is a setting of log-mels, and the features are those of kind "
                    f"'waveform', samples; leave it out. Got {getattr(self, name)!r}."
                )

    def _check_log_mel(self) -> None:
        choose("mel_scale", self.mel_scale, MEL_SCALES)
        choose("spectrum", self.spectrum, SPECTRA)
        for name in ("window", "hop"):
            self._check_whole(name)
        if self.window_samples < self.hop_samples:
            raise SettingError(
                f"window must be at least as long as the hop of {self.hop!r} s, or samples between"
                f" two frames would be lost. Got {self.window!r} s."
            )
        if not 0 <= self.f_min < self.f_max <= self.sample_rate / 2:
            raise SettingError(
                "f_min and f_max must satisfy"
                f" 0 <= f_min < f_max <= {self.sample_rate / 2:g} Hz, half the sample rate."
                f" Got f_min={self.f_min!r} and f_max={self.f_max!r}."
            )
        if not 0 < self.log_offset < np.inf:
            raise SettingError(f"log_offset must be above 0. Got {self.log_offset!r}.")
        if self.n_fft and not self.window_samples <= self.n_fft:
            raise SettingError(
                f"n_fft must be 0 or at least the window of {self.window_samples} samples. "
                f"Got {self.n_fft!r}."
            )
        if self.n_mels * (self.fft_samples // 2 + 1) > MAX_FILTERS:
            raise SettingError(
                f"{self.n_mels} mels of an FFT of {self.fft_samples} samples are too many; use a "
                "smaller n_mels or n_fft, or a shorter window."
            )
        empty = np.flatnonzero(~mel_filters(self).any(axis=1))
        if len(empty):
            raise SettingError(
                f"{len(empty)} of {self.n_mels} mels, number {empty[0]} first, fall between"
                f" two bins of {self.sample_rate / self.fft_samples:g} Hz and would stay empty;"
                " use a smaller n_mels, a longer window or a higher f_min."
            )

    def _check_whole(self, name: str) -> None:
        value = getattr(self, name)
        samples = value * self.sample_rate
        if not 0.5 <= samples < np.inf:
            raise SettingError(f"{name} must be at least one sample. Got {value!r} s.")
        if samples > MAX_FRAME:
            raise SettingError(
                f"{name} must be at most {MAX_FRAME} samples. Got {value!r} s at "
                f"{self.sample_rate} Hz."
            )
        if abs(samples - round(samples)) > SNAP:
            near = max(1, int(samples))
            raise SettingError(
                f"{name} must be a whole number of samples. Got {value!r} s, which is {samples:g}"
                f" samples at {self.sample_rate} Hz; use {near} / {self.sample_rate} s instead."
            )

    def _check_normalisation(self) -> None:
        for name, values in (("mean", self.mean), ("std", self.std)):
            if self.kind == "waveform" and len(values) != 1:
                raise SettingError(
                    f"{name} must have one value for all samples of a waveform. Got {len(values)}."
                )
            if len(values) not in (1, self.n_features):
                each = "mel" if self.encoder is None else "feature"
                raise SettingError(
                    f"{name} must have one value, or {self.n_features}, one per {each}. "
                    f"Got {len(values)}."
                )
            if not np.isfinite(values).all() or (name == "std" and min(values) <= 0):
                kind = "finite numbers above 0" if name == "std" else "finite numbers"
                raise SettingError(f"{name} must hold {kind}. Got {values!r}.")

    @property
    def window_samples(self) -> int:
        """Samples per window.

        >>> FeatureConfig().window_samples
        1280
        """
        return round(self.window * self.sample_rate)

    @property
    def hop_samples(self) -> int:
        """Samples from one frame to the next.

        >>> FeatureConfig().hop_samples
        640
        """
        return round(self.hop * self.sample_rate)

    @property
    def fft_samples(self) -> int:
        """Samples per FFT.

        >>> FeatureConfig().fft_samples
        1280
        """
        return self.n_fft or self.window_samples

    @property
    def n_features(self) -> int:
        """Values per frame.

        >>> FeatureConfig().n_features
        80
        """
        if self.kind == "waveform":
            return self.hop_samples
        return self.n_mels if self.encoder is None else self.encoder.n_features

    @property
    def input_hop(self) -> float:
        """Seconds per row of what an encoder takes: a log-mel frame or a sample.

        >>> FeatureConfig().input_hop
        0.02
        """
        takes_samples = self.encoder is not None and self.encoder.input == "waveform"
        return 1 / self.sample_rate if takes_samples else self.hop

    @property
    def grid(self) -> FrameGrid:
        """The frame grid.

        >>> FeatureConfig().grid
        FrameGrid(frame_rate=Fraction(50, 1))
        """
        hop = self.hop_samples
        if self.encoder is not None:
            hop = round(self.encoder.hop * self.sample_rate)
        return FrameGrid(Fraction(self.sample_rate, hop))

    @property
    def raw(self) -> "FeatureConfig":
        """The same parameters without normalisation.

        >>> FeatureConfig(mean=(-8.0,), std=(4.0,)).raw == FeatureConfig()
        True
        """
        return replace(self, mean=(0.0,), std=(1.0,))

    @property
    def log_mel(self) -> "FeatureConfig":
        """The log-mel that an encoder takes, or that the features are.

        >>> FeatureConfig().log_mel == FeatureConfig()
        True
        """
        return self if self.encoder is None else replace(self.raw, encoder=None)

    def to_dict(self, places: bool = True) -> dict[str, Any]:
        """Return plain values for a file, without newer fields (`ADDED`) at their defaults.

        Args:
            places: whether to include where the file of an encoder is, which decides nothing.

        >>> "spectrum" in FeatureConfig().to_dict()
        False
        """
        values, fields = asdict(self), self.__dataclass_fields__
        if self.encoder is not None and not places:
            del values["encoder"]["file"]
        same = [name for name in ADDED if values[name] == fields[name].default]
        return {name: value for name, value in values.items() if name not in same}


class Normalise(nn.Module):
    """Subtract a mean from raw features and divide by a standard deviation.

    Shape: (..., mels) -> (..., mels); `mean` and `std` have one value, or one per mel.

    >>> Normalise(mean=(-6,), std=(2,))(torch.tensor([[-8.0, -4.0]]))
    tensor([[-1.,  1.]])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.identity = tuple(mean) == (0.0,) and tuple(std) == (1.0,)
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32), persistent=False)
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32), persistent=False)

    def forward(self, log_mel: Tensor) -> Tensor:
        """See the class."""
        return log_mel if self.identity else (log_mel - self.mean) / self.std


class LogMel(nn.Module):
    """Waveform -> normalised log-mel, as a module to move, to put in a `Sequential` or to export.

    Its tables are buffers that follow from the config; they are not part of the state dict.

    An exported or compiled graph has no chunks and computes all spectra in float64, since it cannot
    select the faint frames by their values; its output is equal to rounding.

    Shape: (samples,) -> (frames, mels), or (batch, samples) -> (batch, frames, mels), where frames
    is samples / hop_samples, rounded up.

    >>> LogMel(FeatureConfig())(torch.zeros(3, 32001)).shape
    torch.Size([3, 51, 80])
    """

    window: Tensor
    limits: Tensor

    def __init__(self, config: FeatureConfig) -> None:
        super().__init__()
        self.config = config
        filters = mel_filters(config)
        self.register_buffer("window", self._window64("cpu").to(torch.float32), persistent=False)
        self.bands = nn.ModuleList(
            _Band(filters[first : first + BAND], 2 if config.spectrum == "power" else 1)
            for first in range(0, config.n_mels, BAND)
        )
        # In units of the mel, how much larger the frame's mean power may be. An error spread evenly
        # over the bins shows less in a mel that has many of them.
        limits = FAINT * filters.sum(axis=1) / (filters**2).sum(axis=1)
        self.register_buffer("limits", torch.from_numpy(limits), persistent=False)
        self.normalise = Normalise(config.mean, config.std)
        keep_blocks_of(
            CHUNK_BYTES
        )  # else every chunk gets its memory from the system, in twice the time

    def forward(self, waveform: Tensor) -> Tensor:
        """See the class."""
        samples = _as_samples(waveform)
        if samples.ndim not in (1, 2):
            raise SettingError(
                "waveform must have the shape (samples,) or (batch, samples). "
                f"Got shape {tuple(samples.shape)}."
            )
        if torch.compiler.is_compiling():
            return self._graph(samples)
        # One waveform at a time is faster on a CPU, and a batch gives what each waveform gives.
        if samples.ndim == 2:
            n_frames = pooled_length(samples.shape[1], self.config.hop_samples)
            empty = samples.new_empty(0, n_frames, self.config.n_mels)
            return torch.stack([self(one) for one in samples]) if len(samples) else empty
        return torch.cat([samples.new_empty(0, self.config.n_mels), *self.stream([samples])])

    def stream(self, blocks: Iterable[Tensor | NDArray[np.floating]]) -> Iterator[Tensor]:
        """Yield the log-mel of a waveform that comes in blocks; see `log_mel_blocks`.

        >>> [len(piece) for piece in LogMel(FeatureConfig()).stream([np.zeros(180000, np.float32)])]
        [256, 26]
        """
        config = self.config
        for samples in _cut(blocks, config.hop_samples, config.window_samples):
            yield self._chunk(samples)

    def _chunk(self, samples: Tensor) -> Tensor:
        """Return the log-mel (frames, mels) of the samples of some frames."""
        frames = samples.unfold(0, self.config.window_samples, self.config.hop_samples)
        mel, mean_power = self._mel(frames * self.window)
        faint = mean_power > (mel * self.limits).amin(dim=1)
        if samples.device.type != "mps" and faint.any():  # which has no float64
            mel[faint], _ = self._mel(frames[faint] * self._window64(samples.device))
        normalised: Tensor = self.normalise(mel.log_())
        return normalised

    def _graph(self, samples: Tensor) -> Tensor:
        """Compute (..., samples) -> (..., frames, mels) without choices that depend on values."""
        hop, window = self.config.hop_samples, self.config.window_samples
        n_samples = samples.shape[-1]
        n_frames = (n_samples + hop - 1) // hop
        front = (window - hop) // 2
        behind = (n_frames - 1) * hop + window - front - n_samples
        frames = F.pad(samples, (front, behind)).unfold(-1, window, hop)
        mel, _ = self._mel(frames * self._window64(samples.device))
        normalised: Tensor = self.normalise(mel.log())
        return normalised

    def _window64(self, device: torch.device | str) -> Tensor:
        """Return the window in float64, of which a device such as MPS could not hold a buffer."""
        n_samples = self.config.window_samples
        return torch.hann_window(n_samples, dtype=torch.float64, device=device)

    def _mel(self, windowed: Tensor) -> tuple[Tensor, Tensor]:
        """Return mel power plus offset (..., frames, mels), and mean power (..., frames).

        Of a magnitude spectrum, both are magnitudes.

        The spectra have the precision of the windowed frames; the rest is float32.
        """
        bins = torch.fft.rfft(windowed, self.config.n_fft or None)
        if self.config.spectrum == "magnitude":
            values = bins.abs().to(torch.float32)  # (..., bins)
        else:
            # Re and im stay side by side, (..., 2 * bins): the weights add up their squares.
            values = torch.view_as_real(bins).flatten(-2).to(torch.float32).square_()
        mel = torch.cat([band(values) for band in self.bands], dim=-1)
        return mel.add_(self.config.log_offset), values.sum(dim=-1) / bins.shape[-1]


class _Band(nn.Module):
    """Some neighbouring mel filters, restricted to the bins that they use."""

    weights: Tensor  # (values, mels)

    def __init__(self, filters: NDArray[np.float32], per_bin: int) -> None:
        super().__init__()
        used = np.flatnonzero(filters.any(axis=0))
        low, high = int(used[0]), int(used[-1]) + 1
        weights = np.repeat(filters[:, low:high].T, per_bin, axis=0)  # two for re and im
        self.low, self.high = per_bin * low, per_bin * high
        self.register_buffer("weights", torch.from_numpy(weights), persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        """(..., bins), or twice as many for re and im, -> (..., mels)."""
        return values[..., self.low : self.high] @ self.weights


@lru_cache(maxsize=16)
def _module(config: FeatureConfig, device: torch.device) -> LogMel:
    with torch.inference_mode(False):  # kept for later calls, also outside of it
        return LogMel(config).to(device)


def log_mel(waveform: Tensor | NDArray[np.floating], config: FeatureConfig) -> Tensor:
    """Return the log-mel of a waveform or of a batch, on its device: `LogMel` as a function.

    Shape: (samples,) -> (frames, mels), or (batch, samples) -> (batch, frames, mels).

    >>> log_mel(np.zeros(320000, np.float32), FeatureConfig()).shape
    torch.Size([500, 80])
    """
    samples = _as_samples(waveform)
    features: Tensor = _module(config, samples.device)(samples)
    return features


def log_mel_blocks(
    blocks: Iterable[Tensor | NDArray[np.floating]], config: FeatureConfig, chunk: int = CHUNK
) -> Iterator[Tensor]:
    """Yield the log-mel of a waveform that comes in blocks of any sizes, in pieces.

    The pieces (frames, mels), concatenated, are `log_mel` of the whole waveform, bit for bit, with
    chunks of 256 frames, and to rounding with others. At most one block and one chunk are held in
    memory.

    Args:
        blocks: of the waveform, in order.
        config: of the log-mel.
        chunk: frames per piece; fewer come sooner and take more time.

    >>> blocks = [np.zeros(n, np.float32) for n in (100000, 1, 0, 80000)]
    >>> [len(piece) for piece in log_mel_blocks(blocks, FeatureConfig())]
    [256, 26]
    """
    for samples in _cut(blocks, config.hop_samples, config.window_samples, chunk):
        yield _module(config, samples.device)._chunk(samples)


def sample_blocks(
    blocks: Iterable[Tensor | NDArray[np.floating]], config: FeatureConfig, chunk: int = CHUNK
) -> Iterator[Tensor]:
    """Yield the samples of a waveform that comes in blocks of any sizes, as normalised frames.

    The pieces are (frames, samples per frame), up to `chunk` frames; the last frame is filled with
    zeros before normalisation.

    >>> config = FeatureConfig(sample_rate=22050, kind="waveform")
    >>> [tuple(piece.shape) for piece in sample_blocks([np.zeros(22051, np.float32)], config)]
    [(51, 441)]
    """
    normalise, hop = Normalise(config.mean, config.std), config.hop_samples
    for samples in _cut(blocks, hop, hop, chunk):
        yield normalise.to(samples.device)(samples.view(-1, hop))


def mel_filters(config: FeatureConfig) -> NDArray[np.float32]:
    """Return the weight of each bin of the spectrum in each mel, (mels, bins).

    "slaney": triangles of equal area, linear below 1 kHz and logarithmic above (Slaney's Auditory
    Toolbox, 1998); `librosa.filters.mel` gives the same. "htk": triangles of height 1, linear in
    mel = 1127 ln(1 + f / 700); `tf.signal.linear_to_mel_weight_matrix` gives the same.

    >>> mel_filters(FeatureConfig()).shape
    (80, 641)
    """
    bin_numbers = np.arange(config.fft_samples // 2 + 1, dtype=np.float64)
    bins = bin_numbers * (config.sample_rate / config.fft_samples)
    corners = _mel_corners(config)[:, None]
    if config.mel_scale == "htk":
        triangles = _triangles(_hz_to_htk(bins), corners)
        triangles[:, 0] = 0.0  # no filter has a constant in it
        return triangles.astype(np.float32)
    areas = corners[2:] - corners[:-2]
    return (_triangles(bins, corners) * 2 / areas).astype(np.float32)


def mel_frequencies(config: FeatureConfig) -> NDArray[np.float64]:
    """Return the frequency at which each mel filter has its peak, in Hz, (mels,).

    >>> mel_frequencies(FeatureConfig())[[0, -1]].round()
    array([   93., 13388.])
    """
    centres = _mel_corners(config)[1:-1]
    return _htk_to_hz(centres) if config.mel_scale == "htk" else centres


def _mel_corners(config: FeatureConfig) -> NDArray[np.float64]:
    """Return where the triangles start, peak and end: in Hz, or in mels of the HTK scale."""
    edges = np.array([config.f_min, config.f_max])
    low, high = _hz_to_htk(edges) if config.mel_scale == "htk" else _hz_to_mel(edges)
    mels = np.linspace(low, high, config.n_mels + 2)
    return mels if config.mel_scale == "htk" else _mel_to_hz(mels)


def _triangles(bins: NDArray[np.float64], corners: NDArray[np.float64]) -> NDArray[np.float64]:
    left, centre, right = corners[:-2], corners[1:-1], corners[2:]
    triangles = np.minimum((bins - left) / (centre - left), (right - bins) / (right - centre))
    return np.asarray(np.maximum(triangles, 0.0))


def _hz_to_htk(hz: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1127.0 * np.log1p(hz / 700.0))


def _htk_to_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(700.0 * np.expm1(mel / 1127.0))


_HZ_PER_MEL = 200 / 3  # below 1 kHz
_LOG_STEP = np.log(6.4) / 27  # above 1 kHz, 27 mels from 1 to 6.4 kHz


def _hz_to_mel(hz: NDArray[np.float64]) -> NDArray[np.float64]:
    above = 1000 / _HZ_PER_MEL + np.log(np.maximum(hz, 1000) / 1000) / _LOG_STEP
    return np.where(hz < 1000, hz / _HZ_PER_MEL, above)


def _mel_to_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    knee = 1000 / _HZ_PER_MEL
    return np.where(mel < knee, mel * _HZ_PER_MEL, 1000 * np.exp(_LOG_STEP * (mel - knee)))


def _cut(
    blocks: Iterable[Tensor | NDArray[np.floating]], hop: int, window: int, chunk: int = CHUNK
) -> Iterator[Tensor]:
    """Yield the samples of each `chunk` frames, which overlap, and of the remaining frames."""
    step = chunk * hop
    span = step - hop + window
    front = (window - hop) // 2
    held: list[Tensor] = []
    n_held = 0  # samples from the first window that was not yielded yet
    for block in blocks:
        samples = _as_samples(block)
        if samples.ndim != 1:
            raise SettingError(
                f"A block must have the shape (samples,). Got {tuple(samples.shape)}."
            )
        if not held:
            held, n_held = [samples.new_zeros(front)], front
        held.append(samples)
        n_held += len(samples)
        if n_held >= span:
            samples = torch.cat(held)
            while len(samples) >= span:
                yield samples[:span]
                samples = samples[step:]
            held, n_held = [samples], len(samples)
    n_frames = -(-(n_held - front) // hop)
    if n_frames > 0:
        behind = n_frames * hop - hop + window - n_held
        samples = torch.cat([*held, held[0].new_zeros(behind)])
        for first in range(0, n_frames, chunk):
            last = min(first + chunk, n_frames) - 1
            yield samples[first * hop : last * hop + window]


def _as_samples(waveform: Tensor | NDArray[np.floating]) -> Tensor:
    """Return a waveform as a float32 tensor, on the device where it is."""
    samples = torch.as_tensor(waveform).detach()
    if not samples.is_floating_point():
        raise SettingError(
            "waveform must hold floating-point numbers between -1 and 1; divide integers by their"
            f" full scale, 16-bit ones by 32768. Got {samples.dtype}."
        )
    return samples.to(torch.float32)
