"""Audio file -> waveform: decode, mix to mono, resample, whole or in blocks.

Conventions: a waveform is mono float32 of shape (samples,), full scale -1 to 1; channels are
averaged. A source is a path or a binary file object, which is read from its start and left open.
Reading in blocks gives the same samples as reading the whole file, bit for bit, since both use the
same code. A part of a recording is resampled alone, without the samples before and after it.

A recording that is truncated, empty, contains NaN or samples beyond `LOUDEST`, or claims a sample
rate outside `SAMPLE_RATES` raises `AudioError`, even if the decoder accepts it. Truncation cannot
be detected in a streamed mp3 or flac, whose header has no length, nor in AVR, IRCAM, MAT5, MPC2K,
NIST, PAF, PVF, SDS and XI, whose header libsndfile ignores; these are read to their end. No header
can ask for more memory than blocks of `BLOCK_VALUES` values.
"""

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import soundfile

from earmark.audio.waveform import (
    Waveform,
    check_sample_rate,
    check_samples,
    mix_channels,
    resample,
)
from earmark.errors import AudioError, SettingError

logger = logging.getLogger(__name__)

Source = str | os.PathLike[str] | BinaryIO

# What libsndfile reads, except raw, which has no header, and MAT, which may not be audio.
SUFFIXES = (
    {f".{name.lower()}" for name in soundfile.available_formats()} - {".raw", ".mat4", ".mat5"}
) | {".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff", ".aifc", ".au", ".snd"}

# Hz: from a seismometer to a hydrophone; whatever is outside is taken for a damaged header.
SAMPLE_RATES = (100, 10_000_000)
BLOCK_VALUES = 1 << 22  # samples times channels that are decoded at a time at most: 16 MB
BLOCK = 1.0  # seconds: larger blocks are slower, since their memory is allocated every time
SLACK = 2304  # samples: two mp3 frames, by which encoders disagree about their delay
STREAMED = 0x7FFF0000  # bytes: sox, arecord and ffmpeg write about 2 or 4 GiB into a pipe's header

# Lines of libsndfile's parse log, such as "data : 264600 (should be 26420)", and those for VOC and
# MAT4. "data chunk seems to be truncated" is not used: any gsm of odd length gets it.
_CUT = re.compile(
    r"^ *(?:data|SSND|BODY|Data Size|Data length|Riff size|riff)(?: *:)? (\d+) \(?should be (\d+)",
    re.MULTILINE,
)
_CUT_SOMEWHERE = re.compile(r"^(?:Seems|\*\*\* File seems) to be (?:a )?truncated", re.MULTILINE)
HEAD = 1 << 16  # bytes: enough for the header of a wav and for the largest page of an ogg


def read_audio(
    source: Source,
    sample_rate: int | None = None,
    start: float = 0.0,
    duration: float | None = None,
) -> tuple[Waveform, int]:
    """Read a recording, or `duration` seconds of it starting at `start`.

    Args:
        source: a path, or a binary file object.
        sample_rate: resample to this rate in Hz; by default the rate of the file.
        start: where to start, in seconds.
        duration: how much to read, in seconds; by default, or if it is longer, to the end.

    Returns:
        The waveform (samples,), and its sample rate.

    >>> import tempfile
    >>> from earmark.audio.encode import write_audio
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_audio(f"{folder}/tone.WAV", np.sin(np.arange(44100) / 10), 44100)
    ...     waveform, sample_rate = read_audio(f"{folder}/tone.WAV", sample_rate=32000, start=0.5)
    >>> waveform.shape, waveform.dtype, sample_rate
    ((16000,), dtype('float32'), 32000)
    """
    with _opened(source) as recording:
        blocks = list(recording.blocks(sample_rate, start, duration, BLOCK))
        return np.concatenate(blocks), sample_rate or recording.sample_rate


def read_blocks(
    source: Source, sample_rate: int | None = None, block: float = BLOCK
) -> Iterator[Waveform]:
    """Read a recording of any length in blocks of about `block` seconds, in constant memory.

    The concatenated blocks are `read_audio(source, sample_rate)`, bit for bit. An error is raised
    at the first block, or at the block that cannot be read.

    >>> import io
    >>> file = io.BytesIO()
    >>> soundfile.write(file, np.zeros(20000), 8000, format="FLAC")
    >>> [len(block) for block in read_blocks(file, block=1.0)]
    [8000, 8000, 4000]
    """
    with _opened(source) as recording:
        yield from recording.blocks(sample_rate, 0.0, None, block)


