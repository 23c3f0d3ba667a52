"""Pooling x structure x seeds -> a table with its statistics: a plan, its units, what came of them.

plan    Plan, Cell and Unit: what is compared
unit    one training, tuned and scored: Result
table   results -> mean, spread, intervals, paired differences
run     all units of a plan, resumable, side by side
"""

from earmark.experiments.compare import run_plan, write_tables
from earmark.experiments.plan import Plan, Unit
from earmark.experiments.run import Result
from earmark.experiments.table import Comparison, compare_results

__all__ = [
    "Comparison",
    "Plan",
    "Result",
    "Unit",
    "compare_results",
    "run_plan",
    "write_tables",
]
