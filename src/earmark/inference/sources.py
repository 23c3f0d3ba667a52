"""A path, an open file or a waveform -> blocks of samples at the sample rates of networks.

Conventions: those of `earmark.inference.detector`. A file is decoded once and resampled for each
sample rate.
"""

import os
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from torch import Tensor

from earmark.audio.decode import Source, audio_format, read_blocks
from earmark.audio.waveform import Waveform, resample, to_mono
from earmark.errors import SettingError
from earmark.runtime.threads import share_items

BLOCK = 1 << 18  # samples of a waveform to resample at a time


def open_blocks(
    source: Source | Waveform | Tensor, sample_rate: int | None, rates: Sequence[int]
) -> dict[int, Iterable[Waveform]]:
    """Return each sample rate -> blocks of the waveform at that rate.

    Args:
        source: a path, an open binary file, or a waveform.
        sample_rate: of a waveform, in Hz; a file knows its own.
        rates: the sample rates that are wanted.

    >>> blocks = open_blocks(np.zeros(8000), 8000, [16000])
    >>> sum(len(block) for block in blocks[16000])
    16000
    """
    if not isinstance(source, np.ndarray | Tensor):
        if not (isinstance(source, str | os.PathLike) or hasattr(source, "read")):
            raise SettingError(
                "A source is a path, an open binary file, or a waveform as a NumPy array or "
                f"torch tensor. Got a {type(source).__name__}."
            )
        if sample_rate is not None:
            raise SettingError("sample_rate is for waveforms; a file knows its own.")
        if len(rates) == 1:
            return {rates[0]: read_blocks(source, rates[0])}
        own_rate, _ = audio_format(source)  # decoded once, resampled for each network
        shared = share_items(read_blocks(source), len(rates))
        return {
            rate: resample(blocks, own_rate, rate, f"{source}")
            for rate, blocks in zip(rates, shared, strict=True)
        }
    if sample_rate is None:
        raise SettingError("A waveform needs its sample_rate, as in detect(waveform, 16000).")
    if isinstance(source, Tensor):
        own = source.detach().cpu()  # NumPy has no bfloat16
        source = (own.float() if own.is_floating_point() else own).numpy()
    waveform = to_mono(source)
    return {
        rate: [waveform]
        if sample_rate == rate
        else resample(_in_blocks(waveform), sample_rate, rate)
        for rate in rates
    }


def _in_blocks(waveform: Waveform) -> Iterator[Waveform]:
    for first in range(0, len(waveform), BLOCK):
        yield waveform[first : first + BLOCK]
