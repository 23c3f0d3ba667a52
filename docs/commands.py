"""Generate the tables of docs/commands.md from the command line itself."""

import re
from collections.abc import Iterable
from typing import Any

from typer.main import get_command

from docs.tables import text_table
from earmark.cli import app
from earmark.cli.help import (
    argument_name,
    default_text,
    list_registries,
    option_names,
    usage_name,
)


def command_list() -> str:
    """Return the table of commands, each with what it does."""
    rows = [(f"[`earmark {name}`](#earmark-{name})", _first(own)) for name, own in _commands()]
    return text_table(("command", "what it does"), rows)


def shared_options() -> str:
    """Return the table of options that come before the name of a command."""
    return _options(get_command(app).params)


def command_tables() -> str:
    """Return one table of arguments and options per command."""
    parts = []
    for name, command in _commands():
        arguments = [x for x in command.params if x.param_type_name == "argument"]
        usage = " ".join(["earmark", name, "[OPTIONS]", *map(usage_name, arguments)])
        text = "\n\n".join(" ".join(part.split()) for part in command.help.split("\n\n"))
        parts.append(f"## earmark {name}\n\n{text}\n\n    {usage}\n\n{_options(command.params)}")
    return "\n".join(parts)


def _commands() -> list[tuple[str, Any]]:
    group: Any = get_command(app)
    commands = [(name, group.commands[name]) for name in group.list_commands(None)]
    return [(name, command) for name, command in commands if not command.hidden]


def _first(command: Any) -> str:
    return str(command.help).partition("\n\n")[0]


def _options(params: Iterable[Any]) -> str:
    rows = [
        (_names(x), _default(x), _meaning(x)) for x in params if not getattr(x, "hidden", False)
    ]
    return text_table(("option", "default", "meaning"), rows)


def _meaning(param: Any) -> str:
    """Return the help of an option as Markdown, with links to the pages that it names."""
    text = re.sub(r"([\\_*\[\]<>`])", r"\\\1", list_registries(param.help or ""))
    return re.sub(r"docs/([\w-]+\.md)", r"[\1](\1)", text)


def _names(param: Any) -> str:
    """Return how an option is written, with its value, or an argument."""
    if param.param_type_name == "option":
        return f"`{option_names(param)}`"
    text = argument_name(param)
    # Dialects differ in how a pipe within backticks is escaped in a table.
    return f"<code>{text.replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def _default(param: Any) -> str:
    if param.required:
        return "required"
    text = default_text(param)
    return f"`{text}`" if text else ""
