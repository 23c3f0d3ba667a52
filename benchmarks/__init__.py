"""Speed, measured side by side with the field's own tools; `make bench` writes docs/speed.md."""

import os

# One thread for every tool; it counts only before NumPy and torch are imported.
for name in ("OMP", "MKL", "OPENBLAS", "NUMBA"):
    os.environ[f"{name}_NUM_THREADS"] = "1"
