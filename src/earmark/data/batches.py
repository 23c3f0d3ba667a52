"""Feature store and manifest -> the batches of an epoch, in an order that depends on the seed.

Conventions: a batch is (batch, frames, mels), shorter clips padded with zeros at the end; its mask
(batch, frames) is True for valid frames. Targets are float32, (batch, classes) or (batch, frames,
classes).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own usage
from torch.nn.utils.rnn import pad_sequence

from earmark.data.features import FeatureConfig
from earmark.data.manifest import Manifest
from earmark.data.store import FeatureStore
from earmark.errors import SettingError, choose
from earmark.frames import FrameGrid

CLASS_ORDERS = ("rounds", "random")
MOST_DRAWS = 5  # of a class in a round
N_SORTED = 50  # batches within which clips are sorted by length


def pad_batch(clips: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Pad clips of any lengths with zeros to one batch.

    Shape: clips (frames, mels) each; the batch (batch, frames, mels) and its mask (batch, frames).

    >>> batch, mask = pad_batch([torch.ones(2, 80), torch.ones(3, 80)])
    >>> batch.shape, mask
    (torch.Size([2, 3, 80]), tensor([[ True, True, False],
            [ True, True, True]]))
    """
    shapes = [tuple(clip.shape) for clip in clips]
    if not shapes or any(len(shape) != 2 or shape[1] != shapes[0][1] for shape in shapes):
        raise SettingError(
            "A batch needs one clip or more, each (frames, mels) with the same mels. "
            f"Got the shapes {shapes}."
        )
    batch = pad_sequence(list(clips), batch_first=True)
    lengths = torch.tensor([shape[0] for shape in shapes], device=batch.device)
    return batch, torch.arange(batch.shape[1], device=batch.device) < lengths[:, None]


