"""The output of a system, or the reference, in any form that can be scored.

Conventions: an output consists of events, tags, frame-level scores, or several of these, all by
file name. The files of the reference are evaluated. `compare_with_reference` reports what only the
reference or only the output contains, and raises where nothing can be compared.
"""

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from earmark.errors import DataError, SettingError
from earmark.formats.events import Event, EventTable, event_format, read_events, read_seconds
from earmark.formats.names import rename_files, stem_of
from earmark.formats.scores import ScoreTable, has_scores, read_scores
from earmark.formats.tables import read_table
from earmark.formats.tags import TagTable, read_tags
from earmark.metrics.clip import tags_of

Events = Mapping[str, Sequence[Event]]
Tags = Mapping[str, Collection[str]]
Value = TypeVar("Value")


@dataclass(frozen=True)
class SystemOutput:
    """The output of a system, or the reference; at least one form of it must be given.

    Args:
        name: of the system, for tables and messages.
        events: file name -> events.
        tags: file name -> tags.
        scores: frame-level scores by file name.

    >>> SystemOutput("baseline", events={"a.wav": [Event(0, 1, "dog")]}).clip_tags
    {'a.wav': ('dog',)}
    """

    name: str
    events: Events | None = None
    tags: Tags | None = None
    scores: ScoreTable | None = None

    def __repr__(self) -> str:
        sizes = [
            f"{what} of {len(own)} files"
            for what, own in (("events", self.events), ("tags", self.tags), ("scores", self.scores))
            if own is not None
        ]
        return f"SystemOutput({self.name!r}, {', '.join(sizes)})"

    def __post_init__(self) -> None:
        if self.events is None and self.tags is None and self.scores is None:
            raise SettingError(
                f"The output of {self.name} is empty. Pass events=, tags= or scores=."
            )

    @property
    def table(self) -> Events | Tags | None:
        """Its events, or its tags if it has no events; None if it has scores only."""
        return self.tags if self.events is None else self.events

    @cached_property
    def labels(self) -> frozenset[str]:
        """Every class that occurs."""
        return self.labels_in({**(self.tags or {}), **(self.events or {})})

    def labels_in(self, files: Collection[str]) -> frozenset[str]:
        """Return every class that occurs in some files, and every class that has scores."""
        events, tags = self.events or {}, self.tags or {}
        labels = {label for name in files for label in tags.get(name, ())}
        labels |= {event.label for name in files for event in events.get(name, ())}
        return frozenset(labels) | set(self.scores.labels if self.scores else ())

    @property
    def clip_tags(self) -> Tags | None:
        """Its tags, or those of its events; None if it has scores only."""
        if self.tags is not None or self.events is None:
            return self.tags
        return tags_of(self.events)

    def with_names_of(self, files: Collection[str]) -> "SystemOutput":
        """Return the same output, its files named as in `files`; see `earmark.formats.names`.

        >>> SystemOutput("mine", {"a.flac": []}).with_names_of(["a.wav"]).events
        {'a.wav': []}
        """
        events = None if self.events is None else rename_files(self.events, files)
        tags = None if self.tags is None else rename_files(self.tags, files)
        scores = self.scores
        if scores is not None:
            scores = ScoreTable(scores.labels, rename_files(scores, files))
        return replace(self, events=events, tags=tags, scores=scores)

    def without(self, files: Collection[str]) -> "SystemOutput":
        """Return the same output without some files.

        >>> SystemOutput("mine", {"a.wav": [], "b.wav": []}).without(["b.wav"]).events
        {'a.wav': []}
        """
        if not files:
            return self
        scores = self.scores
        if scores is not None:
            scores = ScoreTable(scores.labels, _without(scores, map(stem_of, files)))
        events = None if self.events is None else _without(self.events, files)
        tags = None if self.tags is None else _without(self.tags, files)
        return replace(self, events=events, tags=tags, scores=scores)

    def clip_scores(self, files: Tags, labels: Sequence[str]) -> dict[str, Any] | None:
        """Return file -> the highest frame-level score per class; None without scores."""
        if self.scores is None:
            return None
        scores = self.scores
        columns = [scores.labels.index(label) for label in labels]
        return {name: scores[name].scores.max(axis=0)[columns] for name in files if name in scores}


