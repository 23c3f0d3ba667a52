"""Events <-> the text files of annotation programs: `audacity`, `raven` and `rttm`.

Conventions: an Audacity label track is `onset, offset, label`, tab separated, of one recording,
which is named by the file. A Raven selection table is tab separated with a header; the label is in
the column `Annotation`, the score in `Confidence`. `Begin File` names the recording, and `File
Offset (s)` is the time within it: `Begin Time (s)` counts on through all recordings of the table,
as Raven does when it opens them as one sequence, if their durations are known. Raven wants a range
of frequencies: the whole. An RTTM file has one SPEAKER line per event, with the score as the
confidence; in names and labels, white space and `%` are written as `%20`, `%25`.
"""

import re
from pathlib import PurePath

from earmark.errors import DataError
from earmark.formats.event_table import (
    EventTable,
    Layout,
    add_seconds,
    read_number,
    read_seconds,
    subtract_seconds,
)
from earmark.formats.names import stem_of
from earmark.formats.tables import Source, check_field, read_text

_RAVEN_COLUMNS = (
    "Selection", "View", "Channel", "Begin Time (s)", "End Time (s)", "Low Freq (Hz)",
    "High Freq (Hz)", "Begin File", "File Offset (s)", "Annotation",
)  # fmt: skip
_RAVEN_LABELS = (
    "annotation", "label", "common name", "species", "class", "event_label", "tags",
    "species code",
)  # fmt: skip
_RAVEN_TOP = "24000"  # Hz: the highest frequency at the common sample rate of 48 kHz


def recording_of(source: Source, suffixes: tuple[str, ...]) -> str:
    """Return the name of the recording that a file of one recording is named after.

    >>> recording_of("events/street.txt", (".txt",)), recording_of("a.wav.jams", (".jams",))
    ('street', 'a.wav')
    """
    path = source if isinstance(source, str | PurePath) else getattr(source, "name", "")
    name = PurePath(str(path)).name
    for suffix in sorted(suffixes, key=len, reverse=True):
        if name.lower().endswith(suffix.lower()) and len(name) > len(suffix):
            return name[: -len(suffix)]
    return stem_of(name) or "recording"


def read_audacity(source: Source) -> EventTable:
    r"""Return the events of an Audacity label track; point labels are dropped and counted.

    >>> import io
    >>> file = io.StringIO("0.5\t1.5\tdog\n\\\t100\t200\n2\t2\tpoint\n")
    >>> file.name = "street.txt"
    >>> read_audacity(file)
    {'street': [Event(onset=0.5, offset=1.5, label='dog', score=None)]}
    """
    name, text = read_text(source)
    recording = recording_of(source, (".txt",))
    table = EventTable({recording: []})
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.startswith("\\"):  # the frequencies of the label above
            continue
        onset, offset, label = [*line.split("\t", 2), "", ""][:3]
        values = {"filename": recording, "onset": onset, "offset": offset}
        table.add({**values, "event_label": label.strip()}, f"{name}:{number}")
    return table


def audacity_text(table: EventTable, layout: Layout) -> str:
    r"""Return a label track of the one recording of a table.

    >>> from earmark.formats.event_table import Event
    >>> audacity_text(EventTable({"a.wav": [Event(0.5, 2, "dog")]}), Layout())
    '0.500\t2.000\tdog\n'
    """
    lines = []
    for events in table.values():
        for event in events:
            check_field(event.label, "a label track")
            times = (f"{x:.{layout.decimals}f}" for x in (event.onset, event.offset))
            lines.append("\t".join([*times, event.label]) + "\n")
    return "".join(lines)


