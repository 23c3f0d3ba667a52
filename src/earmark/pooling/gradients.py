"""The gradient of the clip probability with respect to frame probabilities, in closed form.

The paper's equations 6 and 8 and its appendix, with the misprints of the appendix corrected
(docs/pooling.md lists them), and the same chain rule for any number of stages. Training uses
autograd; these forms explain it and check it.

Conventions: one clip and one class, so `x` and `w` are vectors (frames,); `length` is the paper's
M and divides the number of frames; dy/dx is total (through the weights as well), dy/dw is partial.
The gradient of a clip of zero weight is 0 in x.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from earmark.errors import SettingError, choose


class Gradients(NamedTuple):
    """dy/dx_i through x and the weights, and dy/dw_i at constant x; each (frames,)."""

    dx: Tensor
    dw: Tensor


class _Segments(NamedTuple):
    """One stage as in the appendix, each value repeated per frame: a[i] is a_j, i in j."""

    x_hat: Tensor
    w_hat: Tensor
    w_sum: Tensor  # over the frames of the segment
    w_hat_sum: Tensor  # over the segments of the clip, a scalar
    y: Tensor  # a scalar


def _segments(x: Tensor, w: Tensor, length: int) -> _Segments:
    if x.dim() != 1 or len(x) % length:
        raise SettingError(
            "x must be one clip (frames,) whose length is a multiple of the segment length "
            f"{length}. Got shape {tuple(x.shape)}."
        )
    w_sum = _divisor(w.reshape(-1, length).sum(1))  # a segment of zero weight has x^ = w^ = 0
    x_hat = (w * x).reshape(-1, length).sum(1) / w_sum
    w_hat = (w * w).reshape(-1, length).sum(1) / w_sum
    w_hat_sum = _divisor(w_hat.sum())
    y = (w_hat * x_hat).sum() / w_hat_sum
    return _Segments(
        x_hat.repeat_interleave(length),
        w_hat.repeat_interleave(length),
        w_sum.repeat_interleave(length),
        w_hat_sum,
        y,
    )


def _divisor(total: Tensor) -> Tensor:
    """Return sums of weights to divide by; 0 / 0 becomes 0 / 1, as in `weighted_mean`."""
    return torch.where(total == 0, 1, total)


def linear_single_dx(x: Tensor) -> Tensor:
    """Eq. 6: linear softmax, single-level pooling.

    >>> linear_single_dx(torch.tensor([1.0, 0.0]))
    tensor([ 1., -1.])
    """
    total = _divisor(x.sum())
    y = x.square().sum() / total
    return (2 * x - y) / total


def linear_dx(x: Tensor, length: int) -> Tensor:
    """Eq. 8: linear softmax, one stage of segments and then the clip.

    >>> linear_dx(torch.tensor([1.0, 0.0]), 2)
    tensor([ 1., -1.])
    """
    s = _segments(x, x, length)
    return (x * (4 * s.x_hat - 2 * s.y) - 2 * s.x_hat**2 + s.y * s.x_hat) / (s.w_hat_sum * s.w_sum)


def exp_dx(x: Tensor, length: int) -> Tensor:
    """Appendix, exponential softmax (its first denominator is a sum of w^, not of x^).

    >>> exp_dx(torch.tensor([0.5, 0.5]), 1)
    tensor([0.5000, 0.5000])
    """
    s = _segments(x, x.exp(), length)
    inner = s.w_hat * (1 + x - 2 * s.x_hat + s.y) + 2 * x.exp() * (s.x_hat - s.y)
    return inner * x.exp() / (s.w_hat_sum * s.w_sum)


def average_dx(x: Tensor) -> Tensor:
    """Appendix, average pooling: 1/N, with or without stages.

    >>> average_dx(torch.tensor([1.0, 0.0]))
    tensor([0.5000, 0.5000])
    """
    return torch.full_like(x, 1 / len(x))


def max_dx(x: Tensor) -> Tensor:
    """Appendix, max pooling: 1 at the largest frame, with or without stages.

    >>> max_dx(torch.tensor([1.0, 0.0]))
    tensor([1., 0.])
    """
    gradient = torch.zeros_like(x)
    gradient[x.argmax()] = 1
    return gradient


def attention_dx(x: Tensor, w: Tensor, length: int) -> Tensor:
    """Appendix, attention: dy/dx with weights that do not depend on x.

    >>> attention_dx(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]), 1)
    tensor([0.5000, 0.5000])
    """
    s = _segments(x, w, length)
    return s.w_hat * w / (s.w_hat_sum * s.w_sum)


def attention_dw(x: Tensor, w: Tensor, length: int) -> Tensor:
    """Appendix, attention: dy/dw.

    >>> attention_dw(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]), 1)
    tensor([ 0.5000, -0.5000])
    """
    s = _segments(x, w, length)
    inner = 2 * w * (s.x_hat - s.y) + s.w_hat * (x + s.y - 2 * s.x_hat)
    return inner / (s.w_hat_sum * s.w_sum)


def closed_form(
    name: str, x: Tensor, w: Tensor | None = None, stages: Sequence[int] = ()
) -> Gradients:
    """Return both gradients of one of the paper's five poolings at any number of stages.

    The appendix's four components, applied from the clip down: with a = dy/dx^ and b = dy/dw^ of a
    segment, its frames get dy/dx_i = a w_i / S and dy/dw_i = (a (x_i - x^) + b (2 w_i - w^)) / S,
    where S is the segment's sum of weights.

    Args:
        name: "attention" or a key of `PAPER_WEIGHTS`.
        x: frame probabilities (frames,).
        w: attention weights (frames,); the weights of the other poolings follow from x.
        stages: segment lengths, each a divisor of what it is applied to.

    >>> closed_form("linear", torch.tensor([1.0, 0.0])).dx
    tensor([ 1., -1.])
    """
    choose("pooling in the paper's appendix", name, ("attention", *PAPER_WEIGHTS))
    if (name == "attention") != (w is not None):
        raise SettingError(
            f"w must be given with attention, and only with attention. Got {name!r}."
        )
    weights, slope = (w, torch.zeros_like(x)) if w is not None else PAPER_WEIGHTS[name](x)
    levels = [(x, weights)]
    for length in stages:
        s = _segments(*levels[-1], length)
        levels.append((s.x_hat[::length], s.w_hat[::length]))
    top_x, top_w = levels[-1]
    total = _divisor(top_w.sum())
    y = (top_w * top_x).sum() / total
    a, b = top_w / total, (top_x - y) / total
    for (low_x, low_w), length in zip(levels[-2::-1], list(stages)[::-1], strict=True):
        s = _segments(low_x, low_w, length)
        a, b = a.repeat_interleave(length), b.repeat_interleave(length)
        b = (a * (low_x - s.x_hat) + b * (2 * low_w - s.w_hat)) / s.w_sum
        a = a * low_w / s.w_sum
    return Gradients(dx=a + b * slope, dw=b)


# Table 1: weights, and dw_i/dx_i. The weights of attention are an argument.
PAPER_WEIGHTS: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
    "max": lambda x: (max_dx(x), torch.zeros_like(x)),
    "average": lambda x: (average_dx(x), torch.zeros_like(x)),
    "linear": lambda x: (x, torch.ones_like(x)),
    "exp": lambda x: (x.exp(), x.exp()),
}
