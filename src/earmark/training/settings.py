"""All settings of a training: presets, TOML files and overrides, checked strictly.

Conventions: a setting is named by section and field, such as `model.pooling`. Later sources win:
preset, then TOML file, then overrides. An unknown name is an error that suggests the nearest known
one, and so is a value of the wrong type: nothing is guessed and nothing is dropped.

`Settings` holds what decides the result of a training; `earmark.training.config` has its section
`training`, and `RunConfig`: how and where it runs.
"""

import logging
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from earmark.config import MAX_INTEGER, build, read_toml
from earmark.data.features import FeatureConfig
from earmark.errors import SettingError, choose
from earmark.nn.head import HeadConfig
from earmark.nn.model import PRESETS as MODELS
from earmark.nn.network import NetworkConfig
from earmark.nn.networks import NETWORKS, find_network, read_network
from earmark.training.augmentation import AUGMENTATIONS, OF_WAVEFORMS, AugmentConfig
from earmark.training.config import TrainingConfig
from earmark.training.systems import SYSTEMS

logger = logging.getLogger(__name__)

# Section -> setting -> its name in model files, results and checkpoints of format 1.
FIRST_NAMES: Mapping[str, Mapping[str, str]] = {
    "features": {"sample_rate": "rate"},
    "training": {"checkpoint": "keep", "ema_decay": "average", "frame_loss_weight": "frame_share"},
    "augment": {"mixing": "overlay", "eq_db": "filter_db"},
}
# Section -> settings that are newer than the first results, and what was done before there was a
# choice: at that value they are left out of fingerprints, so that those results stay valid.
ADDED: Mapping[str, Mapping[str, Any]] = {
    "training": {
        "monitor": "loss",
        "min_steps": 0,
        "generations": 1,
        "pseudo_labels": "scores",
        "members": 1,
        "class_ratio": 0,
        "class_order": "rounds",
        "decay": 0.9,
        "decay_epochs": 2,
        "optimizer": "adam",
        "plateau_monitor": "same",
        "plateau_factor": 0.5,
        "level_loss_weight": 0.0,
        "contrast_weight": 0.0,
        "kept_rate": 0.1,
        "group_by_length": False,
    }
}
# Presets that have another name now.
RENAMED_PRESETS: Mapping[str, str] = {"accurate": "best"}
# Kind of features -> augmentations that are not for them: of powers and of mel bands.
REFUSED: Mapping[str, Collection[str]] = {
    "encoder": ("gain_db", "eq_db", "mixing", "n_mel_masks"),
    "waveform": tuple(name for name in AUGMENTATIONS if name not in OF_WAVEFORMS),
}


