"""Waveform -> audio file.

Conventions: a waveform is mono float32 of shape (samples,), full scale -1 to 1. Files are written
atomically.
"""

import io
import os
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import ArrayLike

from earmark.audio.waveform import check_sample_rate, check_samples
from earmark.errors import AudioError, DataError, SettingError, choose
from earmark.files import atomic_path

_BLOCK = 1 << 16  # samples per call: a long Vorbis file written in one call crashes libsndfile


def write_audio(path: str | os.PathLike[str], waveform: ArrayLike, sample_rate: int) -> None:
    """Write a mono waveform in the format of the suffix: 16-bit .wav or .flac, or .ogg (Vorbis).

    Samples beyond full scale are clipped.

    >>> import tempfile
    >>> from earmark.audio.decode import read_audio
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_audio(f"{folder}/loud.flac", [0.0, 0.5, 2.0], 8000)
    ...     read_audio(f"{folder}/loud.flac")
    (array([0. , 0.5 , 0.9999695], dtype=float32), 8000)
    """
    path = Path(path)
    form, subtype = WRITERS[choose("audio format to write", path.suffix.lower(), WRITERS)]
    samples = np.asarray(waveform, dtype=np.float32)
    if samples.ndim != 1 or not samples.size:
        raise SettingError(
            f"waveform must have the shape (samples,), not empty. Got {samples.shape}."
        )
    check_sample_rate(sample_rate)
    check_samples(samples, 0, sample_rate, f"The waveform for {path}")
    if form == "OGG" and sample_rate > 200_000:  # where the encoder would crash the process
        raise AudioError(
            f"{path} cannot be written at {sample_rate} Hz: Vorbis ends at 200000 Hz; use .wav."
        )
    samples = np.clip(samples, -1.0, 1.0)
    if subtype == "PCM_16":  # rounded here: libsndfile rounds in a flac, but not in a wav
        samples = np.clip(np.rint(samples * 32768.0), -32768, 32767).astype(np.int16)
    try:
        with (
            atomic_path(path) as part,
            soundfile.SoundFile(part, "w", sample_rate, 1, subtype, format=form) as sound,
        ):
            for first in range(0, len(samples), _BLOCK):
                sound.write(samples[first : first + _BLOCK])
    except DataError as error:
        reason = error.__cause__ or error
        raise AudioError(
            f"{path} cannot be written: {getattr(reason, 'strerror', None) or reason}."
        ) from reason
    except soundfile.LibsndfileError as error:
        if error.code == _SYSTEM_ERROR:
            raise AudioError(f"{path} cannot be written; perhaps the disk is full.") from error
        reason = error.error_string.strip().removeprefix("Error : ").rstrip(".")
        raise AudioError(
            f"{path} cannot be written at {sample_rate} Hz: {reason}; use .wav."
        ) from error


_SYSTEM_ERROR = 2  # of libsndfile, which does not say which


def encode_audio(waveform: ArrayLike, sample_rate: int) -> tuple[bytes, str]:
    """Return a mono waveform as a small file that browsers play, and its media type.

    It is an mp3, or a flac where libsndfile cannot write an mp3 of this sample rate.

    >>> content, kind = encode_audio(np.zeros(16000, np.float32), 16000)
    >>> kind, len(content) < 20_000
    ('audio/mpeg', True)
    """
    samples = np.clip(np.asarray(waveform, dtype=np.float32), -1.0, 1.0)
    for form, subtype, kind in _FOR_BROWSERS:
        buffer = io.BytesIO()
        try:
            with soundfile.SoundFile(buffer, "w", sample_rate, 1, subtype, format=form) as sound:
                for first in range(0, len(samples), _BLOCK):
                    sound.write(samples[first : first + _BLOCK])
        except (soundfile.LibsndfileError, ValueError):  # an old libsndfile, or another sample rate
            continue
        return buffer.getvalue(), kind
    raise AudioError(f"A waveform at {sample_rate} Hz cannot be encoded; use 8000 to 48000 Hz.")


_FOR_BROWSERS = (("MP3", "MPEG_LAYER_III", "audio/mpeg"), ("FLAC", "PCM_16", "audio/flac"))

WRITERS: dict[str, tuple[str, str]] = {
    ".wav": ("WAV", "PCM_16"),
    ".flac": ("FLAC", "PCM_16"),
    ".ogg": ("OGG", "VORBIS"),
}
