"""Clips -> their raw features in one memory-mapped array, computed once.

Conventions: a store is a folder. Features are stored before normalisation, as float16: log-mels are
between -14 and 8, where its resolution is 0.008 or better. Of samples of a waveform, its error is
at most 1 / 2048 of their value, or 3e-8: for those below 1 / 32 it is smaller than that of 16-bit
audio. Clips are stored one after the other in the order given, so that the same clips give the same
bytes.

    frames.f16     (rows, features), little-endian; rows are the frames of all clips
    index.jsonl    the settings, then one line per clip: its first row, its source, checksums
    store.json     written last: counts, mean and std; without it, the store is unfinished
    lock           held by the process that builds the store
    *.spill        frames of a long clip, on their way

A build may be killed at any moment. The index line of a clip is written after its frames. A build
that resumes keeps a clip only if its line is complete and its frames match the checksum in the
line; it truncates the rest. A clip that cannot be read is skipped, with the reason in the index,
and tried again by the next build. If a source has changed, its features are computed again and
appended; the old frames stay in the file, unused. On a cluster, workers compute, and the process
that holds the lock writes: the bytes are the same, also if a worker ends in the middle of a clip.

This module has three parts: the files on disk, the store that reads them, and the build.
"""

import json
import os
import shutil
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from earmark.audio.decode import read_blocks
from earmark.data.encoded import check_known_to_others, feature_blocks, is_registered
from earmark.data.features import FeatureConfig
from earmark.errors import (
    UNUSABLE,
    AudioError,
    DataError,
    SettingError,
    choose,
    listed,
    refusing,
)
from earmark.files import atomic_write, locked
from earmark.runtime.cluster import Cluster, as_given
from earmark.runtime.processes import map_in_order

VERSION = 1
FRAMES, INDEX, SUMMARY = "frames.f16", "index.jsonl", "store.json"
PIECE = 1 << 18  # bytes of a file to read at a time
SPILL = 1 << 22  # bytes: frames of longer clips (over 9 minutes) go through a temporary file
STD_FLOOR = 1e-3  # for a mel band that never changes, so that one can divide by it

Paths = Mapping[str, str | os.PathLike[str]]
Frames16 = NDArray[np.float16]


@dataclass(frozen=True)
class Clip:
    """A line of the index: where the frames of a clip are, and what they were computed from.

    >>> Clip("a.wav", failed="a.wav is empty").n_frames
    0
    """

    file: str
    size: int = -1  # bytes of the source; -1 if it could not be accessed
    mtime_ns: int = 0
    source_sum: int = 0
    start: int = 0  # first row
    n_frames: int = 0
    frames_sum: int = 0
    failed: str | None = None  # the reason, if it cannot be read

    def check(self) -> None:
        """Raise `DataError` unless the values have their types, as a file may not have them."""
        numbers = (self.size, self.mtime_ns, self.source_sum, self.start, self.n_frames)
        are_numbers = all(type(number) is int for number in (*numbers, self.frames_sum))
        if not are_numbers or min(self.start, self.n_frames) < 0:
            raise DataError(f"The numbers of a clip must be integers of 0 or more. Got {self}.")
        if not isinstance(self.file, str) or not isinstance(self.failed, str | None):
            raise DataError(f"The names of a clip must be texts. Got {self}.")

    def is_of(self, path: Path) -> bool:
        """Whether the source is unchanged; a new date alone is no change."""
        try:
            stat = path.stat()
            touched = stat.st_mtime_ns != self.mtime_ns
            return stat.st_size == self.size and not (
                touched and _file_sum(path) != self.source_sum
            )
        except OSError:
            return False


class Excerpt(NamedTuple):
    """A clip that is a part of another one in the store, in frames.

    >>> Excerpt("long.wav", 500, 500).name
    'long.wav [500:1000]'
    """

    file: str
    start: int
    n_frames: int

    @property
    def name(self) -> str:
        """The name of the clip."""
        return f"{self.file} [{self.start}:{self.start + self.n_frames}]"


class Index(NamedTuple):
    """The content of an index up to the first incomplete line.

    >>> Index({"n_mels": 80}, [Clip("a.wav")], [20, 90], 0).clips[0].file
    'a.wav'
    """

    features: dict[str, Any]
    clips: list[Clip]
    ends: list[int]  # byte at which each line ends: the settings, then each clip
    checksum: int  # of the whole file


