"""Generate the verdicts, tables and figure on hierarchical pooling in docs/results.md.

From benchmarks/results: a data set has the results of a plan, complete or not. Scores are those of
the test clips where the plan does not hold them back, or the folder records that they were read,
and of the validation clips otherwise.

    python -m docs.hierarchy      prints the tables and writes docs/images/map.png
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

from benchmarks.kinds import VARIATIONS
from docs.results import BENCHMARKS
from earmark.experiments.compare import TEST_READ, read_results
from earmark.experiments.configurations import list_pairs, read_configurations
from earmark.experiments.plan_file import read_plan_file
from earmark.experiments.run import RunResult
from earmark.experiments.table import METRICS, Comparison, compare_results
from earmark.metrics.report import TextTable
from earmark.metrics.run_comparison import RunDifference
from earmark.metrics.verdict import EQUIVALENCE, LEVEL, Verdict
from earmark.plots import plot_effects, save

RESULTS = BENCHMARKS / "results"
IMAGE = Path(__file__).parent / "images" / "map.png"
LEAST_AUC = 0.80  # of the tags; below, what decides is recognition, not pooling
HIERARCHY = "hierarchical minus single"
EARLIER = "pooling"  # scenes of ESC-50, a network without GRU
KINDS: Mapping[str, str] = {  # folder of a kind of data -> its title
    EARLIER: "ESC-50 scenes, no GRU",
    "map/esc50": "ESC-50 scenes",
    "map/digits-backgrounds": "spoken digits",
    "map/procedural": "procedural sounds",
    "map/lungs": "lung sounds",
}
MORE = ("noise", "wide", "beyond")  # further plans on the same data
PLANS: Mapping[str, str] = {  # folder -> plan
    **{folder: Path(folder).name if folder == EARLIER else "map" for folder in KINDS},
    "map/lungs": "map_lungs",
    **{
        f"map/{name}": "map_lengths" if "-length" in name else "map_factors"
        for name in VARIATIONS
        if f"map/{name}" not in KINDS
    },
    **{f"{x}-{plan}": f"map_{plan}" for plan in MORE for x in KINDS if "lungs" not in x},
    "map/lungs-beyond": "map_lungs_beyond",
}
FACTORS: Mapping[str, Mapping[str, str]] = {  # factor -> value -> folder
    "Event length, procedural sounds": {
        f"{x} s": f"map/procedural-length{x}" for x in ("0.3", "1", "3", "6")
    },
    "Clip length": {
        f"{kind}, {x} s": f"map/{kind}-clip{x}"
        for kind in ("procedural", "digits")
        for x in (30, 60)
    },
    "Events per clip, procedural sounds": {str(x): f"map/procedural-events{x}" for x in (1, 3, 8)},
}
SCORES = ("f1", "er", "event_f1", "wide_event_f1", "intersection_f1", "psds1", "psds2", "map")
DIFFERENCES = ("f1", "er", "d", "event_f1", "intersection_f1", "map")
Effects = dict[str, tuple[float, float, float]]


@dataclass(frozen=True)
class DataSet:
    """What is known of a folder: its results, the statistics, and how well tags are learned."""

    folder: str
    results: list[RunResult]
    clips: str  # "test" or "validation"
    comparison: Comparison
    auc: float | None  # the best mean over the runs of a configuration

    @property
    def title(self) -> str:
        """How tables name it."""
        return KINDS.get(self.folder, self.folder.removeprefix("map/"))

    @property
    def too_hard(self) -> bool:
        """Whether tags are learned too badly for a verdict on pooling."""
        return self.auc is not None and self.auc < LEAST_AUC


def load(name: str, root: Path = RESULTS) -> DataSet | None:
    """Return what is known of a folder; None if it has no results yet."""
    plan, folder = BENCHMARKS / f"{PLANS[name]}.toml", root / name
    configurations, tree = read_configurations(plan), read_plan_file(plan)
    results = read_results(folder, configurations)
    if not results:
        return None
    is_read = not tree.get("hold_test") or (folder / TEST_READ).exists()
    shown = results if is_read else [result.on_validation() for result in results]
    comparison = compare_results(shown, list_pairs(configurations), tree.get("tuning", "clip"))
    aucs = [own["auc"].mean for own in comparison.summaries.values() if "auc" in own]
    clips = "test" if is_read else "validation"
    return DataSet(name, results, clips, comparison, max(aucs, default=None))


@cache
def load_all(root: Path = RESULTS) -> dict[str, DataSet]:
    """Return folder -> what is known of it, of those with results."""
    return {name: known for name in PLANS if (known := load(name, root)) is not None}


def _kinds(root: Path) -> list[DataSet]:
    return [known for name, known in load_all(root).items() if name in KINDS]


def summary(root: Path = RESULTS) -> str:
    """Return one line per kind of data: whether the hierarchy helps there, over all poolings."""
    lines = []
    for known in _kinds(root):
        verdicts = known.comparison.verdicts
        joint = verdicts.get(f"means per seed: {HIERARCHY}")
        linear = verdicts.get("linear, hierarchical minus linear, single")
        if known.too_hard:
            text = f"no verdict, since tags are learned too badly (AUC {known.auc:.2f})"
        elif joint is None or linear is None:
            text = "not enough runs yet"
        else:
            text = f"linear {linear.sentence()}; all poolings together {joint.sentence()}"
        lines.append(f"- **{known.title}**: {text}. {_source(known)}")
    return "\n".join(lines) + "\n" if lines else "No runs yet.\n"


def _source(known: DataSet) -> str:
    return f"{len(known.results)} runs, {known.clips} clips."


def verdict_table(root: Path = RESULTS) -> str:
    """Return what every pair of every data set says."""
    rows = [
        (known.title, pair, "AUC of tags below 0.80" if known.too_hard else verdict.sentence())
        for known in load_all(root).values()
        if not _is_beyond(known)
        for pair, verdict in known.comparison.verdicts.items()
    ]
    title = f"Differences in F1 with {100 * LEVEL:.0f} % confidence intervals over seeds and clips"
    return TextTable(title, ("data", "pair", "verdict"), tuple(rows)).to_markdown()


def difference_table(root: Path = RESULTS) -> str:
    """Return how the paper's hierarchy changes each score, by data set and pooling function."""
    rows = []
    for known in load_all(root).values():
        for pair, metrics in known.comparison.pairs.items():
            name = pair.configuration.removesuffix(", hierarchical").removesuffix("(5, 5, 5)")
            if _is_beyond(known) or name == pair.configuration:
                continue
            texts = [_interval(metrics[x]) if x in metrics else "-" for x in DIFFERENCES]
            title = f"{known.title}, {name}" if name else known.title
            rows.append((title, str(metrics["f1"].n_runs), *texts))
    columns = ("data, pooling", "pairs", *(METRICS[x].title for x in DIFFERENCES))
    title = "Hierarchical (5, 5, 5) minus single-level: mean [95 % confidence interval over seeds]"
    return TextTable(title, columns, tuple(rows)).to_markdown()


