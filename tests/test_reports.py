"""A report holds all it shows, says what the evaluation says, and opens offline."""

import re
import shutil
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest
from tones import RATE, SMALL, make_tone_clip, write_tones

import earmark
from earmark.audio.encode import encode_audio, write_audio
from earmark.errors import DataError, SettingError
from earmark.formats.events import Event, read_events, write_events
from earmark.metrics.evaluation import Scoring, evaluate
from earmark.metrics.false_events import absent_class_curve
from earmark.metrics.report import score_tables
from earmark.metrics.system_output import SystemOutput
from earmark.plots import plot_events
from earmark.reports import clips
from earmark.reports.api import SECTIONS
from earmark.reports.clips import rank_recordings
from earmark.reports.sources import Material, Recording

VOID = {"meta", "link", "img", "br"}
QUICK = Scoring(n_bootstrap=40, n_score_bootstrap=40)


class Page(HTMLParser):
    """Reads a page; fails where a tag is closed that was not opened last."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.open, self.text = [], [], []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.text.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]

    @property
    def headings(self):
        return re.findall(r"<h2[^>]*>([^<]*)</h2>", self.source)

    def rows(self, caption):
        """Name -> cells, of the first table whose caption contains a text."""
        tables = re.findall(r"<table.*?</table>", self.source, re.S)
        own = next(table for table in tables if caption in unescape(table.split("</caption>")[0]))
        body = re.findall(r"<tr[^>]*>(.*?)</tr>", own.split("<tbody>")[1])
        cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in body]
        return {unescape(name): [unescape(cell) for cell in rest] for name, *rest in cells}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with recordings, tables, a trained run, and what its detector finds."""
    home = tmp_path_factory.mktemp("reports")
    write_tones(home, 16, seed=1, prefix="train")
    write_tones(home, 6, seed=2, prefix="valid")
    detector = earmark.train(
        home / "train_weak.tsv",
        home / "valid_weak.tsv",
        home / "audio",
        home / "run",
        overrides=[*SMALL, "training.threads=1", "training.max_epochs=2", "training.min_steps=0"],
    )
    files = {name: home / "audio" / name for name in read_events(home / "valid_strong.tsv")}
    found = {result.name: result for result in detector.detect_each(files, keep_scores=True)}
    table = earmark.ScoreTable(detector.labels, {name: own.scores for name, own in found.items()})
    earmark.write_scores(home / "scores", table)
    write_events(home / "found.json", {name: own.events for name, own in found.items()})
    return home


@pytest.fixture(scope="module")
def of_training(home):
    command = 'earmark report run --title "a & b"'
    out = home / "training.html"
    earmark.report(
        home / "run", out=out, scoring=QUICK, n_clips=1, title="a & <b>", command=command
    )
    return Page(out)


@pytest.fixture(scope="module")
def of_events(home):
    out = home / "deep" / "events.html"
    earmark.report(
        home / "valid_strong.tsv",
        home / "found.json",
        scores=home / "scores",
        audio=home / "audio",
        out=out,
        scoring=QUICK,
        n_clips=1,
    )
    return Page(out)


@pytest.mark.parametrize("which", ["of_training", "of_events"])
def test_nothing_comes_from_outside_and_nothing_runs(which, request):
    page = request.getfixturevalue(which)
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "iframe", "object", "form"}
    for _, attrs in page.tags:
        assert not any(name.startswith("on") for name in attrs)
        for name in ("src", "href"):
            assert attrs.get(name, "#").startswith(("data:", "#"))
    assert "url(" not in page.source and "@import" not in page.source
    assert "default-src 'none'" in page.all("meta")[2]["content"]
    assert len(page.source) < 3_000_000


@pytest.mark.parametrize("which", ["of_training", "of_events"])
def test_a_page_can_be_read_without_seeing_it_and_on_a_phone(which, request):
    page = request.getfixturevalue(which)
    assert page.all("html") == [{"lang": "en"}]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all(
        "meta"
    )
    assert page.all("img") and all(len(image["alt"]) > 10 for image in page.all("img"))
    assert len(page.all("table")) == len(page.all("caption"))
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    linked = {link["href"] for link in page.all("a")}
    assert linked == {f"#{name}" for name in ids}
    assert "prefers-color-scheme: dark" in page.source and "@media print" in page.source


