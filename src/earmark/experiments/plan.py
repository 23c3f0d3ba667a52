"""A plan in a TOML file -> the units of a comparison, each a training, or the mean of some.

Conventions: a cell is a name and the settings that make it; a unit is a cell and a seed. Units of
one seed share the start of their weights where the sizes agree, the order of clips, dropout and
augmentation, so cells are compared in pairs, seed by seed. Paths in a plan are seen from the folder
of the data (`--data`, or else that of the plan). A table's recordings are in `audio` beside it.

    [data]                  tables: train, valid and test; train_events and valid_events if wanted;
                            audio, if one folder has the recordings of all; labels, if the
                            training table has not all of them
    preset = "fast"         on top, before any table
    [settings.training]     what all cells share, in the sections of `earmark.training.settings`
    [grid]                  seeds = 5; then one table for each axis, of names and what they change:
    [grid.pooling]          linear = {model.pooling = "linear"} and so on
    [grid.structure]        single = {model.stages = []} and so on
    [cells."other"]         seeds = 3, against = "linear, single", settings = {...}, strong = true,
                            data = {train = "more/weak.tsv"}, change = "what it changes",
                            on = "cell", teachers = "cell", together = "cell"

A cell of the grid has the names of its values, as in 'linear, single', and is compared with the
cell that has the first value of the last axis. `strong` learns from `train_events`: the oracle. A
cell with `data` has a training table of its own, and `train_events` if it wants them. Cells of one
`change` are tested together as well; those of a grid are, by the values of its last axis.

A cell may build on those named before it. `on` takes over all that another has and changes it
further, and is compared with it; `teachers` learns frames from all runs of another, beside the
tags; `together` trains nothing, and hears all runs of another as one: their mean.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from earmark.config import build, read_toml
from earmark.errors import DataError, SettingError, choose
from earmark.inference.tuning.tune import START
from earmark.training.settings import Settings

SCORING = 3  # of what `earmark.experiments.run` measures; another one when that changes


@dataclass(frozen=True)
class DataConfig:
    """The tables, as paths from the folder of the data."""

    train: str
    valid: str
    test: str
    train_events: str = ""
    valid_events: str = ""
    audio: str = ""
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class CellConfig:
    """What a cell changes, how often it is run, and what it is compared with."""

    seeds: int = 3
    against: str = ""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    strong: bool = False
    data: Mapping[str, str] = field(default_factory=dict)
    change: str = ""
    on: str = ""
    teachers: str = ""
    together: str = ""

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise SettingError(f"seeds must be 1 or more. Got {self.seeds}.")
        for name in self.data:
            choose("table of a cell", name, ("train", "train_events"))
        trains = self.settings or self.data or self.strong or self.teachers or self.on
        if self.together and trains:
            raise SettingError(
                f"A cell that hears the runs of {self.together!r} together trains nothing: it has "
                "no settings, data, strong, teachers or on."
            )
        if self.strong and self.teachers:
            raise SettingError("A cell learns frames from events or from teachers, not both.")

    @property
    def n_runs(self) -> int:
        """How many units it has."""
        return 1 if self.together else self.seeds


class Pair(NamedTuple):
    """A cell, what it is compared with, and the change that it shares with other cells."""

    against: str
    cell: str
    change: str = ""


@dataclass(frozen=True)
class Unit:
    """One run of a cell; `key` names its result.

    `learned` tells what it learns from and how, `fingerprint` also what it is scored on. It needs
    the models of its teachers; or those of its members, whose mean it is.
    """

    cell: str
    seed: int
    settings: Settings
    train: Path
    train_events: Path | None
    learned: str
    fingerprint: str
    teachers: tuple["Unit", ...] = ()
    members: tuple["Unit", ...] = ()

    @property
    def turn(self) -> int:
        """How many trainings must come before it, one after the other."""
        return max((unit.turn + 1 for unit in (*self.teachers, *self.members)), default=0)

    @property
    def key(self) -> str:
        """The name of its files, without any sign that a file system minds.

        >>> Unit("linear, (5, 5)", 3, Settings(), Path("weak.tsv"), None, "", "").key
        'linear-5-5-seed3'
        """
        letters = "".join(sign if sign.isalnum() else " " for sign in self.cell)
        return "-".join([*letters.split(), f"seed{self.seed}"])

    @property
    def folder(self) -> str:
        """The name of the folder it is trained in: no two trainings share one."""
        return f"{self.key}-{self.learned[:8]}"

    def with_threads(self, threads: int) -> "Unit":
        """Return the same unit on so many threads, unless its settings name a number."""
        own = self.settings.training
        training = replace(own, threads=own.threads or threads)
        return replace(
            self,
            settings=replace(self.settings, training=training),
            teachers=tuple(unit.with_threads(threads) for unit in self.teachers),
            members=tuple(unit.with_threads(threads) for unit in self.members),
        )


@dataclass(frozen=True)
class Plan:
    """What is compared: tables, cells in their order, and what all of them share."""

    source: Path
    folder: Path
    data: dict[str, Path]
    cells: dict[str, CellConfig]
    base: Settings
    audio: Path | None = None
    labels: tuple[str, ...] = ()

    @classmethod
    def read(
        cls, path: str | os.PathLike[str], data: str | os.PathLike[str] | None = None
    ) -> "Plan":
        """Read a plan; see the top of this room."""
        source = Path(path)
        tree = read_toml(source)
        for name in tree:
            choose(f"table in {source}", name, ("data", "preset", "settings", "grid", "cells"))
        if "data" not in tree:
            raise SettingError(f"{source} needs a table [data] with train, valid and test.")
        tables = build(DataConfig, "data", tree["data"])
        for table in ("train", "valid", "test"):
            if not getattr(tables, table):
                raise SettingError(f"{source}: data.{table} is empty; it names a table.")
        folder = source.parent if data is None else Path(data)
        paths = {x: folder / text for x, text in vars(tables).items() if text and x != "labels"}
        audio = paths.pop("audio", None)
        base = Settings.load(tree.get("preset", "fast"))
        cells = _cells(tree, source)  # which looks whether tables are tables
        base = base.changed(tree.get("settings", {}), str(source))
        for changes in (tree.get("settings", {}), *(cell.settings for cell in cells.values())):
            if "seed" in changes.get("training", {}):
                raise SettingError(f"{source}: seeds are 0, 1 and so on; say how many: seeds = 5.")
        plan = cls(source, folder, paths, cells, base, audio, tables.labels)
        plan._check()
        return plan

    def units(self) -> list[Unit]:
        """All units: the first seed of every cell, then the second, and so on."""
        most = max(cell.n_runs for cell in self.cells.values())
        return [
            self._unit(name, seed)
            for seed in range(most)
            for name, cell in self.cells.items()
            if seed < cell.n_runs
        ]

    def audio_of(self, table: Path) -> Path:
        """Return the folder of a table's recordings."""
        return self.audio or table.parent / "audio"

    def pairs(self) -> list[Pair]:
        """The cells to compare."""
        return pairs_of(self.cells)

    def _check(self) -> None:
        for table, path in self.data.items():
            _check_table(path, f"data.{table}")
        keys: dict[str, str] = {}
        for name, cell in self.cells.items():
            if cell.against:
                others = [other for other in self.cells if other != name]
                choose(f"cell to compare {name!r} with", cell.against, others)
            for table in cell.data:
                _check_table(self.folder / cell.data[table], f"cells.{name}.data.{table}")
            if cell.strong and "train_events" not in self._tables(cell):
                raise SettingError(f"The cell {name!r} is strong; it needs data.train_events.")
            unit = self._unit(name, 0)
            for teacher in unit.teachers:
                _check_teacher(teacher, unit)
            key = unit.key
            if keys.setdefault(key, name) != name:
                raise SettingError(
                    f"The cells {keys[key]!r} and {name!r} would share files; rename one."
                )

    def _unit(self, name: str, seed: int) -> Unit:
        cell = self.cells[name]
        teachers, members = (self._runs(other) for other in (cell.teachers, cell.together))
        if members:
            cell = self.cells[cell.together]
        settings = self.base.changed(cell.settings, str(self.source))
        settings = settings.changed({"training": {"seed": seed}}, "the seed")
        tables = self._tables(cell)
        events = tables["train_events"] if cell.strong else None
        heard = [tables["train"], tables["valid"], *([events] if events else [])]
        needed = [unit.learned for unit in teachers]
        needed += [f"together {unit.learned}" for unit in members]
        learned = _fingerprint(settings.deciding(), self.labels, *map(_digest, heard), *needed)
        scored = [tables[name] for name in ("test", "valid_events") if name in tables]
        return Unit(
            name,
            seed,
            settings,
            tables["train"],
            events,
            learned,
            _fingerprint(learned, SCORING, dict(START), *map(_digest, scored)),
            teachers,
            members,
        )

    def _runs(self, name: str) -> tuple[Unit, ...]:
        """Return all units of a cell; none of no name."""
        if not name:
            return ()
        return tuple(self._unit(name, seed) for seed in range(self.cells[name].n_runs))

    def _tables(self, cell: CellConfig) -> dict[str, Path]:
        """Return the tables of a cell: its own, and those of the plan otherwise.

        With another training table, the events of the plan's are not those of the cell.
        """
        own = {table: self.folder / path for table, path in cell.data.items()}
        shared = dict(self.data)
        if "train" in own:
            shared.pop("train_events", None)
        return shared | own


