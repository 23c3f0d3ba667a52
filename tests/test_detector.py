"""The detector: right times, any length, flat memory."""

import io
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import numpy as np
import pytest
import torch
from tones import RATE, SMALL, make_tone_clip, write_tones

from earmark.audio.decode import read_audio
from earmark.audio.encode import write_audio
from earmark.data.features import FeatureConfig, log_mel
from earmark.errors import AudioError, SettingError
from earmark.formats.events import Event
from earmark.inference.decoding import Decoding, decode_events
from earmark.inference.detector import Detector, load
from earmark.inference.model_file import Bundle
from earmark.nn.model import PRESETS, Model, ModelConfig
from earmark.training.api import MODEL, train, tune

HOP = 0.08
ONE = HOP + 1e-9  # a frame, and the rounding of its seconds


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tones")
    write_tones(folder, 96, seed=1, prefix="train")
    write_tones(folder, 32, seed=2, prefix="valid")
    # Kernels of one frame and known onsets: how sharply a network times is a matter of what it
    # sees and learns from, and this room is about the detector not shifting it.
    words = [*SMALL, "model.kernel=1", "training.max_epochs=30", "training.threads=1"]
    words += ["training.schedule=cosine"]
    tables = (folder / "train_weak.tsv", folder / "valid_weak.tsv", folder / "audio")
    train(*tables, folder / "run", overrides=words, strong=folder / "train_strong.tsv")
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
    assert len(curve.probs) == curve.grid.count(seconds)
    assert curve.probs.shape == curve.clip_probs.shape == (len(curve.times), 2)
    assert curve.duration == pytest.approx(seconds, abs=1 / RATE)
    assert curve.times[0] == pytest.approx(HOP / 2)
    assert ((curve.probs >= 0) & (curve.probs <= 1)).all()


def test_a_recording_of_one_window_is_what_the_network_says_of_it(detector):
    wave = scene([Event(1.0, 2.0, "low")], 4.0)
    with torch.no_grad():
        want = detector.model(log_mel(wave, detector.bundle.features).unsqueeze(0))
    curve = detector.frame_probs(wave, RATE)
    np.testing.assert_allclose(curve.probs, want.frame_probs[0].numpy(), atol=1e-6)
    np.testing.assert_allclose(curve.clip_probs[0], want.clip_probs[0].numpy(), atol=1e-6)
    tags = detector.tags(wave, RATE)
    assert tags["low"] > 0.5 > tags["high"]


