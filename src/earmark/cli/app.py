"""What all commands share: the application, common options, logging, JSON, errors.

Conventions: results go to standard output; log lines, warnings and errors to standard error. Bad
input prints one sentence and exits with code 2. The library is imported inside the commands, so
that `earmark --help` does not wait for torch.
"""

import json
import logging
import os
import re
import stat
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from earmark.cli.help import HelpCommand
from earmark.errors import EarmarkError, EarmarkWarning, printable
from earmark.runtime.cores import limit_spinning
from earmark.runtime.extensions import import_extensions

Function = TypeVar("Function", bound=Callable[..., Any])
PIPE_CLOSED = 141  # exit code, as of a command that SIGPIPE ended
# What a reader of the help looks for, in this order; commands that are not listed come last.
ORDER = (
    *("detect", "listen", "plot", "serve", "train", "tune", "evaluate", "report", "doctor", "info"),
    "convert",
)


class Commands(TyperGroup):
    """All commands; one whose reader leaves, as `head` does, ends quietly with `PIPE_CLOSED`."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # here, and not when the interpreter ends, which prints a traceback
            return result
        except BrokenPipeError:
            if not stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
                raise  # it was another pipe
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())  # what is left in the buffer goes there
            sys.exit(PIPE_CLOSED)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of the help and of docs/commands.md."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands, each with its whole sentence on as many lines as needed."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, own.get_short_help_str(1000)) for name, own in commands.items() if own]
            )


class App(typer.Typer):
    """The application, whose commands have a help of `HelpCommand`."""

    def command(self, *names: Any, **settings: Any) -> Callable[[Function], Function]:
        """Return a decorator that makes a function a command."""
        return super().command(*names, **{"cls": HelpCommand, **settings})


app = App(
    name="earmark",
    cls=Commands,
    help="Learn from clip tags alone when each sound happens.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # whose tables cut long options off at 80 columns
    pretty_exceptions_enable=False,
)
logger = logging.getLogger("earmark")
_IN_JSON = re.compile("[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

AudioOption = Annotated[
    Path | None,
    typer.Option(
        "--audio", metavar="FOLDER", help="Folder of the recordings that the table names."
    ),
]
ValidAudioOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Folder of the validation recordings, if it is another one."
    ),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="COLUMN",
        help="Column of the tables, such as speaker or place, that training and validation must "
        "not share.",
    ),
]
GroupPatternOption = Annotated[
    str | None,
    typer.Option(
        "--group-pattern",
        metavar="REGEX",
        help="The same from file names: '^([^_]+)_' is what comes before the first _.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
BundledOption = Annotated[
    Path | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="Model file; by default everyday, the bundled pretrained model.",
    ),
]
ModelOption = Annotated[
    Path,
    typer.Option(
        "--model", "-m", metavar="MODEL", help="Model file, from earmark train, or everyday."
    ),
]
EncoderOption = Annotated[
    Path | None,
    typer.Option(
        "--encoder", metavar="FILE", help="Where the model's encoder is, if it was moved."
    ),
]
DeviceOption = Annotated[
    str,
    typer.Option(
        "--device", metavar="DEVICE", help="Where networks run: auto, cpu, cuda or cuda:1."
    ),
]
ThreadsOption = Annotated[
    int, typer.Option("--threads", metavar="N", help="Threads to use; 0 is one per core.")
]
ClassesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--classes",
        metavar="CLASSES",
        help="Only events of these classes, separated by commas; may be repeated.",
    ),
]
SensitivityOption = Annotated[
    str,
    typer.Option(
        "--sensitivity",
        metavar="LEVEL",
        help="low, normal, high or a number: higher misses fewer events and makes more false ones.",
    ),
]
MinScoreOption = Annotated[
    float,
    typer.Option(
        "--min-score", metavar="SCORE", help="Leave out events with a lower score, from 0 to 1."
    ),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="CLUSTER",
        help="Dask cluster to compute on: local, local:4 (worker processes), or the address of its "
        "scheduler, such as tcp://host:8786; needs the extra cluster (docs/scale.md).",
    ),
]


class _StderrHandler(logging.Handler):
    """Prints records as sentences; looks standard error up each time, as progress bars wrap it."""

    def emit(self, record: logging.LogRecord) -> None:
        print_message(record.getMessage())


def print_message(message: str) -> None:
    """Print a message on standard error."""
    print(printable(f"earmark: {message}"), file=sys.stderr)


def print_text(text: str, flush: bool = False) -> None:
    """Print a text, which may have labels and names of anyone's files, on standard output."""
    print(printable(text), flush=flush)


def print_json(values: Any) -> None:
    """Print plain values as JSON; numbers that are not finite are null."""
    from earmark.metrics.report import finite

    print_json_text(json.dumps(finite(values), indent=2, ensure_ascii=False))


def print_json_text(text: str) -> None:
    """Print a text of JSON at once; what JSON does not escape by itself is escaped as in JSON."""
    print(_IN_JSON.sub(lambda match: json.dumps(match[0])[1:-1], text), flush=True)


class TerminalBytes:
    """Standard output for bytes of a format; on a terminal, with control characters escaped."""

    def write(self, content: bytes) -> None:
        """Write the bytes."""
        if sys.stdout.isatty():
            content = printable(content.decode(errors="backslashreplace")).encode()
        sys.stdout.buffer.write(content)

    def flush(self) -> None:
        """Flush what was written."""
        sys.stdout.buffer.flush()


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("earmark"))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log details.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log warnings and errors only.")] = False,
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="Import a module of yours, which registers networks or encoders; may be repeated.",
        ),
    ] = None,
) -> None:
    logger.handlers = [_StderrHandler()]
    logger.setLevel(logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO)
    show = warnings.showwarning

    def show_warning(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, EarmarkWarning):
            logger.warning("%s", message)
        else:
            show(message, category, *where, **more)

    warnings.showwarning = show_warning
    warnings.simplefilter("always", EarmarkWarning)
    import_extensions(imports or ())


def main() -> None:
    """Run the command line; the entry point `earmark` is `earmark.__main__`."""
    try:
        limit_spinning()
        app()
    except EarmarkError as error:
        print_message(str(error))
        sys.exit(2)
    except OSError as error:  # a folder that is a file, a disk that is full
        where = f" {error.filename}" if error.filename else ""
        print_message(f"{error.strerror or error}:{where or ' while writing'}.")
        sys.exit(2)
