"""Tables of tags and a folder of recordings -> a Detector: the whole job in one call.

Conventions: everything that a training leaves behind is in its folder `out`: the features, the
checkpoint, `history.tsv` and the model file. A clip that cannot be read is set aside and told, it
does not end the run.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.multiprocessing.spawn import ProcessRaisedException

from earmark.data.batches import with_statistics
from earmark.data.features import FeatureConfig
from earmark.data.manifest import Manifest, clip_paths, separate_names
from earmark.data.store import FeatureStore, build_store
from earmark.errors import AudioError, DataError, SettingError
from earmark.formats.events import read_events
from earmark.inference.decoding import Decoding
from earmark.inference.detector import Detector
from earmark.inference.model_file import SUFFIX, Bundle
from earmark.inference.predictor import predict_clips
from earmark.inference.tuning import TuningResult, tune_clip_thresholds, tune_decoding
from earmark.plots import plot_history, save
from earmark.runtime.isa import check_bfloat16, log_instruction_set
from earmark.runtime.processes import without_main
from earmark.training.checkpoint import CHECKPOINT, HISTORY, check_checkpoint, read_checkpoint
from earmark.training.self_training import write_pseudo_labels
from earmark.training.settings import Settings

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
    preset: str = "fast",
    config: PathLike | None = None,
    settings: Iterable[str] | Settings = (),
    store: PathLike | None = None,
    devices: int = 1,
    nodes: int = 1,
    accelerator: str = "auto",
    resume: bool = False,
    tensorboard: bool = False,
    progress: bool = False,
    licence: str = "",
    attribution: Sequence[str] = (),
    tell: Callable[[str], object] = lambda sentence: None,
) -> Detector:
    """Train a detector from weak labels; write it into `out` and return it.

    Args:
        train: table of tags, a folder of class folders, or a `Manifest`.
        valid: the same for validation; without it a share of the training clips is set apart.
        audio: folder of the recordings that the tables name.
        out: folder for all that comes of it.
        valid_audio: folder of the validation recordings, if it is another one.
        strong: table of the onsets and offsets in the training clips, to learn from in place of
            their tags; validation keeps to tags. For those who have such a table, and to see how
            much is lost without.
        teachers: model files whose frame probabilities are learned from beside the tags; those of
            classes that a clip is not tagged with count as 0.
        preset: "paper" or "fast"; see `earmark.training.settings`.
        config: a TOML file of settings that change the preset.
        settings: words such as "model.pooling=attention" that change it further; or all
            `Settings`, in place of preset and file.
        store: folder of the computed features; in `out` without it. Several trainings may share it.
        devices: processes on this machine.
        nodes: machines, each running the same command under torchrun or SLURM.
        accelerator: "cpu", "cuda" or "auto".
        resume: go on from the checkpoint in `out`.
        tensorboard: write curves into `out`/tensorboard.
        progress: show bars.
        licence: of the weights, to be told by the model file.
        attribution: whom the recordings are due to, likewise.
        tell: called with a sentence about what happens, such as a clip that is set aside.
    """
    # Fabric is a second of import, and only training needs it.
    from earmark.training.loop import Job, fit

    progress = progress and is_first_process()
    chosen = settings
    if not isinstance(chosen, Settings):
        chosen = Settings.load(preset, None if config is None else Path(config), chosen)
    folder = Path(out)
    if not resume and (folder / CHECKPOINT).exists():
        raise SettingError(
            f"{folder} already holds a training; go on with it (--resume), or choose another --out."
        )
    train_clips = train if isinstance(train, Manifest) else Manifest.read(train, audio)
    if strong is not None and teachers:
        raise SettingError(
            "FrameGrid are learned from onsets and offsets or from teachers, not both."
        )
    if strong is not None:
        train_clips = train_clips.with_events(read_events(strong))
    valid_clips = valid
    if valid_clips is None:
        train_clips, valid_clips = train_clips.split(VALID_SHARE, chosen.training.seed)
        tell(f"{len(valid_clips)} of {len(train_clips) + len(valid_clips)} clips are set apart "
             "for validation.")  # fmt: skip
    elif not isinstance(valid_clips, Manifest):
        valid_clips = Manifest.read(valid_clips, valid_audio or audio, train_clips.labels)
    _check_tables(train_clips, valid_clips, tell)
    (valid_clips,) = separate_names(train_clips, validation=valid_clips)
    folder.mkdir(parents=True, exist_ok=True)
    features = _compute(
        Path(store) if store else folder / "features",
        chosen.features,
        (train_clips, valid_clips),
        progress,
    )
    train_clips, valid_clips = (readable(m, features, tell) for m in (train_clips, valid_clips))
    chosen = replace(
        chosen.for_classes(len(train_clips.labels)),
        features=with_statistics(chosen.features, features, train_clips),
    )
    if teachers and is_first_process():
        begun = resume and (folder / CHECKPOINT).exists()
        write_pseudo_labels(
            folder / PSEUDO_LABELS, teachers, features, train_clips, chosen, keep=begun
        )
    job = Job(
        folder,
        features.folder,
        chosen,
        train_clips,
        valid_clips,
        folder / PSEUDO_LABELS if teachers else None,
        resume,
        tensorboard,
        progress,
    )
    fabric = _fabric(accelerator, devices, nodes, chosen.training.precision)
    if resume:
        check_checkpoint(folder, job.about(fabric.world_size))
    _launch(fabric, partial(fit, job=job))  # Fabric looks into arguments, and Job is frozen
    bundle = _bundle(folder, chosen, train_clips, features, valid_clips)
    detector = Detector(replace(bundle, licence=licence, attribution=tuple(attribution)))
    if is_first_process():
        detector.save(folder / MODEL)
        _draw_history(folder)
    return detector


def tune(
    detector: Detector,
    table: PathLike,
    audio: PathLike,
    *,
    strong: bool = False,
    shared: bool = False,
    start: Decoding | None = None,
    tell: Callable[[str], object] = lambda sentence: None,
    **choices: Any,
) -> tuple[Detector, TuningResult]:
    """Search thresholds and post-processing on validation recordings.

    Args:
        detector: whose decoding is to be tuned.
        table: tags, or events with onset and offset where `strong`.
        audio: folder of the recordings.
        strong: tune from events; the model file tells so.
        shared: from tags, one gate for all classes, the best for their F1 together; nothing else.
        start: where to start from; the detector's own decoding without it.
        tell: called with a sentence about what is set aside.
        choices: passed on to `earmark.inference.tuning.tune_decoding`.
    """
    if shared:
        one_gate = {"shared": True, "threshold_from": "start", "objective": "f_measure"}
        other = [name for name, value in choices.items() if one_gate.get(name) != value]
        if strong or other:
            raise SettingError(
                "One gate for all classes is tuned from tags, for f_measure; leave out "
                f"{', '.join(['strong'] * strong + other)}."
            )
        choices = one_gate
    clips = Manifest.read(table, audio, detector.labels)
    if clips.missing:
        tell(f"{len(clips.missing)} of {len(clips.missing) + len(clips)} clips are missing.")
    scores, rows = [], []
    for row, path in enumerate(clips.paths):
        try:
            scores.append(detector.frame_scores(path))
            rows.append(row)
        except AudioError as error:
            tell(f"Set aside: {error}")
    if not scores:
        raise DataError(f"No recording of {table} in {audio} can be read.")
    clips = clips.take(rows)
    labels: dict[str, Any] = {"tags": clips.tags}
    if strong:
        events = read_events(table)
        labels = {"reference": [events[file] for file in clips.files]}
    result = tune_decoding(scores, start=start or detector.bundle.decoding, **labels, **choices)
    record = tuning_record(result, len(scores))
    return Detector(detector.bundle.with_decoding(result.decoding, record)), result


def tuning_record(tuned: TuningResult, n_clips: int) -> dict[str, Any]:
    """Return what a model file says of its tuning."""
    return {
        "supervision": tuned.supervision,
        "objective": tuned.objective,
        "score": tuned.score,
        "n_clips": n_clips,
    }


def _launch(fabric: Any, work: Callable[[Any], None]) -> None:
    """Run the work in its processes; the caller's threads and random numbers stay its own."""
    n_threads = torch.get_num_threads()
    try:
        with without_main(), torch.random.fork_rng(devices=()):
            fabric.launch(work)
    except ProcessRaisedException as error:
        # What another process raised comes as the text of its traceback.
        *_, last = str(error).strip().splitlines()
        name, _, sentence = last.partition(": ")
        if name.startswith("earmark.errors."):
            raise SettingError(sentence) from None
        raise
    finally:
        torch.set_num_threads(n_threads)


