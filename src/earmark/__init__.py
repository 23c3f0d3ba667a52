"""Earmark learns from clip tags alone when each sound happens.

The names below are the public front. They are imported when first used, so that `import earmark`
costs nothing and touches neither torch nor the network.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from earmark.audio import read_audio, read_blocks, write_audio
    from earmark.errors import AudioError, EarmarkError, SettingError
    from earmark.events import Event
    from earmark.features import FeatureConfig, log_mel
    from earmark.frames import Frames
    from earmark.model import Model, ModelConfig
    from earmark.pooling import Pooling

_ROOM_OF = {
    "AudioError": "errors",
    "EarmarkError": "errors",
    "Event": "events",
    "FeatureConfig": "features",
    "Frames": "frames",
    "Model": "model",
    "ModelConfig": "model",
    "Pooling": "pooling",
    "SettingError": "errors",
    "log_mel": "features",
    "read_audio": "audio",
    "read_blocks": "audio",
    "write_audio": "audio",
}

__all__ = [  # noqa: RUF022 - the version goes last
    "AudioError",
    "EarmarkError",
    "Event",
    "FeatureConfig",
    "Frames",
    "Model",
    "ModelConfig",
    "Pooling",
    "SettingError",
    "log_mel",
    "read_audio",
    "read_blocks",
    "write_audio",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'earmark' has no attribute {name!r}")
    value = getattr(import_module(f"earmark.{_ROOM_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
