"""Events <-> strong tables, tab or comma separated: the formats `tsv` and `csv`.

Conventions: a strong table has one event per row, `filename, onset, offset, event_label` and an
optional `score` (DCASE, DESED), in any layout that `earmark.formats.tables` reads. A row without
times is a recording without events. `onset_time` and `offset_time` are its date and time.
"""

from earmark.formats.event_table import STRONG_COLUMNS, TIME_COLUMNS, EventTable, Layout
from earmark.formats.tables import Source, read_table, table_text


def read_strong_table(source: Source) -> EventTable:
    r"""Return the events of each recording in a strong table.

    >>> import io
    >>> read_strong_table(io.StringIO("a.wav\t0\t1.5\tdog\nb.wav\n"))
    {'a.wav': [Event(onset=0.0, offset=1.5, label='dog', score=None)], 'b.wav': []}
    """
    table = read_table(source)
    table.require(*STRONG_COLUMNS)
    events = EventTable()
    for row in table.rows:
        events.add(row.named(table.columns or STRONG_COLUMNS), row.where)
    return events


def tsv_text(table: EventTable, layout: Layout) -> str:
    r"""Return a tab separated table.

    >>> from earmark.formats.event_table import Event
    >>> tsv_text(EventTable({"a.wav": [Event(0.5, 2, "dog")]}), Layout())
    'filename\tonset\toffset\tevent_label\na.wav\t0.500\t2.000\tdog\n'
    """
    return _text(table, layout, "\t")


def csv_text(table: EventTable, layout: Layout) -> str:
    r"""Return a comma separated table.

    >>> csv_text(EventTable({"a.wav": []}), Layout())
    'filename,onset,offset,event_label\na.wav,,,\n'
    """
    return _text(table, layout, ",")


def _text(table: EventTable, layout: Layout, separator: str) -> str:
    columns = [
        *STRONG_COLUMNS,
        *(["score"] if layout.scores else []),
        *(TIME_COLUMNS if layout.times else []),
    ]
    rows = []
    for name, events in table.items():
        if not events:
            rows.append([name, *[""] * (len(columns) - 1)])
        for event in events:
            row = [name, *(f"{x:.{layout.decimals}f}" for x in (event.onset, event.offset))]
            row.append(event.label)
            if layout.scores:
                row.append("" if event.score is None else f"{event.score:.6g}")
            if layout.times:
                row += layout.date_times(event, table.starts.get(name))
            rows.append(row)
    return table_text(columns, rows, separator, "a table of events")
