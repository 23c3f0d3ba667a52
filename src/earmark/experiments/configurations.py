"""The configurations of a plan: its grid, its own tables of configurations, and what inherits what.

Conventions: those of `earmark.experiments.plan`, which describes the file.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from earmark.config import build
from earmark.errors import SettingError, choose
from earmark.experiments.plan_file import NEGATIVES, read_plan_file

MAX_SEEDS = 500  # of a configuration: each is a training


@dataclass(frozen=True)
class Configuration:
    """What a configuration changes, how many runs it has, and what it is compared with.

    The module docstring of `earmark.experiments.plan` has the meaning of each field.

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
    first_member_of: str = ""
    stored_as: str = ""
    preset: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.seeds <= MAX_SEEDS:
            raise SettingError(f"seeds must be from 1 to {MAX_SEEDS}. Got {self.seeds}.")
        for name in self.data:
            choose("table of a configuration", name, ("train", "train_events", *NEGATIVES))
        trains = ("settings", "data", "strong", "teachers", "based_on", "preset")
        for name in ("ensemble_of", "first_member_of"):
            other = getattr(self, name)
            if other and any(getattr(self, x) for x in trains):
                raise SettingError(
                    f"A configuration with {name} = {other!r} trains nothing: remove its settings, "
                    "data, strong, teachers, based_on and preset."
                )
        if self.ensemble_of and self.first_member_of:
            raise SettingError(
                "A configuration has either ensemble_of or first_member_of. "
                f"Got {self.ensemble_of!r} and {self.first_member_of!r}."
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

    @property
    def models_of(self) -> str:
        """The configuration whose models it uses, if it trains none.

        >>> Configuration(first_member_of="surrey").models_of
        'surrey'
        """
        return self.ensemble_of or self.first_member_of


class Pair(NamedTuple):
    """A configuration, the one it is compared with, and the change it shares with other pairs.

    >>> Pair("single", "hierarchical").change
    ''
    """

    baseline: str
    configuration: str
    change: str = ""

    @property
    def title(self) -> str:
        """How tables and verdicts name it.

        >>> Pair("single", "hierarchical").title
        'hierarchical minus single'
        """
        return f"{self.configuration} minus {self.baseline}"


def read_configurations(path: str | os.PathLike[str]) -> dict[str, Configuration]:
    """Return the configurations of a plan, in order; its tables need not exist.

    >>> read_configurations("nowhere.toml")
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: There is no settings file nowhere.toml.
    """
    return build_configurations(read_plan_file(path), Path(path))


def list_pairs(configurations: Mapping[str, Configuration]) -> list[Pair]:
    """Return the configurations to compare.

    >>> list_pairs({"a": Configuration(), "b": Configuration(compare_with="a")})
    [Pair(baseline='a', configuration='b', change='')]
    """
    return [Pair(x.compare_with, name, x.change) for name, x in configurations.items()
            if x.compare_with]  # fmt: skip


def build_configurations(tree: Mapping[str, Any], source: Path) -> dict[str, Configuration]:
    """Return the configurations of a plan that was read, in order; errors name `source`.

    >>> build_configurations({"grid": {"size": {"a": {}, "b": {}}}}, Path("plan.toml")).keys()
    dict_keys(['a', 'b'])
    """
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
    trained = [x for x, other in earlier.items() if not other.models_of]
    for key in ("based_on", "teachers", "ensemble_of", "first_member_of"):
        if other := getattr(own, key):
            choose(f"trained configuration above {name!r} for {key}", other, trained)
    if own.models_of and "seeds" in values:
        n_runs = "an ensemble is one run" if own.ensemble_of else "it has the runs of the other"
        raise SettingError(f"{where}: {n_runs}; remove seeds = {own.seeds}.")
    if own.first_member_of:
        of = own.first_member_of
        return build(
            Configuration, where, {"seeds": earlier[of].seeds, "compare_with": of, **values}
        )
    if not own.based_on:
        return own
    parent = earlier[own.based_on]
    data = dict(parent.data)
    if "train" in own.data:
        data.pop("train_events", None)  # they belong to the parent's training table
    settings = {section: dict(changes) for section, changes in parent.settings.items()}
    for section, changes in own.settings.items():
        settings.setdefault(section, {}).update(changes)
    inherited = {key: getattr(parent, key) for key in ("seeds", "strong", "teachers", "preset")}
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
        data = settings.pop("data", {})  # tables are no setting
        first = (*names[:-1], next(iter(axes[list(axes)[-1]])))
        tree: dict[str, Any] = {"seeds": seeds, "settings": settings, "data": data}
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
