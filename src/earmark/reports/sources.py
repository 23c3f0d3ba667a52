"""The output folder of a training, or tables of events -> what a report shows.

Conventions: a training is shown by its validation clips. Their reference is their tags, and their
clip-level scores are those that thresholds were tuned with; with events as reference, the detector
is evaluated with its events and frame-level scores. Recordings that are gone, as after a move of
the folder, are left out of what needs them.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from earmark.audio.decode import audio_duration, find_audio
from earmark.errors import AudioError, DataError, EarmarkError, SettingError
from earmark.formats.events import Event, read_events
from earmark.formats.names import match_names, rename_files
from earmark.formats.scores import ScoreTable
from earmark.frames import FrameScores
from earmark.inference.description import summarise_bundle
from earmark.inference.detector import Detector
from earmark.metrics.system_output import SystemOutput, Tags, read_system_output
from earmark.training.checkpoint import HISTORY
from earmark.training.finish import MODEL, detected_tags
from earmark.training.record import RECORD, RunRecord
from earmark.training.settings import name_preset

logger = logging.getLogger(__name__)

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Recording:
    """Where the sound of a clip is.

    >>> Recording(Path("a.wav")).start
    0.0
    """

    path: Path
    start: float = 0.0
    duration: float | None = None


@dataclass(frozen=True)
class Material:
    """What there is to show.

    Args:
        title: of the report.
        reference: events or tags.
        systems: what is compared with it; clips are shown of the first.
        recordings: file name -> its sound, of those that are there.
        frame_scores: file name -> frame-level scores of the first system, as far as known.
        thresholds: label -> threshold and low threshold of its frames, if there is a detector.
        about: the model in few words: name of a part -> what is to say of it.
        settings: section -> setting -> value.
        history: table of the epochs of a training.
        notes: what is missing, and how to get it.

    >>> reference = SystemOutput("reference", {"a.wav": [Event(0, 1, "dog")]})
    >>> Material("Dogs", reference, [reference], {}).tags
    {'a.wav': ('dog',)}
    """

    title: str
    reference: SystemOutput
    systems: Sequence[SystemOutput]
    recordings: Mapping[str, Recording]
    frame_scores: Mapping[str, FrameScores] = field(default_factory=dict)
    thresholds: Mapping[str, tuple[float, float]] | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    history: Path | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def tags(self) -> Tags:
        """The tags of every file of the reference."""
        return self.reference.clip_tags or {}

    @cached_property
    def first(self) -> SystemOutput:
        """The first system, whose clips are shown, with the file names of the reference."""
        return self.systems[0].with_names_of(self.tags)

    @cached_property
    def first_tags(self) -> Tags | None:
        """What the first system has to compare with the reference, as tags; None: scores alone."""
        if self.reference.events is not None and self.first.events is None:
            return None
        return self.first.clip_tags

    def durations(self) -> dict[str, float]:
        """Return the seconds of each file of the reference, as far as they are known."""
        known = {}
        for name in self.tags:
            if name in self.frame_scores:
                known[name] = self.frame_scores[name].duration
            elif name in self.recordings:
                own = self.recordings[name]
                try:
                    known[name] = own.duration or audio_duration(own.path)
                except AudioError as error:
                    logger.warning("%s", error)
        return known


def is_run(path: PathLike) -> bool:
    """Return whether a path is the output folder of a training.

    >>> is_run("nowhere")
    False
    """
    return (Path(path) / RECORD).exists()


def read_run(
    folder: PathLike,
    reference: PathLike | None = None,
    audio: PathLike | None = None,
    device: str = "auto",
) -> Material:
    """Return what a training has to show.

    Args:
        folder: its output folder.
        reference: table of the events in its validation clips; by default their tags are used.
        audio: folder of the validation recordings, if they were moved.
        device: where to predict the validation clips.

    >>> read_run("nowhere")
    Traceback (most recent call last):
        ...
    earmark.errors.DataError: There is no run.json in nowhere: pass the output folder of a ...
    """
    run = Path(folder)
    record = RunRecord.read(run)
    model = run / MODEL
    if not model.exists():
        raise DataError(
            f"There is no {MODEL} in {run}: the training is not finished. earmark export-best "
            f"{run}, or export_best({os.fspath(folder)!r}), writes the model of its best epoch."
        )
    if audio is not None and not Path(audio).is_dir():
        raise DataError(f"{os.fspath(audio)} is no folder; pass the folder of the recordings.")
    detector = Detector.load(model, device)
    recordings = _recordings_of(record, None if audio is None else Path(audio))
    notes = []
    scores = _validation_scores(record, detector, recordings)
    lost = len(record.valid) - len(scores)
    if lost:
        notes.append(
            f"{lost} of {len(record.valid)} validation clips are left out: neither their features "
            "nor their recordings are there."
        )
    if not scores:
        raise DataError(
            f"Neither features nor recordings of the validation clips of {run} are there; pass "
            "the folder of the recordings as audio."
        )
    silent = [name for name in scores if name not in recordings]
    if silent:
        notes.append(
            f"{len(silent)} recordings are not where they were in training, such as "
            f"{silent[0]}: without sound and picture here. Pass the folder they are in now."
        )
    clips = record.valid.take([n for n, name in enumerate(record.valid.files) if name in scores])
    tags = dict(zip(clips.files, clips.tags, strict=True))
    events = {name: detector.decode(own) for name, own in scores.items()}
    labels, decoding = detector.labels, detector.bundle.decoding
    if reference is None:
        known = SystemOutput("tags of the validation clips", tags=tags)
        # One frame with the clip-level scores, so that the ranking is that of the training.
        whole = {
            name: FrameScores([own.clip_level()], labels, edges=[0.0, own.duration])
            for name, own in scores.items()
        }
        detected = detected_tags(scores, labels, decoding)
        system = SystemOutput(run.name, events, detected, ScoreTable(labels, whole))
        notes.append(
            "The reference is the tags of the validation clips, on which thresholds were tuned: "
            "the scores are a little optimistic, and say nothing about onsets and offsets. A "
            "table of events as reference shows these, too."
        )
    else:
        read = rename_files(read_events(reference), tags)
        of_clips = {name: list(read[name]) for name in tags if name in read}
        if not of_clips:
            raise DataError(
                f"{reference} has none of the validation clips, such as {next(iter(tags))}."
            )
        known = SystemOutput(os.fspath(reference), of_clips)
        system = SystemOutput(run.name, events, scores=ScoreTable(labels, scores))
        notes.append(
            "clip mAP, ROC AUC and lwlrap are those of the highest frame-level score, and differ "
            "from those of the clip-level scores that the training printed."
        )
    about = detector.bundle.describe()
    settings = record.settings.to_dict()
    settings["features"] = {
        k: v for k, v in settings["features"].items() if k not in ("mean", "std")
    }
    return Material(
        title=f"Training {run.resolve().name}",
        reference=known,
        systems=[system],
        recordings=recordings,
        frame_scores=scores,
        thresholds=decoding.thresholds(),
        about=summarise_bundle(about, name_preset(about)),
        settings=settings,
        history=run / HISTORY if (run / HISTORY).exists() else None,
        notes=tuple(notes),
    )


def _recordings_of(record: RunRecord, audio: Path | None) -> dict[str, Recording]:
    """Return where the validation clips are, of those that are there."""
    found = {}
    for name, path in zip(record.valid.files, record.valid.paths, strict=True):
        excerpt = record.valid.excerpts.get(name)
        own = name if excerpt is None else excerpt.file
        place = path if audio is None else audio / own
        if not place.is_file():
            continue
        grid = record.settings.features.grid
        found[name] = (
            Recording(place)
            if excerpt is None
            else Recording(place, grid.onset(excerpt.start), grid.onset(excerpt.n_frames))
        )
    return found


def _validation_scores(
    record: RunRecord, detector: Detector, recordings: Mapping[str, Recording]
) -> dict[str, FrameScores]:
    """Return the scores of the validation clips, from their features or from their recordings."""
    try:
        store = record.open_store()
        scores = detector.ensemble.predict_clips(record.valid, [store])
        return dict(zip(record.valid.files, scores, strict=True))
    except EarmarkError as error:
        logger.info("Predicting the recordings, since their features cannot be used: %s", error)
    found = {}
    for name, own in recordings.items():
        if own.duration is not None:  # a part of a recording, whose features are gone
            continue
        try:
            found[name] = detector.frame_scores(own.path)
        except AudioError as error:
            logger.warning("%s", error)
    return found


def read_tables(
    reference: PathLike,
    estimates: Sequence[PathLike],
    scores: Sequence[PathLike] = (),
    audio: PathLike | None = None,
    weak: bool = False,
) -> Material:
    """Return what estimates have to show, compared with a reference.

    Args:
        reference: table of events or tags.
        estimates: one table, or folder of frame-level scores, per system.
        scores: folder of frame-level scores per system; all or none.
        audio: folder of the recordings.
        weak: read tables as tags, whatever their columns.

    >>> read_tables("reference.tsv", [])
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: reference.tsv is no output folder of a training (it has no ...
    """
    if not estimates:
        raise SettingError(
            f"{reference} is no output folder of a training (it has no {RECORD}); to report on "
            "events, pass a reference and one estimate or more."
        )
    if scores and len(scores) != len(estimates):
        raise SettingError(
            f"scores must be given once per estimate. Got {len(scores)} for {len(estimates)}."
        )
    known = read_system_output(Path(reference), weak=weak)
    folders: list[Path | None] = [Path(own) for own in scores] or [None] * len(estimates)
    systems = [
        read_system_output(Path(path), folder, weak=weak)
        for path, folder in zip(estimates, folders, strict=True)
    ]
    files = known.clip_tags or {}
    recordings, notes = {}, []
    if audio is None:
        notes.append("No folder of recordings was given: no clip can be seen or heard.")
    else:
        there = {path.relative_to(audio).as_posix(): path for path in find_audio(audio)}
        matched = match_names(files, there)
        recordings = {name: Recording(there[own]) for name, own in matched.items()}
        if not recordings:
            raise DataError(
                f"{audio} has no recording of {reference}, such as {next(iter(files))}."
            )
    first = systems[0].with_names_of(files)
    frame_scores = {}
    if first.scores is not None:
        frame_scores = {name: first.scores[name] for name in files if name in first.scores}
    return Material(
        title=f"{', '.join(Path(path).name for path in estimates)} against {Path(reference).name}",
        reference=known,
        systems=systems,
        recordings=recordings,
        frame_scores=frame_scores,
        notes=tuple(notes),
    )


def events_of(material: Material, name: str) -> tuple[Sequence[Event], Sequence[Event]]:
    """Return the reference events and the estimated events of a file; tags are no events.

    >>> reference = SystemOutput("reference", {"a.wav": [Event(0, 1, "dog")]})
    >>> estimate = SystemOutput("mine", {"a.flac": []})
    >>> events_of(Material("Dogs", reference, [estimate], {}), "a.wav")
    ([Event(onset=0.0, offset=1.0, label='dog', score=None)], [])
    """
    own = material.first.events or {}
    return (material.reference.events or {}).get(name, ()), own.get(name, ())
