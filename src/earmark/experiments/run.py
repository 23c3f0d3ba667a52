"""One unit of a plan -> its result: train, tune, and score on the test clips.

Conventions: a result is one JSON file, written last and at once: where it is, the unit is done. A
unit that was stopped goes on from its checkpoint. Thresholds are tuned four times on the
validation clips: of clips and frames, from tags alone ("weak"); of clips from tags, with the
frames' as they are ("gates": what `earmark train` does); the same, one for all classes ("shared");
and, where the plan has their events, all from those ("strong"). What no threshold decides stands
under "curves". Test clips are heard whole.
Of a unit that hears others together, what is tuned and scored is the mean of what they say.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from earmark.config import build
from earmark.data.manifest import Manifest, clip_paths
from earmark.data.store import FeatureStore, build_store
from earmark.errors import DataError, SettingError
from earmark.experiments.plan import Plan, Unit
from earmark.files import atomic_write
from earmark.formats.events import Event, read_events
from earmark.formats.scores import ScoreCurve, ScoreCurves
from earmark.frames import FrameGrid
from earmark.inference.decoding import Decoding, decode_events
from earmark.inference.detector import Detector
from earmark.inference.model_file import installed_versions
from earmark.inference.predictions import Predictions, mean_of, predict_clips
from earmark.inference.tuning import tune_clip_thresholds, tune_decoding
from earmark.metrics.clip import clip_scores, tags_of
from earmark.metrics.evaluation import Scoring
from earmark.metrics.event import event_scores
from earmark.metrics.psds import SCENARIO_1, psds_scores
from earmark.metrics.segment import count_segments
from earmark.training.api import MODEL, readable, train
from earmark.training.settings import RunConfig

FEATURES = "features"
TUNED: Mapping[str, Mapping[str, Any]] = {  # from tags: what `tune_clip_thresholds` is told
    "weak": {"threshold_from": "tags"},
    "gates": {},
    "shared": {"shared": True},
}


@dataclass(frozen=True)
class Result:
    """What came of a unit.

    Args:
        cell: of the plan.
        seed: of the training.
        fingerprint: of settings and tables; a result of others is not taken for this one.
        scores: "weak", "gates", "shared", "strong" and "curves" -> name -> value, on the test
            clips; "valid" -> the same of the tags of the validation clips, to choose by.
        counts: "weak", "gates", "shared" and "strong" -> "tp", "fp", "fn" and "errors" of each
            test clip, in segments, from which error bars are made.
        shown: one test clip, that with the most events (the first of them): its events, the frame
            probabilities of their classes, their thresholds, and whether their gates are open.
        training: epochs, losses, seconds.
        versions: of what made it.
    """

    cell: str
    seed: int
    fingerprint: str
    scores: Mapping[str, Mapping[str, float]]
    counts: Mapping[str, Mapping[str, Sequence[int]]]
    shown: Mapping[str, Any]
    training: Mapping[str, Any]
    versions: Mapping[str, str] = field(default_factory=installed_versions)

    def write(self, path: Path) -> None:
        """Write it beside and move it into place."""
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, (json.dumps(asdict(self)) + "\n").encode())

    @classmethod
    def read(cls, path: Path) -> "Result":
        """Read what `write` wrote."""
        try:
            result = build(cls, path.stem, json.loads(path.read_text(encoding="utf-8")))
            if {*result.scores} >= {*TUNED, "curves", "valid"} and {*result.counts} >= {*TUNED}:
                return result
        except (json.JSONDecodeError, UnicodeDecodeError, SettingError):
            pass
        raise DataError(f"{path} is no result of a comparison; remove it.")


class Bench:
    """The tables of a plan, each read once, and the stores of their features."""

    def __init__(self, plan: Plan, work: Path) -> None:
        self.plan, self.work = plan, work
        self._read: dict[Path, Manifest] = {}
        self.labels: tuple[str, ...] | None = plan.labels or None
        self.labels = self.clips(plan.data["train"]).labels
        self.valid, self.test = self.clips(plan.data["valid"]), self.clips(plan.data["test"])
        self.truth: Mapping[str, list[Event]] = read_events(plan.data["test"])
        self.valid_events: Mapping[str, Sequence[Event]] = {}
        if "valid_events" in plan.data:
            valid = self.valid.with_events(read_events(plan.data["valid_events"]))
            self.valid_events = dict(zip(valid.files, valid.events, strict=True))

    def clips(self, table: Path) -> Manifest:
        """Return the clips of a table, all of whose recordings are there."""
        if table not in self._read:
            audio = self.plan.audio_of(table)
            clips = Manifest.read(table, audio, self.labels)
            if clips.missing:
                raise DataError(
                    f"{table}: {len(clips.missing)} recordings are missing in {audio}, the first "
                    f"is {clips.missing[0]!r}."
                )
            self._read[table] = clips
        return self._read[table]

    def store_of(self, unit: Unit) -> Path:
        """Return the folder of the features: one for each training table, where names may recur."""
        about = [str(unit.train.resolve()), asdict(unit.settings.features.raw)]
        place = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:8]
        return self.work / f"{FEATURES}-{place}"

    def model_of(self, unit: Unit) -> Path:
        """Return the model file of a unit, which is there once it is trained."""
        return self.work / unit.folder / MODEL

    def compute_features(self, unit: Unit) -> FeatureStore:
        """Return the store, after what is lacking in it was computed.

        Clips that cannot be read are left out of validation and test from here on.
        """
        paths = clip_paths(self.clips(unit.train), self.valid, self.test)
        store = build_store(self.store_of(unit), paths, unit.settings.features, wait=True)
        self.valid, self.test = (readable(clips, store) for clips in (self.valid, self.test))
        self.truth = {file: self.truth[file] for file in self.test.files}
        return store


@dataclass(frozen=True)
class Heard:
    """What a unit says of the validation and the test clips."""

    labels: tuple[str, ...]
    grid: FrameGrid
    valid: Predictions
    test: Predictions

    @classmethod
    def by(cls, detector: Detector, bench: Bench, store: FeatureStore) -> "Heard":
        """Return what a detector says."""
        model, features = detector.bundle.build_model(), detector.bundle.features
        valid, test = (predict_clips(model, store, x, features) for x in (bench.valid, bench.test))
        return cls(detector.labels, detector.grid, valid, test)

    @classmethod
    def together(cls, parts: Sequence["Heard"]) -> "Heard":
        """Return the mean of what several say."""
        valid, test = (mean_of([getattr(x, name) for x in parts]) for name in ("valid", "test"))
        return replace(parts[0], valid=valid, test=test)


def run_unit(bench: Bench, unit: Unit) -> Result:
    """Train, tune and score one unit."""
    if unit.members:
        stores = [bench.compute_features(member) for member in unit.members]
        detectors = [Detector.load(bench.model_of(member)) for member in unit.members]
        parts = zip(detectors, stores, strict=True)
        heard = Heard.together([Heard.by(detector, bench, store) for detector, store in parts])
        told: Mapping[str, Any] = {"together": [member.key for member in unit.members]}
    else:
        detector = train_unit(bench, unit)
        heard = Heard.by(detector, bench, bench.compute_features(unit))
        kept = ("n_epochs", "best_epoch", "best_valid_loss", "seconds", "supervision")
        told = {name: detector.bundle.training[name] for name in kept}
    said = heard.valid.curves, heard.valid.clip_probs, heard.grid, heard.labels
    decodings = {
        name: tune_clip_thresholds(*said, bench.valid.tags, **choices).decoding
        for name, choices in TUNED.items()
    }
    if bench.valid_events:
        decodings["strong"] = tune_on_strong(heard, bench, decodings["gates"])
    scores: dict[str, dict[str, float]] = {
        "curves": score_curves(heard, bench),
        "valid": score_tags(heard, bench.valid),
    }
    counts: dict[str, dict[str, list[int]]] = {}
    for name, decoding in decodings.items():
        scores[name], counts[name] = score_events(heard, bench, decoding)
    shown = show(heard, bench, decodings)
    return Result(unit.cell, unit.seed, unit.fingerprint, scores, counts, shown, told)


def train_unit(bench: Bench, unit: Unit) -> Detector:
    """Train a unit in its folder; its teachers have been."""
    store = bench.compute_features(unit)
    return train(
        readable(bench.clips(unit.train), store),
        bench.valid,
        out=bench.work / unit.folder,
        strong=unit.train_events,
        teachers=[bench.model_of(teacher) for teacher in unit.teachers],
        settings=unit.settings,
        run=RunConfig(store=bench.store_of(unit), resume=True),
    )


def tune_on_strong(heard: Heard, bench: Bench, start: Decoding) -> Decoding:
    """Return the decoding that does best on the events of the validation clips."""
    tuned = tune_decoding(
        heard.valid.curves,
        heard.valid.clip_probs,
        heard.grid,
        heard.labels,
        reference=[bench.valid_events[file] for file in bench.valid.files],
        durations=[heard.grid.onset(len(curve)) for curve in heard.valid.curves],
        start=start,
        objective="f_measure",
    )
    return tuned.decoding


def score_curves(heard: Heard, bench: Bench) -> dict[str, float]:
    """Return the scores that no threshold decides."""
    files, grid, said = bench.test.files, heard.grid, heard.test
    curves = ScoreCurves(
        heard.labels,
        {
            file: ScoreCurve.from_frames(curve, grid, grid.onset(len(curve)))
            for file, curve in zip(files, said.curves, strict=True)
        },
    )
    probs = dict(zip(files, said.clip_probs, strict=True))
    tags = clip_scores(tags_of(bench.truth), probs=probs, labels=heard.labels)
    return {
        "psds1": psds_scores(bench.truth, curves, **SCENARIO_1).value,
        "mean_average_precision": tags.mean_average_precision,
    }


def score_tags(heard: Heard, clips: Manifest) -> dict[str, float]:
    """Return the scores of the clip probabilities against the tags, all that validation tells."""
    tags = dict(zip(clips.files, clips.tags, strict=True))
    probs = dict(zip(clips.files, heard.valid.clip_probs, strict=True))
    scores = clip_scores(tags, probs=probs, labels=heard.labels)
    return {"mean_average_precision": scores.mean_average_precision}


def score_events(
    heard: Heard, bench: Bench, decoding: Decoding
) -> tuple[dict[str, float], dict[str, list[int]]]:
    """Return the scores of what a decoding finds, and what was counted in each test clip."""
    found: dict[str, list[Event]] = {}
    for number, file in enumerate(bench.test.files):
        curve, gate = heard.test.curves[number], heard.test.clip_probs[number]
        duration = heard.grid.onset(len(curve))
        found[file] = decode_events(curve, heard.grid, decoding, gate, duration)
    segments = count_segments(bench.truth, found, heard.labels, empty_as_zero=True)
    overall = segments.scores().overall
    names = {
        "error_rate": ("error_rate", "deletion_rate", "insertion_rate", "substitution_rate"),
        "f_measure": ("f_measure", "precision", "recall"),
    }
    scores = {name: overall[group][name] for group, wanted in names.items() for name in wanted}
    scores["event_f_measure"] = event_scores(
        bench.truth, found, heard.labels, **Scoring().collars, empty_as_zero=True
    ).f_measure
    errors = segments.substitutions + segments.deletions + segments.insertions
    tables = {"tp": segments.tp, "fp": segments.fp, "fn": segments.fn}
    counts = {name: table.sum(axis=1).tolist() for name, table in tables.items()}
    return scores, counts | {"errors": errors.tolist()}


def show(heard: Heard, bench: Bench, decodings: Mapping[str, Decoding]) -> dict[str, Any]:
    """Return what is drawn of one test clip."""
    number, file = max(
        enumerate(bench.test.files), key=lambda item: (len(bench.truth[item[1]]), -item[0])
    )
    events = bench.truth[file]
    labels = sorted({event.label for event in events})
    curve, gates = heard.test.curves[number], heard.test.clip_probs[number]
    columns = {label: curve[:, heard.labels.index(label)] for label in labels}
    return {
        "file": file,
        "hop": heard.grid.hop,
        "events": [[event.onset, event.offset, event.label] for event in events],
        "frame_probs": {name: np.round(curve, 4).tolist() for name, curve in columns.items()},
        "thresholds": {
            name: {label: decoding.rule(label)[:2] for label in labels}
            for name, decoding in decodings.items()
        },
        "open": {
            name: {
                label: bool(gates[heard.labels.index(label)] >= decoding.rule(label).clip_threshold)
                for label in labels
            }
            for name, decoding in decodings.items()
        },
    }
