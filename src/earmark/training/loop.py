"""The training loop: fit a network to tagged clips, stop early, write checkpoints, resume.

Conventions: an explicit loop on Lightning Fabric, which handles devices, precision, processes and
machines. All random numbers of a step are seeded by (seed, epoch, step, process), so a step can be
repeated bit for bit. A checkpoint is written atomically after every epoch, and at intervals within
one. Resuming from any checkpoint ends with the weights of an uninterrupted run, on the same machine
with the same number of threads and processes (with other numbers, up to rounding).

The loss of tagged clips is that of the network (`Network.loss`). Where the training clips have
events, it is computed per frame in place of per clip; with pseudo-labels it is a weighted sum of
both. From tags alone, it may have two more terms: the loss of clips at the lower levels of
hierarchical pooling, and the contrast of frames. Validation uses clip tags in any case.

Batch normalization uses the statistics of all processes, and the loss of a step is the mean over
their clips: two processes follow the losses of one, except for rounding and dropout's randomness.
A batch can be split into micro-batches whose gradients are accumulated; batch normalization then
uses the statistics of a micro-batch, and its running statistics move as far per step as otherwise.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import astuple, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from earmark.data.batches import (
    clip_window,
    combine_seeds,
    epoch_order,
    group_by_length,
    pool_targets,
    read_batch,
    read_frame_targets,
    split_rows,
    split_share,
)
from earmark.data.features import Normalise
from earmark.data.manifest import Manifest, clip_paths
from earmark.data.store import FeatureStore
from earmark.errors import DataError, SettingError, refusing
from earmark.nn.layers import MaskedBatchNorm
from earmark.nn.loss import clip_loss, contrast_loss, frame_loss
from earmark.nn.network import Network, Prediction
from earmark.runtime.cores import share_of_cores
from earmark.runtime.memory import keep_memory
from earmark.runtime.progress import ProgressBar, format_duration
from earmark.training.augmentation import Batch, augment
from earmark.training.checkpoint import (
    CHECKPOINT,
    HISTORY,
    Checkpoint,
    Epoch,
    Fitted,
    State,
    Weights,
    write_history,
)
from earmark.training.config import OPTIMIZERS, RunConfig, TrainingConfig
from earmark.training.record import RunRecord
from earmark.training.schedule import (
    best_epoch,
    epochs_left,
    is_finished,
    learning_rate,
    member_epochs,
)
from earmark.training.self_training import PseudoLabels
from earmark.training.settings import Settings
from earmark.training.transfer import (
    Origin,
    hold_statistics,
    kept_tensors,
    load_kept,
    open_origin,
    parameter_groups,
)
from earmark.training.validation import Validation, predict_clip_probs, validate

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
        origin: the trained model to start from.

    >>> clips = Manifest(["a.wav"], [Path("a.wav")], [["dog"]], ["dog"])
    >>> Job(Path("run"), Path("features"), Settings(), clips, clips).requirements(1).keys()
    dict_keys(['data or settings', 'number of processes'])
    """

    out: Path
    store: Path
    settings: Settings
    train: Manifest
    valid: Manifest
    pseudo_labels: Path | None = None
    run: RunConfig = field(default_factory=RunConfig)
    origin: Origin | None = None

    def requirements(self, n_processes: int) -> dict[str, str]:
        """Return what must be the same when a training resumes."""
        return {"data or settings": self.fingerprint(), "number of processes": str(n_processes)}

    def fingerprint(self) -> str:
        """Return a hash of settings, labels, files, tags, events, pseudo-labels and origin."""
        data = [
            [m.files, m.tags, [[astuple(event) for event in clip] for clip in m.events]]
            for m in (self.train, self.valid)
        ]
        text = json.dumps([self.settings.deciding(), list(self.train.labels), data], sort_keys=True)
        pseudo = b"" if self.pseudo_labels is None else self.pseudo_labels.read_bytes()
        origin = b"" if self.origin is None else self.origin.sha256.encode()
        return hashlib.sha256(text.encode() + pseudo + origin).hexdigest()

    def record(self, store: FeatureStore) -> RunRecord:
        """Return what the model file will need besides the checkpoint."""
        return RunRecord(
            fingerprint=self.fingerprint(),
            store=self.store,
            settings=self.settings,
            window=clip_window(store, self.train, self.settings.features),
            valid=self.valid,
            n_train=len(self.train),
            n_negatives=len(self.train.excerpts),
            supervision="strong" if self.train.events else "weak",
            licence=self.run.licence,
            attribution=tuple(self.run.attribution),
            origin={} if self.origin is None else self.origin.about(),
        )

    def open_store(self) -> FeatureStore:
        """Open the features, with the excerpts that clips are."""
        store = FeatureStore.open(self.store, files=clip_paths(self.train, self.valid))
        return store.with_excerpts({**self.train.excerpts, **self.valid.excerpts})

    def frame_targets(self, store: FeatureStore) -> "FrameTargets | None":
        """Return the function that reads frame-level targets, if there are any."""
        if self.pseudo_labels is not None:
            time_pool = self.settings.model.time_pool
            return PseudoLabels(self.pseudo_labels, store, self.train, time_pool).read
        if self.train.events:
            return partial(read_frame_targets, self.train, self.settings.features.grid)
        return None


