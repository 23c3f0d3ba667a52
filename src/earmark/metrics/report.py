"""Text tables of an evaluation, for the terminal and for papers.

Conventions: a `TextTable` holds texts. It becomes a table for the terminal (rich), Markdown or
HTML; an undefined score is '-'. Scores have three decimals; a p-value is never shown as 0.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from earmark.errors import printable
from earmark.metrics.best_thresholds import BestPoints, BestScores
from earmark.metrics.bootstrap import Interval
from earmark.metrics.calibration import CalibrationScores
from earmark.metrics.evaluation import (
    SCORE_PARTS,
    Evaluation,
    SystemScores,
    undefined_classes,
)
from earmark.metrics.system_comparison import Difference

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table

# part, path in its scores, its name in the table
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
    ("psds", ("overall", "psds", "psds"), "PSDS, custom settings"),
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
    ("calibration", ("overall", "calibration", "ece"), "calibration error (ECE)"),
    ("false_events", ("overall", "false_events", "per_minute"), "false events per minute"),
    ("false_events", ("overall", "false_events", "recordings"), "negatives with false events"),
)

# column -> group and name, for the class-wise tables
_ERRORS = {
    "ER": ("error_rate", "error_rate"),
    "S": ("error_rate", "substitution_rate"),
    "D": ("error_rate", "deletion_rate"),
    "I": ("error_rate", "insertion_rate"),
}
_F_MEASURE = {
    "F1": ("f_measure", "f_measure"),
    "P": ("f_measure", "precision"),
    "R": ("f_measure", "recall"),
}
_RANKING = {
    "AP": ("ranking", "average_precision"),
    "AUC": ("ranking", "roc_auc"),
    "lwlrap": ("ranking", "lwlrap"),
}
COLUMNS: dict[str, dict[str, tuple[str, str]]] = {
    "segment": _ERRORS | _F_MEASURE,
    "event": _ERRORS | _F_MEASURE,
    "clip": _F_MEASURE | _RANKING,
    "psds1": {"PSDS": ("psds", "psds")},
    "psds2": {"PSDS": ("psds", "psds")},
    "psds": {"PSDS": ("psds", "psds")},
    "false_events": {
        "per minute": ("false_events", "per_minute"),
        "recordings": ("false_events", "recordings"),
    },
}


@dataclass(frozen=True)
class TextTable:
    """A table of texts; the first column holds names, and the first `n_strong` rows are bold.

    >>> TextTable("scores", ("", "F1"), (("dog", "0.500"),)).columns
    ('', 'F1')
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    n_strong: int = 0

    def __post_init__(self) -> None:
        own = [
            printable(self.title),
            *(tuple(map(printable, x)) for x in (self.columns, *self.rows)),
        ]
        title, columns, *rows = own
        for name, value in (("title", title), ("columns", columns), ("rows", tuple(rows))):
            object.__setattr__(self, name, value)

    def to_rich(self) -> "_Fitted":
        """Return it for the terminal; in a narrow one, columns that do not fit go below.

        Every part starts with the names, which are wrapped beyond half of the width; numbers are
        not wrapped.

        >>> from rich.console import Console
        >>> table = TextTable("scores", ("", "F1", "recall"), (("dog", "0.500", "0.250"),))
        >>> console = Console(width=16)
        >>> with console.capture() as captured:
        ...     console.print(table.to_rich())
        >>> [line.split() for line in captured.get().splitlines() if "dog" in line]
        [['dog', '0.500'], ['dog', '0.250']]
        """
        return _Fitted(self)

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

    def to_html(self) -> str:
        """Return it as an HTML table with a caption, for readers and for screen readers.

        >>> TextTable("scores", ("", "F1"), (("dog & cat", "0.5"),)).to_html().splitlines()[-2]
        '<tr><th scope="row">dog &amp; cat</th><td>0.5</td></tr>'
        """
        head = "".join(f'<th scope="col">{escape(column)}</th>' for column in self.columns)
        lines = [
            f"<table><caption>{escape(self.title)}</caption>",
            f"<thead><tr>{head}</tr></thead>",
        ]
        lines.append("<tbody>")
        for number, (name, *cells) in enumerate(self.rows):
            strong = ' class="strong"' if number < self.n_strong else ""
            values = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
            lines.append(f'<tr{strong}><th scope="row">{escape(name)}</th>{values}</tr>')
        return "\n".join([*lines, "</tbody></table>"])


