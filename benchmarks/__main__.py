"""Benchmarks -> docs/speed.md; run from the root of the repository by `make bench`."""

import os
import platform
from pathlib import Path

import numpy as np
import torch

from benchmarks import features

ROOT = Path(__file__).resolve().parents[1]

BENCHMARKS = {"Log-mel": features.run}


def describe_machine() -> str:
    """Return the cores and versions that the figures hang on, in one line."""
    return (
        f"Machine: {platform.machine()}, {os.cpu_count()} cores, of which one is used; Python"
        f" {platform.python_version()}, torch {torch.__version__}, NumPy {np.__version__}."
    )


def main() -> None:
    """Run every benchmark and write what they return."""
    torch.set_num_threads(1)
    parts = ["# Speed", "Made by `make bench`; every tool has one thread.", describe_machine()]
    for title, run in BENCHMARKS.items():
        parts += [f"## {title}", run(ROOT.parent / "shared" / "esc50")]
        print(f"{title}\n\n{parts[-1]}\n")
    page = ROOT / "docs" / "speed.md"
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(f"Wrote {page}.")


if __name__ == "__main__":
    main()
