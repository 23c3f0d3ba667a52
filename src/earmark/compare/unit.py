"""One unit of a plan -> its result: train, tune, and score on the test clips.

Conventions: a result is one JSON file, written last and at once: where it is, the unit is done. A
unit that was stopped goes on from its checkpoint. Thresholds are tuned on the validation clips from
tags alone ("weak") and, where the plan has their events, from those ("strong"); what no threshold
decides stands under "curves". Test clips are heard whole.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from earmark.bundle import installed_versions
from earmark.compare.plan import Plan, Unit
from earmark.curves import ScoreCurve, ScoreCurves
from earmark.data import Manifest, clip_paths
from earmark.decoding import Decoding, decode_events
from earmark.detector import Detector
from earmark.errors import DataError, SettingError
from earmark.evaluation import Scoring
from earmark.events import Event, read_events
from earmark.learning import readable, train
from earmark.metrics.clip import clip_scores, tags_of
from earmark.metrics.event import event_scores
from earmark.metrics.psds import SCENARIO_1, SCENARIO_2, psds_scores
from earmark.metrics.segment import count_segments
from earmark.predictions import Predictions, predict_clips
from earmark.store import FeatureStore, build_store
from earmark.strict import build
from earmark.tables import write_beside
from earmark.tuning import tune_decoding

FEATURES = "features"


@dataclass(frozen=True)
class Result:
    """What came of a unit.

    Args:
        cell: of the plan.
        seed: of the training.
        fingerprint: of settings and tables; a result of others is not taken for this one.
        scores: "weak", "strong" and "curves" -> name -> value, on the test clips; "valid" -> the
            same of the tags of the validation clips, to choose by.
        counts: "weak" and "strong" -> "tp", "fp", "fn" and "errors" of each test clip, in
            segments, from which error bars are made.
        shown: one test clip, that with the most events (the first of them): its events, the frame
            probabilities of their classes, and their thresholds.
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
        write_beside(path, (json.dumps(asdict(self)) + "\n").encode())

    @classmethod
    def read(cls, path: Path) -> "Result":
        """Read what `write` wrote."""
        try:
            return build(cls, path.stem, json.loads(path.read_text(encoding="utf-8")))
        except (json.JSONDecodeError, UnicodeDecodeError, SettingError):
            raise DataError(f"{path} is no result of a comparison; remove it.") from None


class Bench:
    """The tables of a plan, each read once, and the stores of their features."""

    def __init__(self, plan: Plan, work: Path) -> None:
        self.plan, self.work = plan, work
        self._read: dict[Path, Manifest] = {}
        self.labels: tuple[str, ...] | None = plan.labels or None
        self.labels = self.clips(plan.data["train"]).labels
        self.valid, self.test = self.clips(plan.data["valid"]), self.clips(plan.data["test"])
        self.truth: Mapping[str, list[Event]] = read_events(plan.data["test"])

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

    def compute_features(self, unit: Unit) -> FeatureStore:
        """Return the store, after what is lacking in it was computed.

        Clips that cannot be read are left out of validation and test from here on.
        """
        paths = clip_paths(self.clips(unit.train), self.valid, self.test)
        store = build_store(self.store_of(unit), paths, unit.settings.features, wait=True)
        self.valid, self.test = (readable(clips, store) for clips in (self.valid, self.test))
        self.truth = {file: self.truth[file] for file in self.test.files}
        return store


def run_unit(bench: Bench, unit: Unit) -> Result:
    """Train, tune and score one unit."""
    plan, store = bench.plan, bench.compute_features(unit)
    detector = train(
        bench.clips(unit.train),
        bench.valid,
        out=bench.work / unit.folder,
        strong=unit.train_events,
        settings=unit.settings,
        store=bench.store_of(unit),
        resume=True,
    )
    model, features = detector.bundle.build_model(), detector.bundle.features
    on_valid = predict_clips(model, store, bench.valid, features)
    on_test = predict_clips(model, store, bench.test, features)
    decodings = {"weak": detector.bundle.decoding}
    if "valid_events" in plan.data:
        decodings["strong"] = tune_on_strong(detector, bench, on_valid)
    scores: dict[str, dict[str, float]] = {
        "curves": score_curves(detector, bench, on_test),
        "valid": score_tags(detector, bench.valid, on_valid),
    }
    counts: dict[str, dict[str, list[int]]] = {}
    for name, decoding in decodings.items():
        scores[name], counts[name] = score_events(detector, bench, on_test, decoding)
    about = detector.bundle.training
    kept = ("n_epochs", "best_epoch", "best_valid_loss", "seconds", "supervision")
    return Result(
        unit.cell,
        unit.seed,
        unit.fingerprint,
        scores,
        counts,
        show(detector, bench, on_test, decodings),
        {name: about[name] for name in kept},
    )


