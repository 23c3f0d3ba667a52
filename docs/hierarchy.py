"""Generate the verdicts, tables and figure on hierarchical pooling in docs/results.md.

From benchmarks/results: a data set has the results of a plan, complete or not. Scores are those of
the test clips where the plan does not hold them back, or the folder records that they were read,
and of the validation clips otherwise. There is no verdict on a pair of configurations

    that has fewer runs than the plan asks for, or
    of which neither learns tags well enough (`LEAST_AUC`): recognition decides, not pooling, or
    of which both have an error rate above 1: no output at all would be better.

    python -m docs.hierarchy      prints the tables and writes docs/images/map.png
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

from benchmarks.kinds import VARIATIONS
from docs.results import BENCHMARKS
from earmark.experiments.compare import TEST_READ, read_results
from earmark.experiments.configurations import (
    Configuration,
    Pair,
    list_pairs,
    read_configurations,
)
from earmark.experiments.plan_file import read_plan_file
from earmark.experiments.run import RunResult
from earmark.experiments.table import METRICS, Comparison, compare_results
from earmark.metrics.report import TextTable
from earmark.metrics.run_comparison import RunDifference
from earmark.metrics.verdict import EQUIVALENCE, LEVEL, Verdict
from earmark.plots import plot_effects, save

RESULTS = BENCHMARKS / "results"
IMAGE = Path(__file__).parent / "images" / "map.png"
LEAST_AUC = 0.80  # of the tags
NOTHING = "No runs yet.\n"
HIERARCHY = "hierarchical minus single"
CHANGE = "Hierarchical (5, 5, 5) minus single-level"
EARLIER = "pooling"  # scenes of ESC-50, a network without GRU
KINDS: Mapping[str, str] = {  # folder of a kind of data -> its title
    EARLIER: "ESC-50 scenes, no GRU",
    "map/esc50": "ESC-50 scenes",
    "map/digits-backgrounds": "spoken digits",
    "map/procedural": "procedural sounds",
    "map/lungs": "lung sounds",
}
SCENES = ("map/esc50", "map/digits-backgrounds", "map/procedural")
MORE: Mapping[str, str] = {"noise": ", noisy tags", "wide": "", "beyond": ", beyond"}
OWN_PLANS = {"length": "map_lengths", "clip30": "map_clip30", "clip60": "map_clip60"}
PLANS: Mapping[str, str] = {  # folder -> plan
    EARLIER: "pooling",
    **dict.fromkeys(SCENES, "map"),
    "map/lungs": "map_lungs",
    **{
        f"map/{name}": next((x for key, x in OWN_PLANS.items() if key in name), "map_factors")
        for name in VARIATIONS
        if f"map/{name}" not in KINDS
    },
    **{f"{scenes}-{plan}": f"map_{plan}" for plan in MORE for scenes in SCENES},
    "map/lungs-beyond": "map_lungs_beyond",
}
# factor -> value in the figure -> folder, title in tables
FACTORS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Event length, procedural sounds": {
        f"{x} s": (f"map/procedural-length{x}", f"procedural sounds of {x} s")
        for x in ("0.3", "1", "3", "6")
    },
    "Clip length": {
        f"{kind}, {x} s": (f"map/{kind}-clip{x}", f"{title}, clips of {x} s")
        for kind, title in (
            ("procedural", "procedural sounds"),
            ("digits", "spoken digits over noise"),
        )
        for x in (30, 60)
    },
    "Events per clip, procedural sounds": {
        str(x): (f"map/procedural-events{x}", f"procedural sounds, {x} per clip") for x in (1, 3, 8)
    },
}
TITLES: Mapping[str, str] = {  # folder -> what tables call it
    **KINDS,
    **{folder: title for values in FACTORS.values() for folder, title in values.values()},
}
SCORES = (
    *("f1", "er", "event_f1", "wide_event_f1", "intersection_f1", "length_ratio"),
    *("psds1", "psds2", "map", "auc"),
)
DIFFERENCES = (
    *("f1", "er", "event_f1", "intersection_f1", "length_ratio"),
    *("psds1", "psds2", "map"),
)
TUNINGS_SHOWN = ("clip", "clip_and_frame", "strong")
DRAWN = ("f1", "event_f1", "intersection_f1")
Effects = dict[str, dict[str, tuple[float, float, float]]]


@dataclass(frozen=True)
class DataSet:
    """What is known of a folder: its plan, its results and the statistics."""

    folder: str
    plan: Mapping[str, Configuration]
    settings: Mapping[str, Mapping[str, object]]  # of all configurations, by section
    results: list[RunResult]  # with the scores of the clips that count
    clips: str  # "test" or "validation"
    comparison: Comparison

    @property
    def title(self) -> str:
        """How tables name it."""
        base, _, more = self.folder.rpartition("-")
        if base in KINDS and more in MORE:
            return f"{KINDS[base]}{MORE[more]}"
        return TITLES.get(self.folder, self.folder.removeprefix("map/"))

    @property
    def n_planned(self) -> int:
        """How many runs the plan has."""
        return sum(configuration.seeds for configuration in self.plan.values())

    def missing(self, pair: Pair) -> str:
        """Return how many runs of a pair there are; empty if all."""
        sides = (pair.configuration, pair.baseline)
        n_done = len(set.intersection(*({*self.comparison.seeds.get(x, ())} for x in sides)))
        n_planned = min(self.plan[name].seeds for name in sides)
        return f"{n_done} of {n_planned} pairs of runs so far" if n_done < n_planned else ""

    def refusal(self, pair: Pair) -> str:
        """Return why a pair has no verdict, and what was measured; empty if it has one."""
        if missing := self.missing(pair):
            return missing
        known = [self.comparison.summaries[name] for name in (pair.configuration, pair.baseline)]
        aucs = [own["auc"].mean for own in known if "auc" in own]
        rates = [own["er"].mean for own in known]
        if aucs and max(aucs) < LEAST_AUC:
            reason = f"tags are learned too badly (AUC {max(aucs):.2f})"
        elif min(rates) > 1:
            reason = f"no output would be better (ER {min(rates):.2f})"
        else:
            return ""
        effect = self.verdict(pair).effect
        low, high = effect.interval(LEVEL)
        return f"no verdict, since {reason}: {effect.difference:+.3f} F1 [{low:+.3f}, {high:+.3f}]"

    def verdict(self, pair: Pair) -> Verdict:
        """Return what a pair would say if nothing was against it."""
        return self.comparison.verdicts[f"{pair.configuration} minus {pair.baseline}"]

    def sentence(self, pair: Pair) -> str:
        """Return what it says in words, or why it may not."""
        return self.refusal(pair) or self.verdict(pair).sentence()


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
    clips = "test" if is_read else "validation"
    return DataSet(name, configurations, tree.get("settings", {}), shown, clips, comparison)


@cache
def load_all(root: Path = RESULTS) -> dict[str, DataSet]:
    """Return folder -> what is known of it, of those with results."""
    return {name: known for name in PLANS if (known := load(name, root)) is not None}


def summary(root: Path = RESULTS) -> str:
    """Return one line per kind of data: whether the hierarchy helps there, per pooling."""
    lines = []
    for name, known in load_all(root).items():
        if name not in KINDS:
            continue
        pairs = [pair for pair in known.comparison.pairs if pair.change == HIERARCHY]
        parts = [f"{_pooling(pair)} {known.sentence(pair)}" for pair in pairs]
        n_runs = f"{len(known.results)} of {known.n_planned} runs, {known.clips} clips"
        lines.append(
            f"- **{known.title}** ({n_runs}): {'; '.join(parts) or 'fewer than two pairs of runs'}."
        )
    return "\n".join(lines) + "\n" if lines else NOTHING


def _pooling(pair: Pair) -> str:
    """Return the pooling function of a pair of the paper's structures; empty if all have one."""
    return pair.configuration.partition(", ")[0] if "," in pair.baseline else ""


