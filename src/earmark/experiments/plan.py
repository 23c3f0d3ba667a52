"""Read the plan of a comparison, a TOML file, and list its runs: configurations times seeds.

Conventions: a configuration is a name and the settings behind it; a run is one configuration with
one seed. Runs with the same seed share the initial weights (where the shapes agree), the order of
clips, dropout and augmentation, so configurations are compared in pairs, seed by seed. Paths are
relative to the data folder, by default the folder of the plan. The recordings of a table are in
the folder `audio` next to it.

    preset = "fast"         starting point of all settings; stands before any table
    encoder = "x.toml"      pretrained encoder of all configurations, relative to the plan
    [data]                  tables: train, valid and test; optional: train_events and valid_events;
                            audio, one folder with all recordings; negatives and valid_negatives,
                            folders of recordings without any class; labels, if the training table
                            does not contain all of them
    [decoding]              the rule from which thresholds are tuned, in the fields of
                            `earmark.inference.Rule`; by default that of each pooling function
    [settings.training]     settings of all configurations, in the sections of
                            `earmark.training.settings`
    [grid]                  seeds = 5; then one table per axis, with names and what they change:
    [grid.pooling]          linear = {model.pooling = "linear"} and so on
    [grid.structure]        single = {model.stages = []} and so on
    [configurations."x"]    seeds = 3, compare_with = "linear, single", settings = {...},
                            strong = true, data = {train = "more/weak.tsv"}, change = "...",
                            based_on = "y", teachers = "y", ensemble_of = "y", stored_as = "..."

A configuration of the grid is named after its values, as in 'linear, single', and is compared with
the configuration that has the first value of the last axis. `strong` trains on `train_events`: an
oracle. `data` replaces the training table, and `train_events` with it, or the negatives; "" is
none. Configurations with the same `change` are also tested jointly; the grid does this for the
values of its last axis.

A configuration may refer to configurations above it. `based_on` inherits everything from another
one, overrides some of it, and is compared with it; `teachers` adds self-training on pseudo-labels
from all runs of another one; `ensemble_of` trains nothing and averages the predictions of all runs
of another one. `stored_as` is the name in result files: a renamed configuration keeps its results.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from earmark.audio.decode import find_audio
from earmark.config import build, read_toml
from earmark.data.encoded import read_encoder
from earmark.errors import DataError, SettingError, choose
from earmark.inference.decoding import Rule
from earmark.inference.tuning import default_rule
from earmark.training.settings import Settings

NEGATIVES = ("negatives", "valid_negatives")  # folders; the other paths of a plan are tables
TABLES = ("data", "decoding", "preset", "encoder", "settings", "grid", "configurations")
SCORING = 3  # version of what `earmark.experiments.run` measures; raise it when that changes


@dataclass(frozen=True)
class DataConfig:
    """The tables of a plan, as paths relative to the data folder.

    >>> DataConfig("train.tsv", "valid.tsv", "test.tsv").audio
    ''
    """

    train: str
    valid: str
    test: str
    train_events: str = ""
    valid_events: str = ""
    audio: str = ""
    negatives: str = ""
    valid_negatives: str = ""
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Configuration:
    """What a configuration changes, how many runs it has, and what it is compared with.

    >>> Configuration(seeds=2, settings={"model": {"pooling": "exp"}}).n_runs
    2
    """

    seeds: int = 3
    compare_with: str = ""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    strong: bool = False
    data: Mapping[str, str] = field(default_factory=dict)
    change: str = ""
    based_on: str = ""
    teachers: str = ""
    ensemble_of: str = ""
    stored_as: str = ""

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise SettingError(f"seeds must be 1 or more. Got {self.seeds}.")
        for name in self.data:
            choose("table of a configuration", name, ("train", "train_events", *NEGATIVES))
        trains = self.settings or self.data or self.strong or self.teachers or self.based_on
        if self.ensemble_of and trains:
            raise SettingError(
                f"A configuration with ensemble_of = {self.ensemble_of!r} trains nothing: remove "
                "its settings, data, strong, teachers and based_on."
            )
        if self.strong and self.teachers:
            raise SettingError(
                "A configuration has either strong = true or teachers: frame-level targets come "
                f"from events or from teacher models. Got teachers = {self.teachers!r} with strong."
            )

    @property
    def n_runs(self) -> int:
        """The number of runs; an ensemble has one.

        >>> Configuration(ensemble_of="linear, single").n_runs
        1
        """
        return 1 if self.ensemble_of else self.seeds


class Pair(NamedTuple):
    """A configuration, the one it is compared with, and the change it shares with other pairs.

    >>> Pair("single", "hierarchical").change
    ''
    """

    baseline: str
    configuration: str
    change: str = ""


@dataclass(frozen=True)
class Run:
    """One configuration with one seed.

    Args:
        configuration: name in the plan.
        seed: of the training.
        settings: of the training.
        train: training table.
        train_events: training table with onsets and offsets, for an oracle.
        trained_on: fingerprint of settings and training data.
        fingerprint: of `trained_on` and how and on what the run is scored.
        teachers: the runs whose models are its teacher models.
        members: the runs that it averages, if it is an ensemble.
        stored_as: name of the configuration in result files, if it is another.
        negatives: folder of recordings without any class, to train on.
        valid_negatives: the same for validation.
        rule: from which thresholds are tuned, in the fields of `Rule`.

    >>> run = Run("single", 3, Settings(), Path("weak.tsv"), None, "", "")
    >>> run.key, run.depth
    ('single-seed3', 0)
    """

    configuration: str
    seed: int
    settings: Settings
    train: Path
    train_events: Path | None
    trained_on: str
    fingerprint: str
    teachers: tuple["Run", ...] = ()
    members: tuple["Run", ...] = ()
    stored_as: str = ""
    negatives: Path | None = None
    valid_negatives: Path | None = None
    rule: Mapping[str, float] = field(default_factory=lambda: default_rule("linear"))

    @property
    def depth(self) -> int:
        """The length of the longest chain of runs that must be finished before this one.

        >>> run = Run("single", 0, Settings(), Path("weak.tsv"), None, "", "")
        >>> run.depth, replace(run, teachers=(run,)).depth
        (0, 1)
        """
        return max((run.depth + 1 for run in (*self.teachers, *self.members)), default=0)

    @property
    def key(self) -> str:
        """The name of its files: letters, digits and hyphens only.

        >>> Run("linear, (5, 5)", 3, Settings(), Path("weak.tsv"), None, "", "").key
        'linear-5-5-seed3'
        """
        name = self.stored_as or self.configuration
        letters = "".join(letter if letter.isalnum() else " " for letter in name)
        return "-".join([*letters.split(), f"seed{self.seed}"])

    @property
    def folder(self) -> str:
        """The name of its training folder, which no other training shares.

        >>> Run("single", 0, Settings(), Path("weak.tsv"), None, "1234567890", "").folder
        'single-seed0-12345678'
        """
        return f"{self.key}-{self.trained_on[:8]}"

    def with_threads(self, threads: int) -> "Run":
        """Return the same run with a number of threads, unless its settings have one.

        >>> run = Run("single", 0, Settings(), Path("weak.tsv"), None, "", "")
        >>> run.with_threads(1).settings.training.threads
        1
        """
        own = self.settings.training
        training = replace(own, threads=own.threads or threads)
        return replace(
            self,
            settings=replace(self.settings, training=training),
            teachers=tuple(run.with_threads(threads) for run in self.teachers),
            members=tuple(run.with_threads(threads) for run in self.members),
        )


@dataclass(frozen=True)
class Plan:
    """A comparison: the tables, the configurations in order, and the settings they share.

    Args:
        source: the plan file.
        folder: the data folder.
        data: name of a table -> its path.
        configurations: by name.
        base: settings before a configuration changes them.
        audio: one folder with all recordings.
        labels: classes; by default those of the training table.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("train", "valid", "test"):
    ...     (folder / f"{name}.tsv").touch()
    >>> _ = (folder / "plan.toml").write_text('''
    ... data = {train = "train.tsv", valid = "valid.tsv", test = "test.tsv"}
    ... [configurations]
    ... single = {seeds = 2, settings = {model.stages = []}}
    ... hierarchical = {based_on = "single", settings = {model.stages = [5, 5, 5]}}
    ... ''')
    >>> plan = Plan.read(folder / "plan.toml")
    >>> [run.key for run in plan.runs()]
    ['single-seed0', 'hierarchical-seed0', 'single-seed1', 'hierarchical-seed1']
    >>> plan.pairs()
    [Pair(baseline='single', configuration='hierarchical', change='')]
    """

    source: Path
    folder: Path
    data: dict[str, Path]
    configurations: dict[str, Configuration]
    base: Settings
    audio: Path | None = None
    labels: tuple[str, ...] = ()
    decoding: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(
        cls, path: str | os.PathLike[str], data: str | os.PathLike[str] | None = None
    ) -> "Plan":
        """Read and check a plan; the module docstring describes the file.

        >>> Plan.read("nowhere.toml")
        Traceback (most recent call last):
            ...
        earmark.errors.SettingError: There is no settings file nowhere.toml.
        """
        source = Path(path)
        tree = read_toml(source)
        for name in tree:
            choose(f"table in {source}", name, TABLES)
        if "data" not in tree:
            raise SettingError(f"{source} needs a table [data] with train, valid and test.")
        tables = build(DataConfig, "data", tree["data"])
        for table in ("train", "valid", "test"):
            if not getattr(tables, table):
                raise SettingError(f"{source}: data.{table} is empty; it must name a table.")
        folder = source.parent if data is None else Path(data)
        paths = {x: folder / text for x, text in vars(tables).items() if text and x != "labels"}
        audio = paths.pop("audio", None)
        features = read_encoder(source.parent / tree["encoder"]) if "encoder" in tree else None
        preset = tree.get("preset", "fast" if features is None else "encoder")
        base = Settings.load(preset, features=features)
        configurations = _build_configurations(tree, source)  # checks that tables are tables
        base = base.changed(tree.get("settings", {}), str(source))
        changes = [tree.get("settings", {}), *(x.settings for x in configurations.values())]
        if any("seed" in sections.get("training", {}) for sections in changes):
            raise SettingError(
                f"{source} sets training.seed; remove it and set the number of runs instead, as "
                "in seeds = 5: their seeds are 0 to 4."
            )
        decoding = asdict(build(Rule, "decoding", tree["decoding"])) if "decoding" in tree else {}
        decoding = {name: decoding[name] for name in tree.get("decoding", {})}
        plan = cls(source, folder, paths, configurations, base, audio, tables.labels, decoding)
        plan._check()
        return plan

    def runs(self) -> list[Run]:
        """Return all runs: the first seed of every configuration, then the second, and so on."""
        most = max(configuration.n_runs for configuration in self.configurations.values())
        return [
            self._run(name, seed)
            for seed in range(most)
            for name, configuration in self.configurations.items()
            if seed < configuration.n_runs
        ]

    def audio_folder(self, table: Path) -> Path:
        """Return the folder of a table's recordings."""
        return self.audio or table.parent / "audio"

    def pairs(self) -> list[Pair]:
        """Return the configurations to compare."""
        return list_pairs(self.configurations)

    def _check(self) -> None:
        for table, path in self.data.items():
            _check_path(table, path, f"data.{table}")
        names_by_key: dict[str, str] = {}
        for name, configuration in self.configurations.items():
            if configuration.compare_with:
                others = [other for other in self.configurations if other != name]
                choose(
                    f"configuration to compare {name!r} with", configuration.compare_with, others
                )
            for table, text in configuration.data.items():
                if text:
                    _check_path(table, self.folder / text, f"configurations.{name}.data.{table}")
            if configuration.strong and "train_events" not in self._tables(configuration):
                raise SettingError(
                    f"The configuration {name!r} has strong = true; it needs data.train_events."
                )
            run = self._run(name, 0)
            for teacher in run.teachers:
                _check_teacher(teacher, run)
            other = names_by_key.setdefault(run.key, name)
            if other != name:
                raise SettingError(
                    f"The configurations {other!r} and {name!r} would share the file "
                    f"{run.key}.json; rename one."
                )

    def _run(self, name: str, seed: int) -> Run:
        configuration = self.configurations[name]
        stored_as = configuration.stored_as
        teachers = self._runs_of(configuration.teachers)
        members = self._runs_of(configuration.ensemble_of)
        if members:
            configuration = self.configurations[configuration.ensemble_of]
        settings = self.base.changed(configuration.settings, str(self.source))
        settings = settings.changed({"training": {"seed": seed}}, "the seed")
        tables = self._tables(configuration)
        events = tables["train_events"] if configuration.strong else None
        training = [tables["train"], tables["valid"], *([events] if events else [])]
        needed = [run.trained_on for run in teachers]
        folders = [tables.get(name) for name in NEGATIVES]
        if any(folders):
            needed.append(_fingerprint("negatives", *map(_list_audio, folders)))
        # "together" stands in the fingerprints of finished results and cannot change.
        needed += [f"together {run.trained_on}" for run in members]
        trained_on = _fingerprint(
            settings.deciding(), self.labels, *map(_digest, training), *needed
        )
        rule = self.decoding or default_rule(settings.model.pooling_name)
        scored = [tables[table] for table in ("test", "valid_events") if table in tables]
        return Run(
            name,
            seed,
            settings,
            tables["train"],
            events,
            trained_on,
            _fingerprint(trained_on, SCORING, dict(rule), *map(_digest, scored)),
            teachers,
            members,
            stored_as,
            folders[0],
            folders[1],
            rule,
        )

    def _runs_of(self, name: str) -> tuple[Run, ...]:
        """Return all runs of a configuration; none if `name` is empty."""
        if not name:
            return ()
        return tuple(self._run(name, seed) for seed in range(self.configurations[name].n_runs))

    def _tables(self, configuration: Configuration) -> dict[str, Path]:
        """Return the tables of a configuration: those of the plan, and its own in their place.

        The plan's `train_events` belong to the plan's training table, so another training table
        drops them.
        """
        own = configuration.data
        shared = {table: path for table, path in self.data.items() if table not in own}
        if "train" in own:
            shared.pop("train_events", None)
        return shared | {table: self.folder / path for table, path in own.items() if path}


