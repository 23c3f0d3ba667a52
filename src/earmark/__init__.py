"""Earmark learns from clip tags alone when each sound happens.

The names below are the public front. They are imported when first used, so that `import earmark`
costs nothing and touches neither torch nor the network. The subpackages that users need are
attributes as well: `earmark.metrics`, `earmark.plots`, `earmark.pooling` and others.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from earmark.runtime.isa import cap_instruction_set

cap_instruction_set()  # before oneDNN is first used, or bfloat16 may crash the process

__version__ = "0.1.0"

if TYPE_CHECKING:
    from earmark.audio.decode import read_audio, read_blocks
    from earmark.audio.encode import write_audio
    from earmark.data.features import FeatureConfig, LogMel, log_mel
    from earmark.data.manifest import Manifest
    from earmark.encoders import register_encoder
    from earmark.errors import (
        AudioError,
        BundleError,
        ClusterError,
        DataError,
        EarmarkError,
        EarmarkWarning,
        SettingError,
    )
    from earmark.formats.events import Event, read_events, write_events
    from earmark.formats.scores import ScoreTable, read_scores, write_scores
    from earmark.formats.tags import read_tags, write_tags
    from earmark.frames import FrameGrid, FrameScores
    from earmark.inference.combine import ensemble
    from earmark.inference.decoding import Decoding, Rule, decode_events
    from earmark.inference.detector import Detector, load
    from earmark.metrics import (
        SCENARIO_1,
        SCENARIO_2,
        clip_scores,
        event_scores,
        psds_scores,
        segment_scores,
    )
    from earmark.metrics.evaluation import Scoring, evaluate
    from earmark.metrics.system_output import SystemOutput
    from earmark.nn.embedding_network import EmbeddingConfig
    from earmark.nn.model import Model, ModelConfig
    from earmark.nn.networks import register_network
    from earmark.pooling import Pooling
    from earmark.reports import report
    from earmark.synth.scenes import SceneConfig, make_scene, write_scenes
    from earmark.synth.soundbank import Soundbank
    from earmark.training.api import train, tune
    from earmark.training.augmentation import AugmentConfig
    from earmark.training.config import RunConfig, TrainingConfig
    from earmark.training.finish import export_best
    from earmark.training.settings import Settings

_MODULE_OF = {
    "SCENARIO_1": "metrics",
    "SCENARIO_2": "metrics",
    "AudioError": "errors",
    "AugmentConfig": "training.augmentation",
    "BundleError": "errors",
    "ClusterError": "errors",
    "DataError": "errors",
    "Decoding": "inference.decoding",
    "Detector": "inference.detector",
    "EarmarkError": "errors",
    "EarmarkWarning": "errors",
    "EmbeddingConfig": "nn.embedding_network",
    "Event": "formats.events",
    "FeatureConfig": "data.features",
    "FrameGrid": "frames",
    "FrameScores": "frames",
    "LogMel": "data.features",
    "Manifest": "data.manifest",
    "Model": "nn.model",
    "ModelConfig": "nn.model",
    "Pooling": "pooling",
    "Rule": "inference.decoding",
    "RunConfig": "training.config",
    "SceneConfig": "synth.scenes",
    "ScoreTable": "formats.scores",
    "Scoring": "metrics.evaluation",
    "SettingError": "errors",
    "Settings": "training.settings",
    "Soundbank": "synth.soundbank",
    "SystemOutput": "metrics.system_output",
    "TrainingConfig": "training.config",
    "clip_scores": "metrics",
    "decode_events": "inference.decoding",
    "ensemble": "inference.combine",
    "evaluate": "metrics.evaluation",
    "event_scores": "metrics",
    "export_best": "training.finish",
    "load": "inference.detector",
    "log_mel": "data.features",
    "make_scene": "synth.scenes",
    "psds_scores": "metrics",
    "read_audio": "audio.decode",
    "read_blocks": "audio.decode",
    "read_events": "formats.events",
    "read_scores": "formats.scores",
    "read_tags": "formats.tags",
    "register_encoder": "encoders",
    "register_network": "nn.networks",
    "report": "reports",
    "segment_scores": "metrics",
    "train": "training.api",
    "tune": "training.api",
    "write_audio": "audio.encode",
    "write_events": "formats.events",
    "write_scenes": "synth.scenes",
    "write_scores": "formats.scores",
    "write_tags": "formats.tags",
}
_SUBPACKAGES = (
    "audio",
    "data",
    "encoders",
    "experiments",
    "formats",
    "inference",
    "metrics",
    "nn",
    "plots",
    "pooling",
    "reports",
    "synth",
    "training",
)

__all__ = [  # noqa: RUF022 - the version goes last
    "SCENARIO_1",
    "SCENARIO_2",
    "AudioError",
    "AugmentConfig",
    "BundleError",
    "ClusterError",
    "DataError",
    "Decoding",
    "Detector",
    "EarmarkError",
    "EarmarkWarning",
    "EmbeddingConfig",
    "Event",
    "FeatureConfig",
    "FrameGrid",
    "FrameScores",
    "LogMel",
    "Manifest",
    "Model",
    "ModelConfig",
    "Pooling",
    "Rule",
    "RunConfig",
    "SceneConfig",
    "ScoreTable",
    "Scoring",
    "SettingError",
    "Settings",
    "Soundbank",
    "SystemOutput",
    "TrainingConfig",
    "clip_scores",
    "decode_events",
    "ensemble",
    "evaluate",
    "event_scores",
    "export_best",
    "load",
    "log_mel",
    "make_scene",
    "psds_scores",
    "read_audio",
    "read_blocks",
    "read_events",
    "read_scores",
    "read_tags",
    "register_encoder",
    "register_network",
    "report",
    "segment_scores",
    "train",
    "tune",
    "write_audio",
    "write_events",
    "write_scenes",
    "write_scores",
    "write_tags",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name in _SUBPACKAGES:
        return import_module(f"earmark.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'earmark' has no attribute {name!r}")
    value = getattr(import_module(f"earmark.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBPACKAGES])
