"""Tables of frame-level scores: exact round trips, and errors that name file and line."""

from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.errors import DataError, SettingError
from earmark.formats.scores import SCORE_FORMATS, ScoreTable, has_scores, read_scores, write_scores
from earmark.frames import FrameGrid, FrameScores
from earmark.inference.decoding import Decoding, decode_events

finite = st.floats(allow_nan=False, allow_infinity=False)


@settings(deadline=None)  # timings differ under load
@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=5), st.data())
def test_scores_come_back_to_the_last_bit(tmp_path_factory, values, data):
    times = st.lists(
        st.floats(0, 1e6), min_size=len(values) + 1, max_size=len(values) + 1, unique=True
    )
    scores = FrameScores(values, ["cat", "dog"], edges=sorted(data.draw(times)))
    folder = tmp_path_factory.mktemp("scores")
    write_scores(folder, ScoreTable(["cat", "dog"], {"a.wav": scores, "sub/b.wav": scores}))
    again = read_scores(folder)
    assert again.labels == ("cat", "dog")
    assert sorted(again) == ["a", "sub/b"]
    for name in ("a.wav", "sub/b.wav"):
        assert again[name].edges.tobytes() == scores.edges.tobytes()
        assert again[name].scores.tobytes() == scores.scores.tobytes()


def test_a_name_with_dots_is_found_with_and_without_suffix(tmp_path):
    name = "-5QrBL6MzLg_60.000_70.000"
    write_scores(tmp_path, ScoreTable(["dog"], {f"{name}.wav": ([0, 1], [[0.5]])}))
    assert (tmp_path / f"{name}.tsv").is_file()
    assert f"{name}.flac" in read_scores(tmp_path)
    assert f"{name[:-1]}.wav" not in read_scores(tmp_path)


def test_scores_on_a_grid_are_written_with_the_edges_of_their_frames(tmp_path):
    values = np.array([[0.1], [0.7], [0.3]], np.float32)
    scores = FrameScores(values, ["dog"], FrameGrid(12.5), duration=0.2)
    write_scores(tmp_path, ScoreTable(["dog"], {"a.wav": scores}))
    again = read_scores(tmp_path)["a.wav"]
    assert again.edges.tolist() == [0.0, 0.08, 0.16, 0.2]
    np.testing.assert_array_equal(again.scores, values)


def test_half_written_tables_are_not_read(tmp_path):
    write_scores(tmp_path, ScoreTable(["dog"], {"a": ([0, 1], [[0.5]])}))
    (tmp_path / ".b.tsv.17.part").write_text("onset")
    (tmp_path / ".b.tsv").write_text("onset")
    assert list(read_scores(tmp_path)) == ["a"]


GOOD = "onset\toffset\tdog\n0\t1\t0.5\n1\t2\t0.25\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("0.25", "loud"), r"a\.tsv:3: the dog 'loud' is not a finite number"),
        (GOOD.replace("0.25", "nan"), r"a\.tsv:3: the dog 'nan' is not a finite number"),
        (GOOD.replace("1\t2", "1.5\t2"), r"a\.tsv:3: the frame begins at 1\.5 s, .* ends at 1\.0"),
        (GOOD.replace("1\t2", "1\t1"), r"a\.tsv:3: a frame cannot last from 1\.0 to 1\.0 s"),
        (GOOD.replace("\t0.25", ""), r"a\.tsv:3: 2 fields where 3 belong"),
        (GOOD.replace("dog", "dog\tdog"), r"a\.tsv:1: the columns must name each class once"),
        (GOOD.replace("offset", "end"), r"a\.tsv:1: the header must name onset, offset"),
        ("onset\toffset\tdog\n", r"a\.tsv: there are no frames below the header"),
        ("", r"a\.tsv:1: the header must name"),
        (GOOD.replace("0\t1\t", "-1\t1\t"), r"a\.tsv:2: a frame cannot last from -1\.0"),
    ],
)
def test_a_bad_table_is_an_error_with_file_and_line(tmp_path, text, message):
    (tmp_path / "a.tsv").write_text(text)
    with pytest.raises(DataError, match=message):
        read_scores(tmp_path)


