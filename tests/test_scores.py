"""Score curves: they come back to the last bit, and a bad table is told with its line."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.errors import DataError, SettingError
from earmark.formats.scores import ScoreCurve, ScoreCurves, read_curves, write_curves
from earmark.frames import FrameGrid

finite = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=5), st.data())
def test_curves_come_back_to_the_last_bit(tmp_path_factory, scores, data):
    times = st.lists(
        st.floats(0, 1e6), min_size=len(scores) + 1, max_size=len(scores) + 1, unique=True
    )
    curve = ScoreCurve(sorted(data.draw(times)), scores)
    folder = tmp_path_factory.mktemp("curves")
    write_curves(folder, ScoreCurves(["cat", "dog"], {"a.wav": curve, "sub/b.wav": curve}))
    again = read_curves(folder)
    assert again.labels == ("cat", "dog")
    assert sorted(again) == ["a", "sub/b"]
    for name in ("a.wav", "sub/b.wav"):
        assert again[name].edges.tobytes() == curve.edges.tobytes()
        assert again[name].scores.tobytes() == curve.scores.tobytes()


def test_a_name_with_dots_is_found_with_and_without_suffix(tmp_path):
    name = "-5QrBL6MzLg_60.000_70.000"
    write_curves(tmp_path, ScoreCurves(["dog"], {f"{name}.wav": ScoreCurve([0, 1], [[0.5]])}))
    assert (tmp_path / f"{name}.tsv").is_file()
    assert f"{name}.flac" in read_curves(tmp_path)
    assert f"{name[:-1]}.wav" not in read_curves(tmp_path)


def test_frames_of_a_detector_end_with_the_recording():
    probs = np.linspace(0, 1, 10, dtype=np.float32)[:, None]
    curve = ScoreCurve.from_frames(probs, FrameGrid(12.5), 0.7)
    assert curve.edges.tolist() == [0.0, 0.08, 0.16, 0.24, 0.32, 0.4, 0.48, 0.56, 0.64, 0.7]
    assert curve.scores[-1] == probs[8]
    assert ScoreCurve.from_frames(probs, FrameGrid(12.5), 0.8).duration == 0.8


def test_half_written_tables_are_not_read(tmp_path):
    write_curves(tmp_path, ScoreCurves(["dog"], {"a": ScoreCurve([0, 1], [[0.5]])}))
    (tmp_path / ".b.tsv.17.part").write_text("onset")
    (tmp_path / ".b.tsv").write_text("onset")
    assert list(read_curves(tmp_path)) == ["a"]


GOOD = "onset\toffset\tdog\n0\t1\t0.5\n1\t2\t0.25\n"


@pytest.mark.parametrize(
    ("text", "told"),
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
def test_a_bad_table_is_told_with_file_and_line(tmp_path, text, told):
    (tmp_path / "a.tsv").write_text(text)
    with pytest.raises(DataError, match=told):
        read_curves(tmp_path)


def test_a_byte_order_mark_blank_lines_and_other_line_ends_do_no_harm(tmp_path):
    text = GOOD.replace("\n", "\r\n") + "\r\n\r\n"
    (tmp_path / "a.tsv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_curves(tmp_path)["a"].scores.tolist() == [[0.5], [0.25]]


def test_what_is_no_text_is_told(tmp_path):
    (tmp_path / "a.tsv").write_bytes(b"onset\xff")
    with pytest.raises(DataError, match="not UTF-8"):
        read_curves(tmp_path)


def test_tables_with_other_classes_are_told(tmp_path):
    (tmp_path / "a.tsv").write_text(GOOD)
    (tmp_path / "b.tsv").write_text(GOOD.replace("dog", "cat"))
    with pytest.raises(DataError, match=r"b\.tsv:1: the classes are cat, but those of .*a\.tsv"):
        read_curves(tmp_path)


def test_a_folder_without_tables_is_told(tmp_path):
    with pytest.raises(DataError, match="has no tables"):
        read_curves(tmp_path)
    with pytest.raises(DataError, match="is no folder"):
        read_curves(tmp_path / "nowhere")


def test_names_that_collide_are_refused(tmp_path):
    curve = ScoreCurve([0, 1], [[0.5]])
    with pytest.raises(DataError, match="the same without their suffix"):
        ScoreCurves(["dog"], {"a.wav": curve, "a.flac": curve})


@pytest.mark.parametrize("name", ["../a", "/a", "b/../../a"])
def test_a_table_never_leaves_its_folder(tmp_path, name):
    curves = ScoreCurves(["dog"], {name: ScoreCurve([0, 1], [[0.5]])})
    with pytest.raises(DataError, match="would leave"):
        write_curves(tmp_path / "in", curves)


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
def test_a_curve_has_finite_scores_and_rising_edges(edges, scores):
    with pytest.raises(DataError):
        ScoreCurve(edges, scores)


def test_shapes_that_do_not_fit_are_told():
    with pytest.raises(SettingError, match="edges"):
        ScoreCurve([0, 1, 2], [[0.5]])
    with pytest.raises(SettingError, match="frames, classes"):
        ScoreCurve([0], np.zeros((0, 1)))
    with pytest.raises(SettingError, match="2 columns for the 1 labels"):
        ScoreCurves(["dog"], {"a": ScoreCurve([0, 1], [[0.5, 0.5]])})
