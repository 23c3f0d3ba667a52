"""README and docs: every Python block runs, prints what is shown, and every table is up to date."""

import doctest
import re
import shlex
import sys
from pathlib import Path

import pytest
from commands import run
from PIL import Image

from earmark.plots import save

REPO = Path(__file__).parent.parent
PAGES = [REPO / "README.md", REPO / "SECURITY.md", *sorted((REPO / "docs").glob("*.md"))]
BLOCK = re.compile(r"```(python|text|sh)\n(.*?)```", re.S)
SHELL_TOO = "your-own-sounds.md"  # elsewhere the shell blocks name files of the reader's


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_block_prints_the_text_block_after_it(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("earmark.training.finish.save", save)  # other tests draw no history
    namespace = {"__name__": "__main__"}
    blocks = BLOCK.findall(page.read_text())
    checker = doctest.OutputChecker()
    for number, (kind, text) in enumerate(blocks):
        if kind == "sh" and page.name == SHELL_TOO:
            program, *words = shlex.split(text)
            assert program == "earmark", text
            run(*words)
        if kind != "python":
            continue
        exec(compile(text, f"{page.name}, block {number + 1}", "exec"), namespace)
        printed = capsys.readouterr().out
        follows = blocks[number + 1] if number + 1 < len(blocks) else ("", "")
        if follows[0] == "text" or printed:
            assert checker.check_output(
                follows[1], printed, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            ), f"{page.name}, block {number + 1} printed:\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.fixture
def build(monkeypatch):
    monkeypatch.syspath_prepend(str(REPO))
    monkeypatch.delitem(sys.modules, "docs", raising=False)
    from docs import build

    return build


def test_the_gradient_figure_is_drawn_as_a_png(build, tmp_path):
    path = tmp_path / "gradients.png"
    build.FIGURES["docs/images/gradients.png"](path)
    with Image.open(path) as image:
        image.verify()
        assert image.format == "PNG"
        assert min(image.size) > 500


def test_made_parts_are_up_to_date(build):
    for page, makers in build.PARTS.items():
        if page == "docs/dependencies.md" and sys.version_info[:2] != build.dependencies.PYTHON:
            continue  # other Pythons need other packages; test_dependencies.py looks for them
        for make_part in makers:
            assert make_part() in (REPO / page).read_text(), f"{page}: run make docs"
    for file, make_file in build.FILES.items():
        assert (REPO / file).read_text() == make_file(), f"{file}: run make docs"
    for image in build.FIGURES:
        assert (REPO / image).exists(), f"{image}: run make docs"
        with Image.open(REPO / image) as picture:
            picture.verify()


def test_the_card_shows_calibration_and_false_events_of_a_model_that_was_tuned_on_them(build):
    from docs.card import reliability

    point = {"setting": -1.0, "per_minute": 0.5, "recordings": 0.1, "clip_recall": 0.75}
    record = {
        "calibration": {"n_events": 1200, "ece": 0.03, "start_ece": 0.2},
        "false_events": {"n_recordings": 40, "minutes": 3.3, "curve": [point]},
    }
    text = "\n".join(reliability(record))
    assert "1,200 validation events, cross-validated: 0.030 (0.200 before" in text
    assert "40 recordings without any of the classes (3.3 minutes)" in text
    assert "| -1.00 | 0.50 | 0.10 | 0.75 | - |" in text
    assert reliability({"supervision": "weak"}) == []
    assert reliability({"calibration": {"n_events": 0}}) == []


def test_the_tags_of_systems_are_shown_beside_the_published_ones(build, monkeypatch):
    from docs import systems
    from earmark.experiments.run import RunResult

    results = tuple(
        RunResult(name, seed, "", {"published": {"tag_f_measure": score}}, {}, {}, {})
        for name, seed, score in (("wang", 0, 0.25), ("wang", 1, 0.5), ("gccaps", 0, 0.75))
    )
    monkeypatch.setattr(systems, "load_results", {"esc50": results, "digits": (), "lungs": ()}.get)
    rows = systems.tag_table().splitlines()
    assert f"| GCCaps | 0.586 | 0.750 | {systems.UNKNOWN} | {systems.UNKNOWN} |" in rows
    assert f"| Wang | - | 0.375 | {systems.UNKNOWN} | {systems.UNKNOWN} |" in rows


def test_every_preset_of_ours_and_of_the_systems_is_in_the_table_of_training():
    from earmark.training.settings import PRESETS

    rows = [x for x in (REPO / "docs/training.md").read_text().splitlines() if x.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])}
    base = {re.sub("-(fast|native)$", "", name) for name in PRESETS}
    assert base <= named, f"docs/training.md lacks {base - named}"
    variants = {name for name in PRESETS if name not in base}
    assert len(variants) == 9 and all(name.rpartition("-")[0] in base for name in variants)
