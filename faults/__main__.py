"""`make faults`: run the attacks, each within its time; `python -m faults input --seconds 60`.

`make mutants`, which tests the tests, is a part of its own.

Results are in `faults/results/PART.json`; a run continues with the cases that are missing. The exit
code is 1 if any case failed, of this run or an earlier one with the same results.
"""

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from faults import bad_input, guided, kills, mutant_tests
from faults.results import Results

OUT = Path(__file__).resolve().parent / "results"


class Part(NamedTuple):
    """A kind of attack.

    Args:
        run: takes the results to fill, seconds, number of cases of each group, names of groups,
            and the seed.
        seconds: that it may take; all parts of `ATTACKS` take less than 20 minutes.
        settings: limits that its cases have, for the file of results.
    """

    run: Callable[[Results, float, int, list[str], int], None]
    seconds: float
    settings: dict[str, object]


# A new part is a module with such a `run`, and one line.
PARTS: dict[str, Part] = {
    "input": Part(
        bad_input.run,
        540.0,
        {"hang_seconds": bad_input.HANG, "memory_bytes": bad_input.MEMORY},
    ),
    "guided": Part(guided.run, 120.0, {"tool": "atheris"}),
    "kills": Part(kills.run, 420.0, {"stalled_seconds": kills.STALLED}),
    "mutants": Part(mutant_tests.run, 3600.0, {"n_mutants": mutant_tests.N_MUTANTS}),
}
ATTACKS = ("input", "guided", "kills")  # what `make faults` runs


def main() -> int:
    """Run the parts that the command line names; the attacks by default."""
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", help=f"of {', '.join(PARTS)}; by default {', '.join(ATTACKS)}"
    )
    parser.add_argument(
        "--only", action="append", default=[], help="group of a part: a reader, a task"
    )
    parser.add_argument("--cases", type=int, default=1_000_000, help="of each group at most")
    parser.add_argument("--seconds", type=float, help="of each part")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the results")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # either way, what was done is kept
    n_failures = 0
    for name in arguments.parts or ATTACKS:
        part = PARTS[name]
        arguments.out.mkdir(parents=True, exist_ok=True)
        results = Results(arguments.out / f"{name}.json", arguments.seed, part.settings)
        seconds = part.seconds if arguments.seconds is None else arguments.seconds
        part.run(results, seconds, arguments.cases, arguments.only, arguments.seed)
        results.save()
        print(f"{name}: {results.n_cases} cases, {results.n_failures} failures")
        n_failures += results.n_failures
    return 1 if n_failures else 0


if __name__ == "__main__":
    sys.exit(main())
