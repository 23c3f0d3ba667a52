"""Scores over time of each file <-> a folder of tables, one table a file.

Conventions: a curve has one score for every frame and class; frames lie end to end, each from one
edge to the next, in seconds. Any finite number will do for a score, a logit as well as a
probability: only their order matters. The folder is that of sed_scores_eval: the curve of `a.wav`
is `a.tsv`, tab separated, with the columns `onset`, `offset` and one for each class. Sub folders
are kept. Numbers are written so that they come back to the last bit.

A file is known by its name without suffix (see `earmark.formats.names`), so that `a.wav` in a
reference finds `a.tsv`. Two names that differ only in their suffix are refused.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from earmark.errors import DataError, SettingError
from earmark.files import atomic_write
from earmark.formats.names import stem_of, stems_of
from earmark.frames import FrameGrid

Reals = NDArray[np.float64]

_TIMES = ("onset", "offset")


@dataclass(frozen=True, eq=False)
class ScoreCurve:
    """The scores of every class in every frame of one file.

    Shape: `edges` (frames + 1,), in seconds and rising; `scores` (frames, classes).

    >>> ScoreCurve([0, 0.5, 1.0], [[0.9], [0.1]]).duration
    1.0
    """

    edges: Reals
    scores: Reals

    def __init__(self, edges: ArrayLike, scores: ArrayLike) -> None:
        edges, scores = np.array(edges, np.float64), np.array(scores, np.float64)
        if scores.ndim != 2 or not len(scores) or edges.shape != (len(scores) + 1,):
            raise SettingError(
                "A curve needs scores (frames, classes) of one frame or more, and edges "
                f"(frames + 1,). Got the shapes {scores.shape} and {edges.shape}."
            )
        if not np.isfinite(scores).all():
            row, column = np.argwhere(~np.isfinite(scores))[0]
            raise DataError(
                f"The score of frame {row} and class {column} is {scores[row, column]}. "
                "A score is a finite number."
            )
        if not (np.isfinite(edges).all() and (np.diff(edges) > 0).all() and edges[0] >= 0):
            raise DataError(
                "The edges of frames are seconds from 0 on, each after the one before. Got "
                f"{edges[:4].tolist()} and so on."
            )
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "scores", scores)

    @classmethod
    def from_frames(cls, scores: NDArray[Any], grid: FrameGrid, duration: float) -> "ScoreCurve":
        """Return the curve of frames on a grid, as `Detector.frame_probs` gives them.

        FrameGrid that begin at `duration` or later take no part; the last one left ends there.

        >>> ScoreCurve.from_frames(np.zeros((4, 1)), FrameGrid(12.5), 0.2).edges
        array([0.  , 0.08, 0.16, 0.2 ])
        """
        n_frames = min(len(scores), grid.count(duration))
        edges = [*(grid.onset(index) for index in range(n_frames)), duration]
        return cls(edges, scores[:n_frames])

    @property
    def duration(self) -> float:
        """The last edge, in seconds."""
        return float(self.edges[-1])


class ScoreCurves(Mapping[str, ScoreCurve]):
    """File name without suffix -> its curve; `labels` are the columns of every one.

    A name with its suffix finds its curve too.

    >>> curves = ScoreCurves(["dog"], {"a.wav": ScoreCurve([0, 1], [[0.9]])})
    >>> list(curves), curves["a.wav"].duration, "a" in curves
    (['a'], 1.0, True)
    """

    def __init__(self, labels: Sequence[str], curves: Mapping[str, ScoreCurve]) -> None:
        self.labels = tuple(labels)
        _check_labels(self.labels, "The curves")
        self._curves = {name: curves[full] for name, full in stems_of(curves).items()}
        for name, curve in self._curves.items():
            if curve.scores.shape[1] != len(self.labels):
                raise SettingError(
                    f"The curve of {name!r} has {curve.scores.shape[1]} columns for the "
                    f"{len(self.labels)} labels {', '.join(self.labels)}."
                )

    def __getitem__(self, name: str) -> ScoreCurve:
        return self._curves[stem_of(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._curves)

    def __len__(self) -> int:
        return len(self._curves)


def read_curves(folder: str | os.PathLike[str]) -> ScoreCurves:
    """Return the curves of all tables `*.tsv` in a folder and its sub folders.

    >>> import tempfile
    >>> curves = ScoreCurves(["dog"], {"a.wav": ScoreCurve([0, 1 / 3], [[0.1 + 0.2]])})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_curves(folder, curves)
    ...     read_curves(folder)["a.wav"].scores.item()
    0.30000000000000004
    """
    root = Path(folder)
    paths = sorted(path for path in root.rglob("*.tsv") if not path.name.startswith("."))
    if not paths:
        what = "has no tables *.tsv" if root.is_dir() else "is no folder"
        raise DataError(f"{root} {what}. The curves of a.wav are expected in {root / 'a.tsv'}.")
    labels: tuple[str, ...] = ()
    curves: dict[str, ScoreCurve] = {}
    for path in paths:
        own, curve = _read_curve(path)
        if curves and own != labels:
            raise DataError(
                f"{path}:1: the classes are {', '.join(own)}, but those of {paths[0]} are "
                f"{', '.join(labels)}. All tables must have the same, in the same order."
            )
        labels = own
        # of the whole name: without .tsv it is a name that may have a suffix of its own
        curves[path.relative_to(root).with_suffix("").as_posix()] = curve
    return ScoreCurves(labels, curves)


def write_curves(folder: str | os.PathLike[str], curves: ScoreCurves) -> None:
    r"""Write one table a file, each beside its place first and then moved into it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     curves = {"street/a.wav": ScoreCurve([0, 0.5], [[0.25]])}
    ...     write_curves(folder, ScoreCurves(["dog"], curves))
    ...     print(Path(folder, "street", "a.tsv").read_text().replace("\t", "|"))
    onset|offset|dog
    0.0|0.5|0.25
    """
    root = Path(folder)
    header = "\t".join([*_TIMES, *curves.labels])
    for name, curve in curves.items():
        place = PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts or not place.name:
            raise DataError(f"Cannot write the curve of {name!r}: its table would leave {root}.")
        rows = np.column_stack([curve.edges[:-1], curve.edges[1:], curve.scores]).tolist()
        lines = [header, *("\t".join(map(repr, row)) for row in rows), ""]
        path = root / f"{name}.tsv"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"Cannot make the folder {path.parent}: {error.strerror}.") from error
        atomic_write(path, "\n".join(lines).encode())


def _read_curve(path: Path) -> tuple[tuple[str, ...], ScoreCurve]:
    lines = _read_lines(path)
    columns = lines[0].split("\t") if lines else []
    labels = tuple(columns[2:])
    if tuple(columns[:2]) != _TIMES or not labels:
        raise DataError(
            f"{path}:1: the header must name onset, offset and one class or more, with tabs "
            f"between. Got {lines[0] if lines else ''!r}."
        )
    _check_labels(labels, f"{path}:1: the columns")
    rows = [line.split("\t") for line in lines[1:] if line]
    try:
        if any(len(row) != len(columns) for row in rows):
            raise ValueError  # told below, where the line is known
        values = list(map(float, chain.from_iterable(rows)))
        table = np.array(values).reshape(len(rows), len(columns))
    except ValueError:
        table = np.full((0, len(columns)), np.nan)
    if not (len(table) and np.isfinite(table).all() and _is_end_to_end(table)):
        raise _find_fault(path, lines, columns)
    return labels, ScoreCurve(np.append(table[:, 0], table[-1, 1]), table[:, 2:])


def _read_lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")  # line ends come as LF alone
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error.reason}). Save it as UTF-8.") from error
    except OSError as error:
        raise DataError(f"Cannot read the curve {path}: {error.strerror or error}.") from error
    return text.rstrip("\n").split("\n")


def _is_end_to_end(table: Reals) -> bool:
    onsets, offsets = table[:, 0], table[:, 1]
    return bool(onsets[0] >= 0 and (offsets > onsets).all() and (offsets[:-1] == onsets[1:]).all())


def _find_fault(path: Path, lines: list[str], columns: list[str]) -> DataError:
    """Return the sentence for the first line that is wrong; slow, since it is needed once."""
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
                "FrameGrid lie end to end."
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
