"""Delimited text <-> rows with line numbers, which the readers of events and tags build on.

Conventions: UTF-8, with or without a byte order mark; lines end in LF or CRLF; blank lines are
skipped. A text that contains a tab is tab separated. Otherwise it is semicolon separated, as
European spreadsheets save it, if every row has a semicolon before any comma, outside of quotes, or
neither; any other is comma separated. A first line such as `sep=;` decides it. In a semicolon
separated table a number may have a decimal comma. Fields may be quoted with `"`, but no field spans
lines.

The first row is a header if it names its columns, in any order and by any of the names in
`COLUMNS`; where it has none of these for a column, by one of `OTHER_NAMES`. Columns of other names
are ignored. A first row that is no header although it has no file name, as all others have, is an
error. Tables are written atomically.
"""

import csv
import io
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, TypeAlias

from earmark.errors import DataError
from earmark.files import atomic_write

Source: TypeAlias = str | os.PathLike[str] | TextIO

COLUMNS = {
    "filename": ("filename", "file_name", "file", "audio_filename"),
    "onset": ("onset", "start", "start_time", "event_onset"),
    "offset": ("offset", "end", "end_time", "event_offset"),
    "event_label": ("event_label", "label", "event", "class", "category"),
    "event_labels": ("event_labels", "labels", "events", "classes", "tags"),
    "score": ("score", "confidence", "probability"),
    "fold": ("fold",),
    "duration": ("duration", "length", "seconds"),
}
# Names that other tools use. They count only where the header has none of the above for the column,
# and make a row a header only together with another column: "clip" may be a label, too.
OTHER_NAMES = {
    "filename": (
        *("path", "filepath", "file_path", "fname", "name", "clip", "clip_name", "audio"),
        *("audio_file", "audio_path", "recording", "wav", "wav_file", "slice_file_name", "sound"),
    ),
    "onset": ("onset_s", "start_s", "start_seconds", "begin", "begin_time"),
    "offset": ("offset_s", "end_s", "end_seconds", "stop", "stop_time"),
    "event_label": ("tag", "class_name", "species", "annotation"),
    "event_labels": ("annotations", "positive_labels", "tag_list"),
}
NUMBERS = ("onset", "offset", "score", "duration")  # columns that may have a decimal comma
COLUMN_OF = {name: column for column, names in COLUMNS.items() for name in names}
_OTHER_COLUMN_OF = {name: column for column, names in OTHER_NAMES.items() for name in names}
_QUOTED = re.compile(r'"[^"]*"')
_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9]{1,4}$")  # of a file name: .wav, .mp3, .flac


