"""The end of a training: checkpoint and record -> a model file, and what validation says per class.

Conventions: everything is computed from the best epoch so far, or from several as one ensemble
(`training.members`), so a training that was stopped or killed has a usable model as well.
Clip-level thresholds are tuned on the tags of the validation clips; F1 per class is at these
thresholds, and therefore optimistic.
"""

import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from earmark.data.manifest import Manifest
from earmark.data.store import FeatureStore
from earmark.errors import DataError
from earmark.frames import FrameScores
from earmark.inference.decoding import Decoding
from earmark.inference.description import validation_table
from earmark.inference.detector import Detector
from earmark.inference.ensemble import Ensemble
from earmark.inference.member import Member
from earmark.inference.model_file import SUFFIX, Bundle, check_target
from earmark.inference.tuning import (
    TuningResult,
    calibrated,
    default_rule,
    tune_clip_thresholds,
)
from earmark.metrics.clip import clip_scores
from earmark.plots import plot_history, save
from earmark.runtime.device import resolve_device
from earmark.training.checkpoint import CHECKPOINT, HISTORY, Fitted, write_history
from earmark.training.record import RunRecord
from earmark.training.schedule import best_epoch, is_finished, member_epochs

logger = logging.getLogger(__name__)

MODEL = f"model{SUFFIX}"
TEACHER = "teacher"  # folder of the generation before, in the folder of a training
WEAK_AUC = 0.7  # ROC AUC below which a class counts as hardly recognised; 0.5 is chance
FEW_CLIPS = 5  # validation clips of a class: with fewer, its figures are mostly luck


def export_best(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    device: str = "auto",
) -> Detector:
    """Write the model of the best epoch of a training that was stopped or killed, or still runs.

    Args:
        run: output folder of the training.
        out: model file to write; by default `model.earmark` in that folder.
        device: where to predict the validation clips.

    >>> export_best("nowhere")
    Traceback (most recent call last):
        ...
    earmark.errors.DataError: There is no checkpoint in nowhere; pass the output folder of a ...
    """
    folder, target = Path(run), Path(run) / MODEL if out is None else Path(out)
    while (folder / TEACHER).is_dir() and not _has_epoch(folder):
        folder /= TEACHER  # the last generation has not completed an epoch
    if not (folder / CHECKPOINT).exists():
        raise DataError(
            f"There is no checkpoint in {run}; pass the output folder of a training that has "
            "made a step."
        )
    check_target(target)
    record = RunRecord.read(folder)
    fitted = Fitted.read(folder, {"data or settings": record.fingerprint})
    if not fitted.history:
        raise DataError(
            f"The training in {folder} has not completed an epoch yet; resume it, with "
            "run=RunConfig(resume=True)."
        )
    detector = Detector(build_bundle(record, fitted, record.open_store(), resolve_device(device)))
    detector.save(target)
    write_history(folder / HISTORY, fitted.history)  # it may have been killed before it did
    plot_epochs(folder)
    report_classes(detector.bundle)
    return detector


def _has_epoch(folder: Path) -> bool:
    """Return whether a training has completed an epoch."""
    return (folder / CHECKPOINT).exists() and bool(Fitted.read(folder).history)


def plot_epochs(folder: Path) -> None:
    """Save the plot of the history of a training, if matplotlib is installed."""
    if find_spec("matplotlib") is not None:
        save(plot_history(folder / HISTORY), (folder / HISTORY).with_suffix(".png"))


def build_bundle(
    record: RunRecord, fitted: Fitted, store: FeatureStore, device: torch.device
) -> Bundle:
    """Return the trained networks with a decoding tuned on the validation tags."""
    history, settings, valid = fitted.history, record.settings, record.valid
    best = history[best_epoch(history, settings.training.monitor)]
    members = tuple(
        Member(settings.features, settings.model, weights, record.window)
        for weights in fitted.weights
    )
    bundle = Bundle(
        labels=valid.labels,
        members=members,
        decoding=Decoding.uniform(valid.labels),
        licence=record.licence,
        attribution=record.attribution,
    )
    scores = Ensemble(members, device).predict_clips(valid, [store])
    rule = default_rule(settings.model.pooling_name)
    tuned = tune_clip_thresholds(scores, valid.tags, rule)
    logger.debug("decoding tuned on %d validation clips: %s", len(valid), tuned.decoding.to_dict())
    classes = score_classes(scores, valid, tuned.decoding)
    training = {
        "n_train": record.n_train,
        "n_valid": len(valid),
        "n_negatives": record.n_negatives,
        "n_valid_negatives": len(valid.excerpts),
        "n_epochs": len(history),
        "finished": is_finished(history, settings.training, record.n_train),
        "best_epoch": best.epoch,
        "best_valid_loss": best.valid_loss,
        "best_valid_map": best.valid_map,
        "best_valid_f1": best.valid_f1,
        "member_epochs": member_epochs(history, settings.training),
        "seconds": sum(epoch.seconds for epoch in history),
        "supervision": record.supervision,
        "settings": {name: settings.to_dict()[name] for name in ("training", "augment")},
        "classes": classes,
    }
    if record.origin:
        training["from"] = dict(record.origin)
    bundle = replace(bundle, training=training).with_decoding(
        tuned.decoding, tuning_record(tuned, len(valid))
    )
    return calibrated(bundle, scores, tags=valid.tags)


