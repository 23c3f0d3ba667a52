"""How the help of a command reads: what to type for a value, its default, the names to choose from.

Conventions: every argument, and every option that takes a value, has a metavar in capitals that
says what to type, such as FILE, FOLDER or N. The tables of docs/commands.md are of the same texts.
"""

import re
from importlib import import_module
from typing import Any

from typer.core import TyperCommand

HYPHEN, SPACE = "\u2011", "\u00a0"  # at which no line is broken


class HelpCommand(TyperCommand):
    """A command whose help has the words of its options, whole at 80 columns.

    In the help of an option, "{package.module:NAME}" stands for the keys of that dict, which is
    imported when the help is shown.
    """

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what is typed after the name of the command."""
        arguments = (param for param in self.params if param.param_type_name == "argument")
        return ["[OPTIONS]", *map(usage_name, arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options, each with its help."""
        for title, kind in (("Arguments", "argument"), ("Options", "option")):
            rows = [
                (option_names(param) if kind == "option" else argument_name(param), _help(param))
                for param in self.get_params(ctx)
                if param.param_type_name == kind and not getattr(param, "hidden", False)
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        super().format_help(ctx, formatter)
        formatter.buffer = [
            part.replace(HYPHEN, "-").replace(SPACE, " ") for part in formatter.buffer
        ]


def argument_name(param: Any) -> str:
    """Return what to type for an argument; three dots say that it may be repeated."""
    name: str = param.metavar
    return f"{name}..." if param.nargs == -1 and not name.endswith("...") else name


def usage_name(param: Any) -> str:
    """Return an argument as in the usage of a command: in brackets if it may be left out."""
    return argument_name(param) if param.required else f"[{argument_name(param)}]"


def option_names(param: Any) -> str:
    """Return how an option is typed, with what to type for its value."""
    names = ", ".join([*param.opts, *param.secondary_opts])
    return names if param.is_flag else f"{names} {param.metavar}"


def default_text(param: Any) -> str:
    """Return the default of an option as it is typed; nothing if there is none."""
    default = param.default
    if isinstance(default, bool):  # a flag; one with a negation is on
        return str(param.opts[0]) if default else ""
    if default is None or default in ("", (), []):
        return ""
    values = default if isinstance(default, list | tuple) else [default]
    return " ".join(map(str, values))


def list_registries(text: str) -> str:
    """Return a help text with the keys of each "{package.module:NAME}" in its place.

    >>> list_registries("One of {earmark.training.config:SCHEDULES}.")
    'One of constant, cosine, plateau, exponential.'
    """

    def names(match: re.Match[str]) -> str:
        return ", ".join(getattr(import_module(match[1]), match[2]))

    return re.sub(r"\{([\w.]+):(\w+)\}", names, text)


def _help(param: Any) -> str:
    default = default_text(param)
    more = "required" if param.required else f"default:{SPACE}{default}" if default else ""
    text = list_registries(param.help or "") + (f"  [{more}]" if more else "")
    # A name such as emsi-like stays on one line: its hyphens are others for a moment.
    return re.sub(r"(?<=\w)-(?=\w)", HYPHEN, text)
