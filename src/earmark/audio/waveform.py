"""Waveforms in memory -> mono at another sample rate.

Conventions: a waveform is mono float32 of shape (samples,), full scale -1 to 1. With two
dimensions the shorter axis is that of the channels, so that (channels, samples), as torch and
librosa have it, and (samples, channels), as soundfile has it, are both read.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import soxr
from numpy.typing import NDArray

from earmark.errors import SettingError

Waveform = NDArray[np.float32]
MOST_CHANNELS = 64  # more is taken for a batch of clips


def to_mono(waveform: NDArray[Any]) -> Waveform:
    """Return the mean of the channels as float32.

    >>> to_mono(np.array([[0.5, 0.0, 0.5], [0.0, 0.0, 1.0]]))
    array([0.25, 0.  , 0.75], dtype=float32)
    """
    if waveform.ndim not in (1, 2) or not waveform.size:
        raise SettingError(
            "A waveform is (samples,) or (channels, samples), and not empty. "
            f"Got the shape {waveform.shape}."
        )
    if waveform.dtype.kind != "f" or not np.isfinite(waveform).all():
        raise SettingError(
            "A waveform holds finite floating-point numbers between -1 and 1; divide 16-bit "
            f"integers by 32768. Got {waveform.dtype}"
            f"{' with NaN or infinity' if waveform.dtype.kind == 'f' else ''}."
        )
    if waveform.ndim == 1:
        return waveform.astype(np.float32, copy=False)
    channels = waveform if waveform.shape[0] <= waveform.shape[1] else waveform.T
    if len(channels) > MOST_CHANNELS:
        raise SettingError(
            f"A waveform has {MOST_CHANNELS} channels at most; detect clips one by one. "
            f"Got the shape {waveform.shape}."
        )
    return np.asarray(channels.mean(axis=0), dtype=np.float32)


def resample(blocks: Iterable[Waveform], source_rate: int, target_rate: int) -> Iterator[Waveform]:
    """Yield blocks at another sample rate, in constant memory; nothing changes at the same rate.

    >>> blocks = [np.zeros(n, np.float32) for n in (8000, 8000)]
    >>> sum(len(block) for block in resample(blocks, 8000, 16000))
    32000
    """
    for rate in (source_rate, target_rate):
        if isinstance(rate, bool) or not (isinstance(rate, int | np.integer) and rate > 0):
            raise SettingError(f"A sample rate is a whole number of Hz above 0. Got {rate!r}.")
    if source_rate == target_rate:
        yield from blocks
        return
    stream = soxr.ResampleStream(source_rate, target_rate, 1, dtype="float32")
    is_empty = True
    for block in chain(blocks, [None]):  # None: the end, with what the filter still holds
        last = block is None
        resampled = stream.resample_chunk(np.zeros(0, np.float32) if last else block, last)
        is_empty = is_empty and not len(resampled)
        if len(resampled):
            yield resampled
    if is_empty:
        raise SettingError(
            f"The waveform is too short to be resampled from {source_rate} to {target_rate} Hz."
        )
