"""Generate the verdicts and the figure on hierarchical pooling from benchmarks/results/map.

Every folder there has the results of a plan on one data set, complete or not: those of map.toml are
in the folder of the kind of data, those of the other plans have its suffix. Scores are those of the
test clips where the folder records that they were read, and of the validation clips otherwise.

    python -m docs.map            prints the table and writes docs/images/map.png
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.kinds import VARIATIONS
from docs.results import BENCHMARKS
from earmark.experiments.compare import TEST_READ, read_results
from earmark.experiments.configurations import list_pairs, read_configurations
from earmark.experiments.plan_file import read_plan_file
from earmark.experiments.table import Comparison, compare_results
from earmark.metrics.report import TextTable
from earmark.metrics.verdict import EQUIVALENCE, LEVEL, Verdict
from earmark.plots import plot_effects, save

RESULTS = BENCHMARKS / "results" / "map"
IMAGE = Path(__file__).parent / "images" / "map.png"
LEAST_AUC = 0.80  # of the tags; below, what decides is recognition, not pooling
HIERARCHY = "hierarchical minus single"
KINDS = ("esc50", "digits-backgrounds", "procedural")
PLANS: Mapping[str, str] = {  # folder -> plan
    **dict.fromkeys(KINDS, "map"),
    "lungs": "map_lungs",
    **{
        name: "map_lengths" if "-length" in name else "map_factors"
        for name in VARIATIONS
        if name not in KINDS
    },
    **{f"{kind}-{plan}": f"map_{plan}" for plan in ("noise", "wide", "beyond") for kind in KINDS},
    "lungs-beyond": "map_lungs_beyond",
}
FACTORS: Mapping[str, Mapping[str, str]] = {  # factor -> value -> folder
    "Event length": {f"{x} s": f"procedural-length{x}" for x in ("0.3", "1", "3", "6")},
    "Clip length": {
        f"{kind}, {x} s": f"{kind}-clip{x}" for kind in ("procedural", "digits") for x in (30, 60)
    },
    "Events per clip": {str(x): f"procedural-events{x}" for x in (1, 3, 8)},
}
Effects = dict[str, tuple[float, float, float]]


@dataclass(frozen=True)
class DataSet:
    """What is known of a folder: the statistics, on which clips, and how well tags are learned."""

    name: str
    clips: str  # "test" or "validation"
    comparison: Comparison
    auc: float | None  # the best mean over the runs of a configuration

    @property
    def too_hard(self) -> bool:
        """Whether tags are learned too badly for a verdict on pooling."""
        return self.auc is not None and self.auc < LEAST_AUC


def load(name: str, root: Path = RESULTS) -> DataSet | None:
    """Return what is known of a folder; None if it has no results yet."""
    plan, folder = BENCHMARKS / f"{PLANS[name]}.toml", root / name
    configurations = read_configurations(plan)
    results = read_results(folder, configurations)
    if not results:
        return None
    is_read = (folder / TEST_READ).exists()
    if not is_read:
        results = [result.on_validation() for result in results]
    tuning = read_plan_file(plan).get("tuning", "clip")
    comparison = compare_results(results, list_pairs(configurations), tuning)
    aucs = [own["auc"].mean for own in comparison.summaries.values() if "auc" in own]
    clips = "test" if is_read else "validation"
    return DataSet(name, clips, comparison, max(aucs, default=None))


@cache
def load_all(root: Path = RESULTS) -> dict[str, DataSet]:
    """Return folder -> what is known of it, of those with results."""
    return {name: known for name in PLANS if (known := load(name, root)) is not None}


def summary(root: Path = RESULTS) -> str:
    """Return one line per data set: whether the hierarchy helps there, over all poolings."""
    lines = []
    for name, known in load_all(root).items():
        if PLANS[name] not in ("map", "map_lungs"):
            continue
        n_runs = sum(len(seeds) for seeds in known.comparison.seeds.values())
        joint = known.comparison.verdicts.get(f"means per seed: {HIERARCHY}")
        if known.too_hard:
            text = f"no verdict, since tags are learned too badly (AUC {known.auc:.2f})"
        elif joint is None:
            text = "not enough runs yet"
        else:
            text = joint.sentence()
        lines.append(f"- **{name}**: {text}; {n_runs} runs, {known.clips} clips.")
    return "\n".join(lines) if lines else "No runs yet."


def verdict_table(root: Path = RESULTS) -> str:
    """Return what every pair of every data set says."""
    rows = [
        (known.name, pair, "AUC of tags below 0.80" if known.too_hard else verdict.sentence())
        for known in load_all(root).values()
        for pair, verdict in known.comparison.verdicts.items()
    ]
    title = f"Differences in F1 with {100 * LEVEL:.0f} % confidence intervals over seeds and clips"
    return TextTable(title, ("data", "pair", "verdict"), tuple(rows)).to_markdown()


def effects(root: Path = RESULTS) -> dict[str, Effects]:
    """Return factor -> name -> difference in F1 and the ends of its interval, of what is known."""
    known = load_all(root)
    groups: dict[str, Effects] = {"Kind of data, hierarchical (5, 5, 5)": {}, "Tags": {}}
    of_kinds, of_tags = groups.values()
    for name, own in known.items():
        for pair, verdict in own.comparison.verdicts.items():
            if PLANS[name] in ("map", "map_lungs") and HIERARCHY in pair:
                of_kinds[f"{name}, all poolings"] = _ends(verdict)
            elif PLANS[name] in ("map", "map_lungs") and ", hierarchical minus" in pair:
                of_kinds[f"{name}, {pair.split(',')[0]}"] = _ends(verdict)
            elif PLANS[name] in ("map", "map_lungs") and "hierarchical, no GRU minus" in pair:
                of_kinds[f"{name}, linear, no GRU"] = _ends(verdict)
            elif PLANS[name] == "map_noise" and HIERARCHY not in pair:
                kind = name.removesuffix("-noise")
                of_tags[f"{kind}, {pair.split(',')[0]}"] = _ends(verdict)
    for factor, values in FACTORS.items():
        groups[factor] = {
            f"{value}, {pair.removesuffix(' minus single')}": _ends(verdict)
            for value, folder in values.items()
            for pair, verdict in _stages(known.get(folder))
        }
    return {title: own for title, own in groups.items() if own}


def _stages(known: DataSet | None) -> Iterator[tuple[str, Verdict]]:
    return iter(() if known is None else known.comparison.verdicts.items())


def _ends(verdict: Verdict) -> tuple[float, float, float]:
    return verdict.effect.difference, *verdict.effect.interval(LEVEL)


def draw(path: Path, root: Path = RESULTS) -> None:
    """Draw all effects, if there are any."""
    if groups := effects(root):
        save(plot_effects(groups, EQUIVALENCE, "F1, hierarchical minus single-level pooling"), path)


def main() -> None:
    """Print the table and draw the figure."""
    print(summary(), verdict_table(), sep="\n\n")
    draw(IMAGE)


if __name__ == "__main__":
    main()