def difference_table(root: Path = RESULTS) -> str:
    """Return how the paper's hierarchy changes each score, by data set and pooling function."""
    rows = []
    for known in load_all(root).values():
        for pair, metrics in known.comparison.pairs.items():
            if not _is_hierarchy(known, pair):
                continue
            n_runs = str(metrics["f1"].n_runs)
            rows.append((_title(known, pair), n_runs, *_intervals_of(metrics, DIFFERENCES)))
    columns = ("data, pooling", "pairs", *(METRICS[x].title for x in DIFFERENCES))
    return _table(f"{CHANGE}: mean [95 % confidence interval over seeds]", columns, rows)


def length_table(root: Path = RESULTS) -> str:
    """Return the length ratios, smallest first, and what the hierarchy changes."""
    shown, found = ("event_f1", "intersection_f1"), []
    for known in load_all(root).values():
        for pair, metrics in known.comparison.pairs.items():
            own = [known.comparison.summaries[x] for x in (pair.baseline, pair.configuration)]
            ratios = [x["length_ratio"].mean for x in own if "length_ratio" in x]
            if _is_hierarchy(known, pair) and not known.missing(pair) and len(ratios) == 2:
                texts = (*(f"{ratio:.2f}" for ratio in ratios), f"{own[0]['er'].mean:.2f}")
                texts += (str(metrics["f1"].n_runs), *_intervals_of(metrics, shown))
                found.append((ratios[0], (_title(known, pair), *texts)))
    columns = (
        *("data, pooling", "length ratio, single-level", "hierarchical", "ER, single-level"),
        *("pairs", *(METRICS[x].title for x in shown)),
    )
    title = f"{CHANGE}, by length ratio: mean [95 % confidence interval over seeds]"
    return _table(title, columns, [row for _, row in sorted(found)])


