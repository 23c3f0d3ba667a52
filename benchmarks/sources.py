"""What the scenes of docs/results.md are made of: recordings a class, and events cut short."""

from pathlib import Path

from earmark.synth.scenes import Scenery, make_scene
from earmark.synth.soundbank import Soundbank

HERE = Path(__file__).parent
SCORED = "test"


def run(shared: Path) -> str:
    """Count, and return the figures in Markdown; needs the recordings."""
    if not (shared / "esc50" / "clips.tsv").is_file():
        return "Not counted: it needs the recordings of esc50."
    rows = ["| set | folds | scenes | recordings a class |", "|---|---|---:|---:|"]
    sentence = ""
    for file in ("scenes.toml", "everyday.toml"):
        scenery = Scenery.read(HERE / file)
        table, audio = (HERE / path for path in (scenery.bank.table, scenery.bank.audio))
        for name, chosen in scenery.sets.items():
            bank = Soundbank.from_table(table, audio, chosen.folds)
            counts = [len(bank.files[category]) for category in scenery.scenes.classes]
            folds = ", ".join(map(str, chosen.folds))
            span = f"{min(counts)} to {max(counts)}"
            rows.append(f"| {name} | {folds} | {chosen.n:,} | {span} |")
            if name == SCORED:
                sentence = tell_of_short(scenery, bank)
    return "\n".join([*rows, "", sentence])


def tell_of_short(scenery: Scenery, bank: Soundbank) -> str:
    """Say how many of the scored events are shorter than asked, since their recordings are."""
    config, chosen = scenery.scenes, scenery.sets[SCORED]
    durations = [
        event.offset - event.onset
        for index in range(chosen.n)
        for event in make_scene(config, chosen.seed, index, bank).events
    ]
    least = config.event_duration[0]
    n_short = sum(duration < least - 0.001 for duration in durations)  # a cut is to a millisecond
    return f"{n_short} of the {len(durations):,} events of {SCORED} are shorter than {least} s."
