"""Named tensors and a text <-> one safetensors file that detects damage.

Conventions: the file contains no executable code. A checksum covers the text and the tensors. The
same content gives the same bytes. Files are written atomically.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from earmark.errors import DataError, EarmarkError
from earmark.files import atomic_write

_ENTRY = "earmark"


def save_tensors(path: Path, tensors: Mapping[str, Tensor], about: str) -> None:
    """Write tensors and a text that describes them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_tensors(Path(folder, "x"), {"a": torch.zeros(2)}, "two zeros")
    ...     load_tensors(Path(folder, "x"), "file")
    ('two zeros', {'a': tensor([0., 0.])})
    """
    plain = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    # One entry: safetensors writes several in any order.
    entry = json.dumps({"about": about, "sum": checksum(about, plain)}, ensure_ascii=False)
    atomic_write(path, save(plain, {_ENTRY: entry}))


def load_tensors(
    path: Path, kind: str, error: type[EarmarkError] = DataError
) -> tuple[str, dict[str, Tensor]]:
    """Return the text and the tensors, after a check of the checksum.

    Args:
        path: a file written by `save_tensors`.
        kind: what the file should be, for error messages.
        error: the class to raise if the file cannot be read or is damaged.

    >>> load_tensors(Path("none.earmark"), "model file")
    Traceback (most recent call last):
        ...
    earmark.errors.DataError: none.earmark is not an Earmark model file, or is damaged: ...
    """
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            entry = (file.metadata() or {}).get(_ENTRY)
    except (SafetensorError, OSError) as cause:
        raise error(f"{path} is not an Earmark {kind}, or is damaged: {cause}.") from None
    if entry is None:
        raise error(f"{path} is not an Earmark {kind}.")
    try:
        values = json.loads(entry)
        about = str(values["about"])
        whole = values["sum"] == checksum(about, tensors)
    except (ValueError, KeyError, TypeError, RuntimeError):  # also a nesting that is too deep
        whole = False
    if not whole:
        raise error(f"{path} is damaged: its checksum is wrong; download or create it again.")
    return about, tensors


def checksum(about: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of a text and of tensors, in hexadecimal digits.

    >>> checksum("two zeros", {"a": torch.zeros(2)})[:8]
    '5f4a21d8'
    """
    digest = hashlib.sha256(about.encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