def test_a_report_of_a_training_has_every_section_and_the_scores_of_its_card(home, of_training):
    assert set(of_training.headings) == {*SECTIONS}
    assert of_training.headings == [name for name in SECTIONS if name in of_training.headings]
    text = "".join(of_training.text)
    assert 'earmark report run --title "a & b"' in text
    assert "a & <b>" in text
    card = earmark.load(home / "run" / "model.earmark").bundle.training["classes"]
    rows = of_training.rows("clip: run")
    for label, own in card.items():
        assert rows[label][0] == f"{own['f1']:.3f}"
        assert rows[label][3] == f"{own['average_precision']:.3f}"
    assert of_training.rows("training")["max_epochs"] == ["2"]
    sounds = [audio["src"] for audio in of_training.all("audio")]
    assert len(sounds) == 2 and all(each.startswith("data:audio/") for each in sounds)


def test_a_report_of_events_prints_the_tables_of_evaluate(home, of_events):
    reference = SystemOutput("x", read_events(home / "valid_strong.tsv"))
    name = (home / "found.json").as_posix()
    scores = earmark.read_scores(home / "scores")
    system = SystemOutput(name, read_events(home / "found.json"), scores=scores)
    evaluation = evaluate(reference, [system], QUICK)
    for table in score_tables(evaluation):
        if len({row[0] for row in table.rows}) == len(table.rows):
            assert of_events.rows(table.title) == {row[0]: [*row[1:]] for row in table.rows}
    assert set(of_events.headings) == {*SECTIONS} - {"Training"}
    assert len(of_events.all("audio")) == 2


def test_a_training_with_events_as_reference_is_scored_in_time(home):
    out = home / "strong.html"
    earmark.report(
        home / "run", reference=home / "valid_strong.tsv", out=out, scoring=Scoring(n_bootstrap=0),
        n_clips=0,
    )  # fmt: skip
    page = Page(out)
    assert "segment F1" in page.rows("6 files") and "PSDS, scenario 1" in page.rows("6 files")
    assert not page.all("audio") and "Best clips" not in page.headings


def test_a_moved_training_is_reported_without_sound_and_with_audio_with_it(home, tmp_path):
    shutil.copytree(home / "run", tmp_path / "moved")
    record = tmp_path / "moved" / "run.json"
    record.write_text(record.read_text().replace("/audio/", "/gone/"))
    settings = {"scoring": Scoring(n_bootstrap=0), "n_clips": 1, "out": tmp_path / "report.html"}
    page = Page(earmark.report(tmp_path / "moved", **settings))
    assert not page.all("audio")
    assert "6 recordings are not where they were in training" in "".join(page.text)
    assert len(
        Page(earmark.report(tmp_path / "moved", audio=home / "audio", **settings)).all("audio")
    )
    shutil.rmtree(tmp_path / "moved" / "features")
    with pytest.raises(DataError, match="Neither features nor recordings"):
        earmark.report(tmp_path / "moved", **settings)
    (tmp_path / "moved" / "model.earmark").unlink()
    with pytest.raises(DataError, match=r"no model\.earmark in .*: the training is not finished"):
        earmark.report(tmp_path / "moved", **settings)


def test_names_are_shown_as_they_are_and_never_as_markup(tmp_path):
    rng, odd = np.random.default_rng(0), '<img src="http://x" onerror="y">'
    (tmp_path / "audio").mkdir()
    name = "a&<b>.wav"
    write_audio(tmp_path / "audio" / name, make_tone_clip(rng, [Event(1, 2, "low")]), RATE)
    write_events(tmp_path / "reference.json", {name: [Event(1, 2, odd)]})
    write_events(tmp_path / "estimate.json", {name: [Event(1, 2, odd)]})
    tables = (tmp_path / "reference.json", tmp_path / "estimate.json")
    page = Page(earmark.report(*tables, audio=tmp_path / "audio", out=tmp_path / "x.html"))
    assert all(image["src"].startswith("data:") for image in page.all("img"))
    assert odd in page.rows("segment:") and name in "".join(page.text)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"out": "report.pdf"}, "A report ends in .html"),
        ({"n_clips": -1}, "n_clips must be 0 or more"),
        ({"scores": ["a", "b"]}, "once per estimate. Got 2 for 1"),
        ({"reference": "x.tsv"}, "reference is for a training"),
    ],
)
def test_what_cannot_be_reported_is_refused_with_a_sentence(home, change, sentence):
    with pytest.raises(SettingError, match=re.escape(sentence)):
        earmark.report(home / "valid_strong.tsv", home / "found.json", **change)
    with pytest.raises(SettingError, match="no output folder of a training"):
        earmark.report(home / "valid_strong.tsv")
    with pytest.raises(SettingError, match="negatives are for tables"):
        earmark.report(home / "run", scoring=Scoring(negatives={"rain.wav": 5.0}))
    with pytest.raises(DataError, match="nowhere is no folder"):
        earmark.report(home / "run", audio=home / "nowhere")


