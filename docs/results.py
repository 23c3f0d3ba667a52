"""Generate the tables and figures of docs/results.md from the result files in benchmarks/results.

The page has narrow tables, one per question; `CSV_FILES` next to the results have every score.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from statistics import median

from earmark.experiments.compare import DIFFERENCES, TABLE, read_results, save_run_figure
from earmark.experiments.configurations import list_pairs, read_configurations
from earmark.experiments.csv_tables import difference_csv, summary_csv
from earmark.experiments.dcase2017 import CONFIGURATIONS, TABLE_2, Row, paper_table
from earmark.experiments.run import RunResult
from earmark.experiments.table import (
    Comparison,
    Summary,
    compare_results,
    difference_text,
    list_tunings,
    summary_text,
)
from earmark.metrics.report import TextTable
from earmark.plots import plot_predictions, save

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
CHANGE = "hierarchical minus single"
LAST_STEPS = (  # of detector.toml, compared in every tuning
    "8x epochs, wider",
    "8x epochs, wider, self-training",
    "8x epochs, wider, hierarchical",
    "ensemble of three",
    "oracle",
)


@cache
def load_results(plan: str, folder: str = "") -> list[RunResult]:
    """Return all results of a plan in benchmarks/, in its order; its own folder by default."""
    configurations = read_configurations(BENCHMARKS / f"{plan}.toml")
    return read_results(BENCHMARKS / "results" / (folder or plan), configurations)


@cache
def compare(plan: str, tuning: str, folder: str = "") -> Comparison:
    """Return the statistics of all results of a plan, in its own folder by default."""
    pairs = list_pairs(read_configurations(BENCHMARKS / f"{plan}.toml"))
    return compare_results(load_results(plan, folder), pairs, tuning)


def compare_all(plan: str) -> list[Comparison]:
    """Return the statistics of a plan, one per tuning."""
    return [compare(plan, tuning) for tuning in list_tunings(load_results(plan))]


def structure_table() -> str:
    """Return the differences between hierarchical and single-level pooling."""
    rows = []
    for comparison in compare_all("pooling"):
        families = {
            pair.configuration.split(", ")[0]: metrics
            for pair, metrics in comparison.pairs.items()
            if pair.change == CHANGE
        }
        families["all, means per seed"] = comparison.by_seed[CHANGE]
        for pooling, metrics in families.items():
            texts = [difference_text(metrics[name]) for name in ("er", "f1")]
            rows.append((comparison.tuning, pooling, *texts))
    results = load_results("pooling")
    minutes = median(result.training["seconds"] for result in results) / 60
    text = f"{len(results)} runs, {minutes:.1f} minutes of training each (median), two at a time."
    title = "Hierarchical minus single-level pooling: mean [95 % confidence interval], p"
    columns = ("tuning", "pooling", "ER", "F1")
    return f"{text}\n\n{TextTable(title, columns, tuple(rows)).to_markdown()}"


def paper_rows() -> dict[str, Comparison | Mapping[str, Row]]:
    """Return our scores and those of the paper, by name."""
    return {
        "ours, clip_and_frame": compare("pooling", "clip_and_frame"),
        "ours, clip": compare("pooling", "clip"),
        **{f"paper, {test}": rows for test, rows in TABLE_2.items()},
    }


def published_table() -> str:
    """Return ER and F1 of our runs next to those of the paper."""
    wide = paper_table("", paper_rows())
    columns = ("single ER", "hier. ER", "single F1", "hier. F1")
    at = [wide.columns.index(column) for column in columns]
    rows = tuple((row[0], *(row[number] for number in at)) for row in wide.rows)
    title = "Ours on our scenes (mean over seeds), the paper's on DCASE 2017 task 4 (one run each)"
    return TextTable(title, ("", *columns), rows).to_markdown()


def pooling_table() -> str:
    """Return the scores of every pooling function and structure."""
    names = ("er", "f1", "event_f1", "map", "valid_map")
    return _score_table(compare("pooling", "clip_and_frame"), names)


def tuning_table() -> str:
    """Return F1 and ER of every pooling function and structure, in every tuning."""
    return _tuning_table("pooling", list(compare("pooling", "clip").summaries))


def pooling_oracle_table() -> str:
    """Return how much of the oracle's F1 the best pooling reaches."""
    return _oracle_table("pooling", CONFIGURATIONS)


