"""Events <-> JSON: the formats `json`, `jsonl` and `jams`.

Conventions: `json` is one object, `{"recordings": [{"filename", "duration", "events": [...]}]}`,
and an event is `{"onset", "offset", "event_label", "score"}`. `jsonl` has one event per line, with
its `filename`; a recording without events is a line with its name alone. A list of such events is
read as `json` too. Fields that are not known, such as the score, are left out; `onset_time` and
`offset_time` are date and time. `jams` is one recording per file (JAMS 0.3): an annotation in the
namespace `tag_open`, with the score as the confidence, and the name in `sandbox.filename`.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from earmark.errors import DataError
from earmark.formats.event_table import (
    TIME_COLUMNS,
    Event,
    EventTable,
    Layout,
    add_seconds,
    read_seconds,
    subtract_seconds,
)
from earmark.formats.label_tracks import recording_of
from earmark.formats.tables import COLUMN_OF, Source, read_text

_JAMS_VERSION = "0.3.4"  # of the schema that we write; jams refuses another major version


def event_fields(event: Event, layout: Layout, table: EventTable, name: str) -> dict[str, Any]:
    """Return an event as a JSON object.

    >>> event_fields(Event(0.5, 2, "dog", 0.75), Layout(scores=True), EventTable(), "a.wav")
    {'onset': 0.5, 'offset': 2.0, 'event_label': 'dog', 'score': 0.75}
    """
    fields: dict[str, Any] = {
        "onset": event.onset,
        "offset": event.offset,
        "event_label": event.label,
    }
    if layout.scores and event.score is not None:
        fields["score"] = event.score
    if layout.times and name in table.starts:
        times = layout.date_times(event, table.starts[name])
        fields |= zip(TIME_COLUMNS, times, strict=True)
    return fields


def read_json(source: Source) -> EventTable:
    r"""Return the events of a JSON file.

    >>> import io
    >>> event = '{"onset": 0, "offset": 1.5, "event_label": "dog"}'
    >>> read_json(io.StringIO(f'{{"recordings": [{{"filename": "a.wav", "events": [{event}]}}]}}'))
    {'a.wav': [Event(onset=0.0, offset=1.5, label='dog', score=None)]}
    """
    name, text = read_text(source)
    content = _parse(text, name)
    table = EventTable()
    if isinstance(content, list):
        _add_all(table, content, name)
        return table
    if not isinstance(content, dict) or not isinstance(content.get("recordings"), list):
        raise DataError(f'{name}: no list "recordings", as in {{"recordings": [...]}}.')
    for number, recording in enumerate(content["recordings"], start=1):
        where = f"{name}, recording {number}"
        own = _object(recording, where)
        table.add({"filename": own.get("filename")}, where)
        events = own.get("events", [])
        if not isinstance(events, list):
            raise DataError(f'{where}: "events" is no list.')
        _add_all(table, events, where, own["filename"])
        if own.get("duration") is not None:
            table.durations[own["filename"]] = read_seconds(own["duration"], "duration", where)
    return table


def json_text(table: EventTable, layout: Layout) -> str:
    """Return one JSON object, with one line per event.

    >>> print(json_text(EventTable({"a.wav": [Event(0.5, 2, "dog")]}, {"a.wav": 4}), Layout()))
    {"recordings": [
     {"filename": "a.wav", "duration": 4, "events": [
      {"onset": 0.5, "offset": 2.0, "event_label": "dog"}]}]}
    <BLANKLINE>
    """
    recordings = []
    for name, events in table.items():
        about: dict[str, Any] = {"filename": name}
        if name in table.durations:
            about["duration"] = round(table.durations[name], 6)
        if layout.times and name in table.starts:
            about["start_time"] = table.starts[name].isoformat()
        lines = [f"\n  {_dump(event_fields(event, layout, table, name))}" for event in events]
        recordings.append(f'\n {_dump(about)[:-1]}, "events": [{",".join(lines)}]}}')
    return f'{{"recordings": [{",".join(recordings)}]}}\n'


def read_json_lines(source: Source) -> EventTable:
    r"""Return the events of JSON lines.

    >>> import io
    >>> read_json_lines(io.StringIO('{"filename": "a.wav"}\n'))
    {'a.wav': []}
    """
    name, text = read_text(source)
    table = EventTable()
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            where = f"{name}:{number}"
            table.add(_named(_object(_parse(line, where), where)), where)
    return table


def json_lines_text(table: EventTable, layout: Layout) -> str:
    r"""Return one JSON object per event and line.

    >>> json_lines_text(EventTable({"a.wav": [Event(0.5, 2, "dog")]}), Layout())
    '{"filename": "a.wav", "onset": 0.5, "offset": 2.0, "event_label": "dog"}\n'
    """
    lines = []
    for name, events in table.items():
        if not events:
            lines.append(_dump({"filename": name}))
        for event in events:
            lines.append(_dump({"filename": name, **event_fields(event, layout, table, name)}))
    return "".join(f"{line}\n" for line in lines)


def read_jams(source: Source) -> EventTable:
    r"""Return the events of a JAMS file: of all annotations whose values are labels.

    The foreground events of scaper are read too.

    >>> import io
    >>> event = '{"time": 0.5, "duration": 1, "value": "dog", "confidence": null}'
    >>> read_jams(io.StringIO(f'{{"annotations": [{{"data": [{event}]}}]}}'))
    {'recording': [Event(onset=0.5, offset=1.5, label='dog', score=None)]}
    """
    name, text = read_text(source)
    content = _object(_parse(text, name), name)
    sandbox = content.get("sandbox") or {}
    recording = sandbox.get("filename") if isinstance(sandbox, dict) else None
    if not isinstance(recording, str) or not recording:
        recording = recording_of(source, (".jams",))
    annotations = content.get("annotations")
    if not isinstance(annotations, list):
        raise DataError(f'{name} is no JAMS file: it has no list "annotations".')
    table = EventTable({recording: []})
    duration = _object(content.get("file_metadata") or {}, name).get("duration")
    if duration is not None:
        table.durations[recording] = read_seconds(duration, "duration", name)
    for number, annotation in enumerate(annotations, start=1):
        data = _object(annotation, f"{name}, annotation {number}").get("data")
        for at, item in enumerate(data if isinstance(data, list) else [], start=1):
            where = f"{name}, annotation {number}, item {at}"
            values = _jams_values(_object(item, where), where)
            if values:
                table.add({"filename": recording, **values}, where)
    return table


def _jams_values(item: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    label = item.get("value")
    if isinstance(label, dict):  # scaper's: the sound, where it came from, and its role
        label = label.get("label") if label.get("role", "foreground") == "foreground" else None
    if not isinstance(label, str):
        return None
    onset = read_seconds(item.get("time"), "time", where)
    duration = read_seconds(item.get("duration"), "duration", where)
    values = {"onset": onset, "offset": add_seconds(onset, duration), "event_label": label}
    confidence = item.get("confidence")
    return {**values, "score": confidence} if isinstance(confidence, int | float) else values


def jams_text(table: EventTable, layout: Layout) -> str:
    """Return the JAMS file of the one recording of a table.

    >>> text = jams_text(EventTable({"a.wav": [Event(0.5, 2, "dog")]}), Layout())
    >>> json.loads(text)["annotations"][0]["data"]
    [{'time': 0.5, 'duration': 1.5, 'value': 'dog', 'confidence': None}]
    """
    ((name, events),) = table.items() or [("", [])]
    ends = [event.offset for event in events]  # the schema wants a duration
    duration = round(table.durations[name], 6) if name in table.durations else max(ends, default=0)
    data = [
        {
            "time": event.onset,
            "duration": subtract_seconds(event.offset, event.onset),
            "value": event.label,
            "confidence": event.score if layout.scores else None,
        }
        for event in events
    ]
    about = {"curator": {"name": "", "email": ""}, "annotator": {}, "version": "", "corpus": ""}
    about |= {"annotation_tools": "earmark", "annotation_rules": "", "validation": ""}
    annotation = {
        "namespace": "tag_open",
        "data": data,
        "annotation_metadata": {**about, "data_source": "program"},
        "sandbox": {},
        "time": 0.0,
        "duration": duration,
    }
    metadata: dict[str, Any] = {"title": "", "artist": "", "release": "", "duration": duration}
    metadata |= {"identifiers": {}, "jams_version": _JAMS_VERSION}
    content = {
        "annotations": [annotation],
        "file_metadata": metadata,
        "sandbox": {"filename": name},
    }
    return f"{json.dumps(content, indent=1, ensure_ascii=False)}\n"


def _add_all(table: EventTable, events: Iterable[Any], where: str, name: str | None = None) -> None:
    for number, event in enumerate(events, start=1):
        at = f"{where}, event {number}"
        values = _named(_object(event, at))
        table.add(values if name is None else {**values, "filename": name}, at)


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by the names of columns, which are known by others too."""
    return {COLUMN_OF.get(name.lower(), name): value for name, value in values.items()}


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{where}: a JSON object belongs here. Got {str(value)[:40]!r}.")
    return value


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON: {str(error)[:100]}.") from error


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