def test_a_byte_order_mark_blank_lines_and_other_line_ends_do_no_harm(tmp_path):
    text = GOOD.replace("\n", "\r\n") + "\r\n\r\n"
    (tmp_path / "a.tsv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_scores(tmp_path)["a"].scores.tolist() == [[0.5], [0.25]]


def test_a_table_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "a.tsv").write_bytes(b"onset\xff")
    with pytest.raises(DataError, match="not UTF-8"):
        read_scores(tmp_path)


def test_tables_with_other_classes_are_refused(tmp_path):
    (tmp_path / "a.tsv").write_text(GOOD)
    (tmp_path / "b.tsv").write_text(GOOD.replace("dog", "cat"))
    with pytest.raises(DataError, match=r"b\.tsv:1: the classes are cat, but those of .*a\.tsv"):
        read_scores(tmp_path)


def test_a_folder_without_tables_is_refused(tmp_path):
    with pytest.raises(DataError, match="has no tables"):
        read_scores(tmp_path)
    with pytest.raises(DataError, match="is no folder"):
        read_scores(tmp_path / "nowhere")


def test_names_that_collide_are_refused():
    scores = FrameScores([[0.5]], ["dog"], edges=[0, 1])
    with pytest.raises(DataError, match="the same without their suffix"):
        ScoreTable(["dog"], {"a.wav": scores, "a.flac": scores})


@pytest.mark.parametrize("name", ["../a", "/a", "b/../../a"])
def test_a_table_never_leaves_its_folder(tmp_path, name):
    scores = ScoreTable(["dog"], {name: ([0, 1], [[0.5]])})
    with pytest.raises(DataError, match="would leave"):
        write_scores(tmp_path / "in", scores)


@pytest.mark.parametrize(
    ("edges", "scores"),
    [
        ([0, 1], [[np.nan]]),
        ([0, 1], [[np.inf]]),
        ([0, 0], [[0.5]]),
        ([1, 0], [[0.5]]),
        ([-1, 0], [[0.5]]),
    ],
)
def test_a_table_has_finite_scores_and_increasing_edges(edges, scores):
    with pytest.raises(DataError):
        ScoreTable(["dog"], {"a": (edges, scores)})


def test_shapes_and_labels_that_do_not_fit_are_refused():
    with pytest.raises(SettingError, match="edges"):
        ScoreTable(["dog"], {"a": ([0, 1, 2], [[0.5]])})
    with pytest.raises(SettingError, match="one frame at least"):
        ScoreTable(["dog"], {"a": ([0], np.zeros((0, 1)))})
    with pytest.raises(SettingError, match=r"\(frames, 1\), one column per label"):
        ScoreTable(["dog"], {"a": ([0, 1], [[0.5, 0.5]])})
    of_cats = FrameScores([[0.5]], ["cat"], edges=[0, 1])
    with pytest.raises(SettingError, match=r"scores of 'a' have the labels cat; .* must have dog"):
        ScoreTable(["dog"], {"a.wav": of_cats})
    with pytest.raises(DataError, match="must name each class once"):
        ScoreTable(["dog", "dog"], {})


@pytest.mark.parametrize("duration", [0.8, 0.75, 0.08, 0.05])
def test_scores_on_a_grid_are_decoded_alike_after_a_round_trip(tmp_path, duration):
    grid = FrameGrid(12.5)
    table = np.random.default_rng(0).random((grid.count(duration), 1), dtype=np.float32)
    scores = FrameScores(table, ["dog"], grid, duration=duration)
    write_scores(tmp_path, ScoreTable(["dog"], {"a.wav": scores}))
    again = read_scores(tmp_path)["a.wav"]
    decoding = Decoding.uniform(["dog"], 0.5, low_threshold=0.2, median=0.24)
    assert again.edges.tolist() == scores.edges.tolist()
    assert decode_events(again, decoding) == decode_events(scores, decoding)


