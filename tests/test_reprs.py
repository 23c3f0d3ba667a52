"""What a user gets in hand prints on one line."""

from pathlib import Path

import numpy as np
import pytest
import torch

import earmark
from earmark.data.spectrogram import spectrogram
from earmark.data.store import build_store
from earmark.errors import AudioError
from earmark.inference.tuning import TuningResult
from earmark.metrics import count_segments
from earmark.metrics.bootstrap import bootstrap_scores
from earmark.metrics.system_comparison import compare_systems
from earmark.nn.head import HeadConfig
from earmark.nn.networks import NETWORKS

LABELS = [f"a rather long label {n}" for n in range(500)]
NAMES = [f"{n}.wav" for n in range(500)]
EVENTS = {name: [earmark.Event(0, 1, label)] for name, label in zip(NAMES, LABELS, strict=True)}


def frame_scores():
    return earmark.FrameScores(np.zeros((125, 500)), LABELS, earmark.FrameGrid(12.5))


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    """One large object of each class; those of the public front first."""
    folder = tmp_path_factory.mktemp("reprs")
    wave = np.zeros(32000, np.float32)
    earmark.write_audio(folder / "a.wav", wave, 32000)
    detector = earmark.load()
    scene = earmark.make_scene(earmark.SceneConfig(), seed=0)
    tags = [(label,) for label in LABELS]
    decoding = earmark.Decoding.uniform(LABELS, 0.3, median=0.2)
    output = earmark.SystemOutput("mine", EVENTS, scores=earmark.ScoreTable(LABELS, {}))
    few = earmark.SystemOutput("few", dict(list(EVENTS.items())[:5]))
    counts = count_segments(few.events, few.events)
    made = [
        earmark.AugmentConfig(mixing=0.5),
        decoding,
        detector,
        earmark.Event(0, 1, "dog", 0.5),
        earmark.FeatureConfig(mean=tuple(np.linspace(0, 1, 80)), std=(2.0,)),
        earmark.FrameGrid(12.5),
        frame_scores(),
        earmark.Manifest(NAMES, [Path(name) for name in NAMES], tags, LABELS),
        earmark.ModelConfig.preset("fast", n_classes=500),
        earmark.Rule(0.3, 0.1, 0.24, 0.24, 1.0, 0.4),
        earmark.RunConfig(),
        earmark.SceneConfig(duration=4.0),
        earmark.ScoreTable(LABELS, {name: frame_scores() for name in NAMES[:3]}),
        earmark.Scoring(resolution=0.5),
        earmark.Settings.load("best"),
        earmark.Soundbank({label: (Path("a.wav"),) for label in LABELS}),
        output,
        earmark.TrainingConfig(max_epochs=3),
        # not of the front
        detector.bundle,
        detector.bundle.members[0],
        detector.ensemble,
        detector.stream(16000),
        scene,
        spectrogram([wave], earmark.FeatureConfig()),
        build_store(folder / "features", {"a.wav": folder / "a.wav"}),
        TuningResult(decoding, "weak", "clip_f_measure", 0.75, 0.5),
        earmark.segment_scores(EVENTS, EVENTS),
        earmark.event_scores(EVENTS, EVENTS),
        earmark.clip_scores({name: [] for name in NAMES}, {name: [] for name in NAMES}),
        bootstrap_scores(counts, n_bootstrap=40),
        compare_systems(counts, counts, n_bootstrap=40, n_permutations=40),
        earmark.evaluate(few, [few], earmark.Scoring(n_bootstrap=0)),
        earmark.evaluate(few, [few], earmark.Scoring(n_bootstrap=0)).systems[0],
        HeadConfig(n_classes=3),
    ]
    return {type(each).__name__: each for each in made}


def test_every_object_prints_on_one_short_line(objects):
    for name, each in objects.items():
        text = repr(each)
        assert text.startswith(f"{name}("), text
        assert "\n" not in text and " object at 0x" not in text, text
        assert len(text) <= 260, f"{name}: {len(text)} characters: {text}"


def test_every_class_of_the_front_is_among_them(objects):
    classes = {name for name in earmark.__all__ if isinstance(getattr(earmark, name), type)}
    errors = {x for x in classes if issubclass(getattr(earmark, x), Exception)}
    # Modules print their layers, as torch does.
    modules = {x for x in classes if issubclass(getattr(earmark, x), torch.nn.Module)}
    assert modules == {"LogMel", "Model", "Pooling"}
    abstract = {"EmbeddingConfig"}
    assert classes - errors - modules - abstract <= set(objects)
    assert repr(AudioError("no samples")) == "AudioError('no samples')"


@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_config_prints_what_differs_from_its_defaults(network):
    config = NETWORKS[network](n_classes=7)
    assert repr(config).startswith(f"{type(config).__name__}(n_classes=7")
    assert len(repr(config)) < 120


def test_a_detector_says_what_it_detects():
    detector = earmark.load("everyday")
    assert str(detector) == repr(detector)
    assert "17 classes: car_horn, cat, chainsaw and 14 more" in repr(detector)
