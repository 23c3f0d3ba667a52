"""Groups of clips, such as speakers: read, kept together in a split, and suggested by names."""

import shlex
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from earmark.audio.encode import write_audio
from earmark.cli.app import app
from earmark.data.doctor import examine
from earmark.data.groups import groups_by_pattern, suggest_groups
from earmark.data.manifest import Manifest
from earmark.errors import DataError, SettingError
from earmark.training.clips import read_tables

NONE = {"group": None, "group_pattern": None}


def clips_of(groups, tags, labels=("a", "b", "c")):
    files = [f"{number}.wav" for number in range(len(groups))]
    return Manifest(files, [Path(file) for file in files], tags, labels, groups=groups)


@pytest.fixture(scope="module")
def speakers(tmp_path_factory):
    """Clips of six speakers, two classes each, and their table."""
    folder = tmp_path_factory.mktemp("speakers")
    (folder / "audio").mkdir()
    rows = ["filename\tlabel\tSpeaker"]
    for name in "abcdef":
        for number in range(4):
            file = f"{name}{name}_{number:02}.wav"
            write_audio(folder / "audio" / file, np.full(800, 0.1), 8000)
            rows.append(f"{file}\t{'yes' if number % 2 else 'no'}\t{name}")
    (folder / "clips.tsv").write_text("\n".join(rows))
    return folder


class TestSplit:
    @given(
        st.lists(
            st.tuples(st.integers(0, 6), st.sets(st.sampled_from("abc"))), min_size=2, max_size=60
        ),
        st.floats(0.05, 0.95),
        st.integers(0, 3),
    )
    def test_never_divides_a_group_and_is_reproducible(self, clips, fraction, seed):
        groups = [str(group) for group, _ in clips]
        manifest = clips_of(groups, [tuple(sorted(tags)) for _, tags in clips])
        if len({*groups}) < 2:
            with pytest.raises(DataError, match=r"All .* clips are of the group"):
                manifest.split(fraction, seed)
            return
        first, second = manifest.split(fraction, seed)
        assert not {*first.groups} & {*second.groups}
        assert len(first) and len(second) and len(first) + len(second) == len(manifest)
        assert (first, second) == manifest.split(fraction, seed)

    @pytest.mark.parametrize("sizes", [[5] * 12, [30, 10, 10, 5, 5], [40, 3, 3], [50, 50]])
    def test_holds_out_close_to_the_fraction_of_every_class(self, sizes):
        groups = [f"g{at}" for at, size in enumerate(sizes) for _ in range(size)]
        tags = [("a",) if row % 2 else ("b",) for row in range(len(groups))]
        for seed in range(5):
            first, second = clips_of(groups, tags, ("a", "b")).split(0.15, seed)
            assert first.targets.any(0).all() and second.targets.any(0).all()
            assert len(second) <= 0.15 * len(groups) + max(sorted(sizes)[: max(2, len(sizes) - 1)])

    def test_puts_a_rare_class_of_two_groups_into_both_parts(self):
        groups = [f"g{row // 2}" for row in range(80)]
        tags = [("c",) if row in (10, 50) else ("a",) if row % 3 else ("b",) for row in range(80)]
        for seed in range(10):
            parts = clips_of(groups, tags).split(0.15, seed)
            assert [float(part.targets[:, 2].sum()) for part in parts] == [1, 1]

    def test_of_real_speakers_holds_out_whole_speakers_evenly(self):
        folder = Path(__file__).resolve().parents[2] / "shared" / "digits"
        if not folder.is_dir():
            pytest.skip(f"{folder} does not exist: this test needs its real data")
        clips = Manifest.read(folder / "clips.tsv", folder / "audio", group="speaker")
        first, second = clips.split(0.15)
        assert not {*first.groups} & {*second.groups}
        shares = (second.targets.sum(0) / clips.targets.sum(0)).tolist()
        assert shares == pytest.approx([0.15] * 10, abs=0.01)


class TestReading:
    def test_takes_a_column_or_a_pattern(self, speakers):
        table, audio = speakers / "clips.tsv", speakers / "audio"
        by_column = Manifest.read(table, audio, group="speaker")
        by_pattern = Manifest.read(table, audio, group_pattern="^(.)._")
        assert by_column.groups == by_pattern.groups
        assert by_column.take([0, 23]).groups == ("a", "f")
        assert Manifest.read(table, audio, group_pattern="^[a-z]+").groups[0] == "aa"

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"group": "place"}, DataError, "no column 'place' of groups; it has the columns file"),
            ({"group_pattern": "("}, SettingError, "must be a regular expression"),
            ({"group_pattern": "^([b-z])"}, DataError, "finds no group in the name 'aa_00.wav'"),
            ({"group": "speaker", "group_pattern": "."}, SettingError, "not both"),
        ],
    )
    def test_refuses_what_gives_no_group(self, speakers, options, error, message):
        with pytest.raises(error, match=message):
            Manifest.read(speakers / "clips.tsv", speakers / "audio", **options)

    def test_refuses_a_clip_without_a_group_or_of_two(self, tmp_path):
        table = tmp_path / "a.tsv"
        (tmp_path / "a.wav").touch()
        for rows, message in (
            ("a.wav\tx\t\n", r"a.tsv:2: a.wav has no who"),
            ("a.wav\tx\t1\na.wav\ty\t2\n", r":3: a.wav has the who '2', and '1'"),
        ):
            table.write_text("filename\tlabel\twho\n" + rows)
            with pytest.raises(DataError, match=message):
                Manifest.read(table, tmp_path, group="who")