def test_the_best_recordings_come_first_and_the_worst_last():
    dog = [Event(0, 2, "dog")]
    reference = SystemOutput("reference", {"right": dog, "half": dog, "wrong": dog, "silent": []})
    found = {"right": dog, "half": [Event(0, 1, "dog")], "wrong": [Event(5, 6, "cat")]}
    recordings = {name: Recording(name) for name in reference.events}
    material = Material("", reference, [SystemOutput("mine", found)], recordings)
    ranked = [(own.name, round(own.f_measure, 2)) for own in rank_recordings(material)]
    assert ranked == [("right", 1.0), ("silent", 1.0), ("half", 0.67), ("wrong", 0.0)]
    tags = SystemOutput("tags", tags={"right": ["dog"], "half": ["cat", "dog"], "wrong": ["dog"]})
    material = Material("", tags, [SystemOutput("mine", found)], recordings)
    assert [own.name for own in rank_recordings(material)] == ["right", "half", "wrong"]


def test_a_system_with_scores_alone_has_no_f1_and_is_ranked_by_its_scores(home):
    out = home / "scores.html"
    earmark.report(
        home / "valid_strong.tsv", home / "scores", audio=home / "audio", out=out, scoring=QUICK
    )
    text = "".join(Page(out).text)
    assert "Best clips" in text
    assert "Worst clips" in text
    assert "Detected: " not in text
    assert "F1 1.00" not in text


def test_a_short_recording_is_shown_from_its_start_though_its_scores_are_not_known(
    tmp_path, monkeypatch
):
    write_audio(tmp_path / "a.wav", np.zeros(RATE * 5, np.float32), RATE)
    table = tmp_path / "events.tsv"
    table.write_text("filename\tonset\toffset\tevent_label\na.wav\t3.0\t3.5\tdog\n")
    spans = []
    monkeypatch.setattr(
        clips, "plot_events", lambda *shown: spans.append(shown[-1]) or plot_events(*shown)
    )
    out = tmp_path / "report.html"
    earmark.report(table, table, audio=tmp_path, out=out, scoring=QUICK)
    assert spans == [(0.0, 5.0)]


def test_a_clip_says_the_tags_that_its_f1_is_of():
    tags = SystemOutput("tags", tags={"a": ["dog"]})
    system = SystemOutput("mine", {"a": []}, {"a": ["dog"]})  # too short for an event
    material = Material("", tags, [system], {"a": Recording("a")})
    assert rank_recordings(material)[0].f_measure == 1.0
    assert material.first_tags == {"a": ["dog"]}


def test_files_are_matched_once_whatever_their_number(monkeypatch):
    events = {f"{n}.wav": [Event(0, 1, "dog")] for n in range(20)}
    system = SystemOutput("mine", {f"{n}.flac": [Event(0, 1, "dog")] for n in range(20)})
    recordings = {name: Recording(name) for name in events}
    calls = []
    match = SystemOutput.with_names_of
    monkeypatch.setattr(
        SystemOutput, "with_names_of", lambda *own: calls.append(own) or match(*own)
    )
    ranked = rank_recordings(Material("", SystemOutput("r", events), [system], recordings))
    assert {own.f_measure for own in ranked} == {1.0}
    assert len(calls) == 1


def test_events_of_absent_classes_are_false_at_every_minimum_score():
    rng = np.random.default_rng(0)
    names, labels = [f"{n}.wav" for n in range(8)], ["cat", "dog", "owl"]
    tags = {name: tuple(x for x in labels if rng.random() < 0.5) for name in names}
    events = {
        name: [Event(n, n + 1, str(rng.choice(labels)), rng.random()) for n in range(4)]
        for name in names
    }
    for point in absent_class_curve(events, dict.fromkeys(names, 15.0), tags):
        kept = {n: [e for e in own if e.score >= point.setting] for n, own in events.items()}
        n_false = sum(e.label not in tags[n] for n, own in kept.items() for e in own)
        found = {(n, e.label) for n, own in kept.items() for e in own if e.label in tags[n]}
        assert point.per_minute == pytest.approx(n_false / 2)
        assert point.clip_recall == pytest.approx(len(found) / sum(map(len, tags.values())))


@pytest.mark.parametrize("rate", [8000, 32000, 7350])
def test_sounds_for_browsers_keep_their_length(rate, tmp_path):
    time = np.arange(2 * rate) / rate
    content, kind = encode_audio(0.5 * np.sin(2 * np.pi * 440 * time), rate)
    path = tmp_path / ("a.mp3" if kind == "audio/mpeg" else "a.flac")
    path.write_bytes(content)
    waveform, own = earmark.read_audio(path)
    assert own == rate
    assert len(waveform) / rate == pytest.approx(2.0, abs=0.3)
    assert np.sqrt(np.mean(waveform**2)) == pytest.approx(0.5 / np.sqrt(2), rel=0.1)
