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
                            `earmark.training.settings`; see below for those with another preset
    [grid]                  seeds = 5; then one table per axis, with names and what they change:
    [grid.pooling]          linear = {model.pooling = "linear"} and so on
    [grid.structure]        single = {model.stages = []} and so on
    [configurations."x"]    seeds = 3, compare_with = "linear, single", settings = {...},
                            strong = true, data = {train = "more/weak.tsv"}, change = "...",
                            based_on = "y", teachers = "y", ensemble_of = "y", stored_as = "...",
                            preset = "wang"

A configuration of the grid is named after its values, as in 'linear, single', and is compared with
the configuration that has the first value of the last axis. `strong` trains on `train_events`: an
oracle. `data` replaces the training table, and `train_events` with it, or the negatives; "" is
none. Configurations with the same `change` are also tested jointly; the grid does this for the
values of its last axis.

A configuration may refer to configurations above it. `based_on` inherits everything from another
one, overrides some of it, and is compared with it; `teachers` adds self-training on pseudo-labels
from all runs of another one; `ensemble_of` trains nothing and averages the predictions of all runs
of another one. `stored_as` is the name in result files: a renamed configuration keeps its results.

A configuration with a `preset` of its own starts from that in place of the plan's. The settings of
all configurations apply on top of either, and then its own; but [settings.model] is that of the
network of the plan's preset, and does not apply to another network. So [settings.training] should
contain what all systems of a comparison are to have in common, such as the number of epochs and the
precision, and not what belongs to one of them, such as its learning rate.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from earmark.audio.decode import find_audio
from earmark.config import build, read_toml
from earmark.data.encoded import read_encoder
from earmark.data.features import FeatureConfig
from earmark.errors import DataError, SettingError, choose
from earmark.experiments.configurations import (
    NEGATIVES,
    Configuration,
    Pair,
    build_configurations,
    list_pairs,
)
from earmark.inference.decoding import Rule
from earmark.inference.tuning import default_rule, has_decision
from earmark.inference.tuning.decisions import VERSION
from earmark.training.settings import Settings, parse_override

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
        base: settings before a configuration changes them: the preset and what is common to all.
        audio: one folder with all recordings.
        labels: classes; by default those of the training table.
        decoding: from which thresholds are tuned, in the fields of `Rule`.
        common: the settings of all configurations, for those with a preset of their own.
        features: of the encoder, if the plan has one.
        overrides: of the settings of every configuration, such as "training.max_epochs=1"; last.

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
    common: Mapping[str, Any] = field(default_factory=dict)
    features: FeatureConfig | None = None
    overrides: tuple[str, ...] = ()

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        data: str | os.PathLike[str] | None = None,
        overrides: Iterable[str] = (),
        seeds: int | None = None,
    ) -> "Plan":
        """Read and check a plan; the module docstring describes the file.

        Args:
            path: the plan file.
            data: the folder of its tables; by default that of the plan.
            overrides: of the settings of every configuration, such as "training.max_epochs=1".
            seeds: the largest number of runs of a configuration; by default those of the plan.

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
        configurations = build_configurations(tree, source)  # checks that tables are tables
        if seeds is not None:
            configurations = {
                name: replace(x, seeds=min(x.seeds, seeds)) for name, x in configurations.items()
            }
        common, overrides = tree.get("settings", {}), tuple(overrides)
        base = base.changed(common, str(source))
        changes = [common, *(x.settings for x in configurations.values())]
        changes += map(parse_override, overrides)
        if any("seed" in sections.get("training", {}) for sections in changes):
            raise SettingError(
                f"{source} or an override sets training.seed; remove it and set the number of runs "
                "instead, as in seeds = 5: their seeds are 0 to 4."
            )
        decoding = asdict(build(Rule, "decoding", tree["decoding"])) if "decoding" in tree else {}
        decoding = {name: decoding[name] for name in tree.get("decoding", {})}
        plan = cls(
            source, folder, paths, configurations, base, audio, tables.labels, decoding, common,
            features, overrides,
        )  # fmt: skip
        plan._check()
        return plan

    def absolute(self) -> "Plan":
        """Return the same plan with absolute paths, for processes with another working folder."""
        return replace(
            self,
            source=self.source.absolute(),
            folder=self.folder.absolute(),
            data={name: path.absolute() for name, path in self.data.items()},
            audio=self.audio and self.audio.absolute(),
        )

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

    def settings_of(self, name: str) -> Settings:
        """Return the settings of a configuration; those of its runs have other seeds."""
        configuration = self.configurations[choose("configuration", name, self.configurations)]
        where, settings = str(self.source), self.base
        if configuration.preset:
            settings = Settings.load(configuration.preset, features=self.features)
            other = settings.model.network != self.base.model.network
            common = {x: own for x, own in self.common.items() if not (other and x == "model")}
            settings = settings.changed(common, where)
        settings = settings.changed(configuration.settings, where)
        for override in self.overrides:
            settings = settings.changed(parse_override(override), f"override {override!r}")
        return settings

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
        settings = self.settings_of(configuration.ensemble_of or name)
        if members:
            configuration = self.configurations[configuration.ensemble_of]
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
        # A network with a decision stage of its own is scored with it, too.
        stage = [{"published": VERSION}] if has_decision(settings.model) else []
        return Run(
            name,
            seed,
            settings,
            tables["train"],
            events,
            trained_on,
            _fingerprint(trained_on, SCORING, dict(rule), *stage, *map(_digest, scored)),
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
