"""A picture of what was detected in each of many recordings, in a folder.

Conventions: the picture of `street/a.wav` is `street/a.wav.png` in the folder.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from earmark.errors import DataError
from earmark.files import check_folder
from earmark.formats.event_table import Event
from earmark.formats.names import name_inside
from earmark.frames import FrameScores
from earmark.plots.figure import new_figure, save
from earmark.plots.recording import plot_detection


class DetectionPlots:
    """Draws frame-level scores and events of recordings, one picture each.

    Args:
        folder: of the pictures; made if it is missing.
        classes: to draw; by default all.

    >>> import tempfile
    >>> from earmark.frames import FrameGrid
    >>> scores = FrameScores([[0.9, 0.1], [0.2, 0.1]], ["dog", "cat"], FrameGrid(12.5))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw = DetectionPlots(folder, ["dog"])
    ...     draw("street/a.wav", [Event(0, 0.08, "dog")], scores).name
    'a.wav.png'
    """

    def __init__(
        self, folder: str | os.PathLike[str], classes: Sequence[str] | None = None
    ) -> None:
        self._folder, self._classes = Path(folder), classes
        new_figure()  # raises now if there is no matplotlib
        check_folder(self._folder)

    def __call__(self, name: str, events: Sequence[Event], scores: FrameScores | None) -> Path:
        """Draw one recording; return the path of the picture."""
        if scores is None:
            raise DataError(f"Cannot draw {name}: its frame-level scores were not kept.")
        if self._classes is not None:
            scores = scores.select(self._classes)
        drawn = plot_detection(scores, estimate=events, title=name)
        return save(drawn, self._folder / f"{name_inside(name)}.png")
