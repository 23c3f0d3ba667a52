"""TFLite and ONNX files and registered modules -> a function of patches.

Conventions: the function takes patches (batch, frames, mels) or (batch, samples), float32, and
returns embeddings (batch, frames, features). A tensor (batch, features) is one frame; axes of
length 1 between the first and the last are dropped, and a quantised tensor is dequantised. Every
runtime uses one thread, so that the same patch gives the same values everywhere.

A new kind is one function and one line in `RUNTIMES`; a new module is a call of `register_encoder`.
"""

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from earmark.encoders.config import EncoderConfig
from earmark.errors import EarmarkError, SettingError, choose

Floats32 = NDArray[np.float32]
Encode = Callable[[Floats32], Floats32]
Factory = Callable[[Path | None], nn.Module]


class Registered(NamedTuple):
    """A registered module: what makes it, and its description as a TOML file would give it.

    >>> Registered(lambda file: nn.Identity(), {}).description
    {}
    """

    factory: Factory
    description: Mapping[str, Mapping[str, Any]]


ENCODERS: dict[str, Registered] = {}  # name -> registered module


def register_encoder(
    name: str,
    factory: Factory,
    *,
    encoder: Mapping[str, Any] | None = None,
    features: Mapping[str, Any] | None = None,
) -> None:
    """Make a module known as an encoder; a later one of the same name replaces it.

    Args:
        name: for `earmark.train(..., encoder=name)`, or for `kind` in a TOML file.
        factory: returns the module, from a file of weights or from None if there is none.
        encoder: `patch`, `hop` and other fields of `EncoderConfig`.
        features: `sample_rate` and, for log-mel input, other fields of `FeatureConfig`.

    The module maps (batch, frames, mels) or (batch, samples) to (batch, features) or
    (batch, frames, features).

    >>> identity = lambda file: nn.Identity()
    >>> register_encoder("waves", identity, encoder={"patch": 0.1, "hop": 0.1, "input": "waveform"})
    >>> del ENCODERS["waves"]
    """
    if name in RUNTIMES:
        raise SettingError(f"An encoder may not have the name {name!r}, which is a file format.")
    ENCODERS[name] = Registered(factory, {"encoder": encoder or {}, "features": features or {}})


