"""Jobs that learn from corrections: `earmark tune` and `earmark train`, one at a time.

Conventions: a job is the command itself in a process of its own (`earmark.web.job_process`), with
the tables of `earmark.web.corrections`; so what it does can be repeated by hand, it can be stopped,
and it cannot take the service down. Its model is compared with the one that is served, on the
recordings of the library, and used when somebody adopts it (`earmark.web.adoption`). Clips of long
recordings are cut in the job, not in the request that starts it.
"""

import logging
import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread
from typing import Literal
from uuid import uuid4

from earmark.audio.decode import audio_duration
from earmark.data.manifest import Manifest
from earmark.errors import DataError, EarmarkError
from earmark.files import atomic_write
from earmark.web.adoption import FOLDER, forget_adopted, keep_adopted, remove_models
from earmark.web.changes import Change, find_change
from earmark.web.corrections import STRONG, WEAK, Correction, Tables
from earmark.web.library import Recording
from earmark.web.limits import RequestError, StoppedError, Watch
from earmark.web.served_model import ServedModel
from earmark.web.service import Service
from earmark.web.training_clips import training_rows

logger = logging.getLogger(__name__)

Kind = Literal["tune", "train"]
JobStatus = Literal["running", "done", "failed", "stopped"]
Corrected = Mapping[str, tuple[Recording, Correction]]

LOG_LINES = 200
KEPT = 20  # jobs that are remembered
PROCESS_SHARE = 0.8  # of the progress; the rest is the comparison


@dataclass(eq=False)
class Job:
    """A tuning or a training, and what is known of it.

    Args:
        id: what clients know it by.
        kind: "tune" or "train".
        folder: of its files, removed when it has ended.
        model: where its model is kept.
        max_epochs: of a training.
    """

    id: str
    kind: Kind
    folder: Path
    model: Path
    max_epochs: int = 0
    status: JobStatus = "running"
    detail: str = ""
    warning: str = ""  # what whoever adopts the model must know
    adopted: bool = False
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    changed: list[tuple[Recording, Change]] = field(default_factory=list)
    compared: float = 0.0
    process: "subprocess.Popen[str] | None" = None
    is_stopped: bool = False
    served: ServedModel | None = None

    @property
    def progress(self) -> float:
        """How much is done, from 0 to 1."""
        if self.status != "running":
            return 1.0
        if self.process is None or self.process.poll() is None:
            return PROCESS_SHARE * self._epochs()
        return PROCESS_SHARE + (1 - PROCESS_SHARE) * self.compared

    def _epochs(self) -> float:
        """Return the share of a training's epochs that are done."""
        try:
            n_lines = len((self.folder / "run" / "history.tsv").read_text().splitlines())
        except OSError:
            return 0.0
        return min(1.0, max(0, n_lines - 1) / max(1, self.max_epochs))