def plain_curve(model, detector, wave):
    """The reference: convolutions over the whole, every window by itself, a loop over frames."""
    dtype = next(model.parameters()).dtype
    features = log_mel(wave, detector.bundle.features).to(dtype)
    pool, window, hop = detector.bundle.model.time_pool, detector._window, detector._hop
    starts = [0]
    while starts[-1] + window + hop <= len(features):
        starts.append(starts[-1] + hop)
    if starts[-1] + window < len(features):
        rest = len(features) - starts[-1] - window
        starts.append(starts[-1] + -(-rest // pool) * pool)
    n_frames, n_classes = detector.bundle.model.n_frames(len(features)), len(detector.labels)
    total, gate = np.zeros((n_frames, n_classes + 1)), np.zeros((n_frames, n_classes))
    with torch.no_grad():
        encoded, _ = model.encode(features.unsqueeze(0))
    for start in starts:
        with torch.no_grad():
            prediction = model.classify(encoded[:, start // pool : (start + window) // pool])
        probs = prediction.frame_probs[0].double().numpy()
        for i, row in enumerate(probs):
            weight = min(i + 1, len(probs) - i)
            total[start // pool + i] += [*(weight * row), weight]
        over = slice(start // pool, start // pool + len(probs))
        gate[over] = np.maximum(gate[over], prediction.clip_probs[0].numpy())
    return total[:, :-1] / total[:, -1:], gate


@pytest.mark.parametrize("seconds", [3.0, 4.02, 6.0, 8.05, 13.7, 70.0])
def test_windows_are_merged_as_plain_sums_would_merge_them(detector, seconds):
    wave = scene([Event(1.0, 2.0, "low"), Event(seconds - 0.7, seconds, "high")], seconds)
    probs, gate = plain_curve(detector.model, detector, wave)
    exact, _ = plain_curve(deepcopy(detector.model).double(), detector, wave)
    curve = detector.frame_probs(wave, RATE)
    rounding = np.abs(probs - exact).max()  # of single precision, in the plain network itself
    np.testing.assert_allclose(curve.probs, exact, rtol=0, atol=4 * rounding)
    np.testing.assert_allclose(curve.clip_probs, gate, rtol=0, atol=4 * rounding)
    assert rounding < 1e-5


@pytest.mark.parametrize("preset", PRESETS)
def test_events_in_real_sound_are_those_of_the_plain_network(preset, esc50):
    """Untrained, but with batch norms that have seen sound, and sure of itself."""
    files = sorted((esc50 / "audio").glob("*.ogg"))[::200]
    wave = np.concatenate([read_audio(file)[0] for file in files])  # 33 s
    features = FeatureConfig(mean=(-8.0,), std=(3.0,))
    torch.manual_seed(0)
    model = Model(ModelConfig.preset(preset, n_classes=5))
    with torch.no_grad():
        seen = log_mel(wave, features)[: 3 * 500].unflatten(0, (3, 500))
        for _ in range(20):
            model(seen)
        hidden = model.eval()(seen).hidden
        model.classifier.weight *= 8 / (hidden @ model.classifier.weight.T).std()
        model.classifier.bias[:] = -(hidden @ model.classifier.weight.T).mean((0, 1))
    labels = tuple("abcde")
    decoding = Decoding.uniform(labels, 0.5, low_threshold=0.45, clip_threshold=0.3)
    detector = Detector(Bundle(labels, features, model.config, model.state_dict(), decoding))
    probs, gate = plain_curve(detector.model, detector, wave)
    curve = detector.frame_probs(wave, features.sample_rate)
    np.testing.assert_allclose(curve.probs, probs, atol=1e-5)
    found = detector.decode(curve)
    wanted = decode_events(probs, detector.grid, decoding, gate, len(wave) / features.sample_rate)
    assert len(found) > 10
    assert [e[:3] for e in map(tuple_of, found)] == [e[:3] for e in map(tuple_of, wanted)]
    assert [e.score for e in found] == pytest.approx([e.score for e in wanted], abs=1e-5)


@pytest.mark.parametrize("seconds", [19.9, 41.0, 70.3])
def test_strips_see_what_lies_beside_them(seconds):
    """Kernels of three frames, so that a strip without its margins would show at every edge."""
    torch.manual_seed(0)
    config = ModelConfig.preset(
        "fast", 2, n_mels=16, channels=(4, 4, 4, 4), last_channels=8, n_recurrent=4
    )
    model = Model(config).train()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    features = FeatureConfig(sample_rate=RATE, n_mels=16, f_max=4000)
    wave = scene([Event(1.0, seconds - 1, "low")], seconds)
    with torch.no_grad():
        model(log_mel(wave, features)[None, :900])
        model.eval().classifier.weight *= 20
    labels = ("low", "high")
    bundle = Bundle(labels, features, config, model.state_dict(), Decoding.uniform(labels))
    detector = Detector(bundle, threads=2)
    exact, _ = plain_curve(deepcopy(model).double(), detector, wave)
    assert exact.std(0).min() > 0.01
    np.testing.assert_allclose(detector.frame_probs(wave, RATE).probs, exact, rtol=0, atol=1e-5)


def tuple_of(event):
    return event.onset, event.offset, event.label, event.score


def test_the_number_of_threads_changes_no_bit(detector):
    wave = scene([Event(3.0, 5.0, "low"), Event(80.0, 81.0, "high")], 90.0)
    curves = [Detector(detector.bundle, threads=n).frame_probs(wave, RATE) for n in (1, 2, 3)]
    for curve in curves[1:]:
        np.testing.assert_array_equal(curve.probs, curves[0].probs)
        np.testing.assert_array_equal(curve.clip_probs, curves[0].clip_probs)
    with pytest.raises(SettingError, match="threads"):
        Detector(detector.bundle, threads=-1)


def test_a_service_may_detect_from_several_threads_and_keeps_its_own_number_of_threads(detector):
    waves = [scene([Event(2.0 + n, 3.0 + n, "low")], 20.0, seed=n) for n in range(6)]
    before = torch.get_num_threads()
    with ThreadPoolExecutor(6) as service:
        found = list(service.map(lambda wave: detector.detect(wave, RATE), waves))
    assert found == [detector.detect(wave, RATE) for wave in waves]
    assert torch.get_num_threads() == before


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
    with pytest.raises(SettingError, match="sample_rate of 8000 Hz"):
        detector.detect(np.zeros(8000, np.float32))
    for wrong in (np.zeros(8000, np.int16), np.full(8000, np.nan, np.float32)):
        with pytest.raises(SettingError, match="divide 16-bit numbers by 32768"):
            detector.detect(wrong, RATE)
    with pytest.raises(SettingError, match="mono"):
        detector.detect(np.zeros((2, 8000), np.float32), RATE)
