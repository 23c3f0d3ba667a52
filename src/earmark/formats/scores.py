"""Frame-level scores of many files <-> a folder with one file of scores for each.

Conventions: by default the folder is that of sed_scores_eval: the scores of `a.wav` are in `a.tsv`,
tab separated, with the columns `onset`, `offset` and one per class. `a.parquet` has the same
columns; `a.npz` has the arrays `scores` (frames, classes), `edges` (frames + 1,), `labels` and,
which the others have no place for, `clip_scores` (frames, classes). Sub folders are kept. Any
finite number is a score, a logit as well as a probability. Numbers are written so that they come
back to the last bit, and scores on a frame grid can be decoded again. `FrameScores` are in
`earmark.frames`.

A file is known by its name without suffix (see `earmark.formats.names`), so that `a.wav` in a
reference finds `a.tsv`. Two names that differ only in their suffix are refused.
"""

import io
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import ArrayLike

from earmark.errors import DataError, SettingError, choose, listed
from earmark.files import atomic_write, make_folder
from earmark.formats.names import stem_of, stems_of
from earmark.formats.parquet import parquet_columns, read_parquet_arrays, write_parquet
from earmark.formats.registry import format_of_suffix
from earmark.frames import Floats, FrameGrid, FrameScores, Reals

_TIMES = ("onset", "offset")
_ZIP = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError)