def tuning_table(root: Path = RESULTS) -> str:
    """Return what the paper's hierarchy changes, by tuning of the thresholds."""
    rows = []
    for known in load_all(root).values():
        pairs = [pair for pair in known.comparison.pairs if _is_hierarchy(known, pair)]
        pairs = [pair for pair in pairs if not known.missing(pair)]
        if known.folder == EARLIER or not pairs:
            continue
        names = {name for pair in pairs for name in (pair.configuration, pair.baseline)}
        results = [result for result in known.results if result.configuration in names]
        by_tuning = {
            tuning: compare_results(results, pairs, tuning)
            for tuning in TUNINGS_SHOWN
            if all(tuning in result.scores for result in results)
        }
        for pair in pairs:
            for tuning, compared in by_tuning.items():
                rate = compared.summaries[pair.baseline]["er"].mean
                texts = _intervals_of(compared.pairs[pair], DRAWN)
                rows.append((_title(known, pair), tuning, f"{rate:.2f}", *texts))
    columns = ("data, pooling", "tuning", "ER, single-level", *(METRICS[x].title for x in DRAWN))
    return _table(f"{CHANGE}, by tuning of the thresholds", columns, rows)


def _is_hierarchy(known: DataSet, pair: Pair) -> bool:
    """Return whether a pair is the paper's hierarchy against single-level pooling."""
    if known.folder.endswith("-beyond"):
        return False
    return "hierarchical" in pair.configuration.split(", ") or pair.configuration == "(5, 5, 5)"


def _title(known: DataSet, pair: Pair) -> str:
    """Return data and pooling of such a pair."""
    return ", ".join(filter(None, (known.title, _variant(pair))))


def _variant(pair: Pair) -> str:
    """Return what both sides of such a pair have in common."""
    parts = pair.configuration.split(", ")
    return (
        "" if pair.configuration[0] == "(" else ", ".join(x for x in parts if x != "hierarchical")
    )


def _intervals_of(metrics: Mapping[str, RunDifference], names: Sequence[str]) -> list[str]:
    found = [metrics.get(name) for name in names]
    return [f"{x.difference:+.3f} [{x.low:+.3f}, {x.high:+.3f}]" if x else "-" for x in found]


def verdict_table(root: Path = RESULTS) -> str:
    """Return what every pair of every data set says."""
    rows = [
        (known.title, f"{pair.configuration} minus {pair.baseline}", known.sentence(pair))
        for known in load_all(root).values()
        if not known.folder.endswith("-beyond")
        for pair in known.comparison.pairs
    ]
    title = f"Differences in F1 with {100 * LEVEL:.0f} % confidence intervals over seeds and clips"
    return _table(title, ("data", "pair", "verdict"), rows)


def score_table(root: Path = RESULTS) -> str:
    """Return the mean scores of every configuration of the map."""
    known = [own for own in load_all(root).values()
             if own.folder != EARLIER and not own.folder.endswith("-beyond")]  # fmt: skip
    return _scores("Mean over seeds", known)


