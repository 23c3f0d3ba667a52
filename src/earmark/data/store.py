"""Clips -> their raw log-mels in one memory-mapped array, computed once.

Conventions: a store is a folder. Log-mels are kept before normalisation, as float16: they lie
between -14 and 8, where its steps are 0.008 at most. Clips stand in the order in which they were
given, whole, one after the other, so that the same clips give the same bytes.

    frames.f16     (rows, mels), little-endian; rows are the frames of all clips
    index.jsonl    the settings, then a line for each clip: its place, its source, checksums
    store.json     written last: counts, mean and std; without it, the store is not finished
    lock           held by the process that builds

A build may be killed at any moment. The line of a clip is written after its frames, and a build
that goes on takes a clip for finished only if its line is whole and its frames have the checksum
that the line tells; the rest is cut off. A clip that cannot be read is set aside with the reason,
and tried again by the next build. A source that has changed is computed anew, at the end; the
frames of before stay where they were, unused.
"""

import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from earmark.audio.decode import read_blocks
from earmark.data.features import FeatureConfig, log_mel_blocks
from earmark.errors import AudioError, DataError, SettingError
from earmark.files import atomic_write, locked
from earmark.runtime.processes import map_in_order

VERSION = 1
FRAMES, INDEX, SUMMARY = "frames.f16", "index.jsonl", "store.json"
PIECE = 1 << 18  # bytes of a file at a time

Paths = Mapping[str, str | os.PathLike[str]]
SPILL = 1 << 22  # bytes: a longer clip, of 9 minutes or more, goes through a file of its own
STD_FLOOR = 1e-3  # of a mel that never changes, so that it can be divided by

Frames16 = NDArray[np.float16]


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
            return stat.st_size == self.size and not (
                touched and _file_sum(path) != self.source_sum
            )
        except OSError:
            return False


class Index(NamedTuple):
    """What an index holds up to the first line that is not whole."""

    features: dict[str, Any]
    clips: list[Clip]
    ends: list[int]  # in bytes: of the settings, then of each clip
    checksum: int  # of the whole file


