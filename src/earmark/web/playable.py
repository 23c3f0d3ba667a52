"""A recording as browsers can play it: the file itself, or a wav made from it."""

import os
from pathlib import Path
from threading import Lock

import soundfile

from earmark.audio.decode import audio_format, read_blocks

KINDS = {
    b"RIFF": "audio/wav",
    b"fLaC": "audio/flac",
    b"OggS": "audio/ogg",
    b"ID3": "audio/mpeg",
    b"\xff\xfb": "audio/mpeg",
    b"\xff\xf3": "audio/mpeg",
    b"\xff\xf2": "audio/mpeg",
}
WAV_CODECS = ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "ULAW", "ALAW")
_writing = Lock()


def playable(path: Path, converted: Path, part: Path) -> tuple[Path, str]:
    """Return a file that browsers play, and its media type.

    Args:
        path: of the recording.
        converted: where a wav of it is, or is written, if browsers do not know its format.
        part: where it is as long as it is being written.
    """
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except FileNotFoundError:
        return path, "application/octet-stream"
    for magic, kind in KINDS.items():
        if head.startswith(magic) and (kind != "audio/wav" or _has_known_codec(path)):
            return path, kind
    with _writing:  # two requests make one file
        if not converted.exists():
            write_wav(path, part)
            part.replace(converted)
    return converted, "audio/wav"


def _has_known_codec(path: Path) -> bool:
    """Return whether browsers decode the samples of a wav; of a damaged one they say why not."""
    try:
        return soundfile.info(os.fspath(path)).subtype in WAV_CODECS
    except soundfile.LibsndfileError:
        return True


def write_wav(source: Path, target: Path) -> None:
    """Write a recording of any length as mono 16-bit wav at its own sample rate, in blocks."""
    sample_rate, _ = audio_format(source)
    try:
        with soundfile.SoundFile(
            os.fspath(target), "w", sample_rate, 1, "PCM_16", format="WAV"
        ) as sound:
            for block in read_blocks(source):
                sound.write(block)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
