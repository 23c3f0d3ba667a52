"""Start the processes of a training and bring its result, log and errors back.

Conventions: under torchrun or SLURM the processes exist already, and each calls `train`; otherwise
one process trains in place, and several are spawned here. The first process (rank 0) writes and
logs. Log records of spawned processes are handled by the loggers of the caller.
"""

import logging
import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from logging.handlers import QueueHandler, QueueListener
from typing import Any

import torch
from lightning_fabric import Fabric
from torch.multiprocessing.spawn import ProcessRaisedException

from earmark import errors
from earmark.errors import EarmarkError, SettingError
from earmark.runtime.device import resolve_device
from earmark.runtime.isa import bfloat16_is_fast, check_bfloat16, log_instruction_set
from earmark.runtime.processes import without_main
from earmark.training.checkpoint import Fitted
from earmark.training.config import RunConfig
from earmark.training.loop import Job, fit

logger = logging.getLogger("earmark")


def make_fabric(run: RunConfig, precision: str = "32-true") -> Fabric:
    """Return the Fabric of a run; raise where the machine cannot run it.

    >>> make_fabric(RunConfig(device="cpu")).world_size
    1
    """
    log_instruction_set()
    if run.nodes > 1 and not _is_launched():
        raise SettingError(
            f"nodes={run.nodes} needs torchrun or SLURM to start the command on each machine; see "
            "docs/training.md."
        )
    device = resolve_device(run.device)
    precision = resolve_precision(precision, device)
    try:
        fabric = Fabric(
            accelerator=device.type,
            devices=run.devices if device.index is None else [device.index],
            num_nodes=run.nodes,
            strategy="ddp" if _is_launched() else "ddp_spawn" if _spawns(run) else "auto",
            precision=precision,  # type: ignore[arg-type]
        )
    except Exception as error:  # of several kinds, by accelerator
        raise SettingError(
            f"Training cannot run on device={run.device!r}, devices={run.devices}: {error}"
        ) from None
    if precision == "bf16-mixed" and fabric.device.type == "cpu":
        check_bfloat16()
    return fabric


def resolve_precision(precision: str, device: torch.device) -> str:
    """Return the precision that "auto" stands for on a device; any other is returned as it is.

    >>> resolve_precision("64-true", torch.device("cpu"))
    '64-true'
    """
    if precision != "auto":
        return precision
    if device.type == "cpu":
        is_fast = bfloat16_is_fast()
    else:
        is_fast = device.type == "cuda" and torch.cuda.is_bf16_supported()
    return "bf16-mixed" if is_fast else "32-true"


def run_job(job: Job) -> Fitted:
    """Train in the processes that the job asks for; return the result.

    The caller's number of threads and random state are left as they were.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from earmark.data.manifest import Manifest, clip_paths
    >>> from earmark.data.store import build_store
    >>> from earmark.synth.scenes import SceneConfig, write_scenes
    >>> from earmark.training.settings import Settings
    >>> overrides = ["training.max_epochs=2", "training.threads=1"]
    >>> settings = Settings.load("fast", overrides=overrides).for_classes(1)
    >>> scenes = SceneConfig(duration=4.0, n_events=(1, 1), classes=("siren",))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_scenes(folder, 2, scenes)
    ...     clips = Manifest.read(f"{folder}/weak.tsv", f"{folder}/audio")
    ...     store = build_store(f"{folder}/features", clip_paths(clips), settings.features)
    ...     len(run_job(Job(Path(folder), store.folder, settings, clips, clips)).history)
    2
    """
    fabric = make_fabric(job.run, job.settings.training.precision)
    n_threads = torch.get_num_threads()
    others = multiprocessing.active_children()
    try:
        with torch.random.fork_rng(devices=()):
            if not _spawns(job.run):
                # A partial, since Fabric copies the arguments and Job is frozen.
                fitted: Fitted = fabric.launch(partial(fit, job=job))
                return fitted
            with without_main(), _forward_logs() as queue:
                level = logger.getEffectiveLevel()
                fabric.launch(partial(_fit_spawned, job=job, queue=queue, level=level))
            # Weights of any size do not fit through Fabric's pipe, but are in the checkpoint.
            return Fitted.read(job.out)
    except ProcessRaisedException as error:
        raise _original(error) from None
    except KeyboardInterrupt:
        # A signal to this process alone would leave the spawned ones at work.
        for process in multiprocessing.active_children():
            if process not in others:
                process.terminate()
                process.join()
        raise
    finally:
        torch.set_num_threads(n_threads)


def _is_launched() -> bool:
    return any(name in os.environ for name in ("TORCHELASTIC_RUN_ID", "SLURM_PROCID"))


def _spawns(run: RunConfig) -> bool:
    return run.devices > 1 and not _is_launched()


def _fit_spawned(fabric: Fabric, job: Job, queue: Any, level: int) -> None:
    logger.addHandler(QueueHandler(queue))
    logger.setLevel(level)
    fit(fabric, job)


@contextmanager
def _forward_logs() -> Iterator[Any]:
    """Yield a queue; records put into it by other processes are handled by the loggers here."""

    class Forward(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logging.getLogger(record.name).handle(record)

    queue = multiprocessing.get_context("spawn").Queue()
    listener = QueueListener(queue, Forward())
    listener.start()
    try:
        yield queue
    finally:
        listener.stop()


def _original(error: ProcessRaisedException) -> Exception:
    """Return the error that a spawned process raised; it arrives as the text of a traceback."""
    *_, last = str(error).strip().splitlines()
    name, _, message = last.partition(": ")
    kind = getattr(errors, name.removeprefix("earmark.errors."), None)
    if isinstance(kind, type) and issubclass(kind, EarmarkError):
        return kind(message)
    return error
