"""The systems of the paper's Table 3: their published figures beside ours, and what they cost.

Conventions: a system is named by its preset of full width, `wang`; `wang-fast` is the fast one.
Published figures are segment-based ER and F1 (1 s, micro) on the development and the evaluation set
of DCASE 2017 task 4, from Table 3 of the paper; F1 of tags is that of subtask A on the evaluation
set, from the authors' abstracts and the challenge's result page. Measured figures are means over
runs, with the decision stage that a system was published with ("own") and with one for all
("shared": the tuning `clip_and_frame`).

A cost is arithmetic: multiply-adds of one clip, in training three times those of its forward pass
there, times clips and epochs, at a stated throughput. It is an upper bound where a training stops
early.
"""

from collections.abc import Iterable, Mapping
from math import prod
from typing import NamedTuple

from earmark.experiments.plan import Plan
from earmark.experiments.table import Comparison
from earmark.metrics.report import TextTable
from earmark.training.settings import Settings

TESTS = ("development", "evaluation")
DECISION_TUNINGS = {"own": "published", "shared": "clip_and_frame"}  # decision stage -> tuning
CLIP = 10.0  # seconds
# Multiply-adds per second and core in training, as docs/speed.md has them of `paper` and
# `paper-fast`: the first for networks above `LARGE` multiply-adds per clip.
THROUGHPUT = (35e9, 23e9)
LARGE = 1e9
# Network -> how many times slower it is than that: few maps, short filters, capsules. The second is
# measured by `make bench ONLY=kernels`; the first, of MLMS8 alone, with three of its eight nets;
# Surrey's in single precision, with other work on the cores.
SLOWER = {
    "surrey": (1.0, 1.5), "gccaps": (1.0, 1.4), "emsi": (1.0, 1.3), "mlms": (2.0, 10.0),
}  # fmt: skip
# Memory of `paper`, 5.8 GB: the outputs of all layers for a micro-batch, 7 times, and what torch
# and the program take.
OUTPUTS, PROGRAM = 7, 0.5e9

Figures = tuple[float, float]  # ER and F1


class System(NamedTuple):
    """A system of Table 3 and its published figures; None where nothing was published.

    >>> PUBLISHED_SYSTEMS["gccaps"].evaluation
    (0.76, 0.463)
    """

    title: str
    development: Figures | None
    evaluation: Figures | None
    tags: str  # F1 of subtask A
    published_as: str = ""  # where the published system is another, or more than one network


PUBLISHED_SYSTEMS: dict[str, System] = {
    "emsi-like": System(
        "EMSI-like", (0.71, 0.471), (0.66, 0.555), "0.521 to 0.526", "EMSI, an ensemble"
    ),
    "surrey": System("Surrey", (0.72, 0.497), (0.73, 0.518), "0.556", "an ensemble"),
    "mlms8": System("MLMS8", (0.84, 0.342), (0.75, 0.471), "0.471", "an ensemble"),
    "gccaps": System("GCCaps", None, (0.76, 0.463), "0.586", "the mean of 5 checkpoints"),
    "wang": System("Wang", (0.79, 0.454), None, "-", "linear softmax"),
}
# Configurations that score one checkpoint of a system -> the system; nothing was published of them.
ONE_CHECKPOINT: dict[str, str] = {"surrey, one checkpoint": "surrey"}
PAPER: dict[str, System] = {
    "linear, single": System("He et al., linear, single", (0.79, 0.426), (0.76, 0.478), "-"),
    "linear, hierarchical": System(
        "He et al., linear, hierarchical", (0.76, 0.465), (0.69, 0.534), "-"
    ),
}