@dataclass(frozen=True)
class Settings:
    """Everything that decides a training, except for its data.

    >>> Settings.load("fast", overrides=["model.pooling=exp", "training.seed=7"]).training.seed
    7
    >>> Settings.load("fast", overrides=["model.poolin=attention"])
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: There is no setting 'model.poolin'; did you mean ...
    """

    features: FeatureConfig = field(default_factory=FeatureConfig)
    model: NetworkConfig = MODELS["paper"]
    training: TrainingConfig = field(default_factory=TrainingConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)

    def __repr__(self) -> str:
        parts = (f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)
        short = (part if len(part) <= 60 else f"{part[:56]}...)" for part in parts)
        return f"Settings({', '.join(short)})"

    def __post_init__(self) -> None:
        if self.model.n_features != self.features.n_features:
            raise SettingError(
                f"model.{self.model.inputs} must be the size of a frame of the features. "
                f"Got {self.model.n_features} and {self.features.n_features}."
            )
        kind = self.features.kind if self.features.encoder is None else "encoder"
        if kind not in self.model.takes:
            raise SettingError(
                f"The network {self.model.network!r} takes {_named(self.model.takes)}; with "
                f"{_NAMES[kind]}, use {_USE[kind]}."
            )
        if self.training.level_loss_weight and not getattr(self.model, "stages", ()):
            raise SettingError(
                "training.level_loss_weight needs hierarchical pooling; set model.stages, such as "
                f"[5, 5, 5], or leave it out. Got {self.training.level_loss_weight}."
            )
        for name in REFUSED.get(kind, ()):
            if getattr(self.augment, name):
                raise SettingError(
                    f"augment.{name} changes log-mels, and the features are those of "
                    f"{_NAMES[kind]}; set it to 0, and use augment.mixup, time_shift or "
                    "n_time_masks."
                )

    @classmethod
    def load(
        cls,
        preset: str = "fast",
        config: str | Path | None = None,
        overrides: Iterable[str] = (),
        features: FeatureConfig | None = None,
        model: NetworkConfig | None = None,
    ) -> "Settings":
        """Return a preset, changed by a TOML file and then by overrides 'section.field=value'.

        Features, such as those that `read_encoder` returns, replace the preset's own, and so does
        the network of a trained model, whose features may then not change.

        >>> Settings.load("paper", overrides=["training.max_epochs=20"]).training.max_epochs
        20
        """
        if preset in RENAMED_PRESETS:
            raise SettingError(f"The preset {preset!r} is now called {RENAMED_PRESETS[preset]!r}.")
        tree = PRESETS[choose("preset", preset, PRESETS)].to_dict()
        if features is not None:
            tree["features"] = asdict(features)
        if model is not None:
            tree["model"] = model.to_dict()
        given: set[str] = set()
        if config is not None:
            given |= _merge(tree, read_toml(Path(config)), str(config))
        for override in [overrides] if isinstance(overrides, str) else overrides:
            given |= _merge(tree, parse_override(override), f"override {override!r}")
        fixed = sorted(name for name in given if name.startswith("features."))
        if model is not None and fixed:
            raise SettingError(
                f"The features are those of the model to start from; leave out {fixed[0]}."
            )
        settings = cls._finish(tree, given)
        lowered = settings.features.f_max < PRESETS[preset].features.f_max
        if lowered and features is None and "features.f_max" not in given:
            logger.info(
                "features.f_max is lowered to %g Hz, half of features.sample_rate.",
                settings.features.f_max,
            )
        return settings

    def changed(self, changes: Mapping[str, Any], where: str) -> "Settings":
        """Return a copy with some settings changed; errors name `where` the changes come from.

        >>> Settings().changed({"model": {"pooling": "exp"}}, "here").model.pooling
        'exp'
        """
        tree = self.to_dict()
        return self._finish(tree, _merge(tree, changes, where))

    @classmethod
    def _finish(cls, tree: dict[str, dict[str, Any]], given: Collection[str]) -> "Settings":
        """Return the settings of a tree, in which those named in `given` were just set."""
        own = tree["features"]
        # A lower sample rate alone lowers the highest mel with it.
        sample_rate = own["sample_rate"]
        follows = "features.sample_rate" in given and own["kind"] == "log-mel"
        is_number = isinstance(sample_rate, int) and sample_rate < MAX_INTEGER
        if follows and "features.f_max" not in given and is_number:
            own["f_max"] = min(own["f_max"], sample_rate / 2)
        features = build(FeatureConfig, "features", own)
        tree["model"][read_network(tree["model"]).inputs] = features.n_features
        return cls.from_dict(tree)

    def deciding(self) -> dict[str, dict[str, Any]]:
        """Return the settings that decide what is learned, for fingerprints.

        Without what depends on the machine only, under their first names (`FIRST_NAMES`), and
        without newer settings (`ADDED`) at their first values: the fingerprints of results and
        checkpoints that were written before stay the same. "auto" is counted as "bf16-mixed".

        >>> Settings().deciding()["training"]["average"]
        0.0
        """
        tree = self.to_dict() | {"features": self.features.to_dict(places=False)}
        for name in ("threads", "checkpoint_seconds"):
            del tree["training"][name]
        if tree["training"]["precision"] == "auto":  # which of two it was depends on the machine
            tree["training"]["precision"] = "bf16-mixed"
        for section, added in ADDED.items():
            for name, before in added.items():
                if tree[section][name] == before:
                    del tree[section][name]
        for section, names in FIRST_NAMES.items():
            for name, first in names.items():
                tree[section][first] = tree[section].pop(name)
        return tree

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return the settings as plain values; `from_dict` reads them back.

        >>> Settings.from_dict(Settings().to_dict()) == Settings()
        True
        """
        return asdict(self) | {"model": self.model.to_dict()}

    @classmethod
    def from_dict(cls, tree: Mapping[str, Mapping[str, Any]]) -> "Settings":
        """Return settings from plain values; types are checked.

        >>> Settings.from_dict(Settings().to_dict()).training.batch_size
        128
        """
        sections = {name: build(kind, name, tree[name]) for name, kind in _SECTIONS.items()}
        return cls(model=read_network(tree["model"]), **sections)

    def for_classes(self, n_classes: int) -> "Settings":
        """Return a copy whose network has this number of classes.

        >>> Settings().for_classes(3).model.n_classes
        3
        """
        return replace(self, model=self.model.changed(n_classes=n_classes))


def derived_settings() -> set[str]:
    """Return the names that cannot be set: they follow from the data or from other settings.

    >>> "model.n_classes" in derived_settings()
    True
    """
    inputs = {f"model.{network.inputs}" for network in NETWORKS.values()}
    of_features = {"features.mean", "features.std", "features.encoder"}
    return {"model.n_classes", "model.network"} | inputs | of_features


def _merge(tree: dict[str, dict[str, Any]], changes: Mapping[str, Any], where: str) -> set[str]:
    """Change `tree` in place, where every name must be there already; return the names.

    Another `model.network` starts from that network's own defaults.
    """
    given: set[str] = set()
    model = changes.get("model")
    if isinstance(model, Mapping) and "network" in model:
        kind = find_network(str(model["network"]))
        if kind.network != tree["model"].get("network", "crnn"):
            tree["model"] = kind(n_classes=1).to_dict()  # type: ignore[call-arg]
        changes = {**changes, "model": {k: v for k, v in model.items() if k != "network"}}
    known = [f"{section}.{key}" for section, values in tree.items() for key in values]
    derived = derived_settings()
    known = [name for name in known if name not in derived]
    for section, values in changes.items():
        if not isinstance(values, Mapping):
            raise SettingError(
                f"{where}: settings belong to sections, as in [training] or training.seed=1. "
                f"Got {section} = {values!r}."
            )
        first = {old: new for new, old in FIRST_NAMES.get(section, {}).items()}
        for key, value in values.items():
            if key in first:
                raise SettingError(
                    f"There is no setting '{section}.{key}'; did you mean "
                    f"'{section}.{first[key]}', which is its name now?"
                )
            choose("setting", f"{section}.{key}", known)
            if section == "features" and tree["features"]["encoder"] is not None:
                raise SettingError(
                    f"{where}: the features are those of the encoder; change features.{key} in the "
                    "TOML file that describes it."
                )
            is_bool = isinstance(tree[section][key], bool)
            if isinstance(value, bool) != is_bool:
                wanted = "true or false" if is_bool else "a value that is not true or false"
                raise SettingError(f"{where}: {section}.{key} takes {wanted}. Got {value!r}.")
            tree[section][key] = value
            given.add(f"{section}.{key}")
    return given


def parse_override(override: str) -> dict[str, dict[str, Any]]:
    """Return what an override 'section.field=value' changes, as `Settings.changed` takes it.

    >>> parse_override("training.max_epochs=20")
    {'training': {'max_epochs': 20}}
    """
    name, equals, text = override.partition("=")
    section, dot, key = name.strip().partition(".")
    if not equals or not dot:
        raise SettingError(f"An override is section.field=value. Got {override!r}.")
    return {section: {key: _parse(text.strip())}}


def _parse(text: str) -> Any:
    """Read a value as TOML does; anything that is not a TOML value is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # also a number of too many digits, or too many levels
        return text


