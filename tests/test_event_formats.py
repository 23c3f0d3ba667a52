"""Every event format: what was written is read back, also by the programs it was made for."""

import io
import json
import sys
import warnings
from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from earmark.errors import DataError, EarmarkError, SettingError
from earmark.formats.events import (
    Event,
    EventTable,
    encode_events,
    event_files,
    read_events,
    write_events,
)
from earmark.formats.registry import EVENT_FORMATS, format_of_suffix
from earmark.formats.tags import read_tags
from earmark.metrics.system_output import read_system_output

AIR_HORN = "Air horn, truck horn"
ONE_FILE = [name for name, own in EVENT_FORMATS.items() if own.holds_many]
PER_FILE = [name for name, own in EVENT_FORMATS.items() if not own.holds_many]
every_format = pytest.mark.parametrize("format", EVENT_FORMATS)

TABLE = {
    "street/a.wav": [
        Event(0.1, 0.3, "dog", 0.8125),
        Event(0.2, 1.234, AIR_HORN, 0.75),
        Event(0.25, 0.75, "dog", 1.0),
    ],
    "b c.wav": [],
    "été.wav": [Event(0.0, 100000.001, 'a "b" 100% <NA> \\', 0.5)],
}


def path_in(folder, format, stem="events"):
    return folder / f"{stem}{EVENT_FORMATS[format].suffixes[0]}"


def as_kept(table, format):
    """What a format keeps of a table: sorted; scores and recordings without events, or not."""
    own = EVENT_FORMATS[format]
    return {
        name: [e if own.keeps_scores else replace(e, score=None) for e in sorted(events)]
        for name, events in table.items()
        if events or own.keeps_empty
    }


@pytest.mark.parametrize("format", ONE_FILE)
def test_a_format_of_many_recordings_is_read_back_from_its_suffix(format, tmp_path):
    path = path_in(tmp_path, format)
    write_events(path, TABLE)
    assert read_events(path) == as_kept(TABLE, format)
    assert list(read_events(path)) == list(as_kept(TABLE, format))
    other = tmp_path / "events.dat"
    write_events(other, TABLE, format=format)
    assert other.read_bytes() == path.read_bytes() or format == "parquet"
    assert read_events(other, format) == as_kept(TABLE, format)


@every_format
def test_a_folder_has_one_file_per_recording_and_is_read_back(format, tmp_path):
    write_events(f"{tmp_path}/found/", TABLE, format=format)
    files = event_files(tmp_path / "found", TABLE, format)
    assert sorted(path for path in (tmp_path / "found").rglob("*") if path.is_file()) == sorted(
        files.values()
    )
    assert files["street/a.wav"].parent.name == "street"
    found = read_events(tmp_path / "found", format)
    kept = as_kept(TABLE, format)
    by_stem = {name.removesuffix(".wav"): own for name, own in found.items()}
    if not EVENT_FORMATS[format].keeps_empty and format == "raven":
        assert by_stem.pop("b c") == []  # the file without rows is named after the recording
    assert by_stem == {name.removesuffix(".wav"): own for name, own in kept.items()}
    output = read_system_output(tmp_path / "found")  # evaluate takes the folder
    assert sum(map(len, output.events.values())) == 4


SIGNS = "ab1é日𝄞 ,;:'\"\\%<>!#|&[]{}()\u3000\u0301-"
label = st.text(SIGNS, min_size=1, max_size=9).map(str.strip)
seconds = st.integers(0, 10**7).map(lambda ms: ms / 1000)
events = st.builds(
    lambda onset, ms, label, score: Event(onset, round(onset + ms / 1000, 3), label, score),
    seconds,
    st.integers(1, 10**6),
    label.filter(bool),
    st.none() | st.integers(0, 1000).map(lambda x: x / 1000),
)
names = label.filter(lambda text: text.strip("./\\ ") != "" and "/" not in text)


@every_format
@given(table=st.dictionaries(names, st.lists(events, max_size=4), max_size=3))
@example(table={"a%20b": [Event(0.1, 0.3, "%")]})
@example(table={"dog": [Event(0, 1, "dog"), Event(0, 1, "dog 2"), Event(0, 1, "dog")]})
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_events_are_read_back_from_any_format(format, table, tmp_path):
    own = EVENT_FORMATS[format]
    tables = [table] if own.holds_many else [{name: x} for name, x in table.items()]
    for one in tables:
        path = path_in(tmp_path, format)
        write_events(path, one)
        found = read_events(path)
        if not own.holds_many and format != "jams":  # the recording is named after the file
            assert list(found) == ["events"]
            found = dict(zip(one, found.values(), strict=True))
        if format == "raven" and not any(one.values()):
            assert found == {"events": []}
            continue
        assert found == as_kept(one, format)