def is_first_process() -> bool:
    """Whether this is the process that writes and speaks, of those torchrun or SLURM started."""
    ranks = (os.environ.get(name, "0") for name in ("RANK", "SLURM_PROCID"))
    return all(rank == "0" for rank in ranks)


def _draw_history(folder: Path) -> None:
    """Draw the losses, where matplotlib is there to draw them."""
    if find_spec("matplotlib") is not None:
        save(plot_history(folder / HISTORY), (folder / HISTORY).with_suffix(".png"))


def _check_tables(train: Manifest, valid: Manifest, tell: Callable[[str], object]) -> None:
    """Tell of missing recordings; raise where training could not begin."""
    if train.labels != valid.labels:
        raise DataError(
            "Training and validation must have the same labels in the same order. Got "
            f"{', '.join(train.labels)} and {', '.join(valid.labels)}."
        )
    for kind, clips in (("training", train), ("validation", valid)):
        if clips.missing:
            total = len(clips) + len(clips.missing)
            tell(
                f"{len(clips.missing)} of {total} {kind} clips are missing, as {clips.missing[0]}."
            )
        if not len(clips):
            raise DataError(f"There are no {kind} clips; earmark doctor tells what is missing.")
    if not train.labels:
        raise DataError("The training table has no label at all; it needs one column of labels.")