# Kind of features -> its name in errors, and what to use with it.
_NAMES = {"log-mel": "log-mels", "waveform": "a waveform", "encoder": "an encoder"}
_USE = {
    "log-mel": "another model.network",
    "waveform": "the preset 'mlms8' or model.network=mlms",
    "encoder": "the preset 'encoder' or model.network=head",
}


def _named(kinds: Iterable[str]) -> str:
    return " or ".join(_NAMES[kind] for kind in kinds)


_SECTIONS: dict[str, Any] = {
    "features": FeatureConfig,
    "training": TrainingConfig,
    "augment": AugmentConfig,
}

PRESETS: dict[str, Settings] = {
    # A first look: half the channels of "fast", a short cosine schedule.
    "quick": Settings(
        model=replace(
            MODELS["fast"],
            channels=(8, 16, 16, 32),
            last_channels=64,
        ),
        training=TrainingConfig(
            batch_size=32, learning_rate=3e-3, max_epochs=6, min_steps=300, schedule="cosine"
        ),
        augment=AugmentConfig(mixing=0.5),
    ),
    "fast": Settings(model=MODELS["fast"], training=TrainingConfig(batch_size=32)),
    # On the embeddings of a pretrained encoder: see docs/encoders.md. Mixup did not help there.
    "encoder": Settings(
        model=HeadConfig(n_classes=1),
        training=TrainingConfig(batch_size=32, max_epochs=12, schedule="cosine"),
    ),
    # The best recipe of docs/results.md without teacher models: "8x epochs, wider" of
    # `benchmarks/detector.toml`. Its 16 epochs were measured on 6,000 scenes; smaller data sets
    # get more. Precision stays at 32 bits, since bfloat16 is fast on some machines only.
    "best": Settings(
        model=replace(
            MODELS["fast"],
            channels=(16, 32, 48, 96),
            last_channels=192,
        ),
        training=TrainingConfig(batch_size=32, max_epochs=16, min_steps=1000, schedule="cosine"),
        augment=AugmentConfig(mixing=0.5, eq_db=6.0, gain_db=6.0, n_mel_masks=2, mel_mask=8),
    ),
    # 128 clips of 10 s in one forward pass would need more than 25 GB; 16 of them are no slower.
    "paper": Settings(training=TrainingConfig(micro_batch=16)),
    "paper-fast": Settings(model=MODELS["paper-fast"], training=TrainingConfig(batch_size=32)),
    # The systems of the paper's Table 3: see `earmark.training.systems`.
    **{name: Settings(*recipe) for name, recipe in SYSTEMS.items()},
}


def name_preset(about: Mapping[str, Any]) -> str:
    """Return the preset with the network of a model, and which settings of the network differ.

    Args:
        about: what `earmark.inference.model_file.Bundle.describe` returns.

    >>> from earmark.inference.model_file import BUNDLED, load_bundle
    >>> name_preset(load_bundle(BUNDLED).describe())
    'best'
    """
    (own, *others) = about["models"]
    if others:
        return "several networks"
    fixed = {"n_classes", "n_mels", "n_features", "n_samples"}
    differences = {}
    for name, preset in PRESETS.items():
        theirs = preset.model.to_dict()
        if theirs.get("network", "crnn") != own.get("network", "crnn"):
            continue
        found = {key: own.get(key) for key in {*own, *theirs} - fixed}
        differences[name] = {
            key: value for key, value in found.items() if _plain(value) != _plain(theirs.get(key))
        }
    if not differences:
        return f"none; the network {own['network']}"
    nearest = min(differences, key=lambda name: len(differences[name]))
    changes = [f"{key}={value}" for key, value in sorted(differences[nearest].items())]
    return f"{nearest}{', with ' if changes else ''}{', '.join(changes)}"


def _plain(value: Any) -> Any:
    """Return a value with lists for tuples, as a model file has it."""
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
