"""The record of a training: what its model file needs besides the checkpoint.

Conventions: one JSON file, written atomically before the first step. Together with a checkpoint and
the features it is enough to write the model of the best epoch so far, whenever the training
stopped (`earmark.training.finish`). A store inside the output folder is recorded relative to it, so
that the folder can be moved.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from earmark.data.manifest import Manifest
from earmark.data.store import Excerpt, FeatureStore
from earmark.errors import DataError, refusing
from earmark.files import atomic_write
from earmark.training.settings import Settings

RECORD = "run.json"


@dataclass(frozen=True)
class RunRecord:
    """What a training was about.

    Args:
        fingerprint: of data and settings, which the checkpoint has as well.
        store: folder of the features.
        settings: of the training, with the number of classes and the feature statistics.
        window: of the detector, in seconds.
        valid: validation clips, negatives included.
        n_train: number of training clips, negatives included.
        n_negatives: number of negatives among them.
        supervision: "weak" or "strong".
        licence: of the weights.
        attribution: credits for the recordings.
        origin: of a training that started from a model, which one.

    >>> import tempfile
    >>> clips = Manifest(["a.wav"], [Path("a.wav")], [("dog",)], ["dog"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     record = RunRecord("", Path(folder, "features"), Settings(), 10.0, clips, 8, 0, "weak")
    ...     record.write(Path(folder))
    ...     RunRecord.read(Path(folder)) == record
    True
    """

    fingerprint: str
    store: Path
    settings: Settings
    window: float
    valid: Manifest
    n_train: int
    n_negatives: int
    supervision: str
    licence: str = ""
    attribution: tuple[str, ...] = ()
    origin: Mapping[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write the record of the training in `folder`."""
        store, top = self.store.resolve(), folder.resolve()
        valid = self.valid
        values = {
            "fingerprint": self.fingerprint,
            "store": str(store.relative_to(top) if store.is_relative_to(top) else store),
            "settings": self.settings.to_dict(),
            "window": self.window,
            "valid": {
                "files": valid.files,
                "paths": [str(path) for path in valid.paths],
                "tags": valid.tags,
                "labels": valid.labels,
                "excerpts": valid.excerpts,
            },
        }
        plain = ("n_train", "n_negatives", "supervision", "licence", "attribution", "origin")
        values |= {name: getattr(self, name) for name in plain}
        atomic_write(folder / RECORD, (json.dumps(values) + "\n").encode())

    @classmethod
    def read(cls, folder: Path) -> "RunRecord":
        """Read the record of the training in `folder`."""
        path = folder / RECORD
        if not path.exists():
            raise DataError(
                f"There is no {RECORD} in {folder}: pass the output folder of a training. If an "
                "older Earmark trained there, resume the training, which writes its model."
            )
        advice = "Resume the training, which writes it again."
        with refusing(f"{path} is damaged", DataError, advice):
            values = json.loads(path.read_text(encoding="utf-8"))
            valid = values.pop("valid")
            excerpts = {name: Excerpt(*part) for name, part in valid.pop("excerpts").items()}
            valid["tags"] = tuple(map(tuple, valid["tags"]))
            valid["paths"] = tuple(map(Path, valid["paths"]))
            values |= {
                "store": folder / values["store"],
                "settings": Settings.from_dict(values["settings"]),
                "valid": Manifest(**valid, excerpts=excerpts),
                "attribution": tuple(values["attribution"]),
            }
            return cls(**values)

    def open_store(self) -> FeatureStore:
        """Open the features of the validation clips."""
        return FeatureStore.open(self.store).with_excerpts(self.valid.excerpts)