def audio_duration(source: Source) -> float:
    """Return the duration of a recording in seconds.

    It is read from the header, except for an mp3, which is decoded, since its header may be wrong.
    A truncated flac is not detected: only `read_audio` and `read_blocks` reach its end.

    >>> import io
    >>> file = io.BytesIO()
    >>> soundfile.write(file, np.zeros(20000), 8000, format="WAV")
    >>> audio_duration(file)
    2.5
    """
    with _opened(source) as recording:
        if recording.n_samples and recording.exact:
            return recording.n_samples / recording.sample_rate
        blocks = recording.blocks(None, 0.0, None, BLOCK)
        return sum(len(block) for block in blocks) / recording.sample_rate


def claimed_duration(source: Source) -> float | None:
    """Return the seconds that the header claims, without decoding; None if it has no length.

    >>> claimed_duration("no such file.wav") is None
    True
    """
    try:
        with _opened(source) as recording:
            return recording.n_samples and recording.n_samples / recording.sample_rate
    except AudioError:
        return None


def audio_format(source: Source) -> tuple[int, int]:
    """Return the sample rate and the number of channels of a recording as stored.

    >>> import io
    >>> file = io.BytesIO()
    >>> soundfile.write(file, np.zeros((100, 2)), 44100, format="WAV")
    >>> audio_format(file)
    (44100, 2)
    """
    with _opened(source) as recording:
        return recording.sample_rate, recording.sound.channels


