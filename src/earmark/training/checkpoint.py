"""The checkpoint of a training, one safetensors file from which it can resume.

Conventions: checkpoints are written atomically, so there is always a complete one, the last or the
one before. A checkpoint contains no code. Old ones are patched forward when they are read.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from earmark.config import build
from earmark.errors import DataError, SettingError, refusing
from earmark.files import atomic_write
from earmark.tensors import load_tensors, save_tensors

CHECKPOINT = "checkpoint.safetensors"
HISTORY = "history.tsv"

Weights = Mapping[str, Tensor]

_EMA = "average"  # prefix of the averaged weights in the file, since its first version


@dataclass(frozen=True)
class Epoch:
    """One row of the history.

    Args:
        epoch: counted from 0.
        learning_rate: at the beginning of the epoch.
        train_loss: mean over the training clips, augmentation included.
        valid_loss: mean clip-level cross entropy over the validation clips.
        valid_map: mean average precision of the clip probabilities over the classes.
        valid_f1: micro F1 of the clip tags at a threshold of 0.5.
        seconds: duration, validation included.

    >>> Epoch(0, 1e-3, 0.5, 0.4, 0.7, 0.6, 9.0).valid_map
    0.7
    """

    epoch: int
    learning_rate: float
    train_loss: float
    valid_loss: float
    valid_map: float
    valid_f1: float
    seconds: float


@dataclass
class State:
    """The progress of a training: `step` steps of `epoch` are done, both counted from 0.

    `loss_sum`, `n_clips` and `seconds` are those of the current epoch so far.

    >>> State(epoch=2).step
    0
    """

    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    n_clips: int = 0
    seconds: float = 0.0
    history: list[Epoch] = field(default_factory=list)


@dataclass(frozen=True)
class Checkpoint:
    """Everything that a training needs to resume.

    Args:
        state: its progress.
        model: weights after the last step.
        best: weights to use, of each epoch that `member_epochs` names, in that order.
        ema: moving average of the weights; empty without averaging.
        optimizer: Adam's moments, or the momentum of SGD, by number of the parameter.
        requirements: what must be the same to resume, such as a fingerprint of the settings.

    >>> import tempfile
    >>> weights, needed = {"bias": torch.zeros(2)}, {"seed": "0"}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Checkpoint(State(epoch=3), weights, [weights], {}, {}, needed).write(Path(folder))
    ...     Checkpoint.read(Path(folder), {"seed": "0"}).state.epoch
    3
    """

    state: State
    model: Weights
    best: Sequence[Weights]
    ema: Weights
    optimizer: Mapping[int, Mapping[str, Any]]
    requirements: Mapping[str, str]

    def write(self, folder: Path) -> None:
        """Write the checkpoint of a training in `folder`."""
        groups = {"model": self.model, _EMA: self.ema}
        groups |= {_member(number): weights for number, weights in enumerate(self.best)}
        tensors = {f"{group}.{name}": x for group, of in groups.items() for name, x in of.items()}
        for index, values in self.optimizer.items():
            for name, value in values.items():
                tensors[f"adam.{index}.{name}"] = torch.as_tensor(value)
        text = json.dumps({"about": dict(self.requirements), "state": asdict(self.state)})
        save_tensors(folder / CHECKPOINT, tensors, text)

    @classmethod
    def read(cls, folder: Path, requirements: Mapping[str, str] | None = None) -> "Checkpoint":
        """Read the checkpoint in `folder`; raise if it does not meet the requirements."""
        path = folder / CHECKPOINT
        text, tensors = load_tensors(path, "checkpoint")
        with refusing(f"{path} is not a usable checkpoint", DataError, "Train again."):
            saved = cls._of(json.loads(text), tensors)
        written_with = saved.requirements
        for what, wanted in (requirements or {}).items():
            if written_with.get(what) != wanted:
                raise SettingError(
                    f"{path} was written with another {what}; resume with the original one, or "
                    f"train into another folder. Got {wanted}, not {written_with.get(what)}."
                )
        return saved

    @classmethod
    def _of(cls, values: Mapping[str, Any], tensors: Weights) -> "Checkpoint":
        """Return the checkpoint that a file describes; whatever is wrong with it raises."""
        groups: dict[str, dict[str, Tensor]] = {}
        adam: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            group, _, rest = name.partition(".")
            if group == "adam":
                index, _, key = rest.partition(".")
                adam.setdefault(int(index), {})[key] = value
            else:
                groups.setdefault(group, {})[rest] = value
        state = _read_state(values["state"])
        # Before the first epoch, old checkpoints have the initial weights there.
        best = [groups[name] for name in map(_member, range(len(state.history))) if name in groups]
        return cls(state, groups["model"], best, groups.get(_EMA, {}), adam, dict(values["about"]))


def _member(number: int) -> str:
    """Return the prefix of a member's weights in the file; the first is as old as the file."""
    return f"best{number or ''}"


class Fitted(NamedTuple):
    """The result of a training so far: the weights to use, and the history of its epochs.

    Weights are those of each epoch that `member_epochs` names, in that order.

    >>> Fitted([], []).history
    []
    """

    weights: Sequence[Weights]
    history: Sequence[Epoch]

    @classmethod
    def read(cls, folder: Path, requirements: Mapping[str, str] | None = None) -> "Fitted":
        """Read the result from the checkpoint of a training, finished or not."""
        checkpoint = Checkpoint.read(folder, requirements)
        return cls(checkpoint.best, checkpoint.state.history)


def _read_state(values: dict[str, Any]) -> State:
    """Read the state; old ones lack two metrics, and repeat what follows from the history."""
    for name in ("best_loss", "best_epoch", "finished"):
        values.pop(name, None)
    unknown = {"valid_map": math.nan, "valid_f1": math.nan}
    history = [build(Epoch, "history", unknown | dict(row)) for row in values.pop("history")]
    state = replace(build(State, "state", values), history=history)
    if min(state.epoch, state.step, state.n_clips) < 0:
        raise SettingError(f"its state has a negative number. Got {state}.")
    return state


def write_history(path: Path, history: Sequence[Epoch]) -> None:
    r"""Write the table of epochs.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, HISTORY)
    ...     write_history(path, [Epoch(0, 1e-3, 0.5, 0.4, 0.7, 0.6, 9.0)])
    ...     print(path.read_text().splitlines()[1].replace("\t", " "))
    0 0.001 0.5 0.4 0.7 0.6 9
    """
    names = list(Epoch.__dataclass_fields__)
    lines = ["\t".join(names)]
    lines += ["\t".join(f"{getattr(row, name):.6g}" for name in names) for row in history]
    atomic_write(path, ("\n".join(lines) + "\n").encode())
