"""A preset, a file and overrides on the command line -> every setting of a training, strictly.

Conventions: a setting is named by section and field, `model.pooling`; later sources win (preset,
then TOML file, then overrides). An unknown name is an error that suggests the nearest known one, and so
is a value of the wrong type: nothing is guessed and nothing is dropped.
"""

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from earmark.config import build, read_toml
from earmark.data.features import FeatureConfig
from earmark.errors import SettingError, choose
from earmark.nn.model import PRESETS as MODELS
from earmark.nn.model import ModelConfig
from earmark.training.augmentation import AugmentConfig

SCHEDULES = ("constant", "cosine", "plateau")
CHECKPOINTS = ("best", "last")
# Section -> setting -> its name in model files, results and checkpoints of format 1.
FIRST_NAMES: Mapping[str, Mapping[str, str]] = {
    "features": {"sample_rate": "rate"},
    "training": {"checkpoint": "keep", "ema_decay": "average", "frame_loss_weight": "frame_share"},
    "augment": {"mixing": "overlay", "eq_db": "filter_db"},
}
PRECISIONS = ("32-true", "16-mixed", "bf16-mixed", "64-true")


@dataclass(frozen=True)
class TrainingConfig:
    """How a network is trained; the defaults are the paper's.

    Args:
        batch_size: clips in a step, over all processes together.
        micro_batch: clips that go through the network at once, over all processes together; 0 is
            the whole batch. A step is still one of the whole batch, but batch norm's statistics are
            those of a micro-batch.
        learning_rate: of Adam.
        max_epochs: passes over the training clips at most.
        patience: epochs without a better validation loss after which training stops.
        checkpoint: the weights of the "best" epoch by validation loss, or of the "last".
        seed: of weights, order, dropout and augmentation.
        balanced: draw classes alike instead of clips alike.
        schedule: learning rate "constant", "cosine" (falls to 1 % at max_epochs) or "plateau" (is
            halved after every `plateau` epochs without a better validation loss).
        plateau: epochs, for that.
        warmup: epochs over which the learning rate rises to its value.
        gradient_clip: largest norm of the gradient; 0 is none.
        weight_decay: decoupled, as in AdamW; 0 is plain Adam.
        frame_loss_weight: of the loss that comes from the frames where teachers tell them; the rest is
            that of the tags.
        ema_decay: how much of it the average of the weights over the steps keeps at a step, such as
            0.999; the average is then what is validated and kept. 0 is none.
        precision: "32-true", "16-mixed", "bf16-mixed" or "64-true".
        threads: of each process; 0 shares the cores among the processes.
        checkpoint_seconds: a checkpoint is written after every epoch, and this often within one.
    """

    batch_size: int = 128
    micro_batch: int = 0
    learning_rate: float = 1e-3
    max_epochs: int = 100
    patience: int = 10
    checkpoint: str = "best"
    seed: int = 0
    balanced: bool = False
    schedule: str = "constant"
    plateau: int = 3
    warmup: float = 0.0
    gradient_clip: float = 0.0
    weight_decay: float = 0.0
    frame_loss_weight: float = 0.5
    ema_decay: float = 0.0
    precision: str = "32-true"
    threads: int = 0
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        choose("schedule of the learning rate", self.schedule, SCHEDULES)
        choose("precision", self.precision, PRECISIONS)
        choose("checkpoint to use", self.checkpoint, CHECKPOINTS)
        for name in ("batch_size", "max_epochs", "patience", "plateau"):
            if getattr(self, name) < 1:
                raise SettingError(f"training.{name} must be 1 or more. Got {getattr(self, name)}.")
        if not 0 < self.learning_rate < math.inf:
            raise SettingError(f"training.learning_rate must be above 0. Got {self.learning_rate}.")
        rest = (
            "micro_batch",
            "seed",
            "warmup",
            "gradient_clip",
            "weight_decay",
            "ema_decay",
            "threads",
            "checkpoint_seconds",
        )
        for name in rest:
            if not 0 <= getattr(self, name) < math.inf:
                raise SettingError(f"training.{name} must be 0 or more. Got {getattr(self, name)}.")
        if not 0 <= self.frame_loss_weight <= 1:
            raise SettingError(
                f"training.frame_loss_weight must be 0 to 1. Got {self.frame_loss_weight}."
            )
        if self.ema_decay >= 1:
            raise SettingError(f"training.ema_decay must be below 1. Got {self.ema_decay}.")


