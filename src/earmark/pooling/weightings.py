"""What distinguishes one pooling from another: the weights of the frames (Table 1 of the paper).

Adding a pooling is one `Weighting` here and one line in `POOLINGS` at the end. The module
`Pooling`, the function `<name>_pool`, the settings, the table in docs/pooling.md and the tests read
`POOLINGS`.

Conventions: `frame_probs` (batch, frames, classes) in single or double precision, zero at padding;
`mask` (batch, frames, 1). Weights have the shape of `frame_probs` and are never negative. Only
their ratios within a clip and class matter, so they may be scaled. Their values at padding do not
matter either, since `pool` zeroes them; a weighting reads `mask` only where a maximum or a softmax
must exclude padding.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own usage

from earmark.errors import SettingError, choose
from earmark.pooling.stages import (
    Reduction,
    check_shape,
    noisy_or,
    softmax_over_frames,
    weighted_mean,
)

ATTENTION_OVER = ("frames", "classes")
SMALLEST = 1e-7  # weight of a frame under sigmoid attention, which never ignores a whole clip


class Weighting(nn.Module):
    """The weights of the frames, and how a segment is reduced.

    A subclass has `frame_weights`. With parameters, it also has `__init__` and `arguments`, which
    returns what `frame_weights` takes beyond `frame_probs` and `mask`.

    >>> Linear.frame_weights(torch.tensor([[[0.5], [0.25]]]), torch.ones(1, 2, 1).bool()).flatten()
    tensor([0.5000, 0.2500])
    """

    formula: str  # the weight of a frame, as the documentation shows it
    example: tuple[str, str]  # a call of its function, and the result, for the function's docstring
    parameters_text = ""  # what is learned, as the documentation shows it
    frame_weights: Callable[..., Tensor]
    reduction: Reduction = staticmethod(weighted_mean)
    needs_hidden = False  # whether `arguments` reads `hidden`
    has_weights = True  # whether the weights of the frames change the result
    mixes_classes = False  # whether the weights of a class depend on other classes

    def __init__(self, n_hidden: int | None, n_classes: int | None) -> None:
        super().__init__()

    def forward(self, frame_probs: Tensor, hidden: Tensor | None, mask: Tensor) -> Tensor:
        """(batch, frames, classes), mask (batch, frames, 1) -> weights (batch, frames, classes)."""
        return type(self).frame_weights(frame_probs, mask, *self.arguments(hidden))

    def arguments(self, hidden: Tensor | None) -> tuple[Tensor, ...]:
        """Return the learned arguments of `frame_weights`, given `hidden`."""
        return ()


class Max(Weighting):
    """The largest frame alone determines the clip, and alone gets its gradient.

    >>> Max.frame_weights(torch.tensor([[[0.5], [0.25]]]), torch.ones(1, 2, 1).bool()).flatten()
    tensor([1., 0.])
    """

    formula = "1 for the first largest, else 0"
    example = ("max_pool(frame_probs)", "tensor([[0.5000, 0.9000]])")

    @staticmethod
    def frame_weights(frame_probs: Tensor, mask: Tensor) -> Tensor:
        """Return 1 for the first largest valid frame of each class, 0 for the rest."""
        best = frame_probs.masked_fill(~mask, -torch.inf).argmax(1, keepdim=True)
        index = torch.arange(frame_probs.shape[1], device=frame_probs.device)
        return (index[:, None] == best).to(frame_probs.dtype)


class Average(Weighting):
    """All frames weigh the same.

    >>> Average.frame_weights(torch.tensor([[[0.5], [0.25]]]), torch.ones(1, 2, 1)).flatten()
    tensor([1., 1.])
    """

    formula = "1"
    example = ("average_pool(frame_probs)", "tensor([[0.4000, 0.5000]])")

    @staticmethod
    def frame_weights(frame_probs: Tensor, mask: Tensor) -> Tensor:
        """Return 1 for every frame."""
        return torch.ones_like(frame_probs)


class Linear(Weighting):
    """Linear softmax, sum(x^2) / sum(x): a frame weighs as much as it is probable.

    >>> Linear.frame_weights(torch.tensor([[[0.5], [0.25]]]), torch.ones(1, 2, 1)).flatten()
    tensor([0.5000, 0.2500])
    """

    formula = "x (linear softmax)"
    example = ("linear_pool(frame_probs)", "tensor([[0.4250, 0.8200]])")

    @staticmethod
    def frame_weights(frame_probs: Tensor, mask: Tensor) -> Tensor:
        """Return the probabilities themselves."""
        return frame_probs


class Exp(Weighting):
    """Exponential softmax, sum(x exp(x)) / sum(exp(x)).

    >>> Exp.frame_weights(torch.tensor([[[1.0], [0.0]]]), torch.ones(1, 2, 1).bool()).flatten()
    tensor([1.0000, 0.3679])
    """

    formula = "exp(x) (exponential softmax)"
    example = ("exp_pool(frame_probs)", "tensor([[0.4100, 0.6520]])")

    @staticmethod
    def frame_weights(frame_probs: Tensor, mask: Tensor) -> Tensor:
        """Return exp(x), scaled to 1 at its largest."""
        return _scaled_exp(frame_probs, mask)


class Attention(Weighting):
    """Attention: the weights are the softmax of a dense layer on `hidden`, over the frames.

    >>> probs, logits = torch.zeros(1, 2, 1), torch.tensor([[[1.0], [1.0]]])
    >>> Attention.frame_weights(probs, torch.ones(1, 2, 1).bool(), logits).flatten()
    tensor([0.5000, 0.5000])
    """

    formula = "softmax of a dense layer on `hidden`, over the frames"
    example = ("attention_pool(frame_probs, logits=4 * frame_probs)", "tensor([[0.4380, 0.8687]])")
    parameters_text = "dense layer"
    needs_hidden = True

    def __init__(self, n_hidden: int | None, n_classes: int | None) -> None:
        super().__init__(n_hidden, n_classes)
        self.layer = dense_layer(n_hidden, n_classes)

    def arguments(self, hidden: Tensor | None) -> tuple[Tensor, ...]:
        """See `Weighting.arguments`."""
        return (self.layer(hidden),)

    @staticmethod
    def frame_weights(
        frame_probs: Tensor, mask: Tensor, logits: Tensor, over: str = ATTENTION_OVER[0]
    ) -> Tensor:
        """Return the softmax of `logits` over the "frames", or over the "classes" of each frame."""
        check_shape("logits", logits, frame_probs.shape)
        logits = logits.to(frame_probs.dtype)
        if choose("axis for attention", over, ATTENTION_OVER) == "classes":
            return logits.masked_fill(~mask, 0).softmax(2)
        return softmax_over_frames(logits, mask)


class ClassAttention(Attention):
    """Attention whose softmax runs over the classes of each frame.

    >>> probs, logits = torch.zeros(1, 1, 2), torch.tensor([[[1.0, 1.0]]])
    >>> ClassAttention.frame_weights(probs, torch.ones(1, 1, 1).bool(), logits).flatten()
    tensor([0.5000, 0.5000])
    """

    formula = "the same, softmax over the classes of each frame"
    example = (
        "class_attention_pool(frame_probs, logits=4 * frame_probs)",
        "tensor([[0.4818, 0.7761]])",
    )
    mixes_classes = True

    @staticmethod
    def frame_weights(  # type: ignore[override]
        frame_probs: Tensor, mask: Tensor, logits: Tensor
    ) -> Tensor:
        """Return the softmax of `logits` over the classes of each frame."""
        return Attention.frame_weights(frame_probs, mask, logits, over="classes")


class ProbsAttention(Weighting):
    """Attention over the classes of each frame from their probabilities, as Surrey released it.

    >>> probs, layer = torch.zeros(1, 1, 2), (torch.zeros(2, 2), torch.zeros(2))
    >>> ProbsAttention.frame_weights(probs, torch.ones(1, 1, 1).bool(), *layer).flatten()
    tensor([0.5000, 0.5000])
    """

    formula = "softmax of a dense layer on x, over the classes of each frame (Surrey's system)"
    example = (
        "probs_attention_pool(frame_probs, weight=4 * torch.eye(2), bias=torch.zeros(2))",
        "tensor([[0.4818, 0.7761]])",
    )
    parameters_text = "dense layer"
    mixes_classes = True

    def __init__(self, n_hidden: int | None, n_classes: int | None) -> None:
        super().__init__(n_hidden, n_classes)
        self.layer = dense_layer(n_classes, n_classes)

    def arguments(self, hidden: Tensor | None) -> tuple[Tensor, ...]:
        """See `Weighting.arguments`."""
        return (self.layer.weight, self.layer.bias)

    @staticmethod
    def frame_weights(frame_probs: Tensor, mask: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return the softmax over the classes; `weight` is (classes, classes), `bias` (classes,).

        `weight` has one row per logit and one column per probability.
        """
        n_classes = frame_probs.shape[2]
        check_shape("weight", weight, (n_classes, n_classes))
        check_shape("bias", bias, (n_classes,))
        dtype = frame_probs.dtype
        logits = F.linear(frame_probs, weight.to(dtype), bias.to(dtype))
        return Attention.frame_weights(frame_probs, mask, logits, over="classes")


