"""Parts of an HTML page that holds all it shows: sections, tables, figures and sounds.

Conventions: every function returns HTML; text is escaped. A figure is an image with an alternative
text. Colours follow the reader's dark or light setting, and a print is always light.
"""

import base64
import io
from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from earmark.metrics.report import TextTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Nothing may be loaded: a browser refuses what a mistake, or the name of a file, would add.
POLICY = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'"
PIXELS = 96  # of the page per inch of a figure
DPI = 120  # of pictures of recordings

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c1c1c; --soft: #595959; --line: #ccc;
  --band: #f3f1ec; --link: #00558a; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181c; --ink: #e8e8e8; --soft: #a8adb3;
  --line: #3d434b; --band: #20252b; --link: #7cc4f5; }
  figure.chart img { filter: invert(1) hue-rotate(180deg); } }
@media print { :root { --paper: #fff; --ink: #000; --soft: #444; --line: #999; --band: #eee;
  --link: #000; } figure.chart img { filter: none; } audio, nav { display: none; }
  section, figure, table { break-inside: avoid; }
  details::details-content { content-visibility: visible; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { margin-top: 2.5rem; font-size: 1.25rem; }
h3 { font-size: 1rem; } a { color: var(--link); } p, li { max-width: 46rem; }
.soft, figcaption, caption { color: var(--soft); font-size: .9rem; text-align: left; }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1rem; padding: 0; list-style: none; }
.wide { overflow-x: auto; } .wide:focus-visible { outline: 3px solid var(--link); }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; font-variant-numeric: tabular-nums; }
caption { padding: .25rem 0; } th, td { padding: .2rem .7rem; border-bottom: 1px solid var(--line);
  text-align: right; font-weight: normal; white-space: nowrap; } thead th { font-weight: 600; }
th:first-child { text-align: left; white-space: normal; min-width: 8rem; } tr.strong > *
  { font-weight: 600; background: var(--band); }
table.settings td { text-align: left; white-space: normal; }
figure { margin: 1rem 0; } figure img { display: block; max-width: max(100%, 32rem);
  height: auto; background: #fff; }
audio { width: 100%; margin: .25rem 0; }
pre { overflow-x: auto; padding: .75rem; background: var(--band); white-space: pre-wrap; }
summary { cursor: pointer; }
"""


def document(title: str, sections: Mapping[str, str], footer: str) -> str:
    """Return the whole page.

    Args:
        title: of the page.
        sections: heading -> HTML; empty ones are left out.
        footer: HTML at the end.

    >>> page = document("Dogs & cats", {"Scores": "<p>1.0</p>", "Curves": ""}, "")
    >>> "<title>Dogs &amp; cats</title>" in page, "Curves" in page
    (True, False)
    """
    shown = {heading: body for heading, body in sections.items() if body}
    anchors = {heading: heading.lower().replace(" ", "-") for heading in shown}
    links = "".join(f'<li><a href="#{anchors[x]}">{escape(x)}</a></li>' for x in shown)
    parts = [
        f'<section aria-labelledby="{anchors[x]}"><h2 id="{anchors[x]}">{escape(x)}</h2>\n{body}\n'
        "</section>"
        for x, body in shown.items()
    ]
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>",
            f"<header><h1>{escape(title)}</h1></header>",
            f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n<main>',
            *parts,
            f"</main>\n<footer>{footer}</footer>\n</body>\n</html>\n",
        ]
    )


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph of plain text.

    >>> paragraph("a < b")
    '<p>a &lt; b</p>'
    """
    of_kind = f' class="{kind}"' if kind else ""
    return f"<p{of_kind}>{escape(text)}</p>"


def bullets(texts: Iterable[str]) -> str:
    """Return a list of sentences; nothing if there is none.

    >>> bullets(["one", "two"])
    '<ul><li>one</li><li>two</li></ul>'
    """
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def tables(shown: Iterable[TextTable]) -> str:
    """Return tables, each in an area that scrolls where the screen is narrow.

    >>> tables([TextTable("scores", ("", "F1"), ())]).split(">")[0]
    '<div class="wide" tabindex="0" role="region" aria-label="scores"'
    """
    return "\n".join(
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(each.title)}">'
        f"{each.to_html()}</div>"
        for each in shown
    )


def folded(summary: str, body: str) -> str:
    """Return a part that is folded away until it is clicked.

    >>> folded("all settings", "<p>none</p>")
    '<details><summary>all settings</summary><p>none</p></details>'
    """
    return f"<details><summary>{escape(summary)}</summary>{body}</details>" if body else ""


def chart(figure: "Figure", alt: str, caption: str = "") -> str:
    """Return a figure of lines or bars as an image, sharp at any size.

    >>> from earmark.plots.figure import new_figure
    >>> chart(new_figure(figsize=(1, 1)), "nothing").startswith('<figure class="chart">')
    True
    """
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "earmark"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return _figure(figure, data_uri(buffer.getvalue(), "image/svg+xml"), alt, caption, "chart")


def picture(figure: "Figure", alt: str, caption: str = "") -> str:
    """Return a figure with a spectrogram as an image; its noise would make a sharp one large.

    >>> from earmark.plots.figure import new_figure
    >>> "image/webp" in picture(new_figure(figsize=(1, 1)), "nothing")
    True
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="webp", dpi=DPI, pil_kwargs={"quality": 78})
    return _figure(figure, data_uri(buffer.getvalue(), "image/webp"), alt, caption, "picture")


def _figure(figure: "Figure", uri: str, alt: str, caption: str, kind: str) -> str:
    text = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    width, height = (round(inches * PIXELS) for inches in figure.get_size_inches())
    image = f'<img src="{uri}" alt="{escape(alt)}" width="{width}" height="{height}">'
    return (
        f'<figure class="{kind}"><div class="wide" tabindex="0" role="region" '
        f'aria-label="{escape(alt)}">{image}</div>{text}</figure>'
    )


def sound(content: bytes, kind: str, name: str) -> str:
    """Return a player.

    >>> sound(b"abc", "audio/mpeg", "a.wav")
    '<audio controls preload="none" aria-label="a.wav" src="data:audio/mpeg;base64,YWJj"></audio>'
    """
    uri = data_uri(content, kind)
    return f'<audio controls preload="none" aria-label="{escape(name)}" src="{uri}"></audio>'


def data_uri(content: bytes, kind: str) -> str:
    """Return content as a data URI.

    >>> data_uri(b"abc", "text/plain")
    'data:text/plain;base64,YWJj'
    """
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def settings_table(title: str, values: Mapping[str, Any]) -> str:
    """Return settings as a table of names and values.

    >>> settings_table("training", {"seed": 0}).count("<tr>")
    1
    """
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(str(value))}</td></tr>'
        for name, value in values.items()
    )
    return (
        f'<table class="settings"><caption>{escape(title)}</caption><tbody>{rows}</tbody></table>'
    )
