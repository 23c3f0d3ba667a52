"""The detector: right times, any source, any length, constant memory."""

import io
import logging
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import numpy as np
import pytest
import soundfile
import soxr
import torch
from tones import RATE, SMALL, make_tone_clip, write_tones
from windows import plain_scores

from earmark.audio.decode import read_audio
from earmark.audio.encode import write_audio
from earmark.data.features import FeatureConfig, log_mel
from earmark.errors import AudioError, DataError, EarmarkError, SettingError
from earmark.formats.events import Event
from earmark.formats.scores import read_scores
from earmark.frames import FrameScores
from earmark.inference.decoding import Decoding, decode_events
from earmark.inference.detector import Detector, load, name_recordings
from earmark.inference.member import Member
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
    # Kernels of one frame and known onsets: how exact a network is in time depends on its input
    # and its training, and these tests are about the detector, which must not shift anything.
    overrides = [*SMALL, "model.kernel=1", "training.max_epochs=30", "training.threads=1"]
    overrides += ["training.schedule=cosine"]
    tables = (folder / "train_weak.tsv", folder / "valid_weak.tsv", folder / "audio")
    train(*tables, folder / "run", overrides=overrides, strong=folder / "train_strong.tsv")
    return folder


@pytest.fixture(scope="module")
def detector(folder):
    return load(folder / "run" / MODEL)


def scene(events, seconds, seed=9):
    return make_tone_clip(np.random.default_rng(seed), events, seconds)


def test_a_tone_from_2_to_3_seconds_comes_back_within_one_frame(detector):
    for label in ("low", "high"):
        (event,) = detector.detect(scene([Event(2.0, 3.0, label)], 4.0), RATE)
        assert event.label == label
        assert event.onset == pytest.approx(2.0, abs=ONE)
        assert event.offset == pytest.approx(3.0, abs=ONE)
        assert event.score > 0.5


@pytest.mark.parametrize("shift", [0.4, 0.8, 8.0, 16.08])
def test_shifting_the_audio_shifts_the_events_alike(detector, shift):
    seconds = 4.0 + shift
    base = detector.detect(scene([Event(2.0, 3.0, "low")], seconds), RATE)
    moved = detector.detect(scene([Event(2.0 + shift, 3.0 + shift, "low")], seconds), RATE)
    assert len(base) == len(moved) == 1
    assert moved[0].onset - base[0].onset == pytest.approx(shift, abs=ONE)
    assert moved[0].offset - base[0].offset == pytest.approx(shift, abs=ONE)


def test_a_long_recording_is_read_in_windows_and_nothing_is_lost_between_them(detector):
    reference = [Event(1.0 + 3 * n, 2.0 + 3 * n, ("low", "high")[n % 2]) for n in range(20)]
    estimate = detector.detect(scene(reference, 62.0), RATE)
    assert [event.label for event in estimate] == [event.label for event in reference]
    for event, true in zip(estimate, reference, strict=True):
        assert event.onset == pytest.approx(true.onset, abs=2 * ONE)
        assert event.offset == pytest.approx(true.offset, abs=2 * ONE)


@pytest.mark.parametrize("seconds", [0.05, 0.5, 3.99, 4.0, 4.01, 5.99, 6.0, 6.05, 8.0, 12.34])
def test_the_scores_cover_the_recording_whatever_its_length(detector, seconds):
    found = detector.frame_scores(scene([], seconds), RATE)
    assert len(found) == found.grid.count(seconds)
    assert found.scores.shape == found.clip_scores.shape == (len(found.times), 2)
    assert found.duration == pytest.approx(seconds, abs=1 / RATE)
    assert found.times[0] == pytest.approx(HOP / 2)
    assert found.labels == detector.labels
    assert ((found.scores >= 0) & (found.scores <= 1)).all()