class ScoreTable(Mapping[str, FrameScores]):
    """File name without suffix -> its frame-level scores; all have the same `labels`.

    A name with its suffix finds its scores too.

    Args:
        labels: the classes.
        scores: file name -> its scores, or a pair (edges, scores) of arrays.

    >>> table = ScoreTable(["dog"], {"a.wav": ([0, 0.5, 1], [[0.9], [0.2]])})
    >>> list(table), table["a.wav"].duration, "a" in table
    (['a'], 1.0, True)
    """

    def __init__(
        self,
        labels: Sequence[str],
        scores: Mapping[str, FrameScores | tuple[ArrayLike, ArrayLike]],
    ) -> None:
        self.labels = tuple(labels)
        _check_labels(self.labels, "The scores")
        self._scores = {n: self._as_scores(scores[full]) for n, full in stems_of(scores).items()}
        for name, own in self._scores.items():
            if own.labels != self.labels:
                raise SettingError(
                    f"The scores of {name!r} have the labels {', '.join(own.labels)}; all files "
                    f"must have {', '.join(self.labels)}."
                )

    def _as_scores(self, given: FrameScores | tuple[ArrayLike, ArrayLike]) -> FrameScores:
        if isinstance(given, FrameScores):
            return given
        edges, scores = given
        return FrameScores(scores, self.labels, edges=edges)

    def __repr__(self) -> str:
        n_classes = len(self.labels)
        return f"ScoreTable({len(self)} files, {n_classes} classes: {listed(self.labels)})"

    def __getitem__(self, name: str) -> FrameScores:
        return self._scores[stem_of(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._scores)

    def __len__(self) -> int:
        return len(self._scores)


def read_scores(folder: str | os.PathLike[str]) -> ScoreTable:
    """Return the scores of all files in a folder and its sub folders, in any of `SCORE_FORMATS`.

    >>> import tempfile
    >>> scores = {"a.wav": FrameScores([[0.1 + 0.2]], ["dog"], edges=[0, 1 / 3])}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_scores(folder, ScoreTable(["dog"], scores))
    ...     read_scores(folder)["a.wav"].scores.item()
    0.30000000000000004
    """
    root = Path(folder)
    readers = {own.suffix: own.read for own in SCORE_FORMATS.values()}
    paths = sorted(
        path
        for path in root.rglob("*")
        if path.suffix in readers and not path.name.startswith(".") and path.is_file()
    )
    if not paths:
        what = f"has no tables *{', *'.join(readers)}" if root.is_dir() else "is no folder"
        raise DataError(f"{root} {what}. The scores of a.wav are expected in {root / 'a.tsv'}.")
    labels: tuple[str, ...] = ()
    scores: dict[str, FrameScores] = {}
    for path in paths:
        own = readers[path.suffix](path)
        if scores and own.labels != labels:
            raise DataError(
                f"{path}:1: the classes are {', '.join(own.labels)}, but those of {paths[0]} are "
                f"{', '.join(labels)}. All tables must have the same, in the same order."
            )
        labels = own.labels
        # of the whole name: without .tsv it is a name that may have a suffix of its own
        name = path.relative_to(root).with_suffix("").as_posix()
        if name in scores:
            raise DataError(f"{path}: the scores of {name!r} are there in two formats; keep one.")
        scores[name] = own
    return ScoreTable(labels, scores)


def has_scores(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder holds frame-level scores, and not one file of events per recording.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_scores(folder, ScoreTable(["dog"], {"a.wav": ([0, 1], [[0.5]])}))
    ...     has_scores(folder)
    True
    """
    path = next((path for path in Path(folder).rglob("*") if _is_events(path)), None)
    return path is None


def _is_events(path: Path) -> bool:
    """Return whether a file has a suffix of events; a table has scores if onsets come first."""
    if path.name.startswith(".") or not path.is_file() or format_of_suffix(path.name) is None:
        return False
    if path.suffix.lower() == ".parquet":
        return parquet_columns(path)[:2] != [*_TIMES]
    if path.suffix.lower() != ".tsv":
        return True
    with path.open("rb") as file:
        return not file.read(16).removeprefix(b"\xef\xbb\xbf").startswith(b"onset\toffset")


def write_scores(folder: str | os.PathLike[str], scores: ScoreTable, format: str = "tsv") -> None:
    r"""Write one file of scores for each; it appears when it is complete.

    Args:
        folder: made if it is missing.
        scores: of the files.
        format: a key of `SCORE_FORMATS`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     scores = {"street/a.wav": FrameScores([[0.25]], ["dog"], edges=[0, 0.5])}
    ...     write_scores(folder, ScoreTable(["dog"], scores))
    ...     print(Path(folder, "street", "a.tsv").read_text().replace("\t", "|"))
    onset|offset|dog
    0.0|0.5|0.25
    """
    root = Path(folder)
    own_format = SCORE_FORMATS[choose("score format", format, SCORE_FORMATS)]
    for name, own in scores.items():
        place = PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts or not place.name:
            raise DataError(f"Cannot write the scores of {name!r}: its table would leave {root}.")
        path = root / f"{name}{own_format.suffix}"
        make_folder(path.parent)
        atomic_write(path, own_format.encode(own))


def _table_bytes(scores: FrameScores) -> bytes:
    header = "\t".join([*_TIMES, *scores.labels])
    rows = np.column_stack([scores.edges[:-1], scores.edges[1:], scores.scores]).tolist()
    return "\n".join([header, *("\t".join(map(repr, row)) for row in rows), ""]).encode()


def _npz_bytes(scores: FrameScores) -> bytes:
    arrays = {"scores": scores.scores, "edges": scores.edges, "labels": np.array(scores.labels)}
    if scores.clip_scores is not None:
        arrays["clip_scores"] = scores.clip_scores
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _read_npz(path: Path) -> FrameScores:
    try:
        with path.open("rb") as stream:
            file = np.load(stream, allow_pickle=False)
            if isinstance(file, np.ndarray):
                raise ValueError("it is one array")
            arrays = {name: file[name] for name in file.files}
        labels = tuple(str(label) for label in arrays["labels"])
        scores, edges = arrays["scores"], np.asarray(arrays["edges"], np.float64)
        if scores.dtype.kind != "f" or edges.ndim != 1 or len(edges) < 2:
            raise ValueError("scores must be floats, with one edge more than frames")
        _check_labels(labels, f"{path}: the labels")
        return _on_grid(scores, labels, edges, arrays.get("clip_scores"))
    except KeyError as error:
        raise DataError(f"{path} has no array {error}; it needs scores, edges, labels.") from error
    except (OSError, ValueError, TypeError, EOFError, MemoryError, SyntaxError, *_ZIP) as error:
        raise DataError(f"Cannot read the scores {path}: {str(error)[:200]}.") from error


def _parquet_bytes(scores: FrameScores) -> bytes:
    both = sorted({*_TIMES} & {*scores.labels})
    if both:
        raise DataError(f"Parquet has one column {both[0]!r}: a class cannot have that name.")
    columns = dict(zip(_TIMES, (scores.edges[:-1], scores.edges[1:]), strict=True))
    columns |= zip(scores.labels, np.ascontiguousarray(scores.scores.T), strict=True)
    return write_parquet(columns)


def _read_parquet(path: Path) -> FrameScores:
    columns = read_parquet_arrays(path)
    labels = tuple(columns)[2:]
    if tuple(columns)[:2] != _TIMES or not labels or not len(columns["onset"]):
        raise DataError(
            f"{path}: the columns must be onset, offset and classes, of one row or more."
        )
    _check_labels(labels, f"{path}: the columns")
    onsets, offsets = (columns[name].astype(np.float64) for name in _TIMES)
    if not (onsets[1:] == offsets[:-1]).all():
        raise DataError(f"{path}: frames must lie end to end, each from the offset before.")
    scores = np.column_stack([columns[label] for label in labels])
    return _on_grid(scores, labels, np.append(onsets, offsets[-1]))


def _on_grid(
    scores: Floats, labels: tuple[str, ...], edges: Reals, clip_scores: Floats | None = None
) -> FrameScores:
    """Return scores on the grid that their edges lie on, if there is one."""
    grid = _find_grid(edges[:-1], float(edges[-1]))
    if grid is not None and len(scores) == len(edges) - 1:
        end = float(edges[-1])
        return FrameScores(scores, labels, grid, duration=end, clip_scores=clip_scores)
    return FrameScores(scores, labels, edges=edges, clip_scores=clip_scores)


def _read_table(path: Path) -> FrameScores:
    lines = _read_lines(path)
    columns = lines[0].split("\t") if lines else []
    labels = tuple(columns[2:])
    if tuple(columns[:2]) != _TIMES or not labels:
        raise DataError(
            f"{path}:1: the header must name onset, offset and one class or more, separated "
            f"by tabs. Got {lines[0] if lines else ''!r}."
        )
    _check_labels(labels, f"{path}:1: the columns")
    rows = [line.split("\t") for line in lines[1:] if line]
    try:
        if any(len(row) != len(columns) for row in rows):
            raise ValueError  # reported below, where the line is known
        values = list(map(float, chain.from_iterable(rows)))
        table = np.array(values).reshape(len(rows), len(columns))
    except ValueError:
        table = np.full((0, len(columns)), np.nan)
    if not (len(table) and np.isfinite(table).all() and _is_end_to_end(table)):
        raise _find_fault(path, lines, columns)
    return _on_grid(table[:, 2:], labels, np.append(table[:, 0], table[-1, 1]))


def _find_grid(onsets: Reals, end: float) -> FrameGrid | None:
    """Return the frame grid that frames lie on to the last bit, or None if there is none.

    Tables that Earmark wrote lie on one, so that their scores can be decoded and tuned again.
    """
    hop = Fraction(float(onsets[1] if len(onsets) > 1 else end)).limit_denominator(100_000)
    if onsets[0] != 0 or hop <= 0:
        return None
    grid = FrameGrid(1 / hop)
    n_frames = len(onsets)
    whole = end <= grid.onset(n_frames) and grid.count(end) == n_frames
    return grid if whole and (onsets == grid.onsets(n_frames)).all() else None


def _read_lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")  # line ends come as LF alone
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error.reason}). Save it as UTF-8.") from error
    except OSError as error:
        raise DataError(f"Cannot read the scores {path}: {error.strerror or error}.") from error
    return text.rstrip("\n").split("\n")


def _is_end_to_end(table: Reals) -> bool:
    onsets, offsets = table[:, 0], table[:, 1]
    return bool(onsets[0] >= 0 and (offsets > onsets).all() and (offsets[:-1] == onsets[1:]).all())


def _find_fault(path: Path, lines: list[str], columns: list[str]) -> DataError:
    """Return the error for the first line that is wrong; slow, since it is needed once."""
    end = 0.0
    is_first = True
    for number, line in enumerate(lines[1:], start=2):
        if not line:
            continue
        where, fields = f"{path}:{number}", line.split("\t")
        if len(fields) != len(columns):
            return DataError(f"{where}: {len(fields)} fields where {len(columns)} belong.")
        for column, field in zip(columns, fields, strict=True):
            if not _is_finite(field):
                return DataError(f"{where}: the {column} {field!r} is not a finite number.")
        onset, offset = float(fields[0]), float(fields[1])
        if not 0 <= onset < offset:
            return DataError(
                f"{where}: a frame cannot last from {onset} to {offset} s. It begins at 0 s or "
                "later, and ends after that."
            )
        if onset != end and not is_first:
            return DataError(
                f"{where}: the frame begins at {onset} s, but the one before ends at {end} s. "
                "Frames lie end to end."
            )
        end, is_first = offset, False
    return DataError(f"{path}: there are no frames below the header.")


def _is_finite(field: str) -> bool:
    try:
        return bool(np.isfinite(float(field)))
    except ValueError:
        return False


def _check_labels(labels: tuple[str, ...], where: str) -> None:
    wrong = [label for label in labels if not label or label != label.strip() or "\n" in label]
    if not labels or wrong or len(set(labels)) < len(labels):
        raise DataError(
            f"{where} must name each class once, without space around. Got {list(labels)}."
        )


@dataclass(frozen=True)
class ScoreFormat:
    """How the frame-level scores of a file are stored.

    >>> SCORE_FORMATS["npz"].suffix
    '.npz'
    """

    suffix: str
    encode: Callable[[FrameScores], bytes]
    read: Callable[[Path], FrameScores]


SCORE_FORMATS: dict[str, ScoreFormat] = {
    "tsv": ScoreFormat(".tsv", _table_bytes, _read_table),
    "npz": ScoreFormat(".npz", _npz_bytes, _read_npz),
    "parquet": ScoreFormat(".parquet", _parquet_bytes, _read_parquet),
}