def _interval(difference: RunDifference) -> str:
    return f"{difference.difference:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"


def score_table(root: Path = RESULTS) -> str:
    """Return the mean scores of every configuration of the map."""
    known = [own for own in load_all(root).values()
             if own.folder != EARLIER and not _is_beyond(own)]  # fmt: skip
    return _scores("Mean over seeds", known)


def beyond_table(root: Path = RESULTS) -> str:
    """Return the mean scores of the candidates beyond the paper."""
    known = [own for own in load_all(root).values() if _is_beyond(own)]
    return _scores("Candidates beyond the paper, mean over seeds", known)


def _is_beyond(known: DataSet) -> bool:
    return known.folder.endswith("-beyond")


def _scores(title: str, data: list[DataSet]) -> str:
    rows = [
        (
            f"{known.title}, {known.clips}",
            name,
            str(len(known.comparison.seeds[name])),
            *(f"{own[x].mean:.3f}" if x in own else "-" for x in (*SCORES, "auc")),
        )
        for known in data
        for name, own in known.comparison.summaries.items()
    ]
    columns = ("data", "configuration", "runs", *(METRICS[x].title for x in (*SCORES, "auc")))
    return TextTable(title, columns, tuple(rows)).to_markdown()


def training_table(root: Path = RESULTS) -> str:
    """Return how long the runs were trained, by data set."""
    rows = []
    for known in load_all(root).values():
        trained = [result.training for result in known.results if "n_epochs" in result.training]
        if known.folder == EARLIER or not trained:
            continue
        epochs, best, seconds = (
            median(own[name] for own in trained) for name in ("n_epochs", "best_epoch", "seconds")
        )
        longest = max(own["n_epochs"] for own in trained)
        at_end = sum(own["best_epoch"] == longest - 1 for own in trained)
        rows.append(
            (
                known.title,
                str(len(trained)),
                f"{epochs:g}",
                f"{best + 1:g}",
                f"{at_end} of {len(trained)}",
                f"{seconds / 60:.1f}",
            )
        )
    columns = (
        "data",
        "runs",
        "epochs, median",
        "best epoch, median",
        "best is the last possible",
        "minutes, median",
    )
    return TextTable("How long the runs were trained", columns, tuple(rows)).to_markdown()


def effects(root: Path = RESULTS) -> dict[str, Effects]:
    """Return factor -> name -> difference in F1 and the ends of its interval, of what is known."""
    known = load_all(root)
    groups: dict[str, Effects] = {"Kind of data, hierarchical (5, 5, 5)": {}, "Tags": {}}
    of_kinds, of_tags = groups.values()
    for name, own in known.items():
        for pair, verdict in own.comparison.verdicts.items():
            if name in KINDS and HIERARCHY in pair and "no GRU" not in pair:
                of_kinds[f"{own.title}, all poolings"] = _ends(verdict)
            elif name in KINDS and ", hierarchical minus" in pair:
                of_kinds[f"{own.title}, {pair.split(',')[0]}"] = _ends(verdict)
            elif name in KINDS and "hierarchical, no GRU minus" in pair:
                of_kinds[f"{own.title}, linear, no GRU"] = _ends(verdict)
            elif PLANS[name] == "map_noise" and HIERARCHY not in pair:
                kind = KINDS[name.removesuffix("-noise")]
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
    """Print the tables and draw the figure."""
    made = (summary, difference_table, verdict_table, score_table, training_table, beyond_table)
    print(*(make() for make in made), sep="\n\n")
    draw(IMAGE)


if __name__ == "__main__":
    main()
