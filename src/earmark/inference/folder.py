"""Many recordings -> scores; those that fit into one window are processed together.

A network takes a batch of short recordings in little more time than a few of them, and reading
(decode, resample, features) runs on several threads. Recordings that differ in length are padded to
the longest of a batch, and a mask keeps the padding from having any effect: scores are those of
each recording alone, to rounding (1e-6). To the bit they depend on the recordings that they are
gathered with: `TOGETHER` that follow each other in the list, without the `LARGE` ones.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
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

# Recordings of the list that are read before the short ones among them are processed together: more
# leave less padding, since those of similar length share a batch; fewer take less memory.
TOGETHER = 128
LARGE = 1 << 23  # bytes: a larger file is processed alone, so that its length need not be known


def is_large(path: Path) -> bool:
    """Return whether a file is larger than `LARGE`.

    >>> is_large(Path("no such file.wav"))
    False
    """
    try:
        return path.stat().st_size > LARGE
    except OSError:
        return False


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
    ensemble: Ensemble,
    items: Sequence[Item],
    read: Callable[[Item], Blocks],
    done: Container[Item] = (),
    is_alone: Callable[[Item], bool] = lambda _: False,
) -> Iterator[Read[Item]]:
    """Yield each recording in order, with its scores if it fits into one window.

    Args:
        ensemble: the networks.
        items: the recordings.
        read: returns, of a recording, sample rate -> blocks of its waveform.
        done: recordings to leave out; they keep their place in the list, so that others are
            gathered with the same ones as without them.
        is_alone: whether a recording counts as one that does not fit into a window.

    >>> from earmark.inference.model_file import BUNDLED, load_bundle
    >>> ensemble = Ensemble(load_bundle(BUNDLED).members)
    >>> read = lambda seconds: {32000: [np.zeros(32000 * seconds, np.float32)]}
    >>> for item, outcome in score_short(ensemble, [1, 20], read):
    ...     print(item, outcome and outcome.scores[0].shape)
    1 (13, 17)
    20 None
    """
    groups = [items[first : first + TOGETHER] for first in range(0, len(items), TOGETHER)]
    left = [[item for item in group if item not in done] for group in groups]
    work = partial(_load, ensemble, read, is_alone)
    loaded = map_in_threads(work, chain.from_iterable(left), ensemble.threads)
    for group in left:
        yield from _scored(ensemble, list(islice(loaded, len(group))))


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
    ensemble: Ensemble,
    read: Callable[[Item], Blocks],
    is_alone: Callable[[Item], bool],
    item: Item,
) -> tuple[Item, _Features | AudioError | DataError | None]:
    """Return the features of a recording, its error, or None if it does not fit into a window."""
    if is_alone(item):
        return item, None
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
