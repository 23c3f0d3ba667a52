"""Generate what docs/reliability.md says about mutation testing.

From faults/results/mutants.json, by `python -m faults mutants`.
"""

import json
from collections import Counter

from earmark.metrics.report import TextTable
from faults.mutant_tests import AREAS, ROOT, modules, score

RESULTS = ROOT / "faults" / "results" / "mutants.json"


def mutants_table() -> str:
    """Return how many mutants of each area were killed, and those that no test notices."""
    groups = json.loads(RESULTS.read_text())["groups"]
    areas: dict[str, Counter[str]] = {name: Counter() for name in AREAS}
    for name, own in modules().items():
        if name in groups:
            areas[own.area].update(groups[name]["outcomes"])
    areas["all"] = sum(areas.values(), Counter())
    rows = tuple(
        (
            name,
            str(sum(own.values())),
            str(sum(count for key, count in own.items() if key.startswith("killed"))),
            str(own["equivalent"]),
            str(own["survived"]),
            f"{score([own]):.1%}",
        )
        for name, own in areas.items()
        if own
    )
    columns = ("code", "mutants", "killed", "equivalent", "survived", "score")
    lines = [TextTable("Mutants", columns, rows).to_markdown(), ""]
    for name, own in groups.items():
        for failure in own["failures"]:
            lines.append(f"- survived: `{name}`, `{failure['function']}`: `{failure['change']}`")
    return "\n".join(lines) + "\n"
