"""Start a training from a trained network with other classes: the encoder is kept, the head is new.

Conventions: the head is the classifier, the pooling, and every other tensor with one value or row
per class; all other tensors are kept. Features, with their normalisation, and the network are those
of the model; the settings of head and dropout may change, and any other change is an error. The
kept part learns with `training.kept_rate` times the learning rate. At 0 it is frozen: its weights
and the statistics of its batch norms stay as they are, to the bit.
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from earmark.errors import SettingError
from earmark.inference.model_file import Bundle, load_bundle
from earmark.inference.onnx_file import SUFFIX
from earmark.nn.network import Network, NetworkConfig

HEAD = ("classifier.", "pooling.")  # prefixes of its tensors, besides those with an axis of classes


@dataclass(frozen=True)
class Origin:
    """The model file that a training starts from, identified by its hash.

    Args:
        file: its path.
        sha256: of its bytes.

    >>> Origin(Path("model.earmark"), "5e2...").about()
    {'file': 'model.earmark', 'sha256': '5e2...'}
    """

    file: Path
    sha256: str

    @classmethod
    def read(cls, path: Path) -> "Origin":
        """Return the origin of a file that exists."""
        return cls(path, hashlib.sha256(path.read_bytes()).hexdigest())

    def about(self) -> dict[str, Any]:
        """Return what a model file records of it."""
        return {"file": self.file.name, "sha256": self.sha256}


def open_origin(path: Path) -> Bundle:
    """Return the model to start from; raise unless it has one network.

    >>> from earmark.inference.model_file import BUNDLED
    >>> len(open_origin(BUNDLED).members)
    1
    """
    if path.suffix == SUFFIX:
        raise SettingError(
            f"{path} is an ONNX file, whose network cannot be trained; start from the model file "
            "that it was exported from."
        )
    bundle = load_bundle(path)
    if len(bundle.members) > 1:
        raise SettingError(
            f"{path} is an ensemble of {len(bundle.members)} networks; start from a model of one."
        )
    return bundle


def kept_tensors(config: NetworkConfig) -> frozenset[str]:
    """Return the names of the tensors that a training from a model keeps.

    >>> from earmark.nn.model import ModelConfig
    >>> kept = kept_tensors(ModelConfig.preset("paper-fast", n_classes=3, pooling="attention"))
    >>> "recurrent.weight_hh_l0" in kept, "classifier.weight" in kept
    (True, False)
    """
    classes = config.class_axes()
    return frozenset(
        name for name in config.tensor_shapes() if name not in classes and not name.startswith(HEAD)
    )


def check_origin(config: NetworkConfig, bundle: Bundle) -> None:
    """Raise unless the tensors to keep are in the model, and all of its own are kept."""
    own = bundle.model_config
    if config.network != own.network:
        raise SettingError(
            f"The model to start from has the network {own.network!r}; leave out "
            f"model.network={config.network}."
        )
    shapes = config.tensor_shapes()
    wanted = {name: shapes[name] for name in kept_tensors(config)}
    found = {name: tuple(bundle.weights[name].shape) for name in kept_tensors(own)}
    if wanted != found:
        differs = sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name))
        raise SettingError(
            "Settings of the network come from the model to start from; only pooling, stages, "
            f"stage_weights and dropout may change. {differs[0]} would be "
            f"{wanted.get(differs[0], 'missing')}, and the model has "
            f"{found.get(differs[0], 'none')}."
        )


def load_kept(model: Network, weights: Mapping[str, Tensor], kept: Collection[str]) -> None:
    """Put the weights to keep into a network; the others stay as they are."""
    model.load_state_dict(model.state_dict() | {name: weights[name] for name in kept})


def parameter_groups(
    model: Network, kept: Collection[str], kept_rate: float
) -> list[dict[str, Any]]:
    """Return the parameters for an optimizer, in groups with the `factor` of their learning rate.

    Frozen parameters need no gradient from here on, and are in no group.

    >>> from earmark.nn.head import HeadConfig
    >>> model = HeadConfig(n_classes=3).build()
    >>> kept = kept_tensors(model.config)
    >>> [group["factor"] for group in parameter_groups(model, kept, 0.1)]
    [1.0, 0.1]
    >>> len(parameter_groups(model, kept, 0.0))
    1
    """
    named = dict(model.named_parameters())
    groups: list[dict[str, Any]] = [
        {"params": [x for name, x in named.items() if name not in kept], "factor": 1.0}
    ]
    of_kept = [x for name, x in named.items() if name in kept]
    if kept_rate and of_kept:
        groups.append({"params": of_kept, "factor": kept_rate})
    else:
        for parameter in of_kept:
            parameter.requires_grad_(False)
    return groups


def hold_statistics(model: Network, kept: Collection[str]) -> None:
    """Put the batch norms of the kept part into evaluation, so that they do not learn either."""
    for name, module in model.named_modules():
        is_norm = isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)
        if is_norm and all(f"{name}.{own}" in kept for own in module.state_dict()):
            module.eval()
