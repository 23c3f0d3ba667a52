"""The command `serve`."""

import signal
from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import DeviceOption, EncoderOption, ThreadsOption, app, logger, print_text
from earmark.errors import SettingError


@app.command()
def serve(
    model: Annotated[
        Path | None,
        typer.Argument(
            metavar="MODEL", help="Model file; by default the bundled pretrained model."
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Address to listen on; any but this machine's own needs a token.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, metavar="N", help="Port to listen on; 0 is any that is free."
        ),
    ] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="What clients must send; made and printed where one is needed."
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Another name of this service, such as of a proxy; may be repeated.",
        ),
    ] = None,
    library: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder of recordings and corrections to keep; else temporary."
        ),
    ] = None,
    train_table: Annotated[
        Path | None,
        typer.Option(metavar="TABLE", help="Table of tags to train with, besides the corrections."),
    ] = None,
    train_audio: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder of the recordings that --train-table names."),
    ] = None,
    max_upload: Annotated[float, typer.Option(metavar="MB", help="Largest recording.")] = 1024,
    max_duration: Annotated[float, typer.Option(metavar="HOURS", help="Longest recording.")] = 12,
    max_seconds: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long POST /detect may take.")
    ] = 300,
    max_active: Annotated[
        int, typer.Option(metavar="N", help="Recordings analysed at a time.")
    ] = 2,
    max_waiting: Annotated[
        int, typer.Option(metavar="N", help="Recordings that may wait for it.")
    ] = 64,
    encoder: EncoderOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 0,
) -> None:
    """Serve a page in the browser, and a REST API, until Ctrl-C.

    Needs the extra earmark[web]; docs/serve.md describes page, API, limits and security.
    """
    try:
        import fastapi  # noqa: F401
        import python_multipart  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise SettingError(
            f"earmark serve needs {error.name}; install the extra: pip install 'earmark[web]'."
        ) from None
    from earmark.inference.model_file import BUNDLED
    from earmark.web.limits import MB, Limits
    from earmark.web.serve import Settings, serve

    limits = Limits(
        max_upload=max_upload * MB,
        max_duration=max_duration * 3600,
        max_seconds=max_seconds,
        max_active=max_active,
        max_waiting=max_waiting,
    )
    if (train_table is None) != (train_audio is None):
        raise SettingError("--train-table and --train-audio go together.")
    base = None if train_table is None or train_audio is None else (train_table, train_audio)
    settings = Settings(host, port, token, tuple(allow_host or ()), library, limits, base)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: nothing is left behind
    try:
        serve(
            model or BUNDLED,
            settings,
            device=device,
            threads=threads,
            encoder=encoder,
            announce=lambda line: print_text(line, flush=True),
        )
    except KeyboardInterrupt:  # before it has begun to serve
        raise typer.Exit(130) from None
    logger.info("The service has ended.")
