"""Scores and model files -> tables and text, for people and for papers.

Conventions: a `TextTable` is a table of texts. It becomes a table for the terminal (rich) or Markdown;
what is undefined is '-'. Scores have three decimals, p-values are never 0.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from earmark.metrics.bests import BestScores
from earmark.metrics.bootstrap import Interval
from earmark.metrics.evaluation import CURVE_PARTS, Evaluation, SystemScores
from earmark.metrics.paired import Difference
from earmark.metrics.stops import Best

if TYPE_CHECKING:
    from rich.table import Table

# part, path in its scores, what to call it
HEADLINES: tuple[tuple[str, tuple[str, str, str], str], ...] = (
    ("segment", ("overall", "error_rate", "error_rate"), "segment ER"),
    ("segment", ("overall", "f_measure", "f_measure"), "segment F1"),
    ("segment", ("class_wise_average", "f_measure", "f_measure"), "segment F1, class mean"),
    ("event", ("overall", "error_rate", "error_rate"), "event ER"),
    ("event", ("overall", "f_measure", "f_measure"), "event F1"),
    ("event", ("class_wise_average", "f_measure", "f_measure"), "event F1, class mean"),
    ("clip", ("overall", "f_measure", "f_measure"), "clip F1"),
    ("clip", ("class_wise_average", "f_measure", "f_measure"), "clip F1, class mean"),
    ("clip", ("class_wise_average", "ranking", "average_precision"), "clip mAP"),
    ("clip", ("class_wise_average", "ranking", "roc_auc"), "clip ROC AUC"),
    ("clip", ("overall", "ranking", "lwlrap"), "clip lwlrap"),
    ("psds1", ("overall", "psds", "psds"), "PSDS, scenario 1"),
    ("psds2", ("overall", "psds", "psds"), "PSDS, scenario 2"),
    ("psds", ("overall", "psds", "psds"), "PSDS, own settings"),
    ("best_segment", ("overall", "error_rate", "error_rate"), "best segment ER, one threshold"),
    ("best_segment", ("overall", "f_measure", "f_measure"), "best segment F1, one threshold"),
    (
        "best_segment",
        ("class_wise_average", "f_measure", "f_measure"),
        "best segment F1, class mean",
    ),
    ("best_event", ("overall", "error_rate", "error_rate"), "best event ER, one threshold"),
    ("best_event", ("overall", "f_measure", "f_measure"), "best event F1, one threshold"),
    ("best_event", ("class_wise_average", "f_measure", "f_measure"), "best event F1, class mean"),
)

# column -> group and name, for the tables of classes
_ERRORS = {
    "ER": ("error_rate", "error_rate"),
    "S": ("error_rate", "substitution_rate"),
    "D": ("error_rate", "deletion_rate"),
    "I": ("error_rate", "insertion_rate"),
}
_FOUND = {
    "F1": ("f_measure", "f_measure"),
    "P": ("f_measure", "precision"),
    "R": ("f_measure", "recall"),
}
_RANKED = {
    "AP": ("ranking", "average_precision"),
    "AUC": ("ranking", "roc_auc"),
    "lwlrap": ("ranking", "lwlrap"),
}
COLUMNS: dict[str, dict[str, tuple[str, str]]] = {
    "segment": _ERRORS | _FOUND,
    "event": _ERRORS | _FOUND,
    "clip": _FOUND | _RANKED,
    "psds1": {"PSDS": ("psds", "psds")},
    "psds2": {"PSDS": ("psds", "psds")},
    "psds": {"PSDS": ("psds", "psds")},
}


@dataclass(frozen=True)
class TextTable:
    """A table of texts; the first column is of names, and the first `n_strong` rows stand out."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    n_strong: int = 0

    def to_rich(self) -> "Table":
        """Return it for the terminal; where that is narrow, names give way and not numbers."""
        from rich import box
        from rich.table import Table
        from rich.text import Text  # a label such as [dog] is no markup

        title = Text(self.title, style="italic")
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for number, column in enumerate(self.columns):
            widest = max([len(column), *(len(row[number]) for row in self.rows)])
            table.add_column(
                Text(column),
                justify="right" if number else "left",
                min_width=widest if number else 8,
                no_wrap=number > 0,
            )
        for number, row in enumerate(self.rows):
            style = "bold" if number < self.n_strong else None
            table.add_row(*(Text(cell) for cell in row), style=style)
        return table

    def to_markdown(self) -> str:
        """Return it as Markdown.

        >>> print(TextTable("scores", ("", "F1"), (("dog", "0.500"),)).to_markdown())
        **scores**
        <BLANKLINE>
        |  | F1 |
        |---|---:|
        | dog | 0.500 |
        """
        rule = "|---|" + "---:|" * (len(self.columns) - 1)
        head, *lines = (
            " | ".join(cell.replace("|", r"\|") for cell in row)
            for row in (self.columns, *self.rows)
        )
        return "\n".join(
            [f"**{self.title}**", "", f"| {head} |", rule] + [f"| {x} |" for x in lines]
        )


def score_tables(evaluation: Evaluation, *, classes: bool = True) -> list[TextTable]:
    """Return the tables of an evaluation: headlines, differences, and each part with its classes.

    Systems are A, B and so on where they stand side by side.
    """
    tables = [_headlines(evaluation)]
    first, *others = evaluation.systems
    tables += [_differences(evaluation, first, other) for other in others]
    if classes:
        tables += [
            _classes(system, part) for system in evaluation.systems for part in system.scores
        ]
    return tables


