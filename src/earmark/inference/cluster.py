"""Recordings -> events on a cluster: chunks of recordings go to workers that hold the model.

Conventions: a worker loads a model once, and keeps it as long as the file is the same. The file is
named by its path and identified by its SHA-256: a worker that finds another file there raises
`ClusterError`. Of the bundled model every machine has its own copy. The events are those of
`Detector.detect_each` in one process; their scores too, but for the rounding (1e-6) of short
recordings, which are gathered per task (`earmark.inference.folder`). A task runs on one thread.
"""

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from earmark.data.encoded import check_known_to_others
from earmark.errors import BundleError, ClusterError
from earmark.formats.names import stems_of
from earmark.inference.detector import (
    Detector,
    FileEvents,
    FileResult,
    collect_results,
    name_recordings,
)
from earmark.inference.model_file import BUNDLED, model_path
from earmark.inference.onnx_file import open_bundle
from earmark.runtime.cluster import Cluster, map_on_cluster

PER_TASK = 32  # recordings: enough short ones that sending them costs little
AHEAD = 64  # tasks per thread: results are small, and one long recording shall not stop the others

PathLike = str | os.PathLike[str]
Recording = tuple[str, Path]  # its name and its path


@dataclass(frozen=True)
class ModelSource:
    """A model file as workers find it.

    Args:
        path: of the model file; "" is the bundled one.
        sha256: of its content.
        encoder: where the encoder of the model is, if it was moved.
        device: where networks run on a worker.

    >>> ModelSource.of(BUNDLED).path
    ''
    """

    path: str
    sha256: str
    encoder: str = ""
    device: str = "cpu"

    @classmethod
    def of(
        cls, path: PathLike, encoder: PathLike | None = None, device: str = "cpu"
    ) -> "ModelSource":
        """Return the source of a model file that can be read here; raise if it cannot."""
        bundle = open_bundle(path)
        if encoder is not None:
            bundle = bundle.with_encoder(encoder)
        for config in bundle.feature_configs:
            check_known_to_others(config)
        bundled = model_path(path).resolve() == BUNDLED.resolve()
        return cls(
            "" if bundled else str(Path(path).absolute()),
            _sha256(Path(path)),
            "" if encoder is None else str(Path(encoder).absolute()),
            device,
        )

    @property
    def file(self) -> Path:
        """The model file on this machine."""
        return Path(self.path) if self.path else BUNDLED

    def load(self) -> Detector:
        """Return the detector; raise if the file here is another one."""
        try:
            found = _sha256(self.file)
        except OSError as error:
            raise BundleError(f"There is no model file {self.file}.") from error
        if found != self.sha256:
            raise ClusterError(
                f"The model file {self.file} of a worker is another one than that of the process "
                f"that sent the task: SHA-256 {found[:12]}... instead of {self.sha256[:12]}...; "
                "every machine needs the same file."
            )
        return Detector.load(self.file, self.device, threads=1, encoder=self.encoder or None)


def detect_on_cluster(
    model: PathLike,
    recordings: Mapping[str, Path],
    scheduler: str,
    *,
    sensitivity: str | float = "normal",
    min_score: float = 0.0,
    keep_scores: bool = False,
    done: Collection[str] = (),
    device: str = "cpu",
    encoder: PathLike | None = None,
) -> Iterator[FileResult]:
    """Yield what is found in each recording, in order, as `Detector.detect_each` does.

    A recording that ends every worker that tries it is reported as one that cannot be read.

    Args:
        model: path of the model file, or `earmark.inference.model_file.BUNDLED`.
        recordings: name -> path, as `name_recordings` returns. Model and recordings must have the
            same paths on all machines.
        scheduler: "local", "local:4" or an address, as in `earmark.runtime.cluster`.
        sensitivity: as in `Detector.detect`.
        min_score: as in `Detector.detect`.
        keep_scores: whether results have the frame-level scores, which are large.
        done: names of recordings to leave out.
        device: where networks run on the workers.
        encoder: where the encoder of the model is, if it was moved.

    >>> list(detect_on_cluster(BUNDLED, {"a.wav": Path("a.wav")}, "nowhere"))
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: scheduler must be 'local', 'local:4' (worker processes) or an
    address such as 'tcp://host:8786'. Got 'nowhere'.
    """
    source = ModelSource.of(model, encoder, device)
    shared = [path for path in (source.path, source.encoder) if path]
    cluster: Cluster[Recording] = Cluster(
        scheduler,
        name=lambda recording: str(recording[1]),
        files=lambda recording: (recording[1], *shared),
        killed=lambda recording, error: FileResult(recording[0], [], error=error),
        per_task=PER_TASK,
        ahead=AHEAD,
    )
    detect = partial(
        detect_chunk,
        source,
        sensitivity=sensitivity,
        min_score=min_score,
        keep_scores=keep_scores,
    )
    items = [(name, Path(path).absolute()) for name, path in recordings.items()
             if name not in done]  # fmt: skip
    yield from map_on_cluster(detect, items, cluster)


def detect_files_on_cluster(
    model: PathLike,
    recordings: PathLike | Iterable[PathLike],
    scheduler: str,
    scores: PathLike | None = None,
    **choices: Any,
) -> FileEvents:
    """Return the events in each of many recordings, as `Detector.detect_files` does.

    Args:
        model: as in `detect_on_cluster`.
        recordings: files, or folders, whose recordings have names relative to them.
        scheduler: as in `detect_on_cluster`.
        scores: folder to write the frame-level scores to, one table per recording; this process
            writes them.
        choices: `sensitivity`, `min_score`, `device` and `encoder`, as in `detect_on_cluster`.

    >>> detect_files_on_cluster(BUNDLED, "a.wav", "nowhere")
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: scheduler must be ...
    """
    files = name_recordings(recordings)
    if scores is not None:
        stems_of(files)  # two that would write one table are refused before any work
    keep = scores is not None
    found = detect_on_cluster(model, files, scheduler, keep_scores=keep, **choices)
    return collect_results(found, scores)


def detect_chunk(
    source: ModelSource,
    recordings: list[Recording],
    *,
    sensitivity: str | float = "normal",
    min_score: float = 0.0,
    keep_scores: bool = False,
) -> list[FileResult]:
    """On a worker: return what is found in some recordings.

    >>> [result.name for result in detect_chunk(ModelSource.of(BUNDLED), [("a", Path("no.wav"))])]
    ['a']
    """
    found = _loaded(source).detect_each(
        dict(recordings), sensitivity=sensitivity, min_score=min_score, keep_scores=keep_scores
    )
    return list(found)


@lru_cache(maxsize=2)
def _loaded(source: ModelSource) -> Detector:
    return source.load()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
