"""The microphone -> chunks as they come, where the library `sounddevice` is installed.

Conventions: chunks are float32 (samples, channels), full scale -1 to 1.
"""

import logging
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from earmark.audio.waveform import Waveform, check_sample_rate
from earmark.errors import AudioError, SettingError

logger = logging.getLogger(__name__)

CHUNK = 0.1  # seconds per chunk


def read_microphone(sample_rate: int, device: str | int | None = None) -> Iterator[Waveform]:
    """Yield chunks of a microphone for ever.

    Args:
        sample_rate: in Hz.
        device: name, or part of it, or number of the device; by default that of the system.

    >>> chunks = read_microphone(16000.5)
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: sample_rate must be a whole number of Hz above 0. Got 16000.5.
    """
    check_sample_rate(sample_rate)
    library = _library()
    settings: dict[str, Any] = {"samplerate": sample_rate, "channels": 1, "dtype": "float32"}
    if isinstance(device, str) and device.isdecimal():
        device = int(device)
    try:
        microphone = library.InputStream(device=device, **settings)
    except (ValueError, library.PortAudioError) as error:
        raise AudioError(
            f"The microphone {'of the system' if device is None else repr(device)} cannot be "
            f"opened at {sample_rate} Hz: {error}; python -m sounddevice lists the devices."
        ) from error
    return _read(library, microphone, round(CHUNK * sample_rate))


def _read(library: Any, microphone: Any, n_samples: int) -> Iterator[Waveform]:
    with microphone:
        while True:
            try:
                samples, has_overflowed = microphone.read(n_samples)
            except library.PortAudioError as error:
                raise AudioError(
                    f"The microphone stopped: {error}; check that it is connected."
                ) from error
            if has_overflowed:
                logger.warning("Samples of the microphone were lost; this computer is too slow.")
            yield samples


def _library() -> Any:
    try:
        return import_module("sounddevice")
    except ImportError as error:
        raise SettingError(
            "The microphone needs the library sounddevice, which is not installed; install "
            "earmark[mic]."
        ) from error
    except OSError as error:  # PortAudio, which it needs, is missing
        raise SettingError(
            f"The library sounddevice cannot be used: {error}; install PortAudio (on Debian "
            "libportaudio2)."
        ) from error
