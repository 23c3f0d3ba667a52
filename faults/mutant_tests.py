"""Part "mutants": do the tests notice when a line of the code is wrong?

A sample of the mutants (`faults.mutants`) of `AREAS`, of fixed size and shared out by the number of
mutants of each module. Each runs the tests that execute its statement, the quickest first, until
one fails. Which tests those are, and what each costs, is measured once per test and kept beside
the results.

One process imports and collects the tests; each mutant is a fork of it in which the code of one
function is replaced, so that it costs no import. A fork ends by a limit of processor time if the
mutant loops for ever. Before the mutants of a module, its tests must pass in a fork without one.

A mutant that changes nothing a caller can see is listed in `faults/equivalent.toml` with the
reason, and is not counted. All others that survive are failures of this part; they are tried again
in the next run, since a test may have been added. A module that has changed is begun anew.
"""

import ast
import contextlib
import gc
import hashlib
import inspect
import itertools
import json
import os
import random
import resource
import shutil
import signal
import tempfile
import time
import tomllib
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest

from earmark.files import atomic_write
from faults.mutants import Mutant, make_mutants
from faults.results import Counts, Results

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = Path(__file__).resolve().parent / "equivalent.toml"
N_MUTANTS = 510
VARIANTS = 6  # of a test with parameters, spread over all
LONGEST = 4.0  # seconds of processor time of a test, fixtures included; others are left out
BUDGET = 3.0  # seconds of the tests that a mutant runs, as they were measured
AGAIN = 12.0  # the same for a mutant that survived before
CONTROL = 0.5  # the same without a mutant
CPU = 8  # seconds of processor time beyond three times what the tests need
STALLED = 900  # seconds of real time
MEMORY = 6 << 30  # bytes of a fork beyond what it had


class Area(NamedTuple):
    """Modules below `src/earmark`, and the files below `tests` that test them.

    Tests that need one of the fixtures `without` are left out. Of each module `least` mutants are
    tested, or its share if that is more.
    """

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    without: tuple[str, ...] = ()
    least: int = 2


AREAS = {
    "pooling": Area(("pooling/*.py",), ("test_pooling.py", "test_pooling_gradients.py")),
    "decoding": Area(
        ("inference/decoding.py",),
        ("test_decoding.py", "test_scores.py", "test_sensitivity.py", "test_online.py"),
    ),
    "metrics": Area(
        ("metrics/*.py",),
        (
            *("test_metrics_best_thresholds.py", "test_metrics_bootstrap.py"),
            *("test_metrics_clip.py", "test_metrics_confusion.py", "test_metrics_event.py"),
            *("test_metrics_false_events.py", "test_metrics_psds.py"),
            *("test_metrics_run_comparison.py", "test_metrics_segment.py"),
            *("test_metrics_system_comparison.py", "test_metrics_verdict.py"),
            *("test_evaluation.py", "test_report.py", "test_calibration.py"),
        ),
    ),
    "loss": Area(("nn/loss.py",), ("test_loss.py",)),
    "training": Area(
        ("training/augmentation.py", "training/schedule.py"),
        ("test_augment.py", "test_training.py"),
        without=("tones", "trained"),  # a training each
    ),
    "store": Area(("data/store.py",), ("test_store.py",)),
    "validation": Area(("training/validation.py",), ("test_validation.py",), least=25),
    "loop": Area(("training/loop.py",), ("test_training.py",)),
}


class Module(NamedTuple):
    """A module that is mutated: its area, its path, the paths of its tests, a checksum, a number.

    The checksum is of its source and of all mutants; the number is that of the mutants.
    """

    area: str
    path: Path
    tests: tuple[Path, ...]
    digest: str
    n_mutants: int


def modules() -> dict[str, Module]:
    """Return the modules of all areas, by their dotted names."""
    found = {}
    source = ROOT / "src"
    for area_name, area in AREAS.items():
        for pattern in area.modules:
            for path in sorted((source / "earmark").glob(pattern)):
                name = ".".join(path.relative_to(source).with_suffix("").parts)
                tests = (path, *(ROOT / "tests" / test for test in area.tests))
                made = [(own.function, own.change) for own in make_mutants(path.read_text())]
                if made:
                    digest = _digest(path, json.dumps(made))
                    found[name] = Module(area_name, path, tests, digest, len(made))
    return found


