"""Generate the verdicts, tables and figure on hierarchical pooling in docs/results.md.

From benchmarks/results: a data set has the results of a plan, complete or not. Scores are those of
the test clips where the plan does not hold them back, or the folder records that those of all its
runs were read, and of the validation clips otherwise, as of all candidates beyond the paper. There
is no verdict on a pair of configurations that has fewer runs than the plan asks for, nor where
`earmark compare` has none: tags are learned too badly, or no output at all would be better.

    python -m docs.hierarchy      prints the tables and writes docs/images/map.png
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

import numpy as np

from docs.results import BENCHMARKS
from earmark.experiments.compare import list_test_reads, read_results
from earmark.experiments.configurations import (
    Configuration,
    Pair,
    list_pairs,
    read_configurations,
)
from earmark.experiments.plan_file import read_least_auc, read_plan_file
from earmark.experiments.run import RunResult
from earmark.experiments.table import METRICS, Comparison, compare_results, list_tunings
from earmark.metrics.report import TextTable
from earmark.metrics.run_comparison import RunDifference, compare_runs
from earmark.metrics.verdict import EQUIVALENCE, LEVEL, Verdict
from earmark.plots import plot_effects, save

RESULTS = BENCHMARKS / "results"
IMAGE = Path(__file__).parent / "images" / "map.png"
NOTHING = "No runs yet.\n"
HIERARCHY = "hierarchical minus single"
CHANGE = "Hierarchical (5, 5, 5) minus single-level"
EARLIER = ("pooling", "pooling")  # scenes of ESC-50, a network without GRU
LENGTHS = {x: f"map/procedural-length{x}" for x in ("0.3", "1", "3", "6")}
TITLES: Mapping[str, str] = {  # folder of results -> what tables call its data
    "pooling": "ESC-50 scenes, no GRU",
    "map/esc50": "ESC-50 scenes",
    "map/digits-backgrounds": "spoken digits",
    "map/procedural": "procedural sounds",
    "map/lungs": "lung sounds",
    **{folder: f"procedural sounds of {x} s" for x, folder in LENGTHS.items()},
    "map/procedural-clip30": "procedural sounds, clips of 30 s",
    "map/procedural-events1": "procedural sounds, one short event per clip",
    "map/procedural-events8": "procedural sounds, eight short events per clip",
}
# Folder and plan. Several plans share a folder, and so the runs that they have in common.
KINDS = (
    EARLIER,
    ("map/digits-backgrounds", "map"),
    ("map/procedural", "map"),
    ("map/lungs", "map_lungs"),
)
OF_LENGTHS = tuple((folder, "map_lengths") for folder in LENGTHS.values())
OF_OTHER_STAGES = tuple((LENGTHS[x], "map_stages") for x in ("1", "3"))
OF_OTHER_CLIPS = (
    ("map/procedural-clip30", "map_clips"),
    ("map/procedural-events1", "map_events"),
    ("map/procedural-events8", "map_events"),
    ("map/digits-backgrounds", "map_noise"),
)
BEYOND = (
    ("map/digits-backgrounds", "map_beyond"),
    ("map/procedural", "map_beyond"),
    ("map/esc50", "map_beyond_esc50"),
)
PLANS = (
    *KINDS,
    ("map/digits-backgrounds", "map_structures"),
    ("map/procedural", "map_structures"),
    ("map/digits-backgrounds", "map_long"),
    *OF_LENGTHS,
    *OF_OTHER_STAGES,
    *OF_OTHER_CLIPS,
    *BEYOND,
)
OF_SOUNDS = {"spoken digits": "map/digits", "procedural sounds": "map/procedural"}
SCORES = (
    *("f1", "er", "event_f1", "wide_event_f1", "intersection_f1", "length_ratio"),
    *("psds1", "psds2", "map", "auc"),
)
DIFFERENCES = (
    *("f1", "er", "event_f1", "wide_event_f1", "intersection_f1", "length_ratio"),
    *("psds1", "psds2", "map"),
)
CANDIDATE_SCORES = ("event_f1", "f1", "intersection_f1", "psds1", "map")
TUNINGS_SHOWN = ("clip", "clip_and_frame", "strong")
JOINT = ("f1", "event_f1", "wide_event_f1", "intersection_f1", "psds1")
ORACLE = Pair("linear, single", "oracle")
TUNED = ("f1", "event_f1", "intersection_f1")
DRAWN = ("f1", "event_f1", "intersection_f1", "psds1")
OF_KINDS = "Kind of data, hierarchical (5, 5, 5)"
OF_LENGTH = "Event length, procedural sounds, (5, 5, 5)"
OF_STAGES = "Other stages"
OF_CLIPS = "Clips and tags, (5, 5, 5)"
Effects = dict[str, dict[str, tuple[float, float, float]]]


@dataclass(frozen=True)
class DataSet:
    """What is known of the runs of a plan in a folder: the results and the statistics."""

    folder: str
    plan_name: str
    plan: Mapping[str, Configuration]
    settings: Mapping[str, Mapping[str, object]]  # of all configurations, by section
    results: list[RunResult]  # with the scores of the clips that count
    clips: str  # "test" or "validation"
    comparison: Comparison

    @property
    def key(self) -> tuple[str, str]:
        """Folder and plan."""
        return self.folder, self.plan_name

    @property
    def title(self) -> str:
        """How tables name its data."""
        return TITLES[self.folder]

    @property
    def label(self) -> str:
        """The title, and what no test clips show."""
        return self.title if self.clips == "test" else f"{self.title} (validation)"

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
        verdict = self.verdict(pair)
        return verdict.sentence() if verdict.refusal else ""

    def verdict(self, pair: Pair) -> Verdict:
        """Return what a pair would say if nothing was against it."""
        return self.comparison.verdicts[pair.title]

    def sentence(self, pair: Pair) -> str:
        """Return what it says in words, or why it may not."""
        return self.refusal(pair) or self.verdict(pair).sentence()


def load(folder: str, plan_name: str, root: Path = RESULTS) -> DataSet | None:
    """Return what is known of a plan in a folder; None if it has no results yet."""
    plan, path = BENCHMARKS / f"{plan_name}.toml", root / folder
    configurations, tree = read_configurations(plan), read_plan_file(plan)
    results = read_results(path, configurations)
    if not results:
        return None
    known = {x for entry in list_test_reads(path) if entry["plan"] == plan.name
             for x in entry["fingerprints"]}  # fmt: skip
    is_read = not tree.get("hold_test") or known.issuperset(x.fingerprint for x in results)
    is_read = is_read and (folder, plan_name) not in BEYOND  # which are judged on validation clips
    shown = results if is_read else [result.on_validation() for result in results]
    comparison = compare_results(
        shown,
        list_pairs(configurations),
        tree.get("tuning", "clip"),
        least_auc=read_least_auc(tree, plan),
    )
    clips, settings = "test" if is_read else "validation", tree.get("settings", {})
    return DataSet(folder, plan_name, configurations, settings, shown, clips, comparison)


@cache
def load_all(root: Path = RESULTS) -> dict[tuple[str, str], DataSet]:
    """Return folder and plan -> what is known of them, of those with results."""
    return {key: known for key in PLANS if (known := load(*key, root)) is not None}


def summary(root: Path = RESULTS) -> str:
    """Return one line per kind of data: whether the hierarchy helps there, per pooling."""
    lines = []
    for key, known in load_all(root).items():
        if key not in KINDS:
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


def joint_table(root: Path = RESULTS) -> str:
    """Return what the paper's hierarchy changes in the mean over all conditions of linear pooling.

    Conditions are the pairs that have a verdict or could have one; the longer training of networks
    of another is not one more. A run counts as the mean of those with its seed.
    """
    rows = []
    for title, folder in OF_SOUNDS.items():
        pairs = [
            (known, pair)
            for known in load_all(root).values()
            for pair in known.comparison.pairs
            if known.folder.startswith(folder) and known.plan_name != "map_long"
            and _is_hierarchy(known, pair) and not known.refusal(pair)
            and not {"exp", "attention"} & {*pair.configuration.split(", ")}
        ]  # fmt: skip
        if len(pairs) < 2 or len({known.clips for known, _ in pairs}) > 1:
            continue
        clips = "" if pairs[0][0].clips == "test" else " (validation)"
        for tuning in ("clip", "strong"):
            found = [_mean_difference(pairs, name, tuning) for name in JOINT]
            texts = [_text(x) if x else "-" for x in found]
            rows.append((f"{title}{clips}", str(len(pairs)), tuning, *texts))
    columns = ("sounds", "conditions", "tuning", *(METRICS[x].title for x in JOINT))
    title = f"{CHANGE}, linear pooling, mean over conditions [95 % confidence interval over seeds]"
    return _table(title, columns, rows)


def _mean_difference(
    pairs: Sequence[tuple[DataSet, Pair]], name: str, tuning: str
) -> RunDifference | None:
    """Return the difference of the means over pairs, seed by seed; None if one lacks the score."""
    metric, means = METRICS[name], []
    for names in zip(*((pair.baseline, pair.configuration) for _, pair in pairs), strict=True):
        values = [
            [
                result.scores.get(metric.group_in(tuning), {}).get(metric.name, np.nan)
                for result in known.results
                if result.configuration == own
            ]
            for (known, _), own in zip(pairs, names, strict=True)
        ]
        means.append(np.mean(values, axis=0).tolist())
    return None if np.isnan(means).any() else compare_runs(*means)


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
        if known.key == EARLIER or not pairs:
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
                texts = _intervals_of(compared.pairs[pair], TUNED)
                rows.append((_title(known, pair), tuning, f"{rate:.2f}", *texts))
    columns = ("data, pooling", "tuning", "ER, single-level", *(METRICS[x].title for x in TUNED))
    return _table(f"{CHANGE}, by tuning of the thresholds", columns, rows)


def _is_hierarchy(known: DataSet, pair: Pair) -> bool:
    """Return whether a pair is the paper's hierarchy against single-level pooling."""
    if known.key in BEYOND:
        return False
    return "hierarchical" in pair.configuration.split(", ") or pair.configuration == "(5, 5, 5)"


