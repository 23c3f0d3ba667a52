"""Teacher models -> pseudo-labels of every frame of the training clips, and their batches.

Conventions: pseudo-labels are the mean frame probabilities of the teachers; where a clip is not
tagged with a class they are 0, since the teachers are known to be wrong there. Those of all clips
are one .npy file (frames, classes) in half precision, clip after clip.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from earmark.data.manifest import Manifest
from earmark.data.store import FeatureStore
from earmark.errors import SettingError
from earmark.files import atomic_path, atomic_write
from earmark.frames import pooled_length
from earmark.inference.detector import Detector
from earmark.inference.model_file import load_bundle
from earmark.inference.predictor import mean_scores, predict_clips
from earmark.training.settings import Settings


class PseudoLabels:
    """What teachers say of every frame of the training clips; see `earmark.inference.predictions`."""

    def __init__(self, path: Path, store: FeatureStore, clips: Manifest, pool: int) -> None:
        self.frames, self.pool = np.load(path, mmap_mode="r"), pool
        lengths = [pooled_length(len(store[file]), pool) for file in clips.files]
        self.ends = np.cumsum(lengths)

    def read(self, rows: Sequence[int], n_frames: int) -> Tensor:
        """Return (batch, frames, classes) with as many frames as the features have."""
        targets = torch.zeros(len(rows), n_frames, self.frames.shape[1])
        for at, row in enumerate(rows):
            begin = self.ends[row - 1] if row else 0
            said = torch.from_numpy(np.array(self.frames[begin : self.ends[row]], np.float32))
            said = said.repeat_interleave(self.pool, 0)[:n_frames]
            targets[at, : len(said)] = said
        return targets


def write_pseudo_labels(
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
        if bundle.labels != clips.labels or bundle.feature_config.raw != settings.features.raw:
            raise SettingError(
                "A teacher must have the labels and the features of the training. Got one of "
                f"{', '.join(bundle.labels)}."
            )
        if bundle.model_config.time_pool != settings.model.time_pool:
            raise SettingError(
                "A teacher must have as many frames a second as the network that it teaches."
            )
    scores = mean_scores(
        predict_clips(Detector(bundle).predictor, store, clips, bundle.feature_config)
        for bundle in bundles
    )
    tags = clips.targets.numpy()
    taught = [own.scores * tag for own, tag in zip(scores, tags, strict=True)]
    with atomic_path(path) as part:
        np.save(part, np.concatenate(taught).astype(np.float16))
        note.unlink(missing_ok=True)
    atomic_write(note, text)
