"""Scores and model files -> tables and text for people."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from earmark.metrics.segment import SegmentScores

if TYPE_CHECKING:
    from rich.table import Table


def score_table(scores: SegmentScores) -> "Table":
    """Return the overall scores, the mean over classes, and a row a class; '-' where undefined."""
    from rich.table import Table

    table = Table(title=f"segment-based, {scores.resolution:g} s, {scores.n_files} files")
    for column in ("", "ER", "S", "D", "I", "F1", "P", "R"):
        table.add_column(column, justify="right" if column else "left")
    rows = {"overall": scores.overall, "class average": scores.class_wise_average}
    for label, row in (rows | scores.class_wise).items():
        rates, f_measure = row["error_rate"], row["f_measure"]
        values = [
            rates["error_rate"],
            rates.get("substitution_rate", math.nan),
            rates["deletion_rate"],
            rates["insertion_rate"],
            f_measure["f_measure"],
            f_measure["precision"],
            f_measure["recall"],
        ]
        texts = ["-" if math.isnan(value) else f"{value:.3f}" for value in values]
        table.add_row(label, *texts, style="bold" if label in rows else None)
    return table


def describe(about: Mapping[str, Any]) -> str:
    """Return what `Bundle.describe` says, as lines; the long lists of normalisation are counted."""
    features = {k: v for k, v in about["features"].items() if k not in ("mean", "std")}
    decoding = about["decoding"]
    lines = [f"{len(about['labels'])} classes, {about['n_parameters']:,} numbers"]
    sections = {name: about[name] for name in ("model", "training", "tuning", "versions")}
    for name, values in (sections | {"features": features}).items():
        lines.append(f"{name}: " + ", ".join(f"{key}={value}" for key, value in values.items()))
    lines += [
        f"normalisation: {len(about['features']['mean'])} means and deviations",
        f"window: {about['window']:g} s",
        f"licence: {about['licence'] or 'not told'}",
        f"attribution: {'; '.join(about['attribution']) or 'not told'}",
    ]
    names = [name for name in decoding if name != "labels"]
    lines.append("\t".join(["label", *names]))
    for i, label in enumerate(about["labels"]):
        lines.append("\t".join([label, *(f"{decoding[name][i]:.3g}" for name in names)]))
    return "\n".join(lines)
