"""Train a detector from tables of tags and a folder of recordings, and tune it: one call each.

Conventions: everything that a training writes is in its output folder: features, checkpoint,
`history.tsv` and the model file. A clip that is missing or cannot be read is skipped with an
`EarmarkWarning`; progress is logged under the logger "earmark".
"""

import logging
import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from earmark.data.batches import clip_window, with_statistics
from earmark.data.manifest import Manifest, clip_paths, separate_names
from earmark.data.store import FeatureStore, build_store
from earmark.errors import AudioError, DataError, EarmarkWarning, SettingError
from earmark.formats.events import read_events
from earmark.frames import FrameScores
from earmark.inference.decoding import Decoding
from earmark.inference.detector import Detector, name_recordings
from earmark.inference.model_file import SUFFIX, Bundle
from earmark.inference.predictor import predict_clips
from earmark.inference.tuning import (
    TuningResult,
    calibrated,
    tune_clip_thresholds,
    tune_decoding,
)
from earmark.plots import plot_history, save
from earmark.runtime.device import resolve_device
from earmark.runtime.progress import ProgressBar
from earmark.training.checkpoint import CHECKPOINT, HISTORY
from earmark.training.schedule import best_epoch
from earmark.training.self_training import write_pseudo_labels
from earmark.training.settings import RunConfig, Settings

if TYPE_CHECKING:
    from earmark.training.loop import Fitted

logger = logging.getLogger(__name__)

PathLike = str | os.PathLike[str]
MODEL = f"model{SUFFIX}"
PSEUDO_LABELS = "pseudo_labels.npy"
VALID_SHARE = 0.15  # of the training clips, where no validation table is given


