"""File -> waveform: decode, mono, resample, blocks; the only room that knows codecs.

Conventions: a waveform is mono float32 of shape (samples,), its full scale -1 to 1; channels are
averaged. A source is a path or a binary file object, which is read from its beginning and left
open. Whole and in blocks give the same samples bit for bit, because both walk the same road. A
part of a recording is resampled by itself, as if nothing lay before and after it.

A recording that cannot be trusted raises `AudioError`, also when its decoder would not mind: cut
short, empty, or holding NaN. What cannot be told from a whole recording is read to its end: a
truncated mp3 or flac that was streamed, without a word on its own length; and anything truncated in
AVR, IRCAM, MAT5, MPC2K, NIST, PAF, PVF, SDS or XI, whose header libsndfile does not hold to.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from earmark.errors import AudioError, SettingError

Source = str | os.PathLike[str] | BinaryIO
Waveform = NDArray[np.float32]

# What libsndfile reads, but for raw, which has no header, and MAT, which holds more than audio.
SUFFIXES = (
    {f".{name.lower()}" for name in soundfile.available_formats()} - {".raw", ".mat4", ".mat5"}
) | {".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff", ".aifc", ".au", ".snd"}

BLOCK = 1.0  # seconds at a time: more is slower, since its memory is fetched anew every time
SLACK = 2304  # samples: two mp3 frames, by which encoders differ in counting their own delay
STREAMED = 0x7FFF0000  # bytes: sox, arecord and ffmpeg write about 2 or 4 GiB into a pipe's header

# What libsndfile noted while it parsed, such as "data : 264600 (should be 26420)", and what it says
# of VOC and MAT4. "data chunk seems to be truncated" is no such note: any odd gsm gets it.
_CUT = re.compile(
    r"^ *(?:data|SSND|BODY|Data Size|Data length|Riff size|riff)(?: *:)? (\d+) \(?should be (\d+)",
    re.MULTILINE,
)
_CUT_SOMEWHERE = re.compile(r"^(?:Seems|\*\*\* File seems) to be (?:a )?truncated", re.MULTILINE)
HEAD = 1 << 16  # bytes: room for the header of a wav, and for the largest page of an ogg


def read_audio(
    source: Source,
    sample_rate: int | None = None,
    start: float = 0.0,
    duration: float | None = None,
) -> tuple[Waveform, int]:
    """Read a recording, or `duration` seconds of it from `start` on.

    Args:
        source: a path, or a binary file object.
        sample_rate: samples a second to resample to; those of the file if None.
        start: seconds into the recording.
        duration: seconds to read, or to the end of the recording if that comes first.

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

    The blocks put together are `read_audio(source, sample_rate)`, bit for bit. What is wrong with a
    recording is raised where it is met: at the first block, or at the one that cannot be read.

    >>> import io
    >>> file = io.BytesIO()
    >>> soundfile.write(file, np.zeros(20000), 8000, format="FLAC")
    >>> [len(block) for block in read_blocks(file, block=1.0)]
    [8000, 8000, 4000]
    """
    with _opened(source) as recording:
        yield from recording.blocks(sample_rate, 0.0, None, block)


def audio_duration(source: Source) -> float:
    """Return how many seconds a recording lasts.

    The header is asked where it can be trusted; an mp3 is decoded, since its header may promise
    more or less than there is. A truncated flac is believed: only `read_audio` and `read_blocks`
    meet its end.

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


def audio_format(source: Source) -> tuple[int, int]:
    """Return the sample rate and the number of channels of a recording, as it is stored.

    >>> import io
    >>> file = io.BytesIO()
    >>> soundfile.write(file, np.zeros((100, 2)), 44100, format="WAV")
    >>> audio_format(file)
    (44100, 2)
    """
    with _opened(source) as recording:
        return recording.sample_rate, recording.sound.channels


