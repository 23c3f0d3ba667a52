"""The detector: right times, any length, flat memory; a network trained on tags alone."""

import io
import tracemalloc

import numpy as np
import pytest
import torch
from tones import RATE, SMALL, make_tone_clip, write_tones

from earmark.audio import write_audio
from earmark.decoding import Decoding
from earmark.detector import Detector
from earmark.errors import AudioError, SettingError
from earmark.events import Event
from earmark.learning import MODEL, load, train, tune

HOP = 0.08
ONE = HOP + 1e-9  # a frame, and the rounding of its seconds


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tones")
    write_tones(folder, 96, seed=1, prefix="train")
    write_tones(folder, 32, seed=2, prefix="valid")
    # Kernels of one frame: how sharply a network times is a matter of what it sees, and this test
    # is about ours not shifting it.
    words = [*SMALL, "model.kernel=1", "training.max_epochs=30", "training.threads=1"]
    words += ["training.schedule=cosine", "training.seed=2"]
    tables = (folder / "train_weak.tsv", folder / "valid_weak.tsv", folder / "audio")
    train(*tables, folder / "run", settings=words)
    return folder


@pytest.fixture(scope="module")
def detector(folder):
    return load(folder / "run" / MODEL)


def scene(events, seconds, seed=9):
    return make_tone_clip(np.random.default_rng(seed), events, seconds)


def test_a_tone_from_2_to_3_seconds_comes_back_within_one_frame(detector):
    for label in ("low", "high"):
        found = detector.detect(scene([Event(2.0, 3.0, label)], 4.0), RATE)
        assert [event.label for event in found] == [label]
        assert found[0].onset == pytest.approx(2.0, abs=ONE)
        assert found[0].offset == pytest.approx(3.0, abs=ONE)
        assert found[0].score > 0.5


@pytest.mark.parametrize("shift", [0.4, 0.8, 8.0, 16.08])
def test_shifting_the_audio_shifts_the_events_alike(detector, shift):
    seconds = 4.0 + shift
    base = detector.detect(scene([Event(2.0, 3.0, "low")], seconds), RATE)
    moved = detector.detect(scene([Event(2.0 + shift, 3.0 + shift, "low")], seconds), RATE)
    assert len(base) == len(moved) == 1
    assert moved[0].onset - base[0].onset == pytest.approx(shift, abs=ONE)
    assert moved[0].offset - base[0].offset == pytest.approx(shift, abs=ONE)


def test_a_long_recording_is_read_in_windows_and_nothing_is_lost_between_them(detector):
    truth = [Event(1.0 + 3 * n, 2.0 + 3 * n, ("low", "high")[n % 2]) for n in range(20)]
    found = detector.detect(scene(truth, 62.0), RATE)
    assert [event.label for event in found] == [event.label for event in truth]
    for event, true in zip(found, truth, strict=True):
        assert event.onset == pytest.approx(true.onset, abs=2 * ONE)
        assert event.offset == pytest.approx(true.offset, abs=2 * ONE)


@pytest.mark.parametrize("seconds", [0.05, 0.5, 3.99, 4.0, 4.01, 5.99, 6.0, 6.05, 8.0, 12.34])
def test_the_curve_covers_the_recording_whatever_its_length(detector, seconds):
    curve = detector.frame_probs(scene([], seconds), RATE)
    assert len(curve.probs) == curve.ruler.count(seconds)
    assert curve.probs.shape == curve.clip_probs.shape == (len(curve.times), 2)
    assert curve.duration == pytest.approx(seconds, abs=1 / RATE)
    assert curve.times[0] == pytest.approx(HOP / 2)
    assert ((curve.probs >= 0) & (curve.probs <= 1)).all()


def test_a_recording_of_one_window_is_what_the_network_says_of_it(detector):
    from earmark.features import log_mel

    wave = scene([Event(1.0, 2.0, "low")], 4.0)
    with torch.no_grad():
        want = detector.model(log_mel(wave, detector.bundle.features).unsqueeze(0))
    curve = detector.frame_probs(wave, RATE)
    np.testing.assert_array_equal(curve.probs, want.frame_probs[0].numpy())
    np.testing.assert_array_equal(curve.clip_probs[0], want.clip_probs[0].numpy())
    tags = detector.tags(wave, RATE)
    assert tags["low"] > 0.5 > tags["high"]


