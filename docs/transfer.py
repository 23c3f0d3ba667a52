"""Generate the table of docs/networks.md: few clips, from a trained network and from scratch.

From the runs that are in benchmarks/results/transfer, which may be a part of them.
"""

from collections.abc import Sequence
from statistics import mean, stdev

from benchmarks.transfer import METRICS, RESULTS, SEEDS, SIZES, STARTS, Row, read_results
from earmark.metrics.report import TextTable

COMMAND = "python -m benchmarks.transfer --work WORK"
TITLES = {
    "scratch": "from scratch",
    "frozen": "`--from everyday`, frozen",
    "lower rate": "`--from everyday`",
}


def transfer_table() -> str:
    """Return what was measured, and how much of it there is."""
    return describe(read_results(RESULTS))


def describe(rows: Sequence[Row]) -> str:
    """Return the means over seeds as Markdown, and what is not measured yet."""
    wanted = len(SIZES) * len(STARTS) * SEEDS
    if not rows:
        return f"Not measured yet: none of the {wanted} runs of `{COMMAND}` is committed.\n"
    text = f"Made by `{COMMAND}`: mean over the seeds"
    if any(len(own) > 1 for own in _by_start(rows).values()):
        text += " ± standard deviation"
    text += f"; the first column of figures is the number of runs, of {SEEDS}."
    if len(rows) < wanted:
        text += f" **{wanted - len(rows)} of {wanted} runs are missing.**"
    own_rows = []
    for (size, start), own in _by_start(rows).items():
        clips = f"{size} ({mean(row['n_scenes'] for row in own):.0f} clips)"
        cells = [_cell([row[metric] for row in own]) for metric in METRICS]
        own_rows.append((clips, TITLES[start], f"{len(own)}", *cells))
    columns = ("clips per class", "start", "runs", *METRICS.values())
    table = TextTable("Few clips of ten classes", columns, tuple(own_rows)).to_markdown()
    return f"{text}\n\n{table}\n"


def _by_start(rows: Sequence[Row]) -> dict[tuple[int, str], list[Row]]:
    found = {
        (size, start): [row for row in rows if (row["n_clips"], row["start"]) == (size, start)]
        for size in sorted({row["n_clips"] for row in rows})
        for start in STARTS
    }
    return {key: own for key, own in found.items() if own}


def _cell(values: Sequence[float]) -> str:
    spread = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
    return f"{mean(values):.3f}{spread}"
