"""A trained network <-> one self-describing file.

Conventions: a safetensors file (no pickle, nothing that could run) whose metadata holds one JSON
text: labels, features, normalisation, network, decoding, calibration, how it was tuned and trained,
versions, licence and attribution. Checksums cover the text and the weights: a damaged file is
refused. Files of older formats are migrated when they are read (`MIGRATIONS`), and settings that a
file does not have yet get their defaults. Whatever is wrong with a file is a `BundleError`.
"""

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from earmark.config import build
from earmark.data.encoded import encoder_file
from earmark.data.features import FeatureConfig
from earmark.errors import BundleError, EarmarkError, SettingError, choose
from earmark.inference.calibration import Calibration
from earmark.inference.decoding import Decoding
from earmark.nn.network import Network, NetworkConfig
from earmark.nn.networks import read_network
from earmark.tensors import load_tensors, save_tensors

FORMAT = 3  # raised when an older Earmark could not read the file any more
SUFFIX = ".earmark"
BUNDLED = Path(__file__).parents[1] / "models" / f"everyday{SUFFIX}"  # the pretrained model

_PLAIN = {
    "window": (float, int),
    "tuning": (Mapping,),
    "training": (Mapping,),
    "versions": (Mapping,),
    "licence": (str,),
    "attribution": (tuple, list),
}
_FIELDS = (
    "format", "labels", "features", "model", "decoding", "calibration", "n_parameters", *_PLAIN
)  # fmt: skip


def installed_versions() -> dict[str, str]:
    """Return the versions of the packages that results depend on."""
    found = {}
    for name in ("earmark", "torch", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


@dataclass(frozen=True)
class Bundle:
    """A trained network with all that detection needs, and where it comes from.

    Args:
        labels: the classes, in the order of the network's outputs.
        feature_config: how a waveform becomes the network's input, normalisation included.
        model_config: the sizes of the network.
        weights: its parameters and statistics, by name.
        decoding: thresholds and post-processing.
        window: seconds that the network processes at a time.
        tuning: how the decoding was tuned: "supervision" is "weak", "strong" or "none".
        training: a summary: epochs, losses, clips, settings.
        versions: of what made the file.
        licence: of the weights.
        attribution: authors of the recordings it was trained on.
        calibration: turns the scores of events into probabilities; None leaves them as they are.
    """

    labels: tuple[str, ...]
    feature_config: FeatureConfig
    model_config: NetworkConfig
    weights: Mapping[str, Tensor]
    decoding: Decoding
    window: float = 10.0
    tuning: Mapping[str, Any] = field(default_factory=lambda: {"supervision": "none"})
    training: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=installed_versions)
    licence: str = ""
    attribution: tuple[str, ...] = ()
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        for name, kinds in _PLAIN.items():
            if not isinstance(getattr(self, name), kinds):
                wanted = " or ".join(kind.__name__ for kind in kinds)
                raise SettingError(f"{name} must be a {wanted}. Got {getattr(self, name)!r}.")
        object.__setattr__(self, "attribution", tuple(self.attribution))
        if not 0 < self.window < math.inf:
            raise SettingError(f"window must be a number of seconds above 0. Got {self.window!r}.")
        if self.feature_config.n_features != self.model_config.n_features:
            raise SettingError(
                f"The network takes {self.model_config.n_features} values per frame, and the "
                f"features have {self.feature_config.n_features}."
            )
        if len(self.labels) != self.model_config.n_classes or self.labels != self.decoding.labels:
            raise SettingError(
                "labels, the network's classes and the decoding must be the same. Got "
                f"{len(self.labels)} labels, {self.model_config.n_classes} classes, a decoding of "
                f"{len(self.decoding.labels)}."
            )

    def check_weights(self) -> None:
        """Raise `SettingError` unless the weights are those of the network.

        Nothing is allocated: a description of a huge network costs nothing here.
        """
        n_layers = self.model_config.n_layers
        if n_layers > len(self.weights):
            raise SettingError(
                f"The network has {n_layers} convolutions or more. Got {len(self.weights)} tensors."
            )
        with torch.device("meta"):
            wanted = self.model_config.build().state_dict()
        shapes = {name: tuple(value.shape) for name, value in self.weights.items()}
        for name, value in wanted.items():
            if shapes.get(name) != tuple(value.shape):
                raise SettingError(
                    f"The network's {name} must have the shape {tuple(value.shape)}. "
                    f"Got {shapes.get(name, 'none')}."
                )
        unknown = sorted(set(shapes) - set(wanted))
        if unknown:
            raise SettingError(f"The network has no weights {unknown[0]!r}.")

    def build_model(self) -> Network:
        """Return the network, ready to predict."""
        with torch.random.fork_rng(devices=()):  # its first weights are drawn, and overwritten
            model = self.model_config.build()
        model.load_state_dict(dict(self.weights))  # half precision becomes single here
        return model.eval()

    def describe(self) -> dict[str, Any]:
        """Return everything but the weights, as plain values."""
        return {
            "format": FORMAT,
            "labels": list(self.labels),
            "window": self.window,
            "features": self.feature_config.to_dict(),
            "model": self.model_config.to_dict(),
            "decoding": self.decoding.to_dict(),
            "calibration": None if self.calibration is None else asdict(self.calibration),
            "tuning": dict(self.tuning),
            "training": dict(self.training),
            "versions": dict(self.versions),
            "licence": self.licence,
            "attribution": list(self.attribution),
            "n_parameters": sum(value.numel() for value in self.weights.values()),
        }

    def select(self, labels: Sequence[str]) -> "Bundle":
        """Return the network of these classes alone, in this order; their scores stay the same."""
        for label in labels:
            choose("label", label, self.labels)
        if self.model_config.mixes_classes:
            network, pooling = self.model_config.network, self.model_config.pooling_name
            raise SettingError(
                f"The network {network} with the pooling {pooling} weighs classes against each "
                "other; use it with all of its classes."
            )
        rows = torch.tensor([self.labels.index(label) for label in labels])
        axes = self.model_config.class_axes()
        weights = {
            name: value.index_select(axes[name], rows) if name in axes else value
            for name, value in self.weights.items()
        }
        return replace(
            self,
            labels=tuple(labels),
            model_config=self.model_config.changed(n_classes=len(labels)),
            weights=weights,
            decoding=self.decoding.select(labels),
        )

    def halved(self) -> "Bundle":
        """Return the same network in half precision, for a file of half the size."""
        return replace(self, weights={name: _halved(w) for name, w in self.weights.items()})

    def with_encoder(self, file: str | os.PathLike[str]) -> "Bundle":
        """Return the same network with the place of its encoder's file; its hash stays the same."""
        encoder = self.feature_config.encoder
        if encoder is None:
            raise SettingError(f"The model has no encoder; leave out encoder={os.fspath(file)!r}.")
        path = encoder_file(file)
        moved = replace(self.feature_config, encoder=replace(encoder, file=path))
        return replace(self, feature_config=moved)

    def with_decoding(
        self,
        decoding: Decoding,
        tuning: Mapping[str, Any],
        calibration: Calibration | None = None,
    ) -> "Bundle":
        """Return the same network with another decoding, and a calibration of its events."""
        return replace(self, decoding=decoding, tuning=tuning, calibration=calibration)


