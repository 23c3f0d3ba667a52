"""Tables of tags, events and frame-level scores <-> Python objects."""
