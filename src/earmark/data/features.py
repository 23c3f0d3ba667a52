"""Waveform -> log-mel.

Conventions: frame `i` stands for [i * hop, (i + 1) * hop) and its window is centred on that
interval: (window - hop) / 2 zeros go in front of the waveform, and zeros behind it until the last
begun frame is full, so that 10 s at a hop of 20 ms are exactly 500 frames. The spectrum is that of
a periodic Hann window, squared; the mel scale and the area of its filters are Slaney's, as in
librosa. A log-mel is the natural logarithm of mel power plus an offset, float32; it is data, and no
gradient flows back through it.

Shapes: (samples,) -> (frames, mels) and (batch, samples) -> (batch, frames, mels).

FrameGrid are computed 256 at a time, counted from the first one, whether the waveform comes whole, in
blocks or in a batch: all three give the same values bit for bit.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from earmark.errors import SettingError
from earmark.frames import SNAP, FrameGrid

CHUNK = 256  # frames at a time: few calls, and yet their spectra stay in the cache
BAND = 16  # mels multiplied at a time, with only the bins that they use: most of a filter is zero

# A float32 spectrum is off by about 1e-7 of its own mean, which the logarithm of a far fainter mel
# shows. Where a mel's power is below the frame's mean by this factor, its log would be off by about
# 1.5e-5, at worst 1e-4: such frames, one in twenty, are computed anew in float64. In float64 all
# frames would take twice the time.
FAINT = 5e3


@dataclass(frozen=True)
class FeatureConfig:
    """How a waveform becomes a log-mel; times in seconds, frequencies in Hz.

    Args:
        sample_rate: samples a second.
        window: length of one spectrum; the FFT is just as long.
        hop: from one frame to the next.
        n_mels: number of mel filters, between `f_min` and `f_max`.
        f_min: where the first filter begins.
        f_max: where the last filter ends.
        log_offset: added to the mel power. A full-scale tone has about 2,000 and the rounding of
            16-bit audio about 1e-9; an offset between hides whether a silence was rounded,
            encoded or digitally empty, and keeps what can be heard.
        mean: what to take from the log-mel, for all mels or for each.
        std: what to divide it by after that, for all mels or for each.

    >>> config = FeatureConfig()
    >>> config.window_samples, config.hop_samples, config.frames.count(10.0)
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

    def __post_init__(self) -> None:
        for name in ("mean", "std"):  # a list from a file will do
            object.__setattr__(self, name, tuple(float(value) for value in getattr(self, name)))
        for name in ("sample_rate", "n_mels"):
            value = getattr(self, name)
            if not (isinstance(value, int) and value > 0):
                raise SettingError(f"{name} must be a whole number above 0. Got {value!r}.")
        for name in ("window", "hop"):
            self._check_whole(name)
        if self.window_samples < self.hop_samples:
            raise SettingError(
                f"window must be as long as the hop of {self.hop!r} s or longer, or samples between"
                f" two frames are never heard. Got {self.window!r} s."
            )
        if not 0 <= self.f_min < self.f_max <= self.sample_rate / 2:
            raise SettingError(
                f"The mels must lie in 0 <= f_min < f_max <= {self.sample_rate / 2:g} Hz, half the sample rate."
                f" Got f_min={self.f_min!r} and f_max={self.f_max!r}."
            )
        if not 0 < self.log_offset < np.inf:
            raise SettingError(f"log_offset must be above 0. Got {self.log_offset!r}.")
        self._check_normalisation()
        empty = np.flatnonzero(~mel_filters(self).any(axis=1))
        if len(empty):
            raise SettingError(
                f"{len(empty)} of {self.n_mels} mels, the first of them number {empty[0]}, lie"
                f" between two bins of {self.sample_rate / self.window_samples:g} Hz and stay empty; give"
                " a smaller n_mels, a longer window or a higher f_min."
            )

    def _check_whole(self, name: str) -> None:
        value = getattr(self, name)
        samples = value * self.sample_rate
        if not 0.5 <= samples < np.inf:
            raise SettingError(f"{name} must be at least one sample. Got {value!r} s.")
        if abs(samples - round(samples)) > SNAP:
            near = max(1, int(samples))
            raise SettingError(
                f"{name} must be a whole number of samples. Got {value!r} s, which is {samples:g}"
                f" samples at {self.sample_rate} Hz; {near} / {self.sample_rate} s would do."
            )

    def _check_normalisation(self) -> None:
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.n_mels):
                raise SettingError(
                    f"{name} must have one value, or one for each of {self.n_mels} mels."
                    f" Got {len(values)}."
                )
            if not np.isfinite(values).all() or (name == "std" and min(values) <= 0):
                kind = "finite numbers above 0" if name == "std" else "finite numbers"
                raise SettingError(f"{name} must hold {kind}. Got {values!r}.")

    @property
    def window_samples(self) -> int:
        """Samples of one window."""
        return round(self.window * self.sample_rate)

    @property
    def hop_samples(self) -> int:
        """Samples from one frame to the next."""
        return round(self.hop * self.sample_rate)

    @property
    def frames(self) -> FrameGrid:
        """The grid between frames and seconds.

        >>> FeatureConfig().frames
        FrameGrid(frame_rate=Fraction(50, 1))
        """
        return FrameGrid(Fraction(self.sample_rate, self.hop_samples))

    @property
    def raw(self) -> "FeatureConfig":
        """The same settings without normalisation.

        >>> FeatureConfig(mean=(-8.0,), std=(4.0,)).raw == FeatureConfig()
        True
        """
        return replace(self, mean=(0.0,), std=(1.0,))


