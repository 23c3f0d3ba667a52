"""Events <-> Praat TextGrids: the format `textgrid`, one recording per file.

Conventions: one interval tier per class, named by it; the text of an interval is the label, and
intervals without text lie between events. Events of a class that overlap go to further tiers. A
recording without events has one empty tier, `events`. Long and short text files are read, in UTF-8
or UTF-16: as in Praat, only free-standing numbers and quoted strings count. Points have no length
and are dropped and counted; the names of tiers are ignored.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from earmark.errors import DataError
from earmark.formats.event_table import Event, EventTable, Layout, read_seconds
from earmark.formats.label_tracks import recording_of
from earmark.formats.tables import Source, source_name

_TOKEN = re.compile(
    r'"((?:[^"]|"")*)"|(?<!\S)(-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?!\S)|!.*', re.MULTILINE
)


def read_textgrid(source: Source) -> EventTable:
    r"""Return the events of a TextGrid: the intervals with a text, of all tiers.

    >>> import io
    >>> text = '"ooTextFile"\n"TextGrid"\n0\n2\n<exists>\n1\n"IntervalTier"\n"dogs"\n0\n2\n2\n'
    >>> file = io.StringIO(text + '0\n1.5\n""\n1.5\n2\n"dog"\n')
    >>> file.name = "street.TextGrid"
    >>> read_textgrid(file)
    {'street': [Event(onset=1.5, offset=2.0, label='dog', score=None)]}
    """
    name = source_name(source)
    tokens = _Tokens(_decoded(source, name), name)
    if tokens.string() != "ooTextFile" or tokens.string() != "TextGrid":
        raise DataError(f"{name} is no TextGrid: it does not begin with ooTextFile and TextGrid.")
    recording = recording_of(source, (".TextGrid",))
    tokens.number()
    table = EventTable({recording: []}, {recording: tokens.number()})
    for _ in range(int(tokens.number())):
        kind = tokens.string()
        if kind not in ("IntervalTier", "TextTier"):
            raise DataError(f"{tokens.where}: a tier is an IntervalTier or TextTier. Got {kind!r}.")
        tokens.string()
        tokens.number()
        tokens.number()
        for _ in range(int(tokens.number())):
            onset = tokens.number()
            offset = tokens.number() if kind == "IntervalTier" else onset
            label = tokens.string().strip()
            if label:
                values = {"onset": onset, "offset": offset, "event_label": label}
                table.add({"filename": recording, **values}, tokens.where)
    table[recording].sort()
    return table


def textgrid_text(table: EventTable, layout: Layout) -> str:
    """Return the TextGrid of the one recording of a table, in Praat's long text format.

    >>> text = textgrid_text(EventTable({"a.wav": [Event(0.5, 2, "dog")]}, {"a.wav": 4}), Layout())
    >>> [line.strip() for line in text.splitlines() if "text =" in line]
    ['text = ""', 'text = "dog"', 'text = ""']
    """
    ((name, events),) = table.items() or [("", [])]
    ends = [event.offset for event in events]
    # A TextGrid has a length; without any, that of a recording that nothing is known of.
    end = max([round(table.durations.get(name, 0.0), layout.decimals), *ends]) or 1.0
    tiers = _tiers(events) or [("events", [])]

    def number(seconds: float) -> str:
        return f"{seconds:.{layout.decimals}f}"

    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', "", "xmin = 0"]
    lines += [f"xmax = {number(end)}", "tiers? <exists>", f"size = {len(tiers)}", "item []:"]
    for at, (label, own) in enumerate(tiers, start=1):
        intervals = list(_intervals(own, end))
        lines += [f"    item [{at}]:", '        class = "IntervalTier"']
        lines += [f"        name = {_quoted(label)}", "        xmin = 0"]
        lines += [f"        xmax = {number(end)}", f"        intervals: size = {len(intervals)}"]
        for n, (onset, offset, text) in enumerate(intervals, start=1):
            lines += [f"        intervals [{n}]:", f"            xmin = {number(onset)}"]
            lines += [f"            xmax = {number(offset)}"]
            lines += [f"            text = {_quoted(text)}"]
    return "\n".join([*lines, ""])


def _tiers(events: list[Event]) -> list[tuple[str, list[Event]]]:
    """Return tiers of events that do not overlap, with distinct names; sorted by label."""
    tiers: list[tuple[str, list[Event]]] = []
    for label in sorted({event.label for event in events}):
        own: list[list[Event]] = []
        for event in (event for event in sorted(events) if event.label == label):
            free = next((tier for tier in own if tier[-1].offset <= event.onset), None)
            if free is None:
                own.append([event])
            else:
                free.append(event)
        tiers += [(label, tier) for tier in own]
    used = {label for label, _ in tiers}
    names = []
    for at, (label, _) in enumerate(tiers):
        name, n = label, 1
        while name in names or (n > 1 and name in used):
            n += 1
            name = f"{label} {n}"
        names.append(name)
        tiers[at] = (name, tiers[at][1])
    return tiers


def _intervals(events: list[Event], end: float) -> Iterator[tuple[float, float, str]]:
    """Yield intervals without gaps from 0 to `end`."""
    at = 0.0
    for event in events:
        if event.onset > at:
            yield at, event.onset, ""
        yield event.onset, event.offset, event.label
        at = event.offset
    if at < end:
        yield at, end, ""


def _quoted(text: str) -> str:
    if text != text.strip() or any(sign in text for sign in "\r\n"):
        raise DataError(
            f"Cannot write {text!r} to a TextGrid: a label must not contain a line end, nor begin "
            f"or end with a space."
        )
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


class _Tokens:
    """The numbers and strings of a text, one after the other."""

    def __init__(self, text: str, name: str) -> None:
        self._text, self._name = text, name
        self._tokens = (match for match in _TOKEN.finditer(text) if match[0][0] != "!")
        self._at, self._line = 0, 1

    @property
    def where(self) -> str:
        return f"{self._name}:{self._line}"

    def string(self) -> str:
        match = self._next("a text in quotes")
        if match[1] is None:
            raise DataError(f"{self.where}: a text in quotes belongs here. Got {match[0]}.")
        return match[1].replace('""', '"')

    def number(self) -> float:
        match = self._next("a number")
        return read_seconds(match[2] or match[0][:40], "number", self.where)

    def _next(self, wanted: str) -> re.Match[str]:
        match = next(self._tokens, None)
        if match is None:
            raise DataError(f"{self._name} ends where {wanted} belongs: it is not complete.")
        self._line += self._text.count("\n", self._at, match.start())
        self._at = match.start()
        return match


def _decoded(source: Source, name: str) -> str:
    if not isinstance(source, str | os.PathLike):
        return source.read()
    try:
        content = Path(source).read_bytes()
    except OSError as error:
        raise DataError(f"Cannot read the TextGrid {name}: {error.strerror or error}.") from error
    wide = content[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        return content.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not UTF-8 or UTF-16 text ({error.reason}).") from error
