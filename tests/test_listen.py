"""Pipes and microphones: any header, raw samples, interrupts, and the events of the file."""

import io
import json
import os
import signal
import struct
import subprocess
import sys
import types
from contextlib import suppress

import numpy as np
import pytest
import soundfile
from members import LABELS, log_mel_member, made_bundle, sound, steep
from tones import RATE
from typer.testing import CliRunner

from earmark.audio.microphone import read_microphone
from earmark.audio.pipe import ENCODINGS, PcmFormat, PipeReader
from earmark.cli import app
from earmark.errors import AudioError, EarmarkError, SettingError
from earmark.inference.decoding import Decoding
from earmark.inference.detector import Detector
from earmark.inference.model_file import Bundle, save_bundle
from earmark.runtime.interrupts import Interrupts

SUBTYPES = {"u8": "PCM_U8", "s16le": "PCM_16", "s24le": "PCM_24", "s32le": "PCM_32",
            "f32le": "FLOAT", "f64le": "DOUBLE"}  # fmt: skip


class Pipe(io.RawIOBase):
    """Bytes that come a few at a time, and cannot be seeked in."""

    def __init__(self, data, size):
        self.data, self.size, self.at = data, size, 0

    def readable(self):
        return True

    def readinto(self, target):
        part = self.data[self.at : self.at + min(self.size, len(target))]
        target[: len(part)] = part
        self.at += len(part)
        return len(part)


def read_all(data, raw=None, size=1000):
    reader = PipeReader(io.BufferedReader(Pipe(data, size)), raw, "The pipe")
    return np.concatenate(list(reader.chunks())), reader.format


def wav_of(samples, encoding="s16le", rate=RATE, form="WAV"):
    file = io.BytesIO()
    soundfile.write(file, samples, rate, SUBTYPES[encoding], format=form)
    return file.getvalue()


NOISE = np.random.default_rng(0).uniform(-0.9, 0.9, (500, 2))


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("form", ["WAV", "WAVEX"])
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_wav_in_a_pipe_has_the_samples_of_the_file(encoding, form, size):
    data = wav_of(NOISE, encoding, form=form)
    expected, _ = soundfile.read(io.BytesIO(data), dtype="float32")
    found, what = read_all(data, size=size)
    np.testing.assert_array_equal(found, expected)
    assert what == PcmFormat(RATE, encoding, 2)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_raw_samples_are_those_of_a_wav(encoding):
    data = wav_of(NOISE, encoding)
    expected, _ = soundfile.read(io.BytesIO(data), dtype="float32")
    raw = data[data.index(b"data") + 8 :]
    found, _ = read_all(raw + b"\0", PcmFormat(RATE, encoding, 2), size=11)
    np.testing.assert_array_equal(found[: len(expected)], expected)


@pytest.mark.parametrize("claimed", [0, 0x7FFFFFFF, 0x7FFFF000, 0x80000024, 0xFFFFFFFF])
def test_a_length_that_a_pipe_cannot_know_is_ignored(claimed):
    data = wav_of(NOISE)
    at = data.index(b"data") + 4
    streamed = data[:at] + struct.pack("<I", claimed) + data[at + 4 :]
    np.testing.assert_array_equal(read_all(streamed)[0], read_all(data)[0])


def test_chunks_before_and_after_the_samples_are_skipped():
    data = wav_of(NOISE)
    listed = b"LIST" + struct.pack("<I", 5) + b"aaaaa\0"
    at = data.index(b"fmt ")
    longer = data[:at] + listed + data[at:] + listed
    np.testing.assert_array_equal(read_all(longer)[0], read_all(data)[0])


