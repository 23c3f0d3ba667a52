"""Validation of a network during training: its clip probabilities, their loss and metrics.

Conventions: validation uses clip tags only, also where training uses frame-level targets. One
function computes the clip probabilities of all validation clips, in their order, over all
processes; the loss and the metrics are computed from those.
"""

from typing import NamedTuple

import torch
from lightning_fabric import Fabric
from torch import Tensor

from earmark.data.batches import split_rows
from earmark.data.features import FeatureConfig
from earmark.data.manifest import Manifest
from earmark.data.store import FeatureStore
from earmark.inference.predictor import Predictor, read_log_mels
from earmark.metrics.clip import clip_scores
from earmark.nn.loss import clip_loss
from earmark.nn.network import Network

THRESHOLD = 0.5  # of the clip probabilities, for F1


class Validation(NamedTuple):
    """Mean loss, mean average precision and micro F1 over the validation clips.

    >>> Validation(loss=0.4, mean_average_precision=0.7, f1=0.6).f1
    0.6
    """

    loss: float
    mean_average_precision: float
    f1: float


@torch.no_grad()
def predict_clip_probs(
    fabric: Fabric,
    model: Network,
    clips: Manifest,
    store: FeatureStore,
    features: FeatureConfig,
    window: float,
) -> Tensor:
    """Return the clip probabilities (clips, classes), the same in every process.

    They are those of the detector: a clip longer than `window` seconds has the highest of its
    windows. Each process computes every `world_size`-th clip.

    >>> import tempfile
    >>> from earmark.data.manifest import clip_paths
    >>> from earmark.data.store import build_store
    >>> from earmark.nn.model import Model, ModelConfig
    >>> from earmark.synth.scenes import SceneConfig, write_scenes
    >>> model, features = Model(ModelConfig.preset("fast", n_classes=1)), FeatureConfig()
    >>> scenes = SceneConfig(duration=4.0, n_events=(1, 1), classes=("siren",))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_scenes(folder, 2, scenes)
    ...     clips = Manifest.read(f"{folder}/weak.tsv", f"{folder}/audio")
    ...     store = build_store(f"{folder}/features", clip_paths(clips), features)
    ...     fabric = Fabric(accelerator="cpu", devices=1)
    ...     predict_clip_probs(fabric, model, clips, store, features, window=4.0).shape
    torch.Size([2, 1])
    """
    rows = range(fabric.global_rank, len(clips), fabric.world_size)
    predictor = Predictor(
        model.eval(), features.grid.count(window), fabric.device, torch.get_num_threads()
    )
    recordings = read_log_mels(store, [clips.files[row] for row in rows], features)
    probs = torch.zeros(len(clips), len(clips.labels), device=fabric.device)
    for row, (_, by_frame) in zip(rows, predictor.predict(recordings), strict=True):
        probs[row] = torch.from_numpy(by_frame.max(axis=0))
    # Each row is 0 in all processes but one, so the sum is exact.
    gathered = fabric.all_reduce(probs, reduce_op="sum")
    assert isinstance(gathered, Tensor)
    return gathered


def validate(clip_probs: Tensor, clips: Manifest, batch_size: int) -> Validation:
    """Return loss and metrics of the clip probabilities (clips, classes).

    The loss is summed batch by batch, which keeps it bit-identical to that of a forward pass.

    >>> from pathlib import Path
    >>> clips = Manifest(["a.wav", "b.wav"], [Path("a.wav"), Path("b.wav")], [["dog"], []], ["dog"])
    >>> validate(torch.tensor([[0.9], [0.1]]), clips, batch_size=2)
    Validation(loss=0.105..., mean_average_precision=1.0, f1=1.0)
    """
    targets = clips.targets.to(clip_probs)
    total = 0.0
    for rows in split_rows(range(len(clips)), batch_size):
        part = slice(rows[0], rows[-1] + 1)
        total += float(clip_loss(clip_probs[part], targets[part])) * len(rows)
    probs = clip_probs.double().cpu().numpy()
    scores = clip_scores(
        dict(zip(clips.files, clips.tags, strict=True)),
        {
            file: [label for label, p in zip(clips.labels, row, strict=True) if p >= THRESHOLD]
            for file, row in zip(clips.files, probs, strict=True)
        },
        dict(zip(clips.files, probs, strict=True)),
        clips.labels,
        empty_as_zero=True,
    )
    return Validation(total / len(clips), scores.mean_average_precision, scores.f_measure)
