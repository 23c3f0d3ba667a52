"""The command `earmark info`."""

from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import JsonOption, app, print_json, print_text
from earmark.errors import SettingError


@app.command()
def info(
    model: Annotated[
        Path | None,
        typer.Argument(
            metavar="MODEL",
            help="Model file, or everyday, the bundled pretrained model, which is the default.",
        ),
    ] = None,
    attribution: Annotated[
        bool,
        typer.Option("--attribution", help="Print the licence and whose recordings it learned."),
    ] = False,
    details: Annotated[
        bool, typer.Option("--details", help="Print every setting and the rule of every class.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print what a model detects, how it was trained and tuned, and how good it is."""
    from earmark.inference.description import describe_bundle, one_screen, summarise_bundle
    from earmark.inference.model_file import BUNDLED, EVERYDAY, find_model, read_card
    from earmark.inference.onnx_file import open_bundle
    from earmark.training.settings import name_preset

    if attribution + details + as_json > 1:
        raise SettingError("--attribution, --details and --json exclude each other; pass one.")
    path = find_model(model or EVERYDAY)
    about = open_bundle(path).describe()
    card = read_card() if path == BUNDLED else None
    if as_json:
        print_json(about if card is None else about | {"card": card})
    elif attribution:
        print_text("\n".join([about["licence"] or "licence: not stated", *about["attribution"]]))
    elif details:
        print_text(f"{path}\n{describe_bundle(about)}")
    else:
        name = f"{EVERYDAY}, the bundled model" if path == BUNDLED else path
        print_text(f"{name}\n{one_screen(summarise_bundle(about, name_preset(about), card))}")
        print_text("more: --details, --attribution, --json")