def test_what_is_no_audio_is_refused_with_what_to_do():
    data = wav_of(NOISE)
    for content, message in [
        (b"", "The pipe is empty"),
        (b"fLaC" + bytes(50), "begins with b'fLaC'. Convert it .ffmpeg"),
        (b"RIFF", "is no wav"),
        (data[:30], "ended within the header"),
        (data[:-400], "header promises 400 bytes more"),
        (data[: data.index(b"data") + 4] + bytes(4), "contains no samples"),
        (data.replace(b"fmt ", b"fnt "), "samples before their format"),
        (data[:20] + b"\x02" + data[21:], r"cannot be read from a pipe .format 2, 16 bits"),
    ]:
        with pytest.raises(AudioError, match=message):
            read_all(content)
    with pytest.raises(AudioError, match=r"NaN or infinity at 0.001 s"):
        read_all(np.array([0, 0, np.nan], "<f4").tobytes(), PcmFormat(2000, "f32le"))
    for settings, message in [
        ((0,), "sample_rate must be"),
        ((RATE, "s17le"), "did you mean 's16le'"),
        ((RATE, "u8", 0), "n_channels must be from 1 to 64. Got 0"),
    ]:
        with pytest.raises(SettingError, match=message):
            PcmFormat(*settings)


def test_an_interrupt_ends_the_waiting_and_not_the_work():
    done, before = [], signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        for number in interrupts.read(range(5)):
            if number == 2:
                os.kill(os.getpid(), signal.SIGTERM)
            done.append(number)
    assert done == [0, 1, 2]

    def wait():
        yield 0
        os.kill(os.getpid(), signal.SIGINT)
        yield 1

    with Interrupts() as interrupts:
        assert list(interrupts.read(wait())) == [0]
        assert interrupts.were_requested
        assert interrupts.wait_for(lambda: 1) is None
    assert signal.getsignal(signal.SIGINT) is before


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A model file, a wav and its events."""
    home = tmp_path_factory.mktemp("home")
    wave = sound(9.0)
    bundle = made_bundle(steep(log_mel_member(window=2.0), wave))
    decoding = Decoding.uniform(LABELS, 0.8, low_threshold=0.7, median=0.24, max_gap=0.08)
    save_bundle(Bundle(LABELS, bundle.members, decoding), home / "m.earmark")
    soundfile.write(home / "a.wav", wave, RATE)
    return home


@pytest.fixture(scope="module")
def expected(home):
    events = Detector.load(home / "m.earmark").detect(home / "a.wav")
    assert len(events) > 5
    return events


def start(home, *words, **options):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-m", "earmark", "detect", "-", "-m", "m.earmark", *words]
    return subprocess.Popen(command, cwd=home, **pipes | options)


def assert_printed(lines, expected):
    found = sorted((json.loads(line) for line in lines), key=lambda event: event["onset"])
    assert [list(event) for event in found] == [
        ["filename", "onset", "offset", "event_label", "score"]
    ] * len(found)
    assert sorted((e["onset"], e["offset"], e["event_label"]) for e in found) == sorted(
        (round(e.onset, 3), round(e.offset, 3), e.label) for e in expected
    )


def test_detect_prints_the_events_of_standard_input_as_they_become_final(home, expected):
    data = (home / "a.wav").read_bytes()
    at = data.index(b"data") + 4
    data = data[:at] + b"\xff\xff\xff\xff" + data[at + 4 :]
    with start(home) as process:
        process.stdin.write(data[: len(data) * 2 // 3])
        process.stdin.flush()
        lines = [process.stdout.readline()]  # while the pipe is open: it does not wait for the end
        process.stdin.write(data[len(data) * 2 // 3 :])
        out, log = process.communicate()
        assert process.returncode == 0, log
    assert b"8000 Hz; an event is printed" in log
    assert_printed([*lines, *out.splitlines()], expected)


def test_an_interrupt_prints_what_is_known_and_exits_with_130(home, expected):
    raw = (home / "a.wav").read_bytes()[44:]
    with start(home, "--raw-rate", str(RATE), "--raw-format", "s16le") as process:
        process.stdin.write(raw)
        process.stdin.flush()
        first = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.readlines()
        assert process.wait() == 130, process.stderr.read()
    events = [json.loads(line) for line in [*first, *rest]]
    end = max(event["offset"] for event in events)
    # Where the recording was cut off its last window is another one.
    assert end - 2.5 > expected[3].offset
    assert_printed(
        [json.dumps(event) for event in events if event["offset"] < end - 2.5],
        [event for event in expected if event.offset < end - 2.5],
    )


def test_a_reader_that_leaves_ends_the_command(home):
    with start(home) as process:
        process.stdout.close()
        with suppress(BrokenPipeError):  # it may leave before it has read all
            process.stdin.write((home / "a.wav").read_bytes())
        with suppress(BrokenPipeError):
            process.stdin.close()
        log = process.stderr.read()
        assert process.wait() == 141
    assert log.count(b"\n") == 1, log  # the sample rate and the latency


def test_a_pipe_without_audio_and_impossible_options_are_one_sentence(home):
    model = ["-m", str(home / "m.earmark"), "--device", "cpu", "--threads", "1"]
    for words, message in [
        ([], "Standard input is empty"),
        (["a.wav"], "Standard input is one recording"),
        (["--raw-rate", "8000", "--raw-format", "s16"], "did you mean 's16le'"),
    ]:
        done = CliRunner().invoke(app, ["detect", "-", *model, *words], input=b"")
        assert isinstance(done.exception, EarmarkError)
        assert message in str(done.exception)
        assert done.stdout == ""


class FakeSound(types.ModuleType):
    """The library sounddevice with a microphone that hears a waveform, and then stops."""

    class PortAudioError(Exception):
        """As the library's."""

    def __init__(self, wave, overflows=False):
        super().__init__("sounddevice")
        self.wave, self.overflows, self.opened = wave, overflows, []

    def InputStream(self, device, samplerate, channels, dtype):
        if device == "nowhere":
            raise ValueError("No input device matching 'nowhere'")
        self.opened.append((device, samplerate, channels, dtype))
        return FakeMicrophone(self)


