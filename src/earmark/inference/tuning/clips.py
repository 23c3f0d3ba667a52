"""Curves and clip probabilities of validation clips -> the same, checked.

Conventions: those of `earmark.inference.tuning`; what does not fit is told before any search begins.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from earmark.errors import SettingError
from earmark.frames import FrameGrid
from earmark.inference.decoding import Decoding, Floats
from earmark.inference.tuning.thresholds import Bounds


class Clips:
    """The validation clips, checked; the arguments are those of `tune_decoding`.

    >>> Clips([np.zeros((5, 2))], np.zeros((1, 1)), FrameGrid(12.5), Decoding.uniform(["dog"]), (0, 1))
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: bounds must be 0 < lowest < highest <= 1. Got (0, 1).
    """

    def __init__(
        self,
        curves: Sequence[Floats],
        clip_probs: Floats,
        grid: FrameGrid,
        start: Decoding,
        bounds: Bounds,
    ) -> None:
        if not 0 < bounds[0] < bounds[1] <= 1:
            raise SettingError(f"bounds must be 0 < lowest < highest <= 1. Got {bounds!r}.")
        self.grid, self.start, self.bounds, self.labels = grid, start, bounds, start.labels
        self.curves = [np.asarray(curve) for curve in curves]
        self.clip_probs = np.asarray(clip_probs, dtype=np.float64)
        self._check()

    def _check(self) -> None:
        n_clips, n_classes = len(self.curves), len(self.labels)
        if self.clip_probs.shape != (n_clips, n_classes):
            raise SettingError(
                f"clip_probs must be (clips, classes), here {(n_clips, n_classes)}. "
                f"Got the shape {self.clip_probs.shape}."
            )
        for at, curve in enumerate(self.curves):
            if curve.ndim != 2 or curve.shape[1] != n_classes:
                raise SettingError(
                    f"Curve {at} must be (frames, {n_classes}). Got the shape {curve.shape}."
                )
        for values in (self.clip_probs, *self.curves):
            if values.size and not (values.min() >= 0 and values.max() <= 1):  # NaN is neither
                raise SettingError(
                    "curves and clip_probs must be probabilities from 0 to 1. "
                    f"Got values from {values.min()} to {values.max()}."
                )

    def check_length(self, name: str, values: Sequence[Any]) -> None:
        """Raise unless there is one of `values` for each clip."""
        if len(values) != len(self.curves):
            raise SettingError(
                f"{name} must have one entry for each of {len(self.curves)} clips. "
                f"Got {len(values)}."
            )