def systems_table(comparisons: Mapping[str, Mapping[str, Comparison]]) -> TextTable:
    """Return Table 3 of the paper, with the measured rows of each system below its published one.

    Args:
        comparisons: test set -> tuning -> the statistics of the configurations; they are named as
            in `PUBLISHED_SYSTEMS`, and others are ours.

    >>> table = systems_table({})
    >>> table.rows[0]
    ('EMSI-like, published (EMSI, an ensemble)', '0.71', '0.471', '0.66', '0.555')
    """
    lines: list[tuple[str, ...]] = []

    def add(name: str, pairs: Iterable[Figures | None]) -> None:
        texts = [("-", "-") if x is None else (f"{x[0]:.2f}", f"{x[1]:.3f}") for x in pairs]
        lines.append((name, *(text for pair in texts for text in pair)))

    def add_measured(configuration: str, title: str, tuning: str) -> None:
        pairs = [measured_pair(comparisons.get(test, {}), configuration, tuning) for test in TESTS]
        if any(pairs):
            add(title, pairs)

    for name, system in PUBLISHED_SYSTEMS.items():
        note = f" ({system.published_as})" if system.published_as else ""
        add(f"{system.title}, published{note}", (system.development, system.evaluation))
        for decision, tuning in DECISION_TUNINGS.items():
            add_measured(name, f"{system.title}, {decision} decision stage", tuning)
        for variant in (x for x, of in ONE_CHECKPOINT.items() if of == name):
            for decision, tuning in DECISION_TUNINGS.items():
                title = f"{system.title}, one checkpoint, {decision} decision stage"
                add_measured(variant, title, tuning)
    for system in PAPER.values():
        add(f"{system.title}, published", (system.development, system.evaluation))
    ours = (name for by_tuning in comparisons.values() for own in by_tuning.values()
            for name in own.summaries)  # fmt: skip
    for name in dict.fromkeys(ours):
        if name not in PUBLISHED_SYSTEMS and name not in ONE_CHECKPOINT:
            add_measured(name, f"ours, {name}", DECISION_TUNINGS["shared"])
    columns = ("", *(f"{test} {name}" for test in TESTS for name in ("ER", "F1")))
    return TextTable("Table 3 of the paper", columns, tuple(lines))


def measured_pair(
    comparisons: Mapping[str, Comparison], configuration: str, tuning: str
) -> Figures | None:
    """Return the means of ER and F1 of a configuration with a tuning; None without results.

    >>> measured_pair({}, "wang", "published") is None
    True
    """
    comparison = comparisons.get(tuning)
    metrics = comparison.summaries.get(configuration) if comparison else None
    return (metrics["er"].mean, metrics["f1"].mean) if metrics else None


class Cost(NamedTuple):
    """What all runs of a configuration take.

    >>> Cost(5.2e9, 5.2e9, 48_613, 20, 1, 400.0, 5.7e9, 4.2e9).core_hours
    400.0
    """

    operations: float  # multiply-adds of the forward pass of one clip
    training_operations: float  # the same in training, where a network may take fewer windows
    n_clips: int  # that are trained on
    n_epochs: int  # at most
    n_runs: int
    core_hours: float  # of all runs
    memory: float  # bytes
    disk: float  # bytes of features


def estimate_cost(
    settings: Settings, n_train: int, n_valid: int, n_test: int, n_runs: int = 1
) -> Cost:
    """Return the cost of a configuration on clips of 10 s.

    Args:
        settings: with the number of classes.
        n_train: training clips.
        n_valid: validation clips, predicted after every epoch.
        n_test: test clips.
        n_runs: of the configuration.

    >>> cost = estimate_cost(Settings.load("paper").for_classes(17), 48_613, 2_559, 1_591)
    >>> f"{cost.operations / 1e9:.2f} GMAC, {cost.core_hours:.0f} core-hours"
    '5.15 GMAC, 607 core-hours'
    """
    n_frames = settings.features.grid.count(CLIP)
    operations = settings.model.operations(n_frames)
    training = settings.training.for_clips(n_train)
    layers = settings.model.training_layers(n_frames)
    training_operations = sum(layer.operations for layer in layers)
    of_training = training.max_epochs * 3 * n_train * training_operations
    of_prediction = (training.max_epochs * n_valid + n_test) * operations
    size = 0 if operations > LARGE else 1
    slower = SLOWER.get(settings.model.network, (1.0, 1.0))[size]
    seconds = (of_training + of_prediction) / THROUGHPUT[size] * slower
    outputs = sum(prod(layer.shape) for layer in layers)
    at_once = min(training.micro_batch or training.batch_size, n_train)
    n_values = n_frames * settings.features.n_features
    return Cost(
        operations,
        training_operations,
        n_train,
        training.max_epochs,
        n_runs,
        n_runs * seconds / 3600,
        PROGRAM + OUTPUTS * 4 * at_once * outputs,
        2 * n_values * (n_train + n_valid + n_test),  # in half precision
    )


