"""Compare training configurations over several seeds, with confidence intervals and p-values.

plan_file       the file of a plan, with what it inherits; its tables and folds
configurations  of a plan: grid, inheritance, pairs
plan            a TOML file -> Plan, its tables and runs
run             one run: train, tune, score -> RunResult
scoring         the scores of a run on some clips
effects         how scores vary with the choice of clips; the effect of a change
table           results -> mean, standard deviation, confidence intervals, paired differences
csv_tables      the same as CSV
compare         all runs of a plan, in parallel and resumable
systems         the systems of the paper's Table 3, their published figures, what they cost
dcase2017       the paper's tables from the official lists of DCASE 2017 task 4
demo            what `make demo` runs
"""

from earmark.experiments.compare import run_plan, write_tables
from earmark.experiments.configurations import Configuration
from earmark.experiments.plan import Plan, Run
from earmark.experiments.run import RunResult
from earmark.experiments.table import Comparison, compare_results

__all__ = [
    "Comparison",
    "Configuration",
    "Plan",
    "Run",
    "RunResult",
    "compare_results",
    "run_plan",
    "write_tables",
]
