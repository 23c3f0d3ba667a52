"""A trained detector -> an ONNX file that any ONNX runtime can run, without Earmark or torch.

Input is `waveform` (batch, samples), float32, at the network's sample rate; outputs are
`frame_scores` (batch, frames, classes), `clip_scores` (batch, classes) and `embeddings`
(batch, encoded frames, features), what the network encodes before it looks at the whole clip. Any
length and any batch of one length will do. Features and their normalisation are part of the graph
(`earmark.data.dft`). The metadata have `labels`, `sample_rate`, `frame_rate`, `window` and
`decoding`, and in `earmark` the whole description of the model.

Of an ensemble the graph has the mean of the members. The clip-level score of a frame that several
windows of a long recording cover is then the highest of their means, where a model file has the
mean of each member's highest; frame-level scores are the same.

Two inputs are optional, and let `earmark.inference.onnx_file` process recordings of any length as a
model file does: `embeddings_in` are put behind those of the waveform, of which the first `skip` are
left out.

Torch's exporter by tracing is used: the newer one, `dynamo=True`, fixes the length where there is a
GRU. Every file is run once at other lengths and batches before it is written.
"""

import inspect
import io
import json
import os
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from earmark.data.dft import GraphFeatures
from earmark.errors import SettingError
from earmark.files import atomic_write, check_writable
from earmark.inference.member import Member
from earmark.inference.model_file import Bundle

OPSET = 17
FORMAT = 1  # of the graph's inputs, outputs and metadata
TOLERANCE = 1e-4  # of a probability
OUTPUTS = ("frame_scores", "clip_scores", "embeddings")


