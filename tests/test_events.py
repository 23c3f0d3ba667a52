import io
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.errors import DataError
from earmark.formats.events import Event, read_events, write_events
from earmark.formats.tags import read_tags, tags_from_folders, write_tags

AIR_HORN = "Air horn, truck horn"
FIRE = "Fire engine, fire truck (siren)"

# Any field of a table: no tab or line end, and no space at the ends.
any_name = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\t\r\n"), min_size=1, max_size=12
).filter(lambda word: word == word.strip())
any_label = st.one_of(any_name, st.sampled_from([AIR_HORN, FIRE, 'a "quoted" one', '"', "a,b"]))


@st.composite
def events(draw, scored):
    onset = draw(st.integers(0, 9_000))
    offset = onset + draw(st.integers(1, 9_000))
    score = draw(st.none() | st.integers(0, 10**6).map(lambda n: n / 10**6)) if scored else None
    return Event(onset / 1000, offset / 1000, draw(any_label), score)


def text(content):
    return io.StringIO(content)


class TestEvent:
    def test_sorts_by_time_with_or_without_a_score(self):
        shuffled = [Event(1, 2, "b", 0.5), Event(1, 2, "b"), Event(0, 3, "z"), Event(1, 2, "a")]
        assert [(e.onset, e.label, e.score) for e in sorted(shuffled)] == [
            (0.0, "z", None),
            (1.0, "a", None),
            (1.0, "b", None),
            (1.0, "b", 0.5),
        ]

    def test_is_hashable_frozen_and_survives_pickling(self):
        event = Event(0.5, 1.0, "dog", 0.9)
        assert pickle.loads(pickle.dumps(event)) == event
        assert len({event, Event(0.5, 1.0, "dog", 0.9)}) == 1
        with pytest.raises(AttributeError):
            event.onset = 3.0

    def test_stores_plain_floats_for_any_number_type(self):
        event = Event(np.float32(0.5), 2, "dog", np.float64(0.25))
        assert repr(event) == "Event(onset=0.5, offset=2.0, label='dog', score=0.25)"
        assert event.duration == 1.5

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ((1.0, 0.5, "dog"), "ends .* before it begins"),
            ((float("nan"), 0.5, "dog"), "onset .* not finite"),
            ((0.0, float("inf"), "dog"), "offset .* not finite"),
            ((0.0, 1.0, "dog", float("nan")), "score .* not finite"),
            ((0.0, 1.0, ""), "label"),
        ],
    )
    def test_refuses_invalid_values(self, values, message):
        with pytest.raises(DataError, match=message):
            Event(*values)


