"""The field's own scorers in a separate environment, for comparison.

sed_eval and sed_scores_eval need an old setuptools and an old pandas and install fifty packages, so
they live in `.venv-oracles`, which `make setup` creates from `oracles/requirements.txt`. Tests and
benchmarks call them through a long-running process (`oracles/serve.py`) by JSON lines, which keep
floats to the last bit.
"""

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / ".venv-oracles" / "bin" / "python"


class OracleError(RuntimeError):
    """An error that a scorer raised, with its traceback."""


class Oracles:
    """A process that runs the scorers: `ask("segment", ...)` calls `serve.segment`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [PYTHON, "-W", "ignore", Path(__file__).with_name("serve.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @staticmethod
    def available() -> bool:
        """Return whether their environment exists."""
        return PYTHON.exists()

    def ask(self, question: str, **values: Any) -> Any:
        """Return the result of the function of that name in `oracles/serve.py`."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps([question, values]) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise OracleError(f"The oracle process ended while it computed {question!r}.")
        answer = json.loads(line)
        if "error" in answer:
            raise OracleError(answer["error"])
        return answer["answer"]

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def plain(events_by_file: Any) -> dict[str, list[tuple[float, float, str]]]:
    """Return tables of events as plain lists for JSON."""
    return {
        name: [(event.onset, event.offset, event.label) for event in events]
        for name, events in events_by_file.items()
    }
