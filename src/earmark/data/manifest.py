"""Manifest of clips and weak labels -> padded batches with masks.

Conventions: a clip has the name that its table gives it, the path where its audio was found, and
its tags, a sorted tuple of labels. Targets are float32 (clips, classes), 1 where a tag is given and
0 elsewhere, in the order of the labels. A batch is (batch, frames, mels) with zeros behind shorter
clips, and a mask (batch, frames) that is True for real frames.

Names in tables and on disk differ in the field, so that a name is looked for in this order, and the
first place where it is found counts:

    as it stands          a path below the audio folder
    with or without Y     DCASE 2017 puts a Y before the names of its audio files, not of its lists
    by its stem           another audio suffix, or none; capitals or not
    by its stem, with or without Y

Two files in one place are an error; nothing is guessed.
"""

import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from torch import Tensor

from earmark.audio.decode import SUFFIXES, find_audio
from earmark.errors import DataError, SettingError
from earmark.formats.events import Event
from earmark.formats.tags import read_tags, tags_from_folders

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Manifest:
    """The clips of a table that were found, their tags, and the names that were not found.

    Args:
        files: names of the clips, as in the table.
        paths: of their audio.
        tags: of each clip, sorted.
        labels: the classes, in the order of the targets.
        missing: names in the table without audio.
        events: of each clip, where onsets and offsets are to be learned from; else empty.

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

    def __post_init__(self) -> None:
        for name in ("files", "paths", "tags", "labels", "missing", "events"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not len(self.files) == len(self.paths) == len(self.tags):
            raise SettingError(
                "A manifest has a path and tags for each of its files. Got "
                f"{len(self.files)} files, {len(self.paths)} paths, {len(self.tags)} tags."
            )
        if self.events and len(self.events) != len(self.files):
            raise SettingError(
                "A manifest has events for each of its files, or for none. Got "
                f"{len(self.files)} files and the events of {len(self.events)}."
            )
        _check_once("file", self.files)
        _check_once("label", self.labels)
        for file, tags in zip(self.files, self.tags, strict=True):
            for tag in tags:
                if tag not in self._column:
                    near = get_close_matches(tag, self.labels, n=1)
                    hint = f"; did you mean {near[0]!r}?" if near else "."
                    raise DataError(
                        f"{file} has the tag {tag!r}, which is no label{hint} "
                        f"Known: {', '.join(self.labels)}."
                    )

    @classmethod
    def read(
        cls, table: PathLike, audio: PathLike | None = None, labels: Sequence[str] | None = None
    ) -> "Manifest":
        r"""Read a table of weak or strong labels, or a folder with a folder for each class.

        Args:
            table: a file (see `earmark.formats.tags` and `earmark.formats.events`), or a folder of class folders.
            audio: the folder of the recordings; a folder of class folders is its own.
            labels: the known labels, in this order; any other is an error. Without them, those of
                the table, sorted; also those whose audio is missing.

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
        if table.is_dir():
            if audio is not None and Path(audio).resolve() != table.resolve():
                raise SettingError(
                    f"{table} is a folder of class folders, with its audio inside; give a table "
                    f"of labels, or leave the audio folder {os.fspath(audio)} out."
                )
            audio = table
            tags = tags_from_folders(_relative(path, table) for path in find_audio(table))
        elif audio is None:
            raise SettingError(f"{table} is a table; give the folder of its audio too (--audio).")
        else:
            tags = read_tags(table, labels)
        found, missing = _find(tags, Path(audio), os.fspath(table))
        known = sorted(set().union(*tags.values())) if labels is None else labels
        _check_known(table, tags, known)
        paths, kept = tuple(found.values()), tuple(tags[name] for name in found)
        return cls(tuple(found), paths, kept, tuple(known), tuple(missing))

    def __len__(self) -> int:
        return len(self.files)

    @cached_property
    def targets(self) -> Tensor:
        """What each clip holds, (clips, classes)."""
        targets = np.zeros((len(self.files), len(self.labels)), np.float32)
        for row, tags in enumerate(self.tags):
            targets[row, [self._column[tag] for tag in tags]] = 1.0
        return torch.from_numpy(targets)

    @cached_property
    def _column(self) -> dict[str, int]:
        return {label: column for column, label in enumerate(self.labels)}

    def take(self, rows: Iterable[int]) -> "Manifest":
        """Return the manifest of the clips in these rows, in this order; nothing is missing there.

        >>> manifest = Manifest(("a", "b"), (Path("a"), Path("b")), (("x",), ()), ("x",))
        >>> manifest.take([1]).files
        ('b',)
        """
        rows = list(rows)
        return Manifest(
            tuple(self.files[row] for row in rows),
            tuple(self.paths[row] for row in rows),
            tuple(self.tags[row] for row in rows),
            self.labels,
            events=tuple(self.events[row] for row in rows) if self.events else (),
        )

    def with_events(self, table: Mapping[str, Sequence[Event]]) -> "Manifest":
        """Return the same clips with their onsets and offsets, and the tags that these give.

        >>> manifest = Manifest(("a", "b"), (Path("a"), Path("b")), (("x",), ()), ("x",))
        >>> manifest.with_events({"a": [Event(0.0, 1.0, "x")], "b": []}).events[0][0].offset
        1.0
        """
        lacking = [file for file in self.files if file not in table]
        if lacking:
            raise DataError(
                f"{len(lacking)} of {len(self)} clips are not in the table of events, the first is "
                f"{lacking[0]!r}; a clip without any event needs a row with its name alone."
            )
        events = tuple(tuple(table[file]) for file in self.files)
        tags = tuple(tuple(sorted({event.label for event in found})) for found in events)
        return replace(self, tags=tags, events=events)

    def split(self, fraction: float, seed: int = 0) -> tuple["Manifest", "Manifest"]:
        """Return the larger and the smaller part of a split, alike in their classes.

        Rare classes are dealt first (iterative stratification, Sechidis et al. 2011). A class of
        two clips or more is kept on both sides where its clips' other tags allow it; for that the
        smaller part may grow a little beyond `fraction`. The same seed gives the same split. Clips
        of one recording are not kept together: split such data by hand, with `take`.

        Args:
            fraction: of the clips that go to the second part, between 0 and 1.
            seed: of the order in which clips are dealt.

        >>> files = [f"{n}.wav" for n in range(20)]
        >>> tags = [("dog",)] * 18 + [("cat",)] * 2
        >>> manifest = Manifest(files, [Path(file) for file in files], tags, ("cat", "dog"))
        >>> [part.targets.sum(0).tolist() for part in manifest.split(0.1)]
        [[1.0, 16.0], [1.0, 2.0]]
        """
        if not 0 < fraction < 1:
            raise SettingError(f"fraction must lie between 0 and 1. Got {fraction!r}.")
        if len(self) < 2:
            raise DataError(f"Two clips or more can be split. Got {len(self)}.")
        second = _deal(self.targets.numpy().astype(bool), fraction, np.random.default_rng(seed))
        return self.take(np.flatnonzero(~second)), self.take(np.flatnonzero(second))