def _halved(weights: Tensor) -> Tensor:
    return weights.half() if weights.is_floating_point() else weights


def save_bundle(bundle: Bundle, path: str | os.PathLike[str]) -> Path:
    """Write the file; return its path."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    about = json.dumps(bundle.describe(), sort_keys=True, ensure_ascii=False)
    save_tensors(target, bundle.weights, about)
    return target


def load_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Read a model file of this or an older format; a damaged one is refused."""
    source = Path(path)
    if source.is_dir():
        raise BundleError(f"{source} is a folder; name the model file in it, as model{SUFFIX}.")
    if not source.exists():
        raise BundleError(f"There is no model file {source}.")
    text, weights = load_tensors(source, "model", BundleError)
    try:
        values = json.loads(text)
        if not isinstance(values, dict):
            raise SettingError(f"its description must be a table. Got {values!r}.")
        if type(values["format"]) is not int or values["format"] < 1:
            raise SettingError(f"its format must be a number from 1 on. Got {values['format']!r}.")
        values = migrate(values)
        if values["format"] != FORMAT:
            made_by = dict(values.get("versions", {})).get("earmark", "unknown")
            raise BundleError(
                f"{source} has format {values['format']!r} (made by Earmark {made_by}), and this "
                f"version reads up to format {FORMAT}; install a newer version of Earmark."
            )
        for name in values:
            choose("field of a model file", name, _FIELDS)
        labels, decoding = tuple(values["labels"]), Decoding.from_dict(values["decoding"])
        if {*labels} == {*decoding.labels}:  # the text is written with its keys in order
            decoding = decoding.select(labels)
        bundle = Bundle(
            labels=labels,
            feature_config=build(FeatureConfig, "features", values["features"]),
            model_config=read_network(values["model"]),
            weights=weights,
            decoding=decoding,
            calibration=_calibration(values.get("calibration")),
            **{name: values[name] for name in _PLAIN if name in values},
        )
        bundle.check_weights()
    except _UNUSABLE as error:
        if isinstance(error, BundleError):
            raise
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise BundleError(f"{source} is not a usable model file: {reason}") from error
    return bundle


def _calibration(values: object) -> Calibration | None:
    return None if values is None else build(Calibration, "calibration", values)