def load_encoder(config: EncoderConfig) -> Encode:
    """Return the function of patches, after a check of the file against its sha256.

    >>> load_encoder(EncoderConfig("onnx", patch=1.0, hop=1.0, file="nowhere.onnx"))
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: There is no encoder nowhere.onnx; pass where it is as encoder=...
    """
    check_kind(config.kind)
    file = Path(config.file) if config.file else None
    module = make_module(config.kind, file) if config.kind in ENCODERS else None
    found = digest(file, module)
    if config.sha256 and found != config.sha256:
        raise SettingError(
            f"The encoder {file or config.kind} is not the one that the features need: its sha256 "
            f"is {found[:12]}... in place of {config.sha256[:12]}...; pass the right one as "
            "encoder=..."
        )
    if module is not None:
        encode = _of_module(module)
    else:
        with _explained(f"{file} cannot be opened as a {config.kind} file; it may be damaged"):
            encode = RUNTIMES[config.kind](config)

    def to_frames(patches: Floats32) -> Floats32:
        name = file or config.kind
        with _explained(f"The encoder {name} cannot take an input of the shape {patches.shape}"):
            embeddings = encode(patches)
        return _as_frames(embeddings, config)

    return to_frames


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn whatever a runtime raises, each has errors of its own, into one sentence."""
    try:
        yield
    except EarmarkError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise SettingError(f"{what}: {lines[0]}") from error


def check_kind(kind: str) -> None:
    """Raise `SettingError` unless a kind is a file format or a registered module.

    >>> check_kind("onxx")
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: There is no kind of encoder 'onxx'; did you mean 'onnx'? ...
    """
    choose("kind of encoder", kind, [*RUNTIMES, *ENCODERS])


def digest(file: Path | None, module: nn.Module | None = None) -> str:
    """Return the sha256 of a file or, without one, of the weights of a module.

    >>> digest(None, nn.Identity())[:8]
    'e3b0c442'
    """
    if file is not None:
        return hashlib.sha256(_existing(file).read_bytes()).hexdigest()
    if module is None:
        raise SettingError("An encoder that is not a registered module needs a file.")
    content = hashlib.sha256()
    for name, value in module.state_dict().items():
        content.update(name.encode() + value.cpu().numpy().tobytes())
    return content.hexdigest()


def source_of(config: EncoderConfig) -> tuple[Any, ...]:
    """Return what changes when an encoder's file or module is replaced; raise if it is missing.

    >>> source_of(EncoderConfig("onnx", patch=1.0, hop=1.0, file="nowhere.onnx"))
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: There is no encoder nowhere.onnx; pass where it is as encoder=...
    """
    registered = ENCODERS.get(config.kind)
    factory = None if registered is None else registered.factory
    if not config.file:
        return (factory,)
    stat = _existing(Path(config.file)).stat()
    return factory, stat.st_size, stat.st_mtime_ns


def _existing(file: Path) -> Path:
    if not os.path.isfile(file):  # noqa: PTH113 - a name that no file can have is none
        raise SettingError(f"There is no encoder {file}; pass where it is as encoder=...")
    return file


def make_module(kind: str, file: Path | None) -> nn.Module:
    """Return a registered module, ready to predict.

    >>> register_encoder("same", lambda file: nn.Identity())
    >>> make_module("same", None).training
    False
    >>> del ENCODERS["same"]
    """
    module = ENCODERS[kind].factory(None if file is None else _existing(file))
    if not isinstance(module, nn.Module):
        raise SettingError(f"The encoder {kind!r} must make an nn.Module. Got {module!r}.")
    return module.eval()


def _of_module(module: nn.Module) -> Encode:
    def encode(patches: Floats32) -> Floats32:
        with torch.inference_mode():
            embeddings: Floats32 = module(torch.from_numpy(patches)).float().numpy()
        return embeddings

    return encode


def _of_tflite(config: EncoderConfig) -> Encode:
    library = _import("ai_edge_litert.interpreter")
    with warnings.catch_warnings():
        # Keeping inner tensors is meant for debugging, it warns; it costs a few percent.
        warnings.simplefilter("ignore")
        interpreter = library.Interpreter(
            model_path=config.file,
            num_threads=1,
            experimental_preserve_all_tensors=bool(config.tensor),
        )
    interpreter.allocate_tensors()
    source = interpreter.get_input_details()[0]
    tensors = {about["name"]: about for about in interpreter.get_tensor_details()}
    target = interpreter.get_output_details()[0]
    if config.tensor:
        target = tensors[choose("tensor", config.tensor, tensors, SettingError, config.file)]
    scale, zero = target["quantization"]
    lock = Lock()  # an interpreter holds its tensors, and several threads may want it

    def encode(patches: Floats32) -> Floats32:
        rows = []
        for patch in patches:  # the batch of a TFLite file is fixed, mostly to 1
            with lock:
                interpreter.set_tensor(source["index"], patch.reshape(source["shape"]))
                interpreter.invoke()
                values = interpreter.get_tensor(target["index"]).astype(np.float32)
            rows.append((values - zero) * np.float32(scale) if scale else values)
        return np.concatenate(rows)

    return encode


def _of_onnx(config: EncoderConfig) -> Encode:
    library = _import("onnxruntime")
    options = library.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = library.InferenceSession(config.file, options, providers=["CPUExecutionProvider"])
    source = session.get_inputs()[0]
    outputs = [output.name for output in session.get_outputs()]
    target = config.tensor or outputs[0]
    choose("output", target, outputs, SettingError, config.file)
    single = source.shape[0] == 1  # the batch is fixed

    def encode(patches: Floats32) -> Floats32:
        if not single:
            return np.asarray(session.run([target], {source.name: patches})[0], np.float32)
        parts = [session.run([target], {source.name: patch[None]})[0] for patch in patches]
        return np.concatenate(parts).astype(np.float32)

    return encode


def _import(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise SettingError(
            f"{module.split('.', maxsplit=1)[0]}, which runs the encoder, is not installed; "
            "install it with: pip install 'earmark[encoders]'"
        ) from None


def _as_frames(embeddings: Floats32, config: EncoderConfig) -> Floats32:
    """Return embeddings as (batch, frames, features), the frames in the middle of each patch."""
    shape = embeddings.shape
    inner = tuple(size for size in shape[1:-1] if size > 1)
    if len(shape) < 2 or len(inner) > 1:
        raise SettingError(
            "The embedding of an encoder must be (batch, features) or (batch, frames, features). "
            f"Got {config.tensor or 'the first output'} of {config.kind} with the shape {shape}."
        )
    frames = embeddings.reshape(shape[0], *(inner or (1,)), shape[-1])
    n_frames = frames.shape[1]
    if n_frames < config.n_frames:
        raise SettingError(
            f"A patch of {config.patch:g} s gives {n_frames} frames; with a hop of {config.hop:g} "
            f"s, step must be at most {n_frames * config.hop:g} s. Got {config.step:g} s."
        )
    first = (n_frames - config.n_frames) // 2
    return frames[:, first : first + config.n_frames]


RUNTIMES: dict[str, Callable[[EncoderConfig], Encode]] = {"tflite": _of_tflite, "onnx": _of_onnx}