def test_windows_are_merged_as_plain_sums_would_merge_them(detector):
    """The windows of the detector, laid out and averaged by a loop over frames."""
    from earmark.features import log_mel

    wave = scene([Event(3.0, 5.0, "low"), Event(8.0, 9.0, "high")], 13.7)
    features = log_mel(wave, detector.bundle.features)
    pool, window, hop = detector.bundle.model.time_pool, detector._window, detector._hop
    starts = [0]
    while starts[-1] + window + hop <= len(features):
        starts.append(starts[-1] + hop)
    if starts[-1] + window < len(features):
        rest = len(features) - starts[-1] - window
        starts.append(starts[-1] + -(-rest // pool) * pool)
    total = np.zeros((detector.bundle.model.n_frames(len(features)), 3))
    for start in starts:
        part = features[start : start + window].unsqueeze(0)
        with torch.no_grad():
            probs = detector.model(part).frame_probs[0].double().numpy()
        for i, row in enumerate(probs):
            weight = min(i + 1, len(probs) - i)
            total[start // pool + i] += [*(weight * row), weight]
    want = total[:, :2] / total[:, 2:]
    curve = detector.frame_probs(wave, RATE)
    np.testing.assert_allclose(curve.probs, want, atol=1e-6)
    gate = np.zeros((len(want), 2))
    for start in starts:
        with torch.no_grad():
            clip = detector.model(features[start : start + window].unsqueeze(0)).clip_probs[0]
        over = slice(start // pool, start // pool + -(-window // pool))
        gate[over] = np.maximum(gate[over], clip.numpy())
    np.testing.assert_allclose(curve.clip_probs, gate, atol=1e-6)


def test_files_of_any_rate_and_open_files_are_read_alike(detector, tmp_path):
    import soxr

    wave = scene([Event(2.0, 3.0, "low")], 4.0)
    write_audio(tmp_path / "A.WAV", wave, RATE)
    other = soxr.resample(wave, RATE, 44100)
    write_audio(tmp_path / "b.flac", np.stack([other, other]).mean(0), 44100)
    first = detector.detect(tmp_path / "A.WAV")
    assert detector.detect(tmp_path / "b.flac")[0].onset == first[0].onset
    stream = io.BytesIO((tmp_path / "A.WAV").read_bytes())
    assert detector.detect(stream) == first


def test_memory_stays_flat_over_a_long_recording(detector, tmp_path):
    def peak(seconds):
        path = tmp_path / f"{seconds}.wav"
        write_audio(path, np.tile(scene([Event(2.0, 3.0, "low")], 10.0), seconds // 10), RATE)
        tracemalloc.start()
        detector.detect(path)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(60)
    short, long = peak(60), peak(600)
    assert long - short < 10 * 60 * 12.5 * 2 * 8 * 10  # the curve itself, and some room


def test_it_is_saved_and_loaded(detector, tmp_path):
    path = detector.save(tmp_path / "copy.earmark")
    wave = scene([Event(2.0, 3.0, "high")], 4.0)
    assert Detector.load(path).detect(wave, RATE) == detector.detect(wave, RATE)


def test_another_decoding_may_be_given(detector):
    wave = scene([Event(2.0, 3.0, "low")], 4.0)
    none = Decoding.uniform(detector.labels, min_duration=3.0)
    assert detector.detect(wave, RATE, none) == []


def test_the_model_file_records_how_it_was_tuned(detector, folder):
    assert detector.bundle.tuning["supervision"] == "weak"
    weak, found = tune(detector, folder / "valid_weak.tsv", folder / "audio")
    assert weak.bundle.tuning["supervision"] == found.supervision == "weak"
    assert found.score >= found.start_score
    table = folder / "valid_strong.tsv"
    strong, found = tune(detector, table, folder / "audio", strong=True, objective="f_measure")
    assert strong.bundle.tuning["supervision"] == "strong"
    assert strong.bundle.tuning["n_clips"] == 32
    assert found.score >= found.start_score
    assert strong.bundle.weights is detector.bundle.weights


def test_wrong_input_gets_one_clear_sentence(detector, tmp_path):
    with pytest.raises(AudioError, match=r"none\.wav"):
        detector.detect(tmp_path / "none.wav")
    with pytest.raises(SettingError, match="rate of 8000 Hz"):
        detector.detect(np.zeros(8000, np.float32))
    for wrong in (np.zeros(8000, np.int16), np.full(8000, np.nan, np.float32)):
        with pytest.raises(SettingError, match="divide 16-bit numbers by 32768"):
            detector.detect(wrong, RATE)
    with pytest.raises(SettingError, match="mono"):
        detector.detect(np.zeros((2, 8000), np.float32), RATE)
