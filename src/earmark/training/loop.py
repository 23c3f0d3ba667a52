"""The training loop: fit a network to tagged clips, stop early, write checkpoints, resume.

Conventions: an explicit loop on Lightning Fabric, which handles devices, precision, processes and
machines. All random numbers of a step are seeded by (seed, epoch, step, process), so a step can be
repeated bit for bit. A checkpoint is written atomically after every epoch, and at intervals within
one. Resuming from any checkpoint ends with the weights of an uninterrupted run, on the same machine
with the same number of threads and processes (with other numbers, up to rounding).

Where the training clips have events, the loss is computed per frame in place of per clip; with
pseudo-labels it is a weighted sum of both. Validation uses clip tags in any case.

Batch normalization uses the statistics of all processes, and the loss of a step is the mean over
their clips: two processes follow the losses of one up to rounding and the random numbers of dropout.
A batch can be split into micro-batches whose gradients are accumulated; batch normalization then
uses the statistics of a micro-batch, and its running statistics move as far per step as otherwise.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning_fabric import Fabric
from torch import Tensor

from earmark.data.batches import (
    cut,
    cut_share,
    draw_order,
    draw_seed,
    pool_targets,
    read_batch,
    read_frame_targets,
)
from earmark.data.features import normalise
from earmark.data.manifest import Manifest, clip_paths
from earmark.data.store import FeatureStore
from earmark.errors import SettingError
from earmark.nn.loss import clip_loss, frame_loss
from earmark.nn.model import Model
from earmark.nn.norm import MaskedBatchNorm
from earmark.runtime.machine import keep_memory, share_of_cores
from earmark.runtime.progress import ProgressBar
from earmark.training.augmentation import Batch, augment
from earmark.training.checkpoint import (
    CHECKPOINT,
    HISTORY,
    Checkpoint,
    Epoch,
    State,
    Weights,
    write_history,
)
from earmark.training.schedule import best_epoch, is_finished, learning_rate
from earmark.training.self_training import PseudoLabels
from earmark.training.settings import RunConfig, Settings
from earmark.training.validation import predict_clip_probs, validate

logger = logging.getLogger(__name__)

# Rows and a number of frames -> targets (batch, frames, classes).
FrameTargets = Callable[[Sequence[int], int], Tensor]


@dataclass(frozen=True)
class Job:
    """Everything that a process needs in order to train.

    Args:
        out: folder of checkpoint and history.
        store: folder of the features.
        settings: of the training, with the number of classes and the feature statistics.
        train: training clips.
        valid: validation clips.
        pseudo_labels: file of frame-level targets from teacher models.
        run: how to run.
    """

    out: Path
    store: Path
    settings: Settings
    train: Manifest
    valid: Manifest
    pseudo_labels: Path | None = None
    run: RunConfig = RunConfig()

    def requirements(self, n_processes: int) -> dict[str, str]:
        """Return what must be the same when a training resumes."""
        return {"data or settings": self.fingerprint(), "number of processes": str(n_processes)}

    def fingerprint(self) -> str:
        """Return a hash of settings, labels, files, tags, events and pseudo-labels."""
        data = [
            [m.files, m.tags, [[astuple(event) for event in clip] for clip in m.events]]
            for m in (self.train, self.valid)
        ]
        text = json.dumps([self.settings.deciding(), list(self.train.labels), data], sort_keys=True)
        pseudo = b"" if self.pseudo_labels is None else self.pseudo_labels.read_bytes()
        return hashlib.sha256(text.encode() + pseudo).hexdigest()

    def frame_targets(self, store: FeatureStore) -> "FrameTargets | None":
        """Return the function that reads frame-level targets, if there are any."""
        if self.pseudo_labels is not None:
            time_pool = self.settings.model.time_pool
            return PseudoLabels(self.pseudo_labels, store, self.train, time_pool).read
        if self.train.events:
            return partial(read_frame_targets, self.train, self.settings.features.frames)
        return None


class Fitted(NamedTuple):
    """The result of a training: the weights to use, and the history of its epochs."""

    weights: Weights
    history: Sequence[Epoch]

    @classmethod
    def read(cls, folder: Path) -> "Fitted":
        """Read the result from the checkpoint of a finished training."""
        checkpoint = Checkpoint.read(folder)
        return cls(checkpoint.best, checkpoint.state.history)


def fit(fabric: Fabric, job: Job) -> Fitted:
    """Train until the stopping criterion is met. Every process runs this."""
    config = job.settings.training
    torch.set_num_threads(config.threads or share_of_cores(fabric.world_size))
    torch.manual_seed(config.seed)
    store = FeatureStore.open(job.store, files=clip_paths(job.train, job.valid))
    model = Model(job.settings.model)
    adam = torch.optim.AdamW(
        model.parameters(), config.learning_rate, weight_decay=config.weight_decay
    )
    wrapped, optimizer = fabric.setup(model, adam)
    ema = _MovingAverage(model, config.ema_decay)
    frame_targets = job.frame_targets(store)
    requirements = job.requirements(fabric.world_size)
    state, best = State(), _copy(model)

    if job.run.resume and (job.out / CHECKPOINT).exists():
        saved = Checkpoint.read(job.out, requirements)
        state, best = saved.state, dict(saved.best)
        model.load_state_dict(dict(saved.model))
        adam.load_state_dict(adam.state_dict() | {"state": saved.optimizer})
        ema.load(saved.ema)
        if fabric.is_global_zero:  # it may have been killed before it wrote the table
            write_history(job.out / HISTORY, state.history)
            logger.info("Resuming at epoch %d, step %d.", state.epoch, state.step)

    def checkpoint() -> float:
        if fabric.is_global_zero:
            moments = adam.state_dict()["state"]
            weights = model.state_dict()
            Checkpoint(state, weights, best, ema.weights(), moments, requirements).write(job.out)
        return time.monotonic()

    written = time.monotonic()
    with keep_memory(), _Recorder(fabric, job) as recorder:
        while not is_finished(state.history, config):
            started = time.monotonic() - state.seconds
            wrapped.train()
            order = draw_order(job.train.targets, config.seed, state.epoch, config.balanced)
            # With more processes than clips in the last batch, one would have nothing to do.
            steps = [r for r in cut(order, config.batch_size) if len(r) >= fabric.world_size]
            with recorder.progress(state) as bar:
                for rows in steps[state.step :]:
                    progress = state.epoch + state.step / len(steps)
                    for group in adam.param_groups:
                        group["lr"] = learning_rate(config, progress, state.history)
                    loss = _step(fabric, wrapped, optimizer, job, store, frame_targets, rows, state)
                    ema.update(model, state.epoch * len(steps) + state.step)
                    state.loss_sum += loss * len(rows)
                    state.n_clips += len(rows)
                    state.step += 1
                    bar.advance(len(rows))
                    if time.monotonic() - written > config.checkpoint_seconds:
                        state.seconds = time.monotonic() - started
                        written = checkpoint()
            row = _end_epoch(fabric, ema.model, job, store, state, started)
            state = State(epoch=state.epoch + 1, history=[*state.history, row])
            is_best = best_epoch(state.history, config.monitor) == row.epoch
            if is_best or config.checkpoint == "last":
                best = _copy(ema.model)
            written = checkpoint()
            recorder.record(row, state.history, is_best)
    fabric.barrier()
    return Fitted({name: value.cpu() for name, value in best.items()}, state.history)


def _end_epoch(
    fabric: Fabric, model: Model, job: Job, store: FeatureStore, state: State, started: float
) -> Epoch:
    """Validate; return the row of the epoch."""
    config, features = job.settings.training, job.settings.features
    batch_size = config.micro_batch or config.batch_size
    probs = predict_clip_probs(fabric, model, job.valid, store, features, batch_size)
    _check_finite(probs, state)
    valid = validate(probs, job.valid, batch_size)
    return Epoch(
        epoch=state.epoch,
        learning_rate=learning_rate(config, state.epoch, state.history),
        train_loss=state.loss_sum / max(1, state.n_clips),
        valid_loss=valid.loss,
        valid_map=valid.mean_average_precision,
        valid_f1=valid.f1,
        seconds=time.monotonic() - started,
    )


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
    """Take one step on this process's part of a batch; return the mean loss of the whole batch."""
    config, n_processes = job.settings.training, fabric.world_size
    seed = draw_seed(config.seed, state.epoch, state.step, fabric.global_rank)
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)  # for dropout
    own_rows = rows[fabric.global_rank :: n_processes]
    clips = Batch(*read_batch(store, job.train, own_rows))
    if frame_targets is not None:
        # Clip-level targets are augmented along with them, as further classes that are constant
        # over the frames: (batch, frames, 2 * classes).
        of_frames = frame_targets(own_rows, clips.log_mel.shape[1])
        of_clips = clips.targets.unsqueeze(1).expand_as(of_frames)
        clips = clips._replace(targets=torch.cat([of_frames, of_clips], 2))
    clips = augment(clips, job.settings.augment, job.settings.features.frames, generator)
    log_mel, mask, targets = clips
    if frame_targets is not None:
        targets = pool_targets(targets, mask, job.settings.model.time_pool)
    frame_weight = 1.0 if job.train.events else config.frame_loss_weight
    log_mel = normalise(log_mel, job.settings.features)
    log_mel, mask, targets = fabric.to_device((log_mel, mask, targets))
    pieces = cut_share(len(rows), config.micro_batch, fabric.global_rank, n_processes)
    _share_updates(model, len(pieces))
    optimizer.zero_grad()
    total = torch.zeros((), device=fabric.device)
    for piece in pieces:
        own_mask = None if mask is None or bool(mask[piece].all()) else mask[piece]
        with fabric.no_backward_sync(model, enabled=piece is not pieces[-1]):
            prediction = model(log_mel[piece], own_mask)
            clip_probs = prediction.clip_probs
            _check_finite(clip_probs, state)
            of_piece = targets[piece].to(clip_probs.dtype)
            if frame_targets is None:
                loss = clip_loss(clip_probs, of_piece)
            else:
                of_frames, of_clips = of_piece.chunk(2, 2)
                loss = frame_weight * frame_loss(prediction.frame_probs, of_frames, prediction.mask)
                loss = loss + (1 - frame_weight) * clip_loss(clip_probs, of_clips[:, 0])
            # Pieces differ by a clip; the mean is over clips, and processes are averaged.
            loss = loss * (len(clip_probs) * n_processes / len(rows))
            fabric.backward(loss)
        total += loss.detach()
    if config.gradient_clip:
        fabric.clip_gradients(model, optimizer, max_norm=config.gradient_clip)
    optimizer.step()
    summed = fabric.all_reduce(total, reduce_op="sum")
    assert isinstance(summed, Tensor)
    return summed.item() / n_processes


