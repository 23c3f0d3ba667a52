"""The folder of recordings that a service knows, with its working files.

Conventions: a recording is known by its name, which is its path in the folder, and to clients by an
id, a hash of the name; nothing that a client sends becomes a path. Working files are in the hidden
folder `.earmark` of the library: `work` has what is temporary and is emptied at every start, also
after a kill; `scores` has what was computed and can be computed again; `models` has the results of
jobs. One process at a time serves a library.

A library without a folder of its own is temporary: it is removed when the service ends, and if the
process was killed, when the next one starts.
"""

import hashlib
import logging
import os
import re
import shutil
import tempfile
import unicodedata
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Literal
from uuid import uuid4

from earmark.audio.decode import SUFFIXES, find_audio
from earmark.errors import DataError
from earmark.files import LOCK, locked
from earmark.web.analysis import Analysis
from earmark.web.limits import Limits, RequestError, Watch

logger = logging.getLogger(__name__)

Status = Literal["working", "ready", "failed"]

STATE = ".earmark"
LONGEST_NAME = 120  # bytes, which leaves room for a number and for the suffixes of other files
_MAGIC = {b"RIFF": ".wav", b"fLaC": ".flac", b"OggS": ".ogg", b"FORM": ".aiff", b"ID3": ".mp3"}


@dataclass(eq=False)
class Recording:
    """One recording of a library, and how far its analysis is.

    Args:
        id: what clients know it by.
        name: its path in the library.
        path: of the file.
        status: "working", "ready" or "failed".
        detail: why it failed.
        code: the HTTP status of an upload that failed so.
        analysis: its scores and spectrogram, as far as they are.
        watch: of the analysis that is under way.
        n_events: of the model's own decoding.
        uncertainty: of the model about it, from 0 to 1.
    """

    id: str
    name: str
    path: Path
    status: Status = "working"
    detail: str = ""
    code: int = 422
    analysis: Analysis | None = None
    watch: Watch | None = None
    expected: float | None = None  # seconds, by its header
    n_events: int | None = None
    uncertainty: float | None = None
    lock: Lock = field(default_factory=Lock, repr=False)

    @property
    def duration(self) -> float | None:
        """Seconds; None as long as it is not known."""
        if self.status == "ready" and self.analysis is not None:
            return self.analysis.duration
        return self.expected

    @property
    def progress(self) -> float:
        """How much of it is analysed, from 0 to 1."""
        if self.status != "working":
            return 1.0
        if self.watch is None or not self.expected:
            return 0.0
        return min(0.99, self.watch.duration / self.expected)