class SigmoidAttention(Attention):
    """Attention whose weights are the sigmoids of a dense layer on `hidden`, as in GCCaps.

    >>> probs, logits = torch.zeros(1, 2, 1), torch.tensor([[[0.0], [100.0]]])
    >>> SigmoidAttention.frame_weights(probs, torch.ones(1, 2, 1).bool(), logits).flatten()
    tensor([0.5000, 1.0000])
    """

    formula = "sigmoid of a dense layer on `hidden`, 1e-7 or more (GCCaps)"
    example = (
        "sigmoid_attention_pool(frame_probs, logits=4 * frame_probs)",
        "tensor([[0.4068, 0.5953]])",
    )

    @staticmethod
    def frame_weights(  # type: ignore[override]
        frame_probs: Tensor, mask: Tensor, logits: Tensor
    ) -> Tensor:
        """Return the sigmoid of `logits`, or `SMALLEST` where it is smaller."""
        check_shape("logits", logits, frame_probs.shape)
        return logits.masked_fill(~mask, 0).to(frame_probs.dtype).sigmoid().clamp(min=SMALLEST)


class PriorAttention(Attention):
    """Attention times the frame probabilities, which are its prior: w = x exp(logit).

    Linear softmax where all logits are equal. Attention alone may give its weight to frames of low
    probability, and then y says little about when; here such a frame has none.

    >>> probs, logits = torch.tensor([[[0.5], [0.0]]]), torch.tensor([[[0.0], [9.0]]])
    >>> PriorAttention.frame_weights(probs, torch.ones(1, 2, 1).bool(), logits).flatten()
    tensor([1., 0.])
    """

    formula = "x exp(a), a of a dense layer on `hidden`"
    example = (
        "prior_attention_pool(frame_probs, logits=4 * frame_probs)",
        "tensor([[0.4575, 0.8964]])",
    )

    @staticmethod
    def frame_weights(  # type: ignore[override]
        frame_probs: Tensor, mask: Tensor, logits: Tensor
    ) -> Tensor:
        """Return x exp(logit), scaled to 1 at its largest, with a finite gradient at 0."""
        check_shape("logits", logits, frame_probs.shape)
        smallest = torch.finfo(frame_probs.dtype).tiny
        exponent = logits.to(frame_probs.dtype) + frame_probs.clamp(min=smallest).log()
        return _scaled_exp(exponent, mask & (frame_probs > 0))


