"""The command `earmark export`."""

from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import app, print_text


@app.command()
def export(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Model file, or everyday: the bundled one.")
    ],
    out: Annotated[
        Path, typer.Argument(metavar="FILE", help="ONNX file to write, such as model.onnx.")
    ],
) -> None:
    """Write a model as ONNX: waveform in, frame-level and clip-level scores out."""
    from earmark.inference.model_file import load_bundle
    from earmark.inference.onnx_export import export_onnx

    bundle = load_bundle(model)
    path = export_onnx(bundle, out)
    rate = bundle.members[0].feature_config.sample_rate
    print_text(f"{path}: waveforms at {rate} Hz, {len(bundle.labels)} classes")
    print_text(f"next: earmark detect RECORDING --model {path}")
