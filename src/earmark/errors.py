"""The exception tree, and the one check of names that suggests the nearest known one.

The command line prints the message of any of these on one line and exits with code 2:

    EarmarkError
    ├── AudioError      a recording cannot be read, or its content is invalid
    ├── BundleError     a model file is missing, damaged or of another version
    ├── ClusterError    a scheduler or a worker of a cluster cannot be used
    ├── DataError       a table of labels or events, or a file it names, is wrong
    └── SettingError    a setting, name or shape that cannot work (also a ValueError)

Conventions: a message says what was wrong, the value received, where (file:row), and what to do
instead. It names Python arguments, not command-line options.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_MAX_LISTED = 20


class EarmarkError(Exception):
    """The root of the tree: catch it to catch everything that Earmark raises on bad input.

    >>> issubclass(AudioError, EarmarkError)
    True
    """


class AudioError(EarmarkError):
    """A recording is missing, empty, truncated, not audio, or contains NaN.

    >>> raise AudioError("a.wav is empty (0 bytes).")
    Traceback (most recent call last):
        ...
    earmark.errors.AudioError: a.wav is empty (0 bytes).
    """


class BundleError(EarmarkError):
    """A model file is missing, damaged, or of another version.

    >>> raise BundleError("There is no model file a.earmark.")
    Traceback (most recent call last):
        ...
    earmark.errors.BundleError: There is no model file a.earmark.
    """


class ClusterError(EarmarkError):
    """A scheduler or a worker is missing, has other versions or files, or ended.

    >>> raise ClusterError("There is no Dask scheduler at tcp://10.0.0.1:8786.")
    Traceback (most recent call last):
        ...
    earmark.errors.ClusterError: There is no Dask scheduler at tcp://10.0.0.1:8786.
    """


class DataError(EarmarkError):
    """A table of labels or events is wrong; the message names file and line.

    >>> raise DataError("a.tsv:3: no label.")
    Traceback (most recent call last):
        ...
    earmark.errors.DataError: a.tsv:3: no label.
    """


class SettingError(EarmarkError, ValueError):
    """A setting, a name or a shape that cannot work.

    >>> issubclass(SettingError, ValueError)
    True
    """


class EarmarkWarning(UserWarning):
    """Something that the caller should fix, but that does not stop the work.

    >>> issubclass(EarmarkWarning, UserWarning)
    True
    """


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return the first names and the number of others as text, for messages and reprs.

    >>> listed(["cat", "dog", "owl", "siren", "train"])
    'cat, dog, owl and 2 more'
    """
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def choose(
    kind: str,
    name: str,
    known: Iterable[str],
    error: type[EarmarkError] = SettingError,
    where: str = "",
) -> str:
    """Return `name` if it is known; otherwise raise with the nearest known name.

    Args:
        kind: what the names are names of, for the message.
        name: the name received.
        known: every valid name.
        error: the class to raise.
        where: the file, or file:row, that the name was read from.

    >>> choose("pooling", "linear", ["linear", "exp"])
    'linear'
    >>> choose("pooling", "liner", ["linear", "max"])
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: There is no pooling 'liner'; did you mean 'linear'? Known: ...
    >>> choose("label", "dgo", ["dog", "cat"], DataError, "weak.tsv:2")
    Traceback (most recent call last):
        ...
    earmark.errors.DataError: weak.tsv:2: there is no label 'dgo'; did you mean 'dog'? Known: ...
    """
    names = sorted(known)
    if name in names:
        return name
    near = get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    list_all = len(names) <= _MAX_LISTED or not near  # a good guess needs no long list
    shown = f" Known: {listed(names, _MAX_LISTED) or 'none'}." if list_all else ""
    begin = f"{where}: there" if where else "There"
    raise error(f"{begin} is no {kind} {name!r}{hint}{shown}")