class Auto(Weighting):
    """McFee's autopool, w = exp(a x) with a learned: average at a = 0, max as a grows.

    There is one a per class where `n_classes` is given, otherwise one for all.

    >>> probs, mask = torch.tensor([[[1.0], [0.0]]]), torch.ones(1, 2, 1).bool()
    >>> Auto.frame_weights(probs, mask, sharpness=0.0).flatten()
    tensor([1., 1.])
    """

    formula = "exp(a x), a learned (McFee's autopool)"
    example = ("auto_pool(frame_probs, sharpness=10.0)", "tensor([[0.4762, 0.8997]])")
    parameters_text = "one per class"

    def __init__(self, n_hidden: int | None, n_classes: int | None) -> None:
        super().__init__(n_hidden, n_classes)
        self.sharpness = nn.Parameter(torch.ones(n_classes or 1))

    def arguments(self, hidden: Tensor | None) -> tuple[Tensor, ...]:
        """See `Weighting.arguments`."""
        return (self.sharpness,)

    @staticmethod
    def frame_weights(frame_probs: Tensor, mask: Tensor, sharpness: Tensor | float) -> Tensor:
        """Return exp(a x), scaled to 1 at its largest; `sharpness`, the a, is () or (classes,)."""
        return _scaled_exp(frame_probs * _per_class("sharpness", sharpness, frame_probs), mask)