class _Fitted:
    """A table as rich prints it, in as many parts as the width of the terminal needs."""

    BETWEEN = 3  # characters between two columns: a space on each side, and a rule
    EDGES = 2  # characters at both ends of a line

    def __init__(self, table: TextTable) -> None:
        self.table = table

    def __rich_console__(
        self, console: "Console", options: "ConsoleOptions"
    ) -> Iterator["RenderableType"]:
        columns = self.table.columns
        cells = [[column, *(row[n] for row in self.table.rows)]
                 for n, column in enumerate(columns)]  # fmt: skip
        widths = [max(map(len, own)) for own in cells]
        room = options.max_width - self.EDGES
        # Narrower names only where that saves a part.
        choices = [self._split(widths, room, room // n) for n in (2, 3)]
        parts = min(choices, key=len)
        for index, part in enumerate(parts):
            yield self._part(part, widths, self.table.title if not index else None)

    def _split(self, widths: Sequence[int], room: int, names: int) -> list[list[int]]:
        """Return the columns of each part, if names may have so many characters."""
        parts: list[list[int]] = [[]]
        for number in range(1, len(widths)):
            used = min(widths[0], names) + sum(widths[n] + self.BETWEEN for n in parts[-1])
            if parts[-1] and used + widths[number] + self.BETWEEN > room:
                parts.append([])
            parts[-1].append(number)
        return parts

    def _part(self, numbers: Sequence[int], widths: Sequence[int], title: str | None) -> "Table":
        """Return the names and some of the columns."""
        from rich import box
        from rich.table import Table
        from rich.text import Text  # so that a label such as [dog] is not markup

        heading = None if title is None else Text(title, style="italic")
        table = Table(title=heading, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        shown = (0, *numbers)
        for number in shown:
            table.add_column(
                Text(self.table.columns[number]),
                justify="right" if number else "left",
                min_width=widths[number] if number else min(8, widths[0]),
                no_wrap=number > 0,
            )
        for number, row in enumerate(self.table.rows):
            style = "bold" if number < self.table.n_strong else None
            table.add_row(*(Text(row[n]) for n in shown), style=style)
        return table


def score_tables(evaluation: Evaluation, *, classes: bool = True) -> list[TextTable]:
    """Return the tables of an evaluation: headlines, differences, and each part class by class.

    Args:
        evaluation: the evaluation. With several systems they are named A, B and so on.
        classes: False to leave out the class-wise tables.

    >>> from earmark.formats.events import Event
    >>> from earmark.metrics.evaluation import Scoring, SystemOutput, evaluate
    >>> events = {"a.wav": [Event(0, 1, "dog")]}
    >>> evaluation = evaluate(events, [SystemOutput("mine", events)], Scoring(n_bootstrap=0))
    >>> score_tables(evaluation)[0].rows[1]
    ('segment F1', '1.000')
    """
    tables = [_headlines(evaluation)]
    first, *others = evaluation.systems
    tables += [_differences(evaluation, first, other) for other in others]
    if classes:
        tables += [
            _classes(system, part) for system in evaluation.systems for part in system.scores
        ]
    tables += [_curve(system) for system in evaluation.systems if len(system.curve) > 1]
    return tables


def _headlines(evaluation: Evaluation) -> TextTable:
    rows = []
    for part, path, text in HEADLINES:
        row = [_score_text(system, part, path) for system in evaluation.systems]
        if any(cell != "-" for cell in row):
            rows.append((text, *row))
    scoring = evaluation.scoring
    title = [f"{evaluation.n_files} files, segments of {scoring.resolution:g} s"]
    if scoring.n_bootstrap:
        n_samples = scoring.bootstrap("psds1")["n_bootstrap"]
        title.append(f"{scoring.level:.0%} intervals from {scoring.n_bootstrap} bootstrap samples")
        if any(part in system.scores for part in SCORE_PARTS for system in evaluation.systems):
            title[-1] += f" ({n_samples} for frame-level scores)"
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
        tested = _at(evaluation.differences.get(b.name, {}).get(part), path)
        interval = ("-", "-") if tested is None else (_range(tested), p_text(tested.p_value))
        difference = values[1] - values[0] if tested is None else tested.difference
        rows.append((text, *map(_number, values), f"{difference:+.3f}", *interval))
    one, two = letters[a.name], letters[b.name]
    columns = ("", one, two, f"{two} - {one}", "interval", "p")
    return TextTable(f"{two} is {b.name}, {one} is {a.name}; paired by file", columns, tuple(rows))


def _letters(evaluation: Evaluation) -> list[str]:
    return [
        chr(ord("A") + index) if index < 26 else f"S{index + 1}"
        for index in range(len(evaluation.systems))
    ]


def _classes(system: SystemScores, part: str) -> TextTable:
    if part == "calibration":
        return _reliability(system)
    if part not in COLUMNS:
        return _best_scores(system, part)
    scores = system.scores[part]
    columns = {
        column: path for column, path in COLUMNS[part].items() if path[0] in scores["overall"]
    }
    summary = {"overall": scores["overall"]}
    if scores["class_wise_average"]:
        summary["class mean"] = scores["class_wise_average"]
    rows = []
    for name, row in (summary | scores["class_wise"]).items():
        values = [row.get(group, {}).get(key, math.nan) for group, key in columns.values()]
        rows.append((name, *map(_number, values)))
    return TextTable(f"{part}: {system.name}", ("", *columns), tuple(rows), n_strong=len(summary))


def _best_scores(system: SystemScores, part: str) -> TextTable:
    """The best scores, each with its threshold if that is a single one."""
    scores: BestScores = system.counts[part].scores()

    def texts(best: BestPoints) -> list[str]:
        cells = []
        for point in (best["error_rate"], best["f_measure"]):
            thresholds = set(point.thresholds.values())
            cells.append(_number(point.value))
            cells.append(f"{min(thresholds):.3g}" if len(thresholds) == 1 else "")
        return cells

    average = scores.class_wise_average
    rows = [
        ("overall, one threshold", *texts(scores.overall)),
        ("overall, one per class", *texts(scores.overall_by_class)),
        ("class mean", _number(average["error_rate"]), "", _number(average["f_measure"]), ""),
        *((label, *texts(best)) for label, best in scores.class_wise.items()),
    ]
    columns = ("", "ER", "threshold", "F1", "threshold")
    return TextTable(f"{part}: {system.name}", columns, tuple(rows), n_strong=3)


def _reliability(system: SystemScores) -> TextTable:
    """The mean score of events of similar scores, and how many of them are right."""
    scores: CalibrationScores = system.counts["calibration"].scores()
    rows = [
        (
            f"{each.low:.3f} to {each.high:.3f}",
            str(each.n_events),
            _number(each.mean_score),
            _number(each.right),
        )
        for each in scores.bins
    ]
    overall = scores.overall["calibration"]
    n_events = str(sum(each.n_events for each in scores.bins))
    mean = ("all", n_events, _number(overall["mean_score"]), _number(overall["right"]))
    columns = ("scores", "events", "mean score", "right")
    return TextTable(f"calibration: {system.name}", columns, (mean, *rows), n_strong=1)


# attribute of a point -> its column
_POINT = {
    "setting": "minimum score",
    "per_minute": "false per minute",
    "recordings": "negatives with any",
    "clip_recall": "clip recall",
    "clip_f_measure": "clip F1",
    "event_recall": "event recall",
}


def _curve(system: SystemScores) -> TextTable:
    """False events and recall at each minimum score of events."""
    rows = tuple(tuple(_number(getattr(point, name)) for name in _POINT) for point in system.curve)
    title = f"false events and recall: {system.name}"
    return TextTable(title, tuple(_POINT.values()), rows)


def _score_text(system: SystemScores, part: str, path: Sequence[str]) -> str:
    value = _at(system.scores.get(part), path)
    if value is None or math.isnan(value):
        return "-"
    interval = _at(system.intervals.get(part), path)
    text = f"{value:.3f}" if interval is None else f"{value:.3f} {_range(interval)}"
    if path == ("class_wise_average", "f_measure", "f_measure"):
        classes = system.scores[part]["class_wise"]
        without = undefined_classes(system.scores[part])
        # As in sed_eval, a class that is never detected does not lower the mean: say so.
        text += f", {len(classes) - len(without)} of {len(classes)} classes" if without else ""
    return text


def _range(interval: Interval | Difference) -> str:
    return f"[{_number(interval.low)}, {_number(interval.high)}]"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def p_text(p_value: float) -> str:
    """Return a p-value as text, never as 0.

    >>> p_text(0.0312), p_text(0.0001), p_text(float("nan"))
    ('0.031', '<0.001', '-')
    """
    if math.isnan(p_value):
        return "-"
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"


def finite(value: Any) -> Any:
    """Return plain values for JSON, which has no nan: numbers that are not finite become None.

    >>> finite({"a": float("nan"), "b": (1.5, float("inf"))})
    {'a': None, 'b': [1.5, None]}
    """
    if isinstance(value, Mapping):
        return {str(name): finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _at(tree: Any, path: Sequence[str]) -> Any:
    """Follow keys and attributes; None if one is missing."""
    for name in path:
        tree = tree.get(name) if isinstance(tree, Mapping) else getattr(tree, name, None)
        if tree is None:
            return None
    return tree