def train(
    train: PathLike | Manifest,
    valid: PathLike | Manifest | None = None,
    audio: PathLike | None = None,
    out: PathLike = "run",
    *,
    valid_audio: PathLike | None = None,
    strong: PathLike | None = None,
    teachers: Sequence[PathLike] = (),
    preset: str | None = None,
    config: PathLike | None = None,
    overrides: str | Iterable[str] = (),
    settings: Settings | None = None,
    run: RunConfig | None = None,
) -> Detector:
    """Train a detector from weak labels, write it to `out` and return it.

    Args:
        train: table of tags, folder of class folders, or `Manifest`.
        valid: the same for validation; by default 15 % of the training clips are held out.
        audio: folder of the recordings that the tables name.
        out: folder for everything that the training writes.
        valid_audio: folder of the validation recordings, if it is not `audio`.
        strong: table of onsets and offsets of the training clips; the loss is then computed per
            frame from it, in place of the tags. Validation uses tags in any case.
        teachers: model files for self-training: the mean of their frame probabilities, limited to
            the tags of each clip, gives pseudo-labels for a frame-level loss in addition.
        preset: a key of `earmark.training.settings.PRESETS`; "fast" by default.
        config: TOML file of settings that change the preset.
        overrides: settings such as "model.pooling=attention" that change it further.
        settings: complete `Settings`, in place of preset, config and overrides.
        run: how and where to run: device, processes, resuming, progress; see `RunConfig`.

    >>> import tempfile
    >>> from earmark.synth.scenes import SceneConfig, write_scenes
    >>> scenes = SceneConfig(sample_rate=8000, duration=2.0, event_duration=(0.5, 1.5))
    >>> small = ["features.sample_rate=8000", "features.f_max=4000"]
    >>> short = ["training.max_epochs=1", "training.threads=1"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_scenes(folder, 8, replace(scenes, classes=("siren", "knock")), seed=1)
    ...     tables = {"audio": f"{folder}/audio", "out": f"{folder}/run"}
    ...     train(f"{folder}/weak.tsv", **tables, overrides=small + short).labels
    ('knock', 'siren')
    """
    # Importing Fabric takes a second, and only training needs it.
    from earmark.training.launch import run_job
    from earmark.training.loop import Job

    run = run or RunConfig()
    device = resolve_device(run.device)
    chosen = _choose_settings(preset, config, overrides, settings)
    folder = Path(out)
    has_checkpoint = (folder / CHECKPOINT).exists()
    if has_checkpoint and not run.resume:
        raise SettingError(
            f"{folder} already contains a training; resume it with "
            "run=RunConfig(resume=True), or choose another out=."
        )
    if strong is not None and teachers:
        raise SettingError("Pass strong= or teachers=, not both: each gives frame-level targets.")

    # Data: tables -> clips -> features.
    is_first = is_first_process()
    train_clips = _read_clips("training", train, audio)
    if not train_clips.labels:
        raise DataError("The training table has no labels; it needs one column of labels.")
    if strong is not None:
        train_clips = train_clips.with_events(read_events(strong))
    if valid is None:
        n_clips = len(train_clips)
        train_clips, valid_clips = train_clips.split(VALID_SHARE, chosen.training.seed)
        if is_first:
            logger.info("%d of %d clips are held out for validation.", len(valid_clips), n_clips)
    else:
        valid_clips = _read_clips("validation", valid, valid_audio or audio, train_clips.labels)
        (valid_clips,) = separate_names(train_clips, validation=valid_clips)
    folder.mkdir(parents=True, exist_ok=True)
    paths = clip_paths(train_clips, valid_clips)
    with ProgressBar("features", len(paths), shown=run.progress and is_first) as bar:
        # Of several processes that torchrun or SLURM started, one computes and the others wait.
        store = build_store(
            Path(run.store) if run.store else folder / "features",
            paths,
            chosen.features,
            progress=lambda done, total: bar.move_to(done),
            wait=True,
        )
    if is_first:
        _warn_unreadable([*train_clips.files, *valid_clips.files], store)
    train_clips, valid_clips = (readable(part, store) for part in (train_clips, valid_clips))
    chosen = replace(
        chosen.for_classes(len(train_clips.labels)),
        features=with_statistics(chosen.features, store, train_clips),
    )
    pseudo_labels = folder / PSEUDO_LABELS if teachers else None
    if pseudo_labels is not None and is_first:
        write_pseudo_labels(
            pseudo_labels, teachers, store, train_clips, chosen, device, keep=has_checkpoint
        )

    # Training, then a decoding tuned on the validation tags.
    job = Job(folder, store.folder, chosen, train_clips, valid_clips, pseudo_labels, run)
    logger.debug("device %s, settings %s", device, chosen.to_dict())
    fitted = run_job(job)
    bundle = _bundle(fitted, chosen, train_clips, valid_clips, store, device)
    bundle = replace(bundle, licence=run.licence, attribution=tuple(run.attribution))
    detector = Detector(bundle, device)
    if is_first:
        detector.save(folder / MODEL)
        if find_spec("matplotlib") is not None:
            save(plot_history(folder / HISTORY), (folder / HISTORY).with_suffix(".png"))
    return detector


