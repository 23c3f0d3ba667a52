"""Which model a library uses after a restart, and which model files of jobs it keeps.

Conventions: `adopted.json` of the library names the adopted model and the hash of the file that the
service had been started with. A service that is started with the same file again uses the adopted
model; with any other file it uses that one. Of the models of jobs, the adopted one is kept, that of
the last job until the next job or the next service starts, and one that the service was started
with.
"""

import hashlib
import json
import logging
from collections.abc import Collection
from pathlib import Path

from earmark.errors import EarmarkError
from earmark.files import atomic_write
from earmark.web.library import Library
from earmark.web.served_model import ServedModel

logger = logging.getLogger(__name__)

FILE, FOLDER = "adopted.json", "models"


def open_model(
    library: Library,
    first: Path,
    device: str = "cpu",
    threads: int = 0,
    encoder: Path | None = None,
) -> ServedModel:
    """Return the model that a library has adopted in place of a file, or that of the file.

    Args:
        library: whose models are cleaned up.
        first: the model file that the service is started with.
        device: as in `Detector.load`.
        threads: as in `Detector.load`.
        encoder: as in `Detector.load`.

    >>> from earmark.inference.model_file import BUNDLED
    >>> with Library() as library:
    ...     open_model(library, BUNDLED).name
    'everyday.earmark'
    """
    name, digest = _read(library)
    remove_models(library, [first])
    if name and first.is_file() and digest == _digest(first):
        adopted = library.state / FOLDER / name
        try:
            model = ServedModel.load(adopted, device, threads, encoder)
        except EarmarkError as error:
            logger.warning("The adopted model is not used: %s", error)
        else:
            logger.info("%s is used, adopted in place of %s.", name, first.name)
            return model
    return ServedModel.load(first, device, threads, encoder)


def keep_adopted(library: Library, first: Path, model: Path) -> None:
    """Let later services that are started with `first` use a model of the library."""
    about = {"model": model.name, "in_place_of": _digest(first)}
    atomic_write(library.state / FILE, json.dumps(about).encode())


def forget_adopted(library: Library) -> None:
    """Let later services use the file that they are started with."""
    (library.state / FILE).unlink(missing_ok=True)


def remove_models(library: Library, kept: Collection[Path]) -> None:
    """Delete the models of jobs, except some and the adopted one."""
    adopted, _ = _read(library)
    names = {adopted, *(path.name for path in kept)}
    for path in (library.state / FOLDER).glob("*.earmark"):
        if path.name not in names:
            path.unlink(missing_ok=True)


def _read(library: Library) -> tuple[str, str]:
    """Return the file name of the adopted model and the hash of what it is in place of."""
    path = library.state / FILE
    try:
        about = json.loads(path.read_bytes())
        return Path(about["model"]).name, str(about["in_place_of"])
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("%s cannot be read (%s), and no adopted model is used.", path, error)
    return "", ""


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
