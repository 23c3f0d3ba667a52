"""The file of a plan: read with what it inherits, and its tables, which may have folds.

Conventions: those of `earmark.experiments.plan`, which describes the file.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from earmark.config import build, read_toml
from earmark.errors import DataError, SettingError, choose

TABLES = (
    "based_on",
    "data",
    "decoding",
    "preset",
    "encoder",
    "tuning",
    "hold_test",
    "least_auc",
    "settings",
    "grid",
    "configurations",
)
NEGATIVES = ("negatives", "valid_negatives")  # folders; the other paths of a plan are tables
LISTS = {"grid", "configurations"}
FOLD = "{fold}"


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
    folds: int = 1

    def __post_init__(self) -> None:
        for table in ("train", "valid", "test"):
            if not getattr(self, table):
                raise SettingError(f"data.{table} is empty; it must name a table.")
        if self.folds < 1:
            raise SettingError(f"data.folds must be 1 or more. Got {self.folds}.")

    @property
    def paths(self) -> dict[str, str]:
        """The names and paths of what is given.

        >>> DataConfig("train.tsv", "valid.tsv", "test.tsv").paths.keys()
        dict_keys(['train', 'valid', 'test'])
        """
        return {x: text for x, text in vars(self).items() if text and x not in ("labels", "folds")}

    def check_folds(self, more: Mapping[str, str]) -> None:
        """Raise unless folds are declared if, and only if, a path depends on them.

        Args:
            more: name -> path of the tables of single configurations.

        >>> DataConfig("{fold}/train.tsv", "valid.tsv", "test.tsv", folds=5).check_folds({})
        """
        depends = [x for x, text in {**self.paths, **more}.items() if FOLD in text]
        if depends and self.folds == 1:
            raise SettingError(
                f"data.{depends[0]} depends on {FOLD}; set data.folds, such as folds = 5."
            )
        if self.folds > 1 and not depends:
            raise SettingError(
                f"data.folds is {self.folds}, but no path contains {FOLD}; write it where the "
                "number of the fold belongs, as in test = 'fold{fold}/test.tsv'."
            )


def read_plan_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the tree of a plan, on top of the one that it is based on.

    A plan with a grid or configurations of its own has these alone; all else is merged.

    >>> read_plan_file("nowhere.toml")
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: There is no settings file nowhere.toml.
    """
    trees: list[dict[str, Any]] = []  # from the plan down to the one that is based on none
    sources = [Path(path)]
    while len(trees) < len(sources):
        source = sources[-1]
        trees.append(read_toml(source))
        for name in trees[-1]:
            choose(f"table in {source}", name, TABLES)
        base = trees[-1].pop("based_on", None)
        if base is None:
            continue
        if not isinstance(base, str):
            raise SettingError(f"{source}: based_on must be the file name of a plan. Got {base!r}.")
        if source.parent / base in sources:
            raise SettingError(f"{source} is based on {base}, which is based on it; remove one.")
        sources.append(source.parent / base)
    whole: dict[str, Any] = {}
    for tree in reversed(trees):
        if LISTS & tree.keys():
            whole = {name: x for name, x in whole.items() if name not in LISTS}
        whole = _merge(whole, tree)
    return whole


def read_data(tree: Mapping[str, Any], source: Path) -> DataConfig:
    """Return the tables of a plan that was read; errors name `source`.

    >>> data = {"train": "a.tsv", "valid": "b.tsv", "test": "c.tsv"}
    >>> read_data({"data": data}, Path("plan.toml")).folds
    1
    """
    if "data" not in tree:
        raise SettingError(f"{source} needs a table [data] with train, valid and test.")
    try:
        return build(DataConfig, "data", tree["data"])
    except SettingError as error:
        raise SettingError(f"{source}: {error}") from None


def read_least_auc(tree: Mapping[str, Any], source: Path) -> float:
    """Return the least AUC of the tags for a verdict, of a plan that was read; 0 is none.

    >>> read_least_auc({"least_auc": 0.8}, Path("plan.toml"))
    0.8
    """
    least = tree.get("least_auc", 0.0)
    if isinstance(least, bool) or not isinstance(least, int | float) or not 0 <= least <= 1:
        raise SettingError(
            f"{source}: least_auc must lie between 0 and 1, such as 0.8. Got {least!r}."
        )
    return float(least)


def fold_path(path: Path, fold: int) -> Path:
    """Return a path with the number of the fold in its place.

    >>> fold_path(Path("fold{fold}", "test.tsv"), 3).as_posix()
    'fold3/test.tsv'
    """
    return Path(str(path).replace(FOLD, str(fold)))


def check_path(table: str, path: Path, name: str, n_folds: int = 1) -> None:
    """Raise unless the table or the folder exists, of every fold; `name` is its place in the plan.

    >>> check_path("test", Path("nowhere.tsv"), "data.test")
    Traceback (most recent call last):
        ...
    earmark.errors.DataError: There is no table nowhere.tsv (data.test); check the plan and ...
    """
    for own in dict.fromkeys(fold_path(path, fold) for fold in range(n_folds)):
        kind = "folder" if table in NEGATIVES else "table"
        exists = os.path.isdir if kind == "folder" else os.path.isfile
        if not exists(own):  # a name that no file can have is none, not an OSError as of pathlib
            raise DataError(
                f"There is no {kind} {own} ({name}); check the plan and its data folder."
            )


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return both trees in one; where both have a value, the second counts."""
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[name] = _merge(old, value) if both else value  # type: ignore[arg-type]
    return merged
