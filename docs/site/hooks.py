"""What `make site` adds to the pages of docs/: the README as the first page, API, sources.

Pages link to files of the repository as a Git view needs it: `../src/earmark/errors.py`. On the
site, README.md, CONTRIBUTING.md, CHANGELOG.md and SECURITY.md are pages, and every other file that
a page links to is shown on a page of its own, so that no link leaves the site.

Markdown has dialects. A page that MkDocs would show with other words or other blocks than a Git
view does is a warning, which `make site` takes for an error.
"""

import posixpath
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
from api import api_pages

REPO = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
LANGUAGES = {".py": "python", ".toml": "toml", ".md": "markdown", ".cff": "yaml"}
FENCE = re.compile(r"(^ *```.*?^ *```)", re.M | re.S)
LINK = re.compile(r"(\]\()([^)\s:#]+)(#[^)\s]*)?(\))")
BLOCKS = ("h1", "h2", "h3", "h4", "li", "pre", "table", "tr", "td", "th", "img", "blockquote")

logger = get_plugin_logger("site")
NOT_SEARCHED = "---\nsearch: {exclude: true}\n---\n"  # of a page with a source
own_text: dict[str, str] = {}  # page -> its Markdown, as a Git view shows it


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in docs/."""
    pages = {page: (REPO / file).read_text(encoding="utf-8") for file, page in PAGES.items()}
    written = [*(REPO / file for file in PAGES), *sorted((REPO / "docs").glob("*.md"))]
    pages["index.md"] = "---\nhide: [navigation]\n---\n" + pages["index.md"]
    linked = {target for page in written for target in _links(page)}
    for target in sorted(linked):
        if not target.startswith("docs/") and target not in PAGES:
            pages[_site_path(target)] = source_page(target)
    pages |= api_pages()
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def _links(page: Path) -> set[str]:
    folder = page.parent.relative_to(REPO).as_posix()
    texts = FENCE.split(page.read_text(encoding="utf-8"))[::2]
    return {_in_repo(target, folder) for text in texts for _, target, _, _ in LINK.findall(text)}


def _in_repo(target: str, folder: str) -> str:
    return posixpath.normpath(posixpath.join(folder, target))


def _site_path(target: str) -> str:
    """Return where a file of the repository is on the site."""
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return PAGES.get(target) or f"source/{target}.md"


def source_page(target: str) -> str:
    """Return a page with the text of a file, or with the names in a folder."""
    path = REPO / target
    if path.is_dir():
        names = [x.name for x in sorted(path.iterdir()) if x.name[0] not in "._" or x.suffix]
        return NOT_SEARCHED + "\n".join([f"# {target}", "", *(f"- `{name}`" for name in names)])
    language = LANGUAGES.get(path.suffix, "text")
    text = path.read_text(encoding="utf-8").rstrip()
    return f"{NOT_SEARCHED}# {target}\n\n`````{language}\n{text}\n`````\n"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links between files of the repository to pages of the site."""
    path = page.file.src_uri
    if path.startswith(("api/", "source/")):
        return markdown
    own_text[path] = markdown
    folder = "" if path in PAGES.values() else "docs"

    def lead(match: re.Match[str]) -> str:
        before, target, anchor, after = match.groups()
        where = _site_path(_in_repo(target, folder))
        return f"{before}{posixpath.relpath(where, posixpath.dirname(path))}{anchor or ''}{after}"

    parts = FENCE.split(markdown)
    return "".join(part if odd else LINK.sub(lead, part) for part, odd in _alternate(parts))


def _alternate(parts: list[str]) -> list[tuple[str, bool]]:
    return [(part, number % 2 == 1) for number, part in enumerate(parts)]


class _Outline(HTMLParser):
    """The words of a page and the number of its blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.blocks = dict.fromkeys(BLOCKS, 0)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Count a block."""
        if tag in self.blocks:
            self.blocks[tag] += 1

    def handle_data(self, data: str) -> None:
        """Collect the words."""
        self.words += data.split()


def _outline(html: str) -> _Outline:
    outline = _Outline()
    outline.feed(html)
    return outline


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Warn of a page that a Git view shows otherwise."""
    text = own_text.get(page.file.src_uri)
    if text is None:
        return html
    here = _outline(html)
    there = _outline(MarkdownIt("gfm-like", {"linkify": False}).render(text))
    for tag, count in there.blocks.items():
        if here.blocks[tag] != count:
            logger.warning(
                "%s has %d <%s> on the site and %d on a Git view: start lists after an empty line, "
                "indent what belongs to an item by 4 spaces, and use fences for code in it.",
                page.file.src_uri, here.blocks[tag], tag, count,
            )  # fmt: skip
    ours, theirs = "".join(here.words), "".join(there.words)
    if ours != theirs:
        at = next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), 0)
        logger.warning(
            "%s reads %r on the site and %r on a Git view.",
            page.file.src_uri, ours[max(0, at - 40) : at + 40], theirs[max(0, at - 40) : at + 40],
        )  # fmt: skip
    return html