def _check_teacher(teacher: Run, run: Run) -> None:
    own, other = run.settings, teacher.settings
    if (own.features.raw, own.model.time_pool) != (other.features.raw, other.model.time_pool):
        raise SettingError(
            f"The configuration {run.configuration!r} cannot use teacher models of "
            f"{teacher.configuration!r}: their features and frame rates must be the same."
        )


def _check_path(table: str, path: Path, name: str) -> None:
    if table in NEGATIVES:
        if not path.is_dir():
            raise DataError(f"There is no folder {path} ({name}); check the plan.")
    elif not path.is_file():
        raise DataError(f"There is no table {path} ({name}); check the plan and its data folder.")


def _fingerprint(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _list_audio(folder: Path | None) -> list[str]:
    """Return the names of the recordings in a folder."""
    return [str(x.relative_to(folder).as_posix()) for x in find_audio(folder)] if folder else []


def _digest(table: Path) -> str:
    return hashlib.sha256(table.read_bytes()).hexdigest()


def read_configurations(path: str | os.PathLike[str]) -> dict[str, Configuration]:
    """Return the configurations of a plan, in order; its tables need not exist.

    >>> read_configurations("nowhere.toml")
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: There is no settings file nowhere.toml.
    """
    source = Path(path)
    return _build_configurations(read_toml(source), source)


def list_pairs(configurations: Mapping[str, Configuration]) -> list[Pair]:
    """Return the configurations to compare.

    >>> list_pairs({"a": Configuration(), "b": Configuration(compare_with="a")})
    [Pair(baseline='a', configuration='b', change='')]
    """
    return [Pair(x.compare_with, name, x.change) for name, x in configurations.items()
            if x.compare_with]  # fmt: skip


def _build_configurations(tree: Mapping[str, Any], source: Path) -> dict[str, Configuration]:
    for table in ("grid", "configurations", "settings"):
        if not isinstance(tree.get(table, {}), Mapping):
            raise SettingError(f"{source}: [{table}] must be a table. Got {tree[table]!r}.")
    configurations = _build_grid(tree.get("grid", {}))
    for name, values in tree.get("configurations", {}).items():
        if name in configurations:
            raise SettingError(f"{source}: the configuration {name!r} is in the grid already.")
        configurations[name] = _build_configuration(name, values, configurations)
    if not configurations:
        raise SettingError(f"{source} needs a table [grid] or [configurations]; it has neither.")
    return configurations


def _build_configuration(
    name: str, values: Any, earlier: Mapping[str, Configuration]
) -> Configuration:
    """Return a configuration with everything it inherits from the one it is based on."""
    where = f"configurations.{name}"
    own = build(Configuration, where, values)
    trained = [x for x, other in earlier.items() if not other.ensemble_of]
    for key in ("based_on", "teachers", "ensemble_of"):
        if other := getattr(own, key):
            choose(f"trained configuration above {name!r} for {key}", other, trained)
    if own.ensemble_of and "seeds" in values:
        raise SettingError(f"{where}: an ensemble is one run; remove seeds = {own.seeds}.")
    if not own.based_on:
        return own
    parent = earlier[own.based_on]
    data = dict(parent.data)
    if "train" in own.data:
        data.pop("train_events", None)  # they belong to the parent's training table
    settings = {section: dict(changes) for section, changes in parent.settings.items()}
    for section, changes in own.settings.items():
        settings.setdefault(section, {}).update(changes)
    inherited = {key: getattr(parent, key) for key in ("seeds", "strong", "teachers")}
    merged = {"data": {**data, **own.data}, "settings": settings}
    tree = {"compare_with": own.based_on, **inherited, **values, **merged}
    return build(Configuration, where, tree)


def _build_grid(grid: Mapping[str, Any]) -> dict[str, Configuration]:
    """Return the configurations of a grid: every combination of the values of its axes."""
    if not grid:
        return {}
    seeds = grid.get("seeds", Configuration.seeds)
    axes = {name: values for name, values in grid.items() if name != "seeds"}
    if not axes:
        raise SettingError("A grid needs at least one axis, as in [grid.pooling]. Got only seeds.")
    for name, values in axes.items():
        if not isinstance(values, Mapping) or not values:
            raise SettingError(
                f"grid.{name} must be a table of names and the settings they change. "
                f"Got {values!r}."
            )
    configurations = {}
    for names in product(*axes.values()):
        settings: dict[str, dict[str, Any]] = {}
        for axis, name in zip(axes.values(), names, strict=True):
            for section, values in _iterate_sections(axis[name]):
                settings.setdefault(section, {}).update(values)
        first = (*names[:-1], next(iter(axes[list(axes)[-1]])))
        tree: dict[str, Any] = {"seeds": seeds, "settings": settings}
        if names != first:
            tree |= {"compare_with": ", ".join(first), "change": f"{names[-1]} minus {first[-1]}"}
        configurations[", ".join(names)] = build(Configuration, "grid", tree)
    return configurations


def _iterate_sections(changes: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the sections of a change such as {model = {pooling = "linear"}}."""
    if not isinstance(changes, Mapping):
        raise SettingError(
            f"A grid value must be a table such as {{model.stages = []}}. Got {changes!r}."
        )
    for section, values in changes.items():
        if not isinstance(values, Mapping):
            raise SettingError(
                f"A setting needs its section, as in model.stages. Got {section!r} alone."
            )
        yield section, values
