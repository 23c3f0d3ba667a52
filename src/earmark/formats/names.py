"""Which file is which: the one rule that matches the file names of tables, folders and scores.

The same clip is `x.wav` in a list, `Yx.flac` on disk, `x.tsv` in a folder of scores and `x` in the
output of another tool. `earmark train`, `tune`, `compare` and `evaluate` all match names this way.

Conventions: a name is a path relative to some folder, with `/` between its parts. A suffix is a
dot, a letter, and up to four more letters or digits at the end: `x_60.000_70.000` has none. A name
is looked up in this order, and the first step that finds anything decides:

    1. exactly
    2. exactly, with a leading Y added or removed: DCASE 2017 has it in audio files, not in lists
    3. without suffix, ignoring case and the Unicode form of accents
    4. as in 3, with a leading Y added or removed
    5. as in 3 and 4, in any folder, if the name itself has no folder

If a step finds two files, the name is ambiguous, which is an error.
"""

import copy
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TypeVar

from earmark.errors import DataError

STEPS = (1, 2, 3, 4, 5)
_SUFFIX = re.compile(r"(?<=[^/])\.[A-Za-z][A-Za-z0-9]{0,4}$")

Value = TypeVar("Value")


def stem_of(name: str) -> str:
    """Return the name without its suffix.

    >>> stem_of("street/a.wav"), stem_of("x_60.000_70.000.wav"), stem_of("x_60.000_70.000")
    ('street/a', 'x_60.000_70.000', 'x_60.000_70.000')
    """
    return _SUFFIX.sub("", name)


def stems_of(names: Iterable[str]) -> dict[str, str]:
    """Return name without suffix -> name, and raise if two names differ only in their suffix.

    >>> stems_of(["a.wav", "a.flac"])
    Traceback (most recent call last):
        ...
    earmark.errors.DataError: 'a.wav' and 'a.flac' are the same without their suffix. ...
    """
    stems: dict[str, str] = {}
    for name in names:
        other = stems.setdefault(stem_of(name), name)
        if other != name:
            raise DataError(
                f"{other!r} and {name!r} are the same without their suffix. Scores are stored "
                "under the name without suffix: rename one of the files."
            )
    return stems


class NameIndex:
    """Names to look up other names in.

    >>> index = NameIndex(["Yx_30.000_40.000.flac", "street/a.wav", "b.wav", "b.flac"])
    >>> index.find("x_30.000_40.000.wav"), index.find("A"), index.find("b.wav"), index.find("c")
    (['Yx_30.000_40.000.flac'], ['street/a.wav'], ['b.wav'], [])
    >>> index.find("b")
    ['b.wav', 'b.flac']
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = dict.fromkeys(names)
        self._by_stem: dict[str, list[str]] = {}
        self._in_folders: dict[str, list[str]] = {}
        for name in self._names:
            self._by_stem.setdefault(_fold(stem_of(name)), []).append(name)
            if "/" in name:
                base = PurePosixPath(name).name
                self._in_folders.setdefault(_fold(stem_of(base)), []).append(name)

    def find(self, name: str) -> list[str]:
        """Return the names that match: none, one, or several if `name` is ambiguous."""
        return next(filter(None, (self.find_in_step(step, name) for step in STEPS)), [])

    def find_in_step(self, step: int, name: str) -> list[str]:
        """Return what one step of the rule finds.

        >>> NameIndex(["a.wav"]).find_in_step(1, "a"), NameIndex(["a.wav"]).find_in_step(3, "a")
        ([], ['a.wav'])
        """
        variants = _with_and_without_y(name)
        if step in (1, 2):
            return [other for other in ([name] if step == 1 else variants) if other in self._names]
        index = self._in_folders if step == 5 else self._by_stem
        wanted = {3: [name], 4: variants, 5: [name, *variants]}[step]
        return [found for other in wanted for found in _look_up(index, other)]


def match_names(names: Collection[str], others: Collection[str]) -> dict[str, str]:
    """Return name -> the one of `others` that means the same file, where there is one.

    All names take each step of the rule together, so that a better match of one name is never used
    for another, and no file is used twice.

    >>> match_names(["a.wav", "Ya.wav", "b.wav"], ["a.flac", "b.wav", "c.wav"])
    {'a.wav': 'a.flac', 'b.wav': 'b.wav'}
    """
    known = set(others)
    matched = {name: name for name in names if name in known}  # step 1
    index = NameIndex(other for other in others if other not in matched)
    used: dict[str, str] = {}
    for step in STEPS[1:]:
        taken = set(used)
        for name in names:
            found = [] if name in matched else index.find_in_step(step, name)
            found = [other for other in found if other not in taken]
            if len(found) > 1:
                raise DataError(
                    f"{name!r} may be any of {', '.join(map(repr, found))}. Use the same names in "
                    "both tables, or remove the files that are not meant."
                )
            if found and used.setdefault(found[0], name) != name:
                raise DataError(
                    f"{found[0]!r} may be {used[found[0]]!r} or {name!r}. Use the same names in "
                    "both tables."
                )
        matched |= {name: other for other, name in used.items()}
    return {name: matched[name] for name in names if name in matched}


def rename_files(table: Mapping[str, Value], names: Collection[str]) -> Mapping[str, Value]:
    """Return a table (file name -> value) with the names that `names` has for its files.

    Files without a match keep their names. The order and the type of a `dict` stay; without any
    change the table itself is returned.

    >>> rename_files({"a.flac": 1, "b.flac": 2}, ["a.wav"])
    {'a.wav': 1, 'b.flac': 2}
    """
    new_name = {theirs: ours for ours, theirs in match_names(names, table.keys()).items()}
    if all(theirs == ours for theirs, ours in new_name.items()):
        return table
    renamed = {new_name.get(name, name): value for name, value in table.items()}
    if not isinstance(table, dict):
        return renamed
    result = copy.copy(table)  # an EventTable also counts the rows it dropped
    result.clear()
    result.update(renamed)
    return result


def _look_up(index: Mapping[str, Sequence[str]], name: str) -> Sequence[str]:
    """Return the entries for a name: first as one without suffix, then without its suffix."""
    return index.get(_fold(name)) or index.get(_fold(stem_of(name))) or ()


def _with_and_without_y(name: str) -> list[str]:
    path = PurePosixPath(name)
    variants = [f"Y{path.name}"] if path.name else []
    # The id of a clip may itself begin with Y, so both variants are candidates.
    if path.name.startswith("Y") and stem_of(path.name) != "Y":
        variants.append(path.name[1:])
    return [(path.parent / variant).as_posix() for variant in variants]


def _fold(name: str) -> str:
    # macOS writes é as two code points in file names; tables have one.
    return unicodedata.normalize("NFC", PurePosixPath(name).as_posix()).casefold()


def name_inside(name: str) -> str:
    """Return a name as a path inside a folder: without a root, and without `..`.

    >>> name_inside("street/a.wav"), name_inside("/data/a.wav"), name_inside("../a.wav")
    ('street/a.wav', 'data/a.wav', 'a.wav')
    """
    parts = [part for part in PurePosixPath(name).parts if part not in ("/", "//", "..")]
    return "/".join(parts) or "recording"