class OnnxGraph(nn.Module):
    """The members of a model as one graph, from waveforms to scores.

    Args:
        members: with the same features and frame grid.

    >>> from earmark.inference.model_file import BUNDLED, load_bundle
    >>> graph = OnnxGraph(load_bundle(BUNDLED).members)
    >>> frame_scores, clip_scores, embeddings = graph(torch.zeros(2, 32000))
    >>> frame_scores.shape, clip_scores.shape
    (torch.Size([2, 13, 17]), torch.Size([2, 17]))
    """

    def __init__(self, members: tuple[Member, ...]) -> None:
        super().__init__()
        first = members[0]
        for member in members:
            config = member.model_config
            if not config.exports:
                raise SettingError(
                    f"The network {config.network!r} cannot be exported: how many windows it cuts "
                    "a clip into depends on the length of the clip. Export another network."
                )
            if member.feature_config.encoder is not None:
                raise SettingError(
                    "A model on the embeddings of an encoder cannot be exported: the encoder is a "
                    "file of its own. Export one that takes log-mels or waveforms."
                )
            if (member.feature_config, member.grid) != (first.feature_config, first.grid):
                raise SettingError(
                    "An ensemble of networks with different features or frame grids cannot be "
                    "exported as one graph; export each of its models."
                )
        self.features = GraphFeatures(first.feature_config)
        self.networks = [member.build_model().fused() for member in members]
        self.modules_of_networks = nn.ModuleList(self.networks)
        with torch.no_grad():
            hop = torch.zeros(1, first.feature_config.hop_samples)
            encoded = [network.encode(self.features(hop))[0] for network in self.networks]
        self.sizes = [own.shape[2] for own in encoded]
        if len({network.encoder_pool for network in self.networks}) > 1:
            raise SettingError(
                "An ensemble of networks that encode at different frame rates cannot be exported "
                "as one graph; export each of its models."
            )

    def forward(
        self, waveform: Tensor, skip: Tensor | None = None, more: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See the module; `more` is `embeddings_in`."""
        features = self.features(waveform)
        embeddings = torch.cat([network.encode(features)[0] for network in self.networks], 2)
        if skip is not None and more is not None:
            more = more.expand(waveform.shape[0], -1, -1)  # without any, there is one clip of none
            embeddings = torch.cat([embeddings[:, skip:], more], 1)
        parts = torch.split(embeddings, self.sizes, 2)
        pairs = zip(self.networks, parts, strict=True)
        predictions = [network.classify(part) for network, part in pairs]
        frames = torch.stack([own.frame_probs for own in predictions]).mean(0)
        clips = torch.stack([own.clip_probs for own in predictions]).mean(0)
        return frames, clips, embeddings

    @property
    def receptive_field(self) -> int:
        """Number of hops of the waveform that one embedding depends on."""
        config = self.features.config
        window = config.window_samples if config.kind == "log-mel" else config.hop_samples
        beyond = -(-(window - config.hop_samples) // (2 * config.hop_samples))
        return max(network.receptive_field for network in self.networks) + 2 * beyond


def export_onnx(bundle: Bundle, path: str | os.PathLike[str]) -> Path:
    """Write a model as an ONNX file; return its path.

    Args:
        bundle: the model, of one network, or of several with the same features.
        path: of the file to write, which ends in .onnx.

    >>> from earmark.inference.model_file import BUNDLED, load_bundle
    >>> export_onnx(load_bundle(BUNDLED), "model.tflite")
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: An ONNX file ends in .onnx. Got 'model.tflite'.
    """
    target = Path(path)
    if target.suffix != ".onnx":
        raise SettingError(f"An ONNX file ends in .onnx. Got {os.fspath(path)!r}.")
    onnx = import_extra("onnx")
    check_writable(target)
    graph = OnnxGraph(bundle.members).eval()
    model = onnx.load_from_string(_traced(graph))
    # An input with an initial value is optional.
    optional: dict[str, Any] = {
        "skip": np.array(0),
        "embeddings_in": np.zeros((1, 0, sum(graph.sizes)), "f4"),
    }
    for name, initial in optional.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(initial, name))
    for name, value in _metadata(bundle, graph).items():
        model.metadata_props.add(key=name, value=value)
    model.producer_name = "earmark"
    model.producer_version = bundle.versions.get("earmark", "")
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    _check(content, graph, bundle)
    atomic_write(target, content)
    return target


def open_session(model: bytes | str) -> Any:
    """Return an onnxruntime session of a file or its content, on one thread.

    >>> open_session("nowhere.onnx")
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: nowhere.onnx cannot be opened as an ONNX file: ...
    """
    runtime = import_extra("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised as well
    try:
        return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # it has many kinds
        what = model if isinstance(model, str) else "The exported graph"
        reason = str(error).strip().splitlines()[0]
        raise SettingError(f"{what} cannot be opened as an ONNX file: {reason}") from None


def import_extra(module: str) -> Any:
    """Return a module of the extra `onnx`, or raise with what to install.

    >>> import_extra("json").__name__
    'json'
    """
    try:
        return import_module(module)
    except ImportError:
        raise SettingError(
            f"{module} is not installed; install it with: pip install 'earmark[onnx]'"
        ) from None


def _traced(graph: OnnxGraph) -> bytes:
    # Several output frames and segments of every stage, so that nothing is a constant by chance.
    hop = graph.features.config.hop_samples
    waveform = 0.1 * torch.randn(2, 701 * hop + 1, generator=torch.Generator().manual_seed(0))
    inputs = (waveform, torch.tensor(0), torch.zeros(2, 1, sum(graph.sizes)))
    file: Any = io.BytesIO()
    axes = {
        "waveform": {0: "batch", 1: "samples"},
        "embeddings_in": {0: "batch_in", 1: "frames_in"},
        "frame_scores": {0: "batch", 1: "frames"},
        "clip_scores": {0: "batch"},
        "embeddings": {0: "batch", 1: "encoded_frames"},
    }
    # Torch before 2.5 has this exporter alone.
    has_choice = "dynamo" in inspect.signature(torch.onnx.export).parameters
    choice: dict[str, Any] = {"dynamo": False} if has_choice else {}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # that it is the older exporter, and that checks are traced
        torch.onnx.export(
            graph,
            inputs,
            file,
            input_names=["waveform", "skip", "embeddings_in"],
            output_names=list(OUTPUTS),
            dynamic_axes=axes,
            opset_version=OPSET,
            **choice,
        )
    content: bytes = file.getvalue()
    return content


def _metadata(bundle: Bundle, graph: OnnxGraph) -> dict[str, str]:
    member = bundle.members[0]
    how = {
        "format": FORMAT,
        "encoder_pool": graph.networks[0].encoder_pool,
        "time_pool": member.model_config.time_pool,
        "segment": member.model_config.segment,
        "receptive_field": graph.receptive_field,
        "n_embedding": sum(graph.sizes),
        "hop": member.feature_config.hop,
        "sample_rate": member.feature_config.sample_rate,
        "window": max(own.window for own in bundle.members),
    }
    return {
        "labels": json.dumps(bundle.labels, ensure_ascii=False),
        "sample_rate": str(member.feature_config.sample_rate),
        "frame_rate": f"{float(member.grid.frame_rate):.12g}",
        "window": f"{how['window']:g}",
        "decoding": json.dumps(bundle.decoding.to_dict(), ensure_ascii=False),
        "earmark": json.dumps({"onnx": how, **bundle.describe()}, ensure_ascii=False),
    }


def _check(content: bytes, graph: OnnxGraph, bundle: Bundle) -> None:
    """Raise unless the file gives what the networks give, at other lengths and batches."""
    session = open_session(content)
    hop = graph.features.config.hop_samples
    generator = torch.Generator().manual_seed(1)
    for n_clips, n_samples in ((1, 1), (3, 37 * hop), (1, 250 * hop + 1), (2, 1200 * hop - 1)):
        waveform = 0.1 * torch.randn(n_clips, n_samples, generator=generator)
        with torch.no_grad():
            wanted = [own.numpy() for own in graph(waveform)]
        try:
            found = session.run(list(OUTPUTS), {"waveform": waveform.numpy()})
            same = all(
                own.shape == other.shape and np.abs(own - other).max() < TOLERANCE
                for own, other in zip(found[:2], wanted[:2], strict=True)
            )
        except Exception:  # a reshape to the length of the example, mostly
            same = False
        if not same:
            names = ", ".join(dict.fromkeys(x.model_config.network for x in bundle.members))
            raise SettingError(
                f"The network {names!r} cannot be exported: its graph is not the same for clips of "
                f"{n_clips} x {n_samples} samples. A network may not compute with the length of a "
                "clip as a Python number."
            )
