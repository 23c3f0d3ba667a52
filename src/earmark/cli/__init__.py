"""Words on the command line -> the right room.

front       what all commands share, and the way out
data        demo, doctor, synth
learn       train, tune, info
hear        detect
score       evaluate
study       compare, recipe
"""

from earmark.cli import data, hear, learn, score, study
from earmark.cli.front import app, main

__all__ = ["app", "data", "hear", "learn", "main", "score", "study"]