class TestStrongTables:
    @given(st.dictionaries(any_name, st.lists(events(scored=True), max_size=4), max_size=4))
    def test_are_read_back_as_written(self, by_file):
        stream = io.StringIO()
        write_events(stream, by_file)
        assert read_events(text(stream.getvalue())) == {k: sorted(v) for k, v in by_file.items()}

    @given(
        by_file=st.dictionaries(any_name, st.lists(events(scored=False), max_size=3), max_size=3)
    )
    def test_are_read_back_from_a_comma_separated_file(self, by_file, tmp_path_factory):
        path = tmp_path_factory.mktemp("tables") / "events.csv"
        write_events(path, by_file)
        assert "\t" not in path.read_text(encoding="utf-8")
        assert read_events(path) == {k: sorted(v) for k, v in by_file.items()}

    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    @pytest.mark.parametrize("mark", ["", "\ufeff"])
    @pytest.mark.parametrize("header", ["", "filename\tonset\toffset\tevent_label"])
    def test_are_read_alike_with_any_line_end_byte_order_mark_and_header(
        self, tmp_path, end, mark, header
    ):
        path = tmp_path / "strong.tsv"
        lines = [header, "", f"a.wav\t0.5\t1\t{AIR_HORN}", "b.wav\t\t\t", "", "c.wav"]
        path.write_bytes((mark + end.join(lines)).encode())
        assert read_events(path) == {"a.wav": [Event(0.5, 1, AIR_HORN)], "b.wav": [], "c.wav": []}

    @pytest.mark.parametrize(
        "row",
        [f'a.wav,0.5,1,"{AIR_HORN}"', f"a.wav,0.5,1,{AIR_HORN}", f"a.wav, 0.5, 1, {AIR_HORN}"],
    )
    def test_keep_a_label_with_a_comma_quoted_or_not(self, row):
        assert read_events(text(row)) == {"a.wav": [Event(0.5, 1, AIR_HORN)]}

    def test_may_have_columns_in_any_order_and_unknown_columns(self):
        table = "label,score,fold,end,start,file\ndog,0.75,3,2.0,1.0,a.wav\ncat,,3,3.0,1.0,a.wav\n"
        assert read_events(text(table)) == {"a.wav": [Event(1, 2, "dog", 0.75), Event(1, 3, "cat")]}

    def test_drop_and_count_rows_of_zero_length_but_keep_their_files(self):
        table = read_events(text("a.wav\t0\t0\tdog\na.wav\t1\t2\tcat\nb.wav\t0.000\t0.0\tdog\n"))
        assert table == {"a.wav": [Event(1, 2, "cat")], "b.wav": []}
        assert table.n_dropped == 2

    def test_keep_the_order_of_the_rows_on_which_sed_evals_scores_depend(self):
        table = read_events(text("a.wav\t5\t6\tdog\na.wav\t1\t2\tcat\n"))
        assert [event.onset for event in table["a.wav"]] == [5.0, 1.0]

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            ("a.wav\tsoon\t2\tdog", "onset 'soon' is not a number"),
            ("a.wav\t0,5\t2\tdog", "onset '0,5' is not a number"),
            ("a.wav\t1\tnan\tdog", "offset 'nan' is not a number"),
            ("a.wav\t1", "offset '' is not a number"),
            ("a.wav\t\t\tdog", "onset '' is not a number"),
            ("a.wav\t1\t2", "no label"),
            ("a.wav\t2\t1\tdog", "offset 1 comes before the onset 2"),
            ("a.wav\t-1\t1\tdog", "onset -1 is negative"),
            ("a.wav\t1\t2\tdog\t0.5", "5 fields instead of 4"),
            ("\t1\t2\tdog", "has no file name"),
            ('a.wav\t1\t2\t"dog', "a quote is opened and not closed"),
        ],
    )
    def test_report_file_and_line_of_a_wrong_row(self, tmp_path, row, message):
        path = tmp_path / "strong.tsv"
        path.write_text(f"a.wav\t1\t2\tdog\n\n{row}\n")
        with pytest.raises(DataError, match=message) as raised:
            read_events(path)
        assert str(raised.value).startswith(f"{path}:3: ")

    @pytest.mark.parametrize(
        ("header", "message"),
        [
            ("filename\tevent_labels", "no column 'onset' or 'offset' or 'event_label'"),
            ("onset\toffset\tlabel", "no column 'filename'"),
            ("filename\tonset\tstart\toffset\tlabel", "more than once"),
        ],
    )
    def test_report_missing_columns_of_a_header(self, header, message):
        with pytest.raises(DataError, match=message):
            read_events(text(header + "\na.wav\t1\n"))

    def test_must_exist_and_be_utf_8(self, tmp_path):
        with pytest.raises(DataError, match="Cannot read the table"):
            read_events(tmp_path / "none.tsv")
        (tmp_path / "latin.tsv").write_bytes("a.wav\t0\t1\tKüche\n".encode("latin-1"))
        with pytest.raises(DataError, match="Save it as UTF-8"):
            read_events(tmp_path / "latin.tsv")

    @pytest.mark.parametrize(
        ("name", "event"),
        [
            ("a.wav", Event(1.0, 1.0, "dog")),
            ("a.wav", Event(1.0, 1.0004, "dog")),
            ("a.wav", Event(-1.0, 1.0, "dog")),
            ("a.wav", Event(1.0, 2.0, "a\tb")),
            ("a.wav", Event(1.0, 2.0, "a\nb")),
            ("a.wav", Event(1.0, 2.0, " dog")),
            ("a.wav", Event(1.0, 2.0, "\ud800")),
            ("", Event(1.0, 2.0, "dog")),
        ],
    )
    def test_are_not_written_if_they_could_not_be_read_back(self, tmp_path, name, event):
        path = tmp_path / "strong.tsv"
        path.write_text("as it was")
        with pytest.raises(DataError, match="Cannot write"):
            write_events(path, {name: [event]})
        assert path.read_text() == "as it was"
        assert list(tmp_path.iterdir()) == [path]

    def test_are_written_with_the_requested_decimals(self):
        stream = io.StringIO()
        write_events(stream, {"a.wav": [Event(1.0, 1.0004, "dog")]}, decimals=4)
        assert stream.getvalue().splitlines()[1] == "a.wav\t1.0000\t1.0004\tdog"

    def test_are_not_written_to_a_missing_folder(self, tmp_path):
        with pytest.raises(DataError, match=r"Cannot write .*none"):
            write_events(tmp_path / "none" / "a.tsv", {})


