"""Result files of benchmarks/results -> the tables and figures of docs/results.md."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from earmark.experiments import compare as run
from earmark.experiments.dcase2017 import CELLS, PUBLISHED, Row, paper_table
from earmark.experiments.plan import pairs_of, read_cells
from earmark.experiments.run import Result
from earmark.experiments.table import WAYS, Comparison, compare_results, comparison_tables
from earmark.plots import plot_predictions, save

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def load_results(plan: str) -> list[Result]:
    """Return all results of a plan of benchmarks/, in its order."""
    return run.read_results(BENCHMARKS / "results" / plan, read_cells(BENCHMARKS / f"{plan}.toml"))


def compare(plan: str, tuning: str) -> Comparison:
    """Return the statistics of all results of a plan."""
    pairs = pairs_of(read_cells(BENCHMARKS / f"{plan}.toml"))
    return compare_results(load_results(plan), pairs, tuning)


def pooling_tables() -> str:
    """Return the paper's table beside ours, then every cell, interval and difference."""
    found = {tuning: compare("pooling", tuning) for tuning in WAYS}
    n_runs = sum(len(seeds) for seeds in found["weak"].seeds.values())
    rows: dict[str, Comparison | Mapping[str, Row]] = {
        "ours, frames tuned": found["weak"],
        "ours, frames as trained": found["gates"],
        **{f"published, {test}": rows for test, rows in PUBLISHED.items()},
    }
    title = "The paper's Table 2: ours on our scenes (mean over seeds), theirs on DCASE 2017 task 4"
    minutes = median(result.training["seconds"] for result in load_results("pooling")) / 60
    runs = f"Runs: {n_runs}, of {minutes:.1f} minutes of training each (median), two at a time."
    parts = [runs, paper_table(title, rows).to_markdown()]
    parts.append(share_of_oracle([*found.values()], CELLS))
    for comparison in found.values():
        parts += [grid.to_markdown() for grid in comparison_tables(comparison)]
    return "\n\n".join(parts)


def detector_tables() -> str:
    """Return the steps to the best detector: every cell, with thresholds of every kind."""
    comparisons = [compare("detector", tuning) for tuning in WAYS]
    parts = [comparison_tables(comparison)[0].to_markdown() for comparison in comparisons]
    steps = [cell for cell in comparisons[0].cells if cell != "oracle"]
    parts.append(share_of_oracle(comparisons, steps))
    return "\n\n".join(parts)


def share_of_oracle(comparisons: Sequence[Comparison], cells: Sequence[str]) -> str:
    """Say how much of the oracle's F1 the best of some cells reaches, by its validation tags."""
    tags = {cell: comparisons[0].cells[cell]["valid"].mean for cell in cells}
    best = max(tags, key=lambda cell: tags[cell])
    sentences = [
        f"By the tags of the validation scenes, the best is *{best}* (mean average precision"
        f" {tags[best]:.3f})."
    ]
    for comparison in comparisons:
        own, oracle = (comparison.cells[cell]["f1"].mean for cell in (best, "oracle"))
        sentences.append(
            f"With {WAYS[comparison.tuning]}, it reaches {own / oracle:.0%} of the oracle's F1"
            f" ({own:.3f} of {oracle:.3f})."
        )
    return " ".join(sentences)


def draw_runs(path: Path) -> None:
    """Draw every run as a dot."""
    run.draw_runs(compare("pooling", "weak"), path)


def draw_predictions(path: Path) -> None:
    """Draw Figure 5 of the paper: the first seed of the six cells on one clip."""
    first = {result.cell: result.shown for result in load_results("pooling") if result.seed == 0}
    save(plot_predictions({cell: first[cell] for cell in CELLS if cell in first}), path)
