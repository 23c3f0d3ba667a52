"""Pooling as a module, with the parameters that it needs.

Conventions: those of `earmark.pooling`.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from earmark.errors import SettingError, choose
from earmark.pooling.stages import (
    STAGE_WEIGHTS,
    Stage,
    checked_stages,
    pool,
    segment_means,
    valid_frames,
)
from earmark.pooling.weightings import POOLINGS, dense_layer


class Pooling(nn.Module):
    """Any pooling, single-level or hierarchical: (batch, frames, classes) -> (batch, classes).

    Args:
        name: one of `POOLINGS`.
        stages: segment lengths; (5, 5, 5) turns 125 into 25, 5 and 1, () is single-level pooling.
            Lengths need not divide the number of frames; what remains after the last stage is
            pooled once.
        stage_weights: one of `STAGE_WEIGHTS`.
        n_hidden: width of `hidden`, for attention and for learned stage weights.
        n_classes: for the same; "auto" and "power" have one parameter per class if it is given.

    Shape: `frame_probs` (batch, frames, classes) in [0, 1], `hidden` (batch, frames, n_hidden),
    `mask` (batch, frames), True for a valid frame -> (batch, classes), in the dtype of
    `frame_probs`; with `return_stages=True` also each level as a `Stage`, from frames to clip.

    >>> import torch
    >>> frame_probs = torch.tensor([[[0.5], [0.25], [0.0], [0.0]]])
    >>> clip_probs, stages = Pooling("linear", stages=(2,))(frame_probs, return_stages=True)
    >>> clip_probs
    tensor([[0.4167]])
    >>> [tuple(stage.probs.shape) for stage in stages]
    [(1, 4, 1), (1, 2, 1), (1, 1, 1)]
    """

    def __init__(
        self,
        name: str,
        stages: Sequence[int] = (5, 5, 5),
        stage_weights: str = "self",
        n_hidden: int | None = None,
        n_classes: int | None = None,
    ) -> None:
        super().__init__()
        self.stages = check_pooling(name, stages, stage_weights)
        self.name, self.stage_weights = name, stage_weights
        self.n_hidden, self.n_classes = n_hidden, n_classes
        self.weighting = POOLINGS[name](n_hidden, n_classes)
        self.stage_layers = nn.ModuleList(
            dense_layer(n_hidden, n_classes) for _ in self.stages if stage_weights == "learned"
        )

    def forward(
        self,
        frame_probs: Tensor,
        hidden: Tensor | None = None,
        mask: Tensor | None = None,
        return_stages: bool = False,
    ) -> Tensor | tuple[Tensor, list[Stage]]:
        """See the class."""
        valid = valid_frames(frame_probs, mask)
        if self.n_classes is not None and frame_probs.shape[2] != self.n_classes:
            raise SettingError(
                f"This pooling was built with n_classes={self.n_classes}. "
                f"Got frame_probs of shape {tuple(frame_probs.shape)}."
            )
        stage_logits = None
        if self.weighting.needs_hidden or self.stage_layers:
            hidden = self._checked_hidden(hidden, valid)
        if hidden is not None and self.stage_layers:
            means = segment_means(hidden, valid, self.stages)
            layers = zip(self.stage_layers, means, strict=True)
            stage_logits = [layer(mean) for layer, mean in layers]
        levels = pool(
            frame_probs,
            lambda probs, valid: self.weighting(probs, hidden, valid),
            mask,
            self.stages,
            self.stage_weights,
            stage_logits,
            self.weighting.reduction,
        )
        clip_probs = levels[-1].probs.squeeze(1)
        return (clip_probs, levels) if return_stages else clip_probs

    def lower_levels(self, levels: Sequence[Stage]) -> list[Tensor]:
        """Return the clip probabilities (batch, classes) that the lower levels would give.

        Each level is pooled once, without the stages above it: the frames as in single-level
        pooling, then the segments of the first stage, and so on. The last one, which gives the clip
        probabilities themselves, is left out.

        Args:
            levels: as `forward` returns them.

        >>> import torch
        >>> frame_probs = torch.tensor([[[0.5], [0.25], [0.1], [0.1]]])
        >>> pooling = Pooling("linear", stages=(2,))
        >>> pooling.lower_levels(pooling(frame_probs, return_stages=True)[1])
        [tensor([[0.3500]])]
        >>> Pooling("linear", stages=())(frame_probs)
        tensor([[0.3500]])
        """
        return [
            self.weighting.reduction(
                level.probs.to(level.weights.dtype), level.weights, level.mask.unsqueeze(2)
            )[0]
            for level in levels[:-2]
        ]

    def _checked_hidden(self, hidden: Tensor | None, valid: Tensor) -> Tensor:
        """Return `hidden`, zero at padding, so that its values there reach no gradient."""
        wanted = (*valid.shape[:2], self.n_hidden)
        if hidden is None or hidden.shape != wanted:
            got = "None" if hidden is None else f"shape {tuple(hidden.shape)}"
            raise SettingError(
                f"Pooling({self.extra_repr()}) needs hidden (batch, frames, n_hidden) of shape "
                f"{wanted}. Got {got}."
            )
        return hidden.masked_fill(~valid, 0)

    def extra_repr(self) -> str:
        """Show the settings in `print(pooling)`."""
        return f"{self.name!r}, stages={self.stages}, stage_weights={self.stage_weights!r}"


def check_pooling(name: str, stages: Sequence[int], stage_weights: str) -> tuple[int, ...]:
    """Raise unless the three fit together; return the stages as a tuple of integers.

    >>> check_pooling("linear", [5, 5], "self")
    (5, 5)
    """
    choose("pooling", name, POOLINGS)
    choose("rule for stage weights", stage_weights, STAGE_WEIGHTS)
    if stage_weights == "learned" and not POOLINGS[name].has_weights:
        raise SettingError(f"{name} has no weights to learn; use stage_weights='self'.")
    return checked_stages(stages)
