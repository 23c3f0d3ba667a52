"""The service itself: a model, a library, and the recordings that are analysed for it."""

import hashlib
import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag

from earmark.audio.decode import audio_duration, audio_format
from earmark.errors import AudioError, EarmarkError, printable
from earmark.formats.events import Event
from earmark.frames import FrameScores
from earmark.web.analysis import Analysis, analyse
from earmark.web.corrections import Correction, Corrections, Tables, make_tables
from earmark.web.library import Library, Recording
from earmark.web.limits import Limits, RequestError, StoppedError, Watch
from earmark.web.served_model import ServedModel
from earmark.web.workers import LATER, URGENT, Workers

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Detection:
    """What `POST /detect` finds: the events, and the duration of the recording in seconds.

    >>> Detection([], 1.0).duration
    1.0
    """

    events: list[Event]
    duration: float


class Service:
    """Analyses recordings with a model and keeps what it found.

    Args:
        model: what detects.
        library: of the recordings.
        limits: on what clients may ask for.
        first: the model file that it was started with, if a library has adopted another model.

    >>> from earmark.inference.model_file import BUNDLED
    >>> with Library() as library:
    ...     service = Service(ServedModel.load(BUNDLED), library)
    ...     service.close()
    """

    def __init__(
        self,
        model: ServedModel,
        library: Library,
        limits: Limits | None = None,
        first: Path | None = None,
    ) -> None:
        self.model, self.library, self.limits = model, library, limits or Limits()
        self.first = first or model.path
        self.workers = Workers(self.limits.max_active, self.limits.max_waiting)
        self.corrections = Corrections(library.state)
        self._ends = Flag()
        self._remove_stale()
        for recording in library:
            self._start(recording, LATER)

    def close(self) -> None:
        """Stop what is under way and end the threads."""
        self._ends.set()
        self.workers.close()

    @property
    def is_closing(self) -> bool:
        """Whether the service ends."""
        return self._ends.is_set()

    def detect(self, file: Path, name: str, decode: Callable[[FrameScores], list[Event]],
               watch: Watch) -> "Future[Detection]":  # fmt: skip
        """Detect in a file that is not kept; the future has what was found.

        Args:
            file: the recording, which must exist until the future is done.
            name: of the recording, for errors.
            decode: makes events of its scores.
            watch: of the work.
        """
        model = self.model

        def run() -> Detection:
            watch.check()
            stem = file.with_name(f"{file.name}-found")
            with named(file, name):
                analysis = analyse(model.detector, file, stem, watch, spectrogram=False)
                try:
                    return Detection(decode(analysis.scores()), analysis.duration)
                finally:
                    analysis.remove()

        return self.workers.submit(run)

    def new_watch(self, max_seconds: float | None = None) -> Watch:
        """Return a watch with the limits of this service, which stops when it ends."""
        return Watch(self.limits.max_duration, max_seconds, self._ends.is_set)

    def add(self, file: Path, name: str) -> tuple[Recording, "Future[None]"]:
        """Add a file to the library and analyse it; raise if it is no recording.

        The future is done when the recording is analysed.
        """
        with named(file, name):
            audio_format(file)  # raises for what is no audio
        recording = self.library.add(file, name)
        try:
            return recording, self._start(recording, URGENT)
        except RequestError:
            self.library.remove(recording.id)
            raise

    def remove(self, id: str) -> None:
        """Delete a recording and all that is known of it."""
        recording = self.library.find(id)
        if recording.watch is not None:
            recording.watch.stop()
        self.library.remove(id)
        self.corrections.remove(recording.name)
        if recording.analysis is not None:
            recording.analysis.remove()

    def scores(self, id: str) -> tuple[Recording, FrameScores]:
        """Return a recording and its scores; raise `RequestError` if it is not analysed."""
        recording = self.library.find(id)
        if recording.status == "failed":
            raise RequestError(409, f"The recording could not be analysed: {recording.detail}")
        if recording.status != "ready" or recording.analysis is None:
            raise RequestError(409, "The recording is still being analysed; try again in a moment.")
        try:
            return recording, recording.analysis.scores()
        except OSError as error:
            raise RequestError(404, "The recording has been deleted.") from error

    def known_events(self, id: str) -> tuple[Recording, list[Event]]:
        """Return a recording and its events: the corrected ones, or those that are detected."""
        recording = self.library.find(id)
        correction = self.corrections.get(recording.name) or Correction()
        if correction.events is not None:
            return recording, correction.accepted([])
        recording, scores = self.scores(id)
        return recording, correction.accepted(self.model.events(scores))

    def corrected(self) -> dict[str, tuple[Recording, Correction]]:
        """Return name -> recording and correction, of the recordings that are in the library.

        Those that are still being analysed, as all are when a model is adopted, are among them;
        those that cannot be read are not.
        """
        found = {}
        for recording in self.library:
            correction = self.corrections.get(recording.name)
            if correction is not None and recording.status != "failed":
                found[recording.name] = (recording, correction)
        return found

    def tables(self) -> Tables:
        """Return what can be learnt from the corrections."""
        corrections = {name: own for name, (_, own) in self.corrected().items()}
        return make_tables(corrections, self.model.detector.labels)

    def adopt(self, model: ServedModel) -> None:
        """Use another model from now on; recordings whose scores it changes are analysed again."""
        for recording in self.library:
            if recording.watch is not None:
                recording.watch.stop()
            recording.status = "working"  # nobody decodes its scores with another model
        self.model = model
        self._remove_stale()
        for recording in self.library:
            self._start(recording, LATER)

    def analysis_of(self, recording: Recording, model: ServedModel) -> Analysis:
        """Return where the analysis of a recording by a model is, whether it exists or not."""
        about = recording.path.stat()
        key = f"{model.scores_digest} {about.st_size} {about.st_mtime_ns}"
        digest = hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
        stem = self.library.state / "scores" / f"{recording.id}-{digest}"
        detector = model.detector
        return Analysis(stem, detector.labels, detector.grid, model.spectrogram.n_mels)

    def analyse(self, recording: Recording, model: ServedModel, watch: Watch) -> Analysis:
        """Return the analysis of a recording by a model, made now unless there is one."""
        analysis = self.analysis_of(recording, model)
        if analysis.exists():
            return analysis
        with named(recording.path, recording.name):
            return analyse(model.detector, recording.path, analysis.stem, watch)

    def _start(self, recording: Recording, priority: int) -> "Future[None]":
        """Analyse a recording on a thread of the workers."""
        watch, model = self.new_watch(), self.model
        recording.watch, recording.status, recording.detail = watch, "working", ""
        recording.n_events = recording.uncertainty = None

        def run() -> None:
            with recording.lock:  # an analysis that was stopped removes its files first
                work()

        def work() -> None:
            try:
                watch.check()
                analysis = self.analysis_of(recording, model)
                recording.analysis = analysis  # its tiles are shown while it grows
                if not analysis.exists():
                    with named(recording.path, recording.name):
                        recording.expected = _expected(recording.path)
                    if recording.expected is not None:
                        watch.check(recording.expected)
                        watch.duration = 0.0
                    analysis = self.analyse(recording, model, watch)
                scores = analysis.scores()
                n_events, unsure = len(model.events(scores)), model.uncertainty(scores)
            except (EarmarkError, OSError) as error:
                if isinstance(error, StoppedError) or recording.watch is not watch:
                    return
                recording.code = error.status if isinstance(error, RequestError) else 422
                recording.detail = str(error)
                if isinstance(error, OSError):  # its text has a path of this machine
                    recording.detail = f"It cannot be read: {error.strerror}."
                recording.status = "failed"
                logger.info("%s: %s", recording.name, error)
            except Exception as error:
                recording.detail = "It could not be analysed; the log of the service says why."
                recording.code, recording.status = 500, "failed"
                logger.exception("The analysis of %s failed: %r", recording.name, error)
            else:
                if recording.watch is watch:
                    recording.n_events, recording.uncertainty = n_events, unsure
                    recording.status = "ready"

        return self.workers.submit(run, priority)

    def _remove_stale(self) -> None:
        """Delete analyses of recordings that are gone, or by other models."""
        wanted = set()
        for recording in self.library:
            with suppress(OSError):  # somebody else has removed the recording
                wanted.add(self.analysis_of(recording, self.model).stem.name)
        for file in (self.library.state / "scores").iterdir():
            if file.name.split(".")[0] not in wanted:
                file.unlink(missing_ok=True)


def _expected(path: Path) -> float | None:
    """Return the duration in the header of a recording; None where only decoding tells."""
    with path.open("rb") as file:
        head = file.read(3)
    if head == b"ID3" or head[:1] == b"\xff":  # an mp3, of which all would be decoded
        return None
    return audio_duration(path)


class named:  # noqa: N801 - used as a function
    """Replaces the path of a file by the name that its client knows, in errors of the block."""

    def __init__(self, path: Path, name: str) -> None:
        self._path, self._name = path, name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        path = printable(str(self._path))  # as errors have it
        if isinstance(error, AudioError) and path in str(error):
            message = str(error).replace(path, self._name)
            raise AudioError(message) from None
