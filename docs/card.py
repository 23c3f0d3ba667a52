"""The model in the box -> the tables of docs/model-card.md."""

from benchmarks.everyday import CELL
from docs.results import compare
from earmark.inference.decoding import Rule
from earmark.inference.model_file import BUNDLED, Bundle, load_bundle
from earmark.metrics.report import TextTable

TOLD = {
    "shared": "decided as above, from tags alone",
    "strong": "thresholds from onsets and offsets of fold 3 instead",
}


def about() -> str:
    """Return what the model knows, how it decides, and what it is made of."""
    bundle = load_bundle(BUNDLED)
    training = bundle.training
    lines = [
        f"{BUNDLED.name}, {BUNDLED.stat().st_size / 1e6:.1f} MB: {len(bundle.labels)} classes, "
        f"{bundle.describe()['n_parameters']:,} numbers, pooling "
        f"`{bundle.model.pooling}` with stages {list(bundle.model.stages)}. "
        f"Trained on {training['n_train']:,} scenes for {training['n_epochs']} epochs, "
        f"{training['seconds'] / 60:.0f} minutes; thresholds from {bundle.tuning['supervision']} "
        "labels.",
        "",
        rules(bundle).to_markdown(),
        "",
    ]
    return "\n".join(lines)


def scores() -> str:
    """Return what the recipe scored on sources that it had not heard."""
    lines = []
    found = {tuning: compare("detector", tuning) for tuning in TOLD}
    n_runs = len(found["shared"].seeds[CELL])
    for tuning, told in TOLD.items():
        cell = found[tuning].cells[CELL]
        lines.append(
            f"- {told}: F1 {cell['f1'].mean:.3f} (precision {cell['p'].mean:.3f}, "
            f"recall {cell['r'].mean:.3f}), error rate {cell['er'].mean:.3f}, event-based F1 "
            f"{cell['event'].mean:.3f}, mean average precision of tags {cell['map'].mean:.3f}"
        )
    return "\n".join(
        [
            "On 1,000 scenes of sources that it had not heard (fold 4 of ESC-50, 0 to 20 dB"
            " over wind, rain and the like), the recipe trained on folds 1 and 2 scores, in"
            f" segments of 1 s, {'one run' if n_runs == 1 else f'the mean of {n_runs} runs'}:",
            "",
            *lines,
            "",
        ]
    )


def rules(bundle: Bundle) -> TextTable:
    """Return how each class becomes events."""
    labels_of: dict[Rule, list[str]] = {}
    for label in bundle.labels:
        labels_of.setdefault(bundle.decoding.rule(label), []).append(label)
    rows = [
        (", ".join(labels), f"{rule.threshold:.2f}", f"{rule.low_threshold:.2f}",
         f"{rule.clip_threshold:.2f}", f"{rule.median:.2f} s")
        for rule, labels in labels_of.items()
    ]  # fmt: skip
    columns = ("classes", "threshold", "low threshold", "gate", "median")
    return TextTable("How each class becomes events", columns, tuple(rows))


def attribution() -> str:
    """Return whom the recordings are due to."""
    bundle = load_bundle(BUNDLED)
    return "\n".join([bundle.licence, "", *(f"- {line}" for line in bundle.attribution), ""])
