"""Pooling as plain functions: `max_pool`, `linear_pool`, ..., one per entry of `POOLINGS`.

    max_pool(frame_probs, mask=None, stages=(), stage_weights="self")
    attention_pool(frame_probs, logits, mask=None, stages=(), over="frames", stage_weights="self")

`average_pool`, `linear_pool`, `exp_pool` and `noisy_or_pool` are called like `max_pool`.
`class_attention_pool`, `sigmoid_attention_pool` and `prior_attention_pool` take `logits` as well,
`probs_attention_pool` takes `weight` (classes, classes) and `bias` (classes,); `auto_pool` takes
`sharpness` and `power_pool` takes `exponent`, one number or (classes,).

Shape: `frame_probs` (batch, frames, classes) in [0, 1], which is not checked; `mask` (batch,
frames), True for a valid frame -> (batch, classes). `stages` are segment lengths; () is
single-level pooling. `stage_weights` is "self" or "mean"; for learned ones use `Pooling` or `pool`.

>>> import torch
>>> from earmark.pooling import auto_pool, linear_pool, noisy_or_pool
>>> frame_probs = torch.tensor([[[0.5], [0.25]]])
>>> linear_pool(frame_probs), auto_pool(frame_probs, sharpness=100.0), noisy_or_pool(frame_probs)
(tensor([[0.4167]]), tensor([[0.5000]]), tensor([[0.6250]]))
"""

from collections.abc import Callable
from functools import partial
from inspect import Parameter, Signature, signature
from typing import Any

from torch import Tensor

from earmark.pooling.stages import pool
from earmark.pooling.weightings import POOLINGS, Weighting


def make_function(name: str, weighting: type[Weighting]) -> Callable[..., Tensor]:
    """Return the function of a pooling.

    What `frame_weights` takes beyond `frame_probs` and `mask` becomes an argument: behind
    `frame_probs` if it is required, in front of `stage_weights` if it has a default.

    >>> signature(make_function("auto", POOLINGS["auto"])).parameters.keys()
    odict_keys(['frame_probs', 'sharpness', 'mask', 'stages', 'stage_weights'])
    """
    extra = list(signature(weighting.frame_weights).parameters.values())[2:]
    required = [parameter for parameter in extra if parameter.default is Parameter.empty]
    optional = [parameter for parameter in extra if parameter not in required]
    both = Parameter.POSITIONAL_OR_KEYWORD
    shared = [
        Parameter("mask", both, default=None),
        Parameter("stages", both, default=()),
        *optional,
        Parameter("stage_weights", both, default="self"),
    ]
    whole = Signature([Parameter("frame_probs", both), *required, *shared])

    def function(*args: Any, **kwargs: Any) -> Tensor:
        bound = whole.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        own = {parameter.name: given[parameter.name] for parameter in extra}
        levels = pool(
            given["frame_probs"],
            partial(weighting.frame_weights, **own),
            given["mask"],
            given["stages"],
            given["stage_weights"],
            reduction=weighting.reduction,
        )
        return levels[-1].probs.squeeze(1)

    function.__name__ = function.__qualname__ = f"{name.replace('-', '_')}_pool"
    summary = (weighting.__doc__ or "").partition("\n")[0]
    call, result = weighting.example
    function.__doc__ = f"""{summary}

See `earmark.pooling.functions` for the arguments.

>>> import torch
>>> from earmark.pooling import {function.__name__}
>>> frame_probs = torch.tensor([[[0.5, 0.1], [0.3, 0.9]]])  # 2 frames, 2 classes
>>> {call}
{result}
"""
    function.__signature__ = whole  # type: ignore[attr-defined]
    return function


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    function.__name__: function
    for function in (make_function(name, weighting) for name, weighting in POOLINGS.items())
}

__test__ = FUNCTIONS  # where doctest finds the examples of functions that no module defines
