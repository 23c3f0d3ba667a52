"""Self-training: frame-level pseudo-labels of the training clips, from teacher models.

Conventions: pseudo-labels come from the mean frame probabilities of the teachers, each a network or
an ensemble. They are 0 for classes that a clip is not tagged with, since the teachers are known to
be wrong there. For its tags they are 1 within the events of the teachers and 0 outside
(`training.pseudo_labels` is "events"), or the probabilities themselves ("scores"), which are high
at the clearest part of a sound and low in the rest of it. The pseudo-labels of all clips are one
.npy file (frames, classes) in half precision, clip after clip.
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
from earmark.frames import FrameScores, Reals, pooled_length
from earmark.inference.ensemble import Ensemble, mean_scores
from earmark.inference.model_file import find_model, load_bundle
from earmark.inference.runs import find_runs
from earmark.training.settings import Settings

# An event of a tagged sound: where its probability reaches the first of these, or the second as a
# share of its peak if that is lower, since the sound is known to be there; gaps are in seconds.
_LOW_THRESHOLD = 0.1
_PEAK_SHARE = 0.3
_MAX_GAP = 0.8


class PseudoLabels:
    """The pseudo-labels of the training clips, read from their file.

    Args:
        path: the .npy file.
        store: features of the clips, for their lengths.
        clips: the training clips, in the order of the file.
        time_pool: feature frames per output frame of the network.

    >>> import tempfile
    >>> from earmark.data.features import FeatureConfig
    >>> from earmark.data.manifest import clip_paths
    >>> from earmark.data.store import build_store
    >>> from earmark.synth.scenes import SceneConfig, write_scenes
    >>> scenes = SceneConfig(duration=4.0, n_events=(1, 1), classes=("siren",))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_scenes(folder, 1, scenes)
    ...     clips = Manifest.read(f"{folder}/weak.tsv", f"{folder}/audio")
    ...     store = build_store(f"{folder}/features", clip_paths(clips), FeatureConfig())
    ...     path = Path(folder, "pseudo_labels.npy")
    ...     np.save(path, np.full((50, 1), 0.5, np.float16))
    ...     PseudoLabels(path, store, clips, time_pool=4).read([0], n_frames=200).unique()
    tensor([0.5000])
    """

    def __init__(self, path: Path, store: FeatureStore, clips: Manifest, time_pool: int) -> None:
        self.frames, self.time_pool = np.load(path, mmap_mode="r"), time_pool
        self.ends = np.cumsum([pooled_length(len(store[file]), time_pool) for file in clips.files])

    def read(self, rows: Sequence[int], n_frames: int) -> Tensor:
        """Return targets (batch, n_frames, classes) on the frame grid of the features."""
        targets = torch.zeros(len(rows), n_frames, self.frames.shape[1])
        for at, row in enumerate(rows):
            begin = self.ends[row - 1] if row else 0
            labels = torch.from_numpy(np.array(self.frames[begin : self.ends[row]], np.float32))
            labels = labels.repeat_interleave(self.time_pool, 0)[:n_frames]
            targets[at, : len(labels)] = labels
        return targets


def write_pseudo_labels(
    path: Path,
    teachers: Sequence[str | os.PathLike[str]],
    store: FeatureStore,
    clips: Manifest,
    settings: Settings,
    device: str | torch.device = "cpu",
    keep: bool = False,
) -> None:
    """Compute the pseudo-labels of the clips and write them to `path`.

    With `keep`, an existing file stays, and must come from the same teachers: computed again with
    another number of threads, it might differ in the last digit.

    >>> import tempfile
    >>> from earmark.data.manifest import clip_paths
    >>> from earmark.data.store import build_store
    >>> from earmark.inference.model_file import BUNDLED
    >>> from earmark.synth.scenes import SceneConfig, write_scenes
    >>> bundle = load_bundle(BUNDLED)
    >>> settings = Settings(features=bundle.feature_config, model=bundle.model_config)
    >>> scenes = SceneConfig(duration=4.0, n_events=(1, 1), classes=("siren",))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_scenes(folder, 1, scenes)
    ...     clips = Manifest.read(f"{folder}/weak.tsv", f"{folder}/audio", bundle.labels)
    ...     store = build_store(f"{folder}/features", clip_paths(clips), settings.features)
    ...     path = Path(folder, "pseudo_labels.npy")
    ...     write_pseudo_labels(path, [BUNDLED], store, clips, settings)
    ...     np.load(path).shape == (50, len(bundle.labels))
    True
    """
    note = path.with_suffix(".json")
    teachers = [find_model(teacher) for teacher in teachers]
    digests = [hashlib.sha256(Path(teacher).read_bytes()).hexdigest() for teacher in teachers]
    kind = settings.training.pseudo_labels
    text = json.dumps({"teachers": digests, "pseudo_labels": kind}).encode()
    if keep and note.exists():
        if note.read_bytes() != text:
            raise SettingError(
                f"{path} was computed by other teachers, or as other training.pseudo_labels; "
                "resume with those, or choose another out=."
            )
        if path.exists():  # otherwise it was removed, and is computed again
            return
    bundles = [load_bundle(teacher) for teacher in teachers]
    for teacher, bundle in zip(teachers, bundles, strict=True):
        for member in bundle.members:
            raw, time_pool = member.feature_config.raw, member.model_config.time_pool
            if bundle.labels != clips.labels or raw != settings.features.raw:
                raise SettingError(
                    "A teacher must have the labels and the features of the training. Got "
                    f"{os.fspath(teacher)} with the labels {', '.join(bundle.labels)}."
                )
            if time_pool != settings.model.time_pool:
                raise SettingError(
                    "A teacher must have the frame rate of the network that it trains. Got "
                    f"{os.fspath(teacher)} with a time pooling of {time_pool} in place of "
                    f"{settings.model.time_pool}."
                )
    scores = mean_scores(
        Ensemble(bundle.members, device).predict_clips(clips, [store]) for bundle in bundles
    )
    tags = clips.targets.numpy()
    if kind == "events":
        labels = [mark_events(own, tag) for own, tag in zip(scores, tags, strict=True)]
    else:
        labels = [own.scores * tag for own, tag in zip(scores, tags, strict=True)]
    note.unlink(missing_ok=True)
    with atomic_path(path) as part:
        np.save(part, np.concatenate(labels).astype(np.float16))
    atomic_write(note, text)


def mark_events(scores: FrameScores, tags: Reals) -> Reals:
    """Return 1 within the events of the tagged classes, and 0 elsewhere.

    Shape: `tags` (classes,), 1 or 0 -> (frames, classes).

    >>> from earmark.frames import FrameGrid
    >>> scores = FrameScores([[0.0], [0.2], [0.0], [0.9], [0.3]], ["dog"], FrameGrid(12.5))
    >>> mark_events(scores, np.ones(1))[:, 0]
    array([0., 1., 1., 1., 1.])
    """
    marks = np.zeros(scores.scores.shape)
    grid = scores.grid
    assert grid is not None  # a network has one
    for column in np.flatnonzero(tags):
        values = scores.scores[:, column]
        active = values >= min(_LOW_THRESHOLD, _PEAK_SHARE * float(values.max()))
        for start, stop in zip(*find_runs(active, active, grid.index(_MAX_GAP), 1), strict=True):
            marks[start:stop, column] = 1.0
    return marks
