"""Earmark learns from clip tags alone when each sound happens.

The names below are the public front. They are imported when first used, so that `import earmark`
costs nothing and touches neither torch nor the network.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from earmark.runtime.isa import cap_instruction_set

cap_instruction_set()  # before oneDNN is first used, or bfloat16 may crash the process

__version__ = "0.1.0"

if TYPE_CHECKING:
    from earmark.audio.decode import read_audio, read_blocks
    from earmark.audio.encode import write_audio
    from earmark.data.features import FeatureConfig, log_mel
    from earmark.data.manifest import Manifest
    from earmark.errors import (
        AudioError,
        BundleError,
        DataError,
        EarmarkError,
        EarmarkWarning,
        SettingError,
    )
    from earmark.formats.events import Event, read_events, write_events
    from earmark.formats.scores import read_curves, write_curves
    from earmark.formats.tags import read_tags, write_tags
    from earmark.frames import FrameGrid
    from earmark.inference.decoding import Decoding, decode_events
    from earmark.inference.detector import Detector, load
    from earmark.metrics import clip_scores, event_scores, psds_scores, segment_scores
    from earmark.metrics.evaluation import Scoring, SystemOutput, evaluate
    from earmark.nn.model import Model, ModelConfig
    from earmark.pooling import Pooling
    from earmark.synth.scenes import SceneConfig, make_scene, write_scenes
    from earmark.synth.soundbank import Soundbank
    from earmark.training.api import train, tune
    from earmark.training.settings import RunConfig, Settings

_MODULE_OF = {
    "SystemOutput": "metrics.evaluation",
    "AudioError": "errors",
    "BundleError": "errors",
    "DataError": "errors",
    "Decoding": "inference.decoding",
    "Detector": "inference.detector",
    "EarmarkError": "errors",
    "EarmarkWarning": "errors",
    "Event": "formats.events",
    "FeatureConfig": "data.features",
    "FrameGrid": "frames",
    "Manifest": "data.manifest",
    "Model": "nn.model",
    "ModelConfig": "nn.model",
    "Pooling": "pooling",
    "RunConfig": "training.settings",
    "SceneConfig": "synth.scenes",
    "Scoring": "metrics.evaluation",
    "SettingError": "errors",
    "Settings": "training.settings",
    "Soundbank": "synth.soundbank",
    "clip_scores": "metrics",
    "decode_events": "inference.decoding",
    "evaluate": "metrics.evaluation",
    "event_scores": "metrics",
    "load": "inference.detector",
    "log_mel": "data.features",
    "make_scene": "synth.scenes",
    "psds_scores": "metrics",
    "read_audio": "audio.decode",
    "read_blocks": "audio.decode",
    "read_curves": "formats.scores",
    "read_events": "formats.events",
    "read_tags": "formats.tags",
    "segment_scores": "metrics",
    "train": "training.api",
    "tune": "training.api",
    "write_audio": "audio.encode",
    "write_curves": "formats.scores",
    "write_events": "formats.events",
    "write_scenes": "synth.scenes",
    "write_tags": "formats.tags",
}

__all__ = [  # noqa: RUF022 - the version goes last
    "SystemOutput",
    "AudioError",
    "BundleError",
    "DataError",
    "Decoding",
    "Detector",
    "EarmarkError",
    "EarmarkWarning",
    "Event",
    "FeatureConfig",
    "FrameGrid",
    "Manifest",
    "Model",
    "ModelConfig",
    "Pooling",
    "RunConfig",
    "SceneConfig",
    "Scoring",
    "SettingError",
    "Settings",
    "Soundbank",
    "clip_scores",
    "decode_events",
    "evaluate",
    "event_scores",
    "load",
    "log_mel",
    "make_scene",
    "psds_scores",
    "read_audio",
    "read_blocks",
    "read_curves",
    "read_events",
    "read_tags",
    "segment_scores",
    "train",
    "tune",
    "write_audio",
    "write_curves",
    "write_events",
    "write_scenes",
    "write_tags",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'earmark' has no attribute {name!r}")
    value = getattr(import_module(f"earmark.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
