"""The files of a feature store <-> what they tell: its settings, its clips, its state.

Conventions: what they are is told in `earmark.store`. Nothing here reads or writes frames, but for
their checksums (CRC-32).
"""

import hashlib
import json
import os
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from earmark.errors import DataError
from earmark.features import FeatureConfig

VERSION = 1
FRAMES, INDEX, SUMMARY, LOCK = "frames.f16", "index.jsonl", "store.json", "lock"
PIECE = 1 << 18  # bytes of a file at a time

Paths = Mapping[str, str | os.PathLike[str]]


@dataclass(frozen=True)
class Clip:
    """A line of the index: where the frames of a clip are, and what they were computed from."""

    file: str
    size: int = -1  # bytes of the source; -1 if it could not be looked at
    mtime_ns: int = 0
    source_sum: int = 0
    start: int = 0  # first row
    n_frames: int = 0
    frames_sum: int = 0
    failed: str | None = None  # why it cannot be read

    def is_of(self, path: Path) -> bool:
        """Whether the source is what it was; one that was only copied or touched is."""
        try:
            stat = path.stat()
            touched = stat.st_mtime_ns != self.mtime_ns
            return stat.st_size == self.size and not (touched and file_sum(path) != self.source_sum)
        except OSError:
            return False


class Index(NamedTuple):
    """What an index holds up to the first line that is not whole."""

    features: dict[str, Any]
    clips: list[Clip]
    ends: list[int]  # in bytes: of the settings, then of each clip
    checksum: int  # of the whole file


def read_index(folder: Path) -> Index:
    """Return what the index of a store holds; raise if it does not begin as one."""
    content = (folder / INDEX).read_bytes() if (folder / INDEX).exists() else b""
    first, *lines = content.splitlines(keepends=True) or [b""]
    features = _parse(folder, INDEX, first).get("features", {})
    clips, ends = [], [len(first)]
    for line in lines:
        try:
            clip = Clip(**json.loads(line if line.endswith(b"\n") else b""))
        except (ValueError, TypeError):
            break
        clips.append(clip)
        ends.append(ends[-1] + len(line))
    return Index(features, clips, ends, zlib.crc32(content))


def read_summary(folder: Path) -> dict[str, Any]:
    """Return the summary of a finished store; raise if it is not finished, or damaged."""
    if not (folder / SUMMARY).exists():
        what = "is not finished" if (folder / INDEX).exists() else "is no feature store"
        raise DataError(f"{folder} {what}; call build_store, which goes on where it was left.")
    summary = _parse(folder, SUMMARY, (folder / SUMMARY).read_bytes())
    if summary.pop("sum", None) != zlib.crc32(as_line(summary)):
        raise damaged(folder, f"{SUMMARY} was changed")
    return summary


def _parse(folder: Path, file: str, content: bytes) -> dict[str, Any]:
    """Return the values of a text in JSON that tells its version, if it is ours."""
    try:
        values = dict(json.loads(content))
        version = values["version"]
    except (ValueError, TypeError, KeyError) as error:
        raise damaged(folder, f"{file} is not as it was written") from error
    if version != VERSION:
        raise DataError(
            f"{folder} is a store of version {version!r}, and this Earmark reads version {VERSION}."
            " Delete the folder and build it again."
        )
    return values


def check_settings(folder: Path, found: Mapping[str, Any], config: FeatureConfig) -> None:
    """Raise if features were computed with other settings than those of `config`."""
    wanted = settings_of(config)
    differ = [
        f"{name} {found.get(name)} instead of {wanted.get(name)}"
        for name in {**wanted, **found}
        if found.get(name) != wanted.get(name)
    ]
    if differ:
        raise DataError(
            f"{folder} holds features of other settings: {', '.join(differ)}. Delete the folder to "
            "compute them anew, or give another one."
        )


def check_sources(folder: Path, clips: Mapping[str, Clip], files: Paths) -> None:
    """Raise if clips are lacking, or were computed from other sources than these."""
    lacking = [name for name in files if name not in clips]
    kept = [name for name in files if name in clips and not clips[name].failed]
    changed = [name for name in kept if not clips[name].is_of(Path(files[name]))]
    for names, what in ((lacking, "does not hold"), (changed, "was computed before changes to")):
        if names:
            raise DataError(f"{folder} {what} {listed(names)}; call build_store to compute them.")


def settings_of(config: FeatureConfig) -> dict[str, Any]:
    """Return the settings that features depend on: all but normalisation."""
    return {name: value for name, value in asdict(config).items() if name not in ("mean", "std")}


def damaged(folder: Path, how: str) -> DataError:
    """Return the error that says what to do with a store that cannot be trusted."""
    return DataError(f"{folder} is damaged: {how}. Delete the folder and build it again.")


def listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + rest


def as_line(values: Mapping[str, Any]) -> bytes:
    """Return values as a line of JSON."""
    return json.dumps(values).encode() + b"\n"


def spill_of(folder: Path, name: str) -> Path:
    """Return the file through which the frames of a long clip go."""
    return folder / f"{hashlib.sha256(os.fsencode(name)).hexdigest()[:32]}.spill"


def file_sum(path: Path) -> int:
    """Return the checksum of a file."""
    with path.open("rb") as file:
        return next_sum(file, path.stat().st_size)


def next_sum(file: BinaryIO, n_bytes: int) -> int:
    """Return the checksum of the next bytes of a file."""
    checksum = 0
    while n_bytes > 0 and (piece := file.read(min(n_bytes, PIECE))):
        checksum, n_bytes = zlib.crc32(piece, checksum), n_bytes - len(piece)
    return checksum


@contextmanager
def locked(folder: Path, wait: bool = False, doing: str = "building the store") -> Iterator[None]:
    """Hold the lock of a folder; the system frees it when the process ends, however it ends.

    If another process holds it, wait for that one to end, or raise.
    """
    with (folder / LOCK).open("a+") as file:
        try:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            raise DataError(f"Another process is {doing} {folder}; wait for it to end.") from error
        yield