def _read_index(folder: Path) -> Index:
    """Return the content of the index; raise if its first line is damaged."""
    content = (folder / INDEX).read_bytes() if (folder / INDEX).exists() else b""
    first, *lines = content.splitlines(keepends=True) or [b""]
    features = _parse(folder, INDEX, first).get("features", {})
    if not isinstance(features, dict):
        raise _damaged(folder, f"the settings in {INDEX} are no table")
    clips, ends = [], [len(first)]
    for line in lines:
        try:
            clip = Clip(**json.loads(line if line.endswith(b"\n") else b""))
            clip.check()
        except UNUSABLE:
            break
        clips.append(clip)
        ends.append(ends[-1] + len(line))
    return Index(features, clips, ends, zlib.crc32(content))


def _read_summary(folder: Path) -> dict[str, Any]:
    """Return the summary of a finished store; raise if it is unfinished or damaged."""
    if not (folder / SUMMARY).exists():
        if (folder / INDEX).exists():
            raise DataError(f"{folder} is unfinished; call build_store, which resumes it.")
        raise DataError(f"{folder} is no feature store; call build_store, which creates it.")
    summary = _parse(folder, SUMMARY, (folder / SUMMARY).read_bytes())
    if summary.pop("sum", None) != zlib.crc32(_as_line(summary)):
        raise _damaged(folder, f"{SUMMARY} was changed")
    return summary


def _parse(folder: Path, file: str, content: bytes) -> dict[str, Any]:
    """Return the values of a JSON text, after a check of its version."""
    try:
        values = dict(json.loads(content))
        version = values["version"]
    except UNUSABLE as error:
        raise _damaged(folder, f"{file} is not valid JSON") from error
    if version != VERSION:
        raise DataError(
            f"{folder} is a store of version {version!r}; this Earmark reads version {VERSION}."
            " Delete the folder and build it again."
        )
    return values


def _as_line(values: Mapping[str, Any]) -> bytes:
    """Return values as a line of JSON."""
    return json.dumps(values).encode() + b"\n"


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


def _damaged(folder: Path, how: str) -> DataError:
    """Return the error for a damaged store."""
    return DataError(f"{folder} is damaged: {how}. Delete the folder and build it again.")


