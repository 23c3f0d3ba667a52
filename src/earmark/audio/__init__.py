"""Audio files and waveforms: decoding, resampling, blocks of constant memory, writing."""

from earmark.audio.decode import audio_duration, audio_format, find_audio, read_audio, read_blocks
from earmark.audio.encode import write_audio
from earmark.audio.waveform import resample, to_mono

__all__ = [
    "audio_duration",
    "audio_format",
    "find_audio",
    "read_audio",
    "read_blocks",
    "resample",
    "to_mono",
    "write_audio",
]