def log_mel(waveform: Tensor | NDArray[np.floating], config: FeatureConfig) -> Tensor:
    """Return the log-mel of a waveform or of a batch of them, normalised as `config` says.

    Shape:
        (samples,) -> (frames, mels), or (batch, samples) -> (batch, frames, mels), where frames is
        samples / hop_samples, rounded up. The device is that of the waveform.

    >>> log_mel(np.zeros(320000, np.float32), FeatureConfig()).shape
    torch.Size([500, 80])
    >>> log_mel(torch.zeros(3, 32001), FeatureConfig()).shape
    torch.Size([3, 51, 80])
    """
    samples = _as_samples(waveform)
    if samples.ndim == 2:
        # One at a time is faster on a CPU, and a batch gives what each waveform gives.
        n_frames = -(-samples.shape[1] // config.hop_samples)
        pieces = [log_mel(one, config) for one in samples]
        return torch.stack(pieces) if pieces else samples.new_empty(0, n_frames, config.n_mels)
    if samples.ndim != 1:
        raise SettingError(
            f"A waveform is (samples,) or (batch, samples). Got the shape {tuple(samples.shape)}."
        )
    return torch.cat([samples.new_empty(0, config.n_mels), *log_mel_blocks([samples], config)])


def log_mel_blocks(
    blocks: Iterable[Tensor | NDArray[np.floating]], config: FeatureConfig
) -> Iterator[Tensor]:
    """Turn the blocks of one waveform, of any sizes, into pieces of its log-mel.

    The pieces (frames, mels) put together are `log_mel` of the whole waveform, bit for bit. No more
    than a block and 256 frames are held at a time.

    >>> blocks = [np.zeros(n, np.float32) for n in (100000, 1, 0, 80000)]
    >>> [len(piece) for piece in log_mel_blocks(blocks, FeatureConfig())]
    [256, 26]
    """
    for samples in _cut(blocks, config):
        frames = samples.unfold(0, config.window_samples, config.hop_samples)
        tables = _tables(config, samples.device)
        mel, power = _mel(frames * tables.window, tables)
        faint = power > (mel * tables.limits).amin(dim=1)
        if tables.window64 is not None and faint.any():
            mel[faint], _ = _mel(frames[faint] * tables.window64, tables)
        yield normalise(mel.log_(), config)


def normalise(log_mel: Tensor, config: FeatureConfig) -> Tensor:
    """Take the mean of `config` from a raw log-mel (..., mels) and divide by its std.

    >>> normalise(torch.tensor([[-8.0, -4.0]]), FeatureConfig(n_mels=2, mean=(-6,), std=(2,)))
    tensor([[-1., 1.]])
    """
    if config.mean == (0.0,) and config.std == (1.0,):
        return log_mel
    return (log_mel - log_mel.new_tensor(config.mean)) / log_mel.new_tensor(config.std)


def mel_filters(config: FeatureConfig) -> NDArray[np.float32]:
    """Return the weight of each bin of the power spectrum in each mel, (mels, bins).

    Triangles of equal area, linear below 1 kHz and logarithmic above (Slaney's Auditory Toolbox,
    1998); `librosa.filters.mel` gives the same.

    >>> mel_filters(FeatureConfig()).shape
    (80, 641)
    """
    bins = np.arange(config.window_samples // 2 + 1) * (config.sample_rate / config.window_samples)
    low, high = _hz_to_mel(np.array([config.f_min, config.f_max]))
    corners = _mel_to_hz(np.linspace(low, high, config.n_mels + 2))[:, None]
    left, centre, right = corners[:-2], corners[1:-1], corners[2:]
    triangles = np.minimum((bins - left) / (centre - left), (right - bins) / (right - centre))
    return (np.maximum(triangles, 0.0) * 2 / (right - left)).astype(np.float32)


_HZ_A_MEL = 200 / 3  # below 1 kHz
_LOG_STEP = np.log(6.4) / 27  # above 1 kHz, 27 mels from 1 to 6.4 kHz


def _hz_to_mel(hz: NDArray[np.float64]) -> NDArray[np.float64]:
    above = 1000 / _HZ_A_MEL + np.log(np.maximum(hz, 1000) / 1000) / _LOG_STEP
    return np.where(hz < 1000, hz / _HZ_A_MEL, above)


def _mel_to_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    knee = 1000 / _HZ_A_MEL
    return np.where(mel < knee, mel * _HZ_A_MEL, 1000 * np.exp(_LOG_STEP * (mel - knee)))


class _Tables(NamedTuple):
    """What is computed once for a config and a device."""

    window: Tensor  # (samples,)
    window64: Tensor | None  # the same in float64, if the device has it
    bands: list[tuple[int, int, Tensor]]  # of squares, from and to; their weights (squares, mels)
    limits: Tensor  # (mels,): of the frame's mean power, in units of the mel, where float32 ends
    log_offset: float


@lru_cache(maxsize=16)
def _tables(config: FeatureConfig, device: torch.device) -> _Tables:
    # Asked for and given back untouched: the C library then keeps memory of this size for the next
    # chunk, where it would else return it to the system and fetch it anew, at twice the time.
    torch.empty(24 << 20, dtype=torch.uint8)
    filters = mel_filters(config)
    with torch.inference_mode(False):  # kept for later calls, also outside of it
        window = torch.hann_window(config.window_samples, dtype=torch.float64)
        bands = []
        for first in range(0, config.n_mels, BAND):
            band = filters[first : first + BAND]
            used = np.flatnonzero(band.any(axis=0))
            low, high = int(used[0]), int(used[-1]) + 1
            weights = np.repeat(band[:, low:high].T, 2, axis=0)  # for re and im
            bands.append((2 * low, 2 * high, torch.from_numpy(weights).to(device)))
        # An error spread evenly over the bins is seen less in a mel that has many of them.
        limits = FAINT * filters.sum(axis=1) / (filters**2).sum(axis=1)
        return _Tables(
            window=window.to(torch.float32).to(device),
            window64=None if device.type == "mps" else window.to(device),
            bands=bands,
            limits=torch.from_numpy(limits).to(device),
            log_offset=config.log_offset,
        )


def _mel(windowed: Tensor, tables: _Tables) -> tuple[Tensor, Tensor]:
    """Return mel power plus offset (frames, mels), and mean power (frames,), of windowed frames.

    The spectra have the precision of the frames; the rest is float32.
    """
    spectra = torch.view_as_real(torch.fft.rfft(windowed))  # (frames, bins, re and im)
    # Re and im stay side by side, (frames, 2 * bins): the weights add their squares up.
    squares = spectra.flatten(1).to(torch.float32).square_()
    mel = torch.cat([squares[:, low:high] @ weights for low, high, weights in tables.bands], dim=1)
    return mel.add_(tables.log_offset), squares.sum(dim=1) / spectra.shape[1]


def _cut(
    blocks: Iterable[Tensor | NDArray[np.floating]], config: FeatureConfig
) -> Iterator[Tensor]:
    """Cut a waveform into the samples of every `CHUNK` frames, which overlap, and of the rest."""
    hop, window = config.hop_samples, config.window_samples
    step = CHUNK * hop
    span = step - hop + window
    front = (window - hop) // 2
    held: list[Tensor] = []
    n_held = 0  # samples from the first window that is still to come
    for block in blocks:
        samples = _as_samples(block)
        if samples.ndim != 1:
            raise SettingError(f"A block is (samples,). Got the shape {tuple(samples.shape)}.")
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
        for first in range(0, n_frames, CHUNK):
            last = min(first + CHUNK, n_frames) - 1
            yield samples[first * hop : last * hop + window]


def _as_samples(waveform: Tensor | NDArray[np.floating]) -> Tensor:
    """Return a waveform as a float32 tensor, on the device where it is."""
    samples = torch.as_tensor(waveform).detach()
    if not samples.is_floating_point():
        raise SettingError(
            "A waveform holds floating-point numbers between -1 and 1; divide whole numbers by"
            f" their full scale, 16-bit ones by 32768. Got {samples.dtype}."
        )
    return samples.to(torch.float32)
