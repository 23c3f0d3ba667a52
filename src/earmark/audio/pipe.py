"""A pipe with a wav or with raw samples -> chunks as they come, without seeking.

`earmark.audio.decode` reads files, which it can check and seek in. A pipe, such as standard input
behind `arecord` or `ffmpeg`, ends some time, and its header was written before its length was
known: 0, or about 2 or 4 GiB. Such a length is ignored, and the pipe is read to its end.

Conventions: chunks are float32 (samples, channels), full scale -1 to 1, with the values that
libsndfile gives. Samples are little-endian.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from earmark.audio.decode import STREAMED
from earmark.audio.waveform import MOST_CHANNELS, Waveform, check_sample_rate, check_samples
from earmark.errors import AudioError, SettingError, choose

READ = 1 << 16  # bytes to read at most at a time
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE  # format tags of a wav


def _of_u8(data: bytes) -> NDArray[np.floating[Any]]:
    return (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / np.float32(128)


def _of_s16(data: bytes) -> NDArray[np.floating[Any]]:
    return np.frombuffer(data, "<i2").astype(np.float32) * np.float32(1 / 32768)


def _of_s24(data: bytes) -> NDArray[np.floating[Any]]:
    padded = np.zeros((len(data) // 3, 4), np.uint8)  # in the upper three bytes of 32 bits
    padded[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
    return _of_s32(padded.tobytes())


def _of_s32(data: bytes) -> NDArray[np.floating[Any]]:
    return np.frombuffer(data, "<i4").astype(np.float64) * 2.0**-31


def _of_f32(data: bytes) -> NDArray[np.floating[Any]]:
    return np.frombuffer(data, "<f4")


def _of_f64(data: bytes) -> NDArray[np.floating[Any]]:
    return np.frombuffer(data, "<f8")


# Name, as ffmpeg has it -> bytes per sample, and bytes -> numbers.
ENCODINGS: dict[str, tuple[int, Callable[[bytes], NDArray[np.floating[Any]]]]] = {
    "u8": (1, _of_u8),
    "s16le": (2, _of_s16),
    "s24le": (3, _of_s24),
    "s32le": (4, _of_s32),
    "f32le": (4, _of_f32),
    "f64le": (8, _of_f64),
}


@dataclass(frozen=True)
class PcmFormat:
    r"""What raw samples are.

    Args:
        sample_rate: in Hz.
        encoding: a key of `ENCODINGS`.
        n_channels: whose samples alternate.

    >>> PcmFormat(16000).to_samples(b"\0\x40\0\xc0")
    array([[ 0.5],
           [-0.5]], dtype=float32)
    """

    sample_rate: int
    encoding: str = "s16le"
    n_channels: int = 1

    def __post_init__(self) -> None:
        check_sample_rate(self.sample_rate)
        choose("encoding of samples", self.encoding, ENCODINGS)
        if not 0 < self.n_channels <= MOST_CHANNELS:
            raise SettingError(
                f"n_channels must be from 1 to {MOST_CHANNELS}. Got {self.n_channels!r}."
            )

    @property
    def n_bytes(self) -> int:
        """Bytes of a sample of all channels."""
        return ENCODINGS[self.encoding][0] * self.n_channels

    def to_samples(self, data: bytes) -> Waveform:
        """Return (samples, channels) of whole samples of all channels."""
        numbers = ENCODINGS[self.encoding][1](data).astype(np.float32)
        return numbers.reshape(-1, self.n_channels)


class PipeReader:
    """The audio of a pipe: its format is known when it is made, its samples are read in chunks.

    Args:
        stream: an open binary file; it is not seeked in.
        raw: the format of raw samples; without it the pipe must hold a wav.
        name: of the pipe, for errors.

    >>> import io
    >>> reader = PipeReader(io.BytesIO(bytes(8)), PcmFormat(16000))
    >>> reader.format.sample_rate, [len(chunk) for chunk in reader.chunks()]
    (16000, [4])
    """

    def __init__(
        self, stream: BinaryIO, raw: PcmFormat | None = None, name: str = "The pipe"
    ) -> None:
        self._stream, self._name = stream, name
        self._n_left: int | None = None  # bytes of samples; None: to the end
        self.format = self._read_header() if raw is None else raw

    def chunks(self) -> Iterator[Waveform]:
        """Yield the samples, (samples, channels), as soon as they are there."""
        held, n_samples, size = b"", 0, self.format.n_bytes
        while self._n_left is None or self._n_left > 0:
            data = self._read(READ if self._n_left is None else min(READ, self._n_left))
            if not data:
                break
            if self._n_left is not None:
                self._n_left -= len(data)
            held += data
            whole = len(held) // size * size
            if not whole:
                continue
            samples = self.format.to_samples(held[:whole])
            held = held[whole:]
            check_samples(
                samples.reshape(-1),
                n_samples * self.format.n_channels,
                self.format.sample_rate * self.format.n_channels,
                self._name,
            )
            n_samples += len(samples)
            yield samples
        if self._n_left:
            raise AudioError(
                f"{self._name} ended after {n_samples / self.format.sample_rate:.2f} s, and its "
                f"header promises {self._n_left} bytes more; the audio so far was used."
            )
        if not n_samples:
            raise AudioError(f"{self._name} contains no samples; check the command before it.")

    def _read(self, n_bytes: int) -> bytes:
        """Return up to `n_bytes`, those that are there; none at the end."""
        read: Callable[[int], bytes] = getattr(self._stream, "read1", self._stream.read)
        return read(n_bytes)

    def _read_exactly(self, n_bytes: int) -> bytes:
        data = b""
        while len(data) < n_bytes and (more := self._read(min(READ, n_bytes - len(data)))):
            data += more
        if len(data) < n_bytes:
            raise AudioError(f"{self._name} ended within the header of a wav.")
        return data

    def _read_header(self) -> PcmFormat:
        """Read a wav up to its samples."""
        start = b""
        while len(start) < 12 and (more := self._read(12 - len(start))):
            start += more
        if not start:
            raise AudioError(f"{self._name} is empty; check the command before it.")
        if start[:4] not in (b"RIFF", b"RF64") or start[8:] != b"WAVE":
            raise AudioError(
                f"{self._name} is no wav: it begins with {start[:4]!r}. Convert it (ffmpeg -i FILE "
                "-f wav -), or give the sample rate and the format of raw samples."
            )
        found: PcmFormat | None = None
        while True:
            name, size = struct.unpack("<4sI", self._read_exactly(8))
            if name == b"data":
                break
            content = self._read_exactly(size + size % 2)
            if name == b"fmt ":
                found = self._wav_format(content)
        if found is None:
            raise AudioError(f"{self._name} is no valid wav: it has samples before their format.")
        if 0 < size < STREAMED:
            self._n_left = size
        return found

    def _wav_format(self, content: bytes) -> PcmFormat:
        if len(content) < 16:
            raise AudioError(f"{self._name} is no valid wav: its format has {len(content)} bytes.")
        tag, n_channels, sample_rate, _, _, n_bits = struct.unpack("<HHIIHH", content[:16])
        if tag == _EXTENSIBLE and len(content) >= 26:
            (tag,) = struct.unpack("<H", content[24:26])
        names = {_PCM: {8: "u8", 16: "s16le", 24: "s24le", 32: "s32le"},
                 _FLOAT: {32: "f32le", 64: "f64le"}}  # fmt: skip
        encoding = names.get(tag, {}).get(n_bits)
        if encoding is None or not (sample_rate and 0 < n_channels <= MOST_CHANNELS):
            raise AudioError(
                f"{self._name} holds a wav that cannot be read from a pipe (format {tag}, {n_bits} "
                f"bits, {n_channels} channels at {sample_rate} Hz); convert it: ffmpeg -i FILE "
                "-c:a pcm_s16le -f wav -."
            )
        return PcmFormat(sample_rate, encoding, n_channels)