class FeatureStore:
    """The log-mels of many clips, by name; made by `build_store`, opened by `FeatureStore.open`.

    It may be used from several processes; sent to another one, it is opened there again.
    """

    def __init__(self, folder: Path, summary: Mapping[str, Any], clips: Mapping[str, Clip]) -> None:
        self.folder = folder
        self.config = FeatureConfig(**summary["features"])
        self._clips = {name: clip for name, clip in clips.items() if clip.failed is None}
        self.failed = {name: clip.failed for name, clip in clips.items() if clip.failed}
        self._mean, self._std = summary["mean"], summary["std"]
        shape = (summary["n_rows"], self.config.n_mels)
        # A plain view: a slice of a memmap object costs several times as much.
        self._rows: Frames16 = np.asarray(
            np.memmap(folder / FRAMES, dtype="<f2", mode="r", shape=shape)
        )

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        config: FeatureConfig | None = None,
        files: Paths | None = None,
    ) -> "FeatureStore":
        """Open a finished store, and check that it is what is asked for.

        The frames themselves are not read; `check` does that.

        Args:
            folder: of the store.
            config: the settings that the features must have, normalisation aside.
            files: name -> path of clips that must be there, computed from these sources as they
                are now (or set aside).
        """
        folder = Path(folder)
        summary = _read_summary(folder)
        if config is not None:
            _check_settings(folder, summary["features"], config)
        index = _read_index(folder)
        if index.checksum != summary["index_sum"]:
            raise _damaged(folder, f"{INDEX} is not as it was when the store was finished")
        expected = 2 * summary["n_rows"] * summary["features"]["n_mels"]
        size = (folder / FRAMES).stat().st_size if (folder / FRAMES).exists() else 0
        if size != expected:
            raise _damaged(folder, f"{FRAMES} has {size} bytes instead of {expected}")
        clips = {clip.file: clip for clip in index.clips}
        if files is not None:
            _check_sources(folder, clips, files)
        return cls(folder, summary, clips)

    def __reduce__(self) -> tuple[Any, ...]:
        return FeatureStore.open, (self.folder,)

    def __len__(self) -> int:
        return len(self._clips)

    def __contains__(self, name: object) -> bool:
        return name in self._clips

    def __getitem__(self, name: str) -> Frames16:
        """Return the raw log-mel (frames, mels) of a clip, a view that cannot be written to."""
        clip = self._clips.get(name)
        if clip is None:
            if name in self.failed:
                raise DataError(f"{name} was set aside: {self.failed[name]}")
            near = get_close_matches(str(name), self._clips, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "; build the store with it."
            raise DataError(f"{self.folder} holds no clip {name!r}{hint}")
        return self._rows[clip.start : clip.start + clip.n_frames]

    @property
    def names(self) -> tuple[str, ...]:
        """The clips, in the order of the store."""
        return tuple(self._clips)

    def statistics(
        self, names: Collection[str] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean and the standard deviation of each mel, (mels,) both.

        Args:
            names: the clips to look at, such as those to train on; all, if None.
        """
        if names is None:
            return np.array(self._mean), np.array(self._std)
        if not names:
            raise SettingError("The statistics of no clips at all are asked for; give some names.")
        return _statistics(self[name] for name in names)

    def check(self) -> None:
        """Read all the frames and raise if any are not those that were computed."""
        bad = [n for n, clip in self._clips.items() if zlib.crc32(self[n].data) != clip.frames_sum]
        if bad:
            raise _damaged(self.folder, f"the frames of {_listed(bad)} in {FRAMES} have changed")


def build_store(
    folder: str | os.PathLike[str],
    files: Paths,
    config: FeatureConfig | None = None,
    *,
    processes: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    wait: bool = False,
) -> FeatureStore:
    """Compute the log-mels of clips, or those that are still lacking, and open the store.

    What a store already has stays in it, also clips that are not asked for now.

    Args:
        folder: of the store; made if it is not there.
        files: name -> path of each clip (`earmark.data.manifest.clip_paths` gives that of manifests).
        config: of the features; normalisation is left aside.
        processes: how many to compute in; the bytes are the same. None takes a processor each,
            where there is enough to do.
        progress: called with the number of clips done, and of all, after each clip.
        wait: for another process that is building the same store, instead of raising.

    >>> import tempfile
    >>> from earmark.audio.encode import write_audio
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_audio(f"{folder}/a.wav", np.zeros(32000), 32000)
    ...     store = build_store(f"{folder}/features", {"a.wav": f"{folder}/a.wav"})
    ...     store["a.wav"].shape, store.names, store.failed
    ((50, 80), ('a.wav',), {})
    """
    folder, config = Path(folder), (config or FeatureConfig()).raw
    if not files:
        raise DataError(f"There are no clips to compute features of for {folder}.")
    paths = {name: Path(path) for name, path in files.items()}
    report = progress or (lambda done, total: None)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, wait):
            known, rows = _resume(folder, config)
            todo = [
                (name, path)
                for name, path in paths.items()
                if name not in known or known[name].failed or not known[name].is_of(path)
            ]
            done = len(paths) - len(todo)
            report(done, len(paths))
            compute = partial(_compute, folder=folder, config=config)
            with closing(map_in_order(compute, todo, processes)) as computed:
                for n_computed, _ in enumerate(_append(folder, known, rows, computed), start=1):
                    report(done + n_computed, len(paths))
            if not (folder / SUMMARY).exists():
                _finish(folder)
    except OSError as error:
        raise DataError(
            f"Cannot write the store {folder}: {error.strerror or error}. What is done stays; "
            "build it again to go on."
        ) from error
    return FeatureStore.open(folder, config)


def _compute(job: tuple[str, Path], folder: Path, config: FeatureConfig) -> tuple[Clip, bytes]:
    """Return the line of a clip, its start open, and its frames, or the rest of spilled ones."""
    name, path = job
    clip, spill = Clip(name), _spill_of(folder, name)
    try:
        stat = path.stat()
        clip = Clip(name, stat.st_size, stat.st_mtime_ns, _file_sum(path))
    except OSError:
        pass  # what is wrong with it is told when it is read
    held, n_frames, checksum = b"", 0, 0
    try:
        for piece in log_mel_blocks(read_blocks(path, config.sample_rate), config):
            frames = piece.numpy().astype("<f2").tobytes()
            held, n_frames = held + frames, n_frames + len(piece)
            checksum = zlib.crc32(frames, checksum)
            if len(held) >= SPILL:
                with spill.open("ab") as file:
                    file.write(held)
                held = b""
    except AudioError as error:
        spill.unlink(missing_ok=True)
        return replace(clip, failed=str(error)), b""
    return replace(clip, n_frames=n_frames, frames_sum=checksum), held


def _append(
    folder: Path,
    known: Mapping[str, Clip],
    rows: int,
    computed: Iterable[tuple[Clip, bytes]],
) -> Iterator[None]:
    """Append clips to a store whose frames end at `rows`, a step for each."""
    with (folder / FRAMES).open("ab") as frames, (folder / INDEX).open("ab") as index:
        for clip, held in computed:
            if clip != known.get(clip.file):  # else it failed again, and for the same reason
                (folder / SUMMARY).unlink(missing_ok=True)
                spill = _spill_of(folder, clip.file)
                if spill.exists():
                    with spill.open("rb") as file:
                        shutil.copyfileobj(file, frames)
                    spill.unlink()
                frames.write(held)
                frames.flush()
                line = clip if clip.failed else replace(clip, start=rows)
                index.write(_as_line(asdict(line)))
                index.flush()
                rows += clip.n_frames
            yield


def _resume(folder: Path, config: FeatureConfig) -> tuple[dict[str, Clip], int]:
    """Return the finished clips and where their frames end; what is not finished is cut off."""
    for spill in folder.glob("*.spill"):
        spill.unlink()
    if not (folder / INDEX).exists():
        if (folder / SUMMARY).exists() or (folder / FRAMES).exists():
            raise _damaged(folder, f"{INDEX} is missing")
        atomic_write(
            folder / INDEX,
            _as_line({"version": VERSION, "features": _settings_of(config)}),
        )
    index = _read_index(folder)
    _check_settings(folder, index.features, config)
    if (folder / SUMMARY).exists():
        FeatureStore.open(folder)  # raises if it is damaged
        return {clip.file: clip for clip in index.clips}, sum(c.n_frames for c in index.clips)
    whole: dict[str, Clip] = {}
    rows, end = 0, index.ends[0]
    (folder / FRAMES).touch()
    with (folder / FRAMES).open("rb") as frames:
        for clip, end_of_line in zip(index.clips, index.ends[1:], strict=True):
            checksum = _next_sum(frames, 2 * clip.n_frames * config.n_mels)
            if checksum != clip.frames_sum or clip.start != (0 if clip.failed else rows):
                break
            whole[clip.file] = clip
            rows, end = rows + clip.n_frames, end_of_line
    os.truncate(folder / INDEX, end)
    os.truncate(folder / FRAMES, 2 * rows * config.n_mels)
    return whole, rows


def _finish(folder: Path) -> None:
    """Write the summary, after all that it tells of is on the disk."""
    for name in (FRAMES, INDEX):
        with (folder / name).open("rb") as file:
            os.fsync(file.fileno())
    index = _read_index(folder)
    clips = {clip.file: clip for clip in index.clips}
    failed = [clip.failed for clip in clips.values() if clip.failed]
    if len(failed) == len(clips):
        raise DataError(f"None of {len(clips)} clips can be read. The first: {failed[0]}")
    summary: dict[str, Any] = {
        "version": VERSION,
        "features": index.features,
        "n_clips": len(clips) - len(failed),
        "n_failed": len(failed),
        "n_rows": sum(clip.n_frames for clip in index.clips),
        "index_sum": index.checksum,
        "mean": [],
        "std": [],
    }
    store = FeatureStore(folder, summary, clips)
    summary["mean"], summary["std"] = (values.tolist() for values in store.statistics(store.names))
    summary["sum"] = zlib.crc32(_as_line(summary))
    atomic_write(folder / SUMMARY, json.dumps(summary, indent=1).encode())


def _statistics(clips: Iterable[Frames16]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and std of each mel, in float64, a piece of a clip at a time."""
    count, total, squares = 0, np.float64(0), np.float64(0)
    for clip in clips:
        for first in range(0, len(clip), 4096):
            frames = clip[first : first + 4096].astype(np.float64)
            count += len(frames)
            total = total + frames.sum(axis=0)
            squares = squares + np.einsum("fm,fm->m", frames, frames)
    mean = np.asarray(total / count)
    variance = np.maximum(squares / count - mean**2, 0.0)
    return mean, np.maximum(np.sqrt(variance), STD_FLOOR)


def _read_index(folder: Path) -> Index:
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


def _read_summary(folder: Path) -> dict[str, Any]:
    """Return the summary of a finished store; raise if it is not finished, or damaged."""
    if not (folder / SUMMARY).exists():
        what = "is not finished" if (folder / INDEX).exists() else "is no feature store"
        raise DataError(f"{folder} {what}; call build_store, which goes on where it was left.")
    summary = _parse(folder, SUMMARY, (folder / SUMMARY).read_bytes())
    if summary.pop("sum", None) != zlib.crc32(_as_line(summary)):
        raise _damaged(folder, f"{SUMMARY} was changed")
    return summary


def _parse(folder: Path, file: str, content: bytes) -> dict[str, Any]:
    """Return the values of a text in JSON that tells its version, if it is ours."""
    try:
        values = dict(json.loads(content))
        version = values["version"]
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(folder, f"{file} is not as it was written") from error
    if version != VERSION:
        raise DataError(
            f"{folder} is a store of version {version!r}, and this Earmark reads version {VERSION}."
            " Delete the folder and build it again."
        )
    return values


def _check_settings(folder: Path, found: Mapping[str, Any], config: FeatureConfig) -> None:
    """Raise if features were computed with other settings than those of `config`."""
    wanted = _settings_of(config)
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


def _check_sources(folder: Path, clips: Mapping[str, Clip], files: Paths) -> None:
    """Raise if clips are lacking, or were computed from other sources than these."""
    lacking = [name for name in files if name not in clips]
    kept = [name for name in files if name in clips and not clips[name].failed]
    changed = [name for name in kept if not clips[name].is_of(Path(files[name]))]
    for names, what in ((lacking, "does not hold"), (changed, "was computed before changes to")):
        if names:
            raise DataError(f"{folder} {what} {_listed(names)}; call build_store to compute them.")


def _settings_of(config: FeatureConfig) -> dict[str, Any]:
    """Return the settings that features depend on: all but normalisation."""
    return {name: value for name, value in asdict(config).items() if name not in ("mean", "std")}


def _damaged(folder: Path, how: str) -> DataError:
    """Return the error that says what to do with a store that cannot be trusted."""
    return DataError(f"{folder} is damaged: {how}. Delete the folder and build it again.")


def _listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + rest


def _as_line(values: Mapping[str, Any]) -> bytes:
    """Return values as a line of JSON."""
    return json.dumps(values).encode() + b"\n"


def _spill_of(folder: Path, name: str) -> Path:
    """Return the file through which the frames of a long clip go."""
    return folder / f"{hashlib.sha256(os.fsencode(name)).hexdigest()[:32]}.spill"


def _file_sum(path: Path) -> int:
    """Return the checksum of a file."""
    with path.open("rb") as file:
        return _next_sum(file, path.stat().st_size)


def _next_sum(file: BinaryIO, n_bytes: int) -> int:
    """Return the checksum of the next bytes of a file."""
    checksum = 0
    while n_bytes > 0 and (piece := file.read(min(n_bytes, PIECE))):
        checksum, n_bytes = zlib.crc32(piece, checksum), n_bytes - len(piece)
    return checksum
