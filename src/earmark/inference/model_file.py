"""A trained network <-> one file that says everything about itself.

Conventions: a safetensors file (no pickle, nothing that could run) whose metadata holds one JSON
text: labels, features, normalisation, network, decoding, how it was tuned and trained, versions,
licence and attribution. Checksums cover the text and the weights, so that a damaged part is refused
and not half believed. Written beside and moved into place.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from earmark.data.features import FeatureConfig
from earmark.errors import BundleError, SettingError, choose
from earmark.inference.decoding import Decoding
from earmark.nn.model import Model, ModelConfig
from earmark.tensors import load_tensors, save_tensors

FORMAT = 2  # raised when an older Earmark could not read the file any more
SUFFIX = ".earmark"
BUNDLED = Path(__file__).parents[1] / "models" / f"everyday{SUFFIX}"  # comes with the package


def installed_versions() -> dict[str, str]:
    """Return the versions of what decides the numbers."""
    found = {}
    for name in ("earmark", "torch", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


@dataclass(frozen=True)
class Bundle:
    """All that detecting needs, and all that is worth knowing.

    Args:
        labels: the classes, in the order of the network's outputs.
        features: how a waveform becomes the network's input, normalisation included.
        model: the sizes of the network.
        weights: its parameters and statistics, by name.
        decoding: thresholds and post-processing.
        window: seconds that the network looks at at a time.
        tuning: on what the decoding was tuned: "supervision" is "weak", "strong" or "none".
        training: a summary: epochs, losses, clips, settings.
        versions: of what made the file.
        licence: of the weights.
        attribution: whom the sounds it learned from are due to.
    """

    labels: tuple[str, ...]
    features: FeatureConfig
    model: ModelConfig
    weights: Mapping[str, Tensor]
    decoding: Decoding
    window: float = 10.0
    tuning: Mapping[str, Any] = field(default_factory=lambda: {"supervision": "none"})
    training: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=installed_versions)
    licence: str = ""
    attribution: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.labels) != self.model.n_classes or self.labels != self.decoding.labels:
            raise SettingError(
                "labels, the network's classes and the decoding must be the same. Got "
                f"{len(self.labels)} labels, {self.model.n_classes} classes, a decoding of "
                f"{len(self.decoding.labels)}."
            )

    def build_model(self) -> Model:
        """Return the network, ready to predict."""
        with torch.random.fork_rng(devices=()):  # its first weights are drawn, and overwritten
            model = Model(self.model)
        model.load_state_dict(dict(self.weights))  # half precision becomes single here
        return model.eval()

    def describe(self) -> dict[str, Any]:
        """Return everything but the weights, as plain values."""
        return {
            "format": FORMAT,
            "labels": list(self.labels),
            "window": self.window,
            "features": asdict(self.features),
            "model": asdict(self.model),
            "decoding": self.decoding.to_dict(),
            "tuning": dict(self.tuning),
            "training": dict(self.training),
            "versions": dict(self.versions),
            "licence": self.licence,
            "attribution": list(self.attribution),
            "n_parameters": sum(value.numel() for value in self.weights.values()),
        }

    def only(self, labels: Sequence[str]) -> "Bundle":
        """Return the network with these classes alone, in this order.

        What it says of them stays the same, since no class hears of another one.
        """
        for label in labels:
            choose("label", label, self.labels)
        if self.model.mixes_classes:
            raise SettingError(
                f"The pooling {self.model.pooling} weighs classes against each other."
            )
        rows = [self.labels.index(label) for label in labels]
        weights = {
            name: value[rows] if name.startswith(("classifier.", "pooling.")) else value
            for name, value in self.weights.items()
        }
        rules = [self.decoding.rule(label) for label in labels]
        return replace(
            self,
            labels=tuple(labels),
            model=replace(self.model, n_classes=len(labels)),
            weights=weights,
            decoding=Decoding.from_rules(labels, rules),
        )

    def halved(self) -> "Bundle":
        """Return the same network in half precision, which takes half of the room in a file."""
        return replace(self, weights={name: _halved(w) for name, w in self.weights.items()})

    def with_decoding(self, decoding: Decoding, tuning: Mapping[str, Any]) -> "Bundle":
        """Return the same network, decoded otherwise."""
        return replace(self, decoding=decoding, tuning=tuning)


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
    """Read the file, and refuse it unless every part is as it was written."""
    source = Path(path)
    if source.is_dir():
        raise BundleError(f"{source} is a folder; name the model file in it, as model{SUFFIX}.")
    if not source.exists():
        raise BundleError(f"There is no model file {source}.")
    about, weights = load_tensors(source, "model", BundleError)
    values = json.loads(about)
    while values.get("format") in MIGRATIONS:
        values = MIGRATIONS[values["format"]](values)
    if values.get("format") != FORMAT:
        made_by = values.get("versions", {}).get("earmark", "unknown")
        raise BundleError(
            f"{source} has format {values.get('format')!r} (made by Earmark {made_by}), and this "
            f"version reads format {FORMAT}; install the version that made it, or train again."
        )
    return Bundle(
        labels=tuple(values["labels"]),
        features=FeatureConfig(**values["features"]),
        model=ModelConfig(**values["model"]),
        weights=weights,
        decoding=Decoding.from_dict(values["decoding"]),
        window=values["window"],
        tuning=values["tuning"],
        training=values["training"],
        versions=values["versions"],
        licence=values["licence"],
        attribution=tuple(values["attribution"]),
    )


def _from_format_1(values: dict[str, Any]) -> dict[str, Any]:
    """Rename what format 2 has renamed."""
    values["features"]["sample_rate"] = values["features"].pop("rate")
    values["decoding"]["clip_threshold"] = values["decoding"].pop("tag_threshold")
    return values | {"format": 2}


# Format -> what turns the description of a file in that format into the next one.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _from_format_1}
