"""A seed -> soundscapes with known events, from procedural sounds or recordings."""
