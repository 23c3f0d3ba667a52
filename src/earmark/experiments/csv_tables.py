"""All statistics of a comparison as CSV, for spreadsheets and other tools.

Conventions: one row per tuning and configuration, or pair; an undefined value is empty.
"""

import csv
import io
from collections.abc import Sequence
from math import isnan, nan

from earmark.experiments.table import Comparison, list_differences, list_metrics


def summary_csv(comparisons: Sequence[Comparison]) -> str:
    """Return all scores of all configurations as CSV, one row per tuning and configuration.

    >>> summary_csv([]).split(",")[:5]
    ['tuning', 'configuration', 'runs', 'er_mean', 'er_deviation']
    """
    parts = ("mean", "deviation", "low", "high")
    names = list_metrics(comparisons)
    columns = [f"{name}_{part}" for name in names for part in parts]
    rows = [
        [comparison.tuning, configuration, len(comparison.seeds[configuration])]
        + [_csv_number(getattr(metrics.get(x), part, nan)) for x in names for part in parts]
        for comparison in comparisons
        for configuration, metrics in comparison.summaries.items()
    ]
    return _csv_text(["tuning", "configuration", "runs", *columns], rows)


def difference_csv(comparisons: Sequence[Comparison]) -> str:
    """Return all paired differences as CSV, one row per tuning and pair.

    >>> difference_csv([]).split(",")[:5]
    ['tuning', 'pair', 'runs', 'smallest_p', 'er_difference']
    """
    parts = ("difference", "low", "high", "p_value")
    names = list_metrics(comparisons)
    columns = [f"{name}_{part}" for name in names for part in (*parts, "corrected_p")]
    rows = [
        [comparison.tuning, name, metrics["er"].n_runs, f"{metrics['er'].smallest_p:.6g}"]
        + [
            _csv_number(value)
            for x in names
            for value in (
                *(getattr(metrics.get(x), part, nan) for part in parts),
                corrected.get(x, nan),
            )
        ]
        for comparison in comparisons
        for name, metrics, corrected in list_differences(comparison)
    ]
    return _csv_text(["tuning", "pair", "runs", "smallest_p", *columns], rows)


def _csv_number(value: float) -> str:
    return "" if isnan(value) else f"{value:.4f}"


def _csv_text(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    return text.getvalue()
