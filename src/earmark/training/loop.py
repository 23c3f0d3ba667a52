"""Weakly labelled clips -> a trained network: fit, early stop, resume.

Conventions: an explicit loop on Lightning Fabric, which sees to devices, precision, processes and
machines. Whatever is random in a step is drawn from (seed, epoch, step, process), so a step can be
repeated to the bit. A checkpoint is one safetensors file, written beside and moved into place after
every epoch and now and then within one; resuming from it at any moment ends with the weights of the
run that was never stopped, on the same machine with the same number of threads and processes (with
other threads, it differs by rounding).

Where the training clips carry events, their frames are learned from in place of their tags; where
teachers tell of frames, from both. The validation loss, which decides when to stop, is that of tags
all the same.

Batch norm counts the clips of all processes, and a step's loss is the mean over all of them: two
processes follow the loss curve of one but for rounding and the draws of dropout. A batch may go
through the network in micro-batches, whose gradients add up to that of the batch; batch norm then
counts the clips of a micro-batch, and its running statistics move as far in a step as otherwise.
"""

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from earmark.data.batches import (
    combine_seeds,
    epoch_order,
    pool_targets,
    read_batch,
    read_frame_targets,
    split_rows,
    split_share,
)
from earmark.data.features import Normalise
from earmark.data.manifest import Manifest, clip_paths
from earmark.data.store import FeatureStore
from earmark.errors import SettingError
from earmark.nn.layers import MaskedBatchNorm
from earmark.nn.loss import clip_loss, frame_loss
from earmark.nn.model import Model
from earmark.runtime.cores import share_of_cores
from earmark.runtime.memory import keep_memory
from earmark.training.augmentation import augment
from earmark.training.checkpoint import (
    CHECKPOINT,
    HISTORY,
    Epoch,
    State,
    load_checkpoint,
    save_checkpoint,
    write_history,
)
from earmark.training.self_training import PseudoLabels
from earmark.training.settings import Settings, TrainingConfig

# Rows and a number of frames -> targets (batch, frames, classes).
FrameTargets = Callable[[Sequence[int], int], Tensor]


@dataclass(frozen=True)
class Job:
    """All that a process needs in order to train."""

    out: Path
    store: Path
    settings: Settings
    train: Manifest
    valid: Manifest
    teaching: Path | None = None
    resume: bool = False
    tensorboard: bool = False
    progress: bool = False

    def about(self, n_processes: int) -> dict[str, str]:
        """Return what must be the same when going on from a checkpoint."""
        return {"data or settings": self.fingerprint(), "number of processes": str(n_processes)}

    def fingerprint(self) -> str:
        """Tell one job from another: settings, labels, files and their tags."""
        data = [
            [m.files, m.tags, [[astuple(event) for event in clip] for clip in m.events]]
            for m in (self.train, self.valid)
        ]
        text = json.dumps([self.settings.deciding(), list(self.train.labels), data], sort_keys=True)
        taught = b"" if self.teaching is None else self.teaching.read_bytes()
        return hashlib.sha256(text.encode() + taught).hexdigest()

    def frame_targets(self, store: FeatureStore) -> "FrameTargets | None":
        """Return what tells when each class sounds in given rows, if anything does."""
        if self.teaching is not None:
            return PseudoLabels(
                self.teaching, store, self.train, self.settings.model.time_pool
            ).read
        if self.train.events:
            return partial(read_frame_targets, self.train, self.settings.features.grid)
        return None


