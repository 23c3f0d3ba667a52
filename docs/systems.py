"""Generate the tables of docs/systems.md: sizes beside the specification's, and Table 3.

Parameters and multiply-adds of the specification were computed from the layers that its sources
list, before any of the networks was written here.
"""

from collections.abc import Iterator, Mapping
from functools import cache, partial
from statistics import fmean
from typing import NamedTuple

import torch

from docs.results import BENCHMARKS
from earmark.experiments.compare import read_results
from earmark.experiments.configurations import list_pairs, read_configurations
from earmark.experiments.run import RunResult
from earmark.experiments.table import Comparison, compare_results, list_tunings, summary_text
from earmark.experiments.table3 import (
    CLIP,
    DECISION_TUNINGS,
    ONE_CHECKPOINT,
    PAPER,
    PUBLISHED_SYSTEMS,
    Figures,
    System,
    measured_pair,
)
from earmark.metrics.report import TextTable
from earmark.nn.layers import Layer
from earmark.training.settings import PRESETS

N_CLASSES = 17
PLANS = {"esc50": "systems.toml", "digits": "systems.toml", "lungs": "systems_lungs.toml"}
KINDS = tuple(PLANS)
UNKNOWN = "not measured yet"
WINDOWS = "windows of "  # how the names of the layers of one member begin
VARIANTS = {
    name: System(f"{PUBLISHED_SYSTEMS[of].title}, one checkpoint", None, None, "-")
    for name, of in ONE_CHECKPOINT.items()
}
DETAILS = ("er", "f1", "event_f1", "psds1", "map")


class Specified(NamedTuple):
    """What the specification says of a preset; None where it says nothing."""

    n_parameters: float | None
    operations: float | None  # multiply-adds of 10 s
    note: str = ""


SPECIFIED: Mapping[str, Specified] = {
    "wang": Specified(None, 2.18e9),
    "wang-fast": Specified(163e3, 0.227e9),
    "wang-native": Specified(0.936e6, 1.40e9),
    "surrey": Specified(1.26e6, 5.19e9),
    "surrey-fast": Specified(62e3, 0.256e9, "specified: without the attention, 306 parameters"),
    "surrey-native": Specified(1.26e6, None, "3.28 G for seven of the eight blocks"),
    "gccaps": Specified(None, 4.87e9),
    "gccaps-fast": Specified(75e3, 0.257e9),
    "gccaps-native": Specified(0.447e6, 1.87e9),
    "emsi-like": Specified(4.7e6, 8.1e9),
    "emsi-like-fast": Specified(170e3, 0.29e9),
    "mlms8": Specified(15.4e6, 144e9, "specified: the nets, windows end to end"),
    "mlms8-fast": Specified(39e3, 0.239e9, "specified: the nets; windows of seconds alone"),
}


def sizes() -> str:
    """Return parameters and multiply-adds of every preset beside the specification's."""
    rows = []
    for name in PUBLISHED_SYSTEMS:
        for preset in (x for x in PRESETS if x == name or x.startswith(f"{name}-")):
            settings, wanted = PRESETS[preset].for_classes(N_CLASSES), SPECIFIED[preset]
            features, config = settings.features, settings.model
            n_frames = features.grid.count(CLIP)
            with torch.device("meta"):
                n_parameters = sum(x.numel() for x in config.build().parameters())
            rate = float(config.output_grid(features.grid).frame_rate)
            rows.append(
                (
                    f"`{preset}`",
                    f"{n_frames} x {features.n_features}, {features.sample_rate / 1000:g} kHz",
                    f"{config.n_frames(n_frames)} x {N_CLASSES}, {rate:.3g} Hz",
                    f"{n_parameters:,}",
                    "-" if wanted.n_parameters is None else f"{wanted.n_parameters:,.0f}",
                    f"{config.operations(n_frames) / 1e9:.3f}",
                    "-" if wanted.operations is None else f"{wanted.operations / 1e9:.3g}",
                    wanted.note,
                )
            )
    columns = ("preset", "input", "output", "parameters", "specified", "GMAC", "specified", "")
    title = f"Clips of 10 s and {N_CLASSES} classes; GMAC are 10^9 multiply-adds"
    return TextTable(title, columns, tuple(rows)).to_markdown()


