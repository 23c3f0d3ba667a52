"""Many recordings -> events in one file, in one file per recording, or on a stream.

Conventions: the output is checked before any work. A file appears when it is complete, and a
journal is beside it until then (`earmark.inference.journal`): the same call continues after a kill
and writes the same file as one that was never stopped. In a folder, each file appears when its
recording is done. A stream or a special file gets the events of each recording as soon as they are
known, if the format allows. A recording that cannot be used is set aside and costs nothing else.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from earmark.errors import DataError, EarmarkError, SettingError, choose
from earmark.files import check_folder
from earmark.formats.event_table import Layout
from earmark.formats.names import name_inside, stems_of
from earmark.formats.registry import EVENT_FORMATS
from earmark.formats.scores import SCORE_FORMATS, ScoreTable, write_scores
from earmark.formats.start_times import check_keeps_times, start_times
from earmark.inference import folder
from earmark.inference.detector import Detector, FileResult, PathLike, name_recordings
from earmark.inference.journal import work_key
from earmark.inference.model_file import bundle_checksum
from earmark.inference.outputs import EventWriter, Known, open_output, output_format
from earmark.runtime.progress import ProgressBar

_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


@dataclass(frozen=True)
class BatchSettings:
    """What to detect and what to write of it.

    Args:
        format: a key of `EVENT_FORMATS`; by default that of the suffix of the output.
        with_scores: write the scores of events; by default if the format has a field for them.
        classes: only events of these; all by default.
        absolute_time: add date and time of onset and offset, from the names of recordings.
        sensitivity: as in `Detector.detect`.
        min_score: as in `Detector.detect`.
        score_folder: for the frame-level scores.
        score_format: of them, a key of `SCORE_FORMATS`.
        skip_done: leave recordings alone that are in the output already.

    >>> BatchSettings(classes=["dog"]).min_score
    0.0
    """

    format: str | None = None
    with_scores: bool | None = None
    classes: Sequence[str] | None = None
    absolute_time: bool = False
    sensitivity: str | float = "normal"
    min_score: float = 0.0
    score_folder: PathLike | None = None
    score_format: str = "tsv"
    skip_done: bool = False


@dataclass
class BatchReport:
    """What became of the recordings.

    Args:
        n_detected: how many were detected now.
        n_known: how many needed no detection: from the journal of a killed call, or skipped.
        n_events: how many events were detected now.
        seconds: how much audio was detected now.
        failed: name of a recording -> why it is not in the output.

    >>> BatchReport(n_detected=3, n_known=2).n_recordings
    5
    """

    n_detected: int = 0
    n_known: int = 0
    n_events: int = 0
    seconds: float = 0.0
    failed: dict[str, EarmarkError] = field(default_factory=dict)

    @property
    def n_recordings(self) -> int:
        """How many there were."""
        return self.n_detected + self.n_known + len(self.failed)


def detect_batch(
    detector: Detector,
    recordings: PathLike | Iterable[PathLike],
    out: PathLike | BinaryIO,
    settings: BatchSettings | None = None,
    *,
    detect_each: Callable[..., Iterator[FileResult]] | None = None,
    on_result: Callable[[FileResult], object] | None = None,
    key: str = "",
    show_progress: bool = False,
) -> BatchReport:
    """Detect events in many recordings and write them; see the module.

    Args:
        detector: what detects.
        recordings: files, or folders of them.
        out: a file, a folder (it exists, or ends with a slash), or a binary stream.
        settings: what to detect and what to write of it.
        detect_each: in place of `Detector.detect_each`, such as a partial `detect_on_cluster`.
        on_result: called with the result of each recording, scores included, before it is written.
        key: what `on_result` depends on; another one begins anew.
        show_progress: draw a bar on standard error, if that is a terminal.

    >>> import tempfile
    >>> import numpy as np
    >>> from earmark.audio.encode import write_audio
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = write_audio(folder / "silence.wav", np.zeros(16000), 16000)
    >>> detect_batch(Detector.load(), folder, folder / "events.tsv").n_detected
    1
    >>> (folder / "events.tsv").read_text().split()
    ['filename', 'onset', 'offset', 'event_label', 'silence.wav']
    """
    settings = settings or BatchSettings()
    files = name_recordings(_existing(recordings))
    _check_is_no_recording(out, files.values())
    for label in settings.classes or ():
        choose("class", label, detector.labels)
    if settings.score_folder is not None:
        choose("score format", settings.score_format, SCORE_FORMATS)
        stems_of(map(name_inside, files))  # two that would write one file are refused here
        check_folder(Path(settings.score_folder))
    report = BatchReport()
    with ExitStack() as stack:
        writer = _make_writer(out, settings, files)
        output = open_output(out, files, writer, settings.skip_done, stack)
        work = {
            "model": bundle_checksum(detector.bundle),
            "settings": repr(replace(settings, format=writer.format, skip_done=False)),
            "on_result": key,
        }
        done = _settled(output.begin(work_key(work)), list(files), detector.ensemble.window)
        report.n_known = len(done)
        todo = {name: path for name, path in files.items() if name not in done}
        progress = stack.enter_context(_Progress(files, todo, show_progress))
        keep_scores = on_result is not None or settings.score_folder is not None
        for result in (detect_each or detector.detect_each)(
            files,
            sensitivity=settings.sensitivity,
            min_score=settings.min_score,
            keep_scores=keep_scores,
            done=done,
        ):
            own = _selected(result, settings.classes)
            error = result.error
            if error is None:
                try:
                    if on_result is not None:
                        on_result(own)
                    _write_scores(own, settings)
                    output.add(own, files[result.name])
                except EarmarkError as refused:
                    if _concerns_all(refused):
                        raise
                    error = refused
            if error is None:
                report.n_detected += 1
                report.n_events += len(own.events)
                report.seconds += result.duration
            else:
                report.failed[result.name] = error
            progress.advance(result)
        output.finish()
    return report


def _existing(recordings: PathLike | Iterable[PathLike]) -> list[PathLike]:
    """Return the recordings; raise if one is not there: a typing error, not a broken recording."""
    named = [recordings] if isinstance(recordings, str | os.PathLike) else list(recordings)
    for path in named:
        if not Path(path).exists():
            raise DataError(f"{os.fspath(path)} does not exist; check the path.")
    return named


def _check_is_no_recording(out: PathLike | BinaryIO, recordings: Iterable[Path]) -> None:
    """Raise if the output would replace a recording."""
    if not isinstance(out, str | os.PathLike) or not os.path.isfile(out):  # noqa: PTH113 - no error
        return
    for path in recordings:
        if path.exists() and path.samefile(out):
            raise SettingError(
                f"{os.fspath(out)} is one of the recordings; choose another file for the events."
            )


def _settled(known: Known, names: Sequence[str], window: float) -> set[str]:
    """Return the recordings that need no detection.

    Short ones are gathered, and to the bit their scores depend on those that they are gathered with
    (`earmark.inference.folder`). Where a kill left only some of these, all are detected again: the
    output is then that of a call that was never stopped.
    """
    settled: set[str] = set()
    for first in range(0, len(names), folder.TOGETHER):
        group = names[first : first + folder.TOGETHER]
        whole = all(name in known for name in group)
        for name in group:
            seconds = known.get(name)
            if name in known and (whole or seconds is None or seconds > window):
                settled.add(name)
    return settled


def parse_classes(texts: Iterable[str], labels: Sequence[str]) -> list[str]:
    """Return the classes that texts name: each is a class, or several separated by commas.

    >>> parse_classes(["dog,cat", "Air horn, truck horn"], ["cat", "dog", "Air horn, truck horn"])
    ['dog', 'cat', 'Air horn, truck horn']
    >>> parse_classes(["dgo"], ["cat", "dog"])
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: There is no class 'dgo'; did you mean 'dog'? Known: cat, dog.
    """
    named = []
    for text in texts:
        parts = [text] if text in labels else [part.strip() for part in text.split(",")]
        named += [choose("class", part, labels) for part in parts if part]
    if not named:
        raise SettingError(f"classes must name one class or more of {', '.join(labels)}. Got none.")
    return list(dict.fromkeys(named))


def _make_writer(
    out: PathLike | BinaryIO, settings: BatchSettings, files: Iterable[str]
) -> EventWriter:
    """Return the writer of the format; raise if it has no place for what is to be written."""
    format = output_format(out, settings.format)
    own = EVENT_FORMATS[format]
    with_scores = settings.with_scores
    if with_scores and not own.keeps_scores:
        able = ", ".join(name for name, other in EVENT_FORMATS.items() if other.keeps_scores)
        raise SettingError(f"The format {format} has no place for scores. Those that have: {able}.")
    if with_scores is None:
        with_scores = own.keeps_scores and own.score_by_default
    starts = {}
    if settings.absolute_time:
        check_keeps_times("", format)
        starts = start_times(files)
    name = os.fspath(out) if isinstance(out, str | os.PathLike) else "the stream"
    layout = Layout(scores=with_scores, times=settings.absolute_time)
    return EventWriter(name, format, layout, starts)


def _concerns_all(error: EarmarkError) -> bool:
    """Return whether an error is not of one recording: a disk is full, broken or read-only."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in _DISK_ERRORS