def _title(known: DataSet, pair: Pair) -> str:
    """Return data and pooling of such a pair."""
    return ", ".join(filter(None, (known.label, _variant(pair))))


def _variant(pair: Pair) -> str:
    """Return what both sides of such a pair have in common."""
    parts = pair.configuration.split(", ")
    return (
        "" if pair.configuration[0] == "(" else ", ".join(x for x in parts if x != "hierarchical")
    )


def _intervals_of(metrics: Mapping[str, RunDifference], names: Sequence[str]) -> list[str]:
    found = [metrics.get(name) for name in names]
    return [_text(x) if x else "-" for x in found]


def _text(x: RunDifference) -> str:
    return f"{x.difference:+.3f} [{x.low:+.3f}, {x.high:+.3f}]"


def verdict_table(root: Path = RESULTS) -> str:
    """Return what every pair of every data set says."""
    rows = [
        (known.label, pair.title, known.sentence(pair))
        for known in load_all(root).values()
        if known.key not in BEYOND
        for pair in known.comparison.pairs
    ]
    title = f"Differences in F1 with {100 * LEVEL:.0f} % confidence intervals over seeds and clips"
    return _table(title, ("data", "pair", "verdict"), rows)


def score_table(root: Path = RESULTS) -> str:
    """Return the mean scores of every configuration of the map."""
    known = [own for own in load_all(root).values()
             if own.key != EARLIER and own.key not in BEYOND]  # fmt: skip
    return _scores("Mean over seeds", known)


