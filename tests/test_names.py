"""Which file is which: one rule for recordings, score tables, evaluation and comparisons."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tones import write_tones

from earmark.errors import DataError
from earmark.experiments import Plan, run_plan
from earmark.formats.events import Event, EventTable
from earmark.formats.names import NameIndex, match_names, rename_files, stem_of
from earmark.formats.scores import ScoreTable
from earmark.metrics.evaluation import Scoring, SystemOutput, evaluate

NO_INTERVALS = Scoring(n_bootstrap=0)
DOG, LATE_DOG = Event(0, 1, "dog"), Event(1, 3, "dog")


class TestRule:
    @pytest.mark.parametrize(
        ("name", "stem"),
        [
            ("a.wav", "a"),
            ("street/a.FLAC", "street/a"),
            ("x_60.000_70.000", "x_60.000_70.000"),
            ("a.tar.gz", "a.tar"),
            (".wav", ".wav"),
            ("street/.wav", "street/.wav"),
            ("a.sentence", "a.sentence"),
        ],
    )
    def test_a_suffix_is_a_dot_a_letter_and_up_to_four_more_signs(self, name, stem):
        assert stem_of(name) == stem

    @pytest.mark.parametrize(
        ("name", "others"),
        [
            ("a.wav", ["a.wav", "Ya.wav", "a.flac"]),
            ("a.wav", ["Ya.wav", "a.flac", "Ya.flac"]),
            ("a.wav", ["a.flac", "Ya.flac", "sub/a.wav"]),
            ("a.wav", ["Ya.flac", "sub/a.wav"]),
            ("a.wav", ["sub/a.wav", "b.wav"]),
        ],
    )
    def test_the_first_step_that_finds_anything_decides(self, name, others):
        assert NameIndex(others).find(name) == others[:1]
        assert match_names([name], others) == {name: others[0]}

    def test_two_matches_in_one_step_are_ambiguous(self):
        assert NameIndex(["a.flac", "a.ogg"]).find("a.wav") == ["a.flac", "a.ogg"]
        with pytest.raises(DataError, match=r"'a.wav' may be any of 'a.flac', 'a.ogg'. Use"):
            match_names(["a.wav"], ["a.flac", "a.ogg"])
        with pytest.raises(DataError, match=r"'a.ogg' may be 'a.wav' or 'a.flac'. Use"):
            match_names(["a.wav", "a.flac"], ["a.ogg"])

    def test_a_better_match_is_not_used_for_another_name(self):
        assert match_names(["Ya.wav", "a.wav"], ["a.wav"]) == {"a.wav": "a.wav"}
        assert match_names(["Ya.wav", "a.wav"], ["a.flac"]) == {"a.wav": "a.flac"}

    @given(
        names=st.lists(st.text("aAY./é", min_size=1, max_size=6), unique=True, max_size=6),
        others=st.lists(st.text("aAY./é", min_size=1, max_size=6), unique=True, max_size=6),
    )
    def test_exact_names_always_match_and_no_file_is_used_twice(self, names, others):
        try:
            matched = match_names(names, others)
        except DataError:
            return
        assert all(matched[name] == name for name in set(names) & set(others))
        assert len(set(matched.values())) == len(matched)
        assert set(matched.values()) <= set(others)

    def test_a_renamed_table_keeps_its_order_and_its_kind(self):
        table = EventTable({"b.flac": [DOG], "c.flac": [], "a.wav": []})
        table.n_dropped = 3
        renamed = rename_files(table, ["a.wav", "b.wav"])
        assert list(renamed) == ["b.wav", "c.flac", "a.wav"]
        assert isinstance(renamed, EventTable)
        assert renamed.n_dropped == 3
        assert list(table) == ["b.flac", "c.flac", "a.wav"]
        assert rename_files(table, ["a.wav"]) is table


REFERENCE = {"a.wav": [DOG], "street/Yb.wav": [LATE_DOG]}
SCORES = {"a.wav": [[0.9], [0.2]], "street/Yb.wav": [[0.6], [0.7]]}


def output(names):
    """A system that detects a dog in both files, under other names."""
    events = {names.get(name, name): [DOG] for name in REFERENCE}
    scores = {names.get(name, name): ([0, 1, 3], rows) for name, rows in SCORES.items()}
    return SystemOutput("mine", events, scores=ScoreTable(["dog"], scores))


class TestEvaluation:
    @pytest.mark.parametrize(
        "names",
        [
            {"a.wav": "a.flac", "street/Yb.wav": "street/b.flac"},
            {"a.wav": "A", "street/Yb.wav": "street/yB"},
            {"a.wav": "audio/a.wav"},
        ],
    )
    def test_names_that_mean_the_same_file_give_the_same_scores(self, names):
        exact = evaluate(REFERENCE, [output({})], NO_INTERVALS)
        other = evaluate(REFERENCE, [output(names)], NO_INTERVALS)
        assert json.dumps(other.to_dict()) == json.dumps(exact.to_dict())  # nan is not nan

    def test_durations_follow_the_same_rule(self):
        durations = {"A.mp3": 4.0, "street/b": 5.0}
        exact = dict(zip(REFERENCE, durations.values(), strict=True))
        scores = [
            evaluate(REFERENCE, [output({})], Scoring(n_bootstrap=0, durations=each))
            for each in (durations, exact)
        ]
        assert json.dumps(scores[0].to_dict()) == json.dumps(scores[1].to_dict())

    def test_an_ambiguous_estimate_is_refused(self):
        found = SystemOutput("mine", {"a.flac": [DOG], "a.ogg": [DOG]})
        with pytest.raises(DataError, match="may be any of"):
            evaluate(REFERENCE, [found], NO_INTERVALS)


PLAN = """
preset = "fast"

[data]
train = "train/{train}_weak.tsv"
valid = "valid/{valid}_weak.tsv"
test = "test/{test}_strong.tsv"
valid_events = "valid/{valid}_strong.tsv"

[settings]
features = {{sample_rate = 8000, n_mels = 16, f_max = 4000}}
model = {{channels = [8, 8, 8, 8], last_channels = 16, n_recurrent = 8, dropout = 0.0}}
training = {{batch_size = 8, max_epochs = 1, threads = 1}}

[grid]
seeds = 1

[grid.pooling]
linear = {{model.pooling = "linear"}}
"""


def test_sets_with_the_same_names_are_compared_as_sets_with_different_names(tmp_path):
    sets = ("train", "valid", "test")
    found = []
    for prefixes in (dict.fromkeys(sets, "scene"), {name: name for name in sets}):
        home = tmp_path / prefixes["train"]
        for seed, name in enumerate(sets):
            write_tones(home / name, 8, seed=seed, prefix=prefixes[name])
        (home / "plan.toml").write_text(PLAN.format_map(prefixes))
        found += run_plan(Plan.read(home / "plan.toml"), home / "out", home / "work", processes=1)
    same, different = found
    assert same.scores == different.scores
    assert same.counts == different.counts