def read_batch(
    store: FeatureStore, manifest: Manifest, rows: Sequence[int]
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return raw log-mels (batch, frames, mels), a mask if lengths differ, and targets.

    >>> from pathlib import Path
    >>> store = {"a": np.zeros((3, 80), np.float16)}
    >>> batch, mask, targets = read_batch(store, Manifest(("a",), (Path("a"),), ((),), ("x",)), [0])
    >>> batch.shape, mask, targets
    (torch.Size([1, 3, 80]), None, tensor([[0.]]))
    """
    clips = [torch.tensor(store[manifest.files[row]], dtype=torch.float32) for row in rows]
    batch, mask = pad_batch(clips)
    return batch, None if bool(mask.all()) else mask, manifest.targets[list(rows)]


def read_frame_targets(
    manifest: Manifest, grid: FrameGrid, rows: Sequence[int], n_frames: int
) -> Tensor:
    """Return frame-level targets (batch, frames, classes): 1 if a frame's centre is in an event.

    >>> from pathlib import Path
    >>> from earmark.formats.events import Event
    >>> clips = Manifest(("a",), (Path("a"),), ((),), ("dog",))
    >>> clips = clips.with_events({"a": [Event(0.1, 0.3, "dog")]})
    >>> read_frame_targets(clips, FrameGrid(10), [0], 4).flatten()
    tensor([0., 1., 1., 0.])
    """
    centres = grid.centres(n_frames)
    targets = np.zeros((len(rows), n_frames, len(manifest.labels)), np.float32)
    columns = {label: column for column, label in enumerate(manifest.labels)}
    for at, row in enumerate(rows):
        for event in manifest.events[row]:
            within = (event.onset <= centres) & (centres < event.offset)
            targets[at, within, columns[event.label]] = 1.0
    return torch.from_numpy(targets)


def pool_targets(targets: Tensor, mask: Tensor | None, factor: int) -> Tensor:
    """Average (batch, frames, classes) over groups of `factor` frames, ignoring masked frames.

    >>> pool_targets(torch.tensor([1.0, 0.0, 1.0]).view(1, 3, 1), None, 2).flatten()
    tensor([0.5000, 1.0000])
    """
    real = torch.ones(targets.shape[:2]) if mask is None else mask.to(targets.dtype)
    share = F.avg_pool1d(real.unsqueeze(1), factor, ceil_mode=True).transpose(1, 2)
    sums = F.avg_pool1d((targets * real.unsqueeze(2)).transpose(1, 2), factor, ceil_mode=True)
    return sums.transpose(1, 2) / torch.where(share > 0, share, 1)


def combine_seeds(*parts: int) -> int:
    """Combine numbers into a seed of 63 bits.

    >>> combine_seeds(0, 1) == combine_seeds(0, 1) != combine_seeds(1, 0)
    True
    """
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))


def epoch_order(
    targets: Tensor,
    seed: int,
    epoch: int,
    balanced: bool = False,
    class_ratio: int = 0,
    class_order: str = CLASS_ORDERS[0],
) -> list[int]:
    """Return the order of the clips in an epoch: each clip once, or balanced over the classes.

    Balanced: each round takes one clip of every class, classes and clips in random order; clips
    without tags count as one more class. Some clips then occur several times and others not at all.

    Args:
        targets: (clips, classes).
        seed: of the training.
        epoch: its number.
        balanced: over the classes.
        class_ratio: if above 0, a round takes more clips of frequent classes: see `class_draws`.
        class_order: with "random" there are no rounds, and the class of each clip is drawn with a
            probability in proportion to its number in a round.

    >>> targets = torch.tensor([[1.0, 0.0]] * 9 + [[0.0, 1.0]])
    >>> epoch_order(targets, seed=0, epoch=0, balanced=True).count(9)
    5
    """
    choose("order of classes", class_order, CLASS_ORDERS)
    rng = np.random.default_rng(combine_seeds(seed, epoch))
    n_clips = len(targets)
    if not balanced:
        return [int(row) for row in rng.permutation(n_clips)]
    untagged = (targets.sum(1, keepdim=True) == 0).to(targets.dtype)
    columns = torch.cat([targets, untagged], 1).numpy().T > 0.5
    members = [np.flatnonzero(column) for column in columns if column.any()]
    draws = [class_draws(len(rows), class_ratio) for rows in members]
    one_round = np.repeat(np.arange(len(members)), draws)
    queues: list[list[int]] = [[] for _ in members]
    order: list[int] = []
    while len(order) < n_clips:
        if class_order == "random":
            kinds = rng.choice(one_round, n_clips)
        else:
            kinds = one_round[rng.permutation(len(one_round))]
        for kind in kinds:
            if not queues[kind]:
                queues[kind] = [int(row) for row in rng.permutation(members[kind])]
            order.append(queues[kind].pop())
    return order[:n_clips]


def class_draws(n_clips: int, class_ratio: int) -> int:
    """Return how many clips of a class of `n_clips` a round of balanced sampling takes.

    One, and one more per `class_ratio` clips, up to 5; with a ratio of 1,000 it is the rule of the
    DCASE 2017 systems of Surrey and GCCaps. With a ratio of 0 all classes are equal.

    >>> [class_draws(n_clips, 1000) for n_clips in (999, 1000, 3999, 26000)]
    [1, 2, 4, 5]
    """
    return min(n_clips // class_ratio + 1, MOST_DRAWS) if class_ratio else 1


def group_by_length(
    order: Sequence[int], lengths: Sequence[int], batch_size: int, seed: int, epoch: int
) -> list[int]:
    """Return the order of an epoch changed so that the clips of a batch have similar lengths.

    Clips of the next `N_SORTED` batches are sorted by length, and the batches of them shuffled: the
    same clips in the same part of the epoch, with less padding. An incomplete batch stays the last.

    Args:
        order: of the clips, from `epoch_order`.
        lengths: of each clip, in any unit.
        batch_size: clips per batch.
        seed: of the training.
        epoch: its number.

    >>> group_by_length([0, 1, 2, 3, 4], lengths=[9, 15, 9, 15, 9], batch_size=2, seed=0, epoch=0)
    [0, 2, 1, 3, 4]
    """
    rng = np.random.default_rng(combine_seeds(seed, epoch, 1))
    grouped: list[int] = []
    for part in split_rows(order, N_SORTED * batch_size):
        n_full = len(part) - len(part) % batch_size
        ordered = sorted(part[:n_full], key=lengths.__getitem__)  # stable: of one length as drawn
        batches = list(split_rows(ordered, batch_size))
        for at in rng.permutation(len(batches)):
            grouped += batches[at]
        grouped += part[n_full:]
    return grouped


def split_rows(rows: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Yield `rows` in batches of `size`; the last one may be smaller.

    >>> list(split_rows([1, 2, 3], 2))
    [[1, 2], [3]]
    """
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def split_share(n_clips: int, size: int, rank: int = 0, n_processes: int = 1) -> list[slice]:
    """Return the micro-batches of one process, whose share is every `n_processes`-th clip.

    A micro-batch has about `size` clips over all processes, and at least one in each; with size 0
    it is the whole batch. Which clips it contains does not depend on the number of processes.

    >>> split_share(9, 4), split_share(9, 4, rank=1, n_processes=2)
    ([slice(0, 3, None), slice(3, 6, None), slice(6, 9, None)], [slice(0, 1, None), ...])
    """
    wanted = -(-n_clips // size) if size else 1
    n_pieces = max(1, min(wanted, n_clips // n_processes))
    # The number of clips in the share, among the first n_clips * i // n_pieces of the batch.
    ends = [
        max(0, -(-(n_clips * i // n_pieces - rank) // n_processes)) for i in range(n_pieces + 1)
    ]
    return [slice(begin, end) for begin, end in pairwise(ends)]


def with_statistics(features: FeatureConfig, store: FeatureStore, train: Manifest) -> FeatureConfig:
    """Return the features with the mean and std of each mel band over the training clips.

    A waveform has one mean and std.

    >>> import tempfile
    >>> from earmark.audio.encode import write_audio
    >>> from earmark.data.store import build_store
    >>> clips = Manifest(("a.wav",), ("a.wav",), ((),), ())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_audio(f"{folder}/a.wav", np.zeros(32000), 32000)
    ...     store = build_store(f"{folder}/store", {"a.wav": f"{folder}/a.wav"})
    ...     len(with_statistics(FeatureConfig(), store, clips).mean)
    80
    """
    mean, std = store.statistics(train.files)
    floor = 1e-3 * float(np.max(std)) or 1.0  # so that a constant mel band is not amplified
    return replace(
        features,
        mean=tuple(float(value) for value in mean),
        std=tuple(max(float(value), floor) for value in std),
    )


def clip_window(store: FeatureStore, clips: Manifest, features: FeatureConfig) -> float:
    """Return the window of a detector in seconds: the median training clip, within 1 to 30 s.

    Clips that are cut from longer recordings do not count.
    """
    n_frames = median_length(store, clips)
    return min(max(features.grid.onset(n_frames), 1.0), 30.0)


def median_length(store: FeatureStore, clips: Manifest) -> int:
    """Return the median number of frames of the clips that are whole recordings."""
    whole = [file for file in clips.files if file not in clips.excerpts]
    return int(np.median([len(store[file]) for file in whole or clips.files]))