@dataclass(frozen=True, slots=True)
class Row:
    r"""The unchanged fields of one line, and `where` it is (`file:line`).

    >>> Row("a.tsv:1", ("a.wav", "dog"), "\t").where
    'a.tsv:1'
    """

    where: str
    fields: tuple[str, ...]
    separator: str

    def named(self, columns: Sequence[str]) -> dict[str, str]:
        """Return column -> stripped field; missing fields at the end are empty.

        In a comma separated table whose last column is a label, surplus fields are parts of a label
        with unquoted commas, and are joined again; so are those of a list of labels.

        >>> row = Row("a.csv:1", ("a.wav", "0", "1", "Air horn", " truck horn"), ",")
        >>> row.named(["filename", "onset", "offset", "event_label"])["event_label"]
        'Air horn, truck horn'
        """
        fields = list(self.fields)
        while len(fields) > len(columns) and not fields[-1].strip():
            fields.pop()
        if len(fields) > len(columns):
            joined = {",": ("event_label", "event_labels"), ";": ("event_labels",)}
            if columns[-1] not in joined.get(self.separator, ()):
                raise DataError(
                    f"{self.where}: {len(fields)} fields instead of {len(columns)} "
                    f"({', '.join(columns)}). Quote a label that contains a comma, and name any "
                    f"further columns in a header row."
                )
            fields[len(columns) - 1 :] = [self.separator.join(fields[len(columns) - 1 :])]
        fields += [""] * (len(columns) - len(fields))
        values = {column: field.strip() for column, field in zip(columns, fields, strict=True)}
        if self.separator == ";":
            values |= {x: values[x].replace(",", ".") for x in NUMBERS if x in values}
        return values


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a text and the columns that its header names; None without a header.

    >>> Table("a.tsv", None, []).require("filename")
    """

    name: str
    columns: tuple[str, ...] | None
    rows: list[Row]

    def require(self, *needed: str) -> None:
        """Raise if there is a header and it lacks a column of `needed`."""
        lacking = [column for column in needed if column not in (self.columns or needed)]
        if lacking:
            raise DataError(
                f"{self.name}: the header has no column {' or '.join(map(repr, lacking))}; it has "
                f"{', '.join(map(repr, self.columns or ()))}. Name the columns {', '.join(needed)}."
            )


def read_table(source: Source) -> Table:
    r"""Return the rows of a file or of an open text stream, and its header if it has one.

    >>> table = read_table(io.StringIO("onset\toffset\tfilename\n0.5\t1.0\ta.wav\n"))
    >>> table.columns, table.rows[0].fields, table.rows[0].where
    (('onset', 'offset', 'filename'), ('0.5', '1.0', 'a.wav'), '<text>:2')
    """
    name, text = read_text(source)
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    separator, lines = _separator(lines)
    rows = [
        Row(f"{name}:{number}", _split(line, separator, f"{name}:{number}"), separator)
        for number, line in lines
    ]
    columns = _header(rows[0]) if rows else None
    if columns is None:
        _check_first(rows)
    return Table(name, columns, rows[1:] if columns else rows)


def write_table(target: Source, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    r"""Write a header and rows, tab separated, or comma separated if the name ends in .csv.

    >>> text = io.StringIO()
    >>> write_table(text, ["filename", "event_labels"], [["a.wav", "dog,cat"]])
    >>> text.getvalue()
    'filename\tevent_labels\na.wav\tdog,cat\n'
    """
    name = source_name(target)
    separator = "," if name.lower().endswith(".csv") else "\t"
    write_text(target, table_text(columns, rows, separator, name))


def table_text(
    columns: Sequence[str], rows: Iterable[Sequence[str]], separator: str, name: str
) -> str:
    r"""Return a header and rows as text; `name` is that of the table, for error messages.

    >>> table_text(["filename", "event_label"], [["a.wav", "dog, cat"]], ",", "a.csv")
    'filename,event_label\na.wav,"dog, cat"\n'
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=separator, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        for field in row:
            check_field(field, name)
        writer.writerow(row)
    return buffer.getvalue()


def write_text(target: Source, content: str | bytes) -> None:
    r"""Write text or bytes to a path, atomically, or to an open stream.

    >>> text = io.StringIO()
    >>> write_text(text, "a\n")
    >>> text.getvalue()
    'a\n'
    """
    if isinstance(target, str | os.PathLike):
        atomic_write(Path(target), encode_text(content, source_name(target)))
    elif isinstance(content, str):
        target.write(content)
    elif hasattr(target, "buffer"):
        target.flush()
        target.buffer.write(content)
    else:
        raise DataError(
            f"Cannot write to {source_name(target)}: the format is binary. Pass a path instead."
        )


def encode_text(content: str | bytes, name: str) -> bytes:
    r"""Return the content of a file as bytes; raise if a file name in it is not Unicode.

    >>> encode_text("dog\n", "a.tsv")
    b'dog\n'
    """
    if isinstance(content, bytes):
        return content
    try:
        return content.encode()
    except UnicodeEncodeError as error:
        before, after = content[: error.start], content[error.end :]
        wrong = re.split(r"[\t\n,\"]", before)[-1] + content[error.start : error.end]
        wrong += re.split(r"[\t\n,\"]", after, maxsplit=1)[0]
        raise DataError(
            f"Cannot write {wrong!r} to {name}: it is not valid Unicode. Rename the file."
        ) from error


