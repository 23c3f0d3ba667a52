"""Many recordings: short ones together, each with the events that it has alone."""

import itertools
import logging

import numpy as np
import pytest
from members import KINDS, LABELS, log_mel_member, made_bundle, registered_levels, sound, steep
from tones import RATE

from earmark.audio.encode import write_audio
from earmark.errors import AudioError, SettingError
from earmark.inference import folder as gathering
from earmark.inference.calibration import Calibration
from earmark.inference.detector import Detector
from earmark.inference.predictor import Predictor


@pytest.fixture(scope="module", autouse=True)
def levels():
    with registered_levels():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Short recordings of many lengths, two that are longer than a window, and two broken ones."""
    folder = tmp_path_factory.mktemp("short")
    wave = sound(12.0)
    lengths = [0.003, 0.5, 1.99, 2.0, 2.01, 1.3, 1.3, 7.0, 0.9, 1.7, 0.7]
    for number, seconds in enumerate(lengths):
        part = wave[1000 * number :][: round(seconds * RATE)]
        write_audio(folder / f"{number:02d}.wav", part, RATE)
    (folder / "03b.wav").write_bytes(b"no audio")
    content = (folder / "07.wav").read_bytes()
    (folder / "08b.wav").write_bytes(content[: len(content) // 2])
    return folder


def detectors():
    calibration = Calibration(0.1, 0.8, 0.3, 0.2)
    member = steep(log_mel_member(window=2.0), sound(9.0))
    yield "one network", Detector(made_bundle(member, calibration=calibration), threads=2)
    ensemble = KINDS["a head on an encoder"]()
    yield "an ensemble", Detector(made_bundle(*(steep(x, sound(9.0)) for x in ensemble)), threads=2)


def test_recordings_together_have_the_events_and_scores_of_each_alone(folder):
    files = {path.name: path for path in sorted(folder.glob("*.wav"))}
    for _, detector in detectors():
        results = list(detector.detect_each(files, keep_scores=True))
        assert [result.name for result in results] == list(files)
        assert [x.name for x in results if x.error] == ["03b.wav", "08b.wav"]
        assert sum(len(result.events) for result in results) > 10
        for result in results:
            path = files[result.name]
            if result.error is not None:
                assert isinstance(result.error, AudioError)
                assert (result.events, result.scores) == ([], None)
                continue
            alone = detector.frame_scores(path)
            assert result.duration == alone.duration
            np.testing.assert_allclose(result.scores.scores, alone.scores, rtol=0, atol=1e-5)
            np.testing.assert_allclose(
                result.scores.clip_scores, alone.clip_scores, rtol=0, atol=1e-5
            )
            expected = detector.detect(path)
            assert [(e.onset, e.offset, e.label) for e in result.events] == [
                (e.onset, e.offset, e.label) for e in expected
            ]
            assert [e.score for e in result.events] == pytest.approx(
                [e.score for e in expected], abs=1e-4
            )
        plain = list(detector.detect_each(files))
        assert [result.events for result in plain] == [result.events for result in results]
        assert all(result.scores is None for result in plain)


def test_short_recordings_share_batches_and_results_come_before_all_are_read(folder, monkeypatch):
    _, detector = next(detectors())
    sizes, whole = [], Predictor._predict_padded

    def counted(self, clips):
        sizes.append(len(clips))
        return whole(self, clips)

    monkeypatch.setattr(Predictor, "_predict_padded", counted)
    monkeypatch.setattr("earmark.inference.folder.TOGETHER", 4)
    n_asked = 0

    class Recordings(dict):
        def __getitem__(self, name):
            nonlocal n_asked
            n_asked += 1
            return folder / "01.wav"

    results = detector.detect_each(Recordings.fromkeys(f"{number}.wav" for number in range(40)))
    first = list(itertools.islice(results, 4))
    assert sizes == [4]
    assert n_asked < 15
    assert len(first + list(results)) == 40
    assert sizes == [4] * 10


def test_a_large_file_is_processed_alone_whatever_its_length(folder, monkeypatch):
    _, detector = next(detectors())
    files = {path.name: path for path in sorted(folder.glob("0[1-6].wav"))}
    gathered, whole = [], Predictor.predict_short

    def predict_short(predictor, clips):
        gathered.append(len(clips))
        return whole(predictor, clips)

    monkeypatch.setattr(Predictor, "predict_short", predict_short)
    monkeypatch.setattr(gathering, "LARGE", files["01.wav"].stat().st_size)  # the shortest
    for result in detector.detect_each(files):
        if result.name != "01.wav":
            assert result.events == detector.detect(files[result.name])
    assert gathered == [1]


def test_settings_are_checked_before_anything_is_read():
    detector = Detector(made_bundle(log_mel_member()), threads=1)
    with pytest.raises(SettingError, match="min_score must be"):
        detector.detect_each({}, min_score=2)
    assert list(detector.detect_each({})) == []


def test_a_folder_is_detected_through_the_same_path(folder, caplog):
    _, detector = next(detectors())
    files = {path.name: path for path in sorted(folder.glob("*.wav"))}
    with caplog.at_level(logging.WARNING, logger="earmark"):
        events = detector.detect_files(folder)
    assert list(events.failed) == ["03b.wav", "08b.wav"]
    results = {x.name: x.events for x in detector.detect_each(files) if x.error is None}
    assert events == results
    assert {event.label for own in results.values() for event in own} == set(LABELS)
