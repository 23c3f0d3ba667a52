"""Counts of cases and what failed, in one JSON file that a stopped run continues from."""

import json
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path

from earmark.files import atomic_write
from earmark.inference.model_file import installed_versions


@dataclass
class Counts:
    """What became of the cases of one group, such as one reader.

    Args:
        done: number of cases, counted from case 0: the next is `done`.
        outcomes: outcome -> number of cases.
        seconds: of processor time that the cases took.
        slowest: seconds of processor time of the slowest case.
        faults: kind of fault -> how often it happened, in a part that makes them.
        peak_bytes: most memory of a child above what it had before the first case.
        failures: what failed: the number of the case, its outcome, the reason.
        source: what the cases were made of, if they must be made anew when it changes.
    """

    done: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    slowest: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)
    peak_bytes: int = 0
    failures: list[dict[str, object]] = field(default_factory=list)
    source: str = ""

    def add(self, outcome: str, n: int = 1) -> None:
        """Count one case, or `n`."""
        self.done += n
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + n


class Results:
    """The counts of one part, by group; written after every `save`.

    Args:
        path: of the JSON file.
        seed: of the cases; a file with another seed is begun anew.
        settings: limits that hold for the cases, for the reader of the file.
    """

    def __init__(self, path: Path, seed: int, settings: dict[str, object]) -> None:
        self.path, self.seed, self.settings = path, seed, settings
        self.groups: dict[str, Counts] = {}
        if path.exists():
            values = json.loads(path.read_text())
            if values["seed"] == seed:
                self.groups = {name: Counts(**own) for name, own in values["groups"].items()}

    def of(self, group: str) -> Counts:
        """Return the counts of a group."""
        return self.groups.setdefault(group, Counts())

    @property
    def n_failures(self) -> int:
        """How many cases failed."""
        return sum(len(own.failures) for own in self.groups.values())

    @property
    def n_cases(self) -> int:
        """How many cases there were."""
        return sum(own.done for own in self.groups.values())

    def save(self) -> None:
        """Write the file."""
        values = {
            "seed": self.seed,
            "settings": self.settings,
            "n_cases": self.n_cases,
            "n_failures": self.n_failures,
            "groups": {name: asdict(own) for name, own in self.groups.items()},
            "machine": f"{platform.machine()}, Python {platform.python_version()}",
            "versions": installed_versions(),
        }
        atomic_write(self.path, (json.dumps(values, indent=1) + "\n").encode())
