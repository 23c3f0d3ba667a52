"""Tags, events in many formats, frame-level scores <-> Python objects; which file is which."""

from earmark.formats.events import Event, EventTable, read_events, write_events
from earmark.formats.names import match_names, rename_files
from earmark.formats.registry import EVENT_FORMATS, EventFormat
from earmark.formats.scores import ScoreTable, read_scores, write_scores
from earmark.formats.tags import TagTable, read_tags, write_tags

__all__ = [
    "EVENT_FORMATS",
    "Event",
    "EventFormat",
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