def tune(
    detector: Detector,
    table: PathLike,
    audio: PathLike,
    *,
    strong: bool = False,
    shared: bool = False,
    start: Decoding | None = None,
    negatives: PathLike | Iterable[PathLike] | None = None,
    max_false_per_minute: float | None = None,
    **choices: Any,
) -> tuple[Detector, TuningResult]:
    """Search thresholds and post-processing on validation recordings; calibrate the scores.

    Negatives are recordings that contain none of the classes. With them, the record of the tuning
    says how many false events per minute there are, and at which recall (`bundle.tuning`). With a
    limit, all thresholds are then shifted to the highest recall that keeps it.

    Args:
        detector: whose decoding to tune.
        table: tags, or events with onset and offset if `strong`.
        audio: folder of the recordings.
        strong: tune on events; the model file records it.
        shared: tune one clip-level threshold for all classes on tags, for the best micro F1, and
            nothing else.
        start: where the search starts; by default the decoding of the detector.
        negatives: files or folders of recordings without any of the classes.
        max_false_per_minute: limit of false events per minute in the negatives.
        choices: passed to `earmark.inference.tuning.tune_decoding`.

    >>> import tempfile
    >>> from earmark.synth.scenes import SceneConfig, write_scenes
    >>> scenes = SceneConfig(duration=4.0, n_events=(1, 1), classes=("siren",))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_scenes(folder, 2, scenes, seed=1)
    ...     _, tuned = tune(Detector.load(), f"{folder}/weak.tsv", f"{folder}/audio")
    >>> tuned.supervision
    'weak'
    """
    if shared:
        one_threshold = {"shared": True, "threshold_from": "start", "objective": "f_measure"}
        other = [name for name, value in choices.items() if one_threshold.get(name) != value]
        if strong or other:
            raise SettingError(
                "One clip-level threshold for all classes is tuned on tags, for f_measure; leave "
                f"out {', '.join(['strong'] * strong + other)}."
            )
        choices = one_threshold
    if max_false_per_minute is not None and negatives is None:
        raise SettingError(
            "max_false_per_minute needs negatives=..., recordings without any of the classes."
        )
    clips = _read_clips("validation", table, audio, detector.labels)
    scored = _score_readable(detector, clips.paths)
    if not scored:
        raise DataError(f"No recording of {table} in {audio} can be read.")
    clips, scores = clips.take(list(scored)), list(scored.values())
    labelled: dict[str, Any] = {"tags": clips.tags}
    if strong:
        events = read_events(table)
        labelled = {"reference": [events[file] for file in clips.files]}
    tuned = tune_decoding(scores, start=start or detector.bundle.decoding, **labelled, **choices)
    empty: list[FrameScores] = []
    if negatives is not None:
        empty = list(_score_readable(detector, name_recordings(negatives).values()).values())
        if not empty:
            raise DataError("None of the negatives can be read.")
    bundle = detector.bundle.with_decoding(tuned.decoding, _tuning_record(tuned, len(scores)))
    bundle = calibrated(bundle, scores, empty, max_false_per_minute, **labelled)
    return Detector(bundle, detector.predictor.device, detector.predictor.threads), tuned


def is_first_process() -> bool:
    """Return whether this process writes and logs, of those that torchrun or SLURM started.

    >>> is_first_process()
    True
    """
    ranks = (os.environ.get(name, "0") for name in ("RANK", "SLURM_PROCID"))
    return all(rank == "0" for rank in ranks)


def readable(clips: Manifest, store: FeatureStore) -> Manifest:
    """Return the clips whose features are in the store; raise if there are none.

    >>> import tempfile
    >>> from earmark.data.features import FeatureConfig
    >>> from earmark.synth.scenes import SceneConfig, write_scenes
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_scenes(folder, 2, SceneConfig(duration=4.0, n_events=(1, 1)))
    ...     _ = Path(folder, "audio", "scene_00000.wav").write_bytes(b"not audio")
    ...     clips = Manifest.read(f"{folder}/weak.tsv", f"{folder}/audio")
    ...     store = build_store(f"{folder}/features", clip_paths(clips), FeatureConfig())
    ...     readable(clips, store).files
    ('scene_00001.wav',)
    """
    kept = clips.take([row for row, file in enumerate(clips.files) if file in store])
    if not len(kept):
        raise DataError(
            "None of the clips can be read; `earmark doctor`, or in Python "
            "`earmark.data.doctor.examine`, reports why."
        )
    return kept


def _choose_settings(
    preset: str | None,
    config: PathLike | None,
    overrides: str | Iterable[str],
    settings: Settings | None,
) -> Settings:
    overrides = [overrides] if isinstance(overrides, str) else list(overrides)
    if settings is None:
        return Settings.load(preset or "fast", None if config is None else Path(config), overrides)
    if not isinstance(settings, Settings):
        raise SettingError(
            "settings= takes a complete Settings; pass settings such as 'training.seed=1' as "
            f"overrides=[...]. Got {settings!r}."
        )
    also = {"preset": preset is not None, "config": config is not None, "overrides": overrides}
    given = [f"{name}=" for name, is_given in also.items() if is_given]
    if given:
        raise SettingError(
            f"settings= is complete and cannot be combined with {', '.join(given)}; use "
            "Settings.load(preset, config, overrides)."
        )
    return settings


