"""How a network is trained (`TrainingConfig`), and how and where a training runs (`RunConfig`).

The first decides what is learned and is the section `training` of the settings; the second does
not.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from earmark.config import MAX_INTEGER, check_limits, repr_of_changes
from earmark.data.batches import CLASS_ORDERS
from earmark.errors import SettingError, choose

# Name of an optimizer -> what makes it.
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.AdamW,
    "sgd": partial(torch.optim.SGD, momentum=0.9, nesterov=True),
}
SCHEDULES = ("constant", "cosine", "plateau", "exponential")
CHECKPOINTS = ("best", "last")
MONITORS = ("loss", "map", "f1")
PRECISIONS = ("32-true", "16-mixed", "bf16-mixed", "64-true", "auto")
PSEUDO_LABELS = ("events", "scores")
# The largest values: beyond, numbers do not fit, or threads cannot be started.
LIMITS: dict[str, float] = {
    "seed": MAX_INTEGER - 1,
    "threads": 1024,
    **dict.fromkeys(("members", "generations"), 1000),
    **dict.fromkeys(
        ("batch_size", "micro_batch", "max_epochs", "min_steps", "patience", "class_ratio"), 2**31
    ),
    **dict.fromkeys(("plateau", "decay_epochs"), 2**31),
    **dict.fromkeys(("warmup", "checkpoint_seconds"), 1e9),
    "learning_rate": 3e38,  # of single precision; far below it, a training diverges and says so
    **dict.fromkeys(("gradient_clip", "weight_decay", "contrast_weight"), 1e6),
    "kept_rate": 1e6,
}


@dataclass(frozen=True)
class TrainingConfig:
    """How a network is trained; the defaults are those of the paper.

    Args:
        batch_size: clips per step, over all processes.
        micro_batch: clips per forward pass, over all processes; 0 is the whole batch. Gradients
            are accumulated over the batch, but batch normalization uses the statistics of each
            micro-batch.
        learning_rate: of the optimizer.
        optimizer: "adam", or "sgd" with a Nesterov momentum of 0.9.
        max_epochs: largest number of passes over the training clips.
        min_steps: training does not stop before this number of steps: with few clips,
            `max_epochs` is raised until it reaches them (`for_clips`), and early stopping waits.
        patience: epochs without an improvement of the monitored value after which training stops.
        monitor: the validation value that decides the best epoch, early stopping and, unless
            `plateau_monitor` is another, the plateau schedule: "loss", "map" (mean average
            precision of the clip probabilities) or "f1" (micro F1 of the clip tags at a threshold
            of 0.5).
        checkpoint: which weights to use, those of the "best" epoch or of the "last".
        members: how many epochs to use, as an ensemble whose probabilities are averaged: the best
            ones by the monitored value, or the last ones; 1 is a single network.
        seed: of initial weights, order of clips, dropout and augmentation.
        balanced: sample classes uniformly instead of clips.
        class_ratio: with `balanced`, sample frequent classes more often: a class of n clips weighs
            min(n // class_ratio + 1, 5). 0 is uniformly.
        class_order: with `balanced`, take the classes in "rounds", each as often as it weighs, or
            draw the class of each clip at "random".
        group_by_length: put clips of similar length into a batch: less padding, so that an epoch of
            clips of different lengths takes less time.
        schedule: of the learning rate: "constant", "cosine" (falls to 1 % at max_epochs), "plateau"
            (times `plateau_factor` after every `plateau` epochs without an improvement) or
            "exponential" (times `decay` after every `decay_epochs` epochs).
        plateau: epochs without an improvement, of the schedule "plateau".
        plateau_factor: of the learning rate, for the schedule "plateau".
        plateau_monitor: the validation value that has to improve for the schedule "plateau": one of
            those of `monitor`, or "same", which is `monitor`.
        decay: factor of the learning rate, for the schedule "exponential".
        decay_epochs: epochs between its steps, for the schedule "exponential".
        warmup: epochs over which the learning rate rises to its value.
        gradient_clip: largest norm of the gradient; 0 is no clipping.
        weight_decay: decoupled, as in AdamW; 0 is plain Adam. With "sgd" it is added to the
            gradient.
        generations: trainings in a row, each with the model before it as its teacher
            (self-training); 1 is no self-training, unless teachers are given.
        pseudo_labels: what teachers teach in self-training: "events" (where they detect a tagged
            sound) or "scores" (their frame probabilities).
        frame_loss_weight: weight of the frame-level loss in self-training, 0 to 1; the clip-level
            loss has the rest.
        level_loss_weight: weight of the loss of clips at the lower levels of hierarchical pooling,
            0 to 1; the loss of the clip probabilities has the rest.
        contrast_weight: of a further loss, by which the highest and the lowest frames of a tagged
            class are to differ; 0 is none.
        ema_decay: decay per step of the exponential moving average of the weights, such as 0.999;
            the averaged weights are then validated and saved. 0 is no averaging.
        kept_rate: of a training that starts from a trained model, the factor of the learning rate
            for the part that is kept; 0 freezes it.
        precision: "32-true", "16-mixed", "bf16-mixed", "64-true", or "auto": "bf16-mixed" where the
            device computes faster in it, "32-true" elsewhere. Resuming and finished comparisons
            take "auto" for "bf16-mixed".
        threads: per process; 0 divides the cores among the processes.
        checkpoint_seconds: a checkpoint is written after every epoch, and this often within one.

    >>> TrainingConfig(schedule="cosine").max_epochs
    100
    >>> TrainingConfig(monitor="losses")
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: There is no training.monitor 'losses'; did you mean 'loss'? ...
    """

    batch_size: int = 128
    micro_batch: int = 0
    learning_rate: float = 1e-3
    max_epochs: int = 100
    min_steps: int = 0
    patience: int = 10
    monitor: str = "loss"
    checkpoint: str = "best"
    members: int = 1
    seed: int = 0
    balanced: bool = False
    class_ratio: int = 0
    class_order: str = "rounds"
    schedule: str = "constant"
    plateau: int = 3
    decay: float = 0.9
    decay_epochs: int = 2
    warmup: float = 0.0
    gradient_clip: float = 0.0
    weight_decay: float = 0.0
    generations: int = 1
    pseudo_labels: str = "events"
    frame_loss_weight: float = 0.5
    ema_decay: float = 0.0
    precision: str = "32-true"
    threads: int = 0
    checkpoint_seconds: float = 60.0
    optimizer: str = "adam"
    plateau_monitor: str = "same"
    plateau_factor: float = 0.5
    level_loss_weight: float = 0.0
    contrast_weight: float = 0.0
    kept_rate: float = 0.1
    group_by_length: bool = False

    __repr__ = repr_of_changes

    def __post_init__(self) -> None:
        choose("training.optimizer", self.optimizer, OPTIMIZERS)
        choose("training.schedule", self.schedule, SCHEDULES)
        choose("training.precision", self.precision, PRECISIONS)
        choose("training.checkpoint", self.checkpoint, CHECKPOINTS)
        choose("training.monitor", self.monitor, MONITORS)
        choose("training.plateau_monitor", self.plateau_monitor, ("same", *MONITORS))
        choose("training.pseudo_labels", self.pseudo_labels, PSEUDO_LABELS)
        choose("training.class_order", self.class_order, CLASS_ORDERS)
        from_1 = ("batch_size", "max_epochs", "patience", "members", "plateau", "decay_epochs")
        for name in (*from_1, "generations"):
            if getattr(self, name) < 1:
                raise SettingError(f"training.{name} must be 1 or more. Got {getattr(self, name)}.")
        if not 0 < self.learning_rate < math.inf:
            raise SettingError(f"training.learning_rate must be above 0. Got {self.learning_rate}.")
        rest = (
            "micro_batch",
            "min_steps",
            "class_ratio",
            "seed",
            "warmup",
            "gradient_clip",
            "weight_decay",
            "ema_decay",
            "threads",
            "checkpoint_seconds",
            "contrast_weight",
            "kept_rate",
        )
        for name in rest:
            if not 0 <= getattr(self, name) < math.inf:
                raise SettingError(f"training.{name} must be 0 or more. Got {getattr(self, name)}.")
        check_limits("training.", self, LIMITS)
        for name in ("frame_loss_weight", "level_loss_weight"):
            if not 0 <= getattr(self, name) <= 1:
                raise SettingError(f"training.{name} must be 0 to 1. Got {getattr(self, name)}.")
        for name in ("decay", "plateau_factor"):
            if not 0 < getattr(self, name) <= 1:
                raise SettingError(
                    f"training.{name} must be above 0, up to 1. Got {getattr(self, name)}."
                )
        if not self.balanced and (self.class_ratio or self.class_order != CLASS_ORDERS[0]):
            raise SettingError(
                "training.class_ratio and training.class_order need training.balanced=true. "
                f"Got {self.class_ratio} and {self.class_order!r}."
            )
        if self.ema_decay >= 1:
            raise SettingError(f"training.ema_decay must be below 1. Got {self.ema_decay}.")

    def steps_per_epoch(self, n_clips: int) -> int:
        """Return the number of steps of an epoch of `n_clips` clips.

        >>> TrainingConfig(batch_size=32).steps_per_epoch(100)
        4
        """
        return max(1, -(-n_clips // self.batch_size))

    def for_clips(self, n_clips: int) -> "TrainingConfig":
        """Return a copy whose `max_epochs` reaches `min_steps` steps of `n_clips` training clips.

        >>> TrainingConfig(batch_size=32, max_epochs=16, min_steps=240).for_clips(100).max_epochs
        60
        """
        needed = -(-self.min_steps // self.steps_per_epoch(n_clips))
        return replace(self, max_epochs=max(self.max_epochs, needed))


@dataclass(frozen=True)
class RunConfig:
    """How and where a training runs, and what it writes: nothing that changes what is learned.

    Args:
        store: folder of the computed features, which several trainings may share; by default
            `features` in the output folder.
        scheduler: of a Dask cluster that computes the features: "local:4" or an address, as in
            `earmark.runtime.cluster`; the training itself runs where it is started.
        resume: continue from the checkpoint in the output folder, if there is one.
        device: "auto", "cpu", "cuda" or "cuda:1".
        devices: processes on this machine, one per device.
        nodes: machines, each running the same command under torchrun or SLURM.
        progress: show progress bars where standard error is a terminal.
        report: log the validation scores per class at the end, with warnings about weak classes.
        tensorboard: write TensorBoard logs to `tensorboard` in the output folder.
        licence: of the weights, written to the model file.
        attribution: credits for the recordings, written to the model file.

    >>> RunConfig(device="cpu", resume=True).devices
    1
    """

    store: str | os.PathLike[str] | None = None
    scheduler: str | None = None
    resume: bool = False
    device: str = "auto"
    devices: int = 1
    nodes: int = 1
    progress: bool = False
    report: bool = True
    tensorboard: bool = False
    licence: str = ""
    attribution: tuple[str, ...] = ()

    __repr__ = repr_of_changes

    def __post_init__(self) -> None:
        for name in ("devices", "nodes"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} must be 1 or more. Got {getattr(self, name)!r}.")
