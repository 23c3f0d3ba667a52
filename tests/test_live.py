"""Live recordings: the events of the file, in chunks of any size at any rate."""

import gc
import signal
import threading
import time

import numpy as np
import pytest
import soundfile
import soxr
from members import (
    KINDS,
    LABELS,
    encoder_member,
    log_mel_member,
    made_bundle,
    registered_levels,
    sound,
    steep,
)
from tones import RATE

from earmark.errors import AudioError, SettingError
from earmark.inference.calibration import Calibration
from earmark.inference.decoding import Decoding
from earmark.inference.detector import Detector
from earmark.runtime.push import Pushed

DECODING = Decoding.uniform(LABELS, 0.8, low_threshold=0.7, median=0.24, max_gap=0.08)


@pytest.fixture(scope="module", autouse=True)
def levels():
    with registered_levels():
        yield


@pytest.fixture(scope="module")
def detector():
    calibration = Calibration(0.1, 0.8, 0.3, 0.2)
    member = steep(log_mel_member(window=2.0), sound(9.0))
    return Detector(made_bundle(member, calibration=calibration), threads=1)


def push_all(stream, samples, sizes):
    events, at, number = [], 0, 0
    while at < len(samples):
        size = sizes[number % len(sizes)]
        events += stream.push(samples[at : at + size])
        at, number = at + size, number + 1
    return events + stream.finish()


def assert_same(events, expected):
    assert [(e.onset, e.offset, e.label) for e in sorted(events)] == [
        (e.onset, e.offset, e.label) for e in expected
    ]
    assert [e.score for e in sorted(events)] == pytest.approx([e.score for e in expected], abs=1e-5)


@pytest.mark.parametrize(
    ("rate", "sizes"),
    [
        (RATE, [1000]),
        (RATE, [1, 333, 0, 7000]),
        (11025, [160]),
        (44100, [4410, 44100]),
        (48000, [960]),
    ],
)
def test_a_stream_has_the_events_of_the_file(detector, tmp_path, rate, sizes):
    wave = soxr.resample(sound(9.3), RATE, rate)
    soundfile.write(tmp_path / "a.wav", wave, rate, subtype="FLOAT")
    expected = detector.detect(tmp_path / "a.wav", decoding=DECODING)
    assert len(expected) > 5
    events = push_all(detector.stream(rate, DECODING), wave, sizes)
    assert_same(events, expected)


def test_the_sizes_of_chunks_change_no_bit(detector):
    wave = sound(7.0)
    first, *others = (
        push_all(detector.stream(RATE, DECODING), wave, sizes)
        for sizes in ([len(wave)], [1777], [3, 5000])
    )
    assert first
    for other in others:
        assert sorted(other) == sorted(first)


@pytest.mark.parametrize("kind", ["half the frame rate", "a head on an encoder"])
def test_an_ensemble_may_listen_too(kind):
    wave = sound(9.0)
    detector = Detector(made_bundle(*(steep(x, wave) for x in KINDS[kind]())), threads=1)
    expected = detector.detect(wave, RATE, DECODING)
    assert expected
    with detector.stream(RATE, DECODING) as stream:
        assert_same(push_all(stream, wave, [800]), expected)


def test_channels_are_averaged_as_in_a_file(detector, tmp_path):
    stereo = np.stack([sound(5.0), sound(5.0, seed=4)], axis=1)
    soundfile.write(tmp_path / "a.wav", stereo, RATE, subtype="FLOAT")
    expected = detector.detect(tmp_path / "a.wav", decoding=DECODING)
    assert_same(push_all(detector.stream(RATE, DECODING), stereo, [1, 2, 999]), expected)


@pytest.mark.parametrize("seconds", [0.01, 0.5, 1.99, 2.0, 2.01])
def test_a_short_stream_has_the_events_of_the_file(detector, seconds):
    wave = sound(3.0)[: round(seconds * RATE)]
    expected = detector.detect(wave, RATE, DECODING)
    assert_same(push_all(detector.stream(RATE, DECODING), wave, [100]), expected)