def read_raven(source: Source) -> EventTable:
    r"""Return the events of a Raven selection table.

    >>> import io
    >>> head = "Selection\tBegin Time (s)\tEnd Time (s)\tBegin File\tAnnotation\n"
    >>> read_raven(io.StringIO(head + "1\t0.5\t1.5\ta.wav\tdog\n"))
    {'a.wav': [Event(onset=0.5, offset=1.5, label='dog', score=None)]}
    """
    name, text = read_text(source)
    rows = [(n, line.split("\t")) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    header = [field.strip().lower() for field in rows[0][1]] if rows else []
    label = next((column for column in _RAVEN_LABELS if column in header), None)
    if not {"begin time (s)", "end time (s)"} <= set(header) or label is None:
        raise DataError(
            f"{name}:1: a Raven table has the columns Begin Time (s), End Time (s) and Annotation, "
            f"separated by tabs. Got {', '.join(header[:12])}."
        )
    recording = recording_of(source, (".selections.txt", ".txt"))
    table = EventTable()
    seen = set()
    for number, fields in rows[1:]:
        where = f"{name}:{number}"
        cells = dict(zip(header, (field.strip() for field in fields), strict=False))
        selection = cells.get("selection")
        if selection and selection in seen:
            continue  # a line per view: the waveform's and the spectrogram's are one selection
        seen.add(selection)
        begin, end = cells.get("begin time (s)"), cells.get("end time (s)")
        within = cells.get("file offset (s)") or begin
        length = subtract_seconds(
            read_seconds(end, "end time", where), read_seconds(begin, "begin time", where)
        )
        values = {
            "filename": cells.get("begin file") or recording,
            "onset": within,
            "offset": add_seconds(read_seconds(within, "file offset", where), length),
            "event_label": cells.get(label),
            "score": cells.get("confidence") or cells.get("score"),
        }
        table.add(values, where)
    return table or EventTable({recording: []})


def raven_text(table: EventTable, layout: Layout) -> str:
    r"""Return a Raven selection table.

    >>> from earmark.formats.event_table import Event
    >>> text = raven_text(EventTable({"a.wav": [Event(0.5, 2, "dog")]}), Layout())
    >>> text.splitlines()[1].split("\t")[3:]
    ['0.500', '2.000', '0', '24000', 'a.wav', '0.500', 'dog']
    """
    rows: list[list[str]] = []
    begin = 0.0  # of the recording, in the sequence of all
    for name, events in table.items():
        for event in events:
            times = [begin + event.onset, begin + event.offset]
            onset, offset, within = (f"{x:.{layout.decimals}f}" for x in (*times, event.onset))
            row = [f"{len(rows) + 1}", "Spectrogram 1", "1", onset, offset, "0", _RAVEN_TOP, name]
            row += [within, event.label]
            if layout.scores:
                row.append("" if event.score is None else f"{event.score:.6g}")
            rows.append(row)
        if set(table) <= set(table.durations):
            begin += round(table.durations[name], layout.decimals)
    columns = [*_RAVEN_COLUMNS, *(["Confidence"] if layout.scores else [])]
    for row in rows:
        for field in row:
            check_field(field, "a Raven table")  # Raven knows no quotes
    return "".join("\t".join(row) + "\n" for row in (columns, *rows))


def read_rttm(source: Source) -> EventTable:
    r"""Return the events of an RTTM file: its SPEAKER lines.

    >>> import io
    >>> read_rttm(io.StringIO("SPEAKER a.wav 1 0.5 1.0 <NA> <NA> dog 0.75 <NA>\n"))
    {'a.wav': [Event(onset=0.5, offset=1.5, label='dog', score=0.75)]}
    """
    name, text = read_text(source)
    table = EventTable()
    for number, line in enumerate(text.split("\n"), start=1):
        fields = line.split()
        if not fields or fields[0].startswith(";;") or fields[0] != "SPEAKER":
            continue
        where = f"{name}:{number}"
        if len(fields) < 8:
            raise DataError(
                f"{where}: a SPEAKER line has 9 or 10 fields, of which the second names the file, "
                f"the fourth and fifth are onset and duration. Got {len(fields)}."
            )
        onset = read_seconds(fields[3], "onset", where)
        duration = read_number(fields[4], "duration", where)
        score = fields[8] if len(fields) > 8 and fields[8] != "<NA>" else None
        values = {
            "filename": _unescaped(fields[1]),
            "onset": onset,
            "offset": add_seconds(onset, duration),
            "event_label": _unescaped(fields[7]),
            "score": score,
        }
        table.add(values, where)
    return table


def rttm_text(table: EventTable, layout: Layout) -> str:
    r"""Return an RTTM file.

    >>> from earmark.formats.event_table import Event
    >>> rttm_text(EventTable({"a.wav": [Event(0.5, 2, "car horn")]}), Layout())
    'SPEAKER a.wav 1 0.500 1.500 <NA> <NA> car%20horn <NA> <NA>\n'
    """
    lines = []
    for name, events in table.items():
        for event in events:
            duration = subtract_seconds(event.offset, event.onset)
            times = " ".join(f"{x:.{layout.decimals}f}" for x in (event.onset, duration))
            label, score = _escaped(event.label), "<NA>"
            if layout.scores and event.score is not None:
                score = f"{event.score:.6g}"
            lines.append(f"SPEAKER {_escaped(name)} 1 {times} <NA> <NA> {label} {score} <NA>\n")
    return "".join(lines)


def _escaped(field: str) -> str:
    return re.sub(r"[\s%]", lambda sign: "".join(f"%{x:02X}" for x in sign[0].encode()), field)


def _unescaped(field: str) -> str:
    def decoded(codes: re.Match[str]) -> str:
        content = bytes.fromhex(codes[0].replace("%", ""))
        text = content.decode(errors="replace")
        return text if _escaped(text) == codes[0] else codes[0]  # only what we escape

    return re.sub(r"(?:%[0-9A-F]{2})+", decoded, field)
