"""An exported ONNX file -> a detector, by onnxruntime in place of the network's own weights.

Detection takes the same path as with a model file (`earmark.inference.predictor`): the file counts
as a network whose features are the samples of the waveform. Its `encode` asks the file for
embeddings, and its `classify` gives embeddings back to it (`embeddings_in`). So recordings of any
length have the same events, to rounding.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from earmark.config import build
from earmark.data.features import FeatureConfig
from earmark.errors import BundleError, SettingError, refusing
from earmark.inference.calibration import Calibration
from earmark.inference.decoding import Decoding
from earmark.inference.member import Member
from earmark.inference.model_file import Bundle, load_bundle
from earmark.inference.onnx_export import FORMAT, open_session
from earmark.nn.layers import Layer, Maps
from earmark.nn.network import Network, NetworkConfig, Prediction

SUFFIX = ".onnx"


@dataclass(frozen=True)
class OnnxConfig(NetworkConfig):
    """How the network of an ONNX file divides time; all but the file is in its metadata.

    Args:
        n_classes: number of classes.
        n_samples: of a hop of the waveform, an input frame.
        pool: input frames per output frame.
        encoded_pool: input frames per embedding.
        n_segment: input frames of the segments that have one score each.
        field: input frames that an embedding depends on.
        n_embedding: values of an embedding.
        file: path of the ONNX file.

    >>> OnnxConfig(17, 640, 4, 4, 1, 59, 96, "model.onnx").time_pool
    4
    """

    network: ClassVar[str] = "onnx"
    inputs: ClassVar[str] = "n_samples"
    takes: ClassVar[tuple[str, ...]] = ("waveform",)
    exports: ClassVar[bool] = False

    n_classes: int
    n_samples: int
    pool: int
    encoded_pool: int
    n_segment: int
    field: int
    n_embedding: int
    file: str

    def __post_init__(self) -> None:
        sizes = [self.n_samples, self.pool, self.encoded_pool, self.n_segment, self.field]
        self.check([*sizes, self.n_embedding])

    def build(self) -> "OnnxNetwork":
        """See `NetworkConfig.build`."""
        return OnnxNetwork(self)

    @property
    def n_layers(self) -> int:
        """See `NetworkConfig.n_layers`."""
        return 0

    @property
    def time_pool(self) -> int:
        """See `NetworkConfig.time_pool`."""
        return self.pool

    @property
    def segment(self) -> int:
        """See `NetworkConfig.segment`."""
        return self.n_segment

    @property
    def receptive_field(self) -> int:
        """See `NetworkConfig.receptive_field`."""
        return self.field

    def class_axes(self) -> dict[str, int]:
        """Raise: the weights of classes are inside the file."""
        raise SettingError(
            f"{self.file} is an ONNX file, with all of its classes; select classes of the model "
            "file before it is exported."
        )


class OnnxNetwork(Network):
    """The network of an ONNX file: (batch, frames, samples of a hop) -> `Prediction`."""

    config: OnnxConfig
    takes_masks = False

    def __init__(self, config: OnnxConfig) -> None:
        super().__init__(config)
        self._session = open_session(config.file)
        # A predictor asks the parameters of a network for their precision.
        self.precision = nn.Parameter(torch.zeros(0), requires_grad=False)

    def encode(self, features: Tensor, mask: Tensor | None = None) -> Maps:
        """See `Network.encode`."""
        assert mask is None
        self.check_input(features, None)
        (embeddings,) = self._run(["embeddings"], waveform=features.flatten(1))
        return embeddings.to(features.device), None

    def classify(self, features: Tensor, mask: Tensor | None = None) -> Prediction:
        """See `Network.classify`."""
        assert mask is None
        # One hop of silence, whose embedding is left out, stands in for the waveform.
        frames, clips = self._run(
            ["frame_scores", "clip_scores"],
            waveform=features.new_zeros(len(features), self.config.n_samples),
            skip=torch.tensor(1),
            embeddings_in=features,
        )
        n_clips, n_classes = len(features), self.config.n_classes
        if clips.shape != (n_clips, n_classes) or frames.shape[::2] != (n_clips, n_classes):
            raise BundleError(
                f"{self.config.file} has frame-level scores of shape {tuple(frames.shape)} and "
                f"clip-level scores of shape {tuple(clips.shape)} for {n_clips} clips and "
                f"{n_classes} labels. Export it again."
            )
        return Prediction(clips.to(features.device), frames.to(features.device), features, None)

    def _run(self, outputs: list[str], **inputs: Tensor) -> list[Tensor]:
        arrays = {
            name: (x.float() if x.is_floating_point() else x).contiguous().cpu().numpy()
            for name, x in inputs.items()
        }
        try:
            return [torch.from_numpy(own) for own in self._session.run(outputs, arrays)]
        except Exception as error:  # the runtime has exceptions of its own
            raise BundleError(
                f"{self.config.file} cannot be run: {error}. Export it again."
            ) from error

    def layers(self, n_input_frames: int) -> list[Layer]:
        """See `Network.layers`; those of the file are not known."""
        return []

    @property
    def time_pool(self) -> int:
        """See `Network.time_pool`."""
        return self.config.pool

    @property
    def encoder_pool(self) -> int:
        """See `Network.encoder_pool`."""
        return self.config.encoded_pool

    @property
    def receptive_field(self) -> int:
        """See `Network.receptive_field`."""
        return self.config.field


def open_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Read a model file, or an ONNX file that `export_onnx` wrote.

    >>> open_bundle("nowhere.onnx")
    Traceback (most recent call last):
        ...
    earmark.errors.BundleError: There is no ONNX file nowhere.onnx.
    """
    return load_onnx(path) if Path(path).suffix == SUFFIX else load_bundle(path)


def load_onnx(path: str | os.PathLike[str]) -> Bundle:
    """Read an ONNX file that `export_onnx` wrote, as a model of one network on waveforms.

    >>> load_onnx("nowhere.onnx")
    Traceback (most recent call last):
        ...
    earmark.errors.BundleError: There is no ONNX file nowhere.onnx.
    """
    source = Path(path)
    if not source.is_file():
        raise BundleError(f"There is no ONNX file {source}.")
    metadata = open_session(str(source)).get_modelmeta().custom_metadata_map
    if "earmark" not in metadata:
        raise BundleError(
            f"{source} was not written by earmark export; as a pretrained encoder, pass it to "
            "train(..., encoder=...)."
        )
    with refusing(f"{source} is not a usable ONNX file", BundleError):
        about = json.loads(metadata["earmark"])
        how = about["onnx"]
        if how["format"] != FORMAT:
            raise SettingError(
                f"its format is {how['format']!r}, and this version reads {FORMAT}; export it again"
            )
        labels = tuple(about["labels"])
        return Bundle(
            labels=labels,
            members=(_member(how, len(labels), str(source)),),
            decoding=Decoding.from_dict(about["decoding"]).select(labels),
            calibration=None
            if about["calibration"] is None
            else build(Calibration, "calibration", about["calibration"]),
            **{
                name: about[name]
                for name in ("tuning", "training", "versions", "licence", "attribution")
            },
        )


def _member(how: Mapping[str, Any], n_classes: int, file: str) -> Member:
    features = FeatureConfig(sample_rate=how["sample_rate"], hop=how["hop"], kind="waveform")
    config = OnnxConfig(
        n_classes,
        features.hop_samples,
        how["time_pool"],
        how["encoder_pool"],
        how["segment"],
        how["receptive_field"],
        how["n_embedding"],
        file,
    )
    return Member(features, config, {"precision": torch.zeros(0)}, how["window"])