def _selected(result: FileResult, classes: Sequence[str] | None) -> FileResult:
    if classes is None:
        return result
    return result._replace(events=[event for event in result.events if event.label in classes])


def _write_scores(result: FileResult, settings: BatchSettings) -> None:
    if settings.score_folder is not None and result.scores is not None:
        table = ScoreTable(result.scores.labels, {name_inside(result.name): result.scores})
        write_scores(settings.score_folder, table, settings.score_format)


class _Progress:
    """A bar of how much of the files is done, with their number and the minutes of audio.

    The time left follows from the sizes of files: their durations are known only when they are
    decoded.
    """

    def __init__(self, files: Mapping[str, Path], todo: Mapping[str, Path], shown: bool) -> None:
        self._sizes = {name: _size(path) for name, path in files.items()}
        done = sum(size for name, size in self._sizes.items() if name not in todo)
        self._n_files, self._n_done = len(files), len(files) - len(todo)
        self._seconds = 0.0
        total = sum(self._sizes.values())
        self._bar = ProgressBar("detecting", total, done, shown, detail=self._detail())

    def _detail(self) -> str:
        return f"{self._n_done}/{self._n_files} files, {self._seconds / 60:.1f} min"

    def advance(self, result: FileResult) -> None:
        self._n_done += 1
        self._seconds += result.duration
        self._bar.advance(self._sizes[result.name], self._detail())

    def __enter__(self) -> "_Progress":
        self._bar.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.__exit__(*error)


def _size(path: Path) -> int:
    try:
        return max(1, path.stat().st_size)
    except OSError:
        return 1
