"""Generate the tables of docs/training.md that decide the defaults of `earmark train`.

From the runs of defaults.toml on four kinds of data and of rates.toml, in benchmarks/results.
"""

import json
from collections.abc import Mapping
from statistics import mean

from benchmarks.kinds import KINDS
from benchmarks.validation import OUT
from docs.results import compare
from earmark.experiments.table import Summary
from earmark.metrics.report import TextTable

TUNING = "clip"  # what `earmark train` does
METRICS = {"f1": "F1", "event_f1": "event F1"}

Scores = Mapping[str, Mapping[str, Summary]]  # configuration -> metric -> its runs


def validation_table() -> str:
    """Return the scores of the validation clips, by which the defaults are chosen."""
    known = json.loads(OUT.read_text())
    names = {"mean_average_precision": "mAP", "event_f_measure": "event F1"}
    means = {
        (kind, metric): {
            configuration: mean(scores[metric] for scores in runs.values())
            for configuration, runs in known[kind].items()
            if runs
        }
        for kind in KINDS
        for metric in names
    }
    rows = []
    for configuration in next(iter(means.values())):
        own = {key: values.get(configuration) for key, values in means.items()}
        behind = max(max(means[key].values()) - x for key, x in own.items() if x is not None)
        texts = ("-" if x is None else f"{x:.3f}" for x in own.values())
        rows.append((configuration, *texts, f"{behind:.3f}"))
    columns = [f"{kind}, {names[metric]}" for kind, metric in means]
    title = "Validation clips, means of two or three runs; furthest behind the best"
    return TextTable(title, ("configuration", *columns, "behind"), tuple(rows)).to_markdown()


def defaults_tables() -> str:
    """Return F1 and event F1 of each configuration per kind of data, and how far from the best."""
    kinds: dict[str, Scores] = {
        kind: compare("defaults", TUNING, f"defaults/{kind}").summaries for kind in KINDS
    }
    return "\n\n".join(_table(kinds, metric, title) for metric, title in METRICS.items())


def _table(kinds: Mapping[str, Scores], metric: str, title: str) -> str:
    means = {
        kind: {name: metrics[metric].mean for name, metrics in scores.items()}
        for kind, scores in kinds.items()
    }
    rows = []
    for name in next(iter(means.values())):
        own = {kind: of_kind[name] for kind, of_kind in means.items()}
        behind = max(max(of_kind.values()) - own[kind] for kind, of_kind in means.items())
        spread = {kind: kinds[kind][name][metric].deviation for kind in own}
        texts = (f"{own[kind]:.3f} ± {spread[kind]:.3f}" for kind in own)
        rows.append((name, *texts, f"{behind:.3f}"))
    heading = f"{title}, mean ± standard deviation of the runs; furthest behind the best"
    return TextTable(heading, ("configuration", *means, "behind"), tuple(rows)).to_markdown()


def rates_table() -> str:
    """Return the scores on spoken digits by sample rate, length and schedule."""
    rows = [
        (name, *(f"{metrics[x].mean:.3f}" for x in ("map", "f1", "er", "event_f1")))
        for name, metrics in compare("rates", TUNING).summaries.items()
    ]
    columns = ("configuration", "mAP", "F1", "ER", "event F1")
    title = "Spoken digits of unseen speakers, 400 test scenes, one run each"
    return TextTable(title, columns, tuple(rows)).to_markdown()
