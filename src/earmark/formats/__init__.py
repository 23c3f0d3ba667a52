"""Tables of tags, events and frame-level scores <-> Python objects, and which file is which."""

from earmark.formats.events import Event, EventTable, read_events, write_events
from earmark.formats.names import match_names, rename_files
from earmark.formats.scores import ScoreTable, read_scores, write_scores
from earmark.formats.tags import TagTable, read_tags, write_tags

__all__ = [
    "Event",
    "EventTable",
    "ScoreTable",
    "TagTable",
    "match_names",
    "read_events",
    "read_scores",
    "read_tags",
    "rename_files",
    "write_events",
    "write_scores",
    "write_tags",
]
