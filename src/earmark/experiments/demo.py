"""The whole task on synthetic scenes, from training to scores and plots: what `make demo` runs.

Weakly labelled scenes are generated and a detector is trained on their tags. It then detects events
in unseen scenes, which are scored against their strong labels; no strong label is used in training.
Finally the bundled pretrained model, trained on real recordings, runs on a synthetic scene.

Conventions: progress is logged at level INFO; `DemoReport.describe` gives the text to print.
"""

import logging
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from earmark.audio.decode import read_audio
from earmark.audio.encode import write_audio
from earmark.data.features import log_mel
from earmark.data.manifest import Manifest
from earmark.data.spectrogram import drawn_features, spectrogram
from earmark.formats.events import Event, read_events, write_events
from earmark.inference.detector import Detector
from earmark.metrics.segment import SegmentScores, segment_scores
from earmark.plots import plot_detection, plot_hierarchy, plot_history, save
from earmark.synth.scenes import SceneConfig, make_scene, write_scenes
from earmark.training.api import train
from earmark.training.checkpoint import HISTORY
from earmark.training.config import RunConfig

logger = logging.getLogger(__name__)

SOUNDS = ("beeps", "bell", "chirp", "engine", "knock", "siren")
N_SCENES = {"train": 320, "valid": 64, "test": 48}
N_PROCESSES = 2
TARGET_F, TARGET_ER = 0.80, 0.40
# Procedural sounds -> the labels of the bundled model for such sounds.
BUNDLED_LABELS = {
    "bell": "church_bells",
    "engine": "engine",
    "knock": "door_wood_knock",
    "siren": "siren",
}
BUNDLED_FILE = "bundled.wav"
BUNDLED_SCENE: dict[str, Any] = {"n_events": (3, 3), "snr_db": (15.0, 20.0), "max_overlap": 1}
PRESET = "paper-fast"  # hierarchical, so that all levels of pooling can be drawn
PLOTS = ("hierarchy.png", "detection.png", "history.png")
SETTINGS = ("training.max_epochs=14", "training.schedule=cosine", "training.batch_size=16")


@dataclass(frozen=True)
class DemoReport:
    """The results of the demo.

    Args:
        out: folder with the plots, the scenes and the trained model.
        scores: segment-based scores of the trained detector on the test scenes.
        bundled_file: the scene for the bundled model.
        bundled_reference: its events, with the labels of the bundled model.
        bundled_estimate: the events that the bundled model detected.
        seconds: duration of the whole demo.

    >>> events = {"a.wav": [Event(0, 1, "dog")]}
    >>> scores = segment_scores(events, events)
    >>> report = DemoReport(Path("demo"), scores, Path("a.wav"), (), (), seconds=1.0)
    >>> report.reached_target, report.describe().splitlines()[0]
    (True, 'Segment-based, 1 s: F1 1.000, ER 0.000 (target reached: F1 >= 0.80, ER <= 0.40)')
    """

    out: Path
    scores: SegmentScores
    bundled_file: Path
    bundled_reference: Sequence[Event]
    bundled_estimate: Sequence[Event]
    seconds: float

    @property
    def reached_target(self) -> bool:
        """Whether F1 and error rate are as good as they should be."""
        return self.scores.f_measure >= TARGET_F and self.scores.error_rate <= TARGET_ER

    def describe(self) -> str:
        """Return the report as text."""
        scores = self.scores
        reached = "reached" if self.reached_target else "MISSED"
        plots = ", ".join(str(self.out / name) for name in PLOTS)
        return "\n".join(
            [
                f"Segment-based, 1 s: F1 {scores.f_measure:.3f}, ER {scores.error_rate:.3f} "
                f"(target {reached}: F1 >= {TARGET_F:.2f}, ER <= {TARGET_ER:.2f})",
                *(
                    f"  {label:8s} F1 {row['f_measure']['f_measure']:.3f}"
                    for label, row in scores.class_wise.items()
                ),
                "",
                f"The bundled pretrained model on {self.bundled_file}, a synthetic scene of:",
                *map(_describe_event, self.bundled_reference),
                "detects, trained only on tags of real recordings:",
                *map(_describe_event, self.bundled_estimate),
                "",
                f"Plots: {plots}. The demo took {self.seconds:.0f} s.",
            ]
        )


