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
    checked_stages,
    noisy_or,
    pool,
    real_frames,
    segment_means,
    weighted_mean,
)
from earmark.pooling.weights import (
    ATTENTION_OVER,
    attention_weights,
    average_weights,
    exp_weights,
    linear_weights,
    max_weights,
    power_weights,
)


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
    """w = x^n with n = |exponent| learned, one a class where `n_classes` is given."""

    def __init__(self, n_hidden: int | None, n_classes: int | None) -> None:
        super().__init__(n_hidden, n_classes)
        self.exponent = nn.Parameter(torch.ones(n_classes or 1))

    def forward(self, frame_probs: Tensor, hidden: Tensor | None, mask: Tensor) -> Tensor:
        """See `Weighting.forward`."""
        # |exponent| by a choice, since abs has no slope at 0: a step of training that lands at or
        # beyond 0 must find its way back.
        power = torch.where(self.exponent < 0, -self.exponent, self.exponent)
        return power_weights(frame_probs, mask, power.to(frame_probs.dtype))


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

    Shape: `frame_probs` (batch, frames, classes) in [0, 1], `hidden` (batch, frames, n_hidden),
    `mask` (batch, frames), True for a real frame -> (batch, classes), in the type of `frame_probs`;
    with `return_stages=True` also every level as a `Stage`, the frames first, the clip last.

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
        real = real_frames(frame_probs, mask)
        if self.n_classes is not None and frame_probs.shape[2] != self.n_classes:
            raise SettingError(
                f"This pooling was made for n_classes={self.n_classes}. "
                f"Got frame_probs of shape {tuple(frame_probs.shape)}."
            )
        stage_logits = None
        if self.weighting.needs_hidden or self.stage_layers:
            hidden = self._checked_hidden(hidden, real)
        if hidden is not None and self.stage_layers:
            means = segment_means(hidden, real, self.stages)
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

    def _checked_hidden(self, hidden: Tensor | None, real: Tensor) -> Tensor:
        """Return `hidden` with padding zeroed: what padding holds must not reach a gradient."""
        wanted = (*real.shape[:2], self.n_hidden)
        if hidden is None or hidden.shape != wanted:
            got = "None" if hidden is None else f"shape {tuple(hidden.shape)}"
            raise SettingError(
                f"Pooling({self.extra_repr()}) needs hidden (batch, frames, n_hidden) of shape "
                f"{wanted}. Got {got}."
            )
        return hidden.masked_fill(~real, 0)

    def extra_repr(self) -> str:
        """Name the settings in `print(pooling)`."""
        return f"{self.name!r}, stages={self.stages}, stage_weights={self.stage_weights!r}"


def check_pooling(name: str, stages: Sequence[int], stage_weights: str) -> tuple[int, ...]:
    """Raise unless the three go together; return the stages as a tuple of whole numbers.

    >>> check_pooling("linear", [5, 5], "self")
    (5, 5)
    """
    choose("pooling", name, POOLINGS)
    choose("rule for stage weights", stage_weights, STAGE_WEIGHTS)
    if name == "noisy-or" and stage_weights == "learned":
        raise SettingError("noisy-or has no weights to learn; leave stage_weights at 'self'.")
    return checked_stages(stages)


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
