"""What can go wrong -> one clear sentence.

The tree; the command line turns any of these into its sentence and exit code 2:

    EarmarkError
    ├── AudioError      a recording that cannot be read, or not as it should be
    ├── BundleError     a model file is missing, damaged or of another version
    ├── DataError       a table of labels or events, or what it names, is not right
    └── SettingError    a setting, name or shape that cannot work (also a ValueError)

Errors say what was wrong, the value got, where, and what to type instead.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class EarmarkError(Exception):
    """The root: catch it to catch everything that Earmark raises on bad input."""


class AudioError(EarmarkError):
    """A recording is missing, empty, truncated, not audio, or holds NaN."""


class BundleError(EarmarkError):
    """A model file is missing, damaged, or of another version."""


class DataError(EarmarkError):
    """A table of labels or events is wrong; the sentence names file and line."""


class SettingError(EarmarkError, ValueError):
    """A setting, a name or a shape that cannot work."""


class EarmarkWarning(UserWarning):
    """Something that the caller should fix, but that does not stop the work.

    >>> issubclass(EarmarkWarning, UserWarning)
    True
    """


def choose(kind: str, name: str, known: Iterable[str]) -> str:
    """Return `name` if it is known; otherwise raise with the nearest known names.

    >>> choose("pooling", "linear", ["linear", "exp"])
    'linear'
    >>> choose("pooling", "liner", ["linear", "max"])
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: There is no pooling 'liner'; did you mean 'linear'? Known: ...
    """
    names = sorted(known)
    if name in names:
        return name
    near = get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    listed = "" if near and len(names) > 20 else f" Known: {', '.join(names)}."
    raise SettingError(f"There is no {kind} {name!r}{hint}{listed}")
