"""Waveforms in memory -> mono at another sample rate.

Conventions: a waveform is mono float32 of shape (samples,), full scale -1 to 1. With two
dimensions the shorter axis is that of the channels, so that (channels, samples), as torch and
librosa have it, and (samples, channels), as soundfile has it, are both read.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import soxr
from numpy.typing import NDArray

from earmark.errors import AudioError, SettingError

Waveform = NDArray[np.float32]
MOST_CHANNELS = 64  # more is taken for a batch of clips
# Full scale of 32-bit integers, for float files that were never divided by it. Beyond it samples
# are garbage, and from 1e19 on the power of a spectrum is infinite in single precision.
LOUDEST = 2.0**31


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
    if float(np.abs(waveform).max()) > LOUDEST:
        raise SettingError(
            "A waveform holds numbers between -1 and 1. "
            f"Got {float(np.abs(waveform).max()):.3g}; scale it, or remove what is wrong."
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


def check_samples(samples: Waveform, position: int, sample_rate: int, name: str) -> None:
    """Raise if samples, the first of which is at `position`, are not finite or beyond `LOUDEST`.

    >>> check_samples(np.array([0.0, np.nan], np.float32), 0, 2, "a.wav")
    Traceback (most recent call last):
        ...
    earmark.errors.AudioError: a.wav contains NaN or infinity at 0.500 s; ...
    >>> check_samples(np.array([0.0, 1e20], np.float32), 0, 2, "a.wav")
    Traceback (most recent call last):
        ...
    earmark.errors.AudioError: a.wav has a sample of 1e+20 at 0.500 s, where full scale is 1; ...
    """
    usable = np.abs(samples) <= LOUDEST  # False for NaN
    if usable.all():
        return
    at = int(np.argmin(usable))
    where = f"at {(position + at) / sample_rate:.3f} s"
    if np.isfinite(samples[at]):
        raise AudioError(
            f"{name} has a sample of {samples[at]:.3g} {where}, where full scale is 1; "
            "write it again from valid samples."
        )
    raise AudioError(f"{name} contains NaN or infinity {where}; write it again from valid samples.")


def mix_channels(block: Waveform) -> Waveform:
    """Return the mean of the channels of a block: (samples, channels) -> (samples,).

    >>> mix_channels(np.array([[0.5, 0.0], [0.25, 0.75]], np.float32))
    array([0.25, 0.5 ], dtype=float32)
    """
    mono: Waveform = block[:, 0]
    if block.shape[1] > 1:
        mono = np.asarray(sum(block.T) / np.float32(block.shape[1]))
    return mono


def check_sample_rate(sample_rate: int) -> None:
    """Raise unless a sample rate is a whole number of Hz above 0.

    >>> check_sample_rate(44.1)
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: sample_rate must be a whole number of Hz above 0. Got 44.1.
    """
    if isinstance(sample_rate, bool) or not (
        isinstance(sample_rate, int | np.integer) and sample_rate > 0
    ):
        raise SettingError(
            f"sample_rate must be a whole number of Hz above 0. Got {sample_rate!r}."
        )


def resample(
    blocks: Iterable[Waveform], source_rate: int, target_rate: int, name: str = "The waveform"
) -> Iterator[Waveform]:
    """Yield blocks at another sample rate, in constant memory; nothing changes at the same rate.

    Args:
        blocks: of one waveform, in order.
        source_rate: of the blocks, in Hz.
        target_rate: to resample to, in Hz.
        name: of the waveform, for errors.

    >>> blocks = [np.zeros(n, np.float32) for n in (8000, 8000)]
    >>> sum(len(block) for block in resample(blocks, 8000, 16000))
    32000
    """
    check_sample_rate(source_rate)
    check_sample_rate(target_rate)
    if source_rate == target_rate:
        yield from blocks
        return
    stream = soxr.ResampleStream(source_rate, target_rate, 1, dtype="float32")
    is_empty = True
    for block in chain(blocks, [None]):  # None: the end, which flushes the filter
        last = block is None
        resampled = stream.resample_chunk(np.zeros(0, np.float32) if last else block, last)
        is_empty = is_empty and not len(resampled)
        if len(resampled):
            yield resampled
    if is_empty:
        raise AudioError(f"{name} is too short to be resampled to {target_rate} Hz; remove it.")


@lru_cache
def resampling_delay(source_rate: int, target_rate: int) -> float:
    """Return how many seconds a resampled waveform is behind the original at most, when live.

    >>> resampling_delay(32000, 32000)
    0.0
    >>> 0 < resampling_delay(44100, 32000) < 0.5
    True
    """
    if source_rate == target_rate:
        return 0.0
    # Measured, since filters and the blocks in which they run depend on both rates.
    stream = soxr.ResampleStream(source_rate, target_rate, 1, dtype="float32")
    step = max(1, source_rate // 1000)
    silence, n_in, n_out, longest = np.zeros(step, np.float32), 0, 0, 0.0
    while n_in < 4 * source_rate:
        n_in += step
        n_out += len(stream.resample_chunk(silence))
        longest = max(longest, n_in / source_rate - n_out / target_rate)
    return longest