class Jobs:
    """The jobs of a service.

    Args:
        service: whose corrections are learnt from.
        base: clips that a training learns from besides: a table of tags and the folder of its
            recordings; None is none.
    """

    def __init__(self, service: Service, base: tuple[Path, Path] | None = None) -> None:
        self._service, self._base = service, base
        self._jobs: dict[str, Job] = {}
        self._lock = Lock()
        self._threads: list[Thread] = []

    def find(self, id: str) -> Job:
        """Return the job with an id, or raise `RequestError`."""
        job = self._jobs.get(id)
        if job is None:
            raise RequestError(404, "There is no such job.")
        return job

    def all(self) -> list[Job]:
        """Return the jobs, the newest first."""
        return list(reversed(self._jobs.values()))

    def start(self, kind: Kind, *options: str, max_epochs: int = 0) -> Job:
        """Start a job; raise `RequestError` if one runs already, or if there is nothing to learn.

        Args:
            kind: "tune" or "train".
            options: of the command.
            max_epochs: of a training.
        """
        corrected, tables = self._service.corrected(), self._service.tables()
        if not corrected:
            raise RequestError(
                409, "There are no corrections to learn from; correct a recording first."
            )
        if kind == "tune":
            _check_events(tables)
        else:
            _check_tags(tables, has_base=self._base is not None)
        with self._lock:
            if any(job.status == "running" for job in self._jobs.values()):
                raise RequestError(409, "A job is running; wait for it, or stop it.")
            self._remove_models()
            id = uuid4().hex[:12]
            state = self._service.library.state
            folder = state / "work" / f"job-{id}"
            folder.mkdir()
            stem = self._service.model.path.stem.split("-tune-")[0].split("-train-")[0]
            model = state / FOLDER / f"{stem}-{kind}-{id}.earmark"
            job = Job(id, kind, folder, model, max_epochs)
            self._jobs[id] = job
            for old in list(self._jobs)[:-KEPT]:
                del self._jobs[old]
        write = self._write_tune if kind == "tune" else self._write_train
        thread = Thread(
            target=self._run,
            args=(job, lambda: [*write(job, tables, corrected), *options]),
            name="earmark-job",
            daemon=True,
        )
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()
        return job

    def stop(self, id: str) -> None:
        """Stop a job; a training writes the model of its best epoch so far."""
        job = self.find(id)
        job.is_stopped = True
        if job.process is not None and job.process.poll() is None:
            job.process.send_signal(signal.SIGTERM)

    def adopt(self, id: str) -> None:
        """Let the service use the model of a job."""
        job, service = self.find(id), self._service
        if job.status == "running":
            raise RequestError(409, "The job is still running.")
        with self._lock:  # no job that starts removes the model meanwhile
            if job.served is None:
                raise RequestError(409, f"The job has no model to adopt: {job.detail}")
            keep_adopted(service.library, service.first, job.model)
            service.adopt(job.served)
            for other in self._jobs.values():
                other.adopted = other is job

    def go_back(self) -> None:
        """Let the service use the model again that it was started with."""
        service = self._service
        with self._lock:
            if service.model.path == service.first:
                raise RequestError(409, f"{service.first.name} is in use already.")
            first = service.model.load_other(service.first)
            forget_adopted(service.library)
            service.adopt(first)
            for job in self._jobs.values():
                job.adopted = False

    def close(self) -> None:
        """Stop all jobs."""
        for job in self.all():
            if job.status == "running":
                self.stop(job.id)
        for thread in self._threads:
            thread.join(timeout=20.0)
        for job in self.all():
            if job.process is not None and job.process.poll() is None:
                job.process.kill()

    def _remove_models(self) -> None:
        """Delete the models of earlier jobs, except those in use."""
        service = self._service
        remove_models(service.library, [service.model.path, service.first])
        for job in self._jobs.values():
            if job.served is not None and not job.model.exists():
                job.served, job.detail = None, "It was deleted when a later job began."

    def _write_tune(self, job: Job, tables: Tables, corrected: Corrected) -> list[str]:
        """Write the table of a tuning; return its command."""
        table = job.folder / STRONG
        atomic_write(table, tables.strong_text.encode())
        model = self._service.model
        return [
            *("tune", "--model", str(model.path), "--strong", "--valid", str(table)),
            *("--audio", str(self._service.library.folder), "--out", str(job.model)),
            *_encoder(model),
        ]

    def _write_train(self, job: Job, tables: Tables, corrected: Corrected) -> list[str]:
        """Write the table of a training, and clips of long recordings; return its command."""
        model = self._service.model
        clips = job.folder / "clips"
        clips.mkdir()
        recordings = {
            name: (recording.path, recording.duration or audio_duration(recording.path), own)
            for name, (recording, own) in corrected.items()
        }
        window = model.detector.ensemble.window
        rows, notes = training_rows(tables.weak, recordings, window, clips, self._watch(job).check)
        job.log.extend(notes)
        if self._base is not None:
            manifest = Manifest.read(*self._base)
            checked = {recordings[name][0].resolve() for name in tables.weak}
            base = {
                str(path.resolve()): tags
                for path, tags in zip(manifest.paths, manifest.tags, strict=True)
                if path.resolve() not in checked  # whose tags are those of the correction
            }
            rows = {**base, **rows}
            job.log.append(f"{len(base)} clips of {self._base[0].name} are added.")
        if not any(rows.values()):
            raise DataError(" ".join([*notes, "No clip with a tag is left to train with."]))
        known, learnt = set(model.detector.labels), set().union(*rows.values())
        if learnt - known:
            job.log.append(f"New classes: {', '.join(sorted(learnt - known))}.")
        if known - learnt:
            job.warning = (
                f"The new model will not know {', '.join(sorted(known - learnt))}: no clip has "
                "such a tag. Serve with --train-table to keep the clips of the first training."
            )
            job.log.append(job.warning)
        table = job.folder / WEAK
        atomic_write(table, Tables({}, rows).weak_text.encode())
        return [
            *("train", "--from", str(model.path), "--train", str(table)),
            *("--audio", str(self._service.library.folder), "--out", str(job.folder / "run")),
            *("--set", f"training.max_epochs={job.max_epochs}"),
            *_encoder(model),
        ]

    def _run(self, job: Job, write: Callable[[], list[str]]) -> None:
        """Write the tables of a job, run its command, and compare its model with the served one."""
        try:
            arguments = write()
            self._watch(job).check()
            code = self._run_process(job, arguments)
            trained = job.folder / "run" / "model.earmark"
            if job.kind == "train" and trained.exists():
                trained.replace(job.model)
            if job.model.exists():
                job.served = self._service.model.load_other(job.model)
            if job.is_stopped:
                self._end(job, "stopped", "It was stopped.")
            elif code or job.served is None:
                self._end(job, "failed", _reason(job.log))
            else:
                self._compare(job, job.served)
                self._end(job, "done", f"{_reason(job.log)} {job.warning}".strip())
        except StoppedError:
            self._end(job, "stopped", "It was stopped.")
        except EarmarkError as error:
            self._end(job, "failed", str(error))
        except Exception as error:
            logger.exception("The job %s failed.", job.id)
            self._end(job, "failed", f"It failed: {type(error).__name__}.")

    def _run_process(self, job: Job, arguments: Sequence[str]) -> int:
        """Run the command, with its lines in the log; return its exit code."""
        job.process = subprocess.Popen(
            [sys.executable, "-m", "earmark.web.job_process", *arguments],
            stdin=subprocess.PIPE,  # ends when this process does
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,  # Ctrl-C is for the service, which stops it
        )
        assert job.process.stdout is not None
        assert job.process.stdin is not None
        if job.is_stopped:
            job.process.send_signal(signal.SIGTERM)
        with job.process.stdout as lines:
            for line in lines:
                job.log.append(self._shown(job, line))
        code = job.process.wait()
        job.process.stdin.close()
        return code

    def _shown(self, job: Job, line: str) -> str:
        """Return a line for clients, who need no paths of this machine."""
        library = self._service.library
        for folder in (job.folder, library.state / "models", library.folder):
            line = line.replace(f"{folder}/", "")
        return line.rstrip().removeprefix("earmark: ")[:1000]

    def _compare(self, job: Job, model: ServedModel) -> None:
        """Find what the new model changes in the recordings of the library."""
        recordings = [own for own in self._service.library if own.status == "ready"]
        watch = self._watch(job)
        for done, recording in enumerate(recordings):
            watch.check()
            job.compared = done / len(recordings)
            try:
                _, scores = self._service.scores(recording.id)
                before = self._service.model.events(scores)
                after = model.events(self._service.analyse(recording, model, watch).scores())
            except (RequestError, DataError, OSError):  # deleted meanwhile
                continue
            job.changed.append((recording, find_change(before, after)))

    def _watch(self, job: Job) -> Watch:
        """Return a watch that stops when the job or the service is stopped."""

        def is_stopped() -> bool:
            return job.is_stopped or self._service.is_closing

        return Watch(self._service.limits.max_duration, None, is_stopped)

    def _end(self, job: Job, status: JobStatus, detail: str) -> None:
        job.detail = detail
        shutil.rmtree(job.folder, ignore_errors=True)
        job.status = status  # last: who waits for it sees the rest


