"""Tables and folders -> what a system, or the truth, says: events, tags, score curves.

Conventions: a table of events has an onset in its header, or no header at all; a table of tags has
none, or is said to be one; a folder holds score curves. What only one of two answers names is told
in sentences; where nothing would be left to compare, or a score would have to be guessed, it is an
error that names both.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from earmark.curves import ScoreCurves, read_curves, stem_of
from earmark.errors import DataError, SettingError
from earmark.events import Event, EventTable, read_events, read_seconds
from earmark.metrics.clip import tags_of
from earmark.tables import read_table
from earmark.tags import TagTable, read_tags

Events = Mapping[str, Sequence[Event]]
Tags = Mapping[str, Collection[str]]


@dataclass(frozen=True)
class Answer:
    """What is known of a system, or of the truth: file -> events, file -> tags, score curves."""

    name: str
    events: Events | None = None
    tags: Tags | None = None
    curves: ScoreCurves | None = None

    def __post_init__(self) -> None:
        if self.events is None and self.tags is None and self.curves is None:
            raise SettingError(f"{self.name} needs events, tags or curves.")

    @cached_property
    def labels(self) -> frozenset[str]:
        """Every class that it names."""
        return self.labels_in({**(self.tags or {}), **(self.events or {})})

    def labels_in(self, files: Collection[str]) -> frozenset[str]:
        """Return every class that it names in some files."""
        events, tags = self.events or {}, self.tags or {}
        found = {label for name in files for label in tags.get(name, ())}
        found |= {event.label for name in files for event in events.get(name, ())}
        return frozenset(found) | set(self.curves.labels if self.curves else ())

    @property
    def found_tags(self) -> Tags | None:
        """Its tags, or those of its events; None where it has curves only."""
        if self.tags is not None or self.events is None:
            return self.tags
        return tags_of(self.events)

    def peaks(self, files: Tags, labels: Sequence[str]) -> dict[str, Any] | None:
        """Return file -> the largest score of each class in its curve; None without curves."""
        if self.curves is None:
            return None
        curves = self.curves
        columns = [curves.labels.index(label) for label in labels]
        return {name: curves[name].scores.max(axis=0)[columns] for name in files if name in curves}


def read_answer(
    path: str | Path, curves: str | Path | None = None, *, weak: bool = False
) -> Answer:
    r"""Return what a table of events or of tags, or a folder of score curves, says.

    A table is one of tags if its header has no onset, or if `weak` says so.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "found.tsv")
    ...     _ = path.write_text("a.wav\t0\t1.5\tdog")
    ...     read_answer(path).events
    {'a.wav': [Event(onset=0.0, offset=1.5, label='dog', score=None)]}
    """
    name = Path(path).as_posix()
    if Path(path).is_dir():
        if curves is not None:
            raise SettingError(f"{name} is a folder of curves; name a table beside {curves}.")
        return Answer(name, curves=read_curves(path))
    found = None if curves is None else read_curves(curves)
    columns = None if weak else read_table(path).columns
    if weak or (columns is not None and "onset" not in columns):
        return Answer(name, tags=read_tags(path), curves=found)
    return Answer(name, events=read_events(path), curves=found)


def read_durations(path: str | Path) -> dict[str, float]:
    """Return file -> seconds, from a table with the columns filename and duration."""
    table = read_table(path)
    columns = ("filename", "duration")
    table.require(*columns)
    durations: dict[str, float] = {}
    for row in table.rows:
        values = row.named(table.columns or columns)
        seconds = read_seconds(values["duration"], "duration", row.where)
        if durations.setdefault(values["filename"], seconds) != seconds:
            raise DataError(f"{row.where}: {values['filename']} has another duration above.")
    return durations


def remarks_on(system: Answer, truth: Answer, tags: Tags) -> list[str]:
    """Return what only one of them names, in sentences; raise where nothing is left to compare.

    Args:
        system: what was found.
        truth: what is true.
        tags: file -> tags, of the truth.

    >>> found = Answer("mine", {"a.wav": [Event(0, 1, "owl")]})
    >>> truth = Answer("true", {"a.wav": [Event(0, 1, "owl")], "b.wav": []})
    >>> remarks_on(found, truth, {"a.wav": ("owl",), "b.wav": ()})
    ["1 files of true are not in mine, as 'b.wav': they count as without events."]
    """
    remarks = []
    named = system.events if system.events is not None else system.tags
    if named is not None:
        if named and not set(named) & set(tags):
            raise DataError(
                f"No file of {truth.name} is in {system.name}: {next(iter(tags))!r} there, "
                f"{next(iter(named))!r} here; the names must be the same."
            )
        missing = [name for name in tags if name not in named]
        if missing:
            remarks.append(
                f"{len(missing)} files of {truth.name} are not in {system.name}, "
                f"as {missing[0]!r}: they count as without events."
            )
        unknown = [name for name in named if name not in tags]
        if unknown:
            remarks.append(
                f"{len(unknown)} files of {system.name} are not in {truth.name}, "
                f"as {unknown[0]!r}: left out."
            )
    if system.curves is not None:
        _check_curves(system, truth, tags)
        known = {stem_of(name) for name in tags}
        unknown = [name for name in system.curves if name not in known]
        if unknown:
            remarks.append(
                f"{len(unknown)} curves of {system.name} are of files that are not in "
                f"{truth.name}, as {unknown[0]!r}: left out."
            )
    own, true = system.labels_in(tags), truth.labels
    for one, other, only, what in (
        (system, truth, sorted(own - true), "whatever is found of them is wrong"),
        (truth, system, sorted(true - own), "they are all missed"),
    ):
        if only:
            remarks.append(
                f"{len(only)} labels of {one.name} are not in {other.name}: "
                f"{', '.join(map(repr, only[:5]))}{' and others' if only[5:] else ''}; {what}."
            )
    for answer in (truth, system):
        table = answer.events if answer.events is not None else answer.tags
        if isinstance(table, EventTable | TagTable) and table.n_dropped:
            remarks.append(f"{table.n_dropped} rows of {answer.name} have no length: no events.")
    if truth.events is not None and system.events is not None:
        end = max(event.offset for events in truth.events.values() for event in events)
        onsets = [event.onset for name in tags for event in system.events.get(name, ())]
        n_late = sum(onset >= end for onset in onsets)
        if 2 * n_late > len(onsets):
            remarks.append(
                f"{n_late} of {len(onsets)} events of {system.name} begin after the last event of "
                f"{truth.name} has ended ({end:g} s). Are its times those of the clip? A table of "
                "tags is scored with --weak."
            )
    return remarks


def _check_curves(system: Answer, truth: Answer, tags: Tags) -> None:
    """Raise where curves are missing: a score cannot be guessed."""
    curves = system.curves
    assert curves is not None
    missing = [name for name in tags if name not in curves]
    if missing:
        raise DataError(
            f"{len(missing)} of the {len(tags)} files of {truth.name} have no curve in the curves "
            f"of {system.name}, as {missing[0]!r}. Are they of another data set?"
        )
    without = Answer(system.name, system.events, system.tags) if system.found_tags else truth
    for answer, named in ((truth, truth.labels), (system, without.labels_in(tags))):
        lacking = sorted(named - set(curves.labels))
        if lacking:
            raise DataError(
                f"{answer.name} has the label {lacking[0]!r}, but the curves of {system.name} have "
                f"no column of that name; theirs are {', '.join(curves.labels)}."
            )