class FeatureStore:
    """The features of many clips by name, created by `build_store`, opened by `FeatureStore.open`.

    It may be used from several processes: pickled, it is opened again in the other process.

    >>> FeatureStore.open("none")
    Traceback (most recent call last):
        ...
    earmark.errors.DataError: none is no feature store; call build_store, which creates it.
    """

    def __init__(self, folder: Path, summary: Mapping[str, Any], clips: Mapping[str, Clip]) -> None:
        self.folder = folder
        self._excerpts: Mapping[str, Excerpt] = {}
        self.config = FeatureConfig(**summary["features"])
        self._clips = {name: clip for name, clip in clips.items() if clip.failed is None}
        self.failed = {name: clip.failed for name, clip in clips.items() if clip.failed}
        self._mean, self._std = summary["mean"], summary["std"]
        shape = (summary["n_rows"], self.config.n_features)
        # As a plain array: slicing a memmap object takes several times as long.
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
        """Open a finished store, and check that it fits the arguments.

        The frames themselves are not read; `check` does that.

        Args:
            folder: the folder of the store.
            config: the settings that the features must have, except normalisation.
            files: name -> path of clips that the store must contain, computed from these sources
                as they are now (or skipped as unreadable).
        """
        folder = Path(folder)
        with refusing(f"{folder} is damaged", DataError, "Delete the folder and build it again."):
            return cls._open(folder, config, files)

    @classmethod
    def _open(
        cls, folder: Path, config: FeatureConfig | None, files: Paths | None
    ) -> "FeatureStore":
        summary = _read_summary(folder)
        if config is not None:
            _check_settings(folder, summary["features"], config)
        index = _read_index(folder)
        if index.checksum != summary["index_sum"]:
            raise _damaged(folder, f"{INDEX} was changed after the store was finished")
        if index.ends[-1] != (folder / INDEX).stat().st_size:
            raise _damaged(folder, f"{INDEX} has a line that is not of a clip")
        n_features = FeatureConfig(**summary["features"]).n_features
        expected = 2 * summary["n_rows"] * n_features
        size = (folder / FRAMES).stat().st_size if (folder / FRAMES).exists() else 0
        if size != expected:
            raise _damaged(folder, f"{FRAMES} has {size} bytes instead of {expected}")
        clips = {clip.file: clip for clip in index.clips}
        if any(clip.start + clip.n_frames > summary["n_rows"] for clip in clips.values()):
            raise _damaged(folder, f"{INDEX} names frames that {FRAMES} does not have")
        if files is not None:
            _check_sources(folder, clips, files)
        return cls(folder, summary, clips)

    def with_excerpts(self, excerpts: Mapping[str, Excerpt]) -> "FeatureStore":
        """Return a store that has these parts of its clips as clips, too, by name.

        >>> import tempfile
        >>> from earmark.audio.encode import write_audio
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_audio(f"{folder}/a.wav", np.zeros(32000), 32000)
        ...     store = build_store(f"{folder}/features", {"a.wav": f"{folder}/a.wav"})
        ...     store.with_excerpts({"begin": Excerpt("a.wav", 0, 20)})["begin"].shape
        (20, 80)
        """
        store = FeatureStore.__new__(FeatureStore)  # shares the mapped frames
        vars(store).update(vars(self))
        store._excerpts = {**self._excerpts, **excerpts}
        store._clips = dict(self._clips)
        for name, (file, start, n_frames) in excerpts.items():
            choose("clip", file, self._clips, DataError, str(self.folder))
            whole = self._clips[file]
            assert 0 <= start <= start + n_frames <= whole.n_frames
            store._clips[name] = replace(
                whole, file=name, start=whole.start + start, n_frames=n_frames
            )
        return store

    def __repr__(self) -> str:
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"FeatureStore({str(self.folder)!r}, {len(self)} clips{failed})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_with_excerpts, (self.folder, self._excerpts)

    def __len__(self) -> int:
        return len(self._clips)

    def __contains__(self, name: object) -> bool:
        return name in self._clips

    def __getitem__(self, name: str) -> Frames16:
        """Return the raw features (frames, features) of a clip, a read-only view."""
        if name in self.failed:
            raise DataError(f"{name} was skipped: {self.failed[name]}")
        if name not in self._clips:
            choose("clip", name, self._clips, DataError, str(self.folder))
        clip = self._clips[name]
        return self._rows[clip.start : clip.start + clip.n_frames]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the clips, in the order of the store."""
        return tuple(self._clips)

    def statistics(
        self, names: Collection[str] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean and the standard deviation of each feature, both (features,).

        Those of a waveform are of all its samples, both (1,).

        Args:
            names: the clips to include, such as those to train on; all by default.
        """
        if names is None:
            return np.array(self._mean), np.array(self._std)
        if not names:
            raise SettingError("Statistics need one clip or more. Got no names.")
        clips = (self[name] for name in names)
        if self.config.kind == "waveform":
            clips = (clip.reshape(-1, 1) for clip in clips)
        return _statistics(clips)

    def check(self, names: Iterable[str] | None = None) -> None:
        """Read the frames of clips and raise if any do not match their checksum.

        Args:
            names: of the clips; all by default.
        """
        bad = [
            name
            for name in (self._clips if names is None else names)
            if name not in self._excerpts
            and zlib.crc32(self[name].data) != self._clips[name].frames_sum
        ]
        if bad:
            raise _damaged(self.folder, f"the frames of {listed(bad)} in {FRAMES} were changed")


def _open_with_excerpts(folder: Path, excerpts: Mapping[str, Excerpt]) -> FeatureStore:
    return FeatureStore.open(folder).with_excerpts(excerpts)


def _check_settings(folder: Path, found: Mapping[str, Any], config: FeatureConfig) -> None:
    """Raise if the features were computed with settings other than `config`."""
    wanted = _settings_of(config)
    differ = [
        f"{name} {found.get(name)} instead of {wanted.get(name)}"
        for name in {**wanted, **found}
        if found.get(name) != wanted.get(name)
    ]
    if differ:
        raise DataError(
            f"{folder} was computed with other settings: {', '.join(differ)}. Delete the folder to "
            "compute the features again, or choose another one."
        )


