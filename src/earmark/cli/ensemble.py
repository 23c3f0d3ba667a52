"""The command `ensemble`."""

from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import AudioOption, DeviceOption, EncoderOption, app, print_text
from earmark.errors import SettingError


@app.command()
def ensemble(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL", help="Model files with the same classes.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Model file to write.")],
    valid: Annotated[
        Path | None,
        typer.Option("--valid", metavar="TABLE", help="Table of tags to tune the thresholds on."),
    ] = None,
    audio: AudioOption = None,
    encoder: EncoderOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Combine models into one file that detects with the mean of their scores."""
    from earmark.inference.combine import ensemble as combined
    from earmark.inference.model_file import check_target
    from earmark.inference.tuning import describe_tuning
    from earmark.training import api

    if (valid is None) != (audio is None):
        raise SettingError("--valid and --audio go together: the tags, and their recordings.")
    check_target(out)
    detector = combined(models, device, encoder=encoder)
    is_tuned = valid is not None or len(models) == 1  # one model stays as it is
    outcome = "thresholds are the mean of the models', in log-odds, and not tuned"
    if len(models) == 1:
        outcome = "one model, thresholds unchanged"
    if valid is not None and audio is not None:
        detector, tuned = api.tune(detector, valid, audio)
        outcome = describe_tuning(tuned)
    detector.save(out)
    n_networks = len(detector.bundle.members)
    print_text(f"{out}: {n_networks} network{'s' * (n_networks > 1)}; {outcome}")
    if not is_tuned:
        print_text(f"next: earmark tune --model {out} --valid TAGS --audio FOLDER")
