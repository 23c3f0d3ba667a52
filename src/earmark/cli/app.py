"""What all commands share -> the application: options, sentences, JSON, the way out.

Bad input prints one sentence on standard error and exits with 2. Rooms are imported inside the
commands, so that `earmark --help` need not wait for torch.
"""

import json
import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from earmark.errors import EarmarkError
from earmark.runtime.cores import limit_spinning

app = typer.Typer(
    name="earmark",
    help="Learn from clip tags alone when each sound happens.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

AudioOption = Annotated[
    Path | None, typer.Option("--audio", help="Folder of the recordings that the table names.")
]
ValidAudioOption = Annotated[
    Path | None, typer.Option(help="Folder of the validation recordings, if it is another.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
BundledOption = Annotated[
    Path | None,
    typer.Option("--model", "-m", help="Model file; without it, the one in the box."),
]
DeviceOption = Annotated[str, typer.Option(help="Where the network runs: cpu, cuda, cuda:1.")]
ModelOption = Annotated[Path, typer.Option("--model", "-m", help="Model file, from earmark train.")]


def tell(sentence: str) -> None:
    """Print a sentence on standard error."""
    print(f"earmark: {sentence}", file=sys.stderr)


def print_json(values: Any) -> None:
    """Print plain values as JSON; what is not finite is null."""
    from earmark.metrics.report import finite

    print(json.dumps(finite(values), indent=2, ensure_ascii=False))


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
) -> None:
    pass


def main() -> None:
    """Run the command line; the entry point `earmark`."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("earmark: %(message)s"))
    logging.getLogger("earmark").addHandler(handler)
    logging.getLogger("earmark").setLevel(logging.INFO)
    try:
        limit_spinning()
        app()
    except EarmarkError as error:
        tell(str(error))
        sys.exit(2)
    except OSError as error:  # a folder that is a file, a disk that is full
        where = f" {error.filename}" if error.filename else ""
        tell(f"{error.strerror or error}:{where or ' while writing'}.")
        sys.exit(2)
