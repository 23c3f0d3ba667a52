"""Many recordings -> scores; those that fit into one window are processed together.

A network takes a batch of short recordings in little more time than a few of them, and reading
(decode, resample, features) runs on several threads. Recordings that differ in length are padded to
the longest of a batch, and a mask keeps the padding from having any effect: scores are those of
each recording alone, to rounding (1e-6).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from earmark.audio.waveform import Waveform
from earmark.data.encoded import shared_feature_blocks
from earmark.data.features import FeatureConfig
from earmark.errors import AudioError, DataError
from earmark.inference.ensemble import Ensemble
from earmark.inference.predictor import Scores
from earmark.runtime.threads import map_in_threads

Item = TypeVar("Item")
Blocks = Mapping[int, Iterable[Waveform]]

# Recordings that wait to be processed together: more leave less padding, since those of similar
# length share a batch; fewer take less memory.
GATHERED = 128


class Short(NamedTuple):
    """The scores of a recording that fits into one window, (frames, classes) each; its seconds."""

    scores: Scores
    duration: float


class Read(NamedTuple, Generic[Item]):
    """A recording, and what became of it: its scores, its error, or None if it is longer."""

    item: Item
    outcome: Short | AudioError | DataError | None


class _Features(NamedTuple):
    """The features of a short recording, one tensor per `Ensemble.feature_configs`."""

    tensors: list[Tensor]
    duration: float


def score_short(
    ensemble: Ensemble, items: Iterable[Item], read: Callable[[Item], Blocks]
) -> Iterator[Read[Item]]:
    """Yield each recording in order, with its scores if it fits into one window.

    A longer one, and one that cannot be read, delays only those that were gathered before it.

    Args:
        ensemble: the networks.
        items: the recordings.
        read: returns, of a recording, sample rate -> blocks of its waveform.

    >>> from earmark.inference.model_file import BUNDLED, load_bundle
    >>> ensemble = Ensemble(load_bundle(BUNDLED).members)
    >>> read = lambda seconds: {32000: [np.zeros(32000 * seconds, np.float32)]}
    >>> for item, outcome in score_short(ensemble, [1, 20], read):
    ...     print(item, outcome and outcome.scores[0].shape)
    1 (13, 17)
    20 None
    """
    waiting: list[tuple[Item, _Features | AudioError | DataError | None]] = []
    work = partial(_load, ensemble, read)
    for item, loaded in map_in_threads(work, iter(items), ensemble.threads):
        waiting.append((item, loaded))
        if len(waiting) == GATHERED or loaded is None:
            yield from _scored(ensemble, waiting)
            waiting = []
    yield from _scored(ensemble, waiting)


def _scored(
    ensemble: Ensemble, waiting: Iterable[tuple[Item, _Features | AudioError | DataError | None]]
) -> Iterator[Read[Item]]:
    short = [own for _, own in waiting if isinstance(own, _Features)]
    scores = iter(ensemble.predict_short([own.tensors for own in short]))
    for item, own in waiting:
        if isinstance(own, _Features):
            yield Read(item, Short(next(scores), own.duration))
        else:
            yield Read(item, own)


def _load(
    ensemble: Ensemble, read: Callable[[Item], Blocks], item: Item
) -> tuple[Item, _Features | AudioError | DataError | None]:
    """Return the features of a recording, its error, or None if it does not fit into a window."""
    try:
        waveforms: dict[int, Waveform] = {}
        for rate, blocks in read(item).items():
            kept, n_samples = [], 0
            for block in blocks:
                kept.append(block)
                n_samples += len(block)
                if n_samples > ensemble.window * rate:
                    return item, None
            waveforms[rate] = np.concatenate(kept)
    except (AudioError, DataError) as error:
        return item, error
    features: dict[FeatureConfig, Tensor] = {}
    with torch.inference_mode():
        for rate, waveform in waveforms.items():
            own = [config for config in ensemble.feature_configs if config.sample_rate == rate]
            for config, pieces in zip(own, shared_feature_blocks([waveform], own), strict=True):
                features[config] = torch.cat(list(pieces))
    rate = ensemble.sample_rate
    tensors = [features[config] for config in ensemble.feature_configs]
    return item, _Features(tensors, len(waveforms[rate]) / rate)
