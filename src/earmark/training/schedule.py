"""What follows from the history of a training: the epochs to use, when to stop, the learning rate.

Conventions: pure functions of the settings and the rows of the history, so a resumed training has
nothing to restore. The monitored value (`training.monitor`) improves only where it is strictly
better than in all epochs before. Of epochs with the same mAP or F1, which is 0 in many of them at
first, those with the lower validation loss are better, then the later ones; of the same loss, the
first.
"""

import math
from collections.abc import Sequence

from earmark.errors import SettingError
from earmark.training.checkpoint import Epoch
from earmark.training.config import TrainingConfig


def monitored(row: Epoch, monitor: str) -> float:
    """Return the monitored value of an epoch, with its sign such that lower is better.

    >>> monitored(Epoch(0, 1e-3, 0.5, 0.4, 0.7, 0.6, 9.0), "map")
    -0.7
    """
    value = {"loss": row.valid_loss, "map": -row.valid_map, "f1": -row.valid_f1}[monitor]
    if math.isnan(value):
        raise SettingError(
            f"training.monitor={monitor!r} is undefined in epoch {row.epoch}: there is no "
            "validation clip with a tag, or the checkpoint does not contain this metric; use "
            "training.monitor=loss."
        )
    return value


def ranked_epochs(history: Sequence[Epoch], monitor: str = "loss") -> list[Epoch]:
    """Return the epochs, the best by the monitored value first.

    >>> rows = [Epoch(i, 1e-3, 0.5, loss, 0.7, 0.0, 9.0) for i, loss in enumerate([0.4, 0.3, 0.3])]
    >>> [row.epoch for row in ranked_epochs(rows)], [row.epoch for row in ranked_epochs(rows, "f1")]
    ([1, 2, 0], [2, 1, 0])
    """
    if monitor == "loss":
        return sorted(history, key=lambda row: monitored(row, monitor))
    return sorted(history, key=lambda row: (monitored(row, monitor), row.valid_loss, -row.epoch))


def best_epoch(history: Sequence[Epoch], monitor: str = "loss") -> int:
    """Return the number of the epoch with the best value; -1 without any epoch.

    >>> rows = [Epoch(i, 1e-3, 0.5, loss, 0.7, 0.6, 9.0) for i, loss in enumerate([0.4, 0.3, 0.3])]
    >>> best_epoch(rows)
    1
    """
    return ranked_epochs(history, monitor)[0].epoch if history else -1


def member_epochs(history: Sequence[Epoch], config: TrainingConfig) -> list[int]:
    """Return the epochs whose weights are the members of the model, at most `config.members`.

    With `checkpoint` "best" they are the best by the monitored value, the best first; with "last"
    the last ones, the last first. An epoch that is not among them never becomes one again.

    >>> rows = [Epoch(i, 1e-3, 0.5, loss, 0.7, 0.6, 9.0) for i, loss in enumerate([0.4, 0.2, 0.3])]
    >>> member_epochs(rows, TrainingConfig(members=2))
    [1, 2]
    >>> member_epochs(rows, TrainingConfig(members=2, checkpoint="last"))
    [2, 1]
    """
    if config.checkpoint == "last":
        ranked = list(reversed(history))
    else:
        ranked = ranked_epochs(history, config.monitor)
    return [row.epoch for row in ranked[: config.members]]


def is_finished(history: Sequence[Epoch], config: TrainingConfig, n_clips: int = 1) -> bool:
    """Return whether training ends: by early stopping, or after `max_epochs`.

    With `n_clips` training clips, early stopping waits until `min_steps` steps are done.

    >>> rows = [Epoch(i, 1e-3, 0.5, loss, 0.7, 0.6, 9.0) for i, loss in enumerate([0.4, 0.6])]
    >>> is_finished(rows, TrainingConfig(patience=1)), is_finished(rows, TrainingConfig())
    (True, False)
    """
    return not epochs_left(history, config, n_clips)


def epochs_left(history: Sequence[Epoch], config: TrainingConfig, n_clips: int = 1) -> int:
    """Return after how many epochs training ends if the monitored value improves no more.

    >>> rows = [Epoch(i, 1e-3, 0.5, loss, 0.7, 0.6, 9.0) for i, loss in enumerate([0.4, 0.6])]
    >>> epochs_left(rows, TrainingConfig()), epochs_left(rows, TrainingConfig(max_epochs=5))
    (9, 3)
    """
    stops = _last_improvement(history, config.monitor) + 1 + config.patience
    earliest = -(-config.min_steps // config.steps_per_epoch(n_clips))
    return max(0, min(max(stops, earliest), config.max_epochs) - len(history))


def _last_improvement(history: Sequence[Epoch], monitor: str) -> int:
    """Return the first epoch that is as good as the best; -1 without any epoch."""
    ranked = ranked_epochs(history, monitor)
    alike = [
        row.epoch
        for row in ranked
        if monitored(row, monitor) == monitored(ranked[0], monitor)
        and row.valid_loss == ranked[0].valid_loss
    ]
    return min(alike, default=-1)


def learning_rate(config: TrainingConfig, progress: float, history: Sequence[Epoch]) -> float:
    """Return the learning rate after `progress` epochs.

    >>> learning_rate(TrainingConfig(schedule="cosine", max_epochs=10), 10.0, [])
    1e-05
    """
    rate = config.learning_rate
    if config.warmup and progress < config.warmup:
        return rate * (progress + 0.01) / (config.warmup + 0.01)
    if config.schedule == "cosine":
        done = min(1.0, progress / config.max_epochs)
        return rate * (0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2)
    if config.schedule == "exponential":
        return rate * config.decay ** (int(progress) // config.decay_epochs)
    if config.schedule == "plateau":
        best, waited = math.inf, 0
        same = config.plateau_monitor == "same"
        for row in history:
            value = monitored(row, config.monitor if same else config.plateau_monitor)
            waited = 0 if value < best else waited + 1
            best = min(best, value)
            if waited and waited % config.plateau == 0:
                rate *= config.plateau_factor
    return rate
