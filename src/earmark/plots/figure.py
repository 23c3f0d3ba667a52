"""Creating and saving figures.

Conventions: every `plot_...` returns a matplotlib figure (the extra `plot`) and shows nothing;
`save` writes it atomically. Colours are those of Okabe and Ito (2008), which colour-blind readers
tell apart; what differs in colour also differs in line style, width or form, for grey prints.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from earmark.errors import SettingError
from earmark.files import atomic_path, make_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, BLUE, RED, SAND = "#222222", "#0072b2", "#d55e00", "#d9c9a8"
COLOURS = (BLUE, RED, INK, "#56b4e9", "#cc79a7", "#009e73", "#e69f00")
LINE_STYLES = ("-", "--", "-.", ":")
MARKERS = "osD^v"
FORMATS = ("png", "svg", "pdf")


def line_style(number: int) -> dict[str, Any]:
    """Return colour and line style of the curve of this number: the first 28 are all different.

    >>> line_style(0), line_style(8)
    ({'color': '#0072b2', 'ls': '-'}, {'color': '#d55e00', 'ls': '-.'})
    """
    n_colours, n_styles = len(COLOURS), len(LINE_STYLES)
    style = (number % n_colours + number // n_colours) % n_styles
    return {"color": COLOURS[number % n_colours], "ls": LINE_STYLES[style]}


def new_figure(**settings: Any) -> "Figure":
    """Return an empty figure; raise with the install command if matplotlib is missing.

    >>> new_figure(figsize=(4, 3)).get_size_inches().tolist()
    [4.0, 3.0]
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SettingError(
            "Figures need matplotlib. Install it with: pip install 'earmark[plot]'"
        ) from None
    return Figure(layout="constrained", **settings)


def plain_text(label: str) -> str:
    r"""Return a label escaped, so that matplotlib shows it literally.

    A dollar sign starts a formula, and a leading underscore hides an entry from the legend.

    >>> print(plain_text("cash $ register"))
    cash \$ register
    """
    shown = label.replace("$", r"\$")
    return f"\u200b{shown}" if shown.startswith("_") else shown


def save(figure: "Figure", path: str | os.PathLike[str]) -> Path:
    """Write the figure in the format of its suffix: .png, .svg or .pdf; return its path.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(new_figure(), Path(folder, "empty.png")).name
    'empty.png'
    """
    target = check_format(path)
    make_folder(target.parent)
    with atomic_path(target) as part:
        figure.savefig(part, dpi=110, format=target.suffix[1:].lower())
    return target


def check_format(path: str | os.PathLike[str]) -> Path:
    """Return the path of a figure; raise if its suffix is none of `FORMATS`.

    >>> check_format("street.jpeg")
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: A figure ends in .png, .svg or .pdf. Got 'street.jpeg'.
    """
    target = Path(path)
    if target.suffix[1:].lower() not in FORMATS:
        raise SettingError(f"A figure ends in .png, .svg or .pdf. Got {os.fspath(path)!r}.")
    return target
