"""A table of weak or strong labels and a folder of recordings -> the clips to train on.

Conventions: a clip has the name that its table uses, the path of its recording, and its tags, a
sorted tuple of labels. Names are matched with files by the rule of `earmark.formats.names`. Targets
are float32 (clips, classes), 1 for a tag and 0 elsewhere, classes in the order of the labels.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from earmark.audio.decode import find_audio
from earmark.data.groups import groups_by_pattern
from earmark.data.store import Excerpt
from earmark.errors import DataError, SettingError, choose, listed
from earmark.formats.events import Event
from earmark.formats.names import NameIndex, rename_files
from earmark.formats.tags import TagTable, read_groups, read_tags, tags_from_folders

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Manifest:
    """The clips of a table with their recordings and tags, and the names without a recording.

    Args:
        files: name of each clip, as in the table.
        paths: path of each recording.
        tags: tags of each clip, sorted.
        labels: the classes, in the order of the targets.
        missing: names in the table without a recording.
        events: events of each clip, for training on strong labels; otherwise empty.
        excerpts: name -> which part of its recording the clip is, for clips that are not whole.
        groups: group of each clip, such as its speaker, for a split that keeps groups together;
            otherwise empty.
        columns: of the table, if it has a header.

    >>> paths = [Path("a.wav"), Path("b.wav")]
    >>> Manifest(("a.wav", "b.wav"), paths, [("dog",), ()], ("cat", "dog")).targets
    tensor([[0., 1.],
            [0., 0.]])
    """

    files: tuple[str, ...]
    paths: tuple[Path, ...]
    tags: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...]
    missing: tuple[str, ...] = ()
    events: tuple[tuple[Event, ...], ...] = ()
    excerpts: Mapping[str, Excerpt] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    columns: tuple[str, ...] = field(default=(), compare=False)

    def __repr__(self) -> str:
        missing = f", {len(self.missing)} missing" if self.missing else ""
        n_classes = len(self.labels)
        return f"Manifest({len(self)} clips, {n_classes} classes: {listed(self.labels)}{missing})"

    def __post_init__(self) -> None:
        for name in ("files", "paths", "tags", "labels", "missing", "events", "groups", "columns"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not len(self.files) == len(self.paths) == len(self.tags):
            raise SettingError(
                "A manifest needs a path and tags for each of its files. Got "
                f"{len(self.files)} files, {len(self.paths)} paths, {len(self.tags)} tags."
            )
        for name in ("events", "groups"):
            own = getattr(self, name)
            if own and len(own) != len(self.files):
                raise SettingError(
                    f"A manifest needs {name} for each of its files, or for none. Got "
                    f"{len(self.files)} files and the {name} of {len(own)}."
                )
        _check_once("file", self.files)
        _check_once("label", self.labels)
        for file, tags in zip(self.files, self.tags, strict=True):
            for tag in tags:
                if tag not in self._column:
                    choose("label", tag, self.labels, DataError, f"The tags of {file}")

    @classmethod
    def read(
        cls,
        table: PathLike,
        audio: PathLike | None = None,
        labels: Sequence[str] | None = None,
        *,
        group: str | None = None,
        group_pattern: str | None = None,
    ) -> "Manifest":
        r"""Read a table of weak or strong labels, or a folder with one folder per class.

        Args:
            table: a file in a layout of `earmark.formats.tags`, or a folder of class folders.
            audio: the folder of the recordings; not for a folder of class folders.
            labels: the known labels, in this order; any other is an error. By default, all labels
                of the table, sorted, including those of missing recordings.
            group: the column of the table with the group of each clip, such as its speaker.
            group_pattern: in place of a column, a regular expression that finds the group in the
                name of a clip; see `earmark.data.groups`.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Path(folder, "Yxyz_30_40.flac").touch()
        ...     text = "filename\tevent_labels\nxyz_30_40.wav\tdog\nlost.wav\tcat\n"
        ...     _ = Path(folder, "weak.tsv").write_text(text)
        ...     manifest = Manifest.read(f"{folder}/weak.tsv", folder)
        >>> manifest.files, manifest.paths[0].name, manifest.missing, manifest.labels
        (('xyz_30_40.wav',), 'Yxyz_30_40.flac', ('lost.wav',), ('cat', 'dog'))
        """
        table = Path(table)
        if labels is not None:
            _check_once("label", labels)
        if group is not None and (group_pattern is not None or table.is_dir()):
            reason = "not both" if group_pattern is not None else f"since {table} is a folder"
            raise SettingError(f"Pass group_pattern= in place of group={group!r}, {reason}.")
        columns: tuple[str, ...] = ()
        if table.is_dir():
            if audio is not None and Path(audio).resolve() != table.resolve():
                raise SettingError(
                    f"{table} is a folder of class folders that contain the recordings. Pass a "
                    f"table of labels, or leave out audio={os.fspath(audio)!r}."
                )
            audio = table
            tags = TagTable(tags_from_folders(_relative(path, table) for path in find_audio(table)))
        elif audio is None:
            raise SettingError(f"{table} is a table; pass the folder of its recordings as audio.")
        else:
            tags = read_tags(table, labels)
            columns = tags.columns
        found, missing = _find(tags, Path(audio), os.fspath(table))
        known = sorted(set().union(*tags.values())) if labels is None else labels
        for label in sorted(set().union(*tags.values())):  # of folders; read_tags checks tables
            choose("label", label, known, DataError, str(table))
        groups: Sequence[str] = ()
        if group is not None:
            of_clip = read_groups(table, group)
            groups = [of_clip[name] for name in found]
        elif group_pattern is not None:
            groups = groups_by_pattern(tuple(found), group_pattern)
        return cls(
            tuple(found),
            tuple(found.values()),
            tuple(tags[name] for name in found),
            tuple(known),
            tuple(missing),
            groups=tuple(groups),
            columns=columns,
        )

    def __len__(self) -> int:
        return len(self.files)

    @cached_property
    def targets(self) -> Tensor:
        """Which classes each clip contains, (clips, classes)."""
        targets = np.zeros((len(self.files), len(self.labels)), np.float32)
        for row, tags in enumerate(self.tags):
            targets[row, [self._column[tag] for tag in tags]] = 1.0
        return torch.from_numpy(targets)

    @cached_property
    def _column(self) -> dict[str, int]:
        return {label: column for column, label in enumerate(self.labels)}

    def take(self, rows: Iterable[int]) -> "Manifest":
        """Return the manifest of the clips in these rows, in this order, with nothing missing.

        >>> manifest = Manifest(("a", "b"), (Path("a"), Path("b")), (("x",), ()), ("x",))
        >>> manifest.take([1]).files
        ('b',)
        """
        rows = list(rows)
        files = {self.files[row] for row in rows}
        return Manifest(
            tuple(self.files[row] for row in rows),
            tuple(self.paths[row] for row in rows),
            tuple(self.tags[row] for row in rows),
            self.labels,
            events=tuple(self.events[row] for row in rows) if self.events else (),
            excerpts={name: part for name, part in self.excerpts.items() if name in files},
            groups=tuple(self.groups[row] for row in rows) if self.groups else (),
            columns=self.columns,
        )

    def joined(self, other: "Manifest") -> "Manifest":
        """Return the clips of both; those of `other` must have the same labels, and no events.

        The result has no groups, which those of `other` lack.

        >>> one, two = (Manifest((x,), (Path(x),), ((),), ("dog",)) for x in ("a.wav", "b.wav"))
        >>> one.joined(two).files
        ('a.wav', 'b.wav')
        """
        assert self.labels == other.labels
        assert not other.events
        return Manifest(
            (*self.files, *other.files),
            (*self.paths, *other.paths),
            (*self.tags, *other.tags),
            self.labels,
            (*self.missing, *other.missing),
            (*self.events, *((),) * len(other)) if self.events else (),
            {**self.excerpts, **other.excerpts},
        )

    def with_events(self, table: Mapping[str, Sequence[Event]]) -> "Manifest":
        """Return the same clips with events, and the tags that follow from these.

        Args:
            table: file name -> its events, with a row for every clip of the manifest.

        >>> manifest = Manifest(("a", "b"), (Path("a"), Path("b")), (("x",), ()), ("x",))
        >>> manifest.with_events({"a": [Event(0.0, 1.0, "x")], "b": []}).events[0][0].offset
        1.0
        """
        table = rename_files(table, self.files)
        lacking = [file for file in self.files if file not in table]
        if lacking:
            raise DataError(
                f"{len(lacking)} of {len(self)} clips are not in the table of events, such as "
                f"{lacking[0]!r}; a clip without events needs a row with its name alone."
            )
        events = tuple(tuple(table[file]) for file in self.files)
        tags = tuple(tuple(sorted({event.label for event in found})) for found in events)
        return replace(self, tags=tags, events=events)

    def split(self, fraction: float, seed: int = 0) -> tuple["Manifest", "Manifest"]:
        """Return the larger and the smaller part of a stratified split.

        Rare classes are assigned first (iterative stratification, Sechidis et al. 2011). A class
        with two clips or more occurs in both parts if the other tags of its clips allow it, for
        which the smaller part may slightly exceed `fraction`. The same seed gives the same split.
        If the clips have groups, whole groups are assigned, the largest of a class first; classes
        are then divided as well as groups allow, and each class that two groups have is in both
        parts if the other tags of these allow it.

        Args:
            fraction: fraction of the clips in the second part, between 0 and 1.
            seed: decides the order in which clips are assigned.

        >>> files = [f"{n}.wav" for n in range(20)]
        >>> tags = [("dog",)] * 18 + [("cat",)] * 2
        >>> manifest = Manifest(files, [Path(file) for file in files], tags, ("cat", "dog"))
        >>> [part.targets.sum(0).tolist() for part in manifest.split(0.1)]
        [[1.0, 16.0], [1.0, 2.0]]
        """
        if not 0 < fraction < 1:
            raise SettingError(f"fraction must be between 0 and 1. Got {fraction!r}.")
        if len(self) < 2:
            raise DataError(f"A split needs two clips or more. Got {len(self)}.")
        targets, rng = self.targets.numpy().astype(bool), np.random.default_rng(seed)
        # Clips without tags count as one more class.
        counts = np.column_stack([targets, ~targets.any(axis=1)]).astype(np.int64)
        if not self.groups:
            second = _stratify(counts, np.ones(len(self)), fraction, rng)
        else:
            names, of_clip = np.unique(self.groups, return_inverse=True)
            if len(names) < 2:
                raise DataError(
                    f"All {len(self)} clips are of the group {self.groups[0]!r}, and validation "
                    "needs another one. Name another column or pattern of groups."
                )
            of_groups = np.zeros((len(names), counts.shape[1]), np.int64)
            np.add.at(of_groups, of_clip, counts)
            second = _stratify(of_groups, np.bincount(of_clip), fraction, rng)[of_clip]
        return self.take(np.flatnonzero(~second)), self.take(np.flatnonzero(second))


def clip_paths(*manifests: Manifest) -> dict[str, Path]:
    """Return name -> path of every recording; one name for two recordings is an error.

    The name is that of the clip, or that of the recording it is cut from.

    >>> clip_paths(Manifest(("a.wav",), (Path("in/a.wav"),), ((),), ()))["a.wav"].as_posix()
    'in/a.wav'
    """
    paths: dict[str, Path] = {}
    for manifest in manifests:
        for name, path in zip(manifest.files, manifest.paths, strict=True):
            file = manifest.excerpts[name].file if name in manifest.excerpts else name
            if paths.setdefault(file, path) != path:
                raise DataError(
                    f"{file!r} names two recordings, {paths[file]} and {path}. Rename the clips of "
                    "one manifest with separate_names."
                )
    return paths


def separate_names(*training: Manifest, **others: Manifest) -> tuple[Manifest, ...]:
    """Return `others`, renamed where a name means another recording in an earlier manifest.

    A feature store knows a clip by its name, and sets of clips made in the same way often share
    names (`scene_00000.wav`). If any name of a manifest is ambiguous, all of its clips get the name
    of the manifest as a prefix; without ambiguity nothing changes.

    Args:
        training: manifests that keep their names; they may use one name for two recordings, since
            each has its own store.
        others: name of a set -> its manifest.

    >>> train, test = (Manifest(("a.wav",), (Path(x, "a.wav"),), ((),), ()) for x in ("1", "2"))
    >>> (apart,) = separate_names(train, test=test)
    >>> apart.files, separate_names(train, test=train) == (train,)
    (('test: a.wav',), True)
    """
    paths: dict[str, set[Path]] = {}

    def add(manifest: Manifest) -> None:
        for file, path in zip(manifest.files, manifest.paths, strict=True):
            paths.setdefault(file, set()).add(path)

    for manifest in training:
        add(manifest)
    separated = []
    for name, manifest in others.items():
        clips = zip(manifest.files, manifest.paths, strict=True)
        if any(paths.get(file, {path}) != {path} for file, path in clips):
            files = tuple(f"{name}: {file}" for file in manifest.files)
            manifest = replace(manifest, files=files)  # noqa: PLW2901
        add(manifest)
        separated.append(manifest)
    return tuple(separated)


def _check_once(kind: str, names: Sequence[str]) -> None:
    if isinstance(names, str):
        raise SettingError(f"{kind}s must be a list of names. Got the string {names!r}.")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"The {kind} {name!r} occurs twice; each {kind} must occur once.")
        seen.add(name)


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _find(names: Iterable[str], folder: Path, table: str) -> tuple[dict[str, Path], list[str]]:
    """Return the path of every name that has a recording in the folder, and the other names."""
    files = {_relative(path, folder): path for path in find_audio(folder)}
    index = NameIndex(files)
    found, missing = {}, []
    for name in names:
        if name not in files and _is_file(folder / name):
            found[name] = folder / name  # an absolute path, a hidden file, or no audio suffix
            continue
        matches = index.find(name)
        if len(matches) > 1:
            raise DataError(
                f"{table}: {name!r} may be any of {', '.join(matches)} in {folder}. Write the one "
                "that is meant into the table, or remove the others."
            )
        if matches:
            found[name] = files[matches[0]]
        else:
            missing.append(name)
    return found, missing


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # not a path at all, such as a sentence in the wrong column
        return False


def _stratify(
    columns: NDArray[np.int64], sizes: NDArray[Any], fraction: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Return which clips, or groups of clips, go to the second part.

    Shape: `columns` (items, classes) counts clips, `sizes` (items,) -> (items,).
    """
    counts = columns.sum(axis=0)
    share = np.rint(counts * fraction)
    # A class that two items have or more gives each part the smallest of them at least.
    smallest = np.where(columns > 0, columns, counts.max(initial=0) + 1).min(axis=0)
    clipped = np.clip(share, smallest, np.maximum(smallest, counts - smallest))
    share = np.where((columns > 0).sum(axis=0) > 1, clipped, 0)
    # How many clips of each class, and how many in total, each part still needs.
    needed = np.stack([counts - share, share]).astype(float)
    total_needed = np.array([1 - fraction, fraction]) * sizes.sum()
    second = np.zeros(len(columns), bool)
    left = np.ones(len(columns), bool)
    while left.any():
        left_of = columns[left].sum(axis=0)
        rarest = int(np.argmin(np.where(left_of > 0, left_of, left_of.sum() + 1)))
        rows = rng.permutation(np.flatnonzero(left & (columns[:, rarest] > 0)))
        for row in rows[np.argsort(-columns[rows, rarest], kind="stable")]:
            first_part, second_part = zip(needed[:, rarest], total_needed, strict=True)
            part = int(second_part > first_part)
            second[row] = bool(part)
            left[row] = False
            needed[part] -= columns[row]
            total_needed[part] -= sizes[row]
    if not second.any() or second.all():  # no class has two items
        second[:] = False
        second[rng.integers(len(second))] = True
    return second
