"""A TOML file -> sets of soundscapes, each from recordings of its own.

Conventions: the file names a soundbank, what all scenes are made of, and the sets. A path in it is
seen from the file. Sets that are to share no recording name different folds.

    [bank]                  table and audio, as in `Soundbank.from_table`
    [scenes]                the fields of `SceneConfig`
    [sets.train]            n, seed and folds; one such table for each set
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from earmark.errors import SettingError, choose
from earmark.events import Event
from earmark.soundbank import Soundbank
from earmark.strict import build, read_toml
from earmark.synth import SceneConfig, write_scenes


@dataclass(frozen=True)
class BankConfig:
    """Where the recordings are."""

    table: str
    audio: str


@dataclass(frozen=True)
class SetConfig:
    """How many scenes, from which seed, and from which folds of the bank."""

    n: int
    seed: int
    folds: tuple[int | str, ...]


@dataclass(frozen=True)
class Scenery:
    """What a file says: the bank, the scenes, and the sets by name."""

    bank: BankConfig
    scenes: SceneConfig
    sets: dict[str, SetConfig]
    folder: Path

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Scenery":
        """Read a TOML file; see the top of this room."""
        source = Path(path)
        tree = read_toml(source)
        for name in tree:
            choose(f"table in {source}", name, ("bank", "scenes", "sets"))
        for name in ("bank", "sets"):
            if not (tree.get(name) and isinstance(tree[name], Mapping)):
                raise SettingError(f"{source} needs a table [{name}]; see benchmarks/scenes.toml.")
        sets = {name: build(SetConfig, f"sets.{name}", of) for name, of in tree["sets"].items()}
        for name, of in sets.items():
            if of.n < 1 or of.seed < 0 or not of.folds:
                raise SettingError(
                    f"sets.{name} needs n of 1 or more, a seed of 0 or more, and a fold."
                )
        return cls(
            build(BankConfig, "bank", tree["bank"]),
            build(SceneConfig, "scenes", tree.get("scenes", {})),
            sets,
            source.parent,
        )

    def write(
        self,
        out: str | os.PathLike[str],
        names: Iterable[str] | None = None,
        *,
        suffix: str = ".wav",
        processes: int = 1,
        overwrite: bool = False,
    ) -> dict[str, dict[str, list[Event]]]:
        """Write sets, all of them without `names`; return set -> file -> its events.

        Each has a folder of its name in `out`, as `write_scenes` makes it, and its name before
        every file, so that no two sets share a name.
        """
        chosen = [choose("set of scenes", name, self.sets) for name in names or self.sets]
        table, audio = (self.folder / path for path in (self.bank.table, self.bank.audio))
        banks = {}  # all of them before anything is written
        for name in chosen:
            banks[name] = Soundbank.from_table(table, audio, self.sets[name].folds)
        written = {}
        for name in chosen:
            config = self.sets[name]
            written[name] = write_scenes(
                Path(out) / name,
                config.n,
                self.scenes,
                config.seed,
                bank=banks[name],
                prefix=f"{name}_",
                suffix=suffix,
                processes=processes,
                overwrite=overwrite,
            )
        return written
