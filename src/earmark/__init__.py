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
    from earmark.answers import Answer
    from earmark.audio import read_audio, read_blocks, write_audio
    from earmark.curves import read_curves, write_curves
    from earmark.data import Manifest
    from earmark.decoding import Decoding, decode_events
    from earmark.detector import Detector
    from earmark.errors import AudioError, BundleError, DataError, EarmarkError, SettingError
    from earmark.evaluation import Scoring, evaluate
    from earmark.events import Event, read_events, write_events
    from earmark.features import FeatureConfig, log_mel
    from earmark.frames import Frames
    from earmark.learning import load, train, tune
    from earmark.metrics import clip_scores, event_scores, psds_scores, segment_scores
    from earmark.model import Model, ModelConfig
    from earmark.pooling import Pooling
    from earmark.settings import Settings
    from earmark.soundbank import Soundbank
    from earmark.synth import SceneConfig, make_scene, write_scenes
    from earmark.tags import read_tags, write_tags

_ROOM_OF = {
    "Answer": "answers",
    "AudioError": "errors",
    "BundleError": "errors",
    "DataError": "errors",
    "Decoding": "decoding",
    "Detector": "detector",
    "EarmarkError": "errors",
    "Event": "events",
    "FeatureConfig": "features",
    "Frames": "frames",
    "Manifest": "data",
    "Model": "model",
    "ModelConfig": "model",
    "Pooling": "pooling",
    "SceneConfig": "synth",
    "Scoring": "evaluation",
    "SettingError": "errors",
    "Settings": "settings",
    "Soundbank": "soundbank",
    "clip_scores": "metrics",
    "decode_events": "decoding",
    "evaluate": "evaluation",
    "event_scores": "metrics",
    "load": "learning",
    "log_mel": "features",
    "make_scene": "synth",
    "psds_scores": "metrics",
    "read_audio": "audio",
    "read_blocks": "audio",
    "read_curves": "curves",
    "read_events": "events",
    "read_tags": "tags",
    "segment_scores": "metrics",
    "train": "learning",
    "tune": "learning",
    "write_audio": "audio",
    "write_curves": "curves",
    "write_events": "events",
    "write_scenes": "synth",
    "write_tags": "tags",
}

__all__ = [  # noqa: RUF022 - the version goes last
    "Answer",
    "AudioError",
    "BundleError",
    "DataError",
    "Decoding",
    "Detector",
    "EarmarkError",
    "Event",
    "FeatureConfig",
    "Frames",
    "Manifest",
    "Model",
    "ModelConfig",
    "Pooling",
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
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'earmark' has no attribute {name!r}")
    value = getattr(import_module(f"earmark.{_ROOM_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
