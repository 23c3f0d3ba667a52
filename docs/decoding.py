"""Generate the tables of docs/events.md from the results of `python -m benchmarks.decoding`."""

import json
from collections.abc import Mapping
from typing import Any

from benchmarks.decoding import RESULTS, TESTED
from earmark.inference.tuning import DEFAULTS
from earmark.metrics.report import TextTable

COLUMNS = ("F1", "ER", "event F1")
KEYS = ("f_measure", "error_rate", "event_f_measure")


def default_rules() -> str:
    """Return the default rule of each pooling function."""
    rows = tuple(
        (f"`{pooling}`", *(f"{rule[key]:g}" for key in ("threshold", "low_threshold")),
         *(f"{rule[key]:g} s" for key in ("median", "max_gap", "min_duration")))
        for pooling, rule in DEFAULTS.items()
    )  # fmt: skip
    columns = ("pooling", "threshold", "low threshold", "median", "gap", "minimum length")
    return TextTable("Default rule per pooling function", columns, rows).to_markdown() + "\n"


def before_and_after() -> str:
    """Return the scores of the rule before and of the default rule, on test scenes."""
    tested = json.loads(TESTED.read_text())
    chosen = json.loads(RESULTS.read_text())
    lines = []
    for title, results in (
        ("Test scenes (fold 4), clip-level thresholds from the tags of fold 3", tested),
        ("Scenes of other sounds, where the rules were chosen", chosen),
    ):
        rows = tuple((name, *_cells(scores)) for name, scores in results.items())
        scored = (f"{name}, {when}" for name in COLUMNS for when in ("before", "now"))
        lines += [TextTable(title, ("network", *scored), rows).to_markdown(), ""]
    return "\n".join(lines)


def _cells(scores: Mapping[str, Any]) -> list[str]:
    return [f"{scores[when][key]:.3f}" for key in KEYS for when in ("before", "after")]
