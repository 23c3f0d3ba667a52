"""Generate the tables of docs/choosing.md: what was measured of poolings, structures and presets.

From benchmarks/results: `pooling` (51 runs), `defaults` (one thing changed at a time, on several
kinds of data), `detector`, `best` and `encoder` (long trainings). Sizes are those of the presets.
"""

from collections.abc import Mapping

from benchmarks.kinds import KINDS
from docs.results import compare, load_results
from docs.settings import DEFAULT
from docs.tables import text_table
from earmark.experiments.table import Summary, summary_text
from earmark.metrics.report import TextTable
from earmark.nn.network import NetworkConfig
from earmark.training.settings import PRESETS, Settings

TUNING = "clip"  # what `earmark train` does
SCORES = {"f1": "F1", "event_f1": "event F1", "map": "mAP"}
LEAST_RUNS = 2  # of a configuration, for a kind of data to be shown
RECOMMENDED: Mapping[str, object] = {"pooling": "linear", "stages": (), "n_recurrent": 0}
# Of defaults.toml, by structure and GRU.
STRUCTURES = {
    "hierarchical, GRU": "before",
    "single-level, GRU": "single-level",
    "hierarchical, no GRU": "no GRU",
    "single-level, no GRU": "single-level, no GRU",
}
# Long trainings on the same scenes: title -> plan, configuration, tuning.
LONG = {
    "preset `best`": ("detector", "8x epochs, wider", TUNING),
    "the same, hierarchical pooling": ("detector", "8x epochs, wider, hierarchical", TUNING),
    "the same, ensemble of three": ("detector", "ensemble of three", TUNING),
    "preset `best` with negatives, new rule": ("best", "first generation", "shared_clip"),
    "the same, `training.generations=2`": ("best", "second generation", "shared_clip"),
    "preset `encoder` on YAMNet": ("encoder", "first generation", TUNING),
}


def command() -> str:
    """Return the command that trains what is recommended, whatever the default is."""
    model, changes = PRESETS[DEFAULT].model, []
    for name, wanted in RECOMMENDED.items():
        if getattr(model, name) != wanted:
            value = str(wanted).replace("()", "[]")
            changes.append(f'--set "model.{name}={value}"')
    lines = ["earmark train --train tags.tsv --audio clips/", *filter(None, [" ".join(changes)])]
    return "    " + " \\\n        ".join(lines) + "\n"


def preset_table() -> str:
    """Return what the presets of our own networks are, by the settings and the network itself."""
    rows = []
    for name, settings in PRESETS.items():
        if settings.model.network not in ("crnn", "head"):
            continue
        shown = f"`{name}`, the default" if name == DEFAULT else f"`{name}`"
        rows.append((shown, *_structure(settings), *_size(settings.model)))
    columns = ("preset", "pooling", "GRU", "augmentation", "epochs", "parameters", "GMAC")
    return text_table(columns, rows)


def _structure(settings: Settings) -> tuple[str, str, str, str]:
    model, training = settings.model, settings.training
    stages = getattr(model, "stages", ())
    pooling = f"{getattr(model, 'pooling', '-')}, " + (
        f"hierarchical {stages}" if stages else "single-level"
    )
    changed = any(
        getattr(settings.augment, name) for name in ("mixing", "mixup", "eq_db", "gain_db")
    )
    width = getattr(model, "n_recurrent", 0)
    steps = f", {training.min_steps} steps at least" if training.min_steps else ""
    epochs = f"up to {training.max_epochs}{steps}"
    return pooling, str(width) if width else "no", "yes" if changed else "no", epochs


def _size(model: NetworkConfig) -> tuple[str, str]:
    if model.network == "head":
        return "by encoder", "by encoder"
    layers = model.changed(n_classes=17).layers(500)  # 10 s
    parameters = sum(layer.n_parameters for layer in layers)
    return f"{parameters:,}", f"{sum(layer.operations for layer in layers) / 1e9:.2f}"


def pooling_table() -> str:
    """Return the scores of each pooling function with single-level pooling, best mAP first."""
    known = compare("pooling", TUNING)
    single = {name: x for name, x in known.summaries.items() if "," not in name or "single" in name}
    names = [name for name in single if name != "oracle"]
    names.sort(key=lambda name: -single[name]["map"].mean)
    rows = tuple(
        (name.removesuffix(", single"), str(len(known.seeds[name])), *_scores(single[name]))
        for name in names
    )
    title = "Single-level pooling, 1,000 test scenes from ESC-50: mean ± standard deviation"
    return TextTable(title, ("pooling", "runs", *SCORES.values()), rows).to_markdown()


def verdict() -> str:
    """Return what all pairs of runs together say of hierarchical against single-level pooling."""
    known = compare("pooling", TUNING)
    change = "hierarchical minus single"
    [joint] = [x for name, x in known.verdicts.items() if name.startswith("means per seed")]
    pairs = [pair for pair in known.pairs if pair.change == change]
    judged = [pair for pair in pairs if not known.verdicts[pair.title].refusal]
    n_runs = sum(len(known.seeds[pair.configuration]) for pair in judged)
    names = " and ".join(pair.baseline.partition(", ")[0] for pair in judged)
    left_out = "".join(
        f" No verdict on {pair.baseline.partition(', ')[0]}: {known.verdicts[pair.title].refusal}."
        for pair in pairs
        if pair not in judged
    )
    return (
        f"Hierarchical minus single-level pooling, {names}, {n_runs} pairs of runs: "
        f"{joint.sentence()}.{left_out}\n"
    )


def structure_table() -> str:
    """Return F1 and event F1 by structure and GRU, for each kind of data that is complete."""
    rows = []
    for kind in KINDS:
        known = compare("defaults", TUNING, f"defaults/{kind}")
        runs = [len(known.seeds.get(name, ())) for name in STRUCTURES.values()]
        if min(runs) < LEAST_RUNS:
            continue
        texts = (_pair_text(known.summaries[name]) for name in STRUCTURES.values())
        rows.append((kind, str(min(runs)), *texts))
    title = "F1 (event F1), means over runs: 8 passes over 800 clips, linear pooling"
    return TextTable(title, ("data", "runs", *STRUCTURES), tuple(rows)).to_markdown()


def _pair_text(metrics: Mapping[str, Summary]) -> str:
    return f"{metrics['f1'].mean:.3f} ({metrics['event_f1'].mean:.3f})"


def long_table() -> str:
    """Return the scores of long trainings on the scenes of docs/results.md."""
    rows = []
    for title, (plan, configuration, tuning) in LONG.items():
        if not any(result.configuration == configuration for result in load_results(plan)):
            continue
        known = compare(plan, tuning)
        metrics = known.summaries[configuration]
        rows.append((title, str(len(known.seeds[configuration])), *_scores(metrics)))
    title = "1,000 test scenes from ESC-50 (fold 4), trained on 6,000 scenes"
    return TextTable(title, ("training", "runs", *SCORES.values()), tuple(rows)).to_markdown()


def _scores(metrics: Mapping[str, Summary]) -> tuple[str, ...]:
    return tuple(summary_text(metrics[name]) for name in SCORES)