def find_audio(folder: str | os.PathLike[str]) -> list[Path]:
    """Return every audio file in a folder and its folders, sorted; hidden ones are left out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("b.WAV", "a.Flac", "notes.txt", "._b.WAV"):
    ...         Path(folder, name).touch()
    ...     [path.name for path in find_audio(folder)]
    ['a.Flac', 'b.WAV']
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise AudioError(f"{folder} is not a folder; give the folder that holds the recordings.")
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
    )


@dataclass(frozen=True)
class _Recording:
    """An open recording: its name in errors, its decoder, and the length that its header tells."""

    name: str
    sound: Any
    n_samples: int | None  # None: the header does not know

    @property
    def sample_rate(self) -> int:
        return int(self.sound.samplerate)

    @property
    def exact(self) -> bool:
        """Whether the header's length and a seek can be trusted to the sample."""
        return self.n_samples is not None and self.sound.format != "MP3"

    def blocks(
        self, sample_rate: int | None, start: float, duration: float | None, block: float
    ) -> Iterator[Waveform]:
        """Yield the mono waveform from `start` on, resampled, about `block` seconds at a time."""
        if sample_rate is not None:
            check_sample_rate(sample_rate)
        if not (0 <= start < np.inf and (duration is None or duration > 0) and 0 < block < np.inf):
            raise SettingError(
                "A recording is read from start >= 0 on, for a duration > 0, in blocks > 0 seconds."
                f" Got start={start!r}, duration={duration!r}, block={block!r}."
            )
        decoded = self._decoded(start, duration, max(1, round(block * self.sample_rate)))
        if sample_rate is None or sample_rate == self.sample_rate:
            yield from decoded
            return
        stream = soxr.ResampleStream(self.sample_rate, sample_rate, 1, dtype="float32")
        n_samples = 0
        for samples in chain(decoded, [None]):  # None: the end, with what the filter still holds
            last = samples is None
            resampled = stream.resample_chunk(np.zeros(0, np.float32) if last else samples, last)
            n_samples += len(resampled)
            if len(resampled):
                yield resampled
        if not n_samples:
            raise AudioError(
                f"{self.name} is too short to be resampled to {sample_rate} Hz; leave it out."
            )

    def _decoded(self, start: float, duration: float | None, block: int) -> Iterator[Waveform]:
        """Yield mono blocks of `block` samples at the file's own sample_rate, and check what is read."""
        first = round(start * self.sample_rate)
        stop = None if duration is None else first + max(1, round(duration * self.sample_rate))
        position = 0
        if self.exact and 0 < first < (self.n_samples or 0):
            position = self.sound.seek(first)
        while stop is None or position < stop:
            wanted = block if stop is None else min(block, stop - position)
            samples = self._mono(wanted, position)
            if not len(samples):
                break
            begin, position = position, position + len(samples)
            if position > first:
                # In an mp3 a seek lands beside its mark: what lies before the start is decoded too.
                yield samples[max(0, first - begin) :]
        if position == 0:
            raise AudioError(f"{self.name} holds no samples; leave it out, or record it again.")
        if (stop is None or position < stop) and position + SLACK < (self.n_samples or 0):
            promised = (self.n_samples or 0) / self.sample_rate
            raise _truncated(
                self.name, f"{position / self.sample_rate:.2f} s can be read of {promised:.2f} s"
            )
        if position <= first:
            raise AudioError(
                f"{self.name} lasts {position / self.sample_rate:.2f} s and cannot be read from"
                f" {start:.2f} s on; give a start before its end."
            )

    def _mono(self, n_samples: int, position: int) -> Waveform:
        """Return up to `n_samples` more, the mean of the channels; `position` is for errors."""
        # The same numbers as libsndfile's own floats, in a quarter of the time.
        is_short = self.sound.subtype == "PCM_16" and self.sound.format != "SDS"
        try:
            block = self.sound.read(n_samples, "int16" if is_short else "float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            reason = error.error_string.strip().rstrip(".")
            where = f"after {position / self.sample_rate:.2f} s: {reason}"
            raise _truncated(self.name, where) from error
        if is_short:
            block = np.multiply(block, np.float32(1 / 32768), dtype=np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # found by the check below
            mono: Waveform = block[:, 0]
            if block.shape[1] > 1:
                mono = sum(block.T) / np.float32(block.shape[1])
        check_finite(mono, position, self.sample_rate, self.name)
        return mono


@contextmanager
def _opened(source: Source) -> Iterator[_Recording]:
    """Open a source, check what can be checked before decoding, and close what was opened."""
    if isinstance(source, str | os.PathLike):
        name = str(Path(source))
        try:
            context: Any = Path(source).open("rb")  # noqa: SIM115 - closed by the with below
        except FileNotFoundError as error:
            raise AudioError(f"{name} does not exist; check the path.") from error
        except IsADirectoryError as error:
            raise AudioError(f"{name} is a folder; give one file of it.") from error
        except (OSError, ValueError) as error:
            raise AudioError(f"{name} cannot be opened: {error}; check the path.") from error
    else:
        if not hasattr(source, "read"):
            raise SettingError(
                "A recording is a path or a binary file object (of bytes, io.BytesIO makes one)."
                f" Got {type(source).__name__}."
            )
        name = str(getattr(source, "name", None) or "The file object")
        context = nullcontext(source)
    with context as stream:
        sound, n_samples = _sound(stream, name)
        with sound:
            # soundfile seeks after every read, and in an mp3 that lands elsewhere.
            sound.seekable = lambda: False
            yield _Recording(name, sound, n_samples)


def _sound(stream: BinaryIO, name: str) -> tuple[Any, int | None]:
    """Return the decoder of a stream and the number of samples that its header tells, if any."""
    try:
        stream.seek(0, os.SEEK_END)
        size = stream.tell()
        stream.seek(0)
        head = stream.read(HEAD)
    except (OSError, ValueError) as error:
        raise AudioError(f"{name} cannot be read: {error}; open it anew.") from error
    if not isinstance(head, bytes):
        raise SettingError(f"{name} is open as text; open it in the mode 'rb'.")
    if not size:
        raise AudioError(f"{name} is empty (0 bytes); leave it out, or fetch it again.")
    if head.startswith(b"OggS") and not ends_as_ogg(stream, size):
        raise _truncated(name, "its last page is missing")
    xing = read_xing(stream, head, size)
    if xing and xing[0] < 0.99 * xing[1]:  # encoders differ by a frame in what they count
        raise _truncated(name, f"it has {xing[0]} bytes of {xing[1]}")
    sound = _decoder(stream, name)
    for claimed, found in _CUT.findall(sound.extra_info):
        if int(found) < int(claimed) < STREAMED:
            raise _truncated(name, f"it has {found} bytes of {claimed}")
    if _CUT_SOMEWHERE.search(sound.extra_info):
        raise _truncated(name, "it has fewer bytes than its header tells")
    if sound.format == "MP3" and not xing:
        # libsndfile guesses the length from the first frame's bit rate and stops there, though
        # later frames may have a tenth of its bytes: told of a longer file, it reads them all.
        return _decoder(Retold(stream, length=64 * size), name), None
    if not sound.frames and (whole := with_wav_size(head)):
        return _decoder(Retold(stream, head=whole), name), None
    return sound, sound.frames if sound.frames < np.iinfo(np.int64).max else None


def _decoder(stream: Any, name: str) -> Any:
    """Return the SoundFile of a stream from its beginning."""
    stream.seek(0)
    try:
        return soundfile.SoundFile(stream)
    except soundfile.LibsndfileError as error:
        if "malformed" in error.error_string:
            raise _truncated(name, "its header makes no sense") from error
        raise _unreadable(name) from error
    except TypeError as error:  # a name in .raw makes soundfile ask for what no header tells
        raise _unreadable(name) from error


def _unreadable(name: str) -> AudioError:
    return AudioError(
        f"{name} is not audio in a format that can be read (wav, flac, ogg, opus, mp3, aiff and"
        " what else libsndfile knows); convert it: ffmpeg -i FILE FILE.wav."
    )


def _truncated(name: str, how: str) -> AudioError:
    return AudioError(f"{name} is cut short or damaged: {how}; fetch it again, or leave it out.")


def check_sample_rate(sample_rate: int) -> None:
    """Raise unless a sample_rate is a whole number of Hz above 0."""
    if isinstance(sample_rate, bool) or not (
        isinstance(sample_rate, int | np.integer) and sample_rate > 0
    ):
        raise SettingError(
            f"The sample rate must be a whole number of Hz above 0. Got {sample_rate!r}."
        )


def check_finite(samples: Waveform, position: int, sample_rate: int, name: str) -> None:
    """Raise if samples, the first of which is at `position`, hold NaN or infinity."""
    finite = np.isfinite(samples)
    if not finite.all():
        time = (position + int(np.argmin(finite))) / sample_rate
        raise AudioError(
            f"{name} holds NaN or infinity at {time:.3f} s; write it again from a sound source."
        )


def ends_as_ogg(stream: BinaryIO, size: int) -> bool:
    """Return whether the last page of an ogg is there, in full, and says that it is the last."""
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
    """Return how many bytes an mp3 has, and how many the Xing header in its first frame promises.

    None if no such header counts the frames; a promise of 0 if it does not count the bytes.
    """
    tag = 0
    if head.startswith(b"ID3") and len(head) >= 10:  # comes first; its size has 7 bits a byte
        tag = 10 + (head[6] << 21 | head[7] << 14 | head[8] << 7 | head[9])
    stream.seek(tag)
    frame = stream.read(1500)  # the longest frame has 1441 bytes
    at = max(frame.find(b"Xing"), frame.find(b"Info"))
    if at < 0 or frame[0] != 0xFF or len(frame) < at + 16 or not frame[at + 7] & 1:
        return None
    return size - tag, int.from_bytes(frame[at + 12 : at + 16], "big") if frame[at + 7] & 2 else 0


def with_wav_size(head: bytes) -> bytes | None:
    """Return the head of a wav whose data was streamed with a size of 0, with a size that reads it.

    None if it is no such wav: what follows an empty data chunk is nothing, or a chunk by its name.
    """
    data = head.find(b"data\0\0\0\0")
    rest = head[data + 8 : data + 12]
    if not head.startswith(b"RIFF") or data < 0 or re.fullmatch(rb"|[ -~]{4}", rest):
        return None
    return head[: data + 4] + b"\xff\xff\xff\xff"


class Retold:
    """A stream that is told to begin or to last otherwise, for a decoder that believes its header.

    It has just what soundfile asks of a file object.
    """

    def __init__(self, stream: BinaryIO, head: bytes = b"", length: int | None = None) -> None:
        self._stream = stream
        self._head = head
        self._length = length
        self._at_end = False

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move as asked, and note whether that was the question for the length."""
        self._at_end = self._length is not None and (offset, whence) == (0, os.SEEK_END)
        self._stream.seek(offset, whence)
        return self.tell()

    def tell(self) -> int:
        """Return the position, or the told length where that was the question."""
        return self._length if self._at_end and self._length else self._stream.tell()

    def read(self, count: int = -1) -> bytes:
        """Return bytes of the stream, with the told head over its own."""
        position = self._stream.tell()
        data = self._stream.read(count)
        told = self._head[position : position + len(data)]
        return told + data[len(told) :]
