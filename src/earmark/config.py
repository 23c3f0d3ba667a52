"""TOML and plain values -> dataclasses, strictly.

Conventions: an unknown name is an error that suggests the nearest known name. A value of the wrong
type is an error too. Nothing is guessed and nothing is ignored.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from earmark.errors import SettingError, choose

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Config = TypeVar("Config")

MAX_INTEGER = 2**63  # what torch, NumPy and files can hold


def repr_of_changes(config: Any) -> str:
    """Return a short repr of a config: the fields that do not have their defaults.

    A config class uses it as `__repr__ = repr_of_changes`.

    >>> from earmark.synth.scenes import SceneConfig
    >>> SceneConfig(duration=4.0)
    SceneConfig(duration=4.0)
    """
    changed = []
    for own in fields(config):
        value = getattr(config, own.name)
        default = own.default if own.default_factory is MISSING else own.default_factory()
        if own.repr and (default is MISSING or value != default):
            long = isinstance(value, tuple) and len(value) > 8
            changed.append(f"{own.name}={f'({len(value)} values)' if long else repr(value)}")
    return f"{type(config).__name__}({', '.join(changed)})"


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file.

    >>> read_toml(Path("nowhere.toml"))
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: There is no settings file nowhere.toml.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingError(f"There is no settings file {path}.") from None
    except IsADirectoryError:
        raise SettingError(f"{path} is a folder; pass a TOML file.") from None
    except OSError as error:
        raise SettingError(f"Cannot read {path}: {error.strerror or error}.") from None
    except RecursionError:
        raise SettingError(f"{path} has too many levels of tables or lists.") from None
    except ValueError as error:  # also a number of too many digits
        raise SettingError(f"{path} is not a TOML file: {error}.") from None


def check_numbers(name: str, value: object) -> None:
    """Raise `SettingError` if an integer in a value is too large to compute with.

    >>> check_numbers("training.seed", 2**70)
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: training.seed must be below 9223372036854775808. Got 1180591...
    """
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, list | tuple):
            pending += value
        elif isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, int) and abs(value) >= MAX_INTEGER:
            raise SettingError(f"{name} must be below {MAX_INTEGER}. Got {value}.")


def check_limits(section: str, config: object, limits: Mapping[str, float]) -> None:
    """Raise `SettingError` if a setting exceeds its limit, beyond which no machine could follow.

    Args:
        section: of the settings; prefix of their names in errors, with a dot, or "".
        config: the dataclass that has them.
        limits: name of a setting -> the largest value.

    >>> from types import SimpleNamespace
    >>> check_limits("training.", SimpleNamespace(threads=100_000), {"threads": 1024})
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: training.threads must be at most 1024. Got 100000.
    """
    for name, limit in limits.items():
        value = getattr(config, name)
        if value > limit:
            raise SettingError(f"{section}{name} must be at most {limit:g}. Got {value!r}.")


def build(kind: type[Config], where: str, values: object) -> Config:
    """Return a dataclass from plain values.

    Args:
        kind: the dataclass.
        where: the section that the values belong to; prefix of setting names in errors.
        values: field name -> value.

    >>> from earmark.training.augmentation import AugmentConfig
    >>> build(AugmentConfig, "augment", {"mixup": 0.2}).mixup
    0.2
    >>> build(AugmentConfig, "augment", {"mixpu": 0.2})
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: There is no setting 'augment.mixpu'; did you mean ...
    """
    from pydantic import ValidationError

    if not isinstance(values, Mapping):
        raise SettingError(f"{where} must be a table of settings. Got {values!r}.")
    fields = kind.__dataclass_fields__  # type: ignore[attr-defined]
    known = [f"{where}.{name}" for name in fields]
    for name, value in values.items():
        choose("setting", f"{where}.{name}", known)
        if isinstance(value, bool) and fields[name].type in (int, float):
            raise SettingError(f"{where}.{name} must be a number. Got {value!r}.")
        check_numbers(f"{where}.{name}", value)
    try:
        built: Config = _validator(kind).validate_python(dict(values))  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join([where, *(str(part) for part in first["loc"])])
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, SettingError):
            raise cause from None
        raise SettingError(f"{name}: {first['msg']}. Got {first['input']!r}.") from None
    return built


@cache
def _validator(kind: Any) -> "TypeAdapter[Any]":
    """Return what checks the types of a dataclass; to make it takes longer than to use it."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
