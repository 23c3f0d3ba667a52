"""Work that may be stopped at any moment and continued by the same call, on very small data.

A task has `run`, which does the work in a folder, or what is left of it, and notes each piece of it
when it begins and when it is done: what was done once must never be begun again. Each run is a
process of its own, so that `run` may change settings and functions of Earmark as it likes. A new
task is one function and one line of `TASKS`.
"""

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import distributed  # noqa: F401 - as all others, before the processes are forked
import httpx
import lightning_fabric  # noqa: F401
import onnx  # noqa: F401
import onnxruntime  # type: ignore[import-untyped]  # noqa: F401

import earmark
from earmark.data import store
from earmark.data.features import FeatureConfig
from earmark.data.store import build_store
from earmark.experiments import Plan, RunResult, run_plan, write_tables
from earmark.experiments import compare as comparison
from earmark.inference import folder as gathering
from earmark.inference import outputs
from earmark.inference.batch import BatchSettings, detect_batch
from earmark.inference.cluster import detect_on_cluster
from earmark.inference.detector import Detector
from earmark.synth.scenes import SceneConfig, write_scenes
from earmark.training import finish, loop
from earmark.web.app import make_app
from earmark.web.guard import Access
from earmark.web.library import Library
from earmark.web.limits import Limits
from earmark.web.served_model import ServedModel
from earmark.web.server import bind, make_server
from earmark.web.service import Service

Note = Callable[[str, str], None]  # ("begin" or "done", the piece)

RATE, N_CLIPS, GROUP = 8000, 8, 2
ADDRESS = "address"  # file of the data with that of the scheduler
FEATURES = FeatureConfig(sample_rate=RATE, n_mels=16, f_max=4000.0, window=0.064, hop=0.032)
_MODEL = {"channels": [2, 2, 2, 2], "last_channels": 4, "n_recurrent": 2}
_TRAINING = {"max_epochs": 2, "batch_size": 4, "threads": 1, "min_steps": 0}
SMALL = [
    *(f"features.{name}={getattr(FEATURES, name)}" for name in ("sample_rate", "n_mels")),
    *(f"features.{name}={getattr(FEATURES, name)}" for name in ("f_max", "window", "hop")),
    *(f"model.{name}={value}" for name, value in _MODEL.items()),
    *(f"training.{name}={value}" for name, value in _TRAINING.items()),
]
PLAN = f"""
[data]
train = "weak.tsv"
valid = "weak.tsv"
test = "strong.tsv"
[settings]
features = {{sample_rate = {RATE}, n_mels = 16, f_max = 4000, window = 0.064, hop = 0.032}}
model = {{channels = [2, 2, 2, 2], last_channels = 4, n_recurrent = 2}}
training = {{max_epochs = 1, batch_size = 4, threads = 1, min_steps = 0}}
[grid]
seeds = 1
structure = {{single = {{model.stages = []}}, hierarchical = {{model.stages = [5]}}}}
"""


@dataclass(frozen=True)
class Task:
    """Work to be stopped.

    Args:
        run: takes the folder of the data, the folder of the work and what notes the pieces.
        start: files and folders of the data that the folder of the work has from the start.
        growing: patterns of files that are there before they are complete.
        damaged: patterns of files that may be removed or truncated; what nobody can make again,
            such as the recordings of a library, is not among them.
    """

    run: Callable[[Path, Path, Note], None]
    start: tuple[str, ...] = ()
    growing: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ("*",)


def make_data(folder: Path) -> None:
    """Write what all tasks work on: recordings, tables, a plan, a training and its model."""
    scenes = SceneConfig(
        sample_rate=RATE, duration=1.5, event_duration=(0.5, 1.2), classes=("siren", "knock")
    )
    write_scenes(folder, N_CLIPS, scenes, seed=1)
    (folder / "audio" / "unusable.wav").write_bytes(b"no audio")
    (folder / "plan.toml").write_text(PLAN)
    tables = (folder / "weak.tsv", folder / "weak.tsv", folder / "audio")
    earmark.train(*tables, folder / "run", overrides=SMALL)
    shutil.copyfile(folder / "run" / "model.earmark", folder / "model.earmark")


def _recordings(data: Path) -> dict[str, Path]:
    return {path.name: path for path in sorted((data / "audio").iterdir())}


def _note_features(note: Note) -> None:
    """Note the clips of feature stores, and let frames go through temporary files."""
    store.SPILL = 800  # bytes
    append = store._append

    def noted(
        folder: Path, known: Any, rows: int, computed: Iterable[tuple[Any, Any]]
    ) -> Iterator[None]:
        pieces: list[Any] = []

        def begun() -> Iterator[tuple[Any, Any]]:
            for clip, held in computed:
                pieces.append(clip)
                note("begin", f"features of {clip.file}")
                yield clip, held

        for _ in append(folder, known, rows, begun()):
            if not pieces[-1].failed:  # which is tried again by every run
                note("done", f"features of {pieces[-1].file}")
            yield

    store._append = noted


