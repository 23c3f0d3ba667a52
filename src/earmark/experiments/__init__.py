"""Compare training configurations over several seeds, with confidence intervals and p-values.

plan       a TOML file -> Plan, its configurations and runs
run        one run: train, tune, score -> RunResult
table      results -> mean, standard deviation, confidence intervals, paired differences
compare    all runs of a plan, in parallel and resumable
dcase2017  the paper's table from the official lists of DCASE 2017 task 4
demo       what `make demo` runs
"""

from earmark.experiments.compare import run_plan, write_tables
from earmark.experiments.plan import Configuration, Plan, Run
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
