"""Words on the command line -> the right room.

Bad input prints one sentence on standard error and exits with 2. Rooms are imported inside the
commands, so that `earmark --help` need not wait for torch.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from earmark.errors import EarmarkError

app = typer.Typer(
    name="earmark",
    help="Learn from clip tags alone when each sound happens.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the sound and the picture.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another scene.")] = 0,
) -> None:
    """Make a clip with known events, pool it in stages and draw it."""
    from earmark.demo import run_demo

    print(f"picture: {run_demo(out, seed)}")


def main() -> None:
    """Run the command line; the entry point `earmark`."""
    try:
        app()
    except EarmarkError as error:
        print(f"earmark: {error}", file=sys.stderr)
        sys.exit(2)
