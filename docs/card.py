"""Generate the tables of docs/model-card.md from the bundled pretrained model."""

from collections.abc import Mapping
from typing import Any

from earmark.inference.decoding import Rule
from earmark.inference.model_file import BUNDLED, Bundle, load_bundle
from earmark.metrics.report import TextTable


def about() -> str:
    """Return the size, training and decoding rules of the model."""
    bundle = load_bundle(BUNDLED)
    training, stages = bundle.training, list(bundle.model_config.stages)
    structure = f"hierarchical with stages {stages}" if stages else "single-level"
    lines = [
        f"{BUNDLED.name}, {BUNDLED.stat().st_size / 1e6:.1f} MB: {len(bundle.labels)} classes, "
        f"{bundle.describe()['n_parameters']:,} parameters, `{bundle.model_config.pooling}` "
        f"pooling, {structure}. Trained on {training['n_train']:,} scenes for "
        f"{training['n_epochs']} epochs ({training['seconds'] / 60:.0f} minutes); thresholds "
        f"tuned on {bundle.tuning['supervision']} labels.",
        "",
        rules(bundle).to_markdown(),
        "",
        *reliability(bundle.tuning),
    ]
    return "\n".join(lines)


def reliability(tuning: Mapping[str, Any]) -> list[str]:
    """Return what the tuning measured: calibration error, and false events against recall."""
    lines = []
    calibration = tuning.get("calibration", {})
    if "ece" in calibration:
        lines += [
            f"Expected calibration error of the scores of {calibration['n_events']:,} validation "
            f"events, cross-validated: {calibration['ece']:.3f} ({calibration['start_ece']:.3f} "
            "before calibration).",
            "",
        ]
    if "false_events" in tuning:
        false = tuning["false_events"]
        columns = {
            "sensitivity": "setting",
            "false events per minute": "per_minute",
            "negatives with any": "recordings",
            "clip recall": "clip_recall",
            "event recall": "event_recall",
        }
        rows = tuple(
            tuple(f"{point[name]:.2f}" if name in point else "-" for name in columns.values())
            for point in false["curve"]
        )
        title = (
            f"False events in {false['n_recordings']} recordings without any of the classes "
            f"({false['minutes']:.1f} minutes), and recall on the validation clips"
        )
        lines += [TextTable(title, tuple(columns), rows).to_markdown(), ""]
    return lines


def rules(bundle: Bundle) -> TextTable:
    """Return the decoding rules, one row per group of classes with the same rule."""
    labels_by_rule: dict[Rule, list[str]] = {}
    for label in bundle.labels:
        labels_by_rule.setdefault(bundle.decoding[label], []).append(label)
    rows = [
        (", ".join(labels), f"{rule.threshold:.2f}", f"{rule.low_threshold:.2f}",
         f"{rule.clip_threshold:.2f}", f"{rule.median:.2f} s")
        for rule, labels in labels_by_rule.items()
    ]  # fmt: skip
    columns = ("classes", "threshold", "low threshold", "clip-level threshold", "median filter")
    return TextTable("Decoding rule per class", columns, tuple(rows))


def attribution() -> str:
    """Return the licence and the attributions in the model file."""
    bundle = load_bundle(BUNDLED)
    return "\n".join([bundle.licence, "", *(f"- {line}" for line in bundle.attribution), ""])