class TestTraining:
    def test_holds_out_whole_groups(self, speakers, caplog):
        caplog.set_level("INFO", "earmark")
        tables = (speakers / "clips.tsv", None, speakers / "audio", None, None, 0)
        train, valid = read_tables(*tables, NONE | {"group": "speaker"})
        assert not {*train.groups} & {*valid.groups}
        assert "4 of 24 clips (1 of 6 groups) are held out" in caplog.text
        assert "suggest" not in caplog.text

    def test_warns_where_names_suggest_groups_that_a_random_split_divides(self, speakers, caplog):
        tables = (speakers / "clips.tsv", None, speakers / "audio", None, None, 0)
        read_tables(*tables, NONE)
        assert "The table has a column 'speaker'." in caplog.text
        assert "add --group speaker" in caplog.text

    def test_refuses_a_validation_table_with_groups_of_training(self, speakers):
        table, audio = speakers / "clips.tsv", speakers / "audio"
        with pytest.raises(DataError, match=r"share 6 of 6 groups \('a', 'b', 'c', ...\)"):
            read_tables(table, table, audio, None, None, 0, NONE | {"group": "speaker"})
        with pytest.raises(SettingError, match="A Manifest has its own groups"):
            clips = Manifest.read(table, audio)
            read_tables(clips, None, None, None, None, 0, NONE | {"group": "speaker"})


def names(pattern, n=60):
    return [pattern.format(n=row, letter="abcdef"[row % 6], take=row // 6) for row in range(n)]


TAGS = [("yes",) if row % 7 < 3 else ("no",) for row in range(60)]


class TestSuggestion:
    @pytest.mark.parametrize(
        ("pattern", "first"),
        [
            ("speaker{letter}_{take:03}.wav", "speakera"),
            ("site{letter}-2024-{take}.flac", "sitea"),
            ("{n:03} {letter}x.wav", "ax"),
            ("room_{letter}/{take}.wav", "room_a"),
            ("all/rec_{letter}b_{take}.wav", "ab"),
        ],
    )
    def test_names_the_groups_and_a_pattern_that_finds_them(self, pattern, first):
        files = names(pattern)
        suggestion = suggest_groups(files, TAGS)
        assert "6 groups of 10 to 10 clips" in suggestion.evidence
        assert suggestion.groups[0] == first
        option, regex = shlex.split(suggestion.option)
        assert option == "--group-pattern"
        found = groups_by_pattern(files, regex)
        assert len({*found}) == 6 and len({*zip(found, names("{letter}"), strict=True)}) == 6

    @pytest.mark.parametrize(
        "files",
        [
            names("scene_{n:05}.wav"),
            names("{n}.wav"),
            [f"{tag}_{row}.wav" for row, (tag,) in enumerate(TAGS)],
            [f"{tag}/{row}.wav" for row, (tag,) in enumerate(TAGS)],
            names("{letter}_{take}.wav", 18),
        ],
    )
    def test_is_none_for_names_that_count_or_repeat_the_class(self, files):
        assert suggest_groups(files, TAGS[: len(files)]) is None


class TestDoctor:
    def test_says_what_to_type_and_it_is_accepted(self, speakers):
        clips = Manifest.read(speakers / "clips.tsv", speakers / "audio")
        (found,) = (x for x in examine(clips, processes=1).findings if x.kind == "groups")
        assert found.severity == "hurts" and found.remedy == "Train with --group speaker"
        arguments = [str(speakers / "clips.tsv"), "--audio", str(speakers / "audio")]
        typed = shlex.split(found.remedy.removeprefix("Train with "))
        done = CliRunner().invoke(app, ["doctor", *arguments, *typed, "--json"])
        assert done.exit_code == 0 and '"groups"' not in done.stdout

    def test_reports_groups_that_two_tables_share(self, speakers):
        clips = Manifest.read(speakers / "clips.tsv", speakers / "audio", group="speaker")
        train, valid = clips.take(range(16)), clips.take(range(12, 24))
        report = examine(train, valid, processes=1)
        (found,) = (x for x in report.findings if x.kind == "shared groups")
        assert report.stops and found.items == {"d": "4 clips"}
        bare = Manifest.read(speakers / "clips.tsv", speakers / "audio", group_pattern=".+")
        alone = examine(bare.take([0, 1, 3]), processes=1)
        (found,) = (x for x in alone.findings if x.kind == "one group")
        assert found.items == {"no": "aa_00.wav"}

    def test_is_silent_where_names_share_no_group(self):
        files = names("speaker{letter}_{take:03}.wav")
        clips = Manifest(files, [Path(file) for file in files], TAGS, ("no", "yes"))
        first = clips.take(row for row in range(60) if row % 6 < 3)
        other = clips.take(row for row in range(60) if row % 6 >= 3)
        kinds = {x.kind for x in examine(first, other, processes=1).findings}
        assert "groups" not in kinds
        mixed = examine(clips.take(range(30)), clips.take(range(30, 60)), processes=1)
        (found,) = (x for x in mixed.findings if x.kind == "groups")
        assert "6 of them are in training and in validation" in found.sentence