def find_audio(folder: str | os.PathLike[str]) -> list[Path]:
    """Return every audio file in a folder and its subfolders, sorted, without hidden files.

    A link whose file is gone is one of them: whoever reads it reports it. A link to a folder is not
    followed, which is logged.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("b.WAV", "a.Flac", "notes.txt", "._b.WAV"):
    ...         Path(folder, name).touch()
    ...     [path.name for path in find_audio(folder)]
    ['a.Flac', 'b.WAV']
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise AudioError(f"{folder} is not a folder; pass the folder of the recordings.")
    found = []
    for path in folder.rglob("*"):
        if path.name.startswith("."):
            continue
        if path.is_symlink() and path.is_dir():
            logger.warning("%s is a link to a folder, which is not searched; name that one.", path)
        elif path.suffix.lower() in SUFFIXES and (path.is_file() or _is_dangling(path)):
            found.append(path)
    return sorted(found)


def _is_dangling(path: Path) -> bool:
    return path.is_symlink() and not path.exists()


@dataclass(frozen=True)
class _Recording:
    """An open recording: its name for errors, its decoder, and the length in its header."""

    name: str
    sound: Any
    n_samples: int | None  # None: not in the header

    @property
    def sample_rate(self) -> int:
        return int(self.sound.samplerate)

    @property
    def exact(self) -> bool:
        """Whether the length in the header and seeking are exact to the sample."""
        return self.n_samples is not None and self.sound.format != "MP3"

    def blocks(
        self, sample_rate: int | None, start: float, duration: float | None, block: float
    ) -> Iterator[Waveform]:
        """Yield the mono waveform from `start`, resampled, about `block` seconds at a time."""
        if sample_rate is not None:
            check_sample_rate(sample_rate)
        if not (0 <= start < np.inf and (duration is None or duration > 0) and 0 < block < np.inf):
            raise SettingError(
                "start must be 0 s or more, duration and block must be above 0 s."
                f" Got start={start!r}, duration={duration!r}, block={block!r}."
            )
        n_samples = min(round(block * self.sample_rate), BLOCK_VALUES // self.sound.channels)
        decoded = self._decoded(start, duration, max(1, n_samples))
        yield from resample(decoded, self.sample_rate, sample_rate or self.sample_rate, self.name)

    def _decoded(self, start: float, duration: float | None, block: int) -> Iterator[Waveform]:
        """Yield mono blocks of `block` samples at the sample rate of the file, after checks."""
        first = round(start * self.sample_rate)
        stop = None if duration is None else first + max(1, round(duration * self.sample_rate))
        position = 0
        if self.exact and self.n_samples and 0 < first < self.n_samples:
            try:
                position = self.sound.seek(first)
            except soundfile.LibsndfileError:  # GSM 6.10, G.721 and others are read from the start
                stop = min(stop or self.n_samples, self.n_samples)  # DWVW would go beyond its end
        while stop is None or position < stop:
            wanted = block if stop is None else min(block, stop - position)
            samples = self._mono(wanted, position)
            if not len(samples):
                break
            begin, position = position, position + len(samples)
            if position > first:
                # Where seeking is not exact or not possible, all before the start is decoded too.
                yield samples[max(0, first - begin) :]
        if (stop is None or position < stop) and position + SLACK < (self.n_samples or 0):
            promised = (self.n_samples or 0) / self.sample_rate
            raise _truncated(
                self.name, f"{position / self.sample_rate:.2f} s can be read of {promised:.2f} s"
            )
        if position == 0:
            raise AudioError(f"{self.name} contains no samples; remove it, or record it again.")
        if position <= first:
            raise AudioError(
                f"{self.name} lasts {position / self.sample_rate:.2f} s and cannot be read from"
                f" start={start:.2f} s; pass a start before its end."
            )

    def _mono(self, n_samples: int, position: int) -> Waveform:
        """Return up to `n_samples` more, averaged over channels; `position` is for errors."""
        # The same values as libsndfile's own conversion to float, in a quarter of the time.
        is_short = self.sound.subtype == "PCM_16" and self.sound.format != "SDS"
        try:
            block = self.sound.read(n_samples, "int16" if is_short else "float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            reason = error.error_string.strip().rstrip(".")
            where = f"after {position / self.sample_rate:.2f} s: {reason}"
            raise _truncated(self.name, where) from error
        if is_short:
            block = np.multiply(block, np.float32(1 / 32768), dtype=np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # the check below reports it
            mono = mix_channels(block)
        check_samples(mono, position, self.sample_rate, self.name)
        return mono


@contextmanager
def _opened(source: Source) -> Iterator[_Recording]:
    """Open a source, check what can be checked before decoding, and close it at the end."""
    if isinstance(source, str | os.PathLike):
        name = str(Path(source))
        try:
            context: Any = Path(source).open("rb")  # noqa: SIM115 - closed by the with below
        except FileNotFoundError as error:
            if Path(source).is_symlink():
                to = os.path.realpath(source)
                raise AudioError(f"{name} is a link to {to}, which does not exist.") from error
            raise AudioError(f"{name} does not exist; check the path.") from error
        except IsADirectoryError as error:
            raise AudioError(f"{name} is a folder; pass a file.") from error
        except (OSError, ValueError) as error:
            raise AudioError(f"{name} cannot be opened: {error}; check the path.") from error
    else:
        if not hasattr(source, "read"):
            raise SettingError(
                "A recording must be a path or a binary file object (for bytes, io.BytesIO)."
                f" Got {type(source).__name__}."
            )
        name = str(getattr(source, "name", None) or "The file object")
        context = nullcontext(source)
    with context as stream:
        sound, n_samples = _sound(stream, name)
        with sound:
            # soundfile seeks after every read, which is not exact in an mp3.
            sound.seekable = lambda: False
            yield _Recording(name, sound, n_samples)


def _sound(stream: BinaryIO, name: str) -> tuple[Any, int | None]:
    """Return the decoder of a stream and the number of samples in its header, if any."""
    try:
        stream.seek(0, os.SEEK_END)
        size = stream.tell()
        stream.seek(0)
        head = stream.read(HEAD)
    except (OSError, ValueError) as error:
        raise AudioError(f"{name} cannot be read: {error}; open it again.") from error
    if not isinstance(head, bytes):
        raise SettingError(f"{name} is open as text; open it in the mode 'rb'.")
    if not size:
        raise AudioError(f"{name} is empty (0 bytes); remove it, or download it again.")
    if head.startswith(b"OggS") and not has_last_ogg_page(stream, size):
        raise _truncated(name, "its last page is missing")
    xing = read_xing(stream, head, size)
    if xing and xing[0] < 0.99 * xing[1]:  # encoders differ by one frame in their count
        raise _truncated(name, f"it has {xing[0]} bytes of {xing[1]}")
    sound = _decoder(stream, name)
    lowest, highest = SAMPLE_RATES
    if not lowest <= sound.samplerate <= highest:
        raise AudioError(
            f"{name} claims a sample rate of {sound.samplerate} Hz, and rates from {lowest} to "
            f"{highest} Hz are read; its header is damaged, or it must be resampled first."
        )
    for claimed, found in _CUT.findall(sound.extra_info):
        if int(found) < int(claimed) < STREAMED:
            raise _truncated(name, f"it has {found} bytes of {claimed}")
    if _CUT_SOMEWHERE.search(sound.extra_info):
        raise _truncated(name, "it has fewer bytes than its header says")
    if sound.format == "MP3" and not xing:
        # libsndfile estimates the length from the bit rate of the first frame and stops there,
        # though later frames may be ten times smaller. With a longer file size it reads them all.
        return _decoder(PatchedStream(stream, length=64 * size), name), None
    if not sound.frames and (whole := with_wav_size(head)):
        return _decoder(PatchedStream(stream, head=whole), name), None
    return sound, sound.frames if sound.frames < np.iinfo(np.int64).max else None


def _decoder(stream: Any, name: str) -> Any:
    """Return the SoundFile of a stream from its start."""
    stream.seek(0)
    try:
        return soundfile.SoundFile(stream)
    except soundfile.LibsndfileError as error:
        if "malformed" in error.error_string:
            raise _truncated(name, "its header is invalid") from error
        raise _unreadable(name) from error
    except TypeError as error:  # for a name in .raw, soundfile asks for what a header would contain
        raise _unreadable(name) from error


def _unreadable(name: str) -> AudioError:
    return AudioError(
        f"{name} is not audio in a supported format (wav, flac, ogg, opus, mp3, aiff and others"
        " that libsndfile reads); convert it: ffmpeg -i FILE FILE.wav."
    )


def _truncated(name: str, how: str) -> AudioError:
    return AudioError(f"{name} is truncated or damaged: {how}; download it again, or remove it.")


def has_last_ogg_page(stream: BinaryIO, size: int) -> bool:
    """Return whether an ogg ends with a complete page that is marked as the last.

    >>> import io
    >>> file = io.BytesIO()
    >>> soundfile.write(file, np.zeros(8000), 8000, format="OGG")
    >>> has_last_ogg_page(file, len(file.getvalue()))
    True
    """
    stream.seek(max(0, size - HEAD))
    tail = stream.read(HEAD)
    page = tail.rfind(b"OggS")
    if page < 0 or len(tail) < page + 27:
        return False
    n_segments = tail[page + 26]
    segments = tail[page + 27 : page + 27 + n_segments]
    complete = page + 27 + n_segments + sum(segments) <= len(tail)
    return complete and len(segments) == n_segments and bool(tail[page + 5] & 4)


def read_xing(stream: BinaryIO, head: bytes, size: int) -> tuple[int, int] | None:
    """Return the number of bytes of an mp3, and the number in the Xing header of its first frame.

    None if there is no such header with a frame count; the second number is 0 if the header has no
    byte count.

    >>> import io
    >>> read_xing(io.BytesIO(bytes(2000)), bytes(10), 2000) is None
    True
    """
    tag = 0
    if head.startswith(b"ID3") and len(head) >= 10:  # comes first; its size has 7 bits per byte
        tag = 10 + (head[6] << 21 | head[7] << 14 | head[8] << 7 | head[9])
    stream.seek(tag)
    frame = stream.read(1500)  # the longest frame has 1441 bytes
    at = max(frame.find(b"Xing"), frame.find(b"Info"))
    if at < 0 or frame[0] != 0xFF or len(frame) < at + 16 or not frame[at + 7] & 1:
        return None
    return size - tag, int.from_bytes(frame[at + 12 : at + 16], "big") if frame[at + 7] & 2 else 0


def with_wav_size(head: bytes) -> bytes | None:
    r"""Return the head of a wav that was streamed with a data size of 0, with the largest size.

    None for any other file: an empty data chunk is followed by nothing, or by the name of a chunk.

    >>> with_wav_size(b"RIFF....WAVEdata\0\0\0\0\1\0\1\0")[12:]
    b'data\xff\xff\xff\xff'
    """
    data = head.find(b"data\0\0\0\0")
    rest = head[data + 8 : data + 12]
    if not head.startswith(b"RIFF") or data < 0 or re.fullmatch(rb"|[ -~]{4}", rest):
        return None
    return head[: data + 4] + b"\xff\xff\xff\xff"


class PatchedStream:
    """A stream with another head or another length, for a decoder that trusts these.

    It has only the methods that soundfile calls.

    >>> import io
    >>> PatchedStream(io.BytesIO(b"abcd"), head=b"AB").read()
    b'ABcd'
    """

    def __init__(self, stream: BinaryIO, head: bytes = b"", length: int | None = None) -> None:
        self._stream = stream
        self._head = head
        self._length = length
        self._at_end = False

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Seek, and remember whether it was to the end, which asks for the length."""
        self._at_end = self._length is not None and (offset, whence) == (0, os.SEEK_END)
        self._stream.seek(offset, whence)
        return self.tell()

    def tell(self) -> int:
        """Return the position, or the patched length after a seek to the end."""
        return self._length if self._at_end and self._length else self._stream.tell()

    def read(self, count: int = -1) -> bytes:
        """Return bytes of the stream, with the patched head."""
        position = self._stream.tell()
        data = self._stream.read(count)
        patch = self._head[position : position + len(data)]
        return patch + data[len(patch) :]
