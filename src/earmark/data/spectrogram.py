"""A recording of any length -> a log-mel spectrogram to look at, with its frequencies in Hz.

Conventions: it is the log-mel that the network takes, without normalisation. Features that are no
log-mels, such as samples, are drawn as the default log-mel of their sample rate. A picture has only
so many columns: in a longer recording each column has the highest values of several frames, so that
short sounds stay visible, and memory does not grow with the recording.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from earmark.data.features import FeatureConfig, log_mel_blocks, mel_frequencies
from earmark.errors import SettingError

MAX_COLUMNS = 1500  # more than the pixels of a figure
HOP = 0.020  # seconds, where the features are no log-mels


@dataclass(frozen=True, eq=False)
class Spectrogram:
    """A log-mel with its axes.

    Shape: `log_mel` (columns, mels), `frequencies` (mels,).

    Args:
        log_mel: natural logarithm of the power.
        frequencies: of the mels, in Hz.
        start: where the first column begins, in seconds.
        column: seconds per column.

    >>> spectrogram([np.zeros(32000, np.float32)], FeatureConfig())
    Spectrogram(50 columns x 80 mels, 0 to 1 s, 93 to 13388 Hz)
    """

    log_mel: NDArray[np.float32]
    frequencies: NDArray[np.float64]
    start: float
    column: float

    @property
    def end(self) -> float:
        """Where the last column ends, in seconds; the recording may end before."""
        return self.start + len(self.log_mel) * self.column

    def __repr__(self) -> str:
        n_columns, n_mels = self.log_mel.shape
        low, high = self.frequencies[[0, -1]]
        return (
            f"Spectrogram({n_columns} columns x {n_mels} mels, {self.start:g} to {self.end:g} s, "
            f"{low:.0f} to {high:.0f} Hz)"
        )


def spectrogram(
    blocks: Iterable[NDArray[np.floating]],
    config: FeatureConfig,
    start: float = 0.0,
    end: float | None = None,
    max_columns: int = MAX_COLUMNS,
) -> Spectrogram:
    """Return the spectrogram of a waveform that comes in blocks, or of a part of it.

    Args:
        blocks: of the waveform, at the sample rate of `config`.
        config: of a log-mel; see `drawn_features`.
        start: of the part, in seconds.
        end: of the part; by default the end of the waveform.
        max_columns: so many columns at most.

    >>> minute = [np.zeros(32000, np.float32)] * 60
    >>> spectrogram(minute, FeatureConfig(), max_columns=1000)
    Spectrogram(750 columns x 80 mels, 0 to 60 s, 93 to 13388 Hz)
    """
    grid = config.grid
    first, stop = grid.index(max(0.0, start)), None if end is None else grid.count(end)
    if stop is not None and stop <= first:
        raise SettingError(f"The part must end after its start. Got {start:g} to {end:g} s.")
    columns = np.empty((0, config.n_mels), np.float32)
    per_column, at, rest = 1, 0, columns
    for piece in log_mel_blocks(blocks, config):
        frames = piece.numpy()[max(0, first - at) : None if stop is None else max(0, stop - at)]
        at += len(piece)
        joined = np.concatenate([rest, frames])
        n_whole = len(joined) // per_column * per_column
        columns = np.concatenate([columns, _highest(joined[:n_whole], per_column)])
        rest = joined[n_whole:]
        while len(columns) > max_columns:
            n_even = len(columns) // 2 * 2
            # A column that is left over waits for its other half, as `per_column` equal frames.
            rest = np.concatenate([np.repeat(columns[n_even:], per_column, axis=0), rest])
            columns = _highest(columns[:n_even], 2)
            per_column *= 2
        if stop is not None and at >= stop:
            break
    if len(rest):
        columns = np.concatenate([columns, rest.max(axis=0, keepdims=True)])
    if not len(columns):
        raise SettingError(f"The recording ends before {start:g} s, where the part starts.")
    frequencies = mel_frequencies(config)
    return Spectrogram(columns, frequencies, grid.onset(first), per_column * grid.hop)


def _highest(frames: NDArray[np.float32], n_each: int) -> NDArray[np.float32]:
    """Return the highest values of every `n_each` frames; (frames, mels) -> (columns, mels)."""
    highest: NDArray[np.float32] = frames.reshape(-1, n_each, frames.shape[1]).max(axis=1)
    return highest


def drawn_features(config: FeatureConfig) -> FeatureConfig:
    """Return the log-mel that is drawn for these features.

    >>> drawn_features(FeatureConfig(mean=(-8.0,), std=(4.0,))) == FeatureConfig()
    True
    >>> drawn_features(FeatureConfig(sample_rate=11025, hop=0.04, kind="waveform")).f_max
    5512.5
    """
    takes_log_mels = config.encoder is None or config.encoder.input == "log-mel"
    if config.kind == "log-mel" and takes_log_mels:
        return config.log_mel.raw
    rate = config.sample_rate
    hop = max(1, round(HOP * rate)) / rate
    f_max = min(FeatureConfig.f_max, rate / 2)
    for n_mels in (80, 40, 20, 10, 5):
        try:
            return FeatureConfig(rate, 2 * hop, hop, n_mels, min(50.0, f_max / 10), f_max)
        except SettingError:  # narrow mels of a low sample rate have no bin
            continue
    raise SettingError(f"A recording at {rate} Hz has no spectrogram.")