def _check_events(tables: Tables) -> None:
    """Raise `RequestError` if there is nothing to tune with."""
    if not tables.strong:
        raise RequestError(
            409,
            "Tuning learns from recordings whose events somebody checked; say of two that the "
            "events are right.",
        )
    if not any(tables.strong.values()):
        raise RequestError(
            409, "The corrections have no event of the model's classes to tune with; add one."
        )
    if len(tables.strong) < 2:
        raise RequestError(
            409, "Tuning needs checked events of two recordings or more; check another."
        )


def _check_tags(tables: Tables, *, has_base: bool) -> None:
    """Raise `RequestError` if there is nothing to train with."""
    if not tables.weak:
        raise RequestError(
            409,
            "Training learns from recordings whose tags somebody checked; say of one that the tags "
            "are right.",
        )
    if not has_base and not any(tables.weak.values()):
        raise RequestError(409, "The corrections have no tag to train with; confirm one.")


def _encoder(model: ServedModel) -> list[str]:
    """Return the option that names the encoder of a model, if it was moved."""
    return [] if model.encoder is None else ["--encoder", str(model.encoder)]


def _reason(log: Sequence[str]) -> str:
    """Return the last line that a command printed about its result."""
    lines = (line for line in reversed(log) if line.strip() and not line.startswith("next: "))
    return next(lines, "It printed nothing.")
