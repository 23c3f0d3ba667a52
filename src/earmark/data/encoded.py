"""Waveform -> features: log-mel, samples, or the frame embeddings of a pretrained encoder.

`feature_blocks` is the one way from a waveform to the input of a network; the feature store and the
detector both take it. `read_encoder` reads the description of an encoder: a TOML file with the
fields of `EncoderConfig` in its table `encoder`, and those of `FeatureConfig` in `features`:

    [encoder]
    file = "yamnet.tflite"    # relative to the TOML file
    patch = 0.96
    hop = 0.16

    [features]
    sample_rate = 16000
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from earmark.config import build, read_toml
from earmark.data.features import (
    CHUNK,
    LIVE_CHUNK,
    FeatureConfig,
    Normalise,
    log_mel_blocks,
    sample_blocks,
)
from earmark.encoders.config import EncoderConfig
from earmark.encoders.runtimes import ENCODERS, check_kind, digest, make_module, source_of
from earmark.encoders.stream import BATCH, Encoder
from earmark.errors import SettingError, choose
from earmark.runtime.threads import share_items


def feature_blocks(
    blocks: Iterable[Tensor | NDArray[np.floating]], config: FeatureConfig, is_live: bool = False
) -> Iterator[Tensor]:
    """Yield the features of a waveform that comes in blocks of any sizes, normalised, in pieces.

    The pieces (frames, features), concatenated, do not depend on the sizes of the blocks.

    Args:
        blocks: of the waveform, in order.
        config: of the features.
        is_live: whether to compute fewer frames at a time, so that they come within
            `feature_delay`; they are then equal to rounding.

    >>> pieces = feature_blocks([np.zeros(180000, np.float32)], FeatureConfig())
    >>> [tuple(piece.shape) for piece in pieces]
    [(256, 80), (26, 80)]
    """
    if config.encoder is None:
        make = sample_blocks if config.kind == "waveform" else log_mel_blocks
        yield from make(blocks, config, LIVE_CHUNK if is_live else CHUNK)
        return
    encoder, normalise = open_encoder(config), Normalise(config.mean, config.std)
    takes_samples = config.encoder.input == "waveform"
    chunk = LIVE_CHUNK if is_live else CHUNK
    inputs = blocks if takes_samples else log_mel_blocks(blocks, config.log_mel, chunk)
    tensors = (torch.as_tensor(each).detach().float().cpu() for each in inputs)
    for piece in encoder.stream(tensors, 1 if is_live else BATCH):
        yield normalise(piece)


def feature_delay(config: FeatureConfig) -> float:
    """Return how many seconds behind a frame its features need in a live recording, at most.

    >>> round(feature_delay(FeatureConfig()), 3)  # 16 frames of 20 ms, and a window of 40 ms
    0.33
    """
    if config.encoder is not None and config.encoder.input == "waveform":
        return config.encoder.patch
    delay = LIVE_CHUNK * config.hop
    if config.kind == "log-mel":
        delay += (config.window - config.hop) / 2
    return delay + (0.0 if config.encoder is None else config.encoder.patch)


def shared_feature_blocks(
    blocks: Iterable[Tensor | NDArray[np.floating]],
    configs: Sequence[FeatureConfig],
    is_live: bool = False,
) -> list[Iterator[Tensor]]:
    """Return `feature_blocks` of one waveform for each of several features.

    Features that differ in their normalisation only are computed once. What one reader has and
    another lacks is held in memory, so they should keep pace; they may be on several threads.

    Args:
        blocks: of the waveform, at the sample rate of all features.
        configs: of the features.
        is_live: as in `feature_blocks`.

    >>> configs = [FeatureConfig(), FeatureConfig(mean=(1.0,)), FeatureConfig(n_mels=40)]
    >>> streams = shared_feature_blocks([np.zeros(640, np.float32)], configs)
    >>> [tuple(next(stream).shape) for stream in streams]
    [(1, 80), (1, 80), (1, 40)]
    """
    groups: dict[FeatureConfig, list[int]] = {}
    for at, config in enumerate(configs):
        groups.setdefault(config.raw, []).append(at)
    streams: dict[int, Iterator[Tensor]] = {}
    waveforms = share_items(blocks, len(groups))
    for waveform, (raw, of_group) in zip(waveforms, groups.items(), strict=True):
        if len(of_group) == 1:
            streams[of_group[0]] = feature_blocks(waveform, configs[of_group[0]], is_live)
            continue
        shared = share_items(feature_blocks(waveform, raw, is_live), len(of_group))
        for at, pieces in zip(of_group, shared, strict=True):
            streams[at] = map(Normalise(configs[at].mean, configs[at].std), pieces)
    return [streams[at] for at in range(len(configs))]


def open_encoder(config: FeatureConfig) -> Encoder:
    """Return the encoder of some features, ready to run; raise if it is missing or another one.

    >>> missing = EncoderConfig("onnx", patch=1.0, hop=1.0, file="nowhere.onnx")
    >>> open_encoder(FeatureConfig(encoder=missing))
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: There is no encoder nowhere.onnx; pass where it is as encoder=...
    """
    assert config.encoder is not None
    return _opened(config.raw, config.encoder.file, source_of(config.encoder))


@lru_cache(maxsize=4)
def _opened(config: FeatureConfig, file: str, source: object) -> Encoder:
    """Return an encoder that stays open; equal configurations may differ in file and source."""
    assert config.encoder is not None
    silence = 0.0 if config.encoder.input == "waveform" else log(config.log_offset)
    return Encoder(replace(config.encoder, file=file), config.input_hop, silence)


def check_known_to_others(config: FeatureConfig) -> None:
    """Raise if the features need an encoder that other processes do not know.

    >>> check_known_to_others(FeatureConfig())
    """
    if is_registered(config):
        assert config.encoder is not None
        raise SettingError(
            f"The encoder {config.encoder.kind!r} is registered in this process, and the workers "
            "of a scheduler do not know it; leave out scheduler, or describe the encoder in a TOML "
            "file."
        )


def is_registered(config: FeatureConfig) -> bool:
    """Return whether the features need a module that was registered in this process.

    >>> is_registered(FeatureConfig())
    False
    """
    return config.encoder is not None and config.encoder.kind in ENCODERS


def read_encoder(source: str | os.PathLike[str]) -> FeatureConfig:
    """Return the features that an encoder makes.

    Args:
        source: the TOML file that describes it; its own file, if a TOML file of the same name is
            beside it; or the name of a registered module.

    >>> from earmark.encoders import ENCODERS, register_encoder
    >>> own = {"patch": 0.5, "hop": 0.5, "input": "waveform"}
    >>> features = {"sample_rate": 8000}
    >>> pool = lambda file: torch.nn.AvgPool1d(2000)
    >>> register_encoder("levels", pool, encoder=own, features=features)
    >>> read_encoder("levels").n_features
    2
    >>> del ENCODERS["levels"]
    """
    path = Path(source)
    if str(source) in ENCODERS:
        tables, where = ENCODERS[str(source)].description, f"the encoder {source}"
        own: dict[str, Any] = {"kind": str(source), **tables.get("encoder", {})}
    else:
        described = path if path.suffix == ".toml" else path.with_suffix(".toml")
        if not path.exists():
            raise SettingError(
                f"There is no encoder {path}; pass a TOML file, a .tflite or .onnx file, or a "
                f"registered module ({', '.join(ENCODERS) or 'there are none'})."
            )
        if not described.exists():
            raise SettingError(
                f"{path} needs {described.name} beside it, which says what its input is and how "
                "long a patch is; see docs/encoders.md."
            )
        tables, where = read_toml(described), str(described)
        own = dict(_table(tables, "encoder", where))
        if own.get("file") or path.suffix != ".toml":
            own["file"] = encoder_file(path)
        own.setdefault("kind", Path(own.get("file", "")).suffix.removeprefix("."))
    for name in tables:
        choose("table", name, ("encoder", "features"), SettingError, where)
    check_kind(own["kind"])
    file = Path(own["file"]) if own.get("file") else None
    own["sha256"] = digest(file, None if file else _module_of(own["kind"]))
    config = build(
        FeatureConfig,
        "features",
        {**_table(tables, "features", where), "encoder": build(EncoderConfig, "encoder", own)},
    )
    return with_n_features(config)


def encoder_file(source: str | os.PathLike[str]) -> str:
    """Return the path of an encoder's own file, which a TOML file may name.

    >>> encoder_file("/models/yamnet.tflite")
    '/models/yamnet.tflite'
    """
    path = Path(source)
    if path.suffix == ".toml":
        file = _table(read_toml(path), "encoder", str(path)).get("file")
        if not file:
            raise SettingError(f"{path} names no file of an encoder.")
        path = path.parent / str(file)
    return str(path.resolve())


def encoder_sha256(file: str | os.PathLike[str]) -> str:
    """Return what identifies an encoder, given its own file.

    >>> encoder_sha256("nowhere.onnx")
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: There is no encoder nowhere.onnx; pass where it is as encoder=...
    """
    return digest(Path(file))


def with_n_features(config: FeatureConfig) -> FeatureConfig:
    """Return the features with the number of values that the encoder gives for silence.

    >>> with_n_features(FeatureConfig()).n_features
    80
    """
    if config.encoder is None:
        return config
    samples = np.zeros(round(config.encoder.hop * config.sample_rate), np.float32)
    (frame,) = feature_blocks([samples], config)
    return replace(config, encoder=replace(config.encoder, n_features=frame.shape[1]))


def _module_of(kind: str) -> torch.nn.Module | None:
    return make_module(kind, None) if kind in ENCODERS else None


def _table(tables: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, Mapping):
        raise SettingError(f"{where}: {name} must be a table of settings. Got {table!r}.")
    return table
