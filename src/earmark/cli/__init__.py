"""Words on the command line -> the right room.

app         what all commands share, and the way out
data        demo, doctor, synth
train       train, tune, info
detect      detect
evaluate    evaluate
compare     compare, recipe
"""

from earmark.cli import compare, data, detect, evaluate, train
from earmark.cli.app import app, main

__all__ = ["app", "compare", "data", "detect", "evaluate", "main", "train"]
