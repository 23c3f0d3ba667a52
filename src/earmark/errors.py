"""The exception tree, what its messages may contain, and the check of names that suggests others.

The command line prints the message of any of these on one line and exits with code 2:

    EarmarkError
    ├── AudioError      a recording cannot be read, or its content is invalid
    ├── BundleError     a model file is missing, damaged or of another version
    ├── ClusterError    a scheduler or a worker of a cluster cannot be used
    ├── DataError       a table of labels or events, or a file it names, is wrong
    └── SettingError    a setting, name or shape that cannot work (also a ValueError)

Conventions: a message says what was wrong, the value received, where (file:row), and what to do
instead. It names Python arguments, not command-line options. Values in it may come from anyone's
file: control characters are escaped, and long values are shortened (`shorten`), here for all.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches

MAX_MESSAGE = 1000  # characters
_MAX_QUOTED = 200  # characters of a value in quotes
_MAX_LISTED = 20
# C0 and C1 but for tab and line feed, marks that change the direction of text, and surrogates,
# which stand for bytes of file names that are not UTF-8.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_LONG_QUOTED = re.compile(rf"(['\"])((?:(?!\1)[^\n]){{{_MAX_QUOTED},}})\1")


def printable(text: str) -> str:
    r"""Return a text with its control characters escaped, so that a terminal shows and obeys none.

    Tabs and line ends stay.

    >>> print(printable("dog\x1b[31m\udcff"))
    dog\x1b[31m\udcff
    """
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def shorten(text: str, limit: int = MAX_MESSAGE) -> str:
    """Return a sentence whose long quoted values, and whose middle, are left out.

    Args:
        text: the sentence.
        limit: characters that it may have.

    >>> len(shorten("There is no label '" + 10**7 * "x" + "'; check the table."))
    138
    """
    if len(text) <= _MAX_QUOTED:
        return text
    if len(text) > 100 * limit:  # before the search: what is in the middle of it goes in any case
        text = _without_middle(text, 50 * limit)
    text = _LONG_QUOTED.sub(
        lambda match: match[1] + _without_middle(match[2], 100) + match[1], text
    )
    return _without_middle(text, limit)


def _without_middle(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    n_last = limit // 3
    return f"{text[: limit - n_last - 5]} ... {text[-n_last:]}"


class EarmarkError(Exception):
    r"""The root of the tree: catch it to catch everything that Earmark raises on bad input.

    >>> issubclass(AudioError, EarmarkError)
    True
    >>> str(DataError("There is no label 'dog\x1b[2J'.")).isprintable()
    True
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(printable(shorten(str(message))))


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


# What reading a description raises that may be anyone's, and of any size and depth.
UNUSABLE = (
    EarmarkError,
    AttributeError,
    LookupError,
    MemoryError,
    OverflowError,
    RuntimeError,  # a nesting that is too deep, a size that torch cannot count
    TypeError,
    ValueError,
)


@contextmanager
def refusing(what: str, error: type[EarmarkError], advice: str = "") -> Iterator[None]:
    """Raise `error` for whatever goes wrong with the content of a file inside the `with` block.

    Args:
        what: the beginning of the message: which file is not usable as what.
        error: the class to raise; errors of this class pass as they are.
        advice: the end of the message.

    >>> with refusing("a.json is damaged", DataError, "Remove it."):
    ...     {}["labels"]
    Traceback (most recent call last):
        ...
    earmark.errors.DataError: a.json is damaged: it lacks 'labels'. Remove it.
    """
    try:
        yield
    except error:
        raise
    except UNUSABLE as cause:
        reason = str(cause) or type(cause).__name__
        if isinstance(cause, KeyError):
            reason = f"it lacks {cause}"
        raise error(f"{what}: {reason.rstrip('.')}. {advice}".rstrip()) from cause


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
    near = get_close_matches(str(name)[:_MAX_QUOTED], names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    list_all = len(names) <= _MAX_LISTED or not near  # a good guess needs no long list
    shown = f" Known: {listed(names, _MAX_LISTED) or 'none'}." if list_all else ""
    begin = f"{where}: there" if where else "There"
    raise error(f"{begin} is no {kind} {name!r}{hint}{shown}")
