"""Weak tables <-> the tags of each clip: which classes it contains, but not when.

Conventions: the tags of a clip are a sorted tuple of distinct labels, empty for a clip without
tags. These layouts are read; rows of the same clip are merged:

    filename  event_labels              with a header: several labels joined by , or ; or |
    filename  event_label               with a header: one label per row, which may contain commas
    filename  labels                    without a header: as event_labels
    filename  onset  offset  label      one label per row (DCASE 2017 ground truth); 0 to 0: no tag
    id, start, end, "labels", "ids"     DCASE 2017 lists; the clip is {id}_{start}_{end}.wav

Any other event format (`earmark.formats.registry`) has the tags of its events.

In a joined list `;` and `|` separate labels, and a comma does unless a space follows, as in DESED
and DCASE: labels may contain commas ("Air horn, truck horn"); a list that could be read both ways
is an error. If the known labels are given, a joined list is resolved against them, longest first.
Where there is one label per row, a `;` or `|` in it is an error.
"""

import logging
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePath

from earmark.errors import DataError, choose
from earmark.formats.event_table import STRONG_COLUMNS, read_seconds
from earmark.formats.events import event_format, read_events
from earmark.formats.tables import Row, Source, read_table, write_table

logger = logging.getLogger(__name__)

SEPARATORS = ";|"  # of labels, besides the comma
_OFFICIAL_COLUMNS = ("id", "start", "end", "event_labels", "ids")
_IDS = re.compile(r"/[a-z]+/\w+(,/[a-z]+/\w+)*")  # "/m/0284vy3,/m/07jdr": class ids of AudioSet
_JOINED_NAME = re.compile(r"\.(wav|flac|ogg|mp3|opus|aiff?|m4a)\s*[;|,]", re.I)


class TagTable(dict[str, tuple[str, ...]]):
    """File name -> its tags, sorted; `n_dropped` counts rows of zero length, which are no tags.

    `columns` are those that the header of the table names.

    >>> TagTable({"a.wav": ("dog",)}).n_dropped
    0
    """

    n_dropped: int = 0
    columns: tuple[str, ...] = ()


def read_tags(source: Source, labels: Sequence[str] | None = None) -> TagTable:
    r"""Return the tags of each clip in a weak table, or in a strong one, whose times are ignored.

    Args:
        source: a file, or an open text stream.
        labels: the known labels; any other label is an error.

    >>> import io
    >>> read_tags(io.StringIO("filename\tevent_labels\na.wav\tdog,cat\nb.wav\t\n"))
    {'a.wav': ('cat', 'dog'), 'b.wav': ()}
    >>> read_tags(io.StringIO("-5Qr,60.000,70.000,\"Fire engine, fire truck,Car\",\"/m/1,/m/2\""))
    {'-5Qr_60.000_70.000.wav': ('Car', 'Fire engine, fire truck')}
    """
    if event_format(source) not in ("tsv", "csv"):
        events = read_events(source)
        by_file = {name: {event.label for event in own} for name, own in events.items()}
        for name, own in by_file.items():
            _check_known(own, labels, f"{source}, {name}")
        return TagTable({name: tuple(sorted(own)) for name, own in by_file.items()})
    table = read_table(source)
    table.require("filename", "event_labels" if _is_joined(table.columns or ()) else "event_label")
    by_length = None if labels is None else sorted(labels, key=lambda label: (-len(label), label))
    tags: dict[str, set[str]] = {}
    n_dropped = 0
    split_at: set[str] = set()
    doubtful: dict[str, str] = {}  # label with a comma, from a joined list -> its first row
    for row in table.rows:
        columns = table.columns or _columns_of(row)
        values = row.named(columns)
        name = values.get("filename") or _official_name(values)
        if not name:
            raise DataError(f"{row.where}: the row has no file name. Put it in the first column.")
        if _JOINED_NAME.search(name):
            raise DataError(
                f"{row.where}: the file name {name!r} seems to be more than one column. Separate "
                "the columns of all rows by tabs, or all by semicolons."
            )
        of_clip = tags.setdefault(name, set())
        if _has_no_length(values, row.where):
            n_dropped += 1
            continue
        if _is_joined(columns):
            found = _split_labels(values["event_labels"], by_length, row.where)
            doubtful |= {x: row.where for x in found if "," in x and x not in doubtful}
            split_at |= {*SEPARATORS} & {*values["event_labels"]}
        else:
            found = [values["event_label"]] if values["event_label"] else []
            if labels is None:
                _check_single(found, row.where)
        _check_known(found, labels, row.where)
        of_clip.update(found)
    if labels is None:
        _check_unambiguous(doubtful, set().union(*tags.values()))
        if split_at:
            signs = " and ".join(repr(sign) for sign in SEPARATORS if sign in split_at)
            logger.info("%s: labels are separated by %s.", table.name, signs)
    found_tags = TagTable({name: tuple(sorted(of_clip)) for name, of_clip in tags.items()})
    found_tags.n_dropped, found_tags.columns = n_dropped, table.columns or ()
    return found_tags