def _check_teacher(teacher: Unit, unit: Unit) -> None:
    own, other = unit.settings, teacher.settings
    if (own.features.raw, own.model.time_pool) != (other.features.raw, other.model.time_pool):
        raise SettingError(
            f"The cell {unit.cell!r} cannot learn from {teacher.cell!r}: features and frames a "
            "second must be the same."
        )


def _check_table(path: Path, name: str) -> None:
    if not path.is_file():
        raise DataError(f"There is no table {path} ({name}); is --data right?")


def _fingerprint(*said: Any) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def _digest(table: Path) -> str:
    return hashlib.sha256(table.read_bytes()).hexdigest()


def read_cells(path: str | os.PathLike[str]) -> dict[str, CellConfig]:
    """Return the cells of a plan alone, in its order; its tables need not be there."""
    source = Path(path)
    return _cells(read_toml(source), source)


def _cells(tree: Mapping[str, Any], source: Path) -> dict[str, CellConfig]:
    for table in ("grid", "cells", "settings"):
        if not isinstance(tree.get(table, {}), Mapping):
            raise SettingError(f"{source}: [{table}] is a table. Got {tree[table]!r}.")
    cells = _grid_cells(tree.get("grid", {}))
    for name, values in tree.get("cells", {}).items():
        if name in cells:
            raise SettingError(f"{source}: the cell {name!r} is in the grid already.")
        cells[name] = _read_cell(name, values, cells)
    if not cells:
        raise SettingError(f"{source} has no cells; it needs a table [grid] or [cells].")
    return cells