def _compute(
    folder: Path, config: FeatureConfig, manifests: Sequence[Manifest], progress: bool
) -> FeatureStore:
    paths = clip_paths(*manifests)
    if not progress:
        # Of several processes that torchrun or SLURM started, one computes and the others wait.
        return build_store(folder, paths, config, wait=True)
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task("features", total=len(paths))
        return build_store(
            folder,
            paths,
            config,
            progress=lambda done, total: bar.update(task, completed=done),
            wait=True,
        )


def readable(
    clips: Manifest,
    store: FeatureStore,
    tell: Callable[[str], object] = lambda sentence: None,
) -> Manifest:
    """Return the clips that could be read; tell of the others."""
    for file in clips.files:
        if file in store.failed:
            tell(f"Set aside: {store.failed[file]}")
    kept = clips.take([row for row, file in enumerate(clips.files) if file in store])
    if not len(kept):
        raise DataError("Not one clip could be read; earmark doctor tells why.")
    return kept


def _fabric(accelerator: str, devices: int, nodes: int, precision: str) -> Any:
    from lightning_fabric import Fabric

    # Under torchrun or SLURM the processes are there already; else they are started here.
    log_instruction_set()
    launched = any(name in os.environ for name in ("TORCHELASTIC_RUN_ID", "SLURM_PROCID"))
    strategy = "ddp" if launched else "ddp_spawn" if devices * nodes > 1 else "auto"
    if nodes > 1 and not launched:
        raise SettingError(
            f"{nodes} machines need torchrun or SLURM to start the command on each of them; "
            "see docs/training.md."
        )
    try:
        fabric = Fabric(
            accelerator=accelerator,
            devices=devices,
            num_nodes=nodes,
            strategy=strategy,
            precision=precision,  # type: ignore[arg-type]
        )
    except Exception as error:  # of several kinds, by accelerator
        raise SettingError(
            f"Training cannot run on accelerator={accelerator!r}, devices={devices}: {error}"
        ) from None
    if precision == "bf16-mixed" and fabric.device.type == "cpu":
        check_bfloat16()
    return fabric


def _bundle(
    out: Path, settings: Settings, train: Manifest, store: FeatureStore, valid: Manifest
) -> Bundle:
    """Put the best weights and a decoding tuned on the validation tags into a bundle."""
    _, state, tensors = read_checkpoint(out)
    weights = {
        name.removeprefix("best."): value
        for name, value in tensors.items()
        if name.startswith("best.")
    }
    n_frames = int(np.median([len(store[file]) for file in train.files]))
    window = settings.features.grid.onset(n_frames)
    bundle = Bundle(
        labels=train.labels,
        feature_config=settings.features,
        model_config=settings.model,
        weights=weights,
        decoding=Decoding.uniform(train.labels),
        window=min(max(window, 1.0), 30.0),
        training={
            "n_train": len(train),
            "n_valid": len(valid),
            "n_epochs": len(state.history),
            "best_epoch": state.best_epoch,
            "best_valid_loss": state.best_loss,
            "seconds": sum(epoch.seconds for epoch in state.history),
            "supervision": "strong" if train.events else "weak",
            "settings": {name: settings.to_dict()[name] for name in ("training", "augment")},
        },
    )
    predictor = Detector(bundle).predictor
    scores = predict_clips(predictor, store, valid, settings.features)
    tuned = tune_clip_thresholds(scores, valid.tags)
    return bundle.with_decoding(tuned.decoding, tuning_record(tuned, len(valid)))