def fit(fabric: Fabric, job: Job) -> Fitted:
    """Train until the stopping criterion is met.

    Every process of the fabric runs this; `earmark.training.launch.run_job` starts them.
    """
    config = job.settings.training
    torch.set_num_threads(config.threads or share_of_cores(fabric.world_size))
    torch.manual_seed(config.seed)
    trainer = _Trainer(fabric, job)
    if job.run.resume and (job.out / CHECKPOINT).exists():
        trainer.resume()
    if fabric.is_global_zero:  # once the checkpoint is known to be of the same training
        job.record(trainer.store).write(job.out)
    with keep_memory(), _Recorder(fabric, job) as recorder:
        while not is_finished(trainer.state.history, config, len(job.train)):
            trainer.run_epoch(recorder)
    fabric.barrier()
    weights = [{name: value.cpu() for name, value in own.items()} for own in trainer.best]
    return Fitted(weights, trainer.state.history)


class _Trainer:
    """A network, its optimizer and the state of its training, in one process."""

    def __init__(self, fabric: Fabric, job: Job) -> None:
        config = job.settings.training
        self.fabric, self.job = fabric, job
        self.store = job.open_store()
        self.frame_targets = job.frame_targets(self.store)
        if self.frame_targets is not None and (config.level_loss_weight or config.contrast_weight):
            raise SettingError(
                "training.level_loss_weight and training.contrast_weight are for training from "
                "tags; set them to 0 where frames have targets, of events or of teacher models. "
                f"Got {config.level_loss_weight} and {config.contrast_weight}."
            )
        self.normalise = Normalise(job.settings.features.mean, job.settings.features.std)
        self.model = job.settings.model.build()
        self.kept: frozenset[str] = frozenset()  # tensors of the model to start from
        parameters: Any = self.model.parameters()
        if job.origin is not None:
            self.kept = kept_tensors(job.settings.model)
            load_kept(self.model, open_origin(job.origin.file).weights, self.kept)
            parameters = parameter_groups(self.model, self.kept, config.kept_rate)
        self.inner = OPTIMIZERS[config.optimizer](
            parameters, lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self.wrapped: Any
        self.optimizer: Any
        self.wrapped, self.optimizer = fabric.setup(self.model, self.inner)
        self.ema = _MovingAverage(self.model, config.ema_decay)
        self.state = State()
        self.best: list[Weights] = []  # of each of `member_epochs`
        self.requirements = job.requirements(fabric.world_size)
        self.last_checkpoint = time.monotonic()

    def resume(self) -> None:
        """Continue from the checkpoint."""
        saved = Checkpoint.read(self.job.out, self.requirements)
        with refusing(f"The checkpoint in {self.job.out} is not of this network", DataError):
            self.state, self.best = saved.state, list(saved.best)
            self.model.load_state_dict(dict(saved.model))
            self.inner.load_state_dict(self.inner.state_dict() | {"state": saved.optimizer})
            self.ema.load(saved.ema)
        if self.fabric.is_global_zero:  # it may have been killed before it wrote the table
            write_history(self.job.out / HISTORY, self.state.history)
            logger.info("Resuming at epoch %d, step %d.", self.state.epoch, self.state.step)

    def write_checkpoint(self) -> None:
        """Write the checkpoint, in the first process."""
        if self.fabric.is_global_zero:
            Checkpoint(
                self.state,
                self.model.state_dict(),
                self.best,
                self.ema.weights(),
                self.inner.state_dict()["state"],
                self.requirements,
            ).write(self.job.out)
        self.last_checkpoint = time.monotonic()

    def run_epoch(self, recorder: "_Recorder") -> None:
        """Train for the rest of an epoch, validate, and write a checkpoint."""
        config, state = self.job.settings.training, self.state
        started = time.monotonic() - state.seconds
        self.wrapped.train()
        if self.kept and not config.kept_rate:
            hold_statistics(self.model, self.kept)
        targets, how = self.job.train.targets, (config.class_ratio, config.class_order)
        order = epoch_order(targets, config.seed, state.epoch, config.balanced, *how)
        if config.group_by_length:
            lengths = [len(self.store[file]) for file in self.job.train.files]
            order = group_by_length(order, lengths, config.batch_size, config.seed, state.epoch)
        # With more processes than clips in the last batch, one would have nothing to do.
        steps = [
            r for r in split_rows(order, config.batch_size) if len(r) >= self.fabric.world_size
        ]
        with recorder.progress(state) as bar:
            for rows in steps[state.step :]:
                progress = state.epoch + state.step / len(steps)
                for group in self.inner.param_groups:
                    rate = learning_rate(config, progress, state.history)
                    group["lr"] = rate * group.get("factor", 1.0)
                state.loss_sum += self.step(rows) * len(rows)
                self.ema.update(self.model, state.epoch * len(steps) + state.step)
                state.n_clips += len(rows)
                state.step += 1
                bar.advance(len(rows))
                if time.monotonic() - self.last_checkpoint > config.checkpoint_seconds:
                    state.seconds = time.monotonic() - started
                    self.write_checkpoint()
        valid = self.validate()
        row = Epoch(
            epoch=state.epoch,
            learning_rate=learning_rate(config, state.epoch, state.history),
            train_loss=state.loss_sum / max(1, state.n_clips),
            valid_loss=valid.loss,
            valid_map=valid.mean_average_precision,
            valid_f1=valid.f1,
            seconds=time.monotonic() - started,
        )
        self.state = State(epoch=state.epoch + 1, history=[*state.history, row])
        kept = dict(zip(member_epochs(state.history, config), self.best, strict=True))
        members = member_epochs(self.state.history, config)
        if row.epoch in members:
            kept[row.epoch] = _copy(self.ema.model)
        self.best = [kept[epoch] for epoch in members]
        self.write_checkpoint()
        recorder.record(self.state.history)

    def validate(self) -> Validation:
        """Return loss and metrics over the validation clips."""
        job, config = self.job, self.job.settings.training
        window = clip_window(self.store, job.train, job.settings.features)
        probs = predict_clip_probs(
            self.fabric, self.ema.model, job.valid, self.store, job.settings.features, window
        )
        self.check_finite(probs)
        return validate(probs, job.valid, config.micro_batch or config.batch_size)

    def step(self, rows: Sequence[int]) -> float:
        """Take a step on this process's part of a batch; return the loss of the whole batch."""
        fabric, job, n_processes = self.fabric, self.job, self.fabric.world_size
        config, features = job.settings.training, job.settings.features
        seed = combine_seeds(config.seed, self.state.epoch, self.state.step, fabric.global_rank)
        generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)  # for dropout
        clips = self.read_clips(rows[fabric.global_rank :: n_processes])
        log_mel, mask, targets = augment(
            clips, job.settings.augment, features.grid, generator, features.kind
        )
        if self.frame_targets is not None:
            targets = pool_targets(targets, mask, job.settings.model.time_pool)
        log_mel = self.normalise(log_mel)
        log_mel, mask, targets = fabric.to_device((log_mel, mask, targets))

        pieces = split_share(len(rows), config.micro_batch, fabric.global_rank, n_processes)
        _share_updates(self.wrapped, len(pieces))
        self.optimizer.zero_grad()
        total = torch.zeros((), device=fabric.device)
        for piece in pieces:
            own_mask = None if mask is None or bool(mask[piece].all()) else mask[piece]
            with fabric.no_backward_sync(self.wrapped, enabled=piece is not pieces[-1]):
                prediction = self.wrapped(log_mel[piece], own_mask)
                self.check_finite(prediction.clip_probs)
                loss = self.loss(prediction, targets[piece])
                # Pieces differ by a clip; the mean is over clips, and processes are averaged.
                loss = loss * (len(prediction.clip_probs) * n_processes / len(rows))
                fabric.backward(loss)
            total += loss.detach()
        if config.gradient_clip:
            fabric.clip_gradients(self.wrapped, self.optimizer, max_norm=config.gradient_clip)
        self.optimizer.step()
        summed = fabric.all_reduce(total, reduce_op="sum")
        assert isinstance(summed, Tensor)
        return summed.item() / n_processes

    def read_clips(self, rows: Sequence[int]) -> Batch:
        """Return the clips of a step with their targets.

        Frame-level targets are followed by the clip-level ones, as further classes that are
        constant over the frames: (batch, frames, 2 * classes). So both are augmented together.
        """
        clips = Batch(*read_batch(self.store, self.job.train, rows))
        if self.frame_targets is None:
            return clips
        of_frames = self.frame_targets(rows, clips.log_mel.shape[1])
        of_clips = clips.targets.unsqueeze(1).expand_as(of_frames)
        return clips._replace(targets=torch.cat([of_frames, of_clips], 2))

    def loss(self, prediction: Prediction, targets: Tensor) -> Tensor:
        """Return the loss of a micro-batch."""
        clip_probs = prediction.clip_probs
        targets = targets.to(clip_probs.dtype)
        config = self.job.settings.training
        if self.frame_targets is None:
            loss, levels = self.model.loss(prediction, targets), config.level_loss_weight
            if levels:
                loss = (1 - levels) * loss + levels * self.model.level_loss(prediction, targets)
            if config.contrast_weight:
                contrast = contrast_loss(prediction.frame_probs, targets, prediction.mask)
                loss = loss + config.contrast_weight * contrast
            return loss
        job = self.job
        weight = 1.0 if job.train.events else job.settings.training.frame_loss_weight
        of_frames, of_clips = targets.chunk(2, 2)
        loss = weight * frame_loss(prediction.frame_probs, of_frames, prediction.mask)
        return loss + (1 - weight) * clip_loss(clip_probs, of_clips[:, 0])

    def check_finite(self, clip_probs: Tensor) -> None:
        """Raise if training has diverged."""
        if not clip_probs.isfinite().all():
            raise SettingError(
                f"Training diverged in epoch {self.state.epoch}: the network outputs values that "
                "are not finite; try a smaller training.learning_rate, or training.gradient_clip=5."
            )