def test_frames_of_irregular_lengths_have_no_grid(tmp_path):
    table = ScoreTable(["dog"], {"a.wav": ([0, 0.5, 0.7, 1.5], [[0.9], [0.1], [0.2]])})
    write_scores(tmp_path, table)
    again = read_scores(tmp_path)["a"]
    assert again.grid is None
    assert again.edges.tolist() == [0, 0.5, 0.7, 1.5]


@pytest.mark.parametrize("format", SCORE_FORMATS)
class TestEveryFormat:
    def test_scores_come_back_to_the_last_bit_with_their_grid(self, format, tmp_path):
        rng = np.random.default_rng(0)
        grid = FrameGrid(Fraction(32000, 2560 * 3))
        table = {
            "a.wav": FrameScores(rng.random((25, 2)), ["cat", "dog"], grid, duration=5.9),
            "sub/b.wav": FrameScores(rng.random((3, 2)), ["cat", "dog"], edges=[0.1, 0.2, 1, 7]),
        }
        write_scores(tmp_path / "scores", ScoreTable(["cat", "dog"], table), format)
        assert has_scores(tmp_path / "scores")
        found = read_scores(tmp_path / "scores")
        assert list(found) == ["a", "sub/b"]
        for name, own in table.items():
            np.testing.assert_array_equal(found[name].scores, own.scores)
            np.testing.assert_array_equal(found[name].edges, own.edges)
            assert found[name].grid == own.grid

    @pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"PAR1", b"onset", b"\x93NUMPY\x01"])
    def test_a_damaged_file_is_refused_by_name(self, format, content, tmp_path):
        path = tmp_path / f"a{SCORE_FORMATS[format].suffix}"
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"scores|a\.|header"):
            read_scores(tmp_path)

    def test_a_changed_or_cut_file_is_read_or_refused(self, format, tmp_path):
        path = tmp_path / f"a{SCORE_FORMATS[format].suffix}"
        scores = ScoreTable(["dog"], {"a.wav": ([0, 1, 2], [[0.5], [0.25]])})
        write_scores(tmp_path, scores, format)
        good = path.read_bytes()
        for at in range(0, len(good), max(1, len(good) // 25)):
            path.write_bytes(good[:at])
            with suppress(DataError) if format == "tsv" else pytest.raises(DataError):
                read_scores(tmp_path)  # a table may end with any row
            path.write_bytes(good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :])
            with suppress(DataError):
                read_scores(tmp_path)


def test_an_npz_keeps_clip_level_scores_and_single_precision(tmp_path):
    scores = np.float32([[0.1], [0.7]])
    own = FrameScores(scores, ["dog"], FrameGrid(12.5), clip_scores=[0.25])
    write_scores(tmp_path, ScoreTable(["dog"], {"a.wav": own}), "npz")
    found = read_scores(tmp_path)["a.wav"]
    assert found.scores.dtype == np.float32
    assert found.clip_level() == 0.25
    with np.load(tmp_path / "a.npz") as file:
        assert file["labels"].tolist() == ["dog"]


def test_two_formats_of_one_recording_and_arrays_of_objects_are_refused(tmp_path):
    scores = ScoreTable(["dog"], {"a.wav": ([0, 1], [[0.5]])})
    for format in ("tsv", "npz"):
        write_scores(tmp_path, scores, format)
    with pytest.raises(DataError, match="in two formats"):
        read_scores(tmp_path)
    (tmp_path / "a.tsv").unlink()
    np.savez(tmp_path / "a.npz", scores=np.array([{}], object), edges=[0, 1], labels=["dog"])
    with pytest.raises(DataError, match="Cannot read the scores"):  # no pickle is loaded
        read_scores(tmp_path)
    with pytest.raises(SettingError, match="did you mean 'npz'"):
        write_scores(tmp_path, scores, "npy")