class Library:
    """The recordings of a folder.

    Args:
        folder: with recordings or without; made if it does not exist. None is a temporary one.
        limits: on its size.

    >>> with Library() as library:
    ...     library.is_temporary, len(library)
    (True, 0)
    """

    def __init__(self, folder: Path | None = None, limits: Limits | None = None) -> None:
        self.limits, self.is_temporary = limits or Limits(), folder is None
        self._stack = ExitStack()
        self._lock = Lock()
        self._recordings: dict[str, Recording] = {}
        try:
            self.folder = self._open_temporary() if folder is None else self._open(folder)
            self.state = self.folder / STATE
            for name in ("work", "scores", "models"):
                (self.state / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"The library {folder or 'of temporary files'} cannot be used: "
                f"{error.strerror or error}; name another folder."
            ) from error
        self._sizes: dict[str, int] = {}
        for path in find_audio(self.folder):
            if STATE in path.relative_to(self.folder).parts:
                continue
            try:
                str(path).encode()
            except UnicodeEncodeError:
                logger.warning("%r is left out: its name is not UTF-8; rename it.", str(path))
                continue
            self._know(path)

    def __enter__(self) -> "Library":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._recordings)

    def __iter__(self) -> Iterator[Recording]:
        return iter(list(self._recordings.values()))

    def close(self) -> None:
        """Remove what is temporary and let other processes use the folder."""
        shutil.rmtree(self.folder if self.is_temporary else self.state / "work", True)
        self._stack.close()

    def find(self, id: str) -> Recording:
        """Return the recording with an id, or raise `RequestError`."""
        recording = self._recordings.get(id)
        if recording is None:
            raise RequestError(404, "There is no such recording; it may have been deleted.")
        return recording

    def work_path(self) -> Path:
        """Return a new path for a temporary file."""
        return self.state / "work" / f"{uuid4().hex}.part"

    def add(self, file: Path, name: str) -> Recording:
        """Move a file into the library under a name that is free; return the recording."""
        size = file.stat().st_size
        name = with_audio_suffix(clean_name(name), file)
        with self._lock:
            if len(self) >= self.limits.max_recordings:
                raise RequestError(
                    413,
                    f"The library has {len(self)} recordings, the limit of this service; delete "
                    "some.",
                )
            if sum(self._sizes.values()) + size > self.limits.max_library:
                raise RequestError(
                    413, "The library is as large as this service allows; delete recordings."
                )
            path = self._free_path(name)
            file.replace(path)
            return self._know(path)

    def remove(self, id: str) -> None:
        """Delete a recording and its file."""
        recording = self.find(id)
        with self._lock:
            self._recordings.pop(id, None)
            self._sizes.pop(id, None)
        recording.path.unlink(missing_ok=True)

    def _know(self, path: Path) -> Recording:
        name = path.relative_to(self.folder).as_posix()
        id = hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=8).hexdigest()
        recording = Recording(id, name, path)
        self._recordings[id] = recording
        # A link whose file is gone is a recording that fails, as it is for other commands.
        self._sizes[id] = path.stat().st_size if path.exists() else 0
        return recording

    def _free_path(self, name: str) -> Path:
        stem, suffix = os.path.splitext(name)  # noqa: PTH122 - of a name, not of a path
        for number in range(1, self.limits.max_recordings + 2):
            own = name if number == 1 else f"{stem}_{number}{suffix}"
            path = self.folder / own
            # Tables match names without suffix and case, so that those must differ as well.
            if not path.exists() and not self._is_known(own):
                return path
        raise RequestError(409, f"The library has too many recordings named {name!r}; rename it.")

    def _is_known(self, name: str) -> bool:
        stem = os.path.splitext(name)[0].casefold()  # noqa: PTH122
        names = (each.name for each in self._recordings.values())
        return any(os.path.splitext(other)[0].casefold() == stem for other in names)  # noqa: PTH122

    def _open(self, folder: Path) -> Path:
        folder = folder.resolve()
        state = folder / STATE
        state.mkdir(parents=True, exist_ok=True)
        self._stack.enter_context(locked(state, doing="serving"))
        shutil.rmtree(state / "work", ignore_errors=True)  # of a process that was killed
        return folder

    def _open_temporary(self) -> Path:
        base = temporary_base()
        with locked(base, wait=True):  # nobody removes what is being made
            for other in base.iterdir():
                if other.is_dir():
                    _remove_unused(other)
            folder = Path(tempfile.mkdtemp(dir=base))
            self._stack.enter_context(locked(folder, doing="serving"))
        return folder


def temporary_base() -> Path:
    """Return the folder of temporary libraries, which only this user can read.

    >>> temporary_base().is_dir()
    True
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    base = Path(tempfile.gettempdir()) / f"earmark-serve-{user}"
    base.mkdir(mode=0o700, exist_ok=True)
    about = base.lstat()
    if base.is_symlink() or (hasattr(os, "getuid") and about.st_uid != user):
        raise DataError(f"{base} belongs to another user; name a folder as the library.")
    return base


def _remove_unused(folder: Path) -> None:
    """Remove a temporary library whose process has ended."""
    try:
        if not (folder / LOCK).exists():
            shutil.rmtree(folder, ignore_errors=True)
            return
        with locked(folder):
            shutil.rmtree(folder, ignore_errors=True)
    except (DataError, OSError):  # another process serves it
        return


def clean_name(name: str) -> str:
    r"""Return a file name without folders, control characters and signs that systems refuse.

    >>> clean_name("../../etc/passwd"), clean_name("C:\\sounds\\a.wav"), clean_name(".hidden.wav")
    ('passwd', 'a.wav', 'hidden.wav')
    >>> clean_name("a\tb\n.wav"), clean_name("..")
    ('ab.wav', 'recording')
    """
    name = unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode())
    name = re.split(r"[/\\]", name)[-1]
    name = "".join(c for c in name if unicodedata.category(c)[0] != "C" and c not in '<>:"|?*')
    name = re.sub(r"\s+", " ", name).strip(" .")
    stem, suffix = os.path.splitext(name)  # noqa: PTH122
    suffix = suffix.encode()[:20].decode(errors="ignore")
    stem = stem.encode()[: LONGEST_NAME - 20].decode(errors="ignore").strip(" .")
    return f"{stem or 'recording'}{suffix}"


def with_audio_suffix(name: str, file: Path) -> str:
    """Return a name that ends as audio does: as it is, or with the suffix of the file's content.

    >>> with_audio_suffix("a.mp3", Path("a"))
    'a.mp3'
    """
    if os.path.splitext(name)[1].lower() in SUFFIXES:  # noqa: PTH122
        return name
    with file.open("rb") as stream:
        head = stream.read(4)
    return name + next((own for magic, own in _MAGIC.items() if head.startswith(magic)), ".wav")