class _MovingAverage:
    """The weights that are validated: those of the last step, or their moving average."""

    def __init__(self, model: Network, decay: float) -> None:
        self.decay = decay
        self.model = deepcopy(model) if decay else model

    @torch.no_grad()
    def update(self, model: Network, n_steps: int) -> None:
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

    def record(self, history: Sequence[Epoch]) -> None:
        """Report the last epoch of the history."""
        row = history[-1]
        if not self._is_first:
            return
        write_history(self._job.out / HISTORY, history)
        logger.info("%s", epoch_line(history, self._job.settings.training, len(self._job.train)))
        if self._writer:
            for name in ("train_loss", "valid_loss", "valid_map", "valid_f1", "learning_rate"):
                self._writer.add_scalar(name, getattr(row, name), row.epoch)
            self._writer.flush()


def epoch_line(history: Sequence[Epoch], config: TrainingConfig, n_clips: int) -> str:
    """Return the log line of the last epoch: its losses and metrics, and when training will stop.

    >>> rows = [Epoch(i, 1e-3, 0.5, loss, 0.7, 0.6, 90.0) for i, loss in enumerate([0.4, 0.6])]
    >>> epoch_line(rows[:1], TrainingConfig(max_epochs=20), n_clips=100)
    'epoch 0 (1/20)  loss 0.5000  valid 0.4000  mAP 0.700  F1 0.600  best; at most 28 min left'
    >>> epoch_line(rows, TrainingConfig(max_epochs=20), n_clips=100)
    'epoch 1 (2/20)  loss 0.5000  valid 0.6000  mAP 0.700  F1 0.600  stops in 9 epochs, 14 min, ...'
    >>> epoch_line(rows, TrainingConfig(max_epochs=4), n_clips=100).partition("  F1 ")[2]
    '0.600  stops in 2 epochs, 3 min'
    """
    row, done = history[-1], len(history)
    is_best = best_epoch(history, config.monitor) == row.epoch
    # If it improves, training may go on to the last epoch; otherwise until patience ends.
    left = config.max_epochs - done if is_best else epochs_left(history, config, n_clips)
    time_left = format_duration(left * sum(epoch.seconds for epoch in history) / done)
    if not left:
        outlook = "stops"
    elif is_best:
        outlook = f"at most {time_left} left"
    else:
        outlook = f"stops in {left} epochs, {time_left}"
        if done + left < config.max_epochs:  # otherwise an improvement changes nothing
            outlook += ", unless it improves"
    return (
        f"epoch {row.epoch} ({done}/{config.max_epochs})  loss {row.train_loss:.4f}  "
        f"valid {row.valid_loss:.4f}  mAP {row.valid_map:.3f}  F1 {row.valid_f1:.3f}  "
        f"{'best; ' if is_best else ''}{outlook}"
    )


def _copy(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
