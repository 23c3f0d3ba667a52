from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from earmark.data.batches import pad_batch
from earmark.data.manifest import Manifest, clip_paths, separate_names
from earmark.errors import AudioError, DataError, SettingError
from earmark.formats.events import Event, write_events
from earmark.formats.tags import read_tags, write_tags


def touch(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def manifest_of(tags, labels=None):
    files = [f"{number}.wav" for number in range(len(tags))]
    labels = sorted({tag for of_clip in tags for tag in of_clip}) if labels is None else labels
    return Manifest(files, [Path(file) for file in files], [tuple(t) for t in tags], labels)


def clips_in(folder, *files):
    return Manifest(files, [Path(folder, file) for file in files], [()] * len(files), ())


def read(folder, tags, labels=None):
    write_tags(folder / "weak.tsv", tags)
    return Manifest.read(folder / "weak.tsv", folder / "audio", labels)


class TestManifest:
    def test_has_a_row_of_targets_for_each_clip_and_a_column_for_each_label(self, tmp_path):
        touch(tmp_path / "audio", "a.wav", "b.wav", "c.wav")
        tags = {"c.wav": ["dog", "cat"], "a.wav": [], "b.wav": ["dog"]}
        manifest = read(tmp_path, tags)
        assert manifest.files == ("c.wav", "a.wav", "b.wav")
        assert manifest.paths[0] == tmp_path / "audio" / "c.wav"
        assert manifest.labels == ("cat", "dog")
        assert manifest.targets.dtype == torch.float32
        assert manifest.targets.tolist() == [[1, 1], [0, 0], [0, 1]]

    def test_keeps_the_order_of_given_labels(self, tmp_path):
        touch(tmp_path / "audio", "a.wav")
        manifest = read(tmp_path, {"a.wav": ["cat"]}, labels=["owl", "dog", "cat"])
        assert manifest.labels == ("owl", "dog", "cat")
        assert manifest.targets.tolist() == [[0, 0, 1]]

    def test_of_a_strong_table_has_the_tags_of_its_events(self, tmp_path):
        touch(tmp_path / "audio", "a.wav", "b.wav")
        events = {"a.wav": [Event(0, 1, "dog"), Event(2, 3, "dog")], "b.wav": []}
        write_events(tmp_path / "strong.tsv", events)
        manifest = Manifest.read(tmp_path / "strong.tsv", tmp_path / "audio")
        assert manifest.tags == (("dog",), ())

    def test_of_class_folders_names_clips_by_their_paths(self, tmp_path):
        touch(tmp_path, "dog/1.wav", "cat/1.flac")
        manifest = Manifest.read(tmp_path)
        assert manifest.files == ("cat/1.flac", "dog/1.wav")
        assert manifest.tags == (("cat",), ("dog",))
        assert Manifest.read(tmp_path, tmp_path) == manifest
        with pytest.raises(DataError, match=r"no label 'cat'; did you mean 'cats'"):
            Manifest.read(tmp_path, labels=["dog", "cats"])
        with pytest.raises(SettingError, match="folder of class folders"):
            Manifest.read(tmp_path, tmp_path / "dog")

    def test_lists_what_is_missing_and_keeps_its_labels(self, tmp_path):
        touch(tmp_path / "audio", "a.wav")
        manifest = read(tmp_path, {"a.wav": ["dog"], "lost.wav": ["cat"]})
        assert manifest.files == ("a.wav",)
        assert manifest.missing == ("lost.wav",)
        assert manifest.labels == ("cat", "dog")

    def test_of_an_empty_table_is_empty(self, tmp_path):
        (tmp_path / "audio").mkdir()
        (tmp_path / "weak.tsv").touch()
        manifest = Manifest.read(tmp_path / "weak.tsv", tmp_path / "audio")
        assert len(manifest) == 0
        assert manifest.targets.shape == (0, 0)

    def test_refuses_invalid_input(self, tmp_path):
        touch(tmp_path / "audio", "a.wav")
        with pytest.raises(DataError, match=r"weak.tsv:2: there is no label 'dgo'.*'dog'"):
            read(tmp_path, {"a.wav": ["dgo"]}, labels=["dog", "cat"])
        with pytest.raises(DataError, match="label 'dog' occurs twice"):
            read(tmp_path, {"a.wav": ["dog"]}, labels=["dog", "dog"])
        with pytest.raises(SettingError, match="folder of its recordings as audio"):
            Manifest.read(tmp_path / "weak.tsv")
        with pytest.raises(AudioError, match="not a folder"):
            Manifest.read(tmp_path / "weak.tsv", tmp_path / "nowhere")
        with pytest.raises(SettingError, match="list of names"):
            read(tmp_path, {"a.wav": ["dog"]}, labels="dog")
        with pytest.raises(
            DataError, match=r"tags of 0.wav: there is no label 'dgo'; did you mean 'dog'"
        ):
            manifest_of([["dgo"]], labels=["dog"])
        with pytest.raises(SettingError, match="needs a path and tags for each"):
            Manifest(("a.wav",), (), (), ())


class TestNames:
    @pytest.mark.parametrize(
        ("in_table", "on_disk"),
        [
            ("a.wav", "a.wav"),
            ("sub/a.wav", "sub/a.wav"),
            ("a.wav", "Ya.wav"),
            ("Ya.wav", "a.wav"),
            ("Yes.wav", "YYes.wav"),
            ("a.wav", "a.flac"),
            ("a", "a.ogg"),
            ("a.wav", "A.WAV"),
            ("-5Q_60.000_70.000.wav", "Y-5q_60.000_70.000.mp3"),
            ("x_60.000_70.000", "x_60.000_70.000.wav"),
            ("sub/a.wav", "sub/Ya.flac"),
            ("a.wav", "sub/a.wav"),
            ("a.wav", "sub/deep/Ya.flac"),
            ("caf\u00e9.wav", "cafe\u0301.wav"),
            ("take.v2", "take.v2.wav"),
            ("clip.webm", "clip.wav"),
            ("notes.txt", "notes.txt"),  # no audio: reading it raises
        ],
    )
    def test_match_recordings_under_their_usual_variants(self, tmp_path, in_table, on_disk):
        touch(tmp_path / "audio", on_disk, "other.wav", "sub/other.wav")
        manifest = read(tmp_path, {in_table: []})
        assert manifest.paths == (tmp_path / "audio" / on_disk,)

    def test_may_be_absolute_paths(self, tmp_path):
        touch(tmp_path, "elsewhere/a.wav", "audio/b.wav")
        path = tmp_path / "elsewhere" / "a.wav"
        assert read(tmp_path, {str(path): []}).paths == (path,)

    @pytest.mark.parametrize(
        ("in_table", "found", "others"),
        [
            ("a.wav", "a.wav", ["Ya.wav", "a.flac", "A.wav"]),
            ("a.wav", "Ya.wav", ["a.flac", "Ya.flac"]),
            ("a.wav", "a.flac", ["Ya.flac"]),
        ],
    )
    def test_prefer_the_closest_match(self, tmp_path, in_table, found, others):
        touch(tmp_path / "audio", found, *others)
        assert read(tmp_path, {in_table: []}).paths == (tmp_path / "audio" / found,)

    @pytest.mark.parametrize(
        "both", [("a.flac", "a.ogg"), ("A.WAV", "a.flac"), ("x/a.wav", "y/a.wav")]
    )
    def test_that_match_two_files_are_refused(self, tmp_path, both):
        touch(tmp_path / "audio", *both)
        with pytest.raises(DataError, match=r"'a.wav' may be any of .*, .* Write the one"):
            read(tmp_path, {"a.wav": []})

    @pytest.mark.parametrize("name", ["Y.wav", "other/b.wav", "a.wav.wav", "x" * 300, "audio", "."])
    def test_without_a_match_are_missing(self, tmp_path, name):
        touch(tmp_path / "audio", "a.wav", "sub/b.wav")
        assert read(tmp_path, {name: []}).missing == (name,)

    def test_of_two_manifests_must_not_mean_different_recordings(self):
        one, two = clips_in("x", "a.wav"), clips_in("x", "a.wav", "b.wav")
        assert clip_paths(one, two) == {"a.wav": Path("x/a.wav"), "b.wav": Path("x/b.wav")}
        with pytest.raises(DataError, match=r"two recordings, x.a.wav and y.a.wav"):
            clip_paths(one, clips_in("y", "a.wav"))

    def test_of_several_manifests_are_separated_where_they_mean_different_recordings(self):
        train, valid, test = (clips_in(x, "a.wav", "b.wav") for x in ("train", "valid", "test"))
        apart = separate_names(train, validation=valid, test=test)
        assert [clips.files for clips in apart] == [
            ("validation: a.wav", "validation: b.wav"),
            ("test: a.wav", "test: b.wav"),
        ]
        assert len(clip_paths(train, *apart)) == 6
        assert [clips.paths for clips in apart] == [valid.paths, test.paths]
        other = clips_in("valid", "c.wav")
        assert separate_names(train, validation=other, test=train) == (other, train)
        assert separate_names(other, validation=valid, test=test)[1].files == apart[1].files

    def test_in_a_table_of_events_may_have_another_suffix(self):
        clips = manifest_of([["dog"], []]).with_events({"0.flac": [Event(0, 1, "dog")], "1": []})
        assert clips.events == ((Event(0, 1, "dog"),), ())


class TestSplit:
    @given(
        tags=st.lists(st.sets(st.sampled_from("abcde"), max_size=3), min_size=2, max_size=60),
        fraction=st.floats(0.01, 0.99),
        seed=st.integers(0, 5),
    )
    def test_assigns_every_clip_once_and_is_reproducible(self, tags, fraction, seed):
        manifest = manifest_of(tags)
        first, second = manifest.split(fraction, seed)
        assert sorted(first.files + second.files) == sorted(manifest.files)
        assert len(first) > 0
        assert len(second) > 0
        assert first.labels == second.labels == manifest.labels
        assert manifest.split(fraction, seed) == (first, second)

    @given(
        counts=st.lists(st.integers(1, 40), min_size=1, max_size=8).filter(lambda c: sum(c) > 1),
        fraction=st.floats(0.05, 0.5),
    )
    def test_keeps_every_class_of_two_clips_in_both_parts(self, counts, fraction):
        manifest = manifest_of([[f"{n}"] for n, count in enumerate(counts) for _ in range(count)])
        first, second = manifest.split(fraction)
        for label, count in Counter(tag for (tag,) in manifest.tags).items():
            if count > 1:
                n_second = sum(tag == label for (tag,) in second.tags)
                assert 1 <= n_second < count
                assert abs(n_second - count * fraction) <= 1
        if max(counts) > 1:  # a class of one clip is there to be learnt
            assert {tag for (tag,) in first.tags} == set(manifest.labels)

    def test_differs_with_the_seed(self):
        manifest = manifest_of([["a"]] * 50)
        assert manifest.split(0.2, seed=0) != manifest.split(0.2, seed=1)

    def test_assigns_rare_classes_first(self):
        tags = [["common"]] * 200 + [["common", "rare"]] * 2 + [[]] * 40
        first, second = manifest_of(tags).split(0.1)
        for part in (first, second):
            assert sum("rare" in of_clip for of_clip in part.tags) == 1
        assert sum("common" in of_clip for of_clip in second.tags) == 20
        assert sum(not of_clip for of_clip in second.tags) == 4

    def test_refuses_what_cannot_be_split(self):
        for fraction in (0, 1, -0.1, float("nan")):
            with pytest.raises(SettingError, match="fraction"):
                manifest_of([["a"]] * 4).split(fraction)
        with pytest.raises(DataError, match="two clips or more"):
            manifest_of([["a"]]).split(0.5)


class TestBatch:
    def test_pads_shorter_clips_with_zeros_and_masks_them(self):
        clips = [torch.rand(n, 4) for n in (3, 5, 1)]
        batch, mask = pad_batch(clips)
        assert batch.shape == (3, 5, 4)
        assert mask.dtype == torch.bool
        assert mask.sum(1).tolist() == [3, 5, 1]
        for row, clip in enumerate(clips):
            assert torch.equal(batch[row][mask[row]], clip)
        assert not batch[~mask].any()

    def test_keeps_the_precision(self):
        assert pad_batch([torch.zeros(2, 3, dtype=torch.float16)])[0].dtype == torch.float16

    @pytest.mark.parametrize(
        "clips", [[], [torch.zeros(3)], [torch.zeros(2, 3), torch.zeros(2, 4)]]
    )
    def test_refuses_clips_of_different_shapes(self, clips):
        with pytest.raises(SettingError, match="same mels"):
            pad_batch(clips)


class TestRealLists:
    def test_of_dcase_2017_find_their_files_by_the_y(self, dcase2017, tmp_path):
        table = dcase2017 / "testing_set.csv"
        names = list(read_tags(table))
        touch(tmp_path / "audio", *(f"Y{name}" for name in names[:-3]))
        manifest = Manifest.read(table, tmp_path / "audio")
        assert len(manifest) == 485
        assert manifest.missing == tuple(names[-3:])
        assert len(manifest.labels) == 17
        assert manifest.targets.sum() == sum(len(tags) for tags in manifest.tags)
        strong = dcase2017 / "groundtruth_strong_label_testing_set.csv"
        timed = Manifest.read(strong, tmp_path / "audio", labels=manifest.labels)
        assert set(timed.files) <= set(manifest.files)

    def test_of_dcase_2017_are_split_evenly_in_every_class(self, dcase2017):
        tags = read_tags(dcase2017 / "testing_set.csv")
        manifest = manifest_of(list(tags.values()))
        _, second = manifest.split(0.2, seed=3)
        shares = second.targets.sum(0) / manifest.targets.sum(0)
        assert shares.min() > 0.15
        assert shares.max() < 0.25

    def test_of_esc50_are_read_with_their_audio(self, esc50):
        manifest = Manifest.read(esc50 / "clips.tsv", esc50 / "audio")
        assert len(manifest) == 1399
        assert not manifest.missing
        assert len(manifest.labels) == 50
        assert manifest.targets.sum(1).tolist() == [1.0] * 1399