class Power(Weighting):
    """w = x^n with n = |exponent| learned: average at n = 0, linear softmax at 1, max as n grows.

    There is one n per class where `n_classes` is given, otherwise one for all.

    >>> probs, mask = torch.tensor([[[0.5], [0.0]]]), torch.ones(1, 2, 1).bool()
    >>> Power.frame_weights(probs, mask, exponent=2.0).flatten()
    tensor([0.2500, 0.0000])
    """

    formula = "xⁿ, n ≥ 0 learned (the absolute value of a parameter, so that it never sticks at 0)"
    example = ("power_pool(frame_probs, exponent=2.0)", "tensor([[0.4471, 0.8902]])")
    parameters_text = "one per class"

    def __init__(self, n_hidden: int | None, n_classes: int | None) -> None:
        super().__init__(n_hidden, n_classes)
        self.exponent = nn.Parameter(torch.ones(n_classes or 1))

    def arguments(self, hidden: Tensor | None) -> tuple[Tensor, ...]:
        """See `Weighting.arguments`."""
        # |exponent| by a choice, since abs has no slope at 0: after a training step to 0 or below,
        # the gradient must not be 0.
        return (torch.where(self.exponent < 0, -self.exponent, self.exponent),)

    @staticmethod
    def frame_weights(frame_probs: Tensor, mask: Tensor, exponent: Tensor | float) -> Tensor:
        """Return x^n with a finite gradient at 0; `exponent`, the n, is () or (classes,).

        A negative exponent counts as 0.
        """
        power = _per_class("exponent", exponent, frame_probs).clamp(min=0)
        smallest = torch.finfo(frame_probs.dtype).tiny
        weights = (power * frame_probs.clamp(min=smallest).log()).exp()
        # 0 ** 0 is 1, as an average needs it, and 0 ** n is 0.
        return torch.where(frame_probs > 0, weights, (power == 0).to(weights.dtype))


class NoisyOr(Average):
    """1 - prod(1 - x): the clip is positive unless every frame is negative.

    The hierarchy changes nothing here.

    >>> noisy_or(torch.tensor([[0.5], [0.25]]), torch.ones(2, 1), torch.ones(2, 1))[0]
    tensor([0.6250])
    """

    formula = "none: y = 1 − Π (1 − x)"
    example = ("noisy_or_pool(frame_probs)", "tensor([[0.6500, 0.9100]])")
    reduction = staticmethod(noisy_or)
    has_weights = False


def dense_layer(n_hidden: int | None, n_classes: int | None) -> nn.Linear:
    """Return the dense layer that makes logits of `hidden`.

    >>> dense_layer(4, 3)
    Linear(in_features=4, out_features=3, bias=True)
    """
    if not n_hidden or not n_classes:
        raise SettingError(
            "Attention and learned stage weights need n_hidden and n_classes. "
            f"Got n_hidden={n_hidden!r}, n_classes={n_classes!r}."
        )
    return nn.Linear(n_hidden, n_classes)


def _scaled_exp(exponent: Tensor, mask: Tensor) -> Tensor:
    exponent = exponent.masked_fill(~mask, -torch.inf)
    largest = exponent.detach().amax(1, keepdim=True)
    # A clip without a valid frame has no largest; -inf minus -inf would be NaN.
    return (exponent - largest.masked_fill(largest == -torch.inf, 0)).exp()


def _per_class(name: str, values: Tensor | float, probs: Tensor) -> Tensor:
    """Return one number, or one per class, as a tensor of the type and device of `probs`."""
    tensor = torch.as_tensor(values, dtype=probs.dtype, device=probs.device)
    n_classes = probs.shape[2]
    if tensor.dim() > 1 or tensor.numel() not in (1, n_classes):
        raise SettingError(
            f"{name} must be one number or have the shape ({n_classes},), one value per class. "
            f"Got shape {tuple(tensor.shape)}."
        )
    return tensor


# Name of a pooling -> the weights of its frames.
POOLINGS: dict[str, type[Weighting]] = {
    "max": Max,
    "average": Average,
    "linear": Linear,
    "exp": Exp,
    "attention": Attention,
    "class-attention": ClassAttention,
    "probs-attention": ProbsAttention,
    "sigmoid-attention": SigmoidAttention,
    "prior-attention": PriorAttention,
    "auto": Auto,
    "power": Power,
    "noisy-or": NoisyOr,
}
