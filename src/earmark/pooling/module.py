"""Frame probabilities -> clip probabilities, as a module with whatever parameters it needs.

Adding a pooling is one `Weighting` and one line in `POOLINGS` at the foot.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from earmark.errors import SettingError, choose
from earmark.pooling.stages import (
    STAGE_WEIGHTS,
    Reduction,
    Stage,
    WeightRule,
    noisy_or,
    pool,
    segment_means,
    weighted_mean,
)
from earmark.pooling.weights import (
    attention_weights,
    average_weights,
    exp_weights,
    linear_weights,
    max_weights,
    power_weights,
)

ATTENTION_OVER = ("frames", "classes")


class Weighting(nn.Module):
    """What one pooling adds to the hierarchy: frame weights, and how a segment is reduced.

    Without parameters, `rule` is all there is; subclasses with parameters override `forward`.
    """

    rule: WeightRule
    reduction: Reduction = staticmethod(weighted_mean)
    needs_hidden = False

    def __init__(self, n_hidden: int | None, n_classes: int | None) -> None:
        super().__init__()

    def forward(self, frame_probs: Tensor, hidden: Tensor | None, mask: Tensor) -> Tensor:
        """(batch, frames, classes), mask (batch, frames, 1) -> weights (batch, frames, classes)."""
        return type(self).rule(frame_probs, mask)


class Max(Weighting):
    """The largest frame alone speaks for the clip, and alone learns from it."""

    rule = staticmethod(max_weights)


class Average(Weighting):
    """Every frame speaks alike."""

    rule = staticmethod(average_weights)


class Linear(Weighting):
    """Linear softmax: a frame weighs as much as it is sure."""

    rule = staticmethod(linear_weights)


class Exp(Weighting):
    """Exponential softmax, w = exp(x)."""

    rule = staticmethod(exp_weights)


class NoisyOr(Weighting):
    """1 - prod(1 - x): the clip is positive unless every frame is negative."""

    rule = staticmethod(average_weights)
    reduction = staticmethod(noisy_or)


class Auto(Weighting):
    """McFee's autopool: w = exp(a x) with a learned, one a class where `n_classes` is given."""

    def __init__(self, n_hidden: int | None, n_classes: int | None) -> None:
        super().__init__(n_hidden, n_classes)
        self.sharpness = nn.Parameter(torch.ones(n_classes or 1))

    def forward(self, frame_probs: Tensor, hidden: Tensor | None, mask: Tensor) -> Tensor:
        """See `Weighting.forward`."""
        return exp_weights(frame_probs, mask, self.sharpness.to(frame_probs.dtype))


class Power(Weighting):
    """w = x^n with n >= 0 learned, one a class where `n_classes` is given."""

    def __init__(self, n_hidden: int | None, n_classes: int | None) -> None:
        super().__init__(n_hidden, n_classes)
        self.exponent = nn.Parameter(torch.ones(n_classes or 1))

    def forward(self, frame_probs: Tensor, hidden: Tensor | None, mask: Tensor) -> Tensor:
        """See `Weighting.forward`."""
        return power_weights(frame_probs, mask, self.exponent.to(frame_probs.dtype))


class Attention(Weighting):
    """w = softmax of a dense layer on `hidden`, over the frames or over the classes."""

    needs_hidden = True

    def __init__(
        self, n_hidden: int | None, n_classes: int | None, over: str = ATTENTION_OVER[0]
    ) -> None:
        super().__init__(n_hidden, n_classes)
        self.over = choose("axis for attention", over, ATTENTION_OVER)
        self.layer = _dense(n_hidden, n_classes)

    def forward(self, frame_probs: Tensor, hidden: Tensor | None, mask: Tensor) -> Tensor:
        """See `Weighting.forward`."""
        return attention_weights(self.layer(hidden).to(frame_probs.dtype), mask, self.over)


class ClassAttention(Attention):
    """Attention whose softmax runs over the classes of each frame, as in Surrey's system."""

    def __init__(self, n_hidden: int | None, n_classes: int | None) -> None:
        super().__init__(n_hidden, n_classes, over="classes")