def _without(table: Mapping[str, Value], names: Iterable[str]) -> Mapping[str, Value]:
    kept = copy.copy(table) if isinstance(table, dict) else dict(table)  # see `rename_files`
    for name in names:
        kept.pop(name, None)
    return kept


def read_system_output(
    path: str | Path, scores: str | Path | None = None, *, weak: bool = False
) -> SystemOutput:
    r"""Read the output of a system, or the reference, from files.

    Args:
        path: events in any format, a table of tags, a folder of frame-level scores, or a folder of
            events. A table without an onset column holds tags.
        scores: a folder of frame-level scores that goes with the table.
        weak: read the table as tags, whatever its columns.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "estimate.tsv")
    ...     _ = path.write_text("a.wav\t0\t1.5\tdog")
    ...     read_system_output(path).events
    {'a.wav': [Event(onset=0.0, offset=1.5, label='dog', score=None)]}
    """
    name = Path(path).as_posix()
    if Path(path).is_dir():
        if scores is not None:
            raise SettingError(
                f"{name} is a folder of frame-level scores, so it cannot be combined with the "
                f"scores in {scores}. Pass a table of events or tags instead of {name}."
            )
        if has_scores(path):
            return SystemOutput(name, scores=read_scores(path))
        return SystemOutput(name, events=read_events(path))
    frame_scores = None if scores is None else read_scores(scores)
    is_table = event_format(path) in ("tsv", "csv")
    columns = read_table(path).columns if is_table and not weak else None
    if weak or (columns is not None and "onset" not in columns):
        return SystemOutput(name, tags=read_tags(path), scores=frame_scores)
    return SystemOutput(name, events=read_events(path), scores=frame_scores)


def read_durations(path: str | Path) -> dict[str, float]:
    r"""Return file name -> seconds, from a table with the columns filename and duration.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "durations.tsv")
    ...     _ = path.write_text("filename\tduration\na.wav\t10.0\n")
    ...     read_durations(path)
    {'a.wav': 10.0}
    """
    table = read_table(path)
    columns = ("filename", "duration")
    table.require(*columns)
    durations: dict[str, float] = {}
    for row in table.rows:
        values = row.named(table.columns or columns)
        seconds = read_seconds(values["duration"], "duration", row.where)
        known = durations.setdefault(values["filename"], seconds)
        if known != seconds:
            raise DataError(
                f"{row.where}: the duration of {values['filename']} is {seconds:g} s here and "
                f"{known:g} s in an earlier row. Keep one of them."
            )
    return durations


def compare_with_reference(system: SystemOutput, reference: SystemOutput, tags: Tags) -> list[str]:
    """Return warnings about what only one of them contains; raise if nothing can be compared.

    Args:
        system: the output of the system.
        reference: the reference.
        tags: file -> tags of the reference.

    >>> system = SystemOutput("mine", {"a.wav": [Event(0, 1, "owl")]})
    >>> reference = SystemOutput("reference", {"a.wav": [Event(0, 1, "owl")], "b.wav": []})
    >>> compare_with_reference(system, reference, {"a.wav": ("owl",), "b.wav": ()})
    ["1 files of reference are missing from mine, such as 'b.wav': counted as without events."]
    """
    return [
        *_compare_files(system, reference, tags),
        *_compare_labels(system, reference, tags),
        *_dropped_rows(reference),
        *_dropped_rows(system),
        *_late_events(system, reference, tags),
    ]