def clip_paths(*manifests: Manifest) -> dict[str, Path]:
    """Return the path of every clip by its name; one name for two recordings is an error.

    >>> clip_paths(Manifest(("a.wav",), (Path("in/a.wav"),), ((),), ()))["a.wav"].as_posix()
    'in/a.wav'
    """
    paths: dict[str, Path] = {}
    for manifest in manifests:
        for file, path in zip(manifest.files, manifest.paths, strict=True):
            if paths.setdefault(file, path) != path:
                raise DataError(
                    f"{file!r} names two recordings, {paths[file]} and {path}. Give them names of "
                    "their own, such as paths from a folder that holds both."
                )
    return paths


def _check_once(kind: str, names: Sequence[str]) -> None:
    if isinstance(names, str):
        raise SettingError(f"{kind}s are a list of names. Got the text {names!r}.")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"The {kind} {name!r} is given twice; give each {kind} once.")
        seen.add(name)


def _check_known(table: Path, tags: dict[str, tuple[str, ...]], known: Sequence[str]) -> None:
    """Raise if a class folder is none of the known labels; for tables, their reader did so."""
    for label in sorted(set().union(*tags.values()) - set(known)):
        near = get_close_matches(label, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise DataError(
            f"{table}: there is no label {label!r}{hint} Known: {', '.join(sorted(known))}."
        )


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _find(names: Iterable[str], folder: Path, table: str) -> tuple[dict[str, Path], list[str]]:
    """Return the path of every name that is found in the folder, and the names that are not."""
    exact = {_relative(path, folder): path for path in find_audio(folder)}
    by_stem: dict[str, list[Path]] = {}
    by_name: dict[str, list[Path]] = {}  # in folders below, for names that tell of no folder
    for name, path in exact.items():
        by_stem.setdefault(_stem(name), []).append(path)
        if "/" in name:
            by_name.setdefault(_stem(path.name), []).append(path)
    found, missing = {}, []
    for name in names:
        turned = _with_and_without_y(name)
        places = (
            [exact[name]] if name in exact else _as_it_stands(folder / name),
            [exact[other] for other in turned if other in exact],
            by_stem.get(_stem(name), []),
            [path for other in turned for path in by_stem.get(_stem(other), [])],
            [path for other in (name, *turned) for path in by_name.get(_stem(other), [])],
        )
        here = next(filter(None, places), [])
        if len(here) > 1:
            raise DataError(
                f"{table}: {name!r} may be any of {', '.join(_relative(p, folder) for p in here)} "
                f"in {folder}. Write the one that is meant into the table, or remove the others."
            )
        if here:
            found[name] = here[0]
        else:
            missing.append(name)
    return found, missing


def _as_it_stands(path: Path) -> list[Path]:
    """Return a path that is a file though not in the index: outside of it, hidden, or no audio."""
    try:
        return [path] if path.is_file() else []
    except (OSError, ValueError):  # no path at all, such as a sentence in the wrong column
        return []


def _with_and_without_y(name: str) -> list[str]:
    path = PurePosixPath(name)
    others = [f"Y{path.name}"] if path.name else []
    # A list may name a clip whose id itself begins with Y: both are looked for.
    others += [path.name[1:]] if path.name.startswith("Y") and path.stem != "Y" else []
    return [(path.parent / other).as_posix() for other in others]


def _stem(name: str) -> str:
    """Return a name without its audio suffix (.000 in 30.000 is none), in small letters."""
    path = PurePosixPath(name)
    if path.suffix.lower() in SUFFIXES:
        path = path.with_suffix("")
    # macOS writes é as two signs into file names, and tables have it as one.
    return unicodedata.normalize("NFC", path.as_posix()).casefold()


def _deal(
    targets: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
    fraction: float,
    rng: np.random.Generator,
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return which of the clips (clips, classes) go to the second part."""
    # Clips without tags are dealt too, as one more class.
    columns = np.column_stack([targets, ~targets.any(axis=1)])
    counts = columns.sum(axis=0)
    share = np.rint(counts * fraction)
    share = np.where(counts > 1, np.clip(share, 1, counts - 1), 0)
    # How many clips of each class, and how many in all, each part still wants.
    wanted = np.stack([counts - share, share]).astype(float)
    wanted_in_all = np.array([1 - fraction, fraction]) * len(columns)
    second = np.zeros(len(columns), bool)
    left = np.ones(len(columns), bool)
    while left.any():
        left_of = columns[left].sum(axis=0)
        rarest = int(np.argmin(np.where(left_of > 0, left_of, len(columns) + 1)))
        for row in rng.permutation(np.flatnonzero(left & columns[:, rarest])):
            first_part, second_part = zip(wanted[:, rarest], wanted_in_all, strict=True)
            part = int(second_part > first_part)
            second[row] = bool(part)
            left[row] = False
            wanted[part, columns[row]] -= 1
            wanted_in_all[part] -= 1
    if not second.any():  # no class has two clips
        second[rng.integers(len(second))] = True
    return second
