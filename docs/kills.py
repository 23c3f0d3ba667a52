"""Generate what docs/reliability.md says about kills and other faults.

From faults/results/kills.json, by `python -m faults kills`.
"""

import json
from collections import Counter
from pathlib import Path

from earmark.metrics.report import TextTable
from faults.kills import KINDS, RANDOM, WORKER
from faults.operations import KILL

RESULTS = Path(__file__).resolve().parents[1] / "faults" / "results" / "kills.json"


def kills_table() -> str:
    """Return how often each kind of fault happened during each task, and what was lost."""
    groups = json.loads(RESULTS.read_text())["groups"]
    kinds = [*dict.fromkeys(KINDS), WORKER]
    counts = {name: Counter(own["faults"]) for name, own in groups.items()}
    counts["all"] = sum(counts.values(), Counter())
    lost = {name: len(own["failures"]) for name, own in groups.items()}
    lost["all"] = sum(lost.values())
    n_cases = {name: own["done"] for name, own in groups.items()}
    n_cases["all"] = sum(n_cases.values())
    rows = tuple(
        (name, str(n_cases[name]), *(str(own[kind]) for kind in kinds), str(lost[name]))
        for name, own in counts.items()
    )
    table = TextTable("Faults", ("task", "cases", *kinds, "lost"), rows)
    n_kills = sum(counts["all"][kind] for kind in (RANDOM, KILL, WORKER))
    return (
        f"{n_kills:,} processes were killed in {n_cases['all']:,} cases. Cases in which anything "
        f"was lost, half-written or different at the end: {lost['all']:,}.\n\n"
        f"{table.to_markdown()}\n"
    )
