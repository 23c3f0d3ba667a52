"""Audio files are read whole or in blocks, and refused in one clear sentence if damaged."""

import io
import struct
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.audio.decode import (
    SLACK,
    _Recording,
    audio_duration,
    claimed_duration,
    find_audio,
    read_audio,
    read_blocks,
)
from earmark.audio.encode import WRITERS, write_audio
from earmark.errors import AudioError, SettingError

FORMATS = {
    "wav": ("WAV", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "ogg": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
    "aiff": ("AIFF", "PCM_16"),
}


def noise(seconds: float, sample_rate: int = 48000, channels: int = 1) -> np.ndarray:
    shape = (round(seconds * sample_rate), channels)
    samples = 0.1 * np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    samples[: len(samples) // 2] *= 0.01  # quiet, then loud: a variable bit rate varies
    return samples[:, 0] if channels == 1 else samples


def encode(samples: np.ndarray, sample_rate: int = 48000, kind: str = "wav") -> bytes:
    form, subtype = FORMATS[kind]
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", sample_rate, channels, subtype, format=form) as sound:
        for first in range(0, len(samples), sample_rate):
            sound.write(samples[first : first + sample_rate])
    return file.getvalue()


def save(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def without_xing(mp3: bytes) -> bytes:
    """An mp3 as a stream has it: the frame with the header of the whole is left out."""
    return mp3[mp3.index(mp3[:2], 4) :]


def assert_one_clear_sentence(error: pytest.ExceptionInfo, *words: str) -> None:
    text = str(error.value)
    assert text.endswith(".")
    assert "\n" not in text
    assert "Libsndfile" not in text
    for word in words:
        assert word in text


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("channels", [1, 2])
def test_every_format_gives_the_mean_of_its_channels_as_float32(tmp_path, kind, channels):
    path = save(
        tmp_path / f"RECORDING.{kind.upper()}", encode(noise(1.0, channels=channels), kind=kind)
    )
    waveform, sample_rate = read_audio(path)
    decoded, _ = soundfile.read(path, always_2d=True)
    assert sample_rate == 48000
    assert waveform.dtype == np.float32
    assert waveform.shape == (48000,)
    np.testing.assert_allclose(waveform, decoded.mean(axis=1), atol=1e-6)


@pytest.mark.parametrize("sample_rate", [8000, 11025, 22050, 44100, 96000])
def test_a_tone_keeps_its_pitch_and_length_when_resampled(tmp_path, sample_rate):
    tone = np.sin(2 * np.pi * 1000 * np.arange(sample_rate) / sample_rate)
    waveform, _ = read_audio(
        save(tmp_path / "tone.wav", encode(tone, sample_rate)), sample_rate=32000
    )
    assert waveform.shape == (32000,)
    assert np.argmax(np.abs(np.fft.rfft(waveform))) == 1000


def test_a_path_a_string_and_a_file_object_give_the_same_samples(tmp_path):
    content = encode(noise(0.5), kind="ogg")
    path = save(tmp_path / "a.ogg", content)
    expected, _ = read_audio(path, 32000)
    file = io.BytesIO(content)
    with tempfile.SpooledTemporaryFile() as spooled:
        spooled.write(content)
        for source in (str(path), file, file, spooled):
            np.testing.assert_array_equal(read_audio(source, 32000)[0], expected)
    assert not file.closed


@pytest.mark.parametrize("kind", FORMATS)
@settings(max_examples=15, deadline=None)
@given(block=st.floats(0.01, 4.0), sample_rate=st.sampled_from([None, 32000, 44100, 48000]))
def test_concatenated_blocks_are_the_whole_recording_bit_for_bit(kind, block, sample_rate):
    content = ENCODED[kind]
    whole, _ = read_audio(io.BytesIO(content), sample_rate)
    blocks = list(read_blocks(io.BytesIO(content), sample_rate, block=block))
    np.testing.assert_array_equal(np.concatenate(blocks), whole)
    assert all(len(samples) for samples in blocks)


ENCODED = {kind: encode(noise(3.0, channels=2), kind=kind) for kind in FORMATS}


def test_resampling_in_blocks_equals_resampling_the_whole():
    samples = noise(3.0, 44100)
    content = io.BytesIO()
    soundfile.write(content, samples, 44100, format="WAV", subtype="FLOAT")
    resampled, _ = read_audio(content, 32000)
    np.testing.assert_array_equal(resampled, soxr.resample(samples, 44100, 32000))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_part_is_that_part_of_the_whole(kind):
    content = io.BytesIO(ENCODED[kind])
    whole, _ = read_audio(content)
    part, _ = read_audio(content, start=1.25, duration=0.5)
    np.testing.assert_array_equal(part, whole[60000:84000])
    rest, _ = read_audio(content, start=2.9, duration=100.0)
    np.testing.assert_array_equal(rest, whole[139200:])


@pytest.mark.parametrize("kind", FORMATS)
def test_the_duration_is_what_can_be_read(kind):
    content = io.BytesIO(ENCODED[kind])
    assert audio_duration(content) == len(read_audio(content)[0]) / 48000 == 3.0


def test_an_mp3_without_its_length_in_the_header_is_read_to_its_end():
    mp3 = ENCODED["mp3"]
    whole, _ = read_audio(io.BytesIO(mp3))
    streamed, _ = read_audio(io.BytesIO(without_xing(mp3)))
    # The decoder's delay of 1105 samples stays, since no header contains it.
    np.testing.assert_array_equal(streamed[1105:][: len(whole) - 1152], whole[:-1152])
    assert audio_duration(io.BytesIO(without_xing(mp3))) == len(streamed) / 48000


def test_a_flac_without_its_length_in_the_header_is_read_to_its_end():
    flac = bytearray(ENCODED["flac"])
    flac[21] &= 0xF0
    flac[22:26] = bytes(4)
    expected, _ = read_audio(io.BytesIO(ENCODED["flac"]))
    np.testing.assert_array_equal(read_audio(io.BytesIO(flac))[0], expected)
    np.testing.assert_array_equal(read_audio(io.BytesIO(flac), start=2.0)[0], expected[96000:])


@pytest.mark.parametrize("size", [0, 0x7FFFF000, 0xFFFFFFFF])
@pytest.mark.parametrize("begin", [0.0, 0.5])
def test_a_wav_that_was_streamed_into_a_pipe_is_read_to_its_end(size, begin):
    samples = noise(1.0)
    samples[0] = begin
    wav = bytearray(encode(samples))
    expected, _ = read_audio(io.BytesIO(wav))
    data = wav.index(b"data")
    wav[4:8] = wav[data + 4 : data + 8] = struct.pack("<I", size)
    np.testing.assert_array_equal(read_audio(io.BytesIO(wav))[0], expected)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("part", [0.02, 0.3, 0.9, 0.97])
def test_a_truncated_file_is_detected(tmp_path, kind, part):
    content = ENCODED[kind]
    path = save(tmp_path / f"cut.{kind}", content[: round(part * len(content))])
    for read in (read_audio, audio_duration, lambda source: list(read_blocks(source, 32000))):
        if kind == "flac" and read is audio_duration:
            continue  # a header is believed until the decoder meets the end
        with pytest.raises(AudioError) as error:
            read(path)
        assert_one_clear_sentence(error, str(path), "truncated")


@pytest.mark.parametrize(
    ("form", "subtype"), [("VOC", "PCM_16"), ("VOC", "ULAW"), ("MAT4", "PCM_16"), ("WVE", "ALAW")]
)
def test_a_truncated_file_is_detected_where_libsndfile_only_logs_it(form, subtype):
    file = io.BytesIO()
    soundfile.write(file, noise(1.0, 8000), 8000, format=form, subtype=subtype)
    content = file.getvalue()
    assert len(read_audio(io.BytesIO(content))[0]) in (8000, 8001)  # VOC's last byte is its mark
    for part in (0.3, 0.97):
        with pytest.raises(AudioError) as error:
            read_audio(io.BytesIO(content[: round(part * len(content))]))
        assert_one_clear_sentence(error, "truncated")


def test_a_gsm_of_odd_length_raises_no_false_alarm():
    file = io.BytesIO()
    soundfile.write(file, noise(4.000125, 8000), 8000, format="WAV", subtype="GSM610")
    file.seek(0)
    assert "seems to be truncated" in soundfile.SoundFile(file).extra_info
    assert len(read_audio(file)[0]) >= 32001


def test_the_duration_of_a_truncated_flac_is_that_of_its_header():
    cut = io.BytesIO(ENCODED["flac"][: len(ENCODED["flac"]) // 2])
    assert audio_duration(cut) == 3.0
    with pytest.raises(AudioError, match="truncated"):
        read_audio(cut)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(AudioError, match="does not exist") as error:
        read_audio(tmp_path / "none.wav")
    assert_one_clear_sentence(error, "none.wav")


def test_a_folder_is_not_a_recording(tmp_path):
    with pytest.raises(AudioError, match="is a folder"):
        read_audio(tmp_path)


def test_an_invalid_path_is_reported_in_one_sentence():
    with pytest.raises(AudioError, match="cannot be opened"):
        read_audio("a\0b.wav")


def test_an_empty_file_is_named(tmp_path):
    with pytest.raises(AudioError, match="0 bytes") as error:
        read_audio(save(tmp_path / "empty.wav", b""))
    assert_one_clear_sentence(error, "empty.wav")


@pytest.mark.parametrize("kind", ["wav", "ogg", "aiff"])
def test_a_header_without_samples_is_named(tmp_path, kind):
    with pytest.raises(AudioError, match="contains no samples"):
        read_audio(save(tmp_path / f"silent.{kind}", encode(noise(0.0), kind=kind)))


def test_an_empty_wav_with_a_chunk_after_its_data_stays_empty():
    wav = encode(noise(0.0)) + b"LIST" + struct.pack("<I", 4) + b"INFO"
    with pytest.raises(AudioError, match="The file object contains no samples"):
        read_audio(io.BytesIO(wav))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("notes.wav", b"onset\toffset\tlabel\n" * 50),
        ("picture.WAV", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8),
        ("film.m4a", b"\0\0\0\x20ftypM4A \0\0\0\0" + bytes(2000)),
        ("bare.raw", bytes(range(256)) * 8),
        ("voice.vox", b"not a voice"),
        ("tag.mp3", b"ID3"),
    ],
)
def test_other_files_are_refused_with_the_supported_formats(tmp_path, name, content):
    with pytest.raises(AudioError, match="supported format") as error:
        read_audio(save(tmp_path / name, content))
    assert_one_clear_sentence(error, name, "flac", "mp3", "ffmpeg")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_reported_with_their_time(tmp_path, value):
    samples = np.zeros((5 * 8000, 2), np.float32)
    samples[26000, 1] = value
    path = tmp_path / "broken.wav"
    soundfile.write(path, samples, 8000, subtype="FLOAT")
    with pytest.raises(AudioError, match=r"at 3\.250 s") as error:
        read_audio(path, 32000)
    assert_one_clear_sentence(error, "broken.wav", "NaN or infinity")


@pytest.mark.parametrize("value", [1e20, -3e9, 1e38])
def test_a_sample_far_beyond_full_scale_is_reported_with_its_time(tmp_path, value):
    """The power of its spectrum would be infinite, and all scores NaN."""
    samples = np.zeros((5 * 8000, 2), np.float32)
    samples[26000] = value
    path = tmp_path / "broken.wav"
    soundfile.write(path, samples, 8000, subtype="FLOAT")
    with pytest.raises(AudioError, match=r"at 3\.250 s") as error:
        read_audio(path, 32000)
    assert_one_clear_sentence(error, "broken.wav", "full scale is 1")


def test_floats_in_the_range_of_32_bit_integers_are_read(tmp_path):
    path = tmp_path / "unscaled.wav"
    soundfile.write(path, np.full(100, 2.0**31, np.float32), 8000, subtype="FLOAT")
    assert read_audio(path)[0].max() == 2.0**31


def with_header(sample_rate: int, channels: int, n_bytes: int) -> bytes:
    data = bytes(n_bytes)
    form = struct.pack(
        "<HHIIHH", 1, channels, sample_rate, sample_rate * channels & 0xFFFFFFFF, channels * 2, 16
    )
    head = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", n_bytes)
    return b"RIFF" + struct.pack("<I", len(head) + n_bytes) + head + data


@pytest.mark.parametrize("sample_rate", [1, 99, 10_000_001, 2_147_483_647])
@pytest.mark.parametrize("channels", [1, 64])
def test_a_sample_rate_that_no_recorder_has_is_refused(sample_rate, channels):
    """Its blocks of a second, or what they are resampled to, would fill the memory."""
    with pytest.raises(AudioError, match=f"{sample_rate} Hz") as error:
        read_audio(io.BytesIO(with_header(sample_rate, channels, 12800)), 32000)
    assert_one_clear_sentence(error, "100 to 10000000 Hz")


def test_many_channels_at_a_high_rate_take_little_memory():
    content = with_header(10_000_000, 1024, 1024 * 2 * 1000)
    tracemalloc.start()
    waveform, _ = read_audio(io.BytesIO(content))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(waveform) == 1000
    assert peak < 60e6  # a block of a second would be 40 GB


class EndingSound:
    """A decoder that ends after some samples, whatever its header says."""

    format, subtype, samplerate, channels = "FLAC", "PCM_24", 8000, 1

    def __init__(self, n_samples: int) -> None:
        self.left = n_samples

    def read(self, count: int, dtype: str, always_2d: bool) -> np.ndarray:
        count = min(count, self.left)
        self.left -= count
        return np.zeros((count, 1), dtype)


@pytest.mark.parametrize("n_missing", [0, 1, SLACK])
def test_encoders_may_disagree_about_two_frames_of_the_length(n_missing):
    recording = _Recording("a.flac", EndingSound(10000 - n_missing), 10000)
    assert sum(map(len, recording.blocks(None, 0.0, None, 1.0))) == 10000 - n_missing


def test_more_than_that_is_missing_in_a_truncated_file():
    recording = _Recording("a.flac", EndingSound(10000 - SLACK - 1), 10000)
    with pytest.raises(AudioError, match="truncated"):
        list(recording.blocks(None, 0.0, None, 1.0))


SEEKLESS = [
    (form, subtype)
    for form in ("WAV", "AIFF", "AU", "WAVEX", "CAF")
    for subtype in ("GSM610", "G721_32", "G723_24", "G723_40", "NMS_ADPCM_16", "DWVW_16", "DWVW_24")
    if soundfile.check_format(form, subtype)
]


@pytest.mark.parametrize(("form", "subtype"), SEEKLESS)
def test_a_format_without_seeking_is_read_from_a_start(form, subtype):
    file = io.BytesIO()
    soundfile.write(file, noise(2.0, 8000), 8000, format=form, subtype=subtype)
    whole, _ = read_audio(file)
    part, _ = read_audio(file, start=0.5)
    np.testing.assert_array_equal(part, whole[4000:])
    part, _ = read_audio(file, start=0.5, duration=0.25)
    np.testing.assert_array_equal(part, whole[4000:6000])


@pytest.mark.parametrize("start", [0.5, 1.4, 1.6, 2.9])
def test_a_flac_whose_second_half_is_damaged_is_refused_from_any_start(start):
    """Seeking fails in it, with an error of libsndfile's own."""
    content = ENCODED["flac"]
    content = content[: len(content) // 2] + bytes(len(content) // 2)
    with pytest.raises(AudioError, match="damaged") as error:
        read_audio(io.BytesIO(content), start=start)
    assert_one_clear_sentence(error, "download it again")


@pytest.mark.parametrize("kind", FORMATS)
def test_a_start_beyond_the_end_is_reported_with_the_duration(kind):
    with pytest.raises(AudioError, match=r"lasts 3\.00 s and cannot be read from start=3\.00 s"):
        read_audio(io.BytesIO(ENCODED[kind]), start=3.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": -1.0},
        {"start": np.nan},
        {"duration": 0.0},
        {"sample_rate": 0},
        {"sample_rate": 44.1},
        {"sample_rate": True},
    ],
)
def test_an_invalid_argument_is_reported(wrong):
    with pytest.raises(SettingError, match="Got"):
        read_audio(io.BytesIO(ENCODED["wav"]), **wrong)


def test_a_text_or_closed_file_object_is_refused(tmp_path):
    with pytest.raises(SettingError, match="'rb'"):
        read_audio(io.StringIO("text"))
    file = io.BytesIO(ENCODED["wav"])
    file.close()
    with pytest.raises(AudioError, match="closed file"):
        read_audio(file)


@pytest.mark.parametrize("source", [None, ENCODED["wav"], 3])
def test_other_types_of_source_are_refused(source):
    for read in (read_audio, audio_duration, lambda source: list(read_blocks(source))):
        with pytest.raises(SettingError, match=f"Got {type(source).__name__}"):
            read(source)


def test_three_samples_are_too_short_to_be_resampled_to_a_low_rate():
    with pytest.raises(AudioError, match="too short"):
        read_audio(io.BytesIO(encode(noise(3 / 192000, 192000), 192000)), 8000)


def test_reading_in_blocks_takes_constant_memory(tmp_path):
    peaks = []
    for seconds in (10, 60):
        path = tmp_path / f"{seconds}.flac"
        write_audio(path, noise(seconds, 16000), 16000)
        tracemalloc.start()
        for _ in read_blocks(path, 32000, block=1.0):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0] < 3e6


@pytest.mark.parametrize("suffix", WRITERS)
def test_written_audio_is_read_back_and_reproducible(tmp_path, suffix):
    samples = noise(2.0, 32000)
    path = tmp_path / f"A{suffix.upper()}"
    write_audio(path, samples, 32000)
    waveform, sample_rate = read_audio(path)
    assert sample_rate == 32000
    assert waveform.shape == samples.shape
    loss = np.abs(waveform - samples).max()
    assert loss < (0.2 if suffix == ".ogg" else 1e-4)
    first = path.read_bytes()
    write_audio(path, samples, 32000)
    np.testing.assert_array_equal(read_audio(path)[0], waveform)
    if suffix != ".ogg":  # the serial number of an ogg file is random
        assert path.read_bytes() == first
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", WRITERS)
def test_samples_beyond_full_scale_are_clipped_and_do_not_wrap(tmp_path, suffix):
    ramp = np.linspace(-2, 2, 32000)
    write_audio(tmp_path / f"a{suffix}", ramp, 32000)
    waveform, _ = read_audio(tmp_path / f"a{suffix}")
    np.testing.assert_allclose(waveform, np.clip(ramp, -1, 1), atol=0.1)


def test_five_minutes_of_vorbis_are_written(tmp_path):
    write_audio(tmp_path / "long.ogg", noise(300, 8000), 8000)
    assert audio_duration(tmp_path / "long.ogg") == 300.0


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.wav"
    write_audio(path, noise(0.1), 48000)
    before = path.read_bytes()
    with pytest.raises(AudioError, match=r"at 0\.500 s"):
        write_audio(path, [0.0, np.nan], 2)
    with pytest.raises(SettingError, match=r"\(samples,\)"):
        write_audio(path, np.zeros((2, 100)), 48000)
    with pytest.raises(SettingError, match="whole number of Hz"):
        write_audio(path, [0.0], 44.1)
    with pytest.raises(SettingError, match=r"no audio format to write '\.wave'; did you mean"):
        write_audio(tmp_path / "a.wave", [0.0], 48000)
    with pytest.raises(AudioError, match="cannot be written"):
        write_audio(tmp_path / "none" / "a.wav", [0.0], 48000)
    with pytest.raises(AudioError, match="cannot be written at 900000 Hz"):
        write_audio(tmp_path / "a.ogg", [0.0], 900000)
    with pytest.raises(AudioError, match="cannot be written at 900000 Hz: flac does not"):
        write_audio(tmp_path / "a.flac", [0.0], 900000)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_audio_is_found_in_every_folder_whatever_the_case_of_its_name(tmp_path):
    for name in ("b/x.WAV", "a/c/y.Mp3", "z.opus", "a/.hidden.wav", "notes.txt", "take.aif"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "folder.wav").mkdir()
    names = [str(path.relative_to(tmp_path)) for path in find_audio(tmp_path)]
    assert names == ["a/c/y.Mp3", "b/x.WAV", "take.aif", "z.opus"]
    with pytest.raises(AudioError, match="is not a folder"):
        find_audio(tmp_path / "none")


def test_a_link_to_nothing_is_found_and_reported_and_a_linked_folder_is_logged(tmp_path, caplog):
    (tmp_path / "other").mkdir()
    (tmp_path / "audio").mkdir()
    (tmp_path / "audio" / "gone.wav").symlink_to(tmp_path / "was.wav")
    (tmp_path / "audio" / "linked").symlink_to(tmp_path / "other")
    (tmp_path / "audio" / ".hidden.wav").symlink_to(tmp_path / "was.wav")
    (found,) = find_audio(tmp_path / "audio")
    with pytest.raises(AudioError, match=r"gone\.wav is a link to .*was\.wav, which does"):
        read_audio(found)
    assert "linked is a link to a folder, which is not searched" in caplog.text


def test_a_header_says_how_long_a_recording_claims_to_be(tmp_path):
    path = tmp_path / "a.flac"
    write_audio(path, np.zeros(12000), 8000)
    assert claimed_duration(path) == 1.5
    path.write_bytes(b"no audio")
    assert claimed_duration(path) is None


def test_real_recordings_raise_no_false_alarm(esc50):
    files = find_audio(esc50)
    assert len(files) == 1399
    for path in files[::20]:
        waveform, sample_rate = read_audio(path)
        assert sample_rate == 32000
        assert 0 < len(waveform) <= 5 * sample_rate