def fit(fabric: Fabric, job: Job) -> None:
    """Train until it gets no better; the outcome is the checkpoint. Every process runs this."""
    config = job.settings.training
    torch.set_num_threads(config.threads or share_of_cores(fabric.world_size))
    torch.manual_seed(config.seed)
    store = FeatureStore.open(job.store, files=clip_paths(job.train, job.valid))
    model = Model(job.settings.model)
    adam = torch.optim.AdamW(
        model.parameters(), config.learning_rate, weight_decay=config.weight_decay
    )
    wrapped, optimizer = fabric.setup(model, adam)
    state, best = State(), _copy(model)
    average = _Average(model, config.ema_decay)
    frame_targets = job.frame_targets(store)
    about = job.about(fabric.world_size)
    if job.resume and (job.out / CHECKPOINT).exists():
        state, best, averaged = load_checkpoint(job.out, model, adam, about)
        average.load(averaged)
        if fabric.is_global_zero:  # it may have been killed before it wrote the table
            write_history(job.out / HISTORY, state.history)

    def checkpoint() -> float:
        if fabric.is_global_zero:
            save_checkpoint(job.out, model, adam, state, best, average.weights(), about)
        return time.monotonic()

    written = time.monotonic()
    with keep_memory(), _Log(fabric, job) as log:
        while not state.finished:
            log.begin(state)
            started = time.monotonic() - state.seconds
            wrapped.train()
            order = epoch_order(job.train.targets, config.seed, state.epoch, config.balanced)
            # With more processes than clips in the last batch, one would have nothing to do.
            steps = [r for r in split_rows(order, config.batch_size) if len(r) >= fabric.world_size]
            for rows in steps[state.step :]:
                rate = learning_rate(config, state.epoch + state.step / len(steps), state.history)
                for group in adam.param_groups:
                    group["lr"] = rate
                loss = _step(fabric, wrapped, optimizer, job, store, frame_targets, rows, state)
                average.update(model, state.epoch * len(steps) + state.step)
                state.loss_sum += loss * len(rows)
                state.n_clips += len(rows)
                state.step += 1
                log.advance(len(rows))
                if time.monotonic() - written > config.checkpoint_seconds:
                    state.seconds = time.monotonic() - started
                    written = checkpoint()
            rate = learning_rate(config, state.epoch, state.history)
            train_loss = state.loss_sum / max(1, state.n_clips)
            valid_loss = _validate(fabric, average.model, job, store)
            row = Epoch(state.epoch, rate, train_loss, valid_loss, time.monotonic() - started)
            if (
                state.end_epoch(row, config.patience, config.max_epochs)
                or config.checkpoint == "last"
            ):
                best = _copy(average.model)
            written = checkpoint()
            if fabric.is_global_zero:
                write_history(job.out / HISTORY, state.history)
            log.end(row, state)
    fabric.barrier()


def _step(
    fabric: Fabric,
    model: Any,
    optimizer: Any,
    job: Job,
    store: FeatureStore,
    frame_targets: FrameTargets | None,
    rows: Sequence[int],
    state: State,
) -> float:
    """Take one step on this process's share of a batch; return the mean loss of the whole batch."""
    config, n_processes = job.settings.training, fabric.world_size
    seed = combine_seeds(config.seed, state.epoch, state.step, fabric.global_rank)
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)  # dropout's
    own_rows = rows[fabric.global_rank :: n_processes]
    batch, mask, targets = read_batch(store, job.train, own_rows)
    grid = job.settings.features.grid
    if frame_targets is not None:  # those of clips beside them, the same at every frame
        of_frames = frame_targets(own_rows, batch.shape[1])
        targets = torch.cat([of_frames, targets.unsqueeze(1).expand_as(of_frames)], 2)
    batch, mask, targets = augment(batch, mask, targets, job.settings.augment, grid, generator)
    if frame_targets is not None:
        targets = pool_targets(targets, mask, job.settings.model.time_pool)
    share = 1.0 if job.train.events else config.frame_loss_weight
    batch = Normalise(job.settings.features.mean, job.settings.features.std)(batch)
    batch, mask, targets = fabric.to_device((batch, mask, targets))
    pieces = split_share(len(rows), config.micro_batch, fabric.global_rank, n_processes)
    _share_updates(model, len(pieces))
    optimizer.zero_grad()
    total = torch.zeros((), device=fabric.device)
    for piece in pieces:
        own_mask = None if mask is None or bool(mask[piece].all()) else mask[piece]
        with fabric.no_backward_sync(model, enabled=piece is not pieces[-1]):
            said = model(batch[piece], own_mask)
            clip_probs, of_piece = said.clip_probs, targets[piece].to(said.clip_probs.dtype)
            if not clip_probs.isfinite().all():
                raise SettingError(
                    f"The network has run away in epoch {state.epoch}, to "
                    f"{clip_probs.flatten()[0]:g}; try a smaller training.learning_rate, or "
                    "training.gradient_clip=5."
                )
            if frame_targets is None:
                loss = clip_loss(clip_probs, of_piece)
            else:
                of_frames, of_clips = of_piece.chunk(2, 2)
                loss = share * frame_loss(said.frame_probs, of_frames, said.mask)
                loss = loss + (1 - share) * clip_loss(clip_probs, of_clips[:, 0])
            # Pieces differ by a clip; the mean is over clips, and processes are averaged.
            loss = loss * (len(clip_probs) * n_processes / len(rows))
            fabric.backward(loss)
        total += loss.detach()
    if config.gradient_clip:
        fabric.clip_gradients(model, optimizer, max_norm=config.gradient_clip)
    optimizer.step()
    return _all_reduce(fabric, total).item() / n_processes


