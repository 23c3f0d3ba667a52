"""The user's own code: modules that register networks and encoders.

Earmark imports such a module only if the user names it, on the command line (`earmark --import
my_module train ...`), by the environment variable EARMARK_IMPORT (modules, separated by commas) or
as a setting (`model.network=my_module:MyConfig`). A model file never imports anything: it may come
from someone else. Worker processes import what the variable names, too.
"""

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType

from earmark.errors import SettingError

VARIABLE = "EARMARK_IMPORT"


def import_extension(name: str) -> ModuleType:
    """Import a module that the user named; the working directory is searched too.

    >>> import_extension("json").__name__
    'json'
    """
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        return import_module(name)
    except ImportError as error:
        raise SettingError(
            f"The module {name!r} cannot be imported: {error}. It must be installed, on PYTHONPATH "
            f"or in {folder}."
        ) from None


def import_extensions(more: Iterable[str] = ()) -> None:
    """Import the modules that EARMARK_IMPORT names and some more, which are added to it.

    >>> import_extensions()
    """
    names = [name.strip() for name in os.environ.get(VARIABLE, "").split(",")]
    names = [name for name in dict.fromkeys([*names, *more]) if name]
    for name in names:
        import_extension(name)
    if names:
        os.environ[VARIABLE] = ",".join(names)