def report_classes(bundle: Bundle) -> None:
    """Log the validation scores per class, and warn about classes that are hardly recognised."""
    classes = bundle.training["classes"]
    table = validation_table(classes, bundle.labels)
    logger.info("validation clips, %s:\n%s", name_epochs(bundle.training), table)
    for sentence in class_warnings(classes):
        logger.warning("%s", sentence)


def name_epochs(training: Mapping[str, Any]) -> str:
    """Return which epochs a model is made of, from its summary of the training.

    >>> name_epochs({"member_epochs": [4]}), name_epochs({"member_epochs": [4, 2, 5]})
    ('epoch 4', 'the mean of epochs 4, 2 and 5')
    """
    *rest, last = map(str, training["member_epochs"])
    return f"the mean of epochs {', '.join(rest)} and {last}" if rest else f"epoch {last}"


def score_classes(
    scores: Sequence[FrameScores], clips: Manifest, decoding: Decoding
) -> dict[str, dict[str, Any]]:
    """Return the scores of each class over clips, those that are undefined as None.

    >>> from earmark.frames import FrameGrid
    >>> clips = Manifest(["a", "b"], [Path("a"), Path("b")], [["dog"], []], ["dog"])
    >>> both = [FrameScores([[p]], ["dog"], FrameGrid(12.5), clip_scores=[p]) for p in (0.9, 0.2)]
    >>> score_classes(both, clips, Decoding.uniform(["dog"], clip_threshold=0.5))["dog"]
    {'n_positive': 1, 'average_precision': 1.0, 'roc_auc': 1.0, 'f1': 1.0}
    """
    by_file = dict(zip(clips.files, scores, strict=True))
    probs = {file: own.clip_level() for file, own in by_file.items()}
    estimate = detected_tags(by_file, clips.labels, decoding)
    reference = dict(zip(clips.files, clips.tags, strict=True))
    scored = clip_scores(reference, estimate, probs, clips.labels, empty_as_zero=True)
    return {
        label: {
            "n_positive": int(own["count"]["Nref"]),
            "average_precision": _defined(own["ranking"]["average_precision"]),
            "roc_auc": _defined(own["ranking"]["roc_auc"]),
            "f1": _defined(own["f_measure"]["f_measure"]),
        }
        for label, own in scored.class_wise.items()
    }


def detected_tags(
    scores: Mapping[str, FrameScores], labels: Sequence[str], decoding: Decoding
) -> dict[str, list[str]]:
    """Return file -> the classes whose clip-level score reaches their clip-level threshold.

    >>> from earmark.frames import FrameGrid
    >>> scores = {"a.wav": FrameScores([[0.9]], ["dog"], FrameGrid(12.5), clip_scores=[0.9])}
    >>> detected_tags(scores, ["dog"], Decoding.uniform(["dog"], clip_threshold=0.5))
    {'a.wav': ['dog']}
    """
    thresholds = [decoding[label].clip_threshold for label in labels]
    return {
        file: [
            label
            for label, p, threshold in zip(labels, own.clip_level(), thresholds, strict=True)
            if p >= threshold
        ]
        for file, own in scores.items()
    }


def class_warnings(classes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    r"""Return sentences about classes that are hardly recognised, or that have few clips.

    Args:
        classes: label -> its scores, from `score_classes`.

    >>> weak = {"n_positive": 20, "average_precision": 0.2, "roc_auc": 0.61, "f1": 0.3}
    >>> print(*class_warnings({"wheeze": weak, "stridor": weak | {"n_positive": 2}}), sep="\n")
    Hardly recognised in the validation clips: wheeze (AUC 0.61); 0.5 is chance. ...
    Fewer than 5 validation clips: stridor (2). Their figures and thresholds are mostly luck; ...
    """
    few = {x: own["n_positive"] for x, own in classes.items() if own["n_positive"] < FEW_CLIPS}
    weak = {
        label: own["roc_auc"]
        for label, own in classes.items()
        if label not in few and own["roc_auc"] is not None and own["roc_auc"] < WEAK_AUC
    }
    sentences = []
    if weak:
        listed = ", ".join(f"{label} (AUC {auc:.2f})" for label, auc in weak.items())
        sentences.append(
            f"Hardly recognised in the validation clips: {listed}; 0.5 is chance. Expect few "
            "events, many of them wrong. Add clips of these classes from more sources, check "
            "their tags, or train longer with the preset 'best'."
        )
    if few:
        listed = ", ".join(f"{label} ({n_clips})" for label, n_clips in few.items())
        sentences.append(
            f"Fewer than {FEW_CLIPS} validation clips: {listed}. Their figures and thresholds are "
            "mostly luck; add clips, or pass a larger validation table."
        )
    return sentences


def tuning_record(tuned: TuningResult, n_clips: int) -> dict[str, Any]:
    """Return what the model file records of a tuning."""
    record = {
        "supervision": tuned.supervision,
        "objective": tuned.objective,
        "score": tuned.score,
        "n_clips": n_clips,
    }
    tested = tuned.cross_validation
    if tested is not None:
        record |= {
            "cross_validated_score": tested.score,
            "cross_validated_gain": tested.gain,
            "cross_validated_gain_error": tested.standard_error,
            "n_folds": tested.n_folds,
        }
    return record


def _defined(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
