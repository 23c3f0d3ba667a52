"""Generate the tables of docs/settings.md from the dataclasses that are the settings.

Names, types and defaults are those of the fields; meanings are the `Args:` of the docstrings.
"""

import inspect
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from docs.tables import text_table
from earmark.inference.decoding import Rule
from earmark.nn.networks import NETWORKS
from earmark.synth.scenes import SceneConfig
from earmark.training.config import RunConfig
from earmark.training.settings import PRESETS, Settings, derived_settings

DEFAULT = inspect.signature(Settings.load).parameters["preset"].default
SECTIONS = ("features", "training", "augment")
COLUMNS = ("setting", "default", "type", "meaning", "other presets")
LONGEST = 60  # characters of a value in a table
# In docstrings -> in tables: values as TOML has them, and where registries are described.
WORDS = {
    "() is": "[] is",
    "`POOLINGS`": "the [poolings](pooling.md#the-functions)",
    "`STAGE_WEIGHTS`": "the [rules](pooling.md#the-hierarchy) for the weights of segments",
}
# A meaning starts at `name: ` and ends where the next one, another section or an example starts.
ARGUMENT = re.compile(r"^    (\w+): (.*?)(?=^    \w+: |^\S|^ *>>>|\Z)", re.M | re.S)


def section_tables() -> str:
    """Return one table per section that all networks share."""
    return "\n".join(_section(name) for name in SECTIONS)


def _section(section: str) -> str:
    values = {name: getattr(preset, section) for name, preset in PRESETS.items()}
    kind = type(values[DEFAULT])
    return f"### `{section}`\n\n{_first(kind)}\n\n{_settings_table(kind, section, values, DEFAULT)}"


def network_tables() -> str:
    """Return one table per network, whose settings are the section `model`."""
    parts = []
    for name, kind in NETWORKS.items():
        if not kind.__module__.startswith("earmark."):
            continue  # registered by a test or by an example
        values = {preset: own.model for preset, own in PRESETS.items() if own.model.network == name}
        default = DEFAULT if DEFAULT in values else next(iter(values))
        parts.append(
            f"### `model.network={name}`\n\n{_first(kind)} Defaults are those of the preset "
            f"`{default}`.\n\n{_settings_table(kind, 'model', values, default)}"
        )
    return "\n".join(parts)


def _settings_table(kind: type, section: str, values: Mapping[str, Any], default: str) -> str:
    """Return the table of a section: the value in one preset, and the presets that differ."""
    derived, meant, types = derived_settings(), meanings(kind), get_type_hints(kind)
    rows = []
    for field, meaning in meant.items():
        name = f"{section}.{field}"
        if name in derived:
            continue
        own = {preset: getattr(config, field) for preset, config in values.items()}
        text = meaning
        for python, toml in WORDS.items():
            text = text.replace(python, toml)
        shown = (value_text(own[default]), type_text(types[field]), text, _others(own, default))
        rows.append((f"`{name}`", *shown))
    return text_table(COLUMNS, rows)


def _others(values: Mapping[str, Any], default: str) -> str:
    r"""Return the presets with another value than the default one, by value.

    >>> _others({"fast": 1, "wang": 2, "wang-fast": 2, "best": 2, "paper": 3}, "fast")
    '`2` in `wang`\\*, `best`; `3` in `paper`'
    """
    by_value: dict[str, list[str]] = {}
    for preset, value in values.items():
        if value != values[default]:
            by_value.setdefault(value_text(value), []).append(preset)
    return "; ".join(
        f"{value} in {', '.join(_families(presets, values))}" for value, presets in by_value.items()
    )


def _families(presets: list[str], known: Mapping[str, Any]) -> list[str]:
    """Return the names, those of a system with all its variants as one: wang, wang-fast, ..."""
    names = []
    for preset in presets:
        system = re.sub("-(fast|native)$", "", preset)
        family = {name for name in known if re.sub("-(fast|native)$", "", name) == system}
        whole = len(family) > 1 and family <= set(presets)
        name = f"`{system}`\\*" if whole else f"`{preset}`"
        if name not in names:
            names.append(name)
    return names


def rule_table() -> str:
    """Return the settings of decoding, one rule per class."""
    return _plain_table(Rule)


def run_table() -> str:
    """Return what decides how and where a training runs."""
    return _plain_table(RunConfig)


def scene_table() -> str:
    """Return the settings of synthetic scenes."""
    return _plain_table(SceneConfig)


def _plain_table(kind: type) -> str:
    types, own = get_type_hints(kind), {field.name: field for field in fields(kind)}
    return text_table(
        COLUMNS[:-1],
        [
            (f"`{name}`", _default_text(own[name]), type_text(types[name]), meaning)
            for name, meaning in meanings(kind).items()
        ],
    )


def _default_text(field: "Field[Any]") -> str:
    if field.default is not MISSING:
        return value_text(field.default)
    return "required" if field.default_factory is MISSING else value_text(field.default_factory())


def meanings(kind: type) -> dict[str, str]:
    """Return field -> meaning, in the order of the docstring; every field must have one.

    >>> meanings(Rule)["median"]
    'length of the median filter; 0 is none.'
    """
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):  # a variant of a network documents what is its own
        arguments = inspect.cleandoc(base.__doc__ or "").partition("Args:\n")[2]
        found |= {name: " ".join(text.split()) for name, text in ARGUMENT.findall(arguments)}
    own = {field.name for field in fields(kind)}
    assert own <= found.keys(), f"the docstring of {kind.__name__} lacks {own - found.keys()}"
    return {name: text for name, text in found.items() if name in own}


def _first(kind: type) -> str:
    """Return what a dataclass is for, without a remark on defaults that are not those of here."""
    return re.sub("; the defaults are .*", ".", (inspect.getdoc(kind) or "").partition("\n")[0])


def value_text(value: Any) -> str:
    """Return a value as TOML and `--set` take it.

    >>> value_text(((2, 2), (1, 2))), value_text(True), value_text(1e-5), value_text("linear")
    ('`[[2, 2], [1, 2]]`', '`true`', '`1e-05`', '`linear`')
    """
    if value is None:
        return "none"
    if value == "":
        return "empty"
    text = value if isinstance(value, str) else _toml(value)
    return f"`{text}`" if len(text) <= LONGEST else f"a list of {len(value)}"


def _toml(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).lower() if isinstance(value, bool) else str(value)


def type_text(kind: Any) -> str:
    """Return the name of a type for readers of TOML.

    >>> type_text(tuple[tuple[int, int], ...]), type_text(str | None)
    ('list of [int, int]', 'str or none')
    """
    if get_origin(kind) in (Union, UnionType):
        names = [type_text(part) for part in get_args(kind) if part is not type(None)]
        names += ["none"] if type(None) in get_args(kind) else []
        return " or ".join(dict.fromkeys(names))
    if get_origin(kind) is tuple:
        parts = get_args(kind)
        if parts[-1] is Ellipsis:
            return f"list of {type_text(parts[0])}"
        return f"[{', '.join(map(type_text, parts))}]"
    return "path" if "PathLike" in str(kind) else str(getattr(kind, "__name__", kind))
