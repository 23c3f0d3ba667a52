"""What a check before training reports: findings with their remedies, statistics, and as tables.

Conventions: a finding has one of three severities, and says what to do, with what to type where
that helps:

    stops    training cannot start, or its validation cannot be scored
    hurts    training would run, but learn less or be evaluated wrongly
    note     worth checking; often intended
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from earmark.errors import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

SEVERITIES = ("stops", "hurts", "note")
TRAINING, VALIDATION = "training", "validation"


@dataclass(frozen=True)
class Finding:
    """One problem.

    Args:
        kind: what it is, such as "missing" or "rare class".
        severity: one of `SEVERITIES`.
        part: "training" or "validation".
        sentence: a description for people.
        items: the clips or classes concerned -> detail, which may be empty.
        remedy: what to do, with what to type where that helps.

    >>> Finding("empty", "stops", "training", "The training table has no clips.").items
    {}
    """

    kind: str
    severity: str
    part: str
    sentence: str
    items: Mapping[str, str] = field(default_factory=dict)
    remedy: str = ""


# Kind of a finding -> what to do about it.
REMEDIES = {
    "empty": "Write one row per clip: filename and event_labels, separated by a tab.",
    "missing": "Check --audio, the folder of the recordings; names are matched as docs/data.md "
    "says. Or remove these rows.",
    "unreadable": "Convert them, as with: ffmpeg -i FILE FILE.wav. Or remove their rows.",
    "silent": "Record them again, or remove their rows.",
    "short": "Use longer clips, with the audio around them, or remove their rows.",
    "odd length": "Cut long recordings into clips and tag each, as with: ffmpeg -i FILE -f segment "
    "-segment_time 10 FILE_%03d.wav",
    "clipped": "Record with a lower gain; nothing else to do.",
    "leak": "Remove them from one of the tables, or leave out --valid.",
    "contradiction": "Keep one row per recording, with all of its tags.",
    "duplicate": "Keep one row per recording.",
    "one group": "Add clips of these classes from other groups; until then they cannot be "
    "validated.",
    "shared groups": "Move the clips of each group to one table, or leave out --valid.",
    "no tags": "Name the column of tags event_labels, and fill it.",
    "unknown class": "Write them as in training, or remove their rows.",
    "unseen class": "Add clips of these classes, or remove them from the table.",
    "rare class": "Add clips of these classes, or start from a trained model: earmark train --from "
    "everyday.",
    "no negatives": "Add recordings without them: earmark train --negatives FOLDER.",
    "unvalidated class": "Add validation clips of these classes.",
    "untagged": "If they do contain a class, add its tag; otherwise nothing.",
}


@dataclass(frozen=True)
class Part:
    """Statistics of one manifest; durations in seconds, counts of readable recordings.

    Args:
        n_listed: clips in the table.
        n_missing: clips without a recording.
        n_unreadable: clips whose recording cannot be read.
        shortest: the shortest duration.
        median: the median duration.
        longest: the longest duration.
        total: the sum of all durations.
        sample_rates: sample rate -> number of recordings.
        channels: number of channels -> number of recordings.
        classes: label -> number of clips.

    >>> Part(9, 1, 0, 1.0, 2.0, 3.0, 16.0, {32000: 8}, {1: 8}, {"dog": 3}).classes
    {'dog': 3}
    """

    n_listed: int
    n_missing: int
    n_unreadable: int
    shortest: float
    median: float
    longest: float
    total: float
    sample_rates: Mapping[int, int]
    channels: Mapping[int, int]
    classes: Mapping[str, int]


@dataclass(frozen=True)
class Report:
    """Statistics of each part ("training", "validation"), and findings, the most severe first.

    >>> Report({}, ()).stops
    False
    """

    parts: Mapping[str, Part]
    findings: tuple[Finding, ...]

    @property
    def stops(self) -> bool:
        """Whether any finding prevents training."""
        return any(finding.severity == "stops" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, ready for JSON."""
        return {
            "stops": self.stops,
            "parts": {name: asdict(part) for name, part in self.parts.items()},
            "findings": [asdict(finding) for finding in self.findings],
        }


def render(report: Report, n_items: int = 5) -> "RenderableType":
    """Return a report as tables for a terminal, with up to `n_items` names per finding.

    >>> import io
    >>> from rich.console import Console
    >>> console = Console(width=60, file=io.StringIO())
    >>> empty = Finding("empty", "stops", "training", "The training table has no clips.")
    >>> console.print(render(Report({}, (empty,))))
    >>> "has no clips" in console.file.getvalue()
    True
    """
    from rich.console import Group
    from rich.table import Column, Table
    from rich.text import Text

    def column(name: str) -> Column:  # whose long names go on in the next line, not cut off
        return Column(name, overflow="fold")

    statistics = Table(*map(column, ("", *report.parts)), title="Recordings")
    shown: dict[str, Callable[[Part], str]] = {
        "clips listed": lambda part: f"{part.n_listed}",
        "missing": lambda part: f"{part.n_missing}",
        "unreadable": lambda part: f"{part.n_unreadable}",
        "shortest, median, longest": lambda part: (
            f"{part.shortest:.2f}, {part.median:.2f}, {part.longest:.2f} s"
        ),
        "total": lambda part: f"{part.total / 3600:.2f} h",
        "sample rates": lambda part: _counted(part.sample_rates, "Hz"),
        "channels": lambda part: _counted(part.channels, "ch"),
    }
    for name, describe in shown.items():
        statistics.add_row(name, *map(describe, report.parts.values()))
    classes = Table(*map(column, ("class", *report.parts)), title="Clips per class")
    for label in dict.fromkeys(label for part in report.parts.values() for label in part.classes):
        row = (str(part.classes.get(label, "-")) for part in report.parts.values())
        classes.add_row(Text(printable(label)), *row)
    findings = Table("", column("finding"), title="Findings", show_lines=True)
    colours = {"stops": "bold red", "hurts": "yellow", "note": "dim"}
    for finding in report.findings:
        names = [f"{name}: {detail}" if detail else name for name, detail in finding.items.items()]
        more = [f"and {len(names) - n_items} more"] if len(names) > n_items else []
        lines = [finding.sentence, *(f"  {name}" for name in [*names[:n_items], *more])]
        lines.append(f"-> {finding.remedy}")
        # Text, not markup: a file name may contain brackets.
        severity = Text(finding.severity, style=colours[finding.severity])
        findings.add_row(severity, Text(printable("\n".join(lines))))
    if not report.findings:
        findings.add_row("", "No problems.")
    return Group(statistics, classes, findings)


def _counted(counts: Mapping[int, int], unit: str) -> str:
    if len(counts) == 1:
        return f"{next(iter(counts))} {unit}"
    return ", ".join(f"{value} {unit} x {count}" for value, count in counts.items()) or "-"
