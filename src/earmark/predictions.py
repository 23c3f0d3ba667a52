"""A network and clips whose features are computed -> what it says of them; teachers -> targets.

Conventions: padding is taken off. A teacher is a detector whose frame probabilities another network
is to learn from; where a clip is not tagged with a class, the teacher is known to be wrong, and
says 0. What teachers say of all clips, on average, is one .npy file (frames, classes) in half
precision, clip after clip.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from earmark.batches import cut, read_batch
from earmark.bundle import load_bundle
from earmark.data import Manifest
from earmark.decoding import Floats
from earmark.errors import SettingError
from earmark.features import FeatureConfig, normalise
from earmark.model import Model
from earmark.settings import Settings
from earmark.store import FeatureStore
from earmark.tables import write_beside


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


def mean_of(said: Iterable[Predictions]) -> Predictions:
    """Return the mean of what several networks say of the same clips.

    >>> one, other = (Predictions([np.full((2, 1), p)], np.array([[p]])) for p in (0.25, 0.75))
    >>> mean_of([one, other]).clip_probs
    array([[0.5]])
    """
    networks = iter(said)
    curves, clip_probs = next(networks)
    n_networks = 1
    for more in networks:  # a sum, as what one network says of many clips is much to hold
        curves = [a + b for a, b in zip(curves, more.curves, strict=True)]
        clip_probs, n_networks = clip_probs + more.clip_probs, n_networks + 1
    return Predictions([curve / n_networks for curve in curves], clip_probs / n_networks)


def write_teaching(
    path: Path,
    teachers: Sequence[str | os.PathLike[str]],
    store: FeatureStore,
    clips: Manifest,
    settings: Settings,
    keep: bool = False,
) -> None:
    """Write what teachers say of every frame of the clips, where their tags allow for it.

    With `keep`, what they have said before stays, and must be of the same model files: computed
    anew, on another number of threads, it might differ in a last digit.
    """
    note = path.with_suffix(".json")
    about = [hashlib.sha256(Path(teacher).read_bytes()).hexdigest() for teacher in teachers]
    text = json.dumps({"teachers": about}).encode()
    if keep and note.exists():
        if note.read_bytes() == text:
            return
        raise SettingError(f"{path} is of other teachers; go on with those, or choose another out.")
    bundles = [load_bundle(teacher) for teacher in teachers]
    for bundle in bundles:
        if bundle.labels != clips.labels or bundle.features.raw != settings.features.raw:
            raise SettingError(
                "A teacher must have the labels and the features of the training. Got one of "
                f"{', '.join(bundle.labels)}."
            )
        if bundle.model.time_pool != settings.model.time_pool:
            raise SettingError(
                "A teacher must have as many frames a second as the network that it teaches."
            )
    said = mean_of(
        predict_clips(bundle.build_model(), store, clips, bundle.features) for bundle in bundles
    )
    tags = clips.targets.numpy()
    taught = [curve * tag for curve, tag in zip(said.curves, tags, strict=True)]
    beside = path.with_name(f".{path.name}.partial.npy")
    np.save(beside, np.concatenate(taught).astype(np.float16))
    note.unlink(missing_ok=True)
    beside.replace(path)
    write_beside(note, text)