@dataclass(frozen=True)
class Settings:
    """Everything that decides a training, but for its data.

    >>> Settings.load("fast", overrides=["model.pooling=attention", "training.seed=7"]).training.seed
    7
    >>> Settings.load("fast", overrides=["model.poolin=attention"])
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: There is no setting 'model.poolin'; did you mean ...
    """

    features: FeatureConfig = field(default_factory=FeatureConfig)
    model: ModelConfig = MODELS["paper"]
    training: TrainingConfig = field(default_factory=TrainingConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)

    def __post_init__(self) -> None:
        if self.model.n_mels != self.features.n_mels:
            raise SettingError(
                "model.n_mels and features.n_mels must be the same. "
                f"Got {self.model.n_mels} and {self.features.n_mels}."
            )

    @classmethod
    def load(
        cls,
        preset: str = "fast",
        config: str | Path | None = None,
        overrides: Iterable[str] = (),
    ) -> "Settings":
        """Return a preset, changed by a TOML file and then by overrides 'section.field=value'."""
        tree = PRESETS[choose("preset", preset, PRESETS)].to_dict()
        if config is not None:
            _merge(tree, read_toml(Path(config)), str(config))
        for override in [overrides] if isinstance(overrides, str) else overrides:
            name, equals, text = override.partition("=")
            section, dot, key = name.strip().partition(".")
            if not equals or not dot:
                raise SettingError(f"A setting is section.field=value. Got {override!r}.")
            _merge(tree, {section: {key: _parse(text.strip())}}, "--set")
        return cls._finish(tree)

    def changed(self, changes: Mapping[str, Any], where: str) -> "Settings":
        """Return the same with some settings changed; `where` they come from is told in errors.

        >>> Settings().changed({"model": {"pooling": "exp"}}, "here").model.pooling
        'exp'
        """
        tree = self.to_dict()
        _merge(tree, changes, where)
        return self._finish(tree)

    @classmethod
    def _finish(cls, tree: dict[str, dict[str, Any]]) -> "Settings":
        tree["model"]["n_mels"] = tree["features"]["n_mels"]
        return cls.from_dict(tree)

    def deciding(self) -> dict[str, dict[str, Any]]:
        """Return the settings that decide what is learned, for fingerprints: not the machine's.

        Under their first names (`FIRST_NAMES`), so that a renamed setting keeps the fingerprint of
        results and checkpoints that were written before.

        >>> Settings().deciding()["training"]["average"]
        0.0
        """
        tree = self.to_dict()
        for name in ("threads", "checkpoint_seconds"):
            del tree["training"][name]
        for section, names in FIRST_NAMES.items():
            for name, first in names.items():
                tree[section][first] = tree[section].pop(name)
        return tree

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return the settings as plain values, to be written and read back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, tree: Mapping[str, Mapping[str, Any]]) -> "Settings":
        """Return settings from plain values; types are checked."""
        return cls(**{name: build(kind, name, tree[name]) for name, kind in _SECTIONS.items()})

    def for_classes(self, n_classes: int) -> "Settings":
        """Return the same with a network of that many classes."""
        return replace(self, model=replace(self.model, n_classes=n_classes))


def _merge(tree: dict[str, dict[str, Any]], changes: Mapping[str, Any], where: str) -> None:
    """Change `tree` in place; every name must be there already."""
    known = [f"{section}.{key}" for section, values in tree.items() for key in values]
    # These follow from the data and from each other.
    fixed = ("model.n_classes", "model.n_mels", "features.mean", "features.std")
    known = [name for name in known if name not in fixed]
    for section, values in changes.items():
        if not isinstance(values, Mapping):
            raise SettingError(
                f"{where}: settings stand in sections, as in [training] or training.seed=1. "
                f"Got {section} = {values!r}."
            )
        for key, value in values.items():
            choose("setting", f"{section}.{key}", known)
            if isinstance(value, bool) != isinstance(tree[section][key], bool):
                wanted = (
                    "true or false" if isinstance(tree[section][key], bool) else "no such override"
                )
                raise SettingError(f"{where}: {section}.{key} takes {wanted}. Got {value!r}.")
            tree[section][key] = value


def _parse(text: str) -> Any:
    """Read a value as TOML would; what is no TOML value is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


_SECTIONS: dict[str, type] = {
    "features": FeatureConfig,
    "model": ModelConfig,
    "training": TrainingConfig,
    "augment": AugmentConfig,
}

PRESETS: dict[str, Settings] = {
    # 128 clips of 10 s at once would take more than 25 GB; 16 of them are no slower.
    "paper": Settings(training=TrainingConfig(micro_batch=16)),
    "fast": Settings(model=MODELS["fast"], training=TrainingConfig(batch_size=32)),
}