class _Picture:
    """In place of a figure, which takes longer than all else."""

    def savefig(self, path: Any, **options: Any) -> None:
        with open(path, "wb") as file:  # noqa: PTH123 - also a stream
            file.write(b"picture")


def _draw_nothing() -> None:
    finish.plot_history = comparison.plot_runs = lambda *_: _Picture()  # type: ignore


def _note_epochs(note: Note) -> None:
    trainer_class: Any = loop._Trainer
    run_epoch = trainer_class.run_epoch

    def noted(trainer: Any, recorder: Any) -> None:
        piece = f"epoch {trainer.state.epoch} of {trainer.job.out.name}"
        note("begin", piece)
        run_epoch(trainer, recorder)
        note("done", piece)

    trainer_class.run_epoch = noted


def _build(data: Path, out: Path, note: Note) -> None:
    _note_features(note)
    build_store(out / "features", _recordings(data), FEATURES, processes=1)


def _train(data: Path, out: Path, note: Note) -> None:
    """Train with a teacher; there is a checkpoint after each step."""
    _draw_nothing()
    _note_features(note)
    _note_epochs(note)
    earmark.train(
        data / "weak.tsv",
        data / "weak.tsv",
        data / "audio",
        out / "run",
        overrides=[*SMALL, "training.generations=2", "training.checkpoint_seconds=0"],
        run=earmark.RunConfig(resume=True, device="cpu"),
    )


def _tune(data: Path, out: Path, note: Note) -> None:
    """Tune on events, which must leave the model that it starts from as it was."""
    untuned = Detector.load(out / "model.earmark", "cpu", threads=1)
    tuned, _ = earmark.tune(untuned, data / "strong.tsv", data / "audio", strong=True)
    tuned.save(out / "tuned.earmark")


def _compare(data: Path, out: Path, note: Note) -> None:
    _draw_nothing()
    _note_features(note)
    module: Any = comparison
    result_class: Any = RunResult
    execute, write = module.execute_run, result_class.write

    def noted(workspace: Any, run: Any) -> RunResult:
        note("begin", f"run {run.configuration}")
        result: RunResult = execute(workspace, run)
        return result

    def written(result: RunResult, path: Path) -> None:
        write(result, path)
        note("done", f"run {result.configuration}")

    module.execute_run, result_class.write = noted, written
    plan = Plan.read(data / "plan.toml")
    results = run_plan(plan, out / "results", processes=1, device="cpu")
    write_tables(plan, results, out / "results")


def _detect(data: Path, out: Path, note: Note) -> None:
    """Write the events of all recordings to one file, then to one file each, with scores."""
    gathering.TOGETHER = GROUP
    detector = Detector.load(data / "model.earmark", "cpu", threads=1)
    if _is_left(out / "found.tsv"):
        _detect_to(detector, data, out / "found.tsv", note, {})
    scores = {"score_folder": out / "scores", "format": "jsonl"}
    _detect_to(detector, data, f"{out}/found/", note, scores)


def _is_left(path: Path) -> bool:
    """Return whether a file of events is to be made, by a first run or by one that continues."""
    return not path.exists() or path.with_name(f"{path.name}{outputs.JOURNAL}").exists()


def _detect_to(
    detector: Detector,
    data: Path,
    out: Any,
    note: Note,
    settings: Mapping[str, Any],
    detect_each: Callable[..., Iterator[Any]] | None = None,
) -> None:
    """Detect, and note the groups of recordings that are processed together."""
    names = list(_recordings(data))
    detect = detect_each or detector.detect_each

    def begun(recordings: Any, **options: Any) -> Iterator[Any]:
        for result in detect(recordings, **options):
            note("begin", f"group {names.index(result.name) // GROUP} to {Path(out).name}")
            yield result

    for kind in (outputs.FileOutput, outputs.FolderOutput):
        _note_added(kind, names, note)
    detect_batch(
        detector,
        data / "audio",
        out,
        BatchSettings(sensitivity="high", **settings),
        detect_each=begun,
    )


def _note_added(kind: Any, names: list[str], note: Note) -> None:
    """Note that a group is done when the last of its recordings is in the output."""
    add = outputs.__dict__[kind.__name__].add

    def noted(output: Any, result: Any, path: Path) -> None:
        add(output, result, path)
        at = names.index(result.name)
        is_last = at % GROUP == GROUP - 1 or at == len(names) - 2  # the last one is unusable
        if is_last:
            target = output._path if hasattr(output, "_path") else output._folder
            note("done", f"group {at // GROUP} to {target.name}")

    kind.add = noted