def tune_on_strong(detector: Detector, bench: Bench, said: Predictions) -> Decoding:
    """Return the decoding that does best on the events of the validation clips."""
    events = read_events(bench.plan.data["valid_events"])
    tuned = tune_decoding(
        said.curves,
        said.clip_probs,
        detector.ruler,
        detector.labels,
        reference=[events.get(file, []) for file in bench.valid.files],
        durations=[detector.ruler.onset(len(curve)) for curve in said.curves],
        start=detector.bundle.decoding,
        objective="f_measure",
    )
    return tuned.decoding


def score_curves(detector: Detector, bench: Bench, said: Predictions) -> dict[str, float]:
    """Return the scores that no threshold decides."""
    files, ruler = bench.test.files, detector.ruler
    curves = ScoreCurves(
        detector.labels,
        {
            file: ScoreCurve.from_frames(curve, ruler, ruler.onset(len(curve)))
            for file, curve in zip(files, said.curves, strict=True)
        },
    )
    probs = dict(zip(files, said.clip_probs, strict=True))
    tags = clip_scores(tags_of(bench.truth), probs=probs, labels=detector.labels)
    return {
        "psds1": psds_scores(bench.truth, curves, **SCENARIO_1).value,
        "psds2": psds_scores(bench.truth, curves, **SCENARIO_2).value,
        "mean_average_precision": tags.mean_average_precision,
    }


def score_tags(detector: Detector, clips: Manifest, said: Predictions) -> dict[str, float]:
    """Return the scores of the clip probabilities against the tags, all that validation tells."""
    tags = dict(zip(clips.files, clips.tags, strict=True))
    probs = dict(zip(clips.files, said.clip_probs, strict=True))
    scores = clip_scores(tags, probs=probs, labels=detector.labels)
    return {"mean_average_precision": scores.mean_average_precision}


def score_events(
    detector: Detector, bench: Bench, said: Predictions, decoding: Decoding
) -> tuple[dict[str, float], dict[str, list[int]]]:
    """Return the scores of what a decoding finds, and what was counted in each test clip."""
    found: dict[str, list[Event]] = {}
    for number, file in enumerate(bench.test.files):
        curve, gate = said.curves[number], said.clip_probs[number]
        duration = detector.ruler.onset(len(curve))
        found[file] = decode_events(curve, detector.ruler, decoding, gate, duration)
    segments = count_segments(bench.truth, found, detector.labels, empty_as_zero=True)
    overall = segments.scores().overall
    names = {
        "error_rate": ("error_rate", "deletion_rate", "insertion_rate", "substitution_rate"),
        "f_measure": ("f_measure", "precision", "recall"),
    }
    scores = {name: overall[group][name] for group, wanted in names.items() for name in wanted}
    scores["class_f_measure"] = segments.scores().class_wise_average["f_measure"]["f_measure"]
    scores["event_f_measure"] = event_scores(
        bench.truth, found, detector.labels, **Scoring().collars, empty_as_zero=True
    ).f_measure
    scores["clip_f_measure"] = clip_scores(
        tags_of(bench.truth), tags_of(found), labels=detector.labels, empty_as_zero=True
    ).f_measure
    errors = segments.substitutions + segments.deletions + segments.insertions
    tables = {"tp": segments.tp, "fp": segments.fp, "fn": segments.fn}
    counts = {name: table.sum(axis=1).tolist() for name, table in tables.items()}
    return scores, counts | {"errors": errors.tolist()}


def show(
    detector: Detector, bench: Bench, said: Predictions, decodings: Mapping[str, Decoding]
) -> dict[str, Any]:
    """Return what is drawn of one test clip."""
    number, file = max(
        enumerate(bench.test.files), key=lambda item: (len(bench.truth[item[1]]), -item[0])
    )
    events = bench.truth[file]
    labels = sorted({event.label for event in events})
    columns = {label: said.curves[number][:, detector.labels.index(label)] for label in labels}
    return {
        "file": file,
        "hop": detector.ruler.hop,
        "events": [[event.onset, event.offset, event.label] for event in events],
        "frame_probs": {name: np.round(curve, 4).tolist() for name, curve in columns.items()},
        "thresholds": {
            name: {label: decoding.rule(label)[:2] for label in labels}
            for name, decoding in decodings.items()
        },
    }