def _headlines(evaluation: Evaluation) -> TextTable:
    rows = []
    for part, path, text in HEADLINES:
        row = [_score_text(system, part, path) for system in evaluation.systems]
        if any(cell != "-" for cell in row):
            rows.append((text, *row))
    scoring = evaluation.scoring
    title = [f"{evaluation.n_files} files, segments of {scoring.resolution:g} s"]
    if scoring.n_draws:
        n_of_curves = scoring.draws("psds1")["n_draws"]
        title.append(f"{scoring.level:.0%} intervals from {scoring.n_draws} draws")
        if any(part in system.scores for part in CURVE_PARTS for system in evaluation.systems):
            title[-1] += f" ({n_of_curves} for scores of curves)"
    names = [system.name for system in evaluation.systems]
    if len(names) > 1:
        letters = _letters(evaluation)
        title += [f"{letter} is {name}" for letter, name in zip(letters, names, strict=True)]
        names = letters
    return TextTable("; ".join(title), ("", *names), tuple(rows))


def _differences(evaluation: Evaluation, a: SystemScores, b: SystemScores) -> TextTable:
    letters = dict(zip((s.name for s in evaluation.systems), _letters(evaluation), strict=True))
    rows = []
    for part, path, text in HEADLINES:
        values = [_at(system.scores.get(part), path) for system in (a, b)]
        if any(value is None or math.isnan(value) for value in values):
            continue
        found = _at(evaluation.differences.get(b.name, {}).get(part), path)
        more = ["-", "-", "-"] if found is None else _difference_texts(found)
        if found is None:
            more[0] = f"{values[1] - values[0]:+.3f}"
        rows.append((text, *map(_number, values), *more))
    one, two = letters[a.name], letters[b.name]
    columns = ("", one, two, f"{two} - {one}", "interval", "p")
    return TextTable(f"{two} is {b.name}, {one} is {a.name}; paired by file", columns, tuple(rows))


def _letters(evaluation: Evaluation) -> list[str]:
    return [
        chr(ord("A") + at) if at < 26 else f"S{at + 1}" for at in range(len(evaluation.systems))
    ]


def _classes(system: SystemScores, part: str) -> TextTable:
    if part not in COLUMNS:
        return _bests(system, part)
    scores = system.scores[part]
    columns = {
        column: path for column, path in COLUMNS[part].items() if path[0] in scores["overall"]
    }
    together = {"overall": scores["overall"], "class mean": scores["class_wise_average"]}
    rows = []
    for name, row in (together | scores["class_wise"]).items():
        values = [row.get(group, {}).get(key, math.nan) for group, key in columns.values()]
        rows.append((name, *map(_number, values)))
    return TextTable(f"{part}: {system.name}", ("", *columns), tuple(rows), n_strong=len(together))


def _bests(system: SystemScores, part: str) -> TextTable:
    """The best scores, each with the threshold that gives it where that is one."""
    scores: BestScores = system.counts[part].scores()

    def texts(bests: Mapping[str, Best]) -> list[str]:
        cells = []
        for best in (bests["error_rate"], bests["f_measure"]):
            thresholds = set(best.thresholds.values())
            cells += [_number(best.value), f"{min(thresholds):.3g}" if len(thresholds) == 1 else ""]
        return cells

    average = scores.class_wise_average
    rows = [
        ("overall, one threshold", *texts(scores.overall)),
        ("overall, one for each class", *texts(scores.overall_by_class)),
        ("class mean", _number(average["error_rate"]), "", _number(average["f_measure"]), ""),
        *((label, *texts(bests)) for label, bests in scores.class_wise.items()),
    ]
    columns = ("", "ER", "from", "F1", "from")
    return TextTable(f"{part}: {system.name}", columns, tuple(rows), n_strong=3)


def _score_text(system: SystemScores, part: str, path: Sequence[str]) -> str:
    value = _at(system.scores.get(part), path)
    if value is None or math.isnan(value):
        return "-"
    found = system.intervals.get(part)
    interval = None if found is None else _at(found, path)
    return f"{value:.3f}" if interval is None else f"{value:.3f} {_range(interval)}"


def _difference_texts(found: Difference) -> list[str]:
    return [f"{found.difference:+.3f}", _range(found), p_text(found.p_value)]


def _range(found: Interval | Difference) -> str:
    return f"[{_number(found.low)}, {_number(found.high)}]"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def p_text(p_value: float) -> str:
    """Return a p-value as text; a small one is never told as 0.

    >>> p_text(0.0312), p_text(0.0001), p_text(float("nan"))
    ('0.031', '<0.001', '-')
    """
    if math.isnan(p_value):
        return "-"
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"


def finite(value: Any) -> Any:
    """Return plain values for JSON, which knows no nan: what is not finite becomes None.

    >>> finite({"a": float("nan"), "b": (1.5, float("inf"))})
    {'a': None, 'b': [1.5, None]}
    """
    if isinstance(value, Mapping):
        return {str(name): finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _at(tree: Any, path: Sequence[str]) -> Any:
    """Walk down dicts and attributes; None where a step is missing."""
    for name in path:
        tree = tree.get(name) if isinstance(tree, Mapping) else getattr(tree, name, None)
        if tree is None:
            return None
    return tree


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
        "attribution:" if about["attribution"] else "attribution: not told",
        *(f"  {line}" for line in about["attribution"]),
    ]
    names = list(decoding[about["labels"][0]])
    lines.append("\t".join(["label", *names]))
    for label in about["labels"]:
        lines.append("\t".join([label, *(f"{decoding[label][name]:.3g}" for name in names)]))
    return "\n".join(lines)