def _check_finite(clip_probs: Tensor, state: State) -> None:
    if not clip_probs.isfinite().all():
        raise SettingError(
            f"Training diverged in epoch {state.epoch}: the network outputs values that are not "
            "finite; try a smaller training.learning_rate, or training.gradient_clip=5."
        )


class _MovingAverage:
    """The weights that are validated: those of the last step, or their moving average."""

    def __init__(self, model: Model, decay: float) -> None:
        self.decay = decay
        self.model = deepcopy(model) if decay else model

    @torch.no_grad()
    def update(self, model: Model, n_steps: int) -> None:
        """Add the weights after a step; the decay is lower at first, to forget the initial ones."""
        if not self.decay:
            return
        decay = min(self.decay, (1 + n_steps) / (10 + n_steps))
        pairs = zip(self.model.state_dict().values(), model.state_dict().values(), strict=True)
        for own, new in pairs:
            if own.is_floating_point():
                own.lerp_(new, 1 - decay)
            else:
                own.copy_(new)

    def weights(self) -> Weights:
        """Return what a checkpoint must contain."""
        return self.model.state_dict() if self.decay else {}

    def load(self, weights: Weights) -> None:
        if self.decay:
            self.model.load_state_dict(dict(weights))


def _share_updates(model: torch.nn.Module, n_micro_batches: int) -> None:
    for module in model.modules():
        if isinstance(module, MaskedBatchNorm):
            module.share_update(n_micro_batches)