class _Average:
    """The weights that are validated: those of the last step, or their average over the steps."""

    def __init__(self, model: Model, keep: float) -> None:
        self.keep = keep
        self.model = deepcopy(model) if keep else model

    @torch.no_grad()
    def update(self, model: Model, n_steps: int) -> None:
        """Take in the weights after a step; the first ones count for less than `keep` would."""
        if not self.keep:
            return
        keep = min(self.keep, (1 + n_steps) / (10 + n_steps))
        pairs = zip(self.model.state_dict().values(), model.state_dict().values(), strict=True)
        for own, new in pairs:
            if own.is_floating_point():
                own.lerp_(new, 1 - keep)
            else:
                own.copy_(new)

    def weights(self) -> dict[str, Tensor]:
        """What a checkpoint must hold."""
        return self.model.state_dict() if self.keep else {}

    def load(self, weights: dict[str, Tensor]) -> None:
        if self.keep:
            self.model.load_state_dict(weights)


def _share_updates(model: torch.nn.Module, n_micro_batches: int) -> None:
    for module in model.modules():
        if isinstance(module, MaskedBatchNorm):
            module.share_update(n_micro_batches)


@torch.no_grad()
def _validate(fabric: Fabric, model: Model, job: Job, store: FeatureStore) -> float:
    """Return the mean loss over the validation clips."""
    model.eval()
    total = torch.zeros(2, dtype=torch.float64)
    rows = list(range(fabric.global_rank, len(job.valid), fabric.world_size))
    config = job.settings.training
    for part in split_rows(rows, config.micro_batch or config.batch_size):
        batch, mask, targets = read_batch(store, job.valid, part)
        batch = Normalise(job.settings.features.mean, job.settings.features.std)(batch)
        batch, mask, targets = fabric.to_device((batch, mask, targets))
        batch = batch.to(next(model.parameters()).dtype)
        with fabric.autocast():
            clip_probs = model(batch, mask).clip_probs
        loss = clip_loss(clip_probs, targets.to(clip_probs.dtype))
        total += torch.tensor([float(loss) * len(part), len(part)], dtype=torch.float64)
    total = _all_reduce(fabric, total)
    return float(total[0] / total[1])


def _all_reduce(fabric: Fabric, value: Tensor) -> Tensor:
    """Return the sum over the processes."""
    total = fabric.all_reduce(value, reduce_op="sum")
    assert isinstance(total, Tensor)
    return total


def learning_rate(config: TrainingConfig, progress: float, history: Sequence[Epoch]) -> float:
    """Return the learning rate after `progress` epochs; a pure function, so nothing to restore.

    >>> learning_rate(TrainingConfig(schedule="cosine", max_epochs=10), 10.0, [])
    1e-05
    """
    rate = config.learning_rate
    if config.warmup and progress < config.warmup:
        return rate * (progress + 0.01) / (config.warmup + 0.01)
    if config.schedule == "cosine":
        done = min(1.0, progress / config.max_epochs)
        return rate * (0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2)
    if config.schedule == "plateau":
        best, waited = math.inf, 0
        for row in history:
            waited = 0 if row.valid_loss < best else waited + 1
            best = min(best, row.valid_loss)
            if waited and waited % config.plateau == 0:
                rate /= 2
    return rate


class _Log:
    """What the first process tells while it trains: a bar, TensorBoard; closed at any end."""

    def __enter__(self) -> "_Log":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()
        if self._writer:
            self._writer.close()

    def __init__(self, fabric: Fabric, job: Job) -> None:
        self._bar: Any = None
        self._writer: Any = None
        self._job = job
        if not fabric.is_global_zero:
            return
        if job.progress:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

            columns = ("{task.description}", BarColumn(), MofNCompleteColumn())
            self._bar = Progress(*columns, TimeRemainingColumn(), transient=True)
            self._bar.start()
        if job.tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                raise SettingError(
                    "TensorBoard is not installed; install it with: pip install 'earmark[tb]'"
                ) from None
            self._writer = SummaryWriter(job.out / "tensorboard")

    def begin(self, state: State) -> None:
        if self._bar:
            n_clips = len(self._job.train)
            self._task = self._bar.add_task(f"epoch {state.epoch}", total=n_clips)
            self._bar.advance(self._task, state.n_clips)

    def advance(self, n_clips: int) -> None:
        if self._bar:
            self._bar.advance(self._task, n_clips)

    def end(self, row: Epoch, state: State) -> None:
        if self._bar:
            self._bar.remove_task(self._task)
            best = " *" if state.best_epoch == row.epoch else ""
            self._bar.console.print(
                f"epoch {row.epoch:3d}  train {row.train_loss:.4f}  valid {row.valid_loss:.4f}"
                f"  {row.seconds:.1f} s{best}"
            )
        if self._writer:
            for name in ("train_loss", "valid_loss", "learning_rate"):
                self._writer.add_scalar(name, getattr(row, name), row.epoch)
            self._writer.flush()


def _copy(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
