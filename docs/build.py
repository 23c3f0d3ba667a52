"""Generate the tables and figures of docs/ from the code: `make docs`.

A generated part of a page stands between two markers; a test compares the page with the code.

    make docs ONLY="docs/settings.md docs/images/runs.png"        these alone
"""

import sys
import tempfile
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path

import torch

from benchmarks import growth
from docs import (
    architecture,
    bad_input,
    card,
    choosing,
    commands,
    decoding,
    defaults,
    dependencies,
    formats,
    gallery,
    hierarchy,
    kills,
    mutants,
    page,
    reliable,
    results,
    settings,
    systems,
    transfer,
)
from earmark.data.features import FeatureConfig
from earmark.errors import choose
from earmark.experiments.demo import run_demo
from earmark.files import atomic_write
from earmark.nn.model import PRESETS, ModelConfig
from earmark.plots import plot_gradients, save
from earmark.pooling import POOLINGS
from earmark.pooling.functions import FUNCTIONS

REPO = Path(__file__).parent.parent
BEGIN, END = "<!-- made by `make docs` -->", "<!-- end -->"
N_CLASSES, N_FRAMES = 17, 500  # DCASE 2017 Task 4, 10 s at 50 Hz


def shape_tables() -> str:
    """Return a table of layers per preset, with shapes, parameters and operations."""
    features, lines = FeatureConfig(), []
    for name in PRESETS:
        config = ModelConfig.preset(name, n_classes=N_CLASSES)
        layers = config.layers(N_FRAMES)
        rate = float(config.output_grid(features.grid).frame_rate)
        seen = config.receptive_field
        lines += [
            f"### `{name}`",
            "",
            f"{rate:g} frames per second. The receptive field of the convolutions is {seen} input "
            f"frames ({seen * features.hop + features.window - features.hop:.2f} s)"
            f"{', that of the GRU the whole clip' if config.n_recurrent else ''}. "
            f"{config.operations(N_FRAMES) / 1e9:.3f} G multiply-adds and "
            f"{sum(layer.n_parameters for layer in layers):,} parameters.",
            "",
            "| layer | output | parameters | multiply-adds, M |",
            "|---|---|---:|---:|",
        ]
        for layer in layers:
            if layer.stride == (1, 1) and not layer.operations:
                continue  # dropout, and pooling by 1 x 1, which does nothing
            shape, operations = " x ".join(map(str, layer.shape)), f"{layer.operations / 1e6:.1f}"
            lines.append(f"| {layer.name} | {shape} | {layer.n_parameters:,} | {operations} |")
        lines.append("")
    return "\n".join(lines)


def pooling_table() -> str:
    """Return the table of poolings, with the functions that are their twins."""
    lines = ["| name | function | weight of a frame | parameters |", "|---|---|---|---|"]
    for name, weighting in POOLINGS.items():
        function = f"{name.replace('-', '_')}_pool"
        assert function in FUNCTIONS
        cells = (f"`{name}`", f"`{function}`", weighting.formula, weighting.parameters_text)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def gradient_figure(path: Path) -> None:
    """Draw the figure of docs/pooling.md: a clip whose event lasts from frame 45 to 70."""
    frames = torch.arange(125, dtype=torch.float64)
    rng = torch.Generator().manual_seed(0)
    event = torch.sigmoid((frames - 45) / 2) * torch.sigmoid((70 - frames) / 2)
    noise = torch.rand(125, generator=rng, dtype=torch.float64)
    x = (0.05 + 0.8 * event + 0.15 * (noise - 0.3)).clamp(0.01, 0.99)
    weights = (3 * x + torch.randn(125, generator=rng, dtype=torch.float64) * 0.3).softmax(0)
    save(plot_gradients(x, weights), path)


def growth_figure(path: Path) -> None:
    """Draw what `make bench ONLY=growth` measured, from the tables of docs/speed.md."""
    growth.draw((REPO / "docs" / "speed.md").read_text(), path)


