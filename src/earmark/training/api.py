"""Train a detector from tables of tags and a folder of recordings, and tune it: one call each.

Conventions: everything that a training writes is in its output folder: features, checkpoint,
`history.tsv` and the model file. A clip that is missing or cannot be read is skipped with an
`EarmarkWarning`; progress is logged under the logger "earmark".
"""

import logging
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from earmark.data.batches import with_statistics
from earmark.data.doctor import low_rate_hint
from earmark.data.encoded import read_encoder
from earmark.data.manifest import Manifest, clip_paths
from earmark.data.negatives import join_negatives, read_both_negatives
from earmark.data.store import FeatureStore, build_store
from earmark.errors import AudioError, DataError, EarmarkWarning, SettingError, choose
from earmark.files import locked, make_folder
from earmark.formats.events import Event, event_format, read_events
from earmark.formats.tables import read_table
from earmark.frames import FrameScores
from earmark.inference.decoding import Decoding
from earmark.inference.detector import Detector, name_recordings
from earmark.inference.model_file import Bundle, find_model
from earmark.inference.tuning import (
    TuningResult,
    calibrated,
    network_of,
    tune_as_published,
    tune_decoding,
)
from earmark.runtime.device import resolve_device
from earmark.runtime.processes import is_first_process
from earmark.runtime.progress import ProgressBar
from earmark.training.checkpoint import CHECKPOINT
from earmark.training.clips import read_clips, read_tables
from earmark.training.config import RunConfig
from earmark.training.finish import (
    MODEL,
    TEACHER,
    build_bundle,
    plot_epochs,
    report_classes,
    tuning_record,
)
from earmark.training.self_training import write_pseudo_labels
from earmark.training.settings import Settings
from earmark.training.transfer import Origin, check_origin, open_origin

if TYPE_CHECKING:
    from earmark.training.loop import Job

logger = logging.getLogger(__name__)

PathLike = str | os.PathLike[str]
PSEUDO_LABELS = "pseudo_labels.npy"
TRAINING_LOCK = "training.lock"


