"""The registry of networks: name -> the class of its configuration, which builds the network.

A new network is a module with a `NetworkConfig` and a `Network`, and one line here. Settings, model
files and the command line (`--set model.network=head`) read this registry.
"""

from collections.abc import Mapping
from typing import Any

from earmark.config import build
from earmark.errors import choose
from earmark.nn.emsi import EmsiConfig
from earmark.nn.gccaps import GCCapsConfig
from earmark.nn.head import HeadConfig
from earmark.nn.mlms import MlmsConfig
from earmark.nn.model import ModelConfig
from earmark.nn.network import NetworkConfig
from earmark.nn.surrey import SurreyConfig
from earmark.nn.wang import WangConfig

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


def read_network(values: Mapping[str, Any]) -> NetworkConfig:
    """Return the configuration that `NetworkConfig.to_dict` gave as plain values, checked strictly.

    >>> read_network({"network": "head", "n_classes": 3, "n_hidden": 64}).n_hidden
    64
    >>> read_network({"n_classes": 3}).network
    'crnn'
    """
    own = dict(values)
    name = choose("network", own.pop("network", "crnn"), NETWORKS)
    return build(NETWORKS[name], "model", own)