def _read_clips(
    kind: str,
    source: PathLike | Manifest,
    audio: PathLike | None,
    labels: tuple[str, ...] | None = None,
) -> Manifest:
    """Return the clips of a table; warn about missing ones, raise if there are none."""
    clips = source if isinstance(source, Manifest) else Manifest.read(source, audio, labels)
    if not len(clips):
        raise DataError(
            f"There are no {kind} clips: {len(clips.missing)} recordings of the table are missing; "
            "`earmark doctor`, or in Python `earmark.data.doctor.examine`, reports which."
        )
    if labels is not None and clips.labels != labels:
        raise DataError(
            "Training and validation must have the same labels in the same order. Got "
            f"{', '.join(labels)} and {', '.join(clips.labels)}."
        )
    if clips.missing and is_first_process():
        warnings.warn(
            f"{len(clips.missing)} of {len(clips) + len(clips.missing)} {kind} clips are missing "
            f"and are skipped; the first is {clips.missing[0]}.",
            EarmarkWarning,
            stacklevel=3,
        )
    return clips


def _warn_unreadable(files: Sequence[str], store: FeatureStore) -> None:
    failed = [store.failed[file] for file in files if file in store.failed]
    for reason in failed:
        logger.info("Skipped: %s", reason)
    if failed:
        warnings.warn(
            f"{len(failed)} of {len(files)} clips cannot be read and are skipped; the first: "
            f"{failed[0]}",
            EarmarkWarning,
            stacklevel=3,
        )


def _bundle(
    fitted: "Fitted",
    settings: Settings,
    train: Manifest,
    valid: Manifest,
    store: FeatureStore,
    device: torch.device,
) -> Bundle:
    """Return the trained network with a decoding tuned on the validation tags."""
    history = fitted.history
    best = history[best_epoch(history, settings.training.monitor)]
    bundle = Bundle(
        labels=train.labels,
        feature_config=settings.features,
        model_config=settings.model,
        weights=fitted.weights,
        decoding=Decoding.uniform(train.labels),
        window=clip_window(store, train, settings.features),
        training={
            "n_train": len(train),
            "n_valid": len(valid),
            "n_epochs": len(history),
            "best_epoch": best.epoch,
            "best_valid_loss": best.valid_loss,
            "best_valid_map": best.valid_map,
            "best_valid_f1": best.valid_f1,
            "seconds": sum(epoch.seconds for epoch in history),
            "supervision": "strong" if train.events else "weak",
            "settings": {name: settings.to_dict()[name] for name in ("training", "augment")},
        },
    )
    scores = predict_clips(Detector(bundle, device).predictor, store, valid, settings.features)
    tuned = tune_clip_thresholds(scores, valid.tags)
    logger.debug("decoding tuned on %d validation clips: %s", len(valid), tuned.decoding.to_dict())
    bundle = bundle.with_decoding(tuned.decoding, _tuning_record(tuned, len(valid)))
    return calibrated(bundle, scores, tags=valid.tags)


def _tuning_record(tuned: TuningResult, n_clips: int) -> dict[str, Any]:
    """Return what the model file records of the tuning."""
    return {
        "supervision": tuned.supervision,
        "objective": tuned.objective,
        "score": tuned.score,
        "n_clips": n_clips,
    }


def _score_readable(detector: Detector, paths: Iterable[Path]) -> dict[int, FrameScores]:
    """Return position -> scores of every recording that can be read; warn about the others."""
    scored = {}
    for at, path in enumerate(paths):
        try:
            scored[at] = detector.frame_scores(path)
        except AudioError as error:
            warnings.warn(f"Skipped: {error}", EarmarkWarning, stacklevel=3)
    return scored
