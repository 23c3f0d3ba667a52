"""Groups of clips that belong together: one speaker, place, recorder or source recording.

If clips of one group are in training and in validation, validation scores are too high: the network
has learned the speaker, not the sound. Groups come from a column of the table or from a pattern of
the clips' names; `Manifest.split` keeps them together. Where neither is given, `suggest_groups`
looks for evidence in the names of columns and clips.

Conventions: a pattern is a regular expression, searched in the name of a clip as its table has it;
its first pair of parentheses is the group, or the whole match if it has none.
"""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from shlex import quote

from earmark.errors import DataError, SettingError
from earmark.formats.names import stem_of

# Columns that say where a clip is from, the most specific first.
COLUMNS = (
    *("speaker", "patient", "subject", "person", "individual", "site", "place", "location"),
    *("recorder", "device", "session", "group", "source", "fold"),
)
MIN_CLIPS = 20  # below, any pattern of names may be chance
MIN_PER_GROUP = 3  # clips, on average
SAME_PARTS = 0.9  # of the names must have the same number of parts


@dataclass(frozen=True)
class Suggestion:
    """Evidence of groups that nobody declared.

    Args:
        evidence: a sentence about where they show.
        option: what to type.
        groups: the group of each clip, if names show them; otherwise empty.

    >>> Suggestion("The table has a column 'speaker'.", "--group speaker").groups
    ()
    """

    evidence: str
    option: str
    groups: tuple[str, ...] = field(default=(), repr=False)


def groups_by_pattern(files: Sequence[str], pattern: str) -> tuple[str, ...]:
    r"""Return the group of each file name, by a regular expression.

    >>> groups_by_pattern(["ann_1.wav", "bob_1.wav"], r"^([a-z]+)_")
    ('ann', 'bob')
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise SettingError(
            f"group_pattern must be a regular expression, such as '^([^_]+)_'. Got {pattern!r}: "
            f"{error}."
        ) from None
    groups = []
    for file in files:
        found = compiled.search(file)
        group = (found[1] if compiled.groups else found[0]) if found else None
        if not group:
            raise DataError(
                f"group_pattern={pattern!r} finds no group in the name {file!r}; write one that "
                "fits all clips."
            )
        groups.append(group)
    return tuple(groups)


def check_separate(train: Collection[str], valid: Collection[str]) -> None:
    """Raise if training and validation share a group.

    >>> check_separate(["ann", "bob"], ["cid"])
    """
    shared = sorted({*train} & {*valid})
    if shared:
        listed = ", ".join(map(repr, shared[:3])) + (", ..." if len(shared) > 3 else "")
        raise DataError(
            f"Training and validation share {len(shared)} of {len({*train})} groups ({listed}); "
            "scores would be too high. Move the clips of each to one of the tables, or leave out "
            "the validation table: whole groups are then held out."
        )


def suggest_groups(
    files: Sequence[str], tags: Sequence[tuple[str, ...]], columns: Collection[str] = ()
) -> Suggestion | None:
    """Return evidence that clips come from groups, or None.

    A column of the table with a name in `COLUMNS` is evidence, and so is a folder or a part of the
    clips' names, between `_`, `-` or spaces, that several clips share and that does not follow from
    their tags. Names that only count, such as take_003, have no such part.

    Args:
        files: names of the clips.
        tags: tags of each.
        columns: of their table.

    >>> files = [f"{name}_{n:03}.wav" for name in ("ann", "bob") for n in range(10)]
    >>> suggestion = suggest_groups(files, [("yes",), ("no",)] * 10)
    >>> print(suggestion.evidence, suggestion.option)
    File names suggest 2 groups of 10 to 10 clips: 'ann' in ann_000.wav. --group-pattern ...
    >>> groups_by_pattern(files, "([^_/.]+)[^/]*$") == suggestion.groups
    True
    """
    for column in COLUMNS:
        if column in columns:
            return Suggestion(f"The table has a column {column!r}.", f"--group {column}")
    if len(files) < MIN_CLIPS:
        return None
    folders = [str(PurePosixPath(file).parent) for file in files]
    if _are_groups(folders, tags):
        return _suggestion(files, folders, "^(.*)/")
    stems = [PurePosixPath(stem_of(file)).name for file in files]
    for sign in "_- ":
        parts = [stem.split(sign) for stem in stems]
        (n_parts, n_files), *_ = Counter(map(len, parts)).most_common(1)
        if n_parts < 2 or n_files < SAME_PARTS * len(files):
            continue
        for at in range(n_parts):
            own = [own[at] if len(own) > at else "" for own in parts]
            counts = at == n_parts - 1 and all(x.isdigit() or len(x) < 2 for x in own)
            if not counts and _are_groups(own, tags):
                outside = "[ ]" if sign == " " else sign
                before = f"(?:[^{sign}/]+{outside}){{{at}}}" if at else ""
                return _suggestion(files, own, f"{before}([^{sign}/.]+)[^/]*$")
    return None


def _are_groups(values: Sequence[str], tags: Sequence[tuple[str, ...]]) -> bool:
    """Return whether values are shared by several clips each, and say more than the tags do."""
    tags_of: dict[str, set[tuple[str, ...]]] = {}
    for value, own in zip(values, tags, strict=True):
        tags_of.setdefault(value, set()).add(own)
    labels = {label for own in tags for label in own}
    return (
        2 <= len(tags_of) <= len(values) / MIN_PER_GROUP
        and any(len(own) > 1 for own in tags_of.values())
        and not {*tags_of} <= labels
    )


def _suggestion(files: Sequence[str], values: Sequence[str], pattern: str) -> Suggestion | None:
    try:
        groups = groups_by_pattern(files, pattern)
    except DataError:  # some names are of another kind
        return None
    counts = Counter(values)
    return Suggestion(
        f"File names suggest {len(counts)} groups of {min(counts.values())} to "
        f"{max(counts.values())} clips: {groups[0]!r} in {files[0]}.",
        f"--group-pattern {quote(pattern)}",
        groups,
    )
