"""Result files of benchmarks/results -> the tables and figures of docs/results.md."""

from collections.abc import Mapping
from pathlib import Path

from earmark.compare.plan import pairs_of, read_cells
from earmark.compare.run import read_results
from earmark.compare.table import Comparison, compare_results, comparison_grids
from earmark.compare.unit import Result
from earmark.plots import plot_predictions, plot_runs, save
from earmark.recipe import CELLS, PUBLISHED, Row, paper_grid

REPO = Path(__file__).parent.parent
PLAN = REPO / "benchmarks" / "pooling.toml"
RESULTS = REPO / "benchmarks" / "results" / "pooling"


def load_results() -> list[Result]:
    """Return all results, in the order of the plan."""
    return read_results(RESULTS, read_cells(PLAN))


def compare(results: list[Result], tuning: str) -> Comparison:
    """Return the statistics of all results."""
    return compare_results(results, pairs_of(read_cells(PLAN)), tuning)


def tables() -> str:
    """Return the paper's table beside ours, then every cell, interval and difference."""
    results = load_results()
    weak, strong = (compare(results, tuning) for tuning in ("weak", "strong"))
    n_runs = sum(len(seeds) for seeds in weak.seeds.values())
    rows: dict[str, Comparison | Mapping[str, Row]] = {
        "ours": weak,
        "published (evaluation set)": PUBLISHED["evaluation"],
    }
    title = "The paper's Table 2: ours on our scenes (mean over seeds), theirs on DCASE 2017 task 4"
    parts = [f"{n_runs} runs.", paper_grid(title, rows).to_markdown()]
    parts.append(share_of_oracle(weak, strong))
    for comparison in (weak, strong):
        parts += [grid.to_markdown() for grid in comparison_grids(comparison)]
    return "\n\n".join(parts)


def share_of_oracle(weak: Comparison, strong: Comparison) -> str:
    """Say how much of the oracle's F1 the best cell of the paper's six reaches."""
    if "oracle" not in weak.cells:
        return ""
    sentences = []
    for comparison, told in ((weak, "tags"), (strong, "onsets and offsets")):
        cells = {cell: comparison.cells[cell]["f1"].mean for cell in CELLS if cell in weak.cells}
        best = max(cells, key=cells.__getitem__)
        oracle = comparison.cells["oracle"]["f1"].mean
        sentences.append(
            f"With thresholds from {told}, {best} reaches {cells[best] / oracle:.0%} of the"
            f" oracle's F1 ({cells[best]:.3f} of {oracle:.3f})."
        )
    return " ".join(sentences)


def draw_runs(path: Path) -> None:
    """Draw every run as a dot."""
    found = compare(load_results(), "weak")
    names = {"er": "ER", "f1": "F1", "event": "event F1", "map": "mAP"}
    values = {
        title: {cell: metrics[name].values for cell, metrics in found.cells.items()}
        for name, title in names.items()
    }
    save(plot_runs(values), path)


def draw_predictions(path: Path) -> None:
    """Draw Figure 5 of the paper: the first seed of the six cells on one clip."""
    first = {result.cell: result.shown for result in load_results() if result.seed == 0}
    save(plot_predictions({cell: first[cell] for cell in CELLS if cell in first}), path)
