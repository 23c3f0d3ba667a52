"""Generate what docs/reliability.md says about bad input.

From faults/results/input.json and guided.json, by `python -m faults input` and `guided`.
"""

import json
from typing import Any

from earmark.metrics.report import TextTable
from faults.__main__ import OUT
from faults.readers import READERS

CRAFTED = "python -m faults input --seed"
GUIDED = "python -m faults guided --seed"


def _results(part: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((OUT / f"{part}.json").read_text())
    return values


def cases_table() -> str:
    """Return what became of the cases of each reader."""
    values = _results("input")
    rows = [
        (
            name,
            f"{own['done']:,}",
            f"{own['outcomes'].get('result', 0):,}",
            f"{own['outcomes'].get('error', 0):,}",
            f"{len(own['failures']):,}",
            f"{own['slowest']:.2f} s",
            f"{own['peak_bytes'] / 2**20:.0f} MB",
        )
        for name, own in values["groups"].items()
    ]
    groups = values["groups"].values()
    sums = [sum(own["outcomes"].get(key, 0) for own in groups) for key in ("result", "error")]
    worst = max(own["slowest"] for own in groups), max(own["peak_bytes"] for own in groups)
    rows.append(
        (
            "all",
            f"{values['n_cases']:,}",
            *(f"{n:,}" for n in sums),
            f"{values['n_failures']:,}",
            f"{worst[0]:.2f} s",
            f"{worst[1] / 2**20:.0f} MB",
        )
    )
    columns = ("reader", "cases", "result", "our error", "failed", "slowest", "most memory")
    seconds = sum(own["seconds"] for own in groups)
    title = f"Bad input: `{CRAFTED} {values['seed']}`, {seconds / 60:.0f} minutes of one core"
    text = TextTable(title, columns, tuple(rows)).to_markdown() + "\n"
    wanted = sum(own.n_cases for own in READERS.values())
    if values["n_cases"] < wanted:
        text += f"\n**{wanted - values['n_cases']:,} of {wanted:,} cases are missing.**\n"
    return text


def guided_table() -> str:
    """Return what became of the cases that coverage led to."""
    values = _results("guided")
    rows = tuple(
        (
            name,
            f"{own['done']:,}",
            f"{own['outcomes'].get('result', 0):,}",
            f"{own['outcomes'].get('error', 0):,}",
            f"{len(own['failures']):,}",
        )
        for name, own in values["groups"].items()
    )
    columns = ("reader", "cases", "result", "our error", "failed")
    title = f"Coverage-guided: `{GUIDED} {values['seed']}`, {values['n_cases']:,} cases"
    return TextTable(title, columns, rows).to_markdown() + "\n"
