"""The name of a device -> a torch device that exists here, wherever a network runs."""

import torch

from earmark.errors import SettingError


def resolve_device(name: str | torch.device) -> torch.device:
    """Return the device, or raise `SettingError` if this machine does not have it.

    Args:
        name: "auto" (CUDA where there is one, else the CPU), "cpu", "cuda", or "cuda:1".

    >>> resolve_device("cpu")
    device(type='cpu')
    >>> resolve_device("gpu")
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: There is no device 'gpu'; use 'auto', 'cpu', 'cuda' or 'cuda:1'.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise SettingError(
            f"There is no device {name!r}; use 'auto', 'cpu', 'cuda' or 'cuda:1'."
        ) from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise SettingError(
            f"The device {str(device)!r} is not available: torch finds "
            f"{torch.cuda.device_count()} CUDA devices here; use 'auto' or 'cpu'."
        )
    return device
