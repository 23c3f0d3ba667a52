"""Random maps and gradients of operations on them, for the tests of layers and kernels."""

import torch


def random(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype)


def with_gradient(call, maps, weights):
    """The result, and the gradient of its sum under `weights`."""
    maps = maps.clone().requires_grad_()
    out = call(maps)
    (out * weights[: out.shape[0], : out.shape[1], : out.shape[2], : out.shape[3]]).sum().backward()
    return out.detach(), maps.grad