def source_name(source: Source) -> str:
    """Return the path of a file, or the name of a stream.

    >>> source_name(Path("a.tsv")), source_name(io.StringIO())
    ('a.tsv', '<text>')
    """
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    return str(getattr(source, "name", "<text>"))


def read_text(source: Source) -> tuple[str, str]:
    r"""Return the name and the whole text, without byte order mark and with LF line ends.

    >>> read_text(io.StringIO("a\r\nb"))
    ('<text>', 'a\nb')
    """
    name = source_name(source)
    try:
        text = (
            Path(source).read_text(encoding="utf-8")
            if isinstance(source, str | os.PathLike)
            else source.read()
        )
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not UTF-8 text ({error.reason}). Save it as UTF-8.") from error
    except OSError as error:
        raise DataError(f"Cannot read the table {name}: {error.strerror or error}.") from error
    return name, text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _split(line: str, separator: str, where: str) -> tuple[str, ...]:
    if '"' not in line:
        return tuple(line.split(separator))
    try:
        # Line by line on purpose: a stray quote must not swallow the rows below it.
        return tuple(next(csv.reader([line], delimiter=separator, strict=True)))
    except csv.Error as error:
        raise DataError(
            f'{where}: a quote is opened and not closed ({error}). Put "..." around the '
            f'whole field and double every " inside it.'
        ) from error


def _separator(lines: list[tuple[int, str]]) -> tuple[str, list[tuple[int, str]]]:
    """Return what separates the fields, and the lines without one that only says so."""
    if lines and (named := re.fullmatch(r"sep=([,;\t])", lines[0][1].strip(" "))):
        return named[1], lines[1:]
    if any("\t" in line for _, line in lines):
        return "\t", lines
    first = {
        min((bare.find(sign), sign) for sign in ",;" if sign in bare)[1]
        for bare in (_QUOTED.sub("", line) for _, line in lines)
        if "," in bare or ";" in bare
    }
    return (";" if first == {";"} else ","), lines


def _header(row: Row) -> tuple[str, ...] | None:
    """Return the columns that the first row names, or None if it is a row of data."""
    names = [field.strip().lower().replace(" ", "_") for field in row.fields]
    usual = {COLUMN_OF[name] for name in names if name in COLUMN_OF}
    column_of = COLUMN_OF | {
        name: column for name, column in _OTHER_COLUMN_OF.items() if column not in usual
    }
    known = [column_of[name] for name in names if name in column_of]
    if "filename" not in usual and len(set(known)) < 2:
        return None
    for column in known:
        if known.count(column) > 1:
            twice = [name for name in names if column_of.get(name) == column]
            raise DataError(
                f"{row.where}: the header names the column {column!r} more than once "
                f"({', '.join(twice)}). Keep one of them."
            )
    return tuple(column_of.get(name, name) for name in names)


def _check_first(rows: Sequence[Row]) -> None:
    """Raise if the first row, which is no header, has no file name in the column of all others."""
    if len(rows) < 2:
        return
    named = [[bool(_SUFFIX.search(field.strip())) for field in row.fields] for row in rows]
    columns = [at for at in range(len(named[1])) if all(len(x) > at and x[at] for x in named[1:])]
    if columns and not any(named[0]):
        fields = ", ".join(repr(field.strip()) for field in rows[0].fields)
        raise DataError(
            f"{rows[0].where}: the first row has no file name, as the others have in column "
            f"{columns[0] + 1}, so it seems to be a header of unknown names ({fields}). Write "
            "filename, event_labels (or filename, onset, offset, event_label) in their place."
        )


def check_field(field: str, name: str) -> None:
    """Raise if `field` would be read back differently.

    >>> check_field("Air horn, truck horn", "a.tsv")
    """
    if field != field.strip() or any(sign in field for sign in "\t\r\n"):
        raise DataError(
            f"Cannot write {field!r} to {name}: a name or label must not contain a tab or a "
            f"line end, nor begin or end with a space."
        )