def run_demo(out: Path, seed: int = 0, device: str = "auto") -> DemoReport:
    """Generate scenes, train on their tags, detect, score and plot.

    Args:
        out: folder for everything; an earlier demo in it is overwritten.
        seed: of the scenes and of the training.
        device: where networks run: "auto", "cpu", "cuda" or "cuda:1".
    """
    started = time.monotonic()
    shutil.rmtree(out / "run", ignore_errors=True)
    parts = _make_scenes(out, seed)
    n_scenes = sum(N_SCENES.values())
    logger.info("Made %d scenes of 10 s with %d classes in %s.", n_scenes, len(SOUNDS), out)
    logger.info("Training on clip tags only ...")
    detector = train(
        parts["train"],
        parts["valid"],
        out=out / "run",
        preset=PRESET,
        overrides=(*SETTINGS, f"training.seed={seed}"),
        run=RunConfig(progress=True, device=device),
    )
    about = detector.bundle.training
    logger.info("Trained %d epochs; thresholds are tuned on tags only.", about["n_epochs"])
    reference = read_events(out / "test" / "strong.tsv")
    audio = out / "test" / "audio"
    estimate = {file: detector.detect(audio / file) for file in reference}
    write_events(out / "detected.tsv", estimate)
    n_events = sum(map(len, estimate.values()))
    logger.info("Detected %d events in %d unseen scenes.", n_events, len(estimate))
    scores = segment_scores(reference, estimate)
    file = max(reference, key=lambda name: len(reference[name]))
    _plot(out, detector, audio / file, reference[file], estimate[file])
    bundled = _run_bundled_model(out / BUNDLED_FILE, seed, device)
    return DemoReport(out, scores, out / BUNDLED_FILE, *bundled, time.monotonic() - started)


def _make_scenes(out: Path, seed: int) -> dict[str, Manifest]:
    """Write the scenes of each set, each with its own seed; return their clips and tags."""
    parts = {}
    for number, (part, n_scenes) in enumerate(N_SCENES.items()):
        write_scenes(
            out / part,
            n_scenes,
            SceneConfig(classes=SOUNDS),
            seed * len(N_SCENES) + number,
            prefix=f"{part}_",
            processes=N_PROCESSES,
            overwrite=True,
        )
        parts[part] = Manifest.read(out / part / "weak.tsv", out / part / "audio", SOUNDS)
    return parts


def _run_bundled_model(file: Path, seed: int, device: str) -> tuple[list[Event], list[Event]]:
    """Write a scene of sounds that the bundled model knows; return its events and detections."""
    scene = make_scene(SceneConfig(classes=tuple(BUNDLED_LABELS), **BUNDLED_SCENE), seed)
    write_audio(file, scene.waveform, scene.sample_rate)
    reference = [replace(event, label=BUNDLED_LABELS[event.label]) for event in scene.events]
    return reference, Detector.load(device=device).detect(file)


def _describe_event(event: Event) -> str:
    return f"  {event.onset:4.1f} to {event.offset:4.1f} s  {event.label}"


def _plot(
    out: Path, detector: Detector, file: Path, reference: list[Event], estimate: list[Event]
) -> None:
    """Plot one scene with its events, one class at every level of pooling, and the losses."""
    config = detector.bundle.feature_config
    waveform, _ = read_audio(file, config.sample_rate)
    seen = spectrogram([waveform], drawn_features(config))
    label = reference[0].label
    index = detector.labels.index(label)
    model: Any = detector.bundle.build_model()
    with torch.no_grad():
        prediction = model(log_mel(waveform, config).unsqueeze(0))
        _, stages = model.pooling(prediction.frame_probs, prediction.hidden, return_stages=True)
    picture = plot_hierarchy(
        seen, stages, detector.grid, label, index, reference, model.config.stages
    )
    save(picture, out / "hierarchy.png")
    scores = detector.frame_scores(waveform, config.sample_rate)
    title = "A scene that the detector has not met, trained on clip tags alone"
    picture = plot_detection(scores, reference, estimate, spectrogram=seen, title=title)
    save(picture, out / "detection.png")
    save(plot_history(out / "run" / HISTORY), out / "history.png")