def detector_table() -> str:
    """Return the scores of every step to the best detector."""
    names = ("valid_map", "map", "f1", "er", "event_f1")
    return _score_table(compare("detector", "shared_clip"), names)


def detector_tuning_table() -> str:
    """Return F1 and ER of the last steps, in every tuning."""
    return _tuning_table("detector", LAST_STEPS)


def detector_oracle_table() -> str:
    """Return how much of the oracle's F1 the best detector reaches."""
    names = [name for name in compare("detector", "clip").summaries if name != "oracle"]
    return _oracle_table("detector", names)


def _score_table(comparison: Comparison, names: Sequence[str]) -> str:
    titles = {
        "er": "ER",
        "f1": "F1",
        "event_f1": "event F1",
        "map": "mAP",
        "valid_map": "valid mAP",
    }
    rows = [
        (name, str(len(comparison.seeds[name])), *(summary_text(metrics[x]) for x in names))
        for name, metrics in comparison.summaries.items()
    ]
    title = f"Mean ± standard deviation over runs, tuning {comparison.tuning}"
    columns = ("configuration", "runs", *(titles[name] for name in names))
    return TextTable(title, columns, tuple(rows)).to_markdown()


def _tuning_table(plan: str, names: Sequence[str]) -> str:
    def text(metrics: Mapping[str, Summary]) -> str:
        return f"{metrics['f1'].mean:.3f} ({metrics['er'].mean:.3f})"

    comparisons = compare_all(plan)
    rows = tuple((name, *(text(x.summaries[name]) for x in comparisons)) for name in names)
    columns = ("configuration", *(x.tuning for x in comparisons))
    return TextTable("F1 (ER), mean over runs", columns, rows).to_markdown()


def _oracle_table(plan: str, names: Sequence[str]) -> str:
    """Select a configuration by its validation mAP and compare its F1 with the oracle's."""
    comparisons = compare_all(plan)
    by_tags = {name: comparisons[0].summaries[name]["valid_map"].mean for name in names}
    best = max(by_tags, key=lambda name: by_tags[name])
    rows = []
    for comparison in comparisons:
        own, oracle = (comparison.summaries[name]["f1"].mean for name in (best, "oracle"))
        rows.append((comparison.tuning, f"{own:.3f}", f"{oracle:.3f}", f"{own / oracle:.0%}"))
    title = f"F1 of *{best}*, best by validation mAP ({by_tags[best]:.3f}), and of the oracle"
    return TextTable(title, ("tuning", "F1", "oracle F1", "ratio"), tuple(rows)).to_markdown()


def plot_all_runs(path: Path) -> None:
    """Plot every run of the pooling comparison as a dot, except max: its ER hides the others."""
    comparison = compare("pooling", "clip_and_frame")
    shown = {name: x for name, x in comparison.summaries.items() if name != "max"}
    save_run_figure(replace(comparison, summaries=shown), path)


def plot_examples(path: Path) -> None:
    """Plot Figure 5 of the paper: the first seed of the six configurations on one clip."""
    first = {x.configuration: x.example for x in load_results("pooling") if x.seed == 0}
    save(plot_predictions({name: first[name] for name in CONFIGURATIONS}), path)


def paper_csv() -> str:
    """Return Table 2 of the paper with our rows as CSV, with S, D, I, precision and recall."""
    table, text = paper_table("", paper_rows()), io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table.columns, *table.rows])
    return text.getvalue()


def _plan_csv(plan: str, write: Callable[[Sequence[Comparison]], str]) -> str:
    return write(compare_all(plan))


CSV_FILES: dict[str, Callable[[], str]] = {
    "benchmarks/results/pooling/table-paper.csv": paper_csv,
    **{
        f"benchmarks/results/{plan}/{name}.csv": partial(_plan_csv, plan, write)
        for plan in ("pooling", "detector")
        for name, write in ((TABLE, summary_csv), (DIFFERENCES, difference_csv))
    },
}
