"""Where a training stands <-> one safetensors file, so that it can go on from there.

Conventions: written beside, flushed to the disk and moved into place, so that there is always a
whole checkpoint, the last or the one before. Nothing in it is code.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from earmark.errors import SettingError
from earmark.files import atomic_write
from earmark.nn.model import Model
from earmark.tensors import load_tensors, save_tensors

CHECKPOINT = "checkpoint.safetensors"
HISTORY = "history.tsv"


@dataclass(frozen=True)
class Epoch:
    """One row of the history."""

    epoch: int
    learning_rate: float
    train_loss: float
    valid_loss: float
    seconds: float


@dataclass
class State:
    """Where a training stands: after `step` steps of `epoch`, both counted from 0."""

    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    n_clips: int = 0
    seconds: float = 0.0
    best_loss: float = math.inf
    best_epoch: int = -1
    finished: bool = False
    history: list[Epoch] = field(default_factory=list)

    def end_epoch(self, row: Epoch, patience: int, max_epochs: int) -> bool:
        """Note the epoch and stand at the beginning of the next; return if it was the best.

        >>> state = State()
        >>> state.end_epoch(Epoch(0, 1e-3, 0.5, 0.4, 9.0), patience=1, max_epochs=9)
        True
        >>> state.end_epoch(Epoch(1, 1e-3, 0.4, 0.6, 9.0), patience=1, max_epochs=9)
        False
        >>> state.finished
        True
        """
        is_best = row.valid_loss < self.best_loss
        if is_best:
            self.best_loss, self.best_epoch = row.valid_loss, row.epoch
        self.history.append(row)
        self.epoch, self.step = self.epoch + 1, 0
        self.loss_sum, self.n_clips, self.seconds = 0.0, 0, 0.0
        self.finished = row.epoch - self.best_epoch >= patience or self.epoch >= max_epochs
        return is_best


def save_checkpoint(
    out: Path,
    model: Model,
    optimizer: Any,
    state: State,
    best: dict[str, Tensor],
    average: dict[str, Tensor],
    about: dict[str, str],
) -> None:
    """Write all that is needed to go on; `about` says what must be the same when going on."""
    kinds = {"model": model.state_dict(), "best": best, "average": average}
    tensors = {f"{kind}.{name}": x for kind, named in kinds.items() for name, x in named.items()}
    for index, values in optimizer.state_dict()["state"].items():
        for name, value in values.items():
            tensors[f"adam.{index}.{name}"] = torch.as_tensor(value)
    text = json.dumps({"about": about, "state": asdict(state)})
    save_tensors(out / CHECKPOINT, tensors, text)


def load_checkpoint(
    out: Path, model: Model, optimizer: Any, about: dict[str, str]
) -> tuple[State, dict[str, Tensor], dict[str, Tensor]]:
    """Put model and optimizer back where they were; return state, best weights and average."""
    check_checkpoint(out, about)
    _, state, tensors = read_checkpoint(out)
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "best": {}, "average": {}}
    adam: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        kind, _, rest = name.partition(".")
        if kind == "adam":
            index, _, key = rest.partition(".")
            adam.setdefault(int(index), {})[key] = value
        else:
            parts[kind][rest] = value
    model.load_state_dict(parts["model"])
    full = optimizer.state_dict()
    full["state"] = adam
    optimizer.load_state_dict(full)
    return state, parts["best"], parts["average"]


def check_checkpoint(out: Path, about: dict[str, str]) -> None:
    """Raise unless the checkpoint in `out` can be gone on with; none at all is a beginning."""
    if not (out / CHECKPOINT).exists():
        return
    found, _, _ = read_checkpoint(out)
    for what, wanted in about.items():
        if found.get(what) != wanted:
            raise SettingError(
                f"{out / CHECKPOINT} was written with another {what}; resume with what it was "
                f"started with, or train into another folder. Got {wanted}, not {found.get(what)}."
            )


def read_checkpoint(out: Path) -> tuple[dict[str, str], State, dict[str, Tensor]]:
    """Return what a checkpoint was written with, where the training stood, and its tensors."""
    text, tensors = load_tensors(out / CHECKPOINT, "checkpoint")
    values = json.loads(text)
    state = values["state"]
    state["history"] = [Epoch(**row) for row in state["history"]]
    return values["about"], State(**state), tensors


def write_history(path: Path, history: Sequence[Epoch]) -> None:
    """Write the table of epochs, beside and moved into place."""
    names = list(Epoch.__dataclass_fields__)
    lines = ["\t".join(names)]
    lines += ["\t".join(f"{getattr(row, name):.6g}" for name in names) for row in history]
    atomic_write(path, ("\n".join(lines) + "\n").encode())
