"""The command line: each command parses its options, makes one call and prints the result.

app         options and functions that all commands share, and the entry point
demo        demo
doctor      doctor
synth       synth
train       train, tune, info
detect      detect
evaluate    evaluate
compare     compare, recipe
"""

from earmark.cli import compare, demo, detect, doctor, evaluate, synth, train
from earmark.cli.app import app, main

__all__ = ["app", "compare", "demo", "detect", "doctor", "evaluate", "main", "synth", "train"]
