"""Clips cut into windows of one length, and values of windows averaged to clips and frames.

Conventions: a clip is rows in time: frames of features, or samples. A window that reaches beyond
the end of its clip is filled with zeros and masked there; a window without any row of its clip does
not exist. Positions follow from the length of a clip alone, so a clip has the same windows alone
and padded in a batch. How windows become clips or frames is a matrix of averages: one row per
result, whose weights of the windows add up to 1.

Shape: rows (batch, rows, features) -> windows (windows, rows, features), those of the first clip
first; values of windows (windows, features) -> by clip (batch, most windows, features), 0 where a
clip has fewer.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own usage

from earmark.frames import Reals


def regular_starts(n_rows: int, window: int, hop: int) -> tuple[int, ...]:
    """Return where windows begin that are a hop apart, until one reaches the end of the clip.

    >>> regular_starts(250, 100, 100), regular_starts(250, 100, 50), regular_starts(30, 100, 100)
    ((0, 100, 200), (0, 50, 100, 150), (0,))
    """
    n_windows = 1 + max(0, -(-(n_rows - window) // hop)) if n_rows else 0
    return tuple(range(0, n_windows * hop, hop))


def even_starts(n_rows: int, window: int) -> tuple[int, ...]:
    """Return where windows begin that are spread evenly, floor(n_rows / window) + 1 of them.

    >>> even_starts(250, 100), even_starts(30, 100)
    ((0, 75, 150), (0,))
    """
    n_gaps = n_rows // window
    if not n_gaps:
        return (0,) if n_rows else ()
    return tuple(round(number * (n_rows - window) / n_gaps) for number in range(n_gaps + 1))


@lru_cache(maxsize=256)
def frame_averages(n_frames: int, window: int, hop: int, pool: int) -> Reals:
    """Return how the windows of `regular_starts` become output frames, each of `pool` frames.

    A frame has the mean of the windows that cover it, and an output frame has that of the frame at
    its centre: of two windows whose boundary it lies across, it has one.

    Shape: -> (output frames, windows).

    >>> frame_averages(6, window=3, hop=3, pool=2)
    array([[1., 0.],
           [0., 1.],
           [0., 1.]])
    """
    starts = np.array(regular_starts(n_frames, window, hop), np.int64)
    frames = np.arange(n_frames)[:, None]
    covered = ((starts <= frames) & (frames < starts + window)).astype(np.float64)
    shares = covered / covered.sum(axis=1, keepdims=True)
    centres = np.minimum(np.arange(0, n_frames, pool) + pool // 2, n_frames - 1)
    averages: Reals = shares[centres]
    return averages


class Windows:
    """The windows of a batch of clips.

    Args:
        starts: first row of each window, per clip.
        lengths: number of rows of each clip that are no padding.
        window: rows of a window.

    >>> windows = Windows([(0, 2), (0,)], lengths=[4, 1], window=2)
    >>> cut, mask = windows.cut(torch.tensor([[1.0, 2, 3, 4], [5, 0, 0, 0]]).unsqueeze(2))
    >>> cut.flatten(1), mask
    (tensor([[1., 2.],
            [3., 4.],
            [5., 0.]]), tensor([[ True,  True],
            [ True,  True],
            [ True, False]]))
    >>> windows.by_clip(torch.tensor([[0.1], [0.2], [0.3]])).flatten(1)
    tensor([[0.1000, 0.2000],
            [0.3000, 0.0000]])
    """

    def __init__(
        self, starts: Sequence[Sequence[int]], lengths: Sequence[int], window: int
    ) -> None:
        self.window = window
        self.places = [(clip, start) for clip, own in enumerate(starts) for start in own]
        self.slots = [slot for own in starts for slot in range(len(own))]
        self.n_valid = [min(window, lengths[clip] - start) for clip, start in self.places]
        self.shape = (len(starts), max([1, *map(len, starts)]))

    def __len__(self) -> int:
        return len(self.places)

    def cut(self, rows: Tensor, part: slice = slice(None)) -> tuple[Tensor, Tensor | None]:
        """Return windows (windows, rows, features) of clips (batch, rows, features), and a mask.

        Args:
            rows: the clips, with zeros at padding.
            part: which of the windows.
        """
        places, n_valid = self.places[part], self.n_valid[part]
        missing = max((start + self.window for _, start in places), default=0) - rows.shape[1]
        rows = F.pad(rows, (0, 0, 0, max(0, missing)))
        windows = rows.new_zeros(len(places), self.window, rows.shape[2])
        for window, (clip, start) in zip(windows, places, strict=True):
            window.copy_(rows[clip, start : start + self.window])
        if all(count == self.window for count in n_valid):
            return windows, None
        counts = torch.tensor(n_valid, device=rows.device)
        return windows, torch.arange(self.window, device=rows.device) < counts[:, None]

    def parts(self, most: int) -> Iterator[slice]:
        """Yield slices of at most `most` windows, and of one at least."""
        for first in range(0, len(self), max(1, most)):
            yield slice(first, first + max(1, most))

    def by_clip(self, values: Tensor) -> Tensor:
        """Return (windows, features) as (batch, most windows of a clip, features)."""
        clips = torch.tensor([clip for clip, _ in self.places], device=values.device)
        slots = torch.tensor(self.slots, device=values.device)
        out = values.new_zeros(*self.shape, values.shape[1])
        return out.index_put((clips, slots), values) if len(self) else out

    def present(self, device: torch.device) -> Tensor:
        """Return which windows there are, (batch, most windows of a clip)."""
        return self.by_clip(torch.ones(len(self), 1, device=device))[:, :, 0] > 0


def clip_lengths(rows: Tensor, mask: Tensor | None) -> list[int]:
    """Return the number of valid rows of each clip.

    >>> clip_lengths(torch.zeros(2, 3, 1), torch.tensor([[True] * 3, [True, False, False]]))
    [3, 1]
    """
    return [rows.shape[1]] * len(rows) if mask is None else mask.sum(1).tolist()


def average(values: Tensor, averages: Sequence[Reals], n_results: int) -> Tensor:
    """Return averages of windows, (batch, n_results, features), 0 where a clip has fewer.

    They are in single precision or better, whatever that of the windows and of autocast.

    Shape: `values` (batch, windows, features), `averages` (results, windows) of each clip.

    >>> matrix = np.array([[0.5, 0.5], [0.0, 1.0]])
    >>> average(torch.tensor([[[1.0], [3.0]]]), [matrix], n_results=3).flatten()
    tensor([2., 3., 0.])
    """
    weights = np.zeros((len(values), n_results, values.shape[1]))
    for matrix, own in zip(weights, averages, strict=True):
        matrix[: own.shape[0], : own.shape[1]] = own
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    with torch.autocast(values.device.type, enabled=False):
        return torch.from_numpy(weights).to(values) @ values


def pool_mask(mask: Tensor | None, pool: int) -> Tensor | None:
    """Return the mask of output frames, of which each is `pool` frames or the rest of a clip.

    >>> pool_mask(torch.tensor([[True, True, True, False, False]]), 2)
    tensor([[ True,  True, False]])
    """
    return None if mask is None else mask[:, ::pool]
