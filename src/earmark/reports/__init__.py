"""An evaluation or a training -> one HTML file that opens offline: `earmark report`.

Conventions: the file holds everything it shows; figures and sounds are data URIs, there is no
script, and nothing is loaded from elsewhere. What cannot be known from the input is left out, and
the page says what to pass to see it.

    api      the one call, `report`
    sources  the output folder of a training, or tables of events -> what there is to show
    clips    which recordings are best and worst, their pictures and sounds
    page     parts of a page: sections, tables, figures, sounds
"""

from earmark.reports.api import report

__all__ = ["report"]
