"""The steps of a bidirectional GRU for training on a CPU.

Torch's own GRU records every operation of every frame for the backward pass: some twenty small ones
per frame and direction, whose overhead is most of the time. Here both directions take a step
together, the backward pass is written out, and the gradient of the weights is one product at the
end. Values and gradients agree with torch's to rounding; `make bench ONLY=kernels` measures it.

Conventions: at each step, with the gates of the input i and of the state h,

    r = sigmoid(i_r + h_r)        z = sigmoid(i_z + h_z)        n = tanh(i_n + r h_n)
    state = n + z (state - n)

Step s of the first direction is frame s, that of the second is frame T - 1 - s. Where the mask is
False the state stays as it is, 0 before the last valid frame in the second direction, as if the
clips were packed; the output is 0 there. At padding, the gates of the input must be finite.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def bidirectional_gru(gates: Tensor, weight: Tensor, bias: Tensor, mask: Tensor | None) -> Tensor:
    """Return the outputs of both directions, one after the other on the last axis.

    Args:
        gates: of the input, (batch, frames, 2, 3 * n_hidden): W_ih x + b_ih for both directions, in
            the order r, z, n of torch.
        weight: W_hh of both directions, (2, 3 * n_hidden, n_hidden).
        bias: b_hh of both directions, (2, 3 * n_hidden).
        mask: (batch, frames), True for a valid frame; None if all are.

    Shape: -> (batch, frames, 2 * n_hidden), in the precision of `weight`.

    >>> gates, weight = torch.zeros(4, 50, 2, 24), torch.zeros(2, 24, 8)
    >>> bidirectional_gru(gates, weight, torch.zeros(2, 24), None).shape
    torch.Size([4, 50, 16])
    """
    # (batch, frames, 2, gates) -> (steps, 2, batch, gates), the second direction from its end.
    by_step = torch.stack(
        [gates[:, :, 0].transpose(0, 1), gates[:, :, 1].transpose(0, 1).flip(0)], 1
    )
    valid = None
    if mask is not None:
        frames = mask.T
        valid = torch.stack([frames, frames.flip(0)], 1).unsqueeze(3)  # (steps, 2, batch, 1)
    with torch.autocast(gates.device.type, enabled=False):  # errors of a step reach all later ones
        states: Tensor = _Steps.apply(by_step.to(weight.dtype), weight, bias, valid)  # type: ignore[no-untyped-call]
    if valid is not None:
        states = states * valid
    outputs = torch.cat([states[:, 0], states[:, 1].flip(0)], 2)
    return outputs.transpose(0, 1)


class _Steps(torch.autograd.Function):
    """Gates of the input (steps, 2, batch, 3 * n_hidden) -> states (steps, 2, batch, n_hidden)."""

    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, weight: Tensor, bias: Tensor, valid: Tensor | None
    ) -> Tensor:
        n_steps, _, n_clips, _ = gates.shape
        n_hidden = weight.shape[2]
        transposed, bias = weight.transpose(1, 2).contiguous(), bias.unsqueeze(1)
        of_state = gates.new_empty(gates.shape)  # W_hh h + b_hh, whose part n the gradient needs
        opened = gates.new_empty(gates.shape)  # r, z, n
        states = gates.new_empty(n_steps + 1, 2, n_clips, n_hidden)
        states[0] = 0
        both = slice(0, 2 * n_hidden)
        for step in range(n_steps):
            state, own = states[step], of_state[step]
            torch.baddbmm(bias, state, transposed, out=own)
            open_both, new = opened[step, :, :, both], opened[step, :, :, 2 * n_hidden :]
            torch.add(gates[step, :, :, both], own[:, :, both], out=open_both).sigmoid_()
            reset, update = open_both.chunk(2, 2)
            torch.addcmul(
                gates[step, :, :, 2 * n_hidden :], reset, own[:, :, 2 * n_hidden :], out=new
            )
            new.tanh_()
            torch.lerp(new, state, update, out=states[step + 1])
            if valid is not None:
                torch.where(valid[step], states[step + 1], state, out=states[step + 1])
        ctx.save_for_backward(
            weight, opened, of_state[..., 2 * n_hidden :].contiguous(), states, valid
        )
        return states[1:].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (of_states,) = gradients
        weight, opened, state_new, states, valid = ctx.saved_tensors
        n_steps, _, n_clips, n_hidden = of_states.shape
        of_gates, of_own = torch.empty_like(opened), torch.empty_like(opened)
        carried = of_states.new_zeros(2, n_clips, n_hidden)
        reset, update, new = opened.chunk(3, 3)
        # What does not depend on later steps, for all steps at once.
        to_new = (1 - update) * (1 - new * new)
        to_update = (states[:-1] - new) * update * (1 - update)
        to_reset = state_new * reset * (1 - reset)
        for step in reversed(range(n_steps)):
            carried = carried + of_states[step]
            gradient = carried if valid is None else carried * valid[step]
            r, z, n = of_gates[step].chunk(3, 2)
            torch.mul(gradient, to_new[step], out=n)
            torch.mul(gradient, to_update[step], out=z)
            torch.mul(n, to_reset[step], out=r)
            own = of_own[step]
            own[:, :, : 2 * n_hidden] = of_gates[step, :, :, : 2 * n_hidden]
            torch.mul(n, reset[step], out=own[:, :, 2 * n_hidden :])
            through = torch.baddbmm(gradient * update[step], own, weight)
            carried = through if valid is None else torch.where(valid[step], through, carried)
        # (2, steps * batch, ...)
        flat_own, flat_states = (x.transpose(0, 1).flatten(1, 2) for x in (of_own, states[:-1]))
        return of_gates, flat_own.transpose(1, 2) @ flat_states, flat_own.sum(1), None