class Pooling(nn.Module):
    """Any pooling, single or hierarchical: (batch, frames, classes) -> (batch, classes).

    Args:
        name: one of `POOLINGS`.
        stages: segment lengths; (5, 5, 5) turns 125 into 25, 5 and 1, () is single pooling.
            Lengths need not divide, and whatever remains after the last stage is pooled once.
        stage_weights: one of `STAGE_WEIGHTS`.
        n_hidden: width of `hidden`, for attention and for learned stage weights.
        n_classes: for the same; "auto" and "power" have a parameter a class where it is given.

    Shape: `frame_probs` (batch, frames, classes), `hidden` (batch, frames, n_hidden), `mask`
    (batch, frames), True for a real frame -> (batch, classes), in the type of `frame_probs`; with
    `return_stages=True` also every level as a `Stage`, the frames first, the clip last.

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
        self.name = choose("pooling", name, POOLINGS)
        self.stage_weights = choose("rule for stage weights", stage_weights, STAGE_WEIGHTS)
        self.stages = tuple(stages)
        if any(type(length) is not int or length < 1 for length in self.stages):
            raise SettingError(f"Stages are whole numbers of 1 or more. Got {stages!r}.")
        if name == "noisy-or" and stage_weights == "learned":
            raise SettingError("noisy-or has no weights to learn; leave stage_weights at 'self'.")
        self.weighting = POOLINGS[name](n_hidden, n_classes)
        self.stage_layers = nn.ModuleList(
            _dense(n_hidden, n_classes) for _ in self.stages if stage_weights == "learned"
        )

    def forward(
        self,
        frame_probs: Tensor,
        hidden: Tensor | None = None,
        mask: Tensor | None = None,
        return_stages: bool = False,
    ) -> Tensor | tuple[Tensor, list[Stage]]:
        """See the class."""
        stage_logits = None
        if self.weighting.needs_hidden or self.stage_layers:
            hidden = self._checked_hidden(frame_probs, hidden, mask)
        if hidden is not None and self.stage_layers:
            means = segment_means(hidden, mask, self.stages)
            layers = zip(self.stage_layers, means, strict=True)
            stage_logits = [layer(mean) for layer, mean in layers]
        levels = pool(
            frame_probs,
            lambda probs, real: self.weighting(probs, hidden, real),
            mask,
            self.stages,
            self.stage_weights,
            stage_logits,
            self.weighting.reduction,
        )
        clip_probs = levels[-1].probs.squeeze(1)
        return (clip_probs, levels) if return_stages else clip_probs

    def _checked_hidden(
        self, frame_probs: Tensor, hidden: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        """Return `hidden` with padding zeroed: what padding holds must not reach a gradient."""
        if hidden is None or hidden.shape[:2] != frame_probs.shape[:2]:
            got = "None" if hidden is None else f"shape {tuple(hidden.shape)}"
            raise SettingError(
                f"{self!s} needs hidden (batch, frames, n_hidden) beside frame_probs "
                f"{tuple(frame_probs.shape)}. Got {got}."
            )
        return hidden if mask is None else hidden.masked_fill(~mask.unsqueeze(2), 0)

    def extra_repr(self) -> str:
        """Name the settings in `print(pooling)`."""
        return f"{self.name!r}, stages={self.stages}, stage_weights={self.stage_weights!r}"


def _dense(n_hidden: int | None, n_classes: int | None) -> nn.Linear:
    if not n_hidden or not n_classes:
        raise SettingError(
            "Attention and learned stage weights need n_hidden and n_classes. "
            f"Got n_hidden={n_hidden!r}, n_classes={n_classes!r}."
        )
    return nn.Linear(n_hidden, n_classes)


POOLINGS: dict[str, type[Weighting]] = {
    "max": Max,
    "average": Average,
    "linear": Linear,
    "exp": Exp,
    "attention": Attention,
    "class-attention": ClassAttention,
    "auto": Auto,
    "power": Power,
    "noisy-or": NoisyOr,
}