def candidate_table(root: Path = RESULTS) -> str:
    """Return what the candidates beyond the paper change, where one wins, and the oracle's lead.

    On validation clips, always: by the rule of benchmarks/map_beyond.toml, event-based F1 must be
    ahead, with an interval over seeds above 0, and segment-based F1 not behind.
    """
    rows = []
    for known in load_all(root).values():
        if known.key not in BEYOND:
            continue
        for pair, metrics in known.comparison.pairs.items():
            if refusal := known.refusal(pair):
                result = refusal.partition(":")[0]
            else:
                result = judge_candidate(metrics)
            rows.append((known.title, pair.configuration, *_gains(known.results, pair), result))
        plan = read_configurations(BENCHMARKS / "map.toml")
        of_map = [x.on_validation() for x in read_results(root / known.folder, plan)]
        if any(result.configuration == ORACLE.configuration for result in of_map):
            rows.append((known.title, ORACLE.configuration, *_gains(of_map, ORACLE), "-"))
    columns = (
        *("data", "candidate", METRICS["event_f1"].title, "event F1, strong"),
        *(METRICS[x].title for x in CANDIDATE_SCORES[1:]),
        "by the rule",
    )
    title = "Candidates minus linear, single, validation clips: mean [95 % interval over seeds]"
    return _table(title, columns, rows)


