"""Part "guided": contents that reach new branches of the readers written in Python, by atheris.

atheris (libFuzzer for Python) counts which branches a content takes and changes those further that
took new ones. It is no dependency of ours: `pip install atheris`, where there is a wheel. Without
it, this part runs nothing and says so.

Conventions: each reader runs in a process of its own (`python -m faults.guided READER ...`), since
the modules of Earmark are instrumented as they are imported; nothing here imports them before. Of
files of tensors only the description is changed, the tensors and the checksum stay right.
"""

import importlib.util
import mmap
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faults.results import Results

ROOT = Path(__file__).resolve().parents[1]
GUIDED = ("tables", "events", "settings", "plan", "scenes", "journal", "checkpoint", "model")
OF_TENSORS = (".earmark", ".safetensors")
KEPT = 20  # failures of a reader that are kept, each with another reason
START = 300.0  # seconds of the imports
IN_MEMORY = Path("/dev/shm")  # where files cost least; the usual folder where it does not exist

COUNTS = ("result", "error", "failed")


def run(results: "Results", seconds: float, n_cases: int, only: list[str], seed: int) -> None:
    """Run atheris on each reader for its part of the time; arguments as of `bad_input.run`."""
    if importlib.util.find_spec("atheris") is None:
        print("guided: atheris is not installed; pip install atheris, then run it again")
        return
    names = [name for name in only or GUIDED if name in GUIDED]
    for name in names:
        left = n_cases - results.of(name).done
        if left > 0:
            _run_reader(results, name, seconds / len(names), left, seed)
            results.save()
        print(f"{name}: {results.of(name).done} cases, {results.of(name).outcomes}", flush=True)


def _run_reader(results: "Results", name: str, seconds: float, n_cases: int, seed: int) -> None:
    """Run the process of one reader, and take over its counts and failures."""
    own = results.of(name)
    failures = results.path.parent / "failures"
    failures.mkdir(parents=True, exist_ok=True)
    corpus = results.path.parent / "corpus" / name  # of earlier runs as well
    corpus.mkdir(parents=True, exist_ok=True)
    counts = results.path.parent / f"{name}.counts"
    counts.write_bytes(bytes(8 * len(COUNTS)))
    arguments = [name, str(int(seconds)), str(n_cases), str(seed + own.done), str(corpus)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": _import_path()}
    base = IN_MEMORY if IN_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="faults-", dir=base) as folder:
        done = subprocess.run(
            [sys.executable, "-m", "faults.guided", *arguments, str(counts), str(failures)],
            env={**environment, "TMPDIR": folder},
            cwd=ROOT,
            capture_output=True,
            check=False,
            timeout=seconds + START,
        )
    for outcome, n in zip(COUNTS, memoryview(counts.read_bytes()).cast("q"), strict=True):
        if n or outcome != "failed":
            own.add(outcome, n)
    counts.unlink()
    words = done.stderr.decode(errors="replace")
    branches = re.findall(r"cov: (\d+)", words)
    print(f"{name}: {branches[-1] if branches else 'no'} branches reached")
    for path in sorted(failures.glob(f"guided-{name}-*.reason")):
        own.failures.append({"file": path.stem, "outcome": "foreign", "reason": path.read_text()})
        path.unlink()
    if done.returncode:  # a hang, too much memory, or a crash: libFuzzer has kept the content
        reason = f"exit code {done.returncode}: {words[-1500:]}"
        own.failures.append({"outcome": "crash", "reason": reason})


def _import_path() -> str:
    """Return where modules are found: ours first, then as here."""
    return os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])


def fuzz(name: str, seconds: int, n_cases: int, seed: int, corpus: Path, counts: Path,
         failures: Path) -> None:  # fmt: skip
    """Run atheris on one reader; ends the process."""
    import atheris

    with atheris.instrument_imports(include=["earmark"]):
        from faults.readers import READERS
    from faults.bad_input import MEMORY, STALLED, RestoredFolder, outcome_of

    with counts.open("r+b") as file:
        numbers = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
    good, work = (Path(tempfile.gettempdir()) / own for own in ("good", "work"))
    good.mkdir()
    files = [work / path.relative_to(good) for path in READERS[name].make(good)]
    restored = RestoredFolder(good, work)
    write = {path: writer(path) for path in files}
    for number, path in enumerate(files):
        (corpus / f"good-{number}").write_bytes(bytes([number]) + _changeable(path))
    reasons: set[str] = set()

    def test_one(data: bytes) -> None:
        path = files[data[0] % len(files)] if data else files[0]
        write[path](data[1:])
        outcome, reason = outcome_of(READERS[name].read, path)
        numbers[COUNTS.index(outcome) if outcome in COUNTS else COUNTS.index("failed")] += 1
        last = reason.strip().rpartition("\n")[2][:80]
        if outcome not in COUNTS and last not in reasons and len(reasons) < KEPT:
            reasons.add(last)
            kept = failures / f"guided-{name}-{len(reasons)}-{path.name}"
            kept.write_bytes(path.read_bytes())
            kept.with_name(f"{kept.name}.reason").write_text(reason)
        restored.restore()

    limits = [f"-max_total_time={seconds}", f"-runs={n_cases}", f"-timeout={int(STALLED)}"]
    limits += [f"-rss_limit_mb={(MEMORY >> 20) + 1024}", "-max_len=65536", f"-seed={seed + 1}"]
    place = f"-artifact_prefix={failures}/guided-{name}-"
    atheris.Setup([sys.argv[0], *limits, place, str(corpus)], test_one)
    atheris.Fuzz()


def _changeable(path: Path) -> bytes:
    """Return the part of a good file that is changed."""
    from earmark.tensors import load_tensors

    if path.suffix in OF_TENSORS:
        return load_tensors(path, "file")[0].encode()
    return path.read_bytes()


def writer(path: Path) -> Callable[[bytes], object]:
    """Return what writes a file from its changed part; of tensors, the description."""
    from earmark.tensors import load_tensors, save_tensors

    if path.suffix not in OF_TENSORS:
        return path.write_bytes
    _, tensors = load_tensors(path, "file")
    return lambda content: save_tensors(path, tensors, content.decode("utf-8", "replace"))


if __name__ == "__main__":
    reader, for_seconds, at_most, from_seed, *places = sys.argv[1:]
    fuzz(reader, int(for_seconds), int(at_most), int(from_seed), *(Path(own) for own in places))