def equivalents() -> dict[tuple[str, str, str], str]:
    """Return the reasons why mutants are equivalent, by module, function and change."""
    entries = tomllib.loads(EQUIVALENT.read_text())["mutant"]
    return {(own["module"], own["function"], own["change"]): own["reason"] for own in entries}


def sample(of: dict[str, Module], seed: int) -> dict[str, list[int]]:
    """Return the numbers of the mutants of each module that are tested, at random."""
    whole, chosen = sum(own.n_mutants for own in of.values()), {}
    for name, own in of.items():
        numbers = list(range(own.n_mutants))
        random.Random(f"{seed} {name}").shuffle(numbers)
        share = round(N_MUTANTS * own.n_mutants / whole)
        chosen[name] = numbers[: max(AREAS[own.area].least, share)]
    return chosen


def score(outcomes: Iterable[Mapping[str, int]]) -> float:
    """Return the share of mutants that were killed, of those that can be.

    >>> score([{"killed": 2, "equivalent": 5}, {"killed by time": 1, "survived": 1}])
    0.75
    """
    killed = survived = 0
    for own in outcomes:
        killed += sum(count for name, count in own.items() if name.startswith("killed"))
        survived += own.get("survived", 0)
    return killed / (killed + survived)


def run(results: Results, seconds: float, n_cases: int, only: list[str], seed: int) -> None:
    """Run mutants until the time is up or each module has its number of them.

    Args:
        results: to continue and to fill.
        seconds: at most.
        n_cases: of each module at most, those of earlier runs included.
        only: dotted names of modules; all if empty.
        seed: of the sample.
    """
    of = modules()
    chosen = sample(of, seed)
    campaign = _Campaign(results, time.monotonic() + seconds, only or list(of), of)
    campaign.numbers = {name: chosen[name][:n_cases] for name in campaign.names}
    for name in campaign.names:
        own = results.of(name)
        if own.source != of[name].digest:
            results.groups[name] = Counts(source=of[name].digest)
    if not any(campaign.missing(name) for name in campaign.names):
        return
    files = dict.fromkeys(str(path) for name in campaign.names for path in of[name].tests)
    arguments = ["-o", "addopts=", "--doctest-modules", "-c", str(ROOT / "pyproject.toml")]
    arguments.append("--assert=plain")  # else pytest compiles named modules, and not as we do
    for plugin in ("cacheprovider", "xdist", "cov", "terminal", "schemathesis"):
        arguments += ["-p", f"no:{plugin}"]
    with tempfile.TemporaryDirectory() as folder:
        campaign.folder = Path(folder)
        os.environ["PYTEST_DEBUG_TEMPROOT"] = folder
        code = pytest.main([*arguments, *files], plugins=[campaign])
    if code:
        raise SystemExit(f"The tests could not be collected: pytest ended with {code!r}.")