def layers(preset: str) -> str:
    """Return the layers of a preset; of a network on windows, those of its first member."""
    settings = PRESETS[preset].for_classes(N_CLASSES)
    rows: list[tuple[str, ...]] = []
    first = ""
    others: dict[str, None] = {}
    for layer in settings.model.layers(settings.features.grid.count(CLIP)):
        if layer.name.startswith(WINDOWS):
            member = layer.name.partition(",")[0]
            first = first or member
            if member != first:
                others[member] = None
                continue
        if _does_something(layer):
            shape = " x ".join(map(str, layer.shape))
            operations = f"{layer.operations / 1e6:,.1f}"
            rows.append((layer.name, shape, f"{layer.n_parameters:,}", operations))
    title = f"Layers of `{preset}`"
    if others:
        title += f", without those of {len(others)} more members: {', '.join(others)}"
    columns = ("layer", "output", "parameters", "multiply-adds, M")
    return TextTable(title, columns, tuple(rows)).to_markdown()


def _does_something(layer: Layer) -> bool:
    """Return whether a layer is more than dropout, or pooling by 1 x 1."""
    return bool(layer.n_parameters or layer.operations) or layer.stride != (1, 1)


@cache
def load_results(kind: str) -> tuple[RunResult, ...]:
    """Return the results of Table 3 on a kind of data, if any."""
    configurations = read_configurations(BENCHMARKS / PLANS[kind])
    return tuple(read_results(BENCHMARKS / "results" / "systems" / kind, configurations))


@cache
def load_comparisons(kind: str) -> dict[str, Comparison]:
    """Return tuning -> the statistics of the results of Table 3 on a kind of data, if any."""
    results = list(load_results(kind))
    pairs = list_pairs(read_configurations(BENCHMARKS / PLANS[kind]))
    return {x: compare_results(results, pairs, x) for x in list_tunings(results)}


def table_3() -> str:
    """Return Table 3: published figures, and measured ones on every kind of data."""
    rows = []
    for name, system in _rows():
        own = name not in PAPER
        cells = [_text(figures, "-") for figures in (system.development, system.evaluation)]
        for kind in KINDS:
            comparisons = load_comparisons(kind)
            cells += [
                _text(measured_pair(comparisons, name, tuning), UNKNOWN)
                if own or decision == "shared"
                else "-"
                for decision, tuning in DECISION_TUNINGS.items()
            ]
        rows.append((_title(name, system), *cells))
    columns = ("", "DCASE, dev.", "DCASE, eval.")
    columns += tuple(f"{kind}, {decision}" for kind in KINDS for decision in DECISION_TUNINGS)
    title = "ER / F1 of 1 s segments: published figures, and our means over runs in fast width"
    return TextTable(title, columns, tuple(rows)).to_markdown()


def details() -> str:
    """Return more scores of every system on every kind of data, with the shared decision stage."""
    rows = []
    for kind in KINDS:
        comparison = load_comparisons(kind).get(DECISION_TUNINGS["shared"])
        for name, system in _rows():
            metrics = comparison.summaries.get(name) if comparison else None
            texts = [UNKNOWN if metrics is None else summary_text(metrics[x]) for x in DETAILS]
            n_runs = 0 if metrics is None else len(metrics["er"].values)
            rows.append((kind, _title(name, system), str(n_runs), *texts))
    columns = ("data", "", "runs", "ER", "F1", "event F1", "PSDS1", "mAP")
    title = "The shared decision stage: mean ± standard deviation over runs"
    return TextTable(title, columns, tuple(rows)).to_markdown()


def _rows() -> Iterator[tuple[str, System]]:
    """Yield configurations and what was published of them, variants after their system."""
    for name, system in PUBLISHED_SYSTEMS.items():
        yield name, system
        yield from ((own, other) for own, other in VARIANTS.items() if own.startswith(f"{name},"))
    yield from PAPER.items()


def tag_table() -> str:
    """Return the F1 of tags of each system with its own decision stage, and the published one."""
    rows = []
    for name, system in PUBLISHED_SYSTEMS.items():
        cells = []
        for kind in KINDS:
            values = [
                result.scores[DECISION_TUNINGS["own"]]["tag_f_measure"]
                for result in load_results(kind)
                if result.configuration == name
            ]
            cells.append(f"{fmean(values):.3f}" if values else UNKNOWN)
        rows.append((system.title, system.tags, *cells))
    columns = ("", "DCASE, eval.", *KINDS)
    title = "F1 of tags (micro): published figures, and our means over runs with the own stage"
    return TextTable(title, columns, tuple(rows)).to_markdown()


def _title(name: str, system: System) -> str:
    """Return the name of a row; the paper's network is ours in measured cells."""
    return system.title if name not in PAPER else name.replace("single", "single-level") + " (ours)"


def _text(figures: Figures | None, without: str) -> str:
    return without if figures is None else f"{figures[0]:.2f} / {figures[1]:.3f}"


PARTS = (table_3, sizes, *(partial(layers, name) for name in PUBLISHED_SYSTEMS), details, tag_table)