@cache
def _demo() -> Path:
    """Run the demo once, in a temporary folder that is kept."""
    folder = Path(tempfile.mkdtemp())
    run_demo(folder)
    return folder


def demo_figure(path: Path) -> None:
    """Copy a figure of the demo, which takes a few minutes."""
    atomic_write(path, (_demo() / path.name).read_bytes())


PARTS: dict[str, tuple[Callable[[], str], ...]] = {
    "docs/model.md": (shape_tables,),
    "docs/pooling.md": (pooling_table,),
    "docs/results.md": (
        *hierarchy.PARTS,
        reliable.steps,
        reliable.summary,
        results.structure_table,
        results.published_table,
        results.pooling_table,
        results.tuning_table,
        results.pooling_oracle_table,
        results.detector_table,
        results.detector_tuning_table,
        results.detector_oracle_table,
    ),
    "docs/events.md": (
        decoding.default_rules,
        decoding.before_and_after,
        reliable.sensitivities,
    ),
    "docs/dependencies.md": (dependencies.direct_table, dependencies.other_table),
    "docs/encoders.md": (reliable.encoder_table,),
    "docs/formats.md": (formats.format_table,),
    "docs/model-card.md": (
        card.about,
        reliable.summary,
        reliable.false_events,
        reliable.classes,
        card.attribution,
    ),
    "docs/reliability.md": (
        bad_input.cases_table,
        bad_input.guided_table,
        kills.kills_table,
        mutants.mutants_table,
    ),
    "docs/networks.md": (transfer.transfer_table,),
    "docs/systems.md": systems.PARTS,
    "docs/training.md": (
        defaults.validation_table,
        defaults.defaults_tables,
        defaults.rates_table,
    ),
    "docs/settings.md": (
        settings.section_tables,
        settings.network_tables,
        settings.run_table,
        settings.rule_table,
        settings.scene_table,
    ),
    "docs/commands.md": (
        commands.command_list,
        commands.shared_options,
        commands.command_tables,
    ),
    "docs/choosing.md": (
        choosing.command,
        choosing.preset_table,
        choosing.pooling_table,
        choosing.verdict,
        choosing.structure_table,
        choosing.long_table,
    ),
}
FIGURES: dict[str, Callable[[Path], None]] = {
    "docs/images/architecture.png": architecture.draw,
    "docs/images/gradients.png": gradient_figure,
    "docs/images/growth.png": growth_figure,
    "docs/images/page.png": page.draw,
    "docs/images/detection.png": demo_figure,
    "docs/images/hierarchy.png": demo_figure,
    "docs/images/map.png": hierarchy.draw,
    "docs/images/runs.png": results.plot_all_runs,
    "docs/images/predictions.png": results.plot_examples,
    "docs/images/before-and-after.png": reliable.plot_before_and_after,
    "docs/images/calibration.png": reliable.plot_calibration,
    **dict.fromkeys(gallery.PICTURES, gallery.picture),
}
FILES: dict[str, Callable[[], str]] = results.CSV_FILES


def main(only: Collection[str] = ()) -> None:
    """Generate every part, file and figure, or only some of them, by their paths."""
    known = {*FILES, *PARTS, *FIGURES}
    wanted = {choose("generated file", path, known) for path in only} or known
    for file, make_file in FILES.items():
        if file not in wanted:
            continue
        (REPO / file).write_text(make_file())
        print(file)
    for name, makers in PARTS.items():
        if name not in wanted:
            continue
        path = REPO / name
        first, *rest = path.read_text().split(BEGIN)
        parts = [
            f"{BEGIN}\n\n{make_part()}\n{END}{old.partition(END)[2]}"
            for make_part, old in zip(makers, rest, strict=True)
        ]
        atomic_write(path, (first + "".join(parts)).encode())
        print(name)
    for image, draw in FIGURES.items():
        if image not in wanted:
            continue
        (REPO / image).parent.mkdir(exist_ok=True)
        draw(REPO / image)
        print(image)


if __name__ == "__main__":
    main(sys.argv[1:])