def _compare_files(system: SystemOutput, reference: SystemOutput, tags: Tags) -> list[str]:
    warnings = []
    if system.table is not None:
        if system.table and not set(system.table) & set(tags):
            raise DataError(
                f"{system.name} has no file of {reference.name}: their file names differ, such as "
                f"{next(iter(system.table))!r} and {next(iter(tags))!r}. Use the same names."
            )
        missing = [name for name in tags if name not in system.table]
        if missing:
            warnings.append(
                f"{len(missing)} files of {reference.name} are missing from {system.name}, such as "
                f"{missing[0]!r}: counted as without events."
            )
        unknown = [name for name in system.table if name not in tags]
        if unknown:
            warnings.append(
                f"{len(unknown)} files of {system.name} are not in {reference.name}, such as "
                f"{unknown[0]!r}: ignored."
            )
    if system.scores is not None:
        _check_scores(system, reference, tags)
        known = {stem_of(name) for name in tags}
        unknown = [name for name in system.scores if name not in known]
        if unknown:
            warnings.append(
                f"{len(unknown)} files with frame-level scores of {system.name} are not in "
                f"{reference.name}, such as {unknown[0]!r}: ignored."
            )
    return warnings


def _check_scores(system: SystemOutput, reference: SystemOutput, tags: Tags) -> None:
    """Raise if frame-level scores of a file or of a class are missing."""
    scores = system.scores
    assert scores is not None
    missing = [name for name in tags if name not in scores]
    if missing:
        raise DataError(
            f"{len(missing)} of {len(tags)} files of {reference.name} have no frame-level scores "
            f"in {system.name}, such as {missing[0]!r}. Use scores of the same data set."
        )
    system_labels = (
        replace(system, scores=None).labels_in(tags) if system.clip_tags else frozenset[str]()
    )
    for output, labels in ((reference, reference.labels), (system, system_labels)):
        without = sorted(labels - set(scores.labels))
        if without:
            raise DataError(
                f"{output.name} has the label {without[0]!r}, but the frame-level scores of "
                f"{system.name} have no such column, only {', '.join(scores.labels)}."
            )


def _compare_labels(system: SystemOutput, reference: SystemOutput, tags: Tags) -> list[str]:
    in_system, in_reference = system.labels_in(tags), reference.labels
    folded = {_folded(label): label for label in sorted(in_reference - in_system)}
    alike = [
        f"The label {label!r} of {system.name} differs only in case, spaces or hyphens "
        f"from {folded[_folded(label)]!r} of {reference.name}: they are two classes; rename one."
        for label in sorted(in_system - in_reference)
        if _folded(label) in folded
    ]
    return alike + [
        f"{len(only)} labels of {one.name} are not in {other.name}: "
        f"{', '.join(map(repr, only[:5]))}{' and others' if only[5:] else ''}; {consequence}."
        for one, other, only, consequence in (
            (
                system,
                reference,
                sorted(in_system - in_reference),
                "all of them are false positives",
            ),
            (reference, system, sorted(in_reference - in_system), "all of them are missed"),
        )
        if only
    ]


def _folded(label: str) -> str:
    return "".join(letter for letter in label.casefold() if letter not in " \t-_\u00a0")


def _dropped_rows(output: SystemOutput) -> list[str]:
    table = output.table
    if isinstance(table, EventTable | TagTable) and table.n_dropped:
        return [f"{table.n_dropped} rows of {output.name} have length 0: ignored."]
    return []


def _late_events(system: SystemOutput, reference: SystemOutput, tags: Tags) -> list[str]:
    """Warn if most events start after the reference ends: their times may not be clip times."""
    if reference.events is None or system.events is None:
        return []
    end = max(event.offset for events in reference.events.values() for event in events)
    onsets = [event.onset for name in tags for event in system.events.get(name, ())]
    n_late = sum(onset >= end for onset in onsets)
    if 2 * n_late <= len(onsets):
        return []
    return [
        f"{n_late} of {len(onsets)} events of {system.name} start after the last event of "
        f"{reference.name} ends ({end:g} s). Times must be seconds from the start of the clip; a "
        "table of tags must be read as such (weak)."
    ]