class _Recorder:
    """What the first process reports: progress bars, log lines, history.tsv, TensorBoard."""

    def __init__(self, fabric: Fabric, job: Job) -> None:
        self._job = job
        self._is_first = fabric.is_global_zero
        self._writer: Any = None
        if self._is_first and job.run.tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                raise SettingError(
                    "TensorBoard is not installed; install it with: pip install 'earmark[tb]'"
                ) from None
            self._writer = SummaryWriter(job.out / "tensorboard")

    def __enter__(self) -> "_Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer:
            self._writer.close()

    def progress(self, state: State) -> ProgressBar:
        """Return the progress bar of an epoch."""
        shown = self._job.run.progress and self._is_first
        return ProgressBar(f"epoch {state.epoch}", len(self._job.train), state.n_clips, shown)

    def record(self, row: Epoch, history: Sequence[Epoch], is_best: bool) -> None:
        """Report a finished epoch."""
        if not self._is_first:
            return
        write_history(self._job.out / HISTORY, history)
        logger.info(
            "epoch %3d  train loss %.4f  validation loss %.4f  mAP %.3f  F1 %.3f  %.1f s%s",
            row.epoch,
            row.train_loss,
            row.valid_loss,
            row.valid_map,
            row.valid_f1,
            row.seconds,
            "  (best)" if is_best else "",
        )
        if self._writer:
            for name in ("train_loss", "valid_loss", "valid_map", "valid_f1", "learning_rate"):
                self._writer.add_scalar(name, getattr(row, name), row.epoch)
            self._writer.flush()


def _copy(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