class _Campaign:
    """A plugin of pytest that runs mutants where pytest would run the tests."""

    def __init__(
        self, results: Results, end: float, names: list[str], of: dict[str, Module]
    ) -> None:
        self.results, self.end, self.names, self.of = results, end, names, of
        self.numbers: dict[str, list[int]] = {}
        self.functions: dict[Path, dict[CodeType, list[FunctionType]]] = {}
        self.folder = Path()
        self.failed = ""  # the first test that failed, of a fork
        self.measured: _Measured | None = None  # in a fork that measures

    def missing(self, name: str) -> list[int]:
        """Return the mutants that are left: the survivors of an earlier run first."""
        own = self.results.of(name)
        survivors = [int(str(failure["case"])) for failure in own.failures]
        return survivors + self.numbers[name][own.done :]

    def pytest_collection(self) -> None:
        """Let hypothesis try few examples, always the same, and accept the first that fails."""
        from hypothesis import Phase, settings

        settings.register_profile(
            "mutants",
            parent=settings.get_profile("any load"),  # of tests/conftest.py
            max_examples=25,
            derandomize=True,
            database=None,
            phases=(Phase.explicit, Phase.generate),
        )
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the mutants instead of the tests."""
        if session.testsfailed:
            return None  # pytest ends
        items: dict[Path, list[pytest.Item]] = {}
        for item in _thinned(session.items):
            items.setdefault(item.path, []).append(item)
        import_module("earmark.training.finish")  # which a fixture of all tests needs
        self.functions = functions_of(*(self.of[name].path for name in self.names))
        for name in self.names:
            if self.missing(name) and time.monotonic() < self.end:
                without = set(AREAS[self.of[name].area].without)
                tests = [
                    item
                    for path in self.of[name].tests
                    for item in items.get(path, [])
                    if not without.intersection(getattr(item, "fixturenames", ()))
                ]
                self._run_module(name, _Coverage(self, name, tests))
        return True

    def _run_module(self, name: str, coverage: "_Coverage") -> None:
        own, known = self.results.of(name), equivalents()
        cases = cases_of(self.of[name].path, self.missing(name))
        functions = self.functions[self.of[name].path]
        first = coverage.tests_of((0, 1 << 30), CONTROL)
        outcome, reason = self._fork(None, functions, first)
        if outcome != "survived":
            raise SystemExit(f"{name}: its tests fail without a mutant: {reason}.")
        for case in cases:
            number, mutant, _ = case
            if time.monotonic() >= self.end:
                break
            earlier = [failure for failure in own.failures if failure["case"] == number]
            started = time.monotonic()
            tests = coverage.tests_of(mutant.lines, AGAIN if earlier else BUDGET)
            if (name, mutant.function, mutant.change) in known:
                outcome, reason = "equivalent", ""
            elif not _can_be_put(case, functions):
                outcome, reason = "not made", ""
            elif not tests:
                outcome, reason = "survived", "no test executes it"
            else:
                outcome, reason = self._fork(case, functions, tests)
            for failure in earlier:  # counted before
                own.failures.remove(failure)
                own.outcomes["survived"] -= 1
                own.done -= 1
            own.add(outcome)
            own.seconds += time.monotonic() - started
            if outcome == "survived":
                own.failures.append(
                    {
                        "case": number,
                        "function": mutant.function,
                        "line": mutant.lines[0],
                        "change": mutant.change,
                        "reason": reason,
                    }
                )
            self.results.save()
            print(f"  {outcome}: {mutant.function}: {mutant.change} [{reason}]", flush=True)
        print(f"{name}: {own.done} mutants, {own.outcomes}", flush=True)

    def _fork(
        self,
        case: "Case | None",
        functions: dict[CodeType, list[FunctionType]],
        tests: "Sequence[_Test]",
    ) -> tuple[str, str]:
        """Return "survived" or "killed", by what, and the reason."""
        answer = self.folder / "answer"
        answer.unlink(missing_ok=True)
        child = os.fork()
        if not child:
            try:
                os.setsid()
                limit = int(CPU + 3 * sum(test.seconds for test in tests))
                resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
                memory = _address_space() + MEMORY
                resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(STALLED)
                if case is not None:
                    put(case, functions)
                self._run_tests([test.item for test in tests])
                answer.write_text(json.dumps(self.failed))
                os._exit(0)
            except BaseException as error:  # a mutant may raise anything, and must not return
                answer.write_text(json.dumps(repr(error)[:300]))
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        _end_group(child)
        for left in self.folder.glob("pytest-of-*"):
            shutil.rmtree(left, ignore_errors=True)
        if os.WIFSIGNALED(status):
            late = os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGALRM, signal.SIGKILL)
            return ("killed by time" if late else "killed by a crash"), ""
        reason = json.loads(answer.read_text())
        return ("killed" if reason else "survived"), reason

    def _run_tests(self, items: Sequence[pytest.Item]) -> None:
        """Run tests until one fails."""
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                return

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Print what could not be collected."""
        if report.failed:
            print(report.longreprtext)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """Attribute what a shared fixture executes to it, not to the first test that needs it."""
        if self.measured is None or fixturedef.scope == "function":
            return (yield)
        with self.measured.context(f"fixture {self.measured.tests} {fixturedef.argname}"):
            return (yield)


