"""Read the plan of a comparison, a TOML file, and list its runs: configurations times seeds.

Conventions: a configuration is a name and the settings behind it; a run is one configuration with
one seed. Runs with the same seed share the initial weights (where the shapes agree), the order of
clips, dropout and augmentation, so configurations are compared in pairs, seed by seed. Paths are
relative to the data folder, by default the folder of the plan. The recordings of a table are in
the folder `audio` next to it.

    preset = "fast"         starting point of all settings; stands before any table
    encoder = "x.toml"      pretrained encoder of all configurations, relative to the plan
    tuning = "clip"         the tuning (one of `TUNINGS`) whose verdicts end the output: the choice
                            belongs in the plan, before the test scores are known
    hold_test = true        show validation scores only, until the test scores are asked for
    least_auc = 0.8         no verdict on configurations whose tags are learned worse, by mean AUC
    based_on = "x.toml"     another plan, relative to this one, of which this one changes some;
                            with [grid] or [configurations] here, those of the other are left out
    [data]                  tables: train, valid and test; optional: train_events and valid_events;
                            audio, one folder with all recordings; negatives and valid_negatives,
                            folders of recordings without any class; labels, if the training table
                            does not contain all of them; folds = 5, see below
    [decoding]              the rule from which thresholds are tuned, in the fields of
                            `earmark.inference.Rule`; by default that of each pooling function
    [settings.training]     settings of all configurations, in the sections of
                            `earmark.training.settings`; see below for those with another preset
    [grid]                  seeds = 5; then one table per axis, with names and what they change:
    [grid.pooling]          linear = {model.pooling = "linear"} and so on
    [grid.structure]        single = {model.stages = []} and so on
    [configurations."x"]    seeds = 3, compare_with = "linear, single", settings = {...},
                            strong = true, data = {train = "more/weak.tsv"}, change = "...",
                            based_on = "y", teachers = "y", ensemble_of = "y",
                            first_member_of = "y", stored_as = "...", preset = "wang"

A value of the grid may also change tables, as in {data.train = "noisy/weak.tsv"}.
A configuration of the grid is named after its values, as in 'linear, single', and is compared with
the configuration that has the first value of the last axis. `strong` trains on `train_events`: an
oracle. `data` replaces the training table, and `train_events` with it, or the negatives; "" is
none. Configurations with the same `change` are also tested jointly; the grid does this for the
values of its last axis.

A configuration may refer to configurations above it. `based_on` inherits everything from another
one, overrides some of it, and is compared with it; `teachers` adds self-training on pseudo-labels
from all runs of another one; `ensemble_of` trains nothing and averages the predictions of all runs
of another one; `first_member_of` trains nothing either: of a model that averages several
checkpoints (`training.members`), each run is the first alone, the best or the last one.
`stored_as` is the name in result files: a renamed configuration keeps its results.

With folds = n, a path with {fold} in it is another one per seed: the run of seed s uses fold
s % n, counted from 0. With n seeds, every clip that some fold tests is tested once.

A configuration with a `preset` of its own starts from that in place of the plan's. The settings of
all configurations apply on top of either, and then its own; but [settings.model] is that of the
network of the plan's preset, and does not apply to another network, nor [settings.features] to
another kind of features: the settings of log-mels are not those of waveforms. So
[settings.training] should contain what all systems of a comparison are to have in common, such as
the number of epochs and the precision, and not what belongs to one of them, such as its learning
rate.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from earmark.audio.decode import find_audio
from earmark.config import build
from earmark.data.encoded import read_encoder
from earmark.data.features import FeatureConfig
from earmark.errors import SettingError, choose
from earmark.experiments.configurations import (
    Configuration,
    Pair,
    build_configurations,
    list_pairs,
)
from earmark.experiments.plan_file import (
    NEGATIVES,
    check_path,
    fold_path,
    read_data,
    read_least_auc,
    read_plan_file,
)
from earmark.inference.decoding import Rule
from earmark.inference.tuning import default_rule, has_decision
from earmark.inference.tuning.decisions import VERSION
from earmark.training.settings import Settings, parse_override

TUNINGS = {  # as in `earmark.experiments.run` -> title
    "clip_and_frame": "clip-level and frame-level thresholds per class, tuned on tags",
    "clip": "clip-level thresholds per class, tuned on tags; default frame-level thresholds",
    "shared_clip": "one clip-level threshold for all classes, tuned on tags; default frame-level "
    "thresholds",
    "strong": "all thresholds tuned on onsets and offsets of the validation clips",
    "published": "the decision stage that each network was published with",
}
# Version of what `earmark.experiments.run` measures; raise it when a score changes. A further score
# is an optional metric (`METRICS`), and earlier results stay valid without it.
SCORING = 3


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
        first_member: whether it has the first network alone of the one run in `members`.
        stored_as: name of the configuration in result files, if it is another.
        negatives: folder of recordings without any class, to train on.
        valid_negatives: the same for validation.
        rule: from which thresholds are tuned, in the fields of `Rule`.
        fold: of the tables.

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
    fold: int = 0
    first_member: bool = False

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
        data: name of a table -> its path, which may contain {fold}.
        configurations: by name.
        base: settings before a configuration changes them: the preset and what is common to all.
        audio: one folder with all recordings.
        labels: classes; by default those of the training table.
        decoding: from which thresholds are tuned, in the fields of `Rule`.
        common: the settings of all configurations, for those with a preset of their own.
        features: of the encoder, if the plan has one.
        overrides: of the settings of every configuration, such as "training.max_epochs=1"; last.
        tuning: the one that decides, in `TUNINGS`.
        hold_test: whether test scores are shown only on request.
        least_auc: of the tags, for a verdict on a pair; 0 is none.
        n_folds: of the tables; the run of seed s uses fold s % n_folds.

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
    tuning: str = "clip"
    hold_test: bool = False
    n_folds: int = 1
    least_auc: float = 0.0

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
        tree = read_plan_file(source)
        tables = read_data(tree, source)
        folder = source.parent if data is None else Path(data)
        paths = {x: folder / text for x, text in tables.paths.items()}
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
        tables.check_folds({f"configurations.{name}.{table}": text
                            for name, x in configurations.items()
                            for table, text in x.data.items()})  # fmt: skip
        tuning = choose(f"tuning in {source}", tree.get("tuning", "clip"), TUNINGS)
        hold_test = tree.get("hold_test", False)
        if not isinstance(hold_test, bool):
            raise SettingError(f"{source}: hold_test must be true or false. Got {hold_test!r}.")
        plan = cls(
            source, folder, paths, configurations, base, audio, tables.labels, decoding, common,
            features, overrides, tuning, hold_test, tables.folds, read_least_auc(tree, source),
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
            own, base = settings, self.base
            others = {"model": own.model.network != base.model.network,
                      "features": own.features.kind != base.features.kind}  # fmt: skip
            common = {x: values for x, values in self.common.items() if not others.get(x)}
            settings = settings.changed(common, where)
        settings = settings.changed(configuration.settings, where)
        for override in self.overrides:
            settings = settings.changed(parse_override(override), f"override {override!r}")
        return settings

    def _check(self) -> None:
        for table, path in self.data.items():
            check_path(table, path, f"data.{table}", self.n_folds)
        names_by_key: dict[str, str] = {}
        for name, configuration in self.configurations.items():
            if configuration.compare_with:
                others = [other for other in self.configurations if other != name]
                choose(
                    f"configuration to compare {name!r} with", configuration.compare_with, others
                )
            for table, text in configuration.data.items():
                if text:
                    where = f"configurations.{name}.data.{table}"
                    check_path(table, self.folder / text, where, self.n_folds)
            if self.n_folds > 1 and (configuration.teachers or configuration.ensemble_of):
                raise SettingError(
                    f"The configuration {name!r} has teachers or ensemble_of, which a plan with "
                    "folds cannot have: other runs were trained on its test clips."
                )
            if configuration.strong and "train_events" not in self._tables(configuration, 0):
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
        first_member_of, models_of = configuration.first_member_of, configuration.models_of
        members = self._runs_of(configuration.ensemble_of)
        if first_member_of:
            members = (self._run(first_member_of, seed),)
        settings = self.settings_of(models_of or name)
        if members:
            configuration = self.configurations[models_of]
        settings = replace(settings, training=replace(settings.training, seed=seed))
        fold = seed % self.n_folds
        tables = self._tables(configuration, fold)
        events = tables["train_events"] if configuration.strong else None
        training = [tables["train"], tables["valid"], *([events] if events else [])]
        needed = [run.trained_on for run in teachers]
        folders = [tables.get(name) for name in NEGATIVES]
        if any(folders):
            needed.append(_fingerprint("negatives", *map(_list_audio, folders)))
        # "together" stands in the fingerprints of finished results and cannot change.
        how = "first member" if first_member_of else "together"
        needed += [f"{how} {run.trained_on}" for run in members]
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
            fold,
            bool(first_member_of),
        )

    def _runs_of(self, name: str) -> tuple[Run, ...]:
        """Return all runs of a configuration; none if `name` is empty."""
        if not name:
            return ()
        return tuple(self._run(name, seed) for seed in range(self.configurations[name].n_runs))

    def tables(self, fold: int) -> dict[str, Path]:
        """Return the tables of a fold; without folds there is one, 0."""
        return {table: fold_path(path, fold) for table, path in self.data.items()}

    def _tables(self, configuration: Configuration, fold: int) -> dict[str, Path]:
        """Return the tables of a configuration: those of the plan, and its own in their place.

        The plan's `train_events` belong to the plan's training table, so another training table
        drops them.
        """
        own = configuration.data
        shared = {table: path for table, path in self.tables(fold).items() if table not in own}
        if "train" in own:
            shared.pop("train_events", None)
        paths = {table: self.folder / path for table, path in own.items() if path}
        return shared | {table: fold_path(path, fold) for table, path in paths.items()}


def _check_teacher(teacher: Run, run: Run) -> None:
    own, other = run.settings, teacher.settings
    if (own.features.raw, own.model.time_pool) != (other.features.raw, other.model.time_pool):
        raise SettingError(
            f"The configuration {run.configuration!r} cannot use teacher models of "
            f"{teacher.configuration!r}: their features and frame rates must be the same."
        )


def _fingerprint(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _list_audio(folder: Path | None) -> list[str]:
    """Return the names of the recordings in a folder."""
    return [str(x.relative_to(folder).as_posix()) for x in find_audio(folder)] if folder else []


def _digest(table: Path) -> str:
    return hashlib.sha256(table.read_bytes()).hexdigest()
