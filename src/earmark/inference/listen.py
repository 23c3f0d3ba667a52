"""A pipe or a microphone -> events as soon as they are final, until it ends or is interrupted.

Conventions: an interrupt (Ctrl-C or SIGTERM) ends the recording, as its end does: the events that
are known then come last.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, NamedTuple

from earmark.audio.microphone import read_microphone
from earmark.audio.pipe import PcmFormat, PipeReader
from earmark.audio.waveform import Waveform
from earmark.formats.events import Event
from earmark.inference.detector import Detector
from earmark.runtime.interrupts import Interrupts

logger = logging.getLogger(__name__)


class LiveSource(NamedTuple):
    """A live recording: its sample rate in Hz, and its chunks (samples, channels).

    >>> LiveSource(16000, []).sample_rate
    16000
    """

    sample_rate: int
    chunks: Iterable[Waveform]


def open_pipe(
    stream: BinaryIO,
    raw_rate: int | None = None,
    raw_format: str = "s16le",
    raw_channels: int = 1,
    name: str = "Standard input",
) -> LiveSource:
    """Return the live recording in a pipe: a wav, or raw samples if their rate is given.

    Args:
        stream: an open binary file.
        raw_rate: sample rate of raw samples, in Hz.
        raw_format: their encoding, a key of `earmark.audio.pipe.ENCODINGS`.
        raw_channels: how many channels alternate.
        name: of the pipe, for errors.

    >>> import io
    >>> open_pipe(io.BytesIO(bytes(8)), raw_rate=16000).sample_rate
    16000
    """
    raw = None if raw_rate is None else PcmFormat(raw_rate, raw_format, raw_channels)
    reader = PipeReader(stream, raw, name)
    return LiveSource(reader.format.sample_rate, reader.chunks())


def open_microphone(sample_rate: int, device: str | None = None) -> LiveSource:
    """Return the live recording of a microphone; it needs the library `sounddevice`.

    Args:
        sample_rate: in Hz.
        device: name or number of the device; by default that of the system.

    >>> open_microphone(0)
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: sample_rate must be a whole number of Hz above 0. Got 0.
    """
    return LiveSource(sample_rate, read_microphone(sample_rate, device))


def listen(
    detector: Detector,
    open_source: Callable[[], LiveSource],
    interrupts: Interrupts,
    *,
    sensitivity: str | float = "normal",
    min_score: float = 0.0,
) -> Iterator[Event]:
    """Yield the events of a live recording as soon as they are final; log the latency first.

    Args:
        detector: what finds them.
        open_source: opens the live recording, which may have to wait for it.
        interrupts: what ends it early.
        sensitivity: as in `Detector.detect`.
        min_score: as in `Detector.detect`.

    >>> import numpy as np
    >>> with Interrupts() as interrupts:
    ...     source = LiveSource(16000, np.zeros((5, 1600, 1)))
    ...     list(listen(Detector.load(), lambda: source, interrupts))
    []
    """
    source = interrupts.wait_for(open_source)
    if source is None:
        return
    settings = {"sensitivity": sensitivity, "min_score": min_score}
    with detector.stream(source.sample_rate, **settings) as stream:  # type: ignore[arg-type]
        logger.info(
            "%d Hz; an event is printed %.1f s after its end at most.",
            source.sample_rate,
            stream.latency,
        )
        failed: Exception | None = None
        try:
            for chunk in interrupts.read(source.chunks):
                yield from stream.push(chunk)
        except Exception as error:  # of the source; what is known comes first
            failed = error
        yield from stream.finish()
        if failed is not None:
            raise failed