def estimate_plan(
    plan: Plan, n_classes: int, n_train: int, n_valid: int, n_test: int
) -> dict[str, Cost]:
    """Return the cost of every configuration of a plan that trains, on clips of 10 s.

    >>> from earmark.experiments.dcase2017 import plan_table3
    >>> plan = plan_table3(["linear, single"], fast=True)
    >>> estimate_plan(plan, 17, n_train=1000, n_valid=100, n_test=100).keys()
    dict_keys(['linear, single'])
    """
    costs = {}
    for name, configuration in plan.configurations.items():
        if not configuration.models_of:
            settings = plan.settings_of(name).for_classes(n_classes)
            clips = (n_train, n_valid, n_test)
            costs[name] = estimate_cost(settings, *clips, configuration.n_runs)
    return costs


def cost_statement(costs: Mapping[str, Cost], processes: int = 1) -> str:
    """Return the costs as a table, with what they are computed from and their sum.

    Args:
        costs: configuration -> its cost.
        processes: runs at a time, which share the disk, but not the memory.

    >>> cost = Cost(2e9, 2e9, 50_000, 50, 1, 250.0, 3e9, 4e9)
    >>> print(cost_statement({"wang": cost}).splitlines()[-1])
    In all 250 core-hours (10.4 days on one core, if none stops early), 3.0 GB of memory, ...
    """
    rows = tuple(
        (
            name,
            f"{cost.operations / 1e9:.3g}",
            f"{cost.training_operations / 1e9:.3g}",
            f"{cost.n_clips:,} x {cost.n_epochs} x {cost.n_runs}",
            _short(cost.core_hours),
            f"{cost.memory / 1e9:.1f} GB",
            f"{cost.disk / 1e9:.1f} GB",
        )
        for name, cost in costs.items()
    )
    columns = (
        "", "GMAC per clip", "in training", "clips x epochs x runs", "core-hours", "memory",
        "features",
    )  # fmt: skip
    table = TextTable("Cost, if none stops early", columns, rows).to_markdown()
    total = sum(cost.core_hours for cost in costs.values())
    memory = processes * max((cost.memory for cost in costs.values()), default=0.0)
    # Configurations with the same features share them; those with others take as much again.
    disk = sum({cost.disk for cost in costs.values()})
    large, small = (rate / 1e9 for rate in THROUGHPUT)
    return (
        f"{table}\n\n"
        "A training clip is three forward passes in training, where a network on windows may take "
        f"fewer of them. The throughput is {large:g} GMAC per second and "
        f"core for networks above {LARGE / 1e9:g} GMAC per clip and {small:g} for others, as "
        "measured with the presets paper and paper-fast (docs/speed.md), and less for networks "
        "that were measured to be slower, MLMS8 by far. Memory is estimated from the outputs of "
        "all layers.\n\n"
        f"In all {_short(total)} core-hours ({_short(total / 24)} days on one core, if none stops "
        f"early), {memory / 1e9:.1f} GB of memory, {disk / 1e9:.1f} GB of disk for features."
    )


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
