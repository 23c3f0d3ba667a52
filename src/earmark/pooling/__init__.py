"""Frame probabilities -> clip probabilities: single, hierarchical, learned.

Conventions: `frame_probs` is (batch, frames, classes) with values in [0, 1], `mask` is
(batch, frames) with True for a real frame, the result is (batch, classes). Nothing here is about
sound: frames are instances, clips are bags, ragged bags are padded and masked.

A pooling is a rule for the weights of a mean, y = sum(w x) / sum(w); noisy-or is the exception.
The hierarchy pools segments of frames first, then segments of segments. For every pooling:

- Padding takes no part, whatever it holds, NaN included. Single pooling takes a mask of any form.
  With stages, padding belongs at the end of a clip: segments are counted by position, so that a
  hole, or padding in front, changes which frames share a segment, and with it the score.
- A segment whose weights are all zero passes on weight 0 and takes no part. A clip of zero weight,
  or without any real frame, gives 0. Values and gradients stay finite.
- A mean lies within the range of its frames to the last bit.
- Half precision is pooled in single precision and given back in half.
- Shapes, types and names are checked, values are not: probabilities must be in [0, 1] and weights
  of your own >= 0.

    weights     what sets one pooling apart from another
    stages      the hierarchy itself
    functions   max_pool, average_pool, linear_pool, ...
    module      Pooling
    gradients   the paper's closed forms
"""

from earmark.pooling.functions import (
    attention_pool,
    auto_pool,
    average_pool,
    exp_pool,
    linear_pool,
    max_pool,
    noisy_or_pool,
    power_pool,
)
from earmark.pooling.module import POOLINGS, Pooling
from earmark.pooling.stages import STAGE_WEIGHTS, Stage, pool

__all__ = [
    "POOLINGS",
    "STAGE_WEIGHTS",
    "Pooling",
    "Stage",
    "attention_pool",
    "auto_pool",
    "average_pool",
    "exp_pool",
    "linear_pool",
    "max_pool",
    "noisy_or_pool",
    "pool",
    "power_pool",
]