def migrate(values: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a model file in the newest format.

    >>> features, decoding = {"rate": 8000}, {"labels": [], "tag_threshold": []}
    >>> old = {"format": 1, "features": features, "decoding": decoding}
    >>> migrate(old)["features"]
    {'sample_rate': 8000}
    """
    while values["format"] in MIGRATIONS:
        values = MIGRATIONS[values["format"]](values)
    return values


def _from_format_1(values: dict[str, Any]) -> dict[str, Any]:
    """Rename settings; turn six lists with one value per class into one rule per class."""
    features = dict(values["features"])
    features["sample_rate"] = features.pop("rate")
    columns = dict(values["decoding"])
    labels = columns.pop("labels")
    columns["clip_threshold"] = columns.pop("tag_threshold")
    rules = (dict(zip(columns, rule, strict=True)) for rule in zip(*columns.values(), strict=True))
    decoding = dict(zip(labels, rules, strict=True))
    training = dict(values.get("training", {}))
    if "settings" in training:
        settings = {section: dict(own) for section, own in training["settings"].items()}
        for section, names in _FIRST_NAMES.items():
            own = settings.get(section, {})
            settings[section] = {names.get(name, name): value for name, value in own.items()}
        training["settings"] = settings
    changed = {"features": features, "decoding": decoding, "training": training}
    return values | {"format": 2} | changed


def _from_format_2(values: dict[str, Any]) -> dict[str, Any]:
    """Files of format 2 have no calibration."""
    return values | {"format": 3}


# Settings of a training in files of format 1 -> their names now.
_FIRST_NAMES = {
    "training": {"average": "ema_decay", "frame_share": "frame_loss_weight", "keep": "checkpoint"},
    "augment": {"overlay": "mixing", "filter_db": "eq_db"},
}


_UNUSABLE = (
    EarmarkError,
    AttributeError,
    LookupError,
    MemoryError,
    OverflowError,
    RuntimeError,  # a nesting that is too deep, a size that torch cannot count
    TypeError,
    ValueError,
)

# Format -> what turns the description of a file in that format into the next one.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: _from_format_1,
    2: _from_format_2,
}


def validation_table(classes: Mapping[str, Mapping[str, Any]], labels: Sequence[str]) -> str:
    """Return what the validation clips said of each class as a table of up to 80 columns.

    Args:
        classes: label -> "n_positive", "average_precision", "roc_auc", "f1"; None is undefined.
        labels: the classes, in this order.

    >>> dog = {"n_positive": 12, "average_precision": 0.81, "roc_auc": None, "f1": 0.75}
    >>> print(validation_table({"dog": dog}, ["dog"]))
    class  clips  average precision    AUC     F1
    dog       12              0.810      -  0.750
    """
    columns = ("average_precision", "roc_auc", "f1")
    width = min(40, max(len(label) for label in ("class", *labels)))
    lines = [f"{'class':{width}}  clips  average precision    AUC     F1"]
    for label in labels:
        own = classes[label]
        texts = ("-" if own[name] is None else f"{own[name]:.3f}" for name in columns)
        precision, auc, f1 = texts
        name = label if len(label) <= width else f"{label[: width - 3]}..."
        lines.append(f"{name:{width}}  {own['n_positive']:5}  {precision:>17}  {auc:>5}  {f1:>5}")
    return "\n".join(lines)


def describe_bundle(about: Mapping[str, Any]) -> str:
    """Return what `Bundle.describe` returns as lines of text; statistics of features are counted.

    >>> about = load_bundle(BUNDLED).describe()
    >>> describe_bundle(about).splitlines()[0].split(",")[0]
    '17 classes'
    """
    features = {k: v for k, v in about["features"].items() if k not in ("mean", "std")}
    decoding = about["decoding"]
    lines = [f"{len(about['labels'])} classes, {about['n_parameters']:,} parameters"]
    training = dict(about["training"])
    classes = training.pop("classes", None)  # newer than the first model files
    changed = {**about, "training": training}
    sections = {name: changed[name] for name in ("model", "training", "tuning", "versions")}
    for name, values in (sections | {"features": features}).items():
        lines.append(f"{name}: " + ", ".join(f"{key}={value}" for key, value in values.items()))
    lines += [
        f"normalisation: {len(about['features']['mean'])} means and standard deviations",
        f"window: {about['window']:g} s",
        f"licence: {about['licence'] or 'not stated'}",
        "attribution:" if about["attribution"] else "attribution: not stated",
        *(f"  {line}" for line in about["attribution"]),
        "calibration: "
        + (", ".join(f"{k}={v:.3g}" for k, v in (about["calibration"] or {}).items()) or "none"),
    ]
    if classes:
        lines += ["validation clips:", validation_table(classes, about["labels"])]
    names = list(decoding[about["labels"][0]])
    lines.append("\t".join(["label", *names]))
    for label, rule in decoding.items():
        lines.append("\t".join([label, *(f"{rule[name]:.3g}" for name in names)]))
    return "\n".join(lines)
