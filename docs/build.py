"""Code -> the tables and figures of docs/: `make docs`.

A part of a page stands between two marks and is made anew; a test holds the page to it.
"""

import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

from docs import card, results
from earmark.data.features import FeatureConfig
from earmark.experiments.demo import run_demo
from earmark.files import atomic_write
from earmark.nn.model import PRESETS, ModelConfig
from earmark.plots import plot_gradients, save

REPO = Path(__file__).parent.parent
BEGIN, END = "<!-- made by `make docs` -->", "<!-- end -->"
N_CLASSES, N_FRAMES = 17, 500  # DCASE 2017 Task 4, 10 s at 50 Hz


def shape_tables() -> str:
    """Return a table of shapes, parameters and operations for each preset."""
    features, lines = FeatureConfig(), []
    for name in PRESETS:
        config = ModelConfig.preset(name, n_classes=N_CLASSES)
        layers = list(config.layers(N_FRAMES))
        rate = float(config.frames(features.frames).frame_rate)
        seen = config.receptive_field
        lines += [
            f"### `{name}`",
            "",
            f"{rate:g} frames a second; one frame sees {seen} input frames "
            f"({seen * features.hop + features.window - features.hop:.2f} s) through the "
            "convolutions, and the whole clip through the GRU; "
            f"{config.operations(N_FRAMES) / 1e9:.3f} G multiply-adds and "
            f"{sum(layer.n_parameters for layer in layers):,} parameters.",
            "",
            "| layer | output | parameters | multiply-adds, M |",
            "|---|---|---:|---:|",
        ]
        for layer in layers:
            if layer.stride == (1, 1) and not layer.operations:
                continue  # a pooling by 1 x 1 does nothing
            shape, operations = " x ".join(map(str, layer.shape)), f"{layer.operations / 1e6:.1f}"
            lines.append(f"| {layer.name} | {shape} | {layer.n_parameters:,} | {operations} |")
        lines.append("")
    return "\n".join(lines)


def gradient_figure(path: Path) -> None:
    """Draw the gradient page's figure: a clip whose event lasts from frame 45 to 70."""
    frames = torch.arange(125, dtype=torch.float64)
    rng = torch.Generator().manual_seed(0)
    event = torch.sigmoid((frames - 45) / 2) * torch.sigmoid((70 - frames) / 2)
    noise = torch.rand(125, generator=rng, dtype=torch.float64)
    x = (0.05 + 0.8 * event + 0.15 * (noise - 0.3)).clamp(0.01, 0.99)
    weights = (3 * x + torch.randn(125, generator=rng, dtype=torch.float64) * 0.3).softmax(0)
    save(plot_gradients(x, weights), path)


@cache
def _demo() -> Path:
    """Run the demo once, into a folder that is left behind in the system's own."""
    folder = Path(tempfile.mkdtemp())
    run_demo(folder)
    return folder


def demo_figure(path: Path) -> None:
    """Keep a picture that `make demo` draws; the demo takes a few minutes."""
    atomic_write(path, (_demo() / path.name).read_bytes())


PARTS: dict[str, tuple[Callable[[], str], ...]] = {
    "docs/model.md": (shape_tables,),
    "docs/results.md": (
        results.structure_table,
        results.published_table,
        results.pooling_table,
        results.tuning_table,
        results.pooling_oracle_table,
        results.detector_table,
        results.detector_tuning_table,
        results.detector_oracle_table,
    ),
    "docs/model-card.md": (card.about, card.scores, card.attribution),
}
FIGURES: dict[str, Callable[[Path], None]] = {
    "docs/images/gradients.png": gradient_figure,
    "docs/images/detection.png": demo_figure,
    "docs/images/hierarchy.png": demo_figure,
    "docs/images/runs.png": results.plot_all_runs,
    "docs/images/predictions.png": results.plot_examples,
}
FILES: dict[str, Callable[[], str]] = results.CSV_FILES


def main() -> None:
    """Make every part, file and figure anew."""
    for file, make_file in FILES.items():
        (REPO / file).write_text(make_file())
        print(file)
    for page, makers in PARTS.items():
        path = REPO / page
        first, *rest = path.read_text().split(BEGIN)
        parts = [
            f"{BEGIN}\n\n{make_part()}\n{END}{old.split(END)[1]}"
            for make_part, old in zip(makers, rest, strict=True)
        ]
        atomic_write(path, (first + "".join(parts)).encode())
        print(page)
    for image, draw in FIGURES.items():
        (REPO / image).parent.mkdir(exist_ok=True)
        draw(REPO / image)
        print(image)


if __name__ == "__main__":
    sys.exit(main())