def _check_sources(folder: Path, clips: Mapping[str, Clip], files: Paths) -> None:
    """Raise if clips are not in the store, or were computed from other sources."""
    lacking = [name for name in files if name not in clips]
    kept = [name for name in files if name in clips and not clips[name].failed]
    changed = [name for name in kept if not clips[name].is_of(Path(files[name]))]
    for names, what in ((lacking, "does not contain"), (changed, "was computed before changes to")):
        if names:
            raise DataError(f"{folder} {what} {listed(names)}; call build_store to compute them.")


def _settings_of(config: FeatureConfig) -> dict[str, Any]:
    """Return the settings that raw features depend on: no normalisation, no place of a file."""
    settings = config.to_dict(places=False)
    return {name: value for name, value in settings.items() if name not in ("mean", "std")}


def _statistics(clips: Iterable[Frames16]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and std of each feature, in float64, 4096 frames at a time."""
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


def build_store(
    folder: str | os.PathLike[str],
    files: Paths,
    config: FeatureConfig | None = None,
    *,
    processes: int | None = None,
    scheduler: str | None = None,
    progress: Callable[[int, int], object] | None = None,
    wait: bool = False,
) -> FeatureStore:
    """Compute the features of clips that the store does not have yet, and open the store.

    Clips that are in the store already stay there, even if they are not in `files`.

    Args:
        folder: the folder of the store; created if it does not exist.
        files: name -> path of each clip, such as `earmark.data.manifest.clip_paths` returns.
        config: the features; normalisation is ignored.
        processes: number of processes, which does not change the bytes. By default one per core, if
            there are enough clips. A registered encoder runs in this process only.
        scheduler: of a Dask cluster that computes in place of processes: "local:4" or an address,
            as in `earmark.runtime.cluster`. Workers need `folder` and `files` under the same paths.
        progress: called after each clip with the number of clips done, and of all clips.
        wait: wait for another process that builds the same store, instead of raising.

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
        raise DataError(f"There are no clips to compute for the store {folder}; files is empty.")
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
            if is_registered(config):
                processes = 1  # other processes do not know what was registered in this one
            cluster = _on_cluster(folder, config, scheduler)
            if cluster is not None:  # a worker has another working folder
                folder, todo = folder.absolute(), [(name, path.absolute()) for name, path in todo]
            compute = partial(_compute, folder=folder, config=config)
            with closing(map_in_order(compute, todo, processes, cluster)) as computed:
                named = _named_as_given(computed, paths)
                for n_computed, _ in enumerate(_append(folder, known, rows, named), start=1):
                    report(done + n_computed, len(paths))
            _remove_spills(folder)  # of workers that ended
            if not (folder / SUMMARY).exists():
                _finish(folder)
    except OSError as error:
        raise DataError(
            f"Cannot write the store {folder}: {error.strerror or error}. Finished clips are kept; "
            "call build_store again to resume."
        ) from error
    return FeatureStore.open(folder, config)


def _on_cluster(
    folder: Path, config: FeatureConfig, scheduler: str | None
) -> Cluster[tuple[str, Path]] | None:
    """Return how clips are computed on a cluster."""
    if scheduler is None:
        return None
    check_known_to_others(config)
    shared = [folder] if config.encoder is None else [folder, config.encoder.file]
    return Cluster(
        scheduler,
        name=lambda job: str(job[1]),
        files=lambda job: (job[1], *shared),
        killed=lambda job, error: (Clip(job[0], failed=str(error)), b""),
        per_task=32,
    )


def _resume(folder: Path, config: FeatureConfig) -> tuple[dict[str, Clip], int]:
    """Return the finished clips and the row where they end, after truncating the rest."""
    _remove_spills(folder)
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
        FeatureStore.open(folder)  # raises if the store is damaged
        return {clip.file: clip for clip in index.clips}, sum(c.n_frames for c in index.clips)
    whole: dict[str, Clip] = {}
    rows, end = 0, index.ends[0]
    (folder / FRAMES).touch()
    with (folder / FRAMES).open("rb") as frames:
        for clip, end_of_line in zip(index.clips, index.ends[1:], strict=True):
            checksum = _next_sum(frames, 2 * clip.n_frames * config.n_features)
            if checksum != clip.frames_sum or clip.start != (0 if clip.failed else rows):
                break
            whole[clip.file] = clip
            rows, end = rows + clip.n_frames, end_of_line
    os.truncate(folder / INDEX, end)
    os.truncate(folder / FRAMES, 2 * rows * config.n_features)
    return whole, rows


def _compute(
    job: tuple[str, Path], folder: Path, config: FeatureConfig
) -> tuple[Clip, bytes | Path]:
    """Return the index line of a clip, without its first row, and its frames or their spill file.

    The spill file is new each time: a worker that was given up may still write to its own.
    """
    name, path = job
    clip, spill = Clip(name), folder / f"{uuid4().hex}.spill"
    try:
        stat = path.stat()
        clip = Clip(name, stat.st_size, stat.st_mtime_ns, _file_sum(path))
    except OSError:
        pass  # reading it below gives the reason
    held, n_frames, checksum = b"", 0, 0
    try:
        for piece in feature_blocks(read_blocks(path, config.sample_rate), config):
            frames = piece.numpy().astype("<f2").tobytes()
            held, n_frames = held + frames, n_frames + len(piece)
            checksum = zlib.crc32(frames, checksum)
            if len(held) >= SPILL:
                _write_more(spill, held)
                held = b""
    except AudioError as error:
        spill.unlink(missing_ok=True)
        return replace(clip, failed=str(error)), b""
    clip = replace(clip, n_frames=n_frames, frames_sum=checksum)
    if not spill.exists():
        return clip, held
    _write_more(spill, held)
    return clip, spill


def _named_as_given(
    computed: Iterable[tuple[Clip, bytes | Path]], paths: Mapping[str, Path]
) -> Iterator[tuple[Clip, bytes | Path]]:
    """Yield what was computed; the reason why a clip cannot be read has its path as given."""
    for clip, held in computed:
        failed = clip.failed and as_given(clip.failed, paths[clip.file])
        yield replace(clip, failed=failed), held


def _write_more(path: Path, content: bytes) -> None:
    """Append to a file."""
    with path.open("ab") as file:
        file.write(content)


def _append(
    folder: Path,
    known: Mapping[str, Clip],
    rows: int,
    computed: Iterable[tuple[Clip, bytes | Path]],
) -> Iterator[None]:
    """Append clips to a store whose frames end at `rows`, and yield after each."""
    with (folder / FRAMES).open("ab") as frames, (folder / INDEX).open("ab") as index:
        for clip, held in computed:
            if clip != known.get(clip.file):  # otherwise it failed again for the same reason
                (folder / SUMMARY).unlink(missing_ok=True)
                if isinstance(held, Path):
                    with held.open("rb") as file:
                        shutil.copyfileobj(file, frames)
                    held.unlink()
                else:
                    frames.write(held)
                frames.flush()
                line = clip if clip.failed else replace(clip, start=rows)
                index.write(_as_line(asdict(line)))
                index.flush()
                rows += clip.n_frames
            yield


def _finish(folder: Path) -> None:
    """Write the summary, after everything it covers is on disk."""
    for name in (FRAMES, INDEX):
        with (folder / name).open("rb") as file:
            os.fsync(file.fileno())
    index = _read_index(folder)
    clips = {clip.file: clip for clip in index.clips}
    failed = [clip.failed for clip in clips.values() if clip.failed]
    if len(failed) == len(clips):
        raise DataError(f"None of {len(clips)} clips can be read. The first error: {failed[0]}")
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
    with refusing(f"{folder} is damaged", DataError, "Delete the folder and build it again."):
        store = FeatureStore(folder, summary, clips)
    summary["mean"], summary["std"] = (values.tolist() for values in store.statistics(store.names))
    summary["sum"] = zlib.crc32(_as_line(summary))
    atomic_write(folder / SUMMARY, json.dumps(summary, indent=1).encode())


def _remove_spills(folder: Path) -> None:
    """Remove the temporary files of clips that were not finished."""
    for spill in folder.glob("*.spill"):
        spill.unlink(missing_ok=True)
