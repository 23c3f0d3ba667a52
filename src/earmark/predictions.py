"""A network and clips whose features are computed -> what it says of them; teachers -> targets.

Conventions: padding is taken off. A teacher is a detector whose frame probabilities another network
is to learn from; where a clip is not tagged with a class, the teacher is known to be wrong, and
says 0. What teachers say of all clips, on average, is one .npy file (frames, classes) in half
precision, clip after clip.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from earmark.batches import cut, read_batch
from earmark.data import Manifest
from earmark.decoding import Floats
from earmark.detector import Detector
from earmark.errors import SettingError
from earmark.features import FeatureConfig, normalise
from earmark.model import Model
from earmark.settings import Settings
from earmark.store import FeatureStore


class Predictions(NamedTuple):
    """Frame probabilities of each clip, and clip probabilities (clips, classes)."""

    curves: list[Floats]
    clip_probs: Floats


@torch.no_grad()
def predict_clips(
    model: Model, store: FeatureStore, clips: Manifest, features: FeatureConfig
) -> Predictions:
    """Return what a network says of clips whose features are computed, padding taken off."""
    model.eval()
    curves, clip_probs = [], []
    for rows in cut(range(len(clips)), 32):
        batch, mask, _ = read_batch(store, clips, rows)
        prediction = model(normalise(batch, features), mask)
        for i in range(len(rows)):
            probs = prediction.frame_probs[i]
            curves.append((probs if prediction.mask is None else probs[prediction.mask[i]]).numpy())
        clip_probs.append(prediction.clip_probs.numpy())
    return Predictions(curves, np.concatenate(clip_probs))


def write_teaching(
    path: Path,
    teachers: Sequence[Detector],
    store: FeatureStore,
    clips: Manifest,
    settings: Settings,
) -> None:
    """Write what teachers say of every frame of the clips, where their tags allow for it."""
    for teacher in teachers:
        bundle = teacher.bundle
        if bundle.labels != clips.labels or bundle.features.raw != settings.features.raw:
            raise SettingError(
                "A teacher must have the labels and the features of the training. Got one of "
                f"{', '.join(bundle.labels)}."
            )
        if bundle.model.time_pool != settings.model.time_pool:
            raise SettingError(
                "A teacher must have as many frames a second as the network that it teaches."
            )
    total: list[Floats] = []
    for teacher in teachers:
        model = teacher.bundle.build_model()
        said = predict_clips(model, store, clips, teacher.bundle.features)
        total = [a + b for a, b in zip(total, said.curves, strict=True)] if total else said.curves
    tags = clips.targets.numpy()
    taught = [curve / len(teachers) * tag for curve, tag in zip(total, tags, strict=True)]
    beside = path.with_name(f".{path.name}.partial.npy")
    np.save(beside, np.concatenate(taught).astype(np.float16))
    beside.replace(path)
