"""The picture of docs/architecture.md: the packages, and the two walks of data through them."""

from pathlib import Path

from earmark.plots.figure import BLUE, INK, RED, SAND, new_figure, save

# Rows from the foundation upwards; a package imports only from rows below it.
ROWS = (
    ("errors",),
    ("config", "files", "frames", "runtime", "pooling", "encoders"),
    ("tensors", "formats", "audio"),
    ("synth", "data", "nn", "metrics"),
    ("plots",),
    ("inference",),
    ("training", "web"),
    ("reports", "experiments"),
    ("cli",),
)
TRAIN = ("cli", "training", "formats", "data", "audio", "data", "training", "nn", "pooling",
         "inference", "metrics", "inference")  # fmt: skip
DETECT = ("cli", "inference", "audio", "data", "nn", "pooling", "inference", "formats")
WALKS = {"train": (TRAIN, BLUE, 0.26), "detect": (DETECT, RED, -0.26)}


def draw(path: Path) -> None:
    """Draw the packages as boxes, and the numbered steps of both walks."""
    figure = new_figure(figsize=(9, 6))
    axes = figure.subplots()
    centres: dict[str, tuple[float, float]] = {}
    for height, row in enumerate(ROWS):
        step = 12 / len(row)
        for at, name in enumerate(row):
            centres[name] = ((at + 0.5) * step, float(height))
    for name, (x, y) in centres.items():
        box = {"boxstyle": "round,pad=0.5", "fc": "white", "ec": INK}
        axes.text(x, y, name, ha="center", va="center", fontsize=11, bbox=box, zorder=2)
    for walk, (names, colour, shift) in WALKS.items():
        visits: dict[str, list[str]] = {}
        for number, name in enumerate(names, 1):
            visits.setdefault(name, []).append(str(number))
        for name, numbers in visits.items():
            x, y = centres[name]
            text = f"{walk} {', '.join(numbers)}"
            place = (x, y + (0.36 if shift > 0 else -0.36))
            axes.text(*place, text, ha="center", va="center", fontsize=8, color=colour, zorder=3)
    for height in range(len(ROWS)):
        axes.axhspan(height - 0.5, height + 0.5, color=SAND, alpha=0.5 if height % 2 else 0.2, lw=0)
    axes.set(xlim=(0, 12), ylim=(-0.6, len(ROWS) - 0.4), xticks=(), yticks=())
    axes.set_title("Packages: each imports only from the rows below it; numbers are the order in "
                   "which data passes", fontsize=10)  # fmt: skip
    save(figure, path)