class TestWeakTables:
    @given(
        st.dictionaries(
            any_name,
            st.sets(any_label.filter(lambda label: not {*label} & {*";|"}), max_size=4),
            max_size=4,
        )
    )
    def test_are_read_back_as_written(self, tags):
        stream = io.StringIO()
        write_tags(stream, tags)
        assert read_tags(text(stream.getvalue())) == {k: tuple(sorted(v)) for k, v in tags.items()}

    @given(st.sets(st.sampled_from([AIR_HORN, FIRE, "Car", "Car alarm", "Truck", "Air horn"])))
    def test_resolve_a_joined_list_against_the_known_labels(self, labels):
        for comma in (",", ", ", " , "):
            table = "filename\tevent_labels\na.wav\t" + comma.join(sorted(labels))
            known = [AIR_HORN, FIRE, "Car", "Car alarm", "Truck", "Air horn"]
            assert read_tags(text(table), known) == {"a.wav": tuple(sorted(labels))}

    def test_are_read_with_one_or_several_labels_per_row(self):
        expected = {"a.wav": ("cat", "dog"), "b.wav": ()}
        assert read_tags(text("filename\tevent_labels\na.wav\tdog,cat\nb.wav\t\n")) == expected
        assert read_tags(text("filename\tlabel\na.wav\tdog\nb.wav\na.wav\tcat\n")) == expected
        assert read_tags(text("a.wav\tdog,cat\nb.wav\n")) == expected
        assert read_tags(text('a.wav,"dog,cat"\nb.wav\n')) == expected
        assert read_tags(text("a.wav,dog,cat\nb.wav\n")) == expected

    @pytest.mark.parametrize("sign", [";", "|", "; ", " | "])
    def test_are_read_with_labels_that_semicolons_or_bars_separate(self, sign, caplog):
        caplog.set_level("INFO", "earmark")
        expected = {"a.wav": ("cat", "dog"), "b.wav": ()}
        for header in ("filename\tevent_labels\n", ""):
            assert read_tags(text(f"{header}a.wav\tdog{sign}cat\nb.wav\t\n")) == expected
        assert read_tags(text(f"file,tags\na.wav,dog{sign}cat\nb.wav,\n")) == expected
        assert read_tags(text(f"a.wav,dog{sign}cat\nb.wav\n")) == expected
        assert f"labels are separated by '{sign.strip()}'" in caplog.text
        read_tags(text(f"a.wav\tdog{sign}cat\nb.wav\tcat;dog|cow\n"))
        assert "labels are separated by ';' and '|'." in caplog.text
        long = {"a.wav": (AIR_HORN, "Car")}
        assert read_tags(text(f"a.wav\tCar{sign}{AIR_HORN}\n")) == long
        assert read_tags(text(f"a.wav\tCar{sign}{AIR_HORN}\n"), ["Car", AIR_HORN]) == long

    def test_keep_a_known_label_with_a_separator_whole(self):
        known = ["siren|police", "dog"]
        table = "filename\tevent_labels\na.wav\tdog|siren|police\n"
        assert read_tags(text(table), known) == {"a.wav": ("dog", "siren|police")}
        one_each = "filename\tevent_label\na.wav\tsiren|police\n"
        assert read_tags(text(one_each), known) == {"a.wav": ("siren|police",)}

    @pytest.mark.parametrize(
        "table",
        [
            "filename\tlabel\nb.wav\tdog\na.wav\tdog;cat\n",
            "\nx.wav\t0\t1\tdog\na.wav\t0\t1\tdog;cat\n",
        ],
    )
    def test_refuse_a_list_where_there_is_one_label_per_row(self, table):
        with pytest.raises(DataError, match=r"<text>:3: 'dog;cat' .* Name the column event_labels"):
            read_tags(text(table))

    @pytest.mark.parametrize(
        "table",
        [
            "filename;event_labels\na.wav;dog,cat\nb.wav;\n",
            "\ufeffFile;Tags;Notes\r\na.wav;dog,cat;loud, far\r\nb.wav;;\r\n",
            'filename;labels\n"a.wav";"dog,cat"\n"b.wav";\n',
            "a.wav;dog,cat\nb.wav;\n",
            'a.wav;"dog;cat"\nb.wav\n',
            "a.wav;dog;cat\nb.wav\n",
            "sep=;\nfilename;labels\na.wav;dog,cat\nb.wav;\n",
            "a.wav;0,5;1,25;dog\na.wav;1,5;2;cat\nb.wav;;;\n",
            "path,labels\na.wav,dog|cat\nb.wav,\n",
            "clip\ttag\na.wav\tdog\na.wav\tcat\nb.wav\t\n",
            "fname,split,positive_labels\na.wav,dev,dog;cat\nb.wav,dev,\n",
            "filename,path,labels\na.wav,/x/a.wav,dog;cat\nb.wav,/x/b.wav,\n",
        ],
    )
    def test_are_read_as_spreadsheets_and_other_tools_write_them(self, table):
        assert read_tags(text(table)) == {"a.wav": ("cat", "dog"), "b.wav": ()}

    def test_have_decimal_commas_in_semicolon_separated_events(self):
        table = "filename;onset;offset;event_label;score\na.wav;0,5;1,25;Bell, small;0,75\n"
        assert read_events(text(table)) == {"a.wav": [Event(0.5, 1.25, "Bell, small", 0.75)]}

    @pytest.mark.parametrize(
        ("table", "message"),
        [
            ("sound_id,animal\na.wav,dog\nb.wav,cat\n", r"<text>:1: .* names \('sound_id', 'an"),
            ("\nlabels of\tmine\ndog\ta.wav\n", r"<text>:2: .* in column 2"),
            ("path,animal\na.wav,dog\n", r"<text>:1: .*Write filename, event_labels"),
            ("filename;animal\na.wav;dog\n", r"no column 'event_label'; it has .*'animal'"),
            ("b.wav,cat\na.wav;dog\n", r"<text>:2: the file name 'a.wav;dog' seems to be more"),
            ("path,clip,tags\na.wav,b.wav,dog\n", r"'filename' more than once \(path, clip\)"),
        ],
    )
    def test_refuse_an_unknown_header_and_mixed_separators(self, table, message):
        with pytest.raises(DataError, match=message):
            read_tags(text(table))

    def test_may_have_a_label_that_is_also_the_name_of_a_column(self):
        table = "a.wav\tclip\nb.wav\trecording\n"
        assert read_tags(text(table)) == {"a.wav": ("clip",), "b.wav": ("recording",)}

    def test_keep_labels_with_commas_whole(self):
        expected = {"a.wav": (AIR_HORN, "Car")}
        joined = f"filename\tevent_labels\na.wav\tCar,{AIR_HORN}\n"
        assert read_tags(text(joined)) == expected
        assert read_tags(text(f'a.wav,"{AIR_HORN}",Car\n')) == expected
        assert read_tags(text(f"a.wav\t0\t1\t{AIR_HORN}\na.wav\t0\t1\tCar\n")) == expected
        assert read_tags(text(f"a.wav\tCar, {AIR_HORN}\n"), ["Car", AIR_HORN]) == expected

    def test_prefer_the_longest_label_unless_the_rest_does_not_fit(self):
        table = "filename\tevent_labels\na.wav\tA,B,C\n"
        assert read_tags(text(table), ["A", "A,B", "C", "B"]) == {"a.wav": ("A,B", "C")}
        assert read_tags(text(table), ["A", "A,B", "B,C"]) == {"a.wav": ("A", "B,C")}

    def test_refuse_a_comma_that_could_be_read_both_ways(self):
        table = "filename\tevent_labels\na.wav\tdog, cat\nb.wav\tdog\nc.wav\tcat\n"
        with pytest.raises(DataError, match=r"<text>:2: 'dog, cat' may be one label or 2"):
            read_tags(text(table))
        assert read_tags(text(table), ["dog", "cat"])["a.wav"] == ("cat", "dog")

    def test_drop_labels_of_zero_length(self):
        assert read_tags(text("a.wav\t0\t0\tdog\na.wav\t1\t2\tcat\n")) == {"a.wav": ("cat",)}

    def test_name_the_nearest_known_label(self):
        for row in ("a.wav\tdog,cart", "a.wav\t0\t1\tcart"):
            with pytest.raises(DataError, match=r"<text>:1: there is no label 'cart'.*'cat'"):
                read_tags(text(row), ["cat", "dog"])

    @pytest.mark.parametrize("row", ["\tdog", "a.wav\t-1\t2\tdog"])
    def test_report_the_line_of_a_wrong_row(self, row):
        with pytest.raises(DataError, match="<text>:1"):
            read_tags(text(row))

    @pytest.mark.parametrize("labels", [[""], [" dog", "cat"], ["a\tb"], ["a;b"], ["a|b"]])
    def test_are_not_written_if_they_could_not_be_read_back(self, labels):
        with pytest.raises(DataError):
            write_tags(io.StringIO(), {"a.wav": labels})

    def test_can_be_inferred_from_folders(self):
        assert tags_from_folders([Path("x/dog/1.wav"), "cat/1.wav"]) == {
            str(Path("x/dog/1.wav")): ("dog",),
            "cat/1.wav": ("cat",),
        }
        with pytest.raises(DataError, match="is in no folder"):
            tags_from_folders(["1.wav"])


