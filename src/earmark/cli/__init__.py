"""The command line: each command parses its options, makes one call and prints the result.

`app` has what all commands share, and the entry point. Every other module of this package holds one
or more commands and is found by itself: a new command is one new module.
"""

from importlib import import_module
from pkgutil import iter_modules

from earmark.cli.app import app, main

__all__ = ["app", "main"]

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
