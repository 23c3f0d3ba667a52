"""Frame probabilities -> clip probabilities: single-level, hierarchical, fixed or learned.

A pooling is a rule for the weights of a mean, y = sum(w x) / sum(w); noisy-or is the exception.
Hierarchical pooling pools segments of frames first, then segments of segments.

Conventions: `frame_probs` is (batch, frames, classes) with values in [0, 1], `mask` is
(batch, frames) with True for a valid frame, the result is (batch, classes). Nothing here is
specific to sound: frames are instances, clips are bags, ragged bags are padded and masked. For
every pooling:

- Padding has no effect, whatever it holds, NaN included. Single-level pooling takes any mask. In a
  hierarchy, padding must come last in a clip: segments are counted by position, so that a gap, or
  padding in front, changes which frames share a segment, and with it the score.
- A segment whose weights are all zero passes on weight 0 and has no effect. A clip of zero weight,
  or without a valid frame, gives 0. Values and gradients stay finite.
- A mean lies within the range of its frames to the last bit.
- Half precision is pooled in single precision and returned in half.
- Shapes, types and names are checked, values are not: probabilities must be in [0, 1] and custom
  weights >= 0.

    stages      the hierarchy
    weightings  the poolings: `POOLINGS`
    module      Pooling
    functions   max_pool, average_pool, linear_pool, ...: one per entry of `POOLINGS`
    gradients   the paper's closed forms
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

from earmark.pooling.functions import FUNCTIONS
from earmark.pooling.module import Pooling
from earmark.pooling.stages import STAGE_WEIGHTS, Stage, pool
from earmark.pooling.weightings import POOLINGS, Weighting

globals().update(FUNCTIONS)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., Tensor]: ...  # the functions


__all__ = ["POOLINGS", "STAGE_WEIGHTS", "Pooling", "Stage", "Weighting", "pool"]
__all__ += list(FUNCTIONS)