def _gains(results: Sequence[RunResult], pair: Pair) -> list[str]:
    """Return the differences of a pair; that of event-based F1 also with thresholds tuned on it."""
    found = {
        tuning: compare_results(results, [pair], tuning).pairs[pair]
        for tuning in list_tunings(results)
        if tuning in ("clip", "strong")
    }
    first, *others = _intervals_of(found["clip"], CANDIDATE_SCORES)
    return [first, *_intervals_of(found.get("strong", {}), CANDIDATE_SCORES[:1]), *others]


def judge_candidate(metrics: Mapping[str, RunDifference]) -> str:
    """Return whether a candidate wins on a kind of data."""
    if metrics["event_f1"].high < 0:
        return "behind"
    if metrics["event_f1"].low <= 0:
        return "undecided"
    return "wins" if metrics["f1"].high >= 0 else "ahead, but F1 behind"


def beyond_table(root: Path = RESULTS) -> str:
    """Return the mean scores of the candidates beyond the paper."""
    known = [own for own in load_all(root).values() if own.key in BEYOND]
    return _scores("Candidates beyond the paper, mean over seeds", known)


def _scores(title: str, data: list[DataSet]) -> str:
    rows: dict[tuple[str, str], tuple[str, ...]] = {}
    for known in data:
        for name, own in known.comparison.summaries.items():
            texts = (f"{own[x].mean:.3f}" if x in own else "-" for x in SCORES)
            row = (f"{known.title}, {known.clips}", name, str(len(known.comparison.seeds[name])))
            # Plans that share a folder have some runs in common.
            rows.setdefault((known.folder, name), (*row, *texts))
    columns = ("data", "configuration", "runs", *(METRICS[x].title for x in SCORES))
    return _table(title, columns, list(rows.values()))


def training_table(root: Path = RESULTS) -> str:
    """Return how long the runs were trained, by data set and configuration."""
    rows = {}  # by folder, too: plans that share one have some runs in common
    for known in load_all(root).values():
        by_name: dict[str, list[Mapping[str, float]]] = {}
        for result in known.results:
            if known.key != EARLIER and "n_epochs" in result.training:
                by_name.setdefault(result.configuration, []).append(result.training)
        for name, trained in by_name.items():
            most = _max_epochs(known, name)
            epochs, best, seconds = (
                median(own[x] for own in trained) for x in ("n_epochs", "best_epoch", "seconds")
            )
            at_end = sum(own["best_epoch"] == most - 1 for own in trained)
            counts = (f"{epochs:g}", f"{best + 1:g}", f"{at_end} of {len(trained)}")
            texts = (known.title, name, str(most), *counts, f"{seconds / 60:.1f}")
            rows[known.folder, name] = texts
    columns = (
        *("data", "configuration", "epochs at most", "epochs, median", "best epoch, median"),
        *("still rising at the end", "minutes, median"),
    )
    return _table("How long the runs were trained", columns, list(rows.values()))


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
    groups: dict[str, Effects] = {}
    for known in load_all(root).values():
        for pair in known.comparison.pairs:
            if (group := _group(known, pair)) and not known.refusal(pair):
                title, name = group
                groups.setdefault(title, {})[name] = _intervals(known, pair)
    order = (OF_KINDS, OF_LENGTH, OF_STAGES, OF_CLIPS)
    return {title: groups[title] for title in order if title in groups}


def _group(known: DataSet, pair: Pair) -> tuple[str, str] | None:
    """Return the factor of a pair in the figure, and its name there; None if it is not drawn."""
    if known.key in BEYOND:
        return None
    if known.key in OF_LENGTHS:
        return OF_LENGTH, known.label.removeprefix("procedural sounds of ")
    if _is_hierarchy(known, pair):
        return OF_CLIPS if known.key in OF_OTHER_CLIPS else OF_KINDS, _title(known, pair)
    if known.key in OF_OTHER_STAGES or pair.change == "other stages minus single":
        return OF_STAGES, f"{known.label}, {pair.configuration.removeprefix('linear, ')}"
    return None


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


# In the order of docs/results.md.
PARTS = (
    joint_table,
    summary,
    length_table,
    difference_table,
    tuning_table,
    verdict_table,
    score_table,
    training_table,
    candidate_table,
    beyond_table,
)


def main() -> None:
    """Print the tables and draw the figure."""
    print(*(make() for make in PARTS), sep="\n\n")
    draw(IMAGE)


if __name__ == "__main__":
    main()