def _read_cell(name: str, values: Any, before: Mapping[str, CellConfig]) -> CellConfig:
    """Return a cell, with all that it takes over from the one that it is on."""
    cell = build(CellConfig, f"cells.{name}", values)
    for key in ("on", "teachers", "together"):
        if other := getattr(cell, key):
            trained = [x for x, earlier in before.items() if not earlier.together]
            choose(f"trained cell named before {name!r} for {key}", other, trained)
    if cell.together and "seeds" in values:
        raise SettingError(f"cells.{name}: runs heard together are one; it has no seeds.")
    if not cell.on:
        return cell
    ground = before[cell.on]
    data = dict(ground.data)
    if "train" in cell.data:
        data.pop("train_events", None)  # they are of the other table
    settings = {section: dict(of) for section, of in ground.settings.items()}
    for section, of in cell.settings.items():
        settings.setdefault(section, {}).update(of)
    taken = {key: getattr(ground, key) for key in ("seeds", "strong", "teachers")}
    return build(
        CellConfig,
        f"cells.{name}",
        {
            "against": cell.on,
            **taken,
            **values,
            "data": {**data, **cell.data},
            "settings": settings,
        },
    )


def pairs_of(cells: Mapping[str, CellConfig]) -> list[Pair]:
    """Return the cells to compare.

    >>> pairs_of({"a": CellConfig(), "b": CellConfig(against="a")})
    [Pair(against='a', cell='b', change='')]
    """
    return [Pair(cell.against, name, cell.change) for name, cell in cells.items() if cell.against]


def _grid_cells(grid: Mapping[str, Any]) -> dict[str, CellConfig]:
    """Return the cells of a grid: every value of every axis with every other."""
    if not grid:
        return {}
    seeds = grid.get("seeds", CellConfig.seeds)
    axes = {name: values for name, values in grid.items() if name != "seeds"}
    if not axes:
        raise SettingError("A grid has an axis, as in [grid.pooling]; it has none but seeds.")
    for name, values in axes.items():
        if not isinstance(values, Mapping) or not values:
            raise SettingError(f"grid.{name} is a table of names and what they change.")
    cells = {}
    for names in product(*axes.values()):
        changes: dict[str, dict[str, Any]] = {}
        for axis, name in zip(axes.values(), names, strict=True):
            for section, values in _sections(axis[name]):
                changes.setdefault(section, {}).update(values)
        first = (*names[:-1], next(iter(axes[list(axes)[-1]])))
        against = "" if names == first else ", ".join(first)
        change = f"{names[-1]} less {first[-1]}" if against else ""
        told = {"seeds": seeds, "against": against, "settings": changes, "change": change}
        cells[", ".join(names)] = build(CellConfig, "grid", told)
    return cells


def _sections(changes: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the sections of a change such as {model = {pooling = "linear"}}."""
    if not isinstance(changes, Mapping):
        raise SettingError(f"A change is a table such as {{model.stages = []}}. Got {changes!r}.")
    for section, values in changes.items():
        if not isinstance(values, Mapping):
            raise SettingError(f"A setting has a section, as model.stages. Got {section!r}.")
        yield section, values