def read_groups(source: Source, column: str) -> dict[str, str]:
    r"""Return the group of each clip, such as its speaker, from a column of a table.

    Args:
        source: a table with a header.
        column: the name of the column; case does not matter.

    >>> import io
    >>> read_groups(io.StringIO("filename\tlabel\tSpeaker\na.wav\tdog\t7\n"), "speaker")
    {'a.wav': '7'}
    """
    table = read_table(source)
    name = column.strip().lower().replace(" ", "_")
    if name not in (table.columns or ()):
        has = f"the columns {', '.join(table.columns)}" if table.columns else "no header"
        raise DataError(f"{table.name} has no column {column!r} of groups; it has {has}.")
    groups: dict[str, str] = {}
    for row in table.rows:
        values = row.named(table.columns or ())
        file, group = values["filename"], values[name]
        if not group:
            raise DataError(f"{row.where}: {file} has no {column}. Write one for every clip.")
        if groups.setdefault(file, group) != group:
            raise DataError(
                f"{row.where}: {file} has the {column} {group!r}, and {groups[file]!r} in a row "
                "above. A clip belongs to one group."
            )
    return groups


def write_tags(target: Source, tags: Mapping[str, Iterable[str]]) -> None:
    r"""Write a weak table, clips in the order given.

    There is one row per clip (`filename, event_labels`), as in DESED. If a label contains a comma,
    there is one row per clip and label (`filename, event_label`), which can be read unambiguously.

    >>> import io
    >>> text = io.StringIO()
    >>> write_tags(text, {"a.wav": ["dog", "cat"], "b.wav": []})
    >>> text.getvalue()
    'filename\tevent_labels\na.wav\tcat,dog\nb.wav\t\n'
    """
    by_clip = {name: sorted(set(labels)) for name, labels in tags.items()}
    for name, labels in by_clip.items():
        if not name or "" in labels:
            raise DataError(f"Cannot write an empty name or label: {name!r}, {labels}.")
        for label in labels:
            if label != label.strip():
                raise DataError(f"The label {label!r} of {name} begins or ends with a space.")
            if any(sign in label for sign in SEPARATORS):
                raise DataError(
                    f"The label {label!r} of {name} contains ; or |, which separate labels in a "
                    "table. Rename it."
                )
    if any("," in label for labels in by_clip.values() for label in labels):
        rows = [[name, label] for name, labels in by_clip.items() for label in labels or [""]]
        write_table(target, ["filename", "event_label"], rows)
    else:
        rows = [[name, ",".join(labels)] for name, labels in by_clip.items()]
        write_table(target, ["filename", "event_labels"], rows)


def tags_from_folders(files: Iterable[str | os.PathLike[str]]) -> dict[str, tuple[str, ...]]:
    """Return the tags of files in one folder per class; the names stay as given.

    >>> tags_from_folders(["sounds/dog/1.wav", "sounds/cat/1.wav"])
    {'sounds/dog/1.wav': ('dog',), 'sounds/cat/1.wav': ('cat',)}
    """
    tags: dict[str, tuple[str, ...]] = {}
    for file in files:
        label = PurePath(file).parent.name
        if label in ("", ".."):
            raise DataError(
                f"{os.fspath(file)!r} is in no folder that could be its class. Pass paths such as "
                "'sounds/dog/1.wav'."
            )
        check_label(label, f"The folder of {os.fspath(file)!r}")
        tags[os.fspath(file)] = (label,)
    return tags


def check_label(label: str, where: str) -> None:
    r"""Raise if a label could not be written to a file: it is not Unicode, or has a line end.

    >>> check_label("dog\udcff", "weak.tsv:2")
    Traceback (most recent call last):
        ...
    earmark.errors.DataError: weak.tsv:2: the label 'dog\udcff' is not valid Unicode; rename it.
    """
    try:
        label.encode()
    except UnicodeEncodeError:
        raise DataError(f"{where}: the label {label!r} is not valid Unicode; rename it.") from None
    if label != label.strip() or any(sign in label for sign in "\t\r\n"):
        raise DataError(
            f"{where}: the label {label!r} has a tab or a line end, or begins or ends with a "
            "space; rename it."
        )


