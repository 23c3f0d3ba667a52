"""Which event formats there are, and which of them a file has.

Conventions: `EVENT_FORMATS` is the one list: the command line, the documents and the tests read it,
and a new format is a reader, a writer and one line. The format of a file to write follows from its
suffix. A file to read with the suffix .txt, or an unknown one, is recognised by its first lines:
a Raven table, an Audacity label track, else a strong table.
"""

from collections.abc import Callable
from dataclasses import dataclass

from earmark.errors import SettingError, choose
from earmark.formats.event_table import EventTable, Layout
from earmark.formats.json_events import (
    jams_text,
    json_lines_text,
    json_text,
    read_jams,
    read_json,
    read_json_lines,
)
from earmark.formats.label_tracks import (
    audacity_text,
    raven_text,
    read_audacity,
    read_raven,
    read_rttm,
    rttm_text,
)
from earmark.formats.parquet import parquet_events, read_parquet_events
from earmark.formats.strong_tables import csv_text, read_strong_table, tsv_text
from earmark.formats.tables import Source
from earmark.formats.textgrid import read_textgrid, textgrid_text


@dataclass(frozen=True)
class EventFormat:
    """How events are read from a file and written to one, and what of them is kept.

    Args:
        read: from a path or an open file.
        encode: the content of a file, from a table and what to write of it.
        suffixes: of its files; the first is the one that is written.
        summary: what it is, for documents.
        holds_many: a file has many recordings; else one, which the file is named after.
        keeps_scores: scores of events; `score_by_default` if they are written unless refused.
        keeps_empty: recordings without events.
        keeps_durations: the duration of a recording.
        keeps_times: date and time of onset and offset.
        header_lines: of a file; files without these, one after the other, are one file. None if
            files cannot be joined.

    >>> EVENT_FORMATS["tsv"].suffixes
    ('.tsv',)
    """

    read: Callable[[Source], EventTable]
    encode: Callable[[EventTable, Layout], str | bytes]
    suffixes: tuple[str, ...]
    summary: str
    holds_many: bool = True
    keeps_scores: bool = True
    score_by_default: bool = True
    keeps_empty: bool = True
    keeps_durations: bool = False
    keeps_times: bool = False
    header_lines: int | None = None


# Name of a format -> its reader, its writer and what it keeps.
EVENT_FORMATS: dict[str, EventFormat] = {
    "tsv": EventFormat(
        read_strong_table, tsv_text, (".tsv",), "tab separated table (DCASE, DESED, sed_eval)",
        keeps_times=True, score_by_default=False, header_lines=1,
    ),
    "csv": EventFormat(
        read_strong_table, csv_text, (".csv",), "comma separated table",
        keeps_times=True, score_by_default=False, header_lines=1,
    ),
    "json": EventFormat(
        read_json, json_text, (".json",), "one JSON object",
        keeps_durations=True, keeps_times=True,
    ),
    "jsonl": EventFormat(
        read_json_lines, json_lines_text, (".jsonl", ".ndjson"), "one JSON object per event",
        keeps_times=True, header_lines=0,
    ),
    "parquet": EventFormat(
        read_parquet_events, parquet_events, (".parquet",), "columns (pandas, Spark, DuckDB)",
        keeps_times=True,
    ),
    "audacity": EventFormat(
        read_audacity, audacity_text, (".txt",), "label track of Audacity",
        holds_many=False, keeps_scores=False,
    ),
    "raven": EventFormat(
        read_raven, raven_text, (".selections.txt",), "selection table of Raven",
        keeps_empty=False,
    ),
    "textgrid": EventFormat(
        read_textgrid, textgrid_text, (".TextGrid",), "Praat, ELAN",
        holds_many=False, keeps_scores=False, keeps_durations=True,
    ),
    "jams": EventFormat(
        read_jams, jams_text, (".jams",), "JSON Annotated Music Specification (scaper)",
        holds_many=False, keeps_durations=True,
    ),
    "rttm": EventFormat(
        read_rttm, rttm_text, (".rttm",), "SPEAKER lines (pyannote, diarisation)",
        keeps_empty=False, header_lines=0,
    ),
}  # fmt: skip


def format_of_suffix(name: str) -> str | None:
    """Return the format that a file name has by its suffix, or None if no format has it.

    >>> format_of_suffix("a.TSV"), format_of_suffix("a.selections.txt"), format_of_suffix("a.wav")
    ('tsv', 'raven', None)
    """
    found = [
        (len(suffix), key)
        for key, own in EVENT_FORMATS.items()
        for suffix in own.suffixes
        if name.lower().endswith(suffix.lower())
    ]
    return max(found)[1] if found else None


def choose_format(name: str, format: str | None = None) -> str:
    """Return the format to write a file in: the one named, or the one of its suffix.

    >>> choose_format("events.json"), choose_format("events.dat", "csv")
    ('json', 'csv')
    >>> choose_format("events.dat")
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: No event format has the suffix of 'events.dat'. Known: .tsv, ...
    """
    if format is not None:
        return choose("event format", format, EVENT_FORMATS)
    guessed = format_of_suffix(name)
    if guessed is None:
        known = ", ".join(suffix for own in EVENT_FORMATS.values() for suffix in own.suffixes)
        raise SettingError(
            f"No event format has the suffix of {name!r}. Known: {known}. Use one of them, or name "
            f"the format: {', '.join(EVENT_FORMATS)}."
        )
    return guessed


def recognise_format(text: str) -> str:
    r"""Return the format of a text: raven, audacity or, for anything else, tsv.

    >>> recognise_format("0.5\t1.5\tdog\n"), recognise_format("a.wav\t0.5\t1.5\tdog\n")
    ('audacity', 'tsv')
    """
    lines = [line for line in text.removeprefix("\ufeff").split("\n") if line.strip()][:2]
    fields = [field.strip() for field in lines[0].split("\t")] if lines else []
    if "begin time (s)" in (field.lower() for field in fields):
        return "raven"
    if len(fields) in (2, 3) and all(_is_number(field) for field in fields[:2]):
        return "audacity"
    return "tsv"


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def losses(table: EventTable, target: str, format: str | None = None) -> list[str]:
    """Return what of a table the format of a target has no place for, as sentences.

    >>> losses(EventTable({"a.wav": []}), "events.rttm")
    ['The format rttm has no place for recordings without events: 1 is left out.']
    """
    name = choose_format(target, format)
    own = EVENT_FORMATS[name]
    scored = any(event.score is not None for events in table.values() for event in events)
    empty = sum(not events for events in table.values())
    lost = []
    if scored and not own.keeps_scores:
        lost.append(f"The format {name} has no place for scores: they are left out.")
    if empty and not own.keeps_empty:
        lost.append(
            f"The format {name} has no place for recordings without events: {empty} "
            f"{'is' if empty == 1 else 'are'} left out."
        )
    return lost