def train(
    train: PathLike | Manifest,
    valid: PathLike | Manifest | None = None,
    audio: PathLike | None = None,
    out: PathLike = "run",
    *,
    valid_audio: PathLike | None = None,
    group: str | None = None,
    group_pattern: str | None = None,
    negatives: PathLike | Sequence[PathLike] = (),
    valid_negatives: PathLike | Sequence[PathLike] = (),
    strong: PathLike | None = None,
    teachers: Sequence[PathLike] = (),
    encoder: PathLike | None = None,
    start_from: PathLike | None = None,
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
        group: column of the tables with the group of each clip, such as its speaker or place.
            Validation then shares no group with training: whole groups are held out, and a
            validation table with a group of the training table is an error.
        group_pattern: in place of a column, a regular expression that finds the group in the name
            of a clip; see `earmark.data.groups`.
        negatives: folders of recordings that hold none of the classes; cut to the length of the
            training clips, they join them without tags.
        valid_negatives: the same for validation; by default 15 % of `negatives`.
        strong: table of onsets and offsets of the training clips; the loss is then computed per
            frame from it, in place of the tags. Validation uses tags in any case.
        teachers: model files for self-training: the mean of their frame probabilities, limited to
            the tags of each clip, gives pseudo-labels for a frame-level loss in addition.
        encoder: a pretrained network that makes the features: the TOML file that describes it, its
            own file, or the name of a registered module; see `earmark.data.encoded.read_encoder`.
        start_from: a model file with other classes, or "everyday" for the bundled one, whose
            network is kept except for a new head; features and network are those of the model. See
            `earmark.training.transfer`.
        preset: a key of `earmark.training.settings.PRESETS`; "fast" by default, and "encoder" with
            an encoder.
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

    start, origin = _open_start(start_from, encoder)
    run = _with_credits(run or RunConfig(), start)
    device = resolve_device(run.device)
    asked = chosen = _choose_settings(preset, config, overrides, settings, encoder, start)
    folder = Path(out)
    _has_checkpoint(folder, run)
    if strong is not None and teachers:
        raise SettingError("Pass strong= or teachers=, not both: each gives frame-level targets.")
    from_frames = strong is not None or teachers or chosen.training.generations > 1
    if from_frames and not chosen.model.learns_from_frames:
        raise SettingError(
            f"The network {chosen.model.network!r} learns from the tags of clips only; leave out "
            "strong= and teachers=, and set training.generations to 1."
        )
    if chosen.training.generations > 1:
        if strong is not None or teachers:
            raise SettingError(
                f"training.generations={chosen.training.generations} trains its own teachers from "
                "tags; set it to 1 to pass strong= or teachers=."
            )
        run = replace(run, store=run.store or folder / "features")
        teachers = [
            _train_teacher(
                chosen, folder, run, train=train, valid=valid, audio=audio, valid_audio=valid_audio,
                group=group, group_pattern=group_pattern,
                negatives=negatives, valid_negatives=valid_negatives, start_from=start_from,
            )
        ]  # fmt: skip

    # Data: tables -> clips -> features.
    is_first = is_first_process()
    train_clips, valid_clips = read_tables(
        train,
        valid,
        audio,
        valid_audio,
        strong,
        chosen.training.seed,
        {"group": group, "group_pattern": group_pattern},
    )
    untagged, valid_untagged = read_both_negatives(
        negatives, valid_negatives, train_clips, valid_clips
    )
    with _alone_in(folder):
        has_checkpoint = _has_checkpoint(folder, run)
        paths = clip_paths(train_clips, valid_clips, untagged, valid_untagged)
        with ProgressBar("features", len(paths), shown=run.progress and is_first) as bar:
            # Of several processes that torchrun or SLURM started, one computes and the others wait.
            store = build_store(
                Path(run.store) if run.store else folder / "features",
                paths,
                chosen.features,
                scheduler=run.scheduler,
                progress=lambda done, total: bar.move_to(done),
                wait=True,
            )
        if is_first:
            _check_features(list(paths), store)
        train_clips, valid_clips = (readable(part, store) for part in (train_clips, valid_clips))
        train_clips, valid_clips = join_negatives(
            train_clips, valid_clips, untagged, valid_untagged, store
        )
        store = store.with_excerpts({**train_clips.excerpts, **valid_clips.excerpts})
        chosen = replace(
            chosen.for_classes(len(train_clips.labels)),
            features=with_statistics(chosen.features, store, train_clips)
            if start is None
            else start.feature_config,
            training=chosen.training.for_clips(len(train_clips)),
        )
        chosen.model.check_parameters()
        if start is not None:
            check_origin(chosen.model, start)
        pseudo_labels = folder / PSEUDO_LABELS if teachers else None
        if pseudo_labels is not None and is_first:
            write_pseudo_labels(
                pseudo_labels, teachers, store, train_clips, chosen, device, keep=has_checkpoint
            )

        # Training, then a decoding tuned on the validation tags.
        job = Job(
            folder, store.folder, chosen, train_clips, valid_clips, pseudo_labels, run, origin
        )
        if is_first:
            _log_plan(job, asked.training.max_epochs)
        logger.debug("device %s, settings %s", device, chosen.to_dict())
        fitted = run_job(job)
        detector = Detector(build_bundle(job.record(store), fitted, store, device), device)
        if is_first:
            plot_epochs(folder)
            detector.save(folder / MODEL)  # last: where it is, nothing else is missing
        if is_first and run.report:
            report_classes(detector.bundle)
        return detector


def tune(
    detector: Detector,
    table: PathLike,
    audio: PathLike,
    *,
    strong: bool = False,
    shared: bool = False,
    start: Decoding | None = None,
    decision: str = "tuned",
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
        table: tags, or events with onset and offset if `strong`. Clips of one `fold`, if there is
            such a column, stay together in cross-validation.
        audio: folder of the recordings.
        strong: tune on events; the model file records it. Where cross-validation shows no gain,
            the detector is returned as it was.
        shared: tune one clip-level threshold for all classes on tags, for the best micro F1, and
            nothing else.
        start: where the search starts; by default the decoding of the detector.
        decision: "tuned", or "published": the decision stage that the network was published with
            (`earmark.inference.tuning.DECISIONS`), which replaces the decoding.
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
    choices = _checked_choices(decision, shared, strong, start, choices)
    if max_false_per_minute is not None and negatives is None:
        raise SettingError(
            "max_false_per_minute needs negatives=..., recordings without any of the classes."
        )
    clips = read_clips("validation", table, audio, detector.labels)
    recordings = {} if negatives is None else name_recordings(negatives)
    own = {path.resolve() for path in clips.paths}
    both = next((path for path in recordings.values() if path.resolve() in own), None)
    if both is not None:
        raise DataError(
            f"{both} is among the negatives, and also a validation clip; negatives hold none of "
            "the classes. Pass another folder."
        )
    scored = _score_readable(detector, clips.paths)
    if not scored:
        raise DataError(f"No recording of {table} in {audio} can be read.")
    clips, scores = clips.take(list(scored)), list(scored.values())
    labelled: dict[str, Any] = {"tags": clips.tags}
    if not strong:
        # Tags would move the thresholds of frames to where any is best, mostly far too high.
        choices = {"threshold_from": "start", **choices}
    if strong:
        events = read_events(table)
        labelled = {"reference": [events[file] for file in clips.files]}
        for file, own, scored_clip in zip(clips.files, labelled["reference"], scores, strict=True):
            _check_times(file, own, scored_clip)
    if decision == "published":
        config, reference = network_of(detector.bundle), labelled.get("reference")
        tuned = tune_as_published(config, scores, clips.tags, reference, detector.bundle.decoding)
    else:
        tuned = tune_decoding(
            scores,
            start=start or detector.bundle.decoding,
            groups=_folds_of(table, clips.files),
            **labelled,
            **choices,
        )
    if not tuned.is_adopted and start is None and negatives is None:
        return detector, tuned
    empty: list[FrameScores] = []
    if negatives is not None:
        empty = list(_score_readable(detector, recordings.values()).values())
        if not empty:
            raise DataError("None of the negatives can be read.")
    bundle = detector.bundle.with_decoding(tuned.decoding, tuning_record(tuned, len(scores)))
    bundle = calibrated(bundle, scores, empty, max_false_per_minute, **labelled)
    return Detector(bundle, detector.ensemble.device, detector.ensemble.threads), tuned


def _checked_choices(
    decision: str, shared: bool, strong: bool, start: Decoding | None, choices: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the choices of a tuning; raise if they do not go together."""
    choose("decision", decision, ("published", "tuned"))
    if decision == "published":
        given = {"shared": shared, "start": start, **choices}
        if wrong := [name for name, value in given.items() if value]:
            raise SettingError(
                f"The published decision stage has no choices: leave out {', '.join(wrong)}."
            )
    if not shared:
        return dict(choices)
    one_threshold = {"shared": True, "threshold_from": "start", "objective": "f_measure"}
    other = [name for name, value in choices.items() if one_threshold.get(name) != value]
    if strong or other:
        raise SettingError(
            "One clip-level threshold for all classes is tuned on tags, for f_measure; leave "
            f"out {', '.join(['strong'] * strong + other)}."
        )
    return one_threshold


def _has_checkpoint(folder: Path, run: RunConfig) -> bool:
    """Return whether there is a training to resume; raise if there is, and it is not to."""
    if not (folder / CHECKPOINT).exists():
        return False
    if not run.resume:
        raise SettingError(
            f"{folder} already contains a training; resume it with "
            "run=RunConfig(resume=True), or choose another out=."
        )
    return True


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold the lock of an output folder: two trainings there would mix their files.

    Of several processes that torchrun or SLURM started, the first holds it.
    """
    make_folder(folder)
    if not is_first_process():
        yield
        return
    with locked(folder, doing="training in", name=TRAINING_LOCK):
        yield


def _open_start(
    start_from: PathLike | None, encoder: PathLike | None
) -> tuple[Bundle | None, Origin | None]:
    """Return the model to start from, if there is one, and what identifies it."""
    if start_from is None:
        return None, None
    path = find_model(start_from)
    start = open_origin(path)
    start = start if encoder is None else start.with_encoder(encoder)
    return start, Origin.read(path)


def _with_credits(run: RunConfig, start: Bundle | None) -> RunConfig:
    """Return the run with licence and credits of the model to start from, if there is one."""
    if start is None:
        return run
    credits_ = tuple(dict.fromkeys([*start.attribution, *run.attribution]))
    return replace(run, licence=run.licence or start.licence, attribution=credits_)


def _train_teacher(chosen: Settings, folder: Path, run: RunConfig, **data: Any) -> Path:
    """Train the generations before the last one in the folder of the teacher; return its model.

    A finished one takes no further step: its checkpoint is read, which refuses other settings and
    other data.
    """
    n_before = chosen.training.generations - 1
    model = folder / TEACHER / MODEL
    if is_first_process():
        logger.info("Generation %d of %d: the teacher of the next.", n_before, n_before + 1)
    train(
        out=folder / TEACHER,
        settings=replace(chosen, training=replace(chosen.training, generations=n_before)),
        run=replace(run, report=False),
        **data,
    )
    if is_first_process():
        logger.info("Generation %d of %d.", n_before + 1, n_before + 1)
    return model


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
    encoder: PathLike | None,
    start: Bundle | None,
) -> Settings:
    overrides = [overrides] if isinstance(overrides, str) else list(overrides)
    if settings is None:
        file = None if config is None else Path(config)
        if start is not None:
            preset = preset or ("fast" if start.feature_config.encoder is None else "encoder")
            model, features = start.model_config, start.feature_config
            return Settings.load(preset, file, overrides, features, model)
        preset = preset or ("fast" if encoder is None else "encoder")
        features_of = None if encoder is None else read_encoder(encoder)
        return Settings.load(preset, file, overrides, features_of)
    if not isinstance(settings, Settings):
        raise SettingError(
            "settings= takes a complete Settings; pass settings such as 'training.seed=1' as "
            f"overrides=[...]. Got {settings!r}."
        )
    also = {
        "preset": preset is not None,
        "config": config is not None,
        "overrides": overrides,
        "encoder": encoder is not None and start is None,
    }
    given = [f"{name}=" for name, is_given in also.items() if is_given]
    if given:
        raise SettingError(
            f"settings= is complete and cannot be combined with {', '.join(given)}; use "
            "Settings.load(preset, config, overrides, features)."
        )
    return settings


def _log_plan(job: "Job", max_epochs: int) -> None:
    """Log what is trained on what, for how long, and why."""
    config, n_clips = job.settings.training, len(job.train)
    n_negatives, n_valid_negatives = len(job.train.excerpts), len(job.valid.excerpts)
    negatives = f", {n_negatives} and {n_valid_negatives} of them negatives" if n_negatives else ""
    logger.info(
        "%d classes, %d training and %d validation clips%s",
        len(job.train.labels), n_clips, len(job.valid), negatives,
    )  # fmt: skip
    n_steps = config.steps_per_epoch(n_clips)
    if config.max_epochs > max_epochs:
        logger.info(
            "%d clips are %d steps per epoch: up to %d epochs instead of %d, for %d steps "
            "(training.min_steps)",
            n_clips, n_steps, config.max_epochs, max_epochs, config.min_steps,
        )  # fmt: skip
    if config.members > 1 and config.members >= config.max_epochs:
        logger.warning(
            "training.members=%d of training.max_epochs=%d: the model is the mean of all epochs, "
            "the first included. Train longer, or use fewer members.",
            config.members, config.max_epochs,
        )  # fmt: skip
    is_log_mel = job.settings.features.kind == "log-mel"
    if (
        is_log_mel
        and job.settings.features.encoder is None
        and (hint := low_rate_hint(job.train, job.settings.features))
    ):
        logger.info(
            "Most recordings end below the highest mels, which stay empty; consider %s", hint
        )
    if 2 * n_negatives > n_clips:
        logger.warning(
            "%d of %d training clips are negatives; with so many, classes may be missed. Use "
            "fewer of them, or training.balanced=true.",
            n_negatives, n_clips,
        )  # fmt: skip


def _check_features(files: Sequence[str], store: FeatureStore) -> None:
    """Warn of clips that cannot be read; raise if the features of others were damaged since."""
    store.check([name for name in files if name in store])
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


def _check_times(file: str, events: Iterable[Event], scores: FrameScores) -> None:
    """Raise if an event ends so far behind its recording that its table must be wrong."""
    for event in events:
        if event.offset > 60 + 10 * scores.duration:
            raise DataError(
                f"{file}: the event {event.label!r} ends at {event.offset:g} s, and the recording "
                f"at {scores.duration:g} s; correct the table."
            )


def _folds_of(table: PathLike, files: Sequence[str]) -> list[str] | None:
    """Return the fold of each file; None where the table has no such column, or one fold."""
    if Path(table).is_dir() or event_format(table) not in ("tsv", "csv"):
        return None
    rows = read_table(table)
    if "fold" not in (rows.columns or ()):
        return None
    named = (row.named(rows.columns or ()) for row in rows.rows)
    folds = {row["filename"]: row["fold"] for row in named}
    return [folds[file] for file in files] if len(set(folds.values())) > 1 else None


def _score_readable(detector: Detector, paths: Iterable[Path]) -> dict[int, FrameScores]:
    """Return position -> scores of every recording that can be read; warn about the others."""
    scored = {}
    for at, path in enumerate(paths):
        try:
            scored[at] = detector.frame_scores(path)
        except AudioError as error:
            warnings.warn(f"Skipped: {error}", EarmarkWarning, stacklevel=3)
    return scored