def _columns_of(row: Row) -> Sequence[str]:
    """Return the columns of a row of a table without header, inferred from its fields."""
    fields = [field.strip() for field in row.fields]
    if row.separator == ";":  # numbers may have a decimal comma
        fields = [field.replace(",", ".") for field in fields]
    if len(fields) == len(_OFFICIAL_COLUMNS) and _IDS.fullmatch(fields[-1]):
        return _OFFICIAL_COLUMNS
    if len(fields) >= len(STRONG_COLUMNS) and all(map(_may_be_time, fields[1:3])):
        return STRONG_COLUMNS
    return ("filename", "event_labels")


def _is_joined(columns: Collection[str]) -> bool:
    """Return whether these columns contain several labels per row."""
    return "event_labels" in columns


def _may_be_time(field: str) -> bool:
    return not field or field.lstrip("-").replace(".", "", 1).isdigit()


def _official_name(values: Mapping[str, str]) -> str:
    """Return the file name that DCASE's ground truth has for a clip of the official lists."""
    return "{id}_{start}_{end}.wav".format_map(values) if values.get("id") else ""


def _has_no_length(values: Mapping[str, str], where: str) -> bool:
    """Return whether a row has equal onset and offset: DCASE marks wrong labels this way."""
    if not (values.get("onset") and values.get("offset")):
        return False
    onset, offset = (read_seconds(values[name], name, where) for name in ("onset", "offset"))
    return onset == offset


def _split_labels(cell: str, by_length: Sequence[str] | None, where: str) -> list[str]:
    """Return the labels joined in `cell`; known labels, if given, are tried longest first."""
    if by_length is None:
        return [label.strip() for label in re.split(r",(?!\s)|[;|]", cell) if label.strip()]
    found = _resolve(cell, by_length)
    if found is None:
        _check_known([label.strip() for label in re.split("[,;|]", cell)], by_length, where)
        raise DataError(f"{where}: {cell!r} is not a list of known labels: {', '.join(by_length)}.")
    return found


def _resolve(cell: str, by_length: Sequence[str]) -> list[str] | None:
    """Return the labels of a cell, or None if it is no list of them; each place is tried once."""
    cell = cell.strip()
    cell = cell[:-1] if cell.endswith((",", *SEPARATORS)) else cell
    # What is left to try at each place of the list that is tried now, with the label before it.
    found: list[str] = []
    places = [(0, iter(by_length))]
    dead: set[int] = set()  # places from which there is no way to the end
    while places:
        start, labels = places[-1]
        if start >= len(cell):
            return found
        for label in labels:
            if not cell.startswith(label, start):
                continue
            end = _skip_space(cell, start + len(label))
            if end == len(cell):
                return [*found, label]
            after = _skip_space(cell, end + 1)
            if cell[end] in (",", *SEPARATORS) and after not in dead:
                found.append(label)
                places.append((after, iter(by_length)))
                break
        else:
            dead.add(start)
            places.pop()
            if found:
                found.pop()
    return None


def _skip_space(cell: str, at: int) -> int:
    while at < len(cell) and cell[at].isspace():
        at += 1
    return at


def _check_known(found: Iterable[str], labels: Collection[str] | None, where: str) -> None:
    for label in found:
        if labels is not None and label not in labels:
            choose("label", label, labels, DataError, where)


def _check_single(found: Iterable[str], where: str) -> None:
    """Raise if what should be one label seems to be a list of them."""
    for label in found:
        if any(sign in label for sign in SEPARATORS):
            raise DataError(
                f"{where}: {label!r} is in a column of one label per row. Name the column "
                "event_labels if it is a list; otherwise rename the label, or pass labels=[...] "
                "with all known labels."
            )


def _check_unambiguous(doubtful: Mapping[str, str], found: Collection[str]) -> None:
    """Raise if 'dog, cat' was read as one label while 'dog' and 'cat' are labels too."""
    for label, where in doubtful.items():
        parts = [part.strip() for part in label.split(",")]
        if all(part in found for part in parts):
            raise DataError(
                f"{where}: {label!r} may be one label or {len(parts)}. Pass labels=[...] with all "
                f"known labels, or write one row per clip and label under the header "
                f"filename, event_label."
            )