MEMBERS = {"log-mel": lambda: log_mel_member(window=2.0), "encoder": lambda: encoder_member(1, 2.0)}


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize(("rate", "step"), [(RATE, 1.0), (22050, 0.2)])
def test_events_come_within_the_stated_latency(member, rate, step):
    detector = Detector(made_bundle(steep(MEMBERS[member](), sound(12.0))), threads=1)
    decoding = Decoding.uniform(LABELS, 0.7, max_gap=0.16)
    wave = soxr.resample(sound(12.0), RATE, rate)
    stream = detector.stream(rate, decoding, step=step)
    late = []
    for first in range(0, len(wave), rate // 20):
        events = stream.push(wave[first : first + rate // 20])
        late += [stream.duration - event.offset for event in events]
    assert len(late) > 5
    assert stream.duration == pytest.approx(12.0, abs=1e-3)
    # The last chunk of 0.05 s may hold more than was needed; and the statement is no wild guess.
    assert stream.latency - step - 1.5 < max(late) <= stream.latency + 0.05


def test_a_stream_leaves_out_events_with_low_scores(detector):
    wave = sound(6.0)
    events = push_all(detector.stream(RATE, DECODING), wave, [RATE])
    limit = float(np.median([event.score for event in events]))
    kept = push_all(detector.stream(RATE, DECODING, min_score=limit), wave, [RATE])
    assert kept == [event for event in events if event.score >= limit]
    assert 0 < len(kept) < len(events)


def test_run_yields_the_events_of_an_iterable(detector):
    wave = sound(6.0)
    events = list(detector.stream(RATE, DECODING).run(np.array_split(wave, 50)))
    assert_same(events, detector.detect(wave, RATE, DECODING))


def test_what_cannot_be_pushed_is_refused(detector):
    stream = detector.stream(RATE)
    for chunk, message in [
        (np.zeros(3, np.int16), "divide 16-bit integers by 32768. Got int16"),
        (np.array([np.nan]), "NaN or infinity"),
        (np.zeros((3, 65)), r"\(samples, channels\).* Got the shape \(3, 65\)"),
        (np.zeros((3, 2, 1)), r"Got the shape \(3, 2, 1\)"),
    ]:
        with pytest.raises(SettingError, match=message):
            stream.push(chunk)
    stream.push(np.zeros((10, 2)))
    with pytest.raises(SettingError, match="the same number of channels, 2 so far"):
        stream.push(np.zeros(10))
    stream.finish()
    assert stream.finish() == []
    with pytest.raises(SettingError, match="finished"):
        stream.push(np.zeros(10))
    assert detector.stream(RATE).finish() == []
    with pytest.raises(SettingError, match="sample_rate must be"):
        detector.stream(44.1)
    with pytest.raises(SettingError, match="step must be"):
        detector.stream(RATE, step=0)
    with pytest.raises(SettingError, match="The decoding is of"):
        detector.stream(RATE, Decoding.uniform(["dog"]))
    short = detector.stream(96000)
    short.push(np.zeros(1))
    with pytest.raises(AudioError, match="too short to be resampled"):
        short.finish()


def own_threads():
    return [thread for thread in threading.enumerate() if thread.name == "earmark-push"]


def wait_until_ended():
    deadline = time.monotonic() + 30
    while own_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not own_threads()


def test_a_stream_leaves_no_thread_behind(detector):
    stream = detector.stream(RATE)
    stream.push(np.zeros(RATE))
    assert own_threads()
    stream.close()
    assert wait_until_ended()
    stream = detector.stream(RATE)
    stream.push(np.zeros(RATE))
    del stream
    gc.collect()
    assert wait_until_ended()


def test_an_error_of_the_function_is_raised_by_the_call_that_caused_it():
    def halves(numbers):
        for number in numbers:
            yield 1 // number

    pushed = Pushed(halves)
    assert pushed.push(1) == [1]
    for call in (lambda: pushed.push(0), lambda: pushed.push(1), pushed.finish):
        with pytest.raises(ZeroDivisionError):
            call()
    assert wait_until_ended()


def test_an_interrupt_loses_nothing():
    started, go = threading.Event(), threading.Event()

    def doubled(numbers):
        for number in numbers:
            started.set()
            go.wait(30)
            yield 2 * number

    def interrupt(*_):
        raise KeyboardInterrupt

    pushed = Pushed(doubled)
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            main = threading.main_thread().ident
            threading.Thread(
                target=lambda: (started.wait(30), signal.pthread_kill(main, signal.SIGINT))
            ).start()
            pushed.push(1)
    finally:
        signal.signal(signal.SIGINT, before)
    go.set()
    assert pushed.push(2) == [2, 4]
    assert pushed.finish() == []
