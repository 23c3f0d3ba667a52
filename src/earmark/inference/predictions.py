"""A network and clips whose features are computed -> what it says of them; teachers -> targets.

Conventions: padding is taken off. A teacher is a detector whose frame probabilities another network
is to learn from; where a clip is not tagged with a class, the teacher is known to be wrong, and
says 0. What teachers say of all clips, on average, is one .npy file (frames, classes) in half
precision, clip after clip.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch

from earmark.data.batches import cut, read_batch
from earmark.data.features import FeatureConfig, Normalise
from earmark.data.manifest import Manifest
from earmark.data.store import FeatureStore
from earmark.inference.decoding import Floats
from earmark.nn.model import Model


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
        prediction = model(Normalise(features.mean, features.std)(batch), mask)
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