def test_a_recording_of_one_window_has_the_scores_of_the_plain_network(detector):
    wave = scene([Event(1.0, 2.0, "low")], 4.0)
    with torch.no_grad():
        features = log_mel(wave, detector.bundle.feature_config)
        want = detector.ensemble.models[0](features.unsqueeze(0))
    found = detector.frame_scores(wave, RATE)
    np.testing.assert_allclose(found.scores, want.frame_probs[0].numpy(), atol=1e-6)
    np.testing.assert_allclose(found.clip_scores[0], want.clip_probs[0].numpy(), atol=1e-6)
    tags = detector.tags(wave, RATE)
    assert tags["low"] > 0.5 > tags["high"]


@pytest.mark.parametrize("seconds", [3.0, 4.02, 6.0, 8.05, 13.7, 70.0])
def test_windows_are_merged_as_plain_sums_would_merge_them(detector, seconds):
    wave = scene([Event(1.0, 2.0, "low"), Event(seconds - 0.7, seconds, "high")], seconds)
    plain, clip_scores = plain_scores(detector.ensemble.models[0], detector, wave)
    exact, _ = plain_scores(deepcopy(detector.ensemble.models[0]).double(), detector, wave)
    found = detector.frame_scores(wave, RATE)
    rounding = np.abs(plain - exact).max()  # of single precision, in the plain network itself
    assert rounding < 1e-5
    # The fused network rounds otherwise, by how much depends on the CPU; a wrong weight of a window
    # or a frame that is merged with another differs by a thousand times as much.
    np.testing.assert_allclose(found.scores, exact, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found.clip_scores, clip_scores, rtol=0, atol=1e-5)


@pytest.mark.parametrize("preset", PRESETS)
def test_events_in_real_sound_are_those_of_the_plain_network(preset, esc50):
    """Untrained, but with batch norms of real sound, and with scores far from 0.5."""
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
    member = Member(features, model.config, model.state_dict())
    detector = Detector(Bundle(labels, (member,), decoding))
    plain, clip_scores = plain_scores(detector.ensemble.models[0], detector, wave)
    found = detector.frame_scores(wave, features.sample_rate)
    np.testing.assert_allclose(found.scores, plain, atol=1e-5)
    estimate = detector.decode(found)
    duration = len(wave) / features.sample_rate
    wanted = decode_events(
        FrameScores(plain, labels, detector.grid, duration=duration, clip_scores=clip_scores),
        decoding,
    )
    assert len(estimate) > 10
    assert [e[:3] for e in map(tuple_of, estimate)] == [e[:3] for e in map(tuple_of, wanted)]
    assert [e.score for e in estimate] == pytest.approx([e.score for e in wanted], abs=1e-5)