class FakeMicrophone:
    def __init__(self, library):
        self.library, self.at = library, 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.library.opened.append("closed")

    def read(self, n_samples):
        if self.at >= len(self.library.wave):
            raise self.library.PortAudioError("Device unplugged")
        part = self.library.wave[self.at : self.at + n_samples, None]
        self.at += n_samples
        return part, self.library.overflows


def test_listen_prints_the_events_of_a_microphone(home, expected, monkeypatch, capsys):
    wave, _ = soundfile.read(home / "a.wav", dtype="float32")
    library = FakeSound(wave)
    monkeypatch.setitem(sys.modules, "sounddevice", library)
    words = ["listen", "-m", str(home / "m.earmark"), "--sample-rate", str(RATE), "--threads", "1"]
    done = CliRunner().invoke(app, [*words, "--microphone", "3", "--device", "cpu"])
    assert isinstance(done.exception, AudioError)
    assert str(done.exception).startswith("The microphone stopped: Device unplugged")
    assert_printed(done.stdout.splitlines(), expected)
    assert library.opened == [(3, RATE, 1, "float32"), "closed"]


def test_a_microphone_that_is_not_there_or_too_fast_is_reported(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "sounddevice", FakeSound(np.zeros(RATE), overflows=True))
    with pytest.raises(AudioError, match="'nowhere' cannot be opened at 8000 Hz: No input device"):
        read_microphone(RATE, "nowhere")
    next(read_microphone(RATE))
    assert "Samples of the microphone were lost" in caplog.text
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(SettingError, match=r"install earmark\[mic\]"):
        read_microphone(RATE)

    def fail(name):
        raise OSError("PortAudio library not found")

    monkeypatch.setattr("earmark.audio.microphone.import_module", fail)
    with pytest.raises(SettingError, match="PortAudio library not found; install PortAudio"):
        read_microphone(RATE)