class TestDcase2017:
    @pytest.mark.parametrize(
        ("part", "n_files", "n_rows", "n_dropped"),
        [("evaluation", 1103, 1706, 150), ("testing", 488, 688, 36)],
    )
    def test_strong_lists_are_read_to_the_last_row(
        self, dcase2017, part, n_files, n_rows, n_dropped
    ):
        table = read_events(dcase2017 / f"groundtruth_strong_label_{part}_set.csv")
        assert len(table) == n_files
        assert table.n_dropped == n_dropped
        assert sum(map(len, table.values())) == n_rows - n_dropped
        assert len({event.label for events in table.values() for event in events}) == 17

    @pytest.mark.parametrize(("part", "n_clips"), [("training", 51172), ("testing", 488)])
    def test_official_lists_have_the_tags_of_the_ground_truth(self, dcase2017, part, n_clips):
        official = read_tags(dcase2017 / f"{part}_set.csv")
        assert len(official) == n_clips
        assert official == read_tags(dcase2017 / f"groundtruth_weak_label_{part}_set.csv")

    def test_known_labels_change_nothing(self, dcase2017):
        lines = (dcase2017 / "sound_event_list_17_classes.txt").read_text().splitlines()[1:]
        labels = [line.split("\t")[-1] for line in lines]
        path = dcase2017 / "testing_set.csv"
        assert read_tags(path, labels) == read_tags(path)
        assert read_tags(path)["-5QrBL6MzLg_60.000_70.000.wav"] == ("Train", "Train horn")

    def test_tables_are_read_back_as_written(self, dcase2017, tmp_path):
        tags = read_tags(dcase2017 / "groundtruth_weak_label_evaluation_set.csv")
        write_tags(tmp_path / "weak.tsv", tags)
        assert read_tags(tmp_path / "weak.tsv") == tags
        events = read_events(dcase2017 / "groundtruth_strong_label_evaluation_set.csv")
        write_events(tmp_path / "strong.csv", events, decimals=9)  # a few rows have as many
        in_time = {name: sorted(own) for name, own in events.items()}
        assert read_events(tmp_path / "strong.csv") == in_time