@pytest.mark.parametrize("seconds", [19.9, 41.0, 70.3])
def test_strips_take_their_margins_from_their_neighbours(seconds):
    """Kernels of three frames, so that a strip without its margins would show at every edge."""
    torch.manual_seed(0)
    config = ModelConfig.preset(
        "paper-fast", 2, n_mels=16, channels=(4, 4, 4, 4), last_channels=8, n_recurrent=4
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
    member = Member(features, config, model.state_dict())
    bundle = Bundle(labels, (member,), Decoding.uniform(labels))
    detector = Detector(bundle, threads=2)
    exact, _ = plain_scores(deepcopy(model).double(), detector, wave)
    assert exact.std(0).min() > 0.01
    np.testing.assert_allclose(detector.frame_scores(wave, RATE).scores, exact, rtol=0, atol=1e-5)


def tuple_of(event):
    return event.onset, event.offset, event.label, event.score


def test_the_number_of_threads_changes_no_bit(detector):
    wave = scene([Event(3.0, 5.0, "low"), Event(80.0, 81.0, "high")], 90.0)
    first, *others = (
        Detector(detector.bundle, threads=n).frame_scores(wave, RATE) for n in (1, 2, 3)
    )
    for other in others:
        np.testing.assert_array_equal(other.scores, first.scores)
        np.testing.assert_array_equal(other.clip_scores, first.clip_scores)
    with pytest.raises(SettingError, match="threads"):
        Detector(detector.bundle, threads=-1)


def test_a_service_may_detect_from_several_threads_and_keeps_its_own_number_of_threads(detector):
    waves = [scene([Event(2.0 + n, 3.0 + n, "low")], 20.0, seed=n) for n in range(6)]
    before = torch.get_num_threads()
    with ThreadPoolExecutor(6) as service:
        events = list(service.map(lambda wave: detector.detect(wave, RATE), waves))
    assert events == [detector.detect(wave, RATE) for wave in waves]
    assert torch.get_num_threads() == before


@pytest.fixture
def wave():
    return scene([Event(2.0, 3.0, "low"), Event(4.5, 5.5, "high")], 7.0)


def test_a_path_a_file_an_array_and_a_tensor_give_the_same_events(detector, wave, tmp_path):
    path = tmp_path / "A.WAV"
    soundfile.write(path, wave, RATE, subtype="FLOAT")
    expected = detector.detect(path)
    assert [event.label for event in expected] == ["low", "high"]
    assert detector.detect(str(path)) == expected
    assert detector.detect(io.BytesIO(path.read_bytes())) == expected
    with path.open("rb") as file:
        assert detector.detect(file) == expected
    assert detector.detect(wave, RATE) == expected
    assert detector.detect(wave.astype(np.float64), RATE) == expected
    assert detector.detect(torch.from_numpy(wave), RATE) == expected
    assert detector.detect(torch.from_numpy(wave).requires_grad_(), np.int64(RATE)) == expected


def test_channels_on_either_axis_are_averaged(detector, wave):
    rng = np.random.default_rng(0)
    noise = 0.01 * rng.standard_normal(len(wave)).astype(np.float32)
    stereo = np.stack([wave + noise, wave - 2 * noise])
    expected = detector.frame_scores(stereo.mean(axis=0), RATE)
    for source in (stereo, stereo.T, torch.from_numpy(stereo), torch.from_numpy(stereo.T)):
        found = detector.frame_scores(source, RATE)
        np.testing.assert_array_equal(found.scores, expected.scores)
        assert detector.detect(source, RATE) == detector.decode(expected)
    (alone,) = {tuple(detector.detect(x, RATE)) for x in (wave, wave[None], wave[:, None])}
    assert len(alone) == 2


@pytest.mark.parametrize("rate", [4000, 11025, 16000, 44100])
def test_any_sample_rate_is_resampled_as_a_file_of_it_is(detector, wave, rate, tmp_path):
    other = soxr.resample(wave, RATE, rate)
    soundfile.write(tmp_path / "a.wav", other, rate, subtype="FLOAT")
    resampled, _ = read_audio(tmp_path / "a.wav", RATE)
    expected = detector.frame_scores(resampled, RATE)
    for found in (detector.frame_scores(other, rate), detector.frame_scores(tmp_path / "a.wav")):
        np.testing.assert_array_equal(found.scores, expected.scores)
        np.testing.assert_array_equal(found.clip_scores, expected.clip_scores)
        assert found.duration == expected.duration
    if rate > 4000:  # a tone of 2200 Hz needs more
        for event, original in zip(
            detector.detect(other, rate), detector.detect(wave, RATE), strict=True
        ):
            assert event.label == original.label
            assert event.onset == pytest.approx(original.onset, abs=ONE)
            assert event.offset == pytest.approx(original.offset, abs=ONE)


def test_blocks_of_a_waveform_change_no_bit_of_the_resampled(detector, wave, monkeypatch):
    other = soxr.resample(wave, RATE, 44100)
    expected = detector.frame_scores(other, 44100)
    monkeypatch.setattr("earmark.inference.sources.BLOCK", 10_007)
    np.testing.assert_array_equal(detector.frame_scores(other, 44100).scores, expected.scores)


def test_a_folder_with_a_broken_file_keeps_the_others(detector, wave, tmp_path, caplog):
    (tmp_path / "sub").mkdir()
    write_audio(tmp_path / "a.wav", wave, RATE)
    write_audio(tmp_path / "sub" / "c.wav", wave[::-1].copy(), RATE)
    (tmp_path / "b.wav").write_bytes(b"no audio at all")
    (tmp_path / "notes.txt").write_text("not a recording")
    with caplog.at_level(logging.WARNING, logger="earmark"):
        events = detector.detect_files(tmp_path, scores=tmp_path / "scores")
    assert list(events) == ["a.wav", "sub/c.wav"]
    assert events["a.wav"] == detector.detect(tmp_path / "a.wav")
    assert list(events.failed) == ["b.wav"]
    assert isinstance(events.failed["b.wav"], AudioError)
    (record,) = caplog.records
    assert record.getMessage() == str(events.failed["b.wav"])
    assert "b.wav" in record.getMessage()
    tables = read_scores(tmp_path / "scores")
    assert sorted(tables) == ["a", "sub/c"]
    expected = detector.frame_scores(tmp_path / "a.wav")
    np.testing.assert_array_equal(tables["a.wav"].scores, expected.scores)
    np.testing.assert_array_equal(tables["a.wav"].edges, expected.edges)


def test_files_and_folders_may_be_detected_together(detector, wave, tmp_path):
    for name in ("a.wav", "more/b.wav"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_audio(tmp_path / name, wave, RATE)
    events = detector.detect_files([tmp_path / "a.wav", str(tmp_path / "more")])
    assert list(events) == ["a.wav", "b.wav"]
    assert events.failed == {}
    assert list(detector.detect_files(tmp_path / "a.wav")) == ["a.wav"]
    missing = detector.detect_files([tmp_path / "a.wav", tmp_path / "none.wav"])
    assert (list(missing), list(missing.failed)) == (["a.wav"], ["none.wav"])


def test_two_recordings_with_one_name_are_named_by_their_paths(detector, wave, tmp_path):
    for name in ("x/a.wav", "y/a.wav", "y/a.flac"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_audio(tmp_path / name, wave[:800], RATE)
    paths = [tmp_path / "x/a.wav", tmp_path / "y/a.flac", tmp_path / "y/a.wav"]
    assert list(detector.detect_files([tmp_path / "x", tmp_path / "y"])) == list(map(str, paths))
    assert name_recordings([tmp_path / "y"]) == {path.name: path for path in paths[1:]}
    with pytest.raises(DataError, match="the same without their suffix"):  # of one table of scores
        detector.detect_files(tmp_path / "y", scores=tmp_path / "scores")
    assert not (tmp_path / "scores").exists()
    assert list(name_recordings([tmp_path / "x", tmp_path / "x"])) == ["a.wav"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no recording"):
        detector.detect_files(tmp_path / "empty")


def test_memory_does_not_grow_with_the_recording(detector, tmp_path):
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
    assert long - short < 10 * 60 * 12.5 * 2 * 8 * 10  # the scores themselves, and a margin


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
    weak, result = tune(detector, folder / "valid_weak.tsv", folder / "audio")
    assert weak.bundle.tuning["supervision"] == result.supervision == "weak"
    assert result.score >= result.start_score
    table = folder / "valid_strong.tsv"
    poor = Decoding.uniform(detector.labels, 0.9, min_duration=2.0)
    strong, result = tune(
        detector, table, folder / "audio", strong=True, start=poor, objective="f_measure"
    )
    record = strong.bundle.tuning
    assert (record["supervision"], record["n_clips"], record["n_folds"]) == ("strong", 32, 5)
    assert record["cross_validated_gain"] == result.cross_validation.gain > 0.1
    assert record["cross_validated_score"] <= record["score"] == result.score
    assert strong.bundle.weights is detector.bundle.weights


def test_clips_of_one_fold_stay_together_in_cross_validation(detector, folder, tmp_path):
    header, *rows = (folder / "valid_strong.tsv").read_text().splitlines()
    names = [row.split("\t")[0] for row in rows]
    fold = {name: number % 3 for number, name in enumerate(sorted(set(names)))}
    table = [f"{header}\tfold"]
    table += [f"{row}\t{fold[name]}" for row, name in zip(rows, names, strict=True)]
    (tmp_path / "folds.tsv").write_text("\n".join(table))
    _, result = tune(detector, tmp_path / "folds.tsv", folder / "audio", strong=True)
    assert result.cross_validation.n_folds == 3


def test_a_detector_stays_as_it_was_where_tuning_gains_nothing(detector, folder):
    table = folder / "valid_strong.tsv"
    same, result = tune(detector, table, folder / "audio", strong=True, shrinkage=1e6)
    assert not result.is_adopted
    assert same is detector


def test_a_path_or_file_that_cannot_be_read_is_an_audio_error(detector, tmp_path):
    with pytest.raises(AudioError, match=r"none\.wav"):
        detector.detect(tmp_path / "none.wav")
    with pytest.raises(AudioError, match="empty"):
        detector.detect(io.BytesIO())


@pytest.mark.parametrize(
    ("source", "sample_rate", "message"),
    [
        (np.zeros(8000, np.float32), None, "needs its sample_rate"),
        (torch.zeros(8000), None, "needs its sample_rate"),
        (np.zeros(8000, np.int16), RATE, "divide 16-bit integers by 32768. Got int16"),
        (torch.zeros(8000, dtype=torch.int32), RATE, "divide 16-bit integers .* Got int32"),
        (np.full(8000, np.nan, np.float32), RATE, "Got float32 with NaN or infinity"),
        (np.full((2, 8000), np.inf), RATE, "Got float64 with NaN or infinity"),
        (np.zeros((2, 3, 8000), np.float32), RATE, r"Got the shape \(2, 3, 8000\)"),
        (np.zeros(0, np.float32), RATE, r"not empty. Got the shape \(0,\)"),
        (np.array(0.5), RATE, r"Got the shape \(\)"),
        (np.zeros((100, 8000), np.float32), RATE, r"64 channels at most.*\(100, 8000\)"),
        (np.zeros((8000, 100), np.float32), RATE, r"64 channels at most.*\(8000, 100\)"),
        (np.zeros(8000, np.float32), 0, "whole number of Hz above 0. Got 0"),
        (np.zeros(8000, np.float32), 44100.5, "whole number of Hz above 0. Got 44100.5"),
        (np.zeros(8000, np.float32), True, "whole number of Hz above 0. Got True"),
        (np.zeros(1, np.float32), 96000, "too short to be resampled to 8000 Hz"),
        ("street.wav", RATE, "sample_rate is for waveforms"),
        (io.BytesIO(b"RIFF"), RATE, "sample_rate is for waveforms"),
        ([0.0, 0.1], RATE, "a NumPy array or torch tensor. Got a list"),
        (None, None, "a NumPy array or torch tensor. Got a NoneType"),
    ],
)
def test_a_waveform_that_cannot_work_gets_one_sentence(detector, source, sample_rate, message):
    with pytest.raises(EarmarkError, match=message) as caught:
        detector.detect(source, sample_rate)
    assert "\n" not in str(caught.value)


def test_an_unknown_device_is_refused(detector):
    with pytest.raises(SettingError, match="no device 'gpu'; use 'auto', 'cpu'"):
        Detector(detector.bundle, device="gpu")
    if not torch.cuda.is_available():
        with pytest.raises(SettingError, match="'cuda:1' is not available: torch finds 0 CUDA"):
            Detector(detector.bundle, device="cuda:1")
        assert Detector(detector.bundle, device="auto").ensemble.device.type == "cpu"
