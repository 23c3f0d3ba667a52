"""Text tables: names are shown literally, in the terminal and in Markdown."""

import io

import pytest
from rich.console import Console

from earmark.formats.events import Event
from earmark.formats.scores import ScoreTable
from earmark.metrics.evaluation import Scoring, SystemOutput, evaluate
from earmark.metrics.report import TextTable, p_text, score_tables

ODD = ["[noise]", "speech [male]", "[/x]", "A|B", ":smile:"]


def printed(table, width=100):
    text = io.StringIO()
    Console(file=text, width=width).print(table.to_rich())
    return text.getvalue()


def test_names_that_look_like_markup_are_printed_literally():
    table = TextTable("[title]", ("", "[b]"), tuple((name, "0.5") for name in ODD))
    text = printed(table)
    assert all(name in text for name in [*ODD, "[title]", "[b]"])


def test_a_bar_in_a_name_does_not_break_a_markdown_table():
    table = TextTable("t", ("", "a|b"), (("A|B", "0.5"),))
    for line in table.to_markdown().splitlines()[2:]:
        assert line.replace(r"\|", "").count("|") == 3


def test_numbers_stay_whole_where_the_terminal_is_narrow():
    table = TextTable("t", ("", "ER", "F1"), (("a rather long name of a class", "0.123", "0.456"),))
    text = printed(table, width=30)
    assert "0.123" in text
    assert "0.456" in text


@pytest.mark.parametrize("width", [30, 50, 80, 200])
def test_every_part_of_a_wide_table_starts_with_the_names(width):
    columns = ("configuration", *(f"score {n}" for n in range(9)))
    rows = tuple((name, *["0.123 ± 0.456"] * 9) for name in ("linear, single", "oracle"))
    lines = printed(TextTable("t", columns, rows), width=width).splitlines()
    assert all(len(line) <= width for line in lines)
    parts = [line for line in lines if "score" in line]
    n_numbers = [line.count("0.123 ± 0.456") for line in lines if line.startswith(" oracle")]
    assert n_numbers == [line.count("score") for line in parts]
    assert sum(n_numbers) == 9
    assert (len(parts) == 1) == (width == 200)
    assert all(line.startswith(" configura") for line in parts)


def test_a_title_is_at_the_left_and_the_strong_rows_are_bold():
    table = TextTable("t", ("", "F1"), (("overall", "0.5"), ("a long name of a class", "0.4")), 1)
    text = io.StringIO()
    Console(file=text, width=60, force_terminal=True, color_system="standard").print(
        table.to_rich()
    )
    lines = text.getvalue().splitlines()
    assert lines[0].startswith("\x1b[3mt")
    bold = [line for line in lines if "\x1b[1m" in line and ("overall" in line or "class" in line)]
    assert len(bold) == 1
    assert "overall" in bold[0]


def test_a_difference_has_both_scores_and_their_difference_if_it_was_not_tested():
    reference = {"a": [Event(0, 4, "dog")]}
    systems = [
        SystemOutput("half", {"a": [Event(0, 2, "dog")]}),
        SystemOutput("whole", {"a": [Event(0, 4, "dog")]}),
    ]
    tables = score_tables(evaluate(reference, systems, Scoring(n_bootstrap=0)))
    (table,) = (own for own in tables if "paired by file" in own.title)
    row = next(own for own in table.rows if own[0] == "segment F1")
    assert row == ("segment F1", "0.667", "1.000", "+0.333", "-", "-")


def test_the_reliability_of_all_events_is_above_that_of_its_bins():
    events = {"a": [Event(0, 1, "dog", 0.9), Event(2, 3, "dog", 0.2)]}
    evaluation = evaluate(
        {"a": events["a"][:1]}, [SystemOutput("mine", events)], Scoring(n_bootstrap=0)
    )
    (table,) = (own for own in score_tables(evaluation) if own.title == "calibration: mine")
    assert table.rows[0][:2] == ("all", "2")


def test_a_p_value_of_a_thousandth_is_shown_as_it_is():
    assert (p_text(0.001), p_text(0.00099)) == ("0.001", "<0.001")


def test_the_headlines_give_the_number_of_bootstrap_samples_of_scores():
    reference = {name: [Event(0, 1, "dog")] for name in "abc"}
    frame_scores = ScoreTable(["dog"], {n: ([0, 1, 2], [[0.9], [0.1]]) for n in "abc"})
    scoring = Scoring(n_bootstrap=60, n_score_bootstrap=50)
    both = evaluate(reference, [SystemOutput("a", reference, scores=frame_scores)], scoring)
    assert "60 bootstrap samples (50 for frame-level scores)" in score_tables(both)[0].title
    events = evaluate(reference, [SystemOutput("a", reference)], scoring)
    assert "frame-level" not in score_tables(events)[0].title
    none = evaluate(
        reference,
        [SystemOutput("a", scores=frame_scores)],
        Scoring(n_bootstrap=60, n_score_bootstrap=0),
    )
    assert list(none.systems[0].intervals) == ["clip"]
