"""Tables of tags, events and frame-level scores <-> Python objects, and matching of file names."""
