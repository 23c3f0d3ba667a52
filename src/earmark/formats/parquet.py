"""Tables <-> Parquet files, by pyarrow (the extra `parquet`): events, and any columns.

Conventions: events have the columns `filename, onset, offset, event_label, score` and, where asked
for, `onset_time` and `offset_time` as text; a recording without events is a row of nulls. Columns
of other names are ignored.
"""

import io
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earmark.errors import DataError, SettingError, refusing
from earmark.formats.event_table import STRONG_COLUMNS, TIME_COLUMNS, EventTable, Layout
from earmark.formats.tables import COLUMN_OF, Source, source_name


def read_parquet_events(source: Source) -> EventTable:
    """Return the events of a Parquet file.

    >>> table = EventTable({"a.wav": []})
    >>> read_parquet_events(io.BytesIO(parquet_events(table, Layout())))
    {'a.wav': []}
    """
    name = source_name(source)
    columns = {COLUMN_OF.get(x.lower(), x): own for x, own in read_parquet(source).items()}
    lacking = [column for column in STRONG_COLUMNS if column not in columns]
    if lacking:
        raise DataError(
            f"{name}: there is no column {' or '.join(map(repr, lacking))}. Name the columns "
            f"{', '.join(STRONG_COLUMNS)}."
        )
    wanted = {x: columns[x] for x in (*STRONG_COLUMNS, "score") if x in columns}
    table = EventTable()
    for number, row in enumerate(zip(*wanted.values(), strict=True), start=1):
        values = {
            column: None if isinstance(value, float) and math.isnan(value) else value  # pandas' nan
            for column, value in zip(wanted, row, strict=True)
        }
        table.add(values, f"{name}, row {number}")
    return table


def parquet_events(table: EventTable, layout: Layout) -> bytes:
    """Return a Parquet file of events.

    >>> from earmark.formats.event_table import Event
    >>> parquet_events(EventTable({"a.wav": [Event(0.5, 2, "dog")]}), Layout())[:4]
    b'PAR1'
    """
    arrow = _pyarrow()
    columns: dict[str, list[Any]] = {name: [] for name in (*STRONG_COLUMNS, "score", *TIME_COLUMNS)}
    for name, events in table.items():
        rows: list[tuple[Any, ...]] = [] if events else [(name, *[None] * 6)]
        for event in events:
            times = layout.date_times(event, table.starts.get(name))
            score = event.score if layout.scores else None
            row = (name, event.onset, event.offset, event.label, score)
            rows.append((*row, *(time or None for time in times)))
        for row in rows:
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
    kinds = [arrow.string(), arrow.float64(), arrow.float64(), arrow.string(), arrow.float64()]
    kinds += [arrow.string()] * 2
    if not layout.scores:
        del columns["score"], kinds[4]
    if not layout.times:
        del columns[TIME_COLUMNS[0]], columns[TIME_COLUMNS[1]], kinds[-2:]
    return write_parquet(columns, kinds)


def write_parquet(columns: Mapping[str, Any], kinds: Sequence[Any] | None = None) -> bytes:
    """Return a Parquet file of columns of one length.

    Args:
        columns: name -> values, or an array.
        kinds: pyarrow's type of each column; by default that of its values.

    >>> read_parquet(io.BytesIO(write_parquet({"onset": [0.0, 0.5]})))
    {'onset': [0.0, 0.5]}
    """
    arrow = _pyarrow()
    from pyarrow import parquet

    buffer = io.BytesIO()
    try:
        arrays = [
            arrow.array(values, kind)
            for values, kind in zip(columns.values(), kinds or [None] * len(columns), strict=True)
        ]
        parquet.write_table(arrow.table(arrays, names=list(columns)), buffer)
    except (arrow.ArrowException, UnicodeError) as error:
        raise DataError(f"Cannot write Parquet: {str(error)[:200]}. Rename the file.") from error
    return buffer.getvalue()


def read_parquet(source: Any) -> dict[str, list[Any]]:
    """Return the columns of a Parquet file, from a path or a binary stream.

    >>> read_parquet(io.BytesIO(write_parquet({"n": [1, 2]})))
    {'n': [1, 2]}
    """
    table = _read(source)
    with refusing(f"Cannot read {source_name(source)} as Parquet", DataError):
        return {column: table[column].to_pylist() for column in table.column_names}


def read_parquet_arrays(source: Any) -> dict[str, NDArray[np.floating[Any]]]:
    """Return the columns of a Parquet file of numbers as arrays.

    >>> read_parquet_arrays(io.BytesIO(write_parquet({"n": [0.5, 2]})))
    {'n': array([0.5, 2. ])}
    """
    table = _read(source)
    try:
        return {
            column: np.asarray(table[column].to_numpy()).astype(
                np.float32 if str(table[column].type) == "float" else np.float64
            )
            for column in table.column_names
        }
    except (ValueError, TypeError) as error:
        raise DataError(f"{source_name(source)}: a column is not of numbers ({error}).") from error


def parquet_columns(path: Path) -> list[str]:
    """Return the names of the columns of a Parquet file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.parquet").write_bytes(write_parquet({"n": [1, 2]}))
    ...     parquet_columns(Path(folder, "a.parquet"))
    ['n']
    """
    return list(_read(path).column_names)


def _read(source: Any) -> Any:
    arrow = _pyarrow()
    from pyarrow import parquet

    name = source_name(source)
    try:
        content = (
            Path(source).read_bytes() if isinstance(source, str | os.PathLike) else source.read()
        )
        table = parquet.read_table(arrow.BufferReader(content))
        table.column_names  # noqa: B018 - raises if one is not UTF-8
        return table
    except (arrow.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"Cannot read {name} as Parquet: {str(error)[:200]}.") from error


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise SettingError(
            "Parquet needs pyarrow. Install it with: pip install 'earmark[parquet]'"
        ) from None
    return pyarrow