@every_format
@given(content=st.binary(max_size=60) | st.text(SIGNS + "0.5\t\n", max_size=60).map(str.encode))
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_bytes_are_events_or_an_error_of_ours(format, content, tmp_path):
    path = path_in(tmp_path, format)
    path.write_bytes(content)
    try:
        found = read_events(path)
    except EarmarkError as error:
        assert len(str(error)) < 2000
    else:
        assert all(isinstance(event, Event) for own in found.values() for event in own)


@every_format
@given(data=st.data())
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_damaged_file_is_events_or_an_error_of_ours(format, data, tmp_path):
    """Bytes of a good file are changed: what follows the first check is reached as well."""
    path = path_in(tmp_path, format)
    write_events(path, {"a.wav": [Event(0.5, 1.5, "dog", 0.5), Event(2, 3, "cat", 0.25)]})
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.sampled_from(list(b'0-9e.\t\n "{}[],:!<\xff')))
    path.write_bytes(bytes(content)[: data.draw(st.integers(len(content) // 2, len(content)))])
    try:
        read_events(path)
    except EarmarkError as error:
        assert "events" in str(error) or "Parquet" in str(error)


@every_format
def test_a_format_without_a_place_for_it_refuses_a_name_or_label_by_name(format, tmp_path):
    """Tabs, line ends and bytes that are not UTF-8 are written as they are, or refused."""
    for name in (" a.wav", "a\tb.wav", "a\nb.wav", "a\udcff.wav"):
        path = path_in(tmp_path, format)
        one = {name: [Event(0, 1, "dog")]}
        try:
            write_events(path, one)
        except DataError as error:
            assert "Cannot write" in str(error)
            assert not path.exists()
        else:
            found = read_events(path)
            assert found == one or list(found) == ["events"]
            path.unlink()
    with pytest.raises(DataError, match="Cannot write") if format in (
        "tsv", "csv", "audacity", "raven", "textgrid"
    ) else warnings.catch_warnings():  # fmt: skip
        write_events(path_in(tmp_path, format), {"a.wav": [Event(0, 1, "dog\nbark")]})


@pytest.mark.parametrize("format", [n for n, own in EVENT_FORMATS.items() if own.keeps_durations])
def test_durations_are_kept_by_the_formats_that_say_so(format, tmp_path):
    table = EventTable({"a.wav": [Event(0.5, 1.5, "dog")]}, {"a.wav": 10.25})
    write_events(path_in(tmp_path, format, "a"), table)
    assert list(read_events(path_in(tmp_path, format, "a")).durations.values()) == [10.25]


@pytest.mark.parametrize("format", [n for n, own in EVENT_FORMATS.items() if own.keeps_times])
def test_date_and_time_are_beside_onset_and_offset_in_the_formats_that_say_so(format, tmp_path):
    start = datetime(2024, 5, 17, 4, 30)
    table = EventTable({"a.wav": [Event(0.5, 61, "dog")], "b.wav": []}, starts={"a.wav": start})
    path = path_in(tmp_path, format)
    write_events(path, table)
    assert read_events(path) == table
    for text in (b"onset_time", b"2024-05-17T04:30:00.500", b"2024-05-17T04:31:01.000"):
        assert text in path.read_bytes()
    with pytest.raises(DataError, match="after the year 9999"):
        late = EventTable({"a.wav": [Event(0.5, 1e12, "dog")]}, starts={"a.wav": start})
        write_events(path, late)


@pytest.mark.parametrize("format", PER_FILE)
def test_a_format_of_one_recording_refuses_two(format, tmp_path):
    with pytest.raises(SettingError, match=r"holds one recording. Got 3"):
        write_events(path_in(tmp_path, format), TABLE)


def test_the_format_follows_from_the_suffix_and_an_unknown_one_is_refused(tmp_path):
    for name, own in EVENT_FORMATS.items():
        for suffix in own.suffixes:
            assert format_of_suffix(f"a{suffix.upper()}") == name
    with pytest.raises(SettingError, match=r"No event format has the suffix of .*\.tsv, \.csv"):
        write_events(tmp_path / "found.xlsx", TABLE)
    with pytest.raises(SettingError, match="did you mean 'textgrid'"):
        write_events(tmp_path / "found.xlsx", TABLE, format="textgird")
    with pytest.raises(SettingError, match="is a folder: name the format"):
        write_events(tmp_path, TABLE)
    with pytest.raises(DataError, match="has no file of events"):
        read_events(tmp_path)


def test_a_text_file_is_recognised_by_its_first_lines(tmp_path):
    path = tmp_path / "street.txt"
    path.write_text("0.5\t1.5\tdog\n")
    assert read_events(path) == {"street": [Event(0.5, 1.5, "dog")]}
    path.write_text("a.wav\t0.5\t1.5\tdog\n")
    assert read_events(path) == {"a.wav": [Event(0.5, 1.5, "dog")]}
    path.write_text(encode_events(EventTable(TABLE), _layout(), "raven"))
    assert set(read_events(path)) == {"street/a.wav", "été.wav"}
    assert set(read_system_output(path).events) == {"street/a.wav", "été.wav"}
    assert read_tags(path)["street/a.wav"] == (AIR_HORN, "dog")


def _layout():
    from earmark.formats.event_table import Layout

    return Layout(scores=True)


def test_recordings_that_differ_only_in_their_suffix_keep_it_in_a_folder(tmp_path):
    table = {"a.wav": [Event(0, 1, "dog")], "a.ogg": [], "/data/c.wav": [], "../d.wav": []}
    write_events(f"{tmp_path}/out/", table, format="audacity")
    found = {str(p.relative_to(tmp_path)) for p in (tmp_path / "out").rglob("*.txt")}
    assert found == {"out/a.wav.txt", "out/a.ogg.txt", "out/data/c.txt", "out/d.txt"}
    assert read_events(tmp_path / "out")["a.wav"] == [Event(0, 1, "dog")]
    with pytest.raises(DataError, match="would have the same file"):
        event_files(tmp_path, ["../a.wav", "a.wav"], "tsv")


def test_what_other_programs_write_is_read(tmp_path):
    raven = (
        "Selection\tView\tChannel\tBegin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tHigh Freq (Hz)\t"
        "Common Name\tConfidence\tBegin Path\tFile Offset (s)\n"
        "1\tWaveform 1\t1\t60.5\t63.5\t0\t15000\tBlue Tit\t0.91\tx\t0.5\n"
        "1\tSpectrogram 1\t1\t60.5\t63.5\t0\t15000\tBlue Tit\t0.91\tx\t0.5\n"
    )
    path = tmp_path / "wood.selections.txt"
    path.write_text(raven)
    assert read_events(path) == {"wood": [Event(0.5, 3.5, "Blue Tit", 0.91)]}
    short = 'File type = "ooTextFile"\nObject class = "TextGrid"\n\n0\n3\n<exists>\n2\n'
    short += '"IntervalTier"\n"words"\n0\n3\n2\n0\n1\n""\n1\n3\n"say ""hi"""\n'
    short += '"TextTier"\n"points"\n0\n3\n1\n2.5\n"click"\n'
    (tmp_path / "talk.TextGrid").write_bytes(short.encode("utf-16"))
    found = read_events(tmp_path / "talk.TextGrid")
    assert found == {"talk": [Event(1, 3, 'say "hi"')]}
    assert (found.n_dropped, found.durations) == (1, {"talk": 3.0})
    records = '[{"file": "a.wav", "start": 0, "end": 1, "label": "dog", "confidence": 0.5}]'
    assert read_events(io.StringIO(records), "json") == {"a.wav": [Event(0, 1, "dog", 0.5)]}
    scaper = {"label": "siren", "role": "foreground"}
    street = {"label": "street", "role": "background"}
    data = [{"time": 1, "duration": 2, "value": x, "confidence": 1.0} for x in (scaper, street)]
    (tmp_path / "s.jams").write_text(json.dumps({"annotations": [{"data": data}]}))
    assert read_events(tmp_path / "s.jams") == {"s": [Event(1, 3, "siren", 1.0)]}


def test_begin_times_of_a_raven_table_count_on_through_its_recordings(tmp_path):
    events = {"a.wav": [Event(1, 2, "dog")], "b.wav": [Event(1.5, 2, "cat")]}
    write_events(tmp_path / "x.selections.txt", EventTable(events, {"a.wav": 10, "b.wav": 20}))
    rows = [x.split("\t") for x in (tmp_path / "x.selections.txt").read_text().splitlines()]
    begin, within = (rows[0].index(column) for column in ("Begin Time (s)", "File Offset (s)"))
    assert [(row[begin], row[within]) for row in rows[1:]] == [("1.000", "1.000"),
                                                               ("11.500", "1.500")]  # fmt: skip
    assert read_events(tmp_path / "x.selections.txt") == events


class TestRealReaders:
    """Of each format that has a library of its own, that library reads what we write."""

    def test_praatio_reads_our_textgrid_and_we_read_its_own(self, tmp_path):
        textgrid = pytest.importorskip("praatio.textgrid")
        table = EventTable({"street/a.wav": TABLE["street/a.wav"]}, {"street/a.wav": 2.0})
        write_events(tmp_path / "a.TextGrid", table)
        found = textgrid.openTextgrid(str(tmp_path / "a.TextGrid"), includeEmptyIntervals=False)
        assert found.maxTimestamp == 2.0
        assert set(found.tierNames) == {"dog", "dog 2", AIR_HORN}
        assert [tuple(x) for x in found.getTier("dog").entries] == [(0.1, 0.3, "dog")]
        assert [tuple(x) for x in found.getTier(AIR_HORN).entries] == [(0.2, 1.234, AIR_HORN)]
        for layout in ("long_textgrid", "short_textgrid"):
            found.save(str(tmp_path / "b.TextGrid"), layout, includeBlankSpaces=True)
            assert read_events(tmp_path / "b.TextGrid") == {
                "b": [replace(event, score=None) for event in sorted(TABLE["street/a.wav"])]
            }
        write_events(tmp_path / "none.TextGrid", EventTable({"x": []}, {"x": 3.5}))
        assert textgrid.openTextgrid(str(tmp_path / "none.TextGrid"), True).maxTimestamp == 3.5

    @pytest.mark.filterwarnings("ignore:Passing a schema to Validator:DeprecationWarning")
    def test_jams_validates_and_reads_our_jams_and_we_read_its_own(self, tmp_path):
        jams = pytest.importorskip("jams")
        one = EventTable({"street/a.wav": TABLE["street/a.wav"]}, {"street/a.wav": 2.0})
        write_events(tmp_path / "a.jams", one)
        found = jams.load(str(tmp_path / "a.jams"), validate=True, strict=True)
        intervals, values = found.annotations[0].to_interval_values()
        assert found.file_metadata.duration == 2.0
        assert [(*x, y) for x, y in zip(intervals.tolist(), values, strict=True)] == [
            (e.onset, pytest.approx(e.offset), e.label) for e in sorted(TABLE["street/a.wav"])
        ]
        assert [x.confidence for x in found.annotations[0].data] == [0.8125, 0.75, 1.0]
        found.save(str(tmp_path / "b.jams"))
        assert read_events(tmp_path / "b.jams") == {"street/a.wav": one["street/a.wav"]}
        write_events(tmp_path / "none.jams", {"x": []})
        jams.load(str(tmp_path / "none.jams"), validate=True, strict=True)

    @pytest.mark.parametrize("format", ["tsv", "csv", "jsonl", "parquet"])
    def test_pandas_reads_our_tables_and_we_read_its_own(self, format, tmp_path):
        pandas = pytest.importorskip("pandas")
        path = path_in(tmp_path, format)
        write_events(path, TABLE)
        frame = {
            "tsv": lambda: pandas.read_csv(path, sep="\t"),
            "csv": lambda: pandas.read_csv(path),
            "jsonl": lambda: pandas.read_json(path, lines=True),
            "parquet": lambda: pandas.read_parquet(path),
        }[format]()
        assert list(frame.columns) == ["filename", "onset", "offset", "event_label", "score"]
        assert len(frame) == 5
        assert frame["onset"].dropna().tolist() == [0.1, 0.2, 0.25, 0.0]
        assert frame["score"].dropna().tolist() == [0.8125, 0.75, 1.0, 0.5]
        assert frame["event_label"][1] == AIR_HORN
        again = path_in(tmp_path, format, "again")
        write = {
            "tsv": lambda: frame.to_csv(again, sep="\t", index=False),
            "csv": lambda: frame.to_csv(again, index=False),
            "jsonl": lambda: frame.to_json(again, orient="records", lines=True),
            "parquet": lambda: frame.to_parquet(again),
        }[format]
        write()
        assert read_events(again) == as_kept(TABLE, format)

    def test_pyarrow_reads_the_types_of_our_columns(self, tmp_path):
        parquet = pytest.importorskip("pyarrow.parquet")
        write_events(tmp_path / "a.parquet", TABLE)
        schema = parquet.read_schema(tmp_path / "a.parquet")
        assert [str(schema.field(name).type) for name in schema.names] == [
            "string", "double", "double", "string", "double",
        ]  # fmt: skip


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SettingError, match=r"pip install 'earmark\[parquet\]'"):
        write_events(tmp_path / "a.parquet", TABLE)
    with pytest.raises(SettingError, match=r"pip install 'earmark\[parquet\]'"):
        read_events(tmp_path / "a.parquet")
