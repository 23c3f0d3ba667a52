"""The documentation site: its navigation, its glossary and its pictures are complete.

`make site` builds it in an environment of its own, with warnings as errors; nothing here needs that
environment.
"""

import re
from pathlib import Path

from earmark.experiments.table import METRICS

REPO = Path(__file__).parent.parent
PAGES = sorted((REPO / "docs").glob("*.md"))
# Of generated pages: CONTRIBUTING.md, CHANGELOG.md and SECURITY.md, and README.md, the first page.
GENERATED = {"index.md", "contributing.md", "changelog.md", "security.md"}


def nav_pages() -> list[str]:
    nav = (REPO / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    return re.findall(r"([\w/-]+\.md)$", nav, re.M)


def terms() -> list[str]:
    text = (REPO / "docs/glossary.md").read_text()
    return [name for line in re.findall(r"^- (\*\*.+?):", text, re.M)
            for name in re.findall(r"\*\*(.+?)\*\*", line)]  # fmt: skip


def test_the_navigation_lists_every_page_once():
    listed = nav_pages()
    assert len(listed) == len(set(listed))
    own = {name for name in listed if not name.startswith("api/")}
    assert own == GENERATED | {page.name for page in PAGES}


def test_the_navigation_lists_every_package_that_users_import():
    import earmark

    listed = {name for name in nav_pages() if name.startswith("api/")}
    text = "\n".join(page.read_text() for page in (REPO / "README.md", *PAGES))
    imported = re.findall(r"^from earmark\.(\w+)[\w.]* import ", text, re.M)
    packages = {name for name in imported if (REPO / "src/earmark" / name).is_dir()}
    wanted = packages | set(earmark._SUBPACKAGES)
    assert listed == {"api/index.md", *(f"api/{name}.md" for name in wanted)}


def test_no_table_has_an_escaped_pipe_in_code():
    """A Git view drops the backslash, the site shows it."""
    for page in PAGES:
        for line in page.read_text().splitlines():
            if line.startswith("|"):
                codes = re.findall(r"(`+)(.+?)\1", line)
                assert not any("\\|" in code for _, code in codes), f"{page.name}: {line}"


def test_the_readme_lists_every_page():
    readme = (REPO / "README.md").read_text()
    assert [page.name for page in PAGES if f"(docs/{page.name})" not in readme] == []


def test_the_glossary_is_sorted_and_names_each_term_once():
    text = (REPO / "docs/glossary.md").read_text()
    first = [line.lower() for line in re.findall(r"^- \*\*(.+?)\*\*", text, re.M)]
    assert len(first) > 50
    assert first == sorted(first)
    assert len(terms()) == len(set(terms()))


def test_the_glossary_has_the_vocabulary_of_contributing_and_the_scores_of_comparisons():
    text = (REPO / "docs/glossary.md").read_text()
    heads = " ".join(re.findall(r"^- (.+?):", text, re.M)).lower()
    vocabulary = re.search(
        r"\*\*Vocabulary\.\*\* ([^.]+)\.", (REPO / "CONTRIBUTING.md").read_text()
    )
    wanted = {word.strip().lower() for word in vocabulary[1].split(",")}
    wanted |= {
        re.split(r"[, ]|(?<=PSDS)\d", metric.title)[0].lower() for metric in METRICS.values()
    }
    missing = [word for word in wanted if not re.search(rf"\b{re.escape(word)}\b", heads)]
    assert missing == []


def test_the_gallery_shows_every_picture_and_the_commands_that_make_them(monkeypatch):
    monkeypatch.syspath_prepend(str(REPO))
    from docs.gallery import COMMANDS, PICTURES

    page = (REPO / "docs/gallery.md").read_text()
    for image in sorted((REPO / "docs/images").iterdir()):
        assert f"(images/{image.name})" in page, f"docs/gallery.md lacks {image.name}"
    shown = " ".join(page.replace("\\\n", " ").split())
    for command in COMMANDS:
        assert command in shown
    assert all((REPO / image).exists() for image in PICTURES), "run make docs"


def test_no_page_of_the_site_loads_anything_from_elsewhere():
    config = (REPO / "mkdocs.yml").read_text()
    assert re.search(r"^  font: false", config, re.M)
    for path in (REPO / "mkdocs.yml", *(REPO / "docs/site").glob("*.[cj]s*")):
        assert not re.search(r"(src|href|url|@import)\W{0,3}https?://", path.read_text()), path
    for page in (REPO / "README.md", *PAGES):
        assert not re.search(r"!\[[^]]*\]\(https?://|<(img|script)\b", page.read_text()), page