def beyond_table(root: Path = RESULTS) -> str:
    """Return the mean scores of the candidates beyond the paper."""
    known = [own for own in load_all(root).values() if own.folder.endswith("-beyond")]
    return _scores("Candidates beyond the paper, mean over seeds", known)


def _scores(title: str, data: list[DataSet]) -> str:
    rows = [
        (
            f"{known.title}, {known.clips}",
            name,
            str(len(known.comparison.seeds[name])),
            *(f"{own[x].mean:.3f}" if x in own else "-" for x in SCORES),
        )
        for known in data
        for name, own in known.comparison.summaries.items()
    ]
    columns = ("data", "configuration", "runs", *(METRICS[x].title for x in SCORES))
    return _table(title, columns, rows)


def training_table(root: Path = RESULTS) -> str:
    """Return how long the runs were trained, by data set and configuration."""
    rows = []
    for known in load_all(root).values():
        by_name: dict[str, list[Mapping[str, float]]] = {}
        for result in known.results:
            if known.folder != EARLIER and "n_epochs" in result.training:
                by_name.setdefault(result.configuration, []).append(result.training)
        for name, trained in by_name.items():
            most = _max_epochs(known, name)
            epochs, best, seconds = (
                median(own[x] for own in trained) for x in ("n_epochs", "best_epoch", "seconds")
            )
            at_end = sum(own["best_epoch"] == most - 1 for own in trained)
            counts = (f"{epochs:g}", f"{best + 1:g}", f"{at_end} of {len(trained)}")
            rows.append((known.title, name, str(most), *counts, f"{seconds / 60:.1f}"))
    columns = (
        *("data", "configuration", "epochs at most", "epochs, median", "best epoch, median"),
        *("still rising at the end", "minutes, median"),
    )
    return _table("How long the runs were trained", columns, rows)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    table = TextTable(title, tuple(columns), tuple(map(tuple, rows)))
    return table.to_markdown() if rows else NOTHING


def _max_epochs(known: DataSet, name: str) -> int:
    own = known.plan[name].settings.get("training", {})
    return int(own.get("max_epochs", known.settings["training"]["max_epochs"]))


def effects(root: Path = RESULTS) -> dict[str, Effects]:
    """Return factor -> name -> score -> difference and the ends of its interval, of all verdicts.

    The interval of F1 is over seeds and clips, that of the others over seeds.
    """
    known = load_all(root)
    groups: dict[str, Effects] = {"Kind of data, hierarchical (5, 5, 5)": {}, "Tags": {}}
    of_kinds, of_tags = groups.values()
    for name, own in known.items():
        of_group = of_tags if PLANS[name] == "map_noise" else of_kinds
        if name not in KINDS and PLANS[name] not in ("map_noise", "map_wide"):
            continue
        for pair in own.comparison.pairs:
            if _is_hierarchy(own, pair) and not own.refusal(pair):
                of_group[f"{own.title}, {_variant(pair)}"] = _intervals(own, pair)
    for factor, values in FACTORS.items():
        groups[factor] = {
            f"{value}, {pair.configuration}": _intervals(known[folder], pair)
            for value, (folder, _) in values.items()
            if folder in known
            for pair in known[folder].comparison.pairs
            if not known[folder].refusal(pair)
        }
    return {title: own for title, own in groups.items() if own}


def _intervals(known: DataSet, pair: Pair) -> dict[str, tuple[float, float, float]]:
    metrics = known.comparison.pairs[pair]
    found = {METRICS[x].title: (metrics[x].difference, metrics[x].low, metrics[x].high)
             for x in DRAWN if x in metrics}  # fmt: skip
    effect = known.verdict(pair).effect
    found[METRICS["f1"].title] = (effect.difference, *effect.interval(LEVEL))
    return found


def draw(path: Path, root: Path = RESULTS) -> None:
    """Draw all effects, if there are any."""
    if groups := effects(root):
        save(plot_effects(groups, EQUIVALENCE), path)


def main() -> None:
    """Print the tables and draw the figure."""
    of_map = (
        summary,
        length_table,
        difference_table,
        tuning_table,
        verdict_table,
        score_table,
        training_table,
    )
    print(*(make() for make in (*of_map, beyond_table)), sep="\n\n")
    draw(IMAGE)


if __name__ == "__main__":
    main()