def _thinned(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return some of the variants of each test."""
    variants: dict[str, list[pytest.Item]] = {}
    for item in items:
        variants.setdefault(item.nodeid.partition("[")[0], []).append(item)
    thinned = []
    for own in variants.values():
        n_kept = min(len(own), VARIANTS)
        thinned += [own[at * len(own) // n_kept] for at in range(n_kept)]
    return thinned


class _Test(NamedTuple):
    item: pytest.Item
    seconds: float


class _Measured:
    """What the tests of one file execute, while they run in a fork."""

    def __init__(self, tests: str, files: list[str]) -> None:
        from coverage import Coverage

        self.tracer = Coverage(data_file=None, include=files, config_file=False)
        self.tracer.set_option("run:core", "ctrace")  # the one that knows contexts
        self.tracer.set_option("run:disable_warnings", ["no-data-collected"])
        self.stack = ["none"]
        self.seconds: dict[str, float] = {}
        self.tests, self.files = tests, files

    def context(self, name: str) -> "_Context":
        return _Context(self, name)

    def lines(self) -> dict[str, dict[str, list[int]]]:
        """Return context -> file -> lines."""
        data = self.tracer.get_data()
        found: dict[str, dict[str, list[int]]] = {}
        for file in self.files:
            for line, contexts in data.contexts_by_lineno(file).items():
                for context in contexts:
                    found.setdefault(context, {}).setdefault(file, []).append(line)
        return found


class _Context:
    def __init__(self, measured: _Measured, name: str) -> None:
        self.measured, self.name = measured, name

    def __enter__(self) -> None:
        self.started = time.process_time()
        self.measured.stack.append(self.name)
        self.measured.tracer.switch_context(self.name)

    def __exit__(self, *_: object) -> None:
        stack, seconds = self.measured.stack, self.measured.seconds
        stack.pop()
        self.measured.tracer.switch_context(stack[-1])
        seconds[self.name] = seconds.get(self.name, 0) + time.process_time() - self.started


class _Coverage:
    """Which tests execute which lines of a module, measured or as measured before."""

    def __init__(self, campaign: _Campaign, name: str, items: list[pytest.Item]) -> None:
        self.campaign, self.name, self.path = campaign, name, campaign.of[name].path
        self.items = items
        self.values: dict[str, Any] = {"seconds": {}, "lines": {}, "failed": []}
        cache = campaign.results.path.parent / "coverage"
        cache.mkdir(parents=True, exist_ok=True)
        for path in dict.fromkeys(item.path for item in items):
            own = [item for item in items if item.path == path]
            file = cache / f"{campaign.of[name].area}-{path.stem}.json"
            values = self._of_file(file, own)
            for key in ("seconds", "lines"):
                self.values[key].update(values[key])
            self.values["failed"] += values["failed"]

    def _of_file(self, cached: Path, items: list[pytest.Item]) -> dict[str, Any]:
        """Return what the tests of a file execute; new and changed ones are measured."""
        area = self.campaign.of[self.name].area
        targets = {
            str(own.path): own.digest for own in self.campaign.of.values() if own.area == area
        }
        values: dict[str, Any] = {"modules": {}}
        if cached.exists():
            values = json.loads(cached.read_text())
        if values["modules"] != targets:
            values = {"modules": targets, "tests": {}, "seconds": {}, "failed": [], "lines": {}}
        new = [item for item in items if values["tests"].get(item.nodeid) != _text_of(item)]
        if new:
            values["tests"] |= {item.nodeid: _text_of(item) for item in new}
            child = os.fork()
            if not child:
                try:
                    self._measure(cached, values, sorted(targets), new)
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            _end_group(child)
            values = json.loads(cached.read_text())
        return values

    def _measure(
        self, cached: Path, values: dict[str, Any], files: list[str], items: list[pytest.Item]
    ) -> None:
        os.setsid()
        measured = self.campaign.measured = _Measured(items[0].path.name, files)
        measured.tracer.start()
        signal.signal(signal.SIGVTALRM, _too_long)
        for item, following in zip(items, [*items[1:], None], strict=True):
            self.campaign.failed = ""
            signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST)
            with measured.context(item.nodeid):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if item.nodeid in values["failed"]:
                values["failed"].remove(item.nodeid)
            if self.campaign.failed:
                values["failed"].append(item.nodeid)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        measured.tracer.stop()
        values["seconds"] |= measured.seconds
        values["lines"] |= measured.lines()
        atomic_write(cached, json.dumps(values).encode())

    def tests_of(self, lines: tuple[int, int], budget: float) -> list[_Test]:
        """Return tests that execute any of the lines, the quickest first, of so many seconds."""
        found = []
        for item in self.items:
            if item.nodeid in self.values["failed"]:
                continue
            file = item.path.name
            fixtures = [f"fixture {file} {name}" for name in getattr(item, "fixturenames", ())]
            executed = (
                line
                for context in (item.nodeid, *fixtures)
                for line in self.values["lines"].get(context, {}).get(str(self.path), ())
            )
            if any(lines[0] <= line <= lines[1] for line in executed):
                own = (item.nodeid, *fixtures)
                cost = sum(self.values["seconds"].get(context, 0) for context in own)
                found.append(_Test(item, cost))
        # First the tests in files of the module's name: others execute it by the way.
        found.sort(key=lambda test: (self.path.stem not in test.item.path.stem, test.seconds))
        total = 0.0
        within: list[_Test] = []
        for test in found:
            total += test.seconds
            if within and total > budget:
                break
            within.append(test)
        # Tests of one file are kept together, since they share fixtures: files by their cheapest.
        order = list(dict.fromkeys(test.item.path for test in within))
        return sorted(within, key=lambda test: order.index(test.item.path))


class Case(NamedTuple):
    """A mutant, its number in its module, and the code that it has in place of old code."""

    number: int
    mutant: Mutant
    changed: dict[CodeType, CodeType]


def cases_of(path: Path, numbers: list[int]) -> list[Case]:
    """Return mutants in the order of the numbers."""
    source, found = path.read_text(), {}
    original = compile(source, str(path), "exec", dont_inherit=True)
    for number, mutant in enumerate(make_mutants(source)):
        if number in numbers:
            with warnings.catch_warnings(action="ignore"):  # of the compiler
                code = compile(mutant.tree, str(path), "exec", dont_inherit=True)
            changed = {old: new for old, new in _pairs(original, code) if old != new}
            found[number] = Case(number, mutant, changed)
    return [found[number] for number in numbers]


def _pairs(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Yield functions of both, old and new, those within functions included."""
    left: dict[tuple[str, int], list[CodeType]] = {}
    for own in new.co_consts:
        if isinstance(own, CodeType):
            left.setdefault((own.co_qualname, own.co_firstlineno), []).append(own)
    for own in old.co_consts:
        if isinstance(own, CodeType):
            same = left.get((own.co_qualname, own.co_firstlineno))
            if same:
                other = same.pop(0)
                yield own, other
                yield from _pairs(own, other)


def put(case: Case, functions: dict[CodeType, list[FunctionType]]) -> None:
    """Replace the code, or the default, of the living functions."""
    for old, new in case.changed.items():
        for function in functions.get(old, []):
            function.__code__ = new
    if case.mutant.default is not None:
        name, expression = case.mutant.default
        value = ast.literal_eval(expression)
        for function in itertools.chain.from_iterable(functions.values()):
            if function.__qualname__ != case.mutant.function:
                continue
            code = function.__code__
            names = code.co_varnames[: code.co_argcount]
            if name in names:
                at = names.index(name) - len(names)
                defaults = list(function.__defaults__ or ())
                defaults[at] = value
                function.__defaults__ = tuple(defaults)
            else:
                function.__kwdefaults__ = {**(function.__kwdefaults__ or {}), name: value}


def _can_be_put(case: Case, functions: dict[CodeType, list[FunctionType]]) -> bool:
    """Tell whether a living function has the change, with the same variables around it."""
    if case.mutant.default is not None:
        return True
    return any(old in functions for old in case.changed) and all(
        len(old.co_freevars) == len(new.co_freevars) or old not in functions
        for old, new in case.changed.items()
    )


def functions_of(*paths: Path) -> dict[Path, dict[CodeType, list[FunctionType]]]:
    """Return the living functions of some files by their code."""
    found: dict[Path, dict[CodeType, list[FunctionType]]] = {path: {} for path in paths}
    names = {str(path): path for path in paths}
    for own in gc.get_objects():
        if type(own) is FunctionType and own.__code__.co_filename in names:
            found[names[own.__code__.co_filename]].setdefault(own.__code__, []).append(own)
    return found


def _text_of(item: pytest.Item) -> str:
    """Return a checksum of the source of a test as it was imported."""
    if isinstance(item, pytest.Function):
        text = inspect.getsource(item.obj)
    else:
        text = getattr(getattr(item, "dtest", None), "docstring", None) or ""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _too_long(*_: object) -> None:
    pytest.fail("takes too long to be run for every mutant")


def _address_space() -> int:
    pages = Path("/proc/self/statm").read_text().split()[0]
    return int(pages) * resource.getpagesize()


def _end_group(child: int) -> None:
    """End what a fork has started and left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)


def _digest(path: Path, more: str = "") -> str:
    return hashlib.sha256(path.read_bytes() + more.encode()).hexdigest()[:16]
