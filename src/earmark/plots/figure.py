"""Creating and saving figures.

Conventions: every `plot_...` returns a matplotlib figure (the extra `plot`) and shows nothing;
`save` writes it atomically.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from earmark.errors import SettingError
from earmark.files import atomic_path, make_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, BLUE, RED, SAND = "#222222", "#1f5fa8", "#c2402f", "#d9c9a8"


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
    """Write the figure in the format of its suffix; return its path.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(new_figure(), Path(folder, "empty.png")).name
    'empty.png'
    """
    target = Path(path)
    make_folder(target.parent)
    with atomic_path(target) as part:
        figure.savefig(part, dpi=110)
    return target
