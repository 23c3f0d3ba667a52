"""One file of every format that Earmark has written: read for ever, with the content it had.

tests/data/format-N.earmark and tests/data/kept were written once and are never written again. A
format that changes gets a new file beside the old ones. Model files of formats 1 to 3 were written
by the Earmark of that time; test_model_file.py has format 1.
"""

import json
import os
import shutil
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest
import torch

from earmark.data.store import VERSION, FeatureStore
from earmark.experiments.run import FORMAT as RESULT_FORMAT
from earmark.experiments.run import RunResult
from earmark.formats.events import Event, read_events
from earmark.formats.registry import EVENT_FORMATS
from earmark.formats.scores import SCORE_FORMATS, read_scores
from earmark.formats.tags import read_tags
from earmark.inference.calibration import Calibration
from earmark.inference.detector import Detector
from earmark.inference.journal import Journal
from earmark.inference.model_file import FORMAT, load_bundle
from earmark.training.checkpoint import Checkpoint
from earmark.training.finish import export_best
from earmark.training.record import RunRecord
from earmark.web.corrections import Corrections

DATA = Path(__file__).parent / "data"
KEPT = DATA / "kept"
EVENTS = [Event(0.5, 1.5, "dog", 0.75), Event(1.0, 2.0, "siren, far", 0.5)]
LABELS = ("dog", "siren, far")


def noise():
    """Return 5 s of noise at 8 kHz whose level changes every 0.1 s."""
    rng = np.random.default_rng(5)
    waveform = rng.standard_normal(40000) * np.repeat(rng.random(50), 800) * 0.3
    return waveform.astype(np.float32)


@pytest.mark.parametrize("number", range(2, FORMAT + 1))
def test_a_model_file_of_every_format_gives_the_events_it_gave(number):
    path = DATA / f"format-{number}.earmark"
    events = Detector.load(path, threads=1).detect(noise(), 8000)
    expected = json.loads(path.with_suffix(".json").read_text())["events"]
    assert len(expected) == 3
    assert [list(astuple(event))[:3] for event in events] == [event[:3] for event in expected]
    # Other CPUs round the scores otherwise.
    assert [event.score for event in events] == pytest.approx([x[3] for x in expected], abs=1e-5)


@pytest.mark.parametrize("number", range(2, FORMAT + 1))
def test_a_model_file_of_every_format_keeps_what_it_says_of_itself(number):
    bundle = load_bundle(DATA / f"format-{number}.earmark")
    assert bundle.labels == LABELS
    assert len(bundle.members) == (2 if number == 4 else 1)
    assert [member.window for member in bundle.members] == ([4.0, 3.0] if number == 4 else [4.0])
    assert bundle.members[0].feature_config.n_mels == 16
    assert (bundle.decoding["dog"].low_threshold, bundle.decoding["dog"].max_gap) == (0.3, 0.1)
    calibrated = Calibration(0.5, 0.25, 0.0, 1.0) if number > 2 else None
    assert bundle.calibration == calibrated
    assert bundle.tuning == {"supervision": "weak", "n_clips": 3}
    assert bundle.training == {"n_epochs": 7, "best_valid_loss": 0.25}
    assert (bundle.licence, bundle.attribution) == ("CC-BY 4.0", ("A. Nother, bark.wav",))


@pytest.mark.parametrize("format", EVENT_FORMATS)
def test_events_of_every_format(format):
    own = EVENT_FORMATS[format]
    if format == "parquet":
        pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
    found = read_events(KEPT / "events" / f"a{own.suffixes[0]}", format)
    ((name, events),) = found.items()
    assert name.removesuffix(".wav") == "a"
    assert [(x.onset, x.offset, x.label) for x in events] == [
        (x.onset, x.offset, x.label) for x in EVENTS
    ]
    if own.keeps_scores and own.score_by_default:
        assert [x.score for x in events] == [0.75, 0.5]


