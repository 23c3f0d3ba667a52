"""One switch for all CPU optimisations: Earmark's, or torch alone.

Conventions: the environment variable EARMARK_KERNELS holds the choice, so that it can be made
without code and child processes inherit it: "earmark" (the default) or "torch".
"""

import os

from earmark.errors import choose

VARIABLE = "EARMARK_KERNELS"
KERNELS = ("earmark", "torch")


def use_kernels(name: str) -> None:
    """Choose one of `KERNELS` for this process and the processes that it starts.

    >>> use_kernels("torch")
    >>> custom_kernels()
    False
    >>> use_kernels("earmark")
    """
    os.environ[VARIABLE] = choose(f"value of {VARIABLE}", name, KERNELS)


def custom_kernels() -> bool:
    """Return whether Earmark's CPU optimisations are on.

    >>> custom_kernels()
    True
    """
    return (
        choose(f"value of {VARIABLE}", os.environ.get(VARIABLE, KERNELS[0]), KERNELS) == "earmark"
    )
