"""The registry of networks: name -> the class of its configuration, which builds the network.

A new network is a module with a `NetworkConfig` and a `Network`, and one line here. Settings, model
files and the command line (`--set model.network=head`) read this registry. A network of your own
is an `EmbeddingConfig` (`earmark.nn.embedding_network`) and a call of `register_network`, or its
import path in place of a name (`--set model.network=my_module:MyConfig`).
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from earmark.config import build
from earmark.errors import SettingError, choose
from earmark.nn.emsi import EmsiConfig
from earmark.nn.gccaps import GCCapsConfig
from earmark.nn.head import HeadConfig
from earmark.nn.mlms import MlmsConfig
from earmark.nn.model import ModelConfig
from earmark.nn.network import NetworkConfig
from earmark.nn.surrey import SurreyConfig
from earmark.nn.wang import WangConfig
from earmark.runtime.extensions import import_extension

# Name of a network -> the class of its configuration.
NETWORKS: dict[str, type[NetworkConfig]] = {
    kind.network: kind
    for kind in (
        ModelConfig,
        HeadConfig,
        WangConfig,
        SurreyConfig,
        GCCapsConfig,
        EmsiConfig,
        MlmsConfig,
    )
}


Kind = TypeVar("Kind", bound=type[NetworkConfig])


def register_network(kind: Kind) -> Kind:
    """Make a network of your own known under `kind.network`; a later one replaces it.

    Use it as a decorator, above `@dataclass(frozen=True)`.

    >>> from earmark.nn.model import ModelConfig
    >>> register_network(ModelConfig) is NETWORKS["crnn"]
    True
    """
    own = isinstance(kind, type) and issubclass(kind, NetworkConfig)
    if not own or not hasattr(kind, "__dataclass_fields__"):
        raise SettingError(
            f"A network is registered by a frozen dataclass derived from NetworkConfig. Got {kind}."
        )
    NETWORKS[kind.network] = kind
    return kind


def find_network(name: str) -> type[NetworkConfig]:
    """Return the network of a name, or of an import path, whose module is imported.

    Args:
        name: a key of `NETWORKS`, or "module:Class"; given by the user, not by a file.

    >>> find_network("earmark.nn.head:HeadConfig").network
    'head'
    """
    if name not in NETWORKS and ":" in name:
        module, _, attribute = name.partition(":")
        found: type[NetworkConfig] | None = getattr(import_extension(module), attribute, None)
        if found is None:
            raise SettingError(f"The module {module!r} has no {attribute!r}, of {name!r}.")
        return register_network(found)
    return NETWORKS[choose("model.network", name, NETWORKS)]


def read_network(values: Mapping[str, Any]) -> NetworkConfig:
    """Return the configuration that `NetworkConfig.to_dict` gave as plain values, checked strictly.

    >>> read_network({"network": "head", "n_classes": 3, "n_hidden": 64}).n_hidden
    64
    >>> read_network({"n_classes": 3}).network
    'crnn'
    """
    own = dict(values)
    name = own.pop("network", "crnn")
    if name not in NETWORKS and ":" in str(name):
        module, _, attribute = str(name).partition(":")
        raise SettingError(
            f"The network {name!r} is code of its author, which a file may not import. If you "
            f"trust it, run earmark --import {module} ..., or in Python import {module} and call "
            f"register_network({attribute})."
        )
    choose("network", name, NETWORKS)
    return build(NETWORKS[name], "model", own)