def _cluster(data: Path, out: Path, note: Note) -> None:
    """Compute features on the workers, then detect there."""
    _note_features(note)
    gathering.TOGETHER = GROUP
    address = (data / ADDRESS).read_text()
    build_store(out / "features", _recordings(data), FEATURES, scheduler=address)
    detector = Detector.load(data / "model.earmark", "cpu", threads=1)
    detect = partial(detect_on_cluster, data / "model.earmark", scheduler=address)
    _detect_to(detector, data, out / "found.tsv", note, {}, detect)


def run_scheduler(announce: Callable[[str], None]) -> None:
    """Be a scheduler; `announce` gets its address."""
    import dask
    from distributed import Scheduler

    async def serve() -> None:
        async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:
            announce(scheduler.address)
            await scheduler.finished()

    quiet = {"distributed.scheduler.http.routes": [], "distributed.scheduler.allowed-failures": 100}
    with dask.config.set(quiet):
        asyncio.run(serve())


def run_worker(address: str, folder: Path) -> None:
    """Be a worker of a scheduler."""
    import dask
    from distributed import Worker

    async def work() -> None:
        store.SPILL = 800
        settings = {"nthreads": 1, "memory_limit": 0, "host": "127.0.0.1"}
        async with Worker(address, local_directory=str(folder), **settings) as worker:
            await worker.finished()

    quiet = {"distributed.worker.http.routes": [], "distributed.worker.profile.enabled": False}
    with dask.config.set(quiet):
        asyncio.run(work())


def _serve(data: Path, out: Path, note: Note) -> None:
    """Serve a library, upload and correct recordings that it does not have, and end."""
    limits = Limits()
    with bind("127.0.0.1", 0) as listening, Library(out / "library", limits) as library:
        left = list((library.state / "work").iterdir())
        assert not left, f"{left} stays of the service before"
        model = ServedModel.load(data / "model.earmark", threads=1)
        service = Service(model, library, limits)
        access = Access("127.0.0.1", listening.getsockname()[1])
        server = make_server(make_app(service, access, "test"), limits)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.002)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{access.port}", timeout=60) as client:
                _ask(client, data, note)
        finally:
            server.should_exit = True
            thread.join(60)
            service.close()


def _ask(client: httpx.Client, data: Path, note: Note) -> None:
    known = {own["name"]: own for own in _answer(client.get("/api/recordings"))}
    for name, path in list(_recordings(data).items())[:4]:
        own = known.get(name)
        if own is None:
            note("begin", f"upload of {name}")
            files = {"file": (name, path.read_bytes())}
            own = _answer(client.post("/api/recordings", files=files))
        while own["status"] == "working":
            time.sleep(0.005)
            own = _answer(client.get(f"/api/recordings/{own['id']}"))
        assert own["status"] == "ready", own
        note("done", f"upload of {name}")
        if not own["corrected"]:
            note("begin", f"correction of {name}")
            event = {"onset": 0.1, "offset": 0.5, "event_label": "knock"}
            body = {"events": [event], "tags": {"siren": False}}
            _answer(client.put(f"/api/recordings/{own['id']}/corrections", json=body))
        note("done", f"correction of {name}")


class RefusedError(Exception):
    """The service refused a request in one of its sentences."""


def _answer(response: httpx.Response) -> Any:
    """Return what the service answers."""
    if response.is_error and "detail" in response.json() and response.status_code != 500:
        raise RefusedError(response.json()["detail"])
    response.raise_for_status()
    return response.json()


def _export(data: Path, out: Path, note: Note) -> None:
    """Write the best epoch of a training as a model file, and that as an ONNX file."""
    _draw_nothing()
    finish.export_best(out / "run", out / "best.earmark", "cpu").export(out / "best.onnx")


_STORE = ("frames.f16", "index.jsonl")
_JOURNAL = (".partial.jsonl", "*.tsv.partial.jsonl")
_RUN = (*_STORE, "checkpoint.safetensors", "history.*")

TASKS: dict[str, Task] = {
    "store": Task(_build, growing=_STORE),
    "training": Task(_train, growing=_RUN),
    "tuning": Task(_tune, start=("model.earmark",), damaged=("tuned.earmark",)),
    "comparison": Task(_compare, growing=_RUN, damaged=("table*", "*-seed0.json", "runs.png")),
    # Not the file of a call that is complete, nor frame-level scores, which no journal has.
    "detection": Task(_detect, growing=_JOURNAL, damaged=("*.jsonl",)),
    "cluster": Task(_cluster, growing=(*_STORE, *_JOURNAL)),
    "serving": Task(
        _serve,
        growing=("*.scores", "*.grey", "*.overview", "corrections.json"),
        damaged=("*.scores", "*.grey", "*.overview", "scores/*.json"),
    ),
    "export": Task(_export, start=("run",), growing=_RUN, damaged=("best.*", "history.*")),
}