@pytest.mark.parametrize("format", SCORE_FORMATS)
def test_frame_level_scores_of_every_format(format):
    if format == "parquet":
        pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
    scores = read_scores(KEPT / "scores" / format)["a.wav"]
    assert scores.labels == LABELS
    np.testing.assert_array_equal(scores.scores, [[0.75, 0.125], [0.25, 0.5]])
    np.testing.assert_allclose(scores.edges, [0.0, 0.08, 0.16])


def test_tags():
    assert read_tags(KEPT / "weak.tsv") == {"a.wav": LABELS, "b.wav": ()}


def test_the_feature_store():
    assert VERSION == 1, "keep a store of the new version, too"
    store = FeatureStore.open(KEPT / "run" / "features")
    store.check()
    assert sorted(store.names) == [f"{number}.wav" for number in range(6)]
    assert all(store[name].shape == (50, 16) for name in store.names)
    low, high = (np.asarray(store[name], float).mean(0) for name in ("1.wav", "0.wav"))
    assert low.argmax() < high.argmax()  # 500 Hz and 2 kHz


def test_the_checkpoint_and_the_record_of_a_training_give_its_model(tmp_path):
    record, checkpoint = RunRecord.read(KEPT / "run"), Checkpoint.read(KEPT / "run")
    assert record.valid.files == ("4.wav", "5.wav")
    assert record.valid.tags == (("siren, far",), ("dog",))
    assert (record.n_train, record.supervision) == (4, "weak")
    assert [row.epoch for row in checkpoint.state.history] == [0, 1]
    assert checkpoint.state.epoch == 2
    assert checkpoint.optimizer[0].keys() == {"step", "exp_avg", "exp_avg_sq"}
    shutil.copytree(KEPT / "run", tmp_path / "run")
    shutil.move(tmp_path / "run" / "model.earmark", tmp_path / "before.earmark")
    export_best(tmp_path / "run")
    after, before = (
        load_bundle(path)
        for path in (tmp_path / "run" / "model.earmark", tmp_path / "before.earmark")
    )
    assert after.labels == before.labels == LABELS
    for name, value in before.weights.items():
        assert torch.equal(after.weights[name], value), name


def test_the_journal_of_a_detection(tmp_path):
    recording = tmp_path / "a.wav"
    recording.write_bytes(b"12345")
    os.utime(recording, ns=(10**18, 10**18))
    text = (KEPT / "journal.jsonl").read_text()
    assert text.count('"/recordings/a.wav"') == 1  # the journal has the place of a recording
    text = text.replace('"/recordings/a.wav"', json.dumps(os.path.realpath(recording)))
    (tmp_path / "journal.jsonl").write_text(text)
    with Journal(tmp_path / "journal.jsonl", "key") as journal:
        assert journal.entries({"a.wav": recording}) == {"a.wav": (10.0, EVENTS)}


@pytest.mark.parametrize("number", range(1, RESULT_FORMAT + 1))
def test_the_result_of_a_comparison(number):
    result = RunResult.read(KEPT / f"result-{number}.json")
    assert (result.configuration, result.seed, result.format) == (
        "linear, single",
        3,
        RESULT_FORMAT,
    )
    assert result.scores["clip_and_frame"] == result.scores["threshold_free"] == {"f_measure": 0.5}
    assert result.counts["shared_clip"]["tp"] == [1, 2]
    assert result.example == {"file": "a.wav"}
    assert result.training == {"n_epochs": 7}


def test_the_corrections_of_a_library():
    correction = Corrections(KEPT).get("a.wav")
    assert correction.events == [Event(0.5, 1.5, "dog")]
    assert correction.tags == {"siren, far": False}


def test_the_onnx_file_has_the_scores_of_the_model_that_it_was_exported_from():
    pytest.importorskip("onnxruntime", reason="needs the extra 'onnx'")
    scores = Detector.load(KEPT / "model.onnx", threads=1).frame_scores(noise()[:8000], 2000)
    expected = np.array(json.loads((KEPT / "model.onnx.json").read_text()))
    assert scores.labels == LABELS
    assert expected.std(0).min() > 0.01
    np.testing.assert_allclose(scores.scores, expected, atol=1e-4)
