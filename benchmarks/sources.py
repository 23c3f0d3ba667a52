"""The sources of the scenes in docs/results.md: recordings per class, and shortened events."""

from pathlib import Path

from earmark.synth.scenes import SceneSets, make_scene
from earmark.synth.soundbank import Soundbank

HERE = Path(__file__).parent
SCORED = "test"


def run(shared: Path) -> str:
    """Return the counts as Markdown; needs the recordings of ESC-50."""
    if not (shared / "esc50" / "clips.tsv").is_file():
        return "Not counted: the recordings of ESC-50 are missing."
    rows = ["| set | folds | scenes | recordings per class |", "|---|---|---:|---:|"]
    sentence = ""
    for file in ("scenes.toml", "everyday.toml"):
        sets = SceneSets.read(HERE / file)
        table, audio = (HERE / path for path in (sets.bank.table, sets.bank.audio))
        for name, chosen in sets.sets.items():
            bank = Soundbank.from_table(table, audio, chosen.folds)
            counts = [len(bank.files[category]) for category in sets.scenes.classes]
            folds = ", ".join(map(str, chosen.folds))
            span = f"{min(counts)} to {max(counts)}"
            rows.append(f"| {name} | {folds} | {chosen.n:,} | {span} |")
            if name == SCORED:
                sentence = count_short_events(sets, bank)
    return "\n".join([*rows, "", sentence])


def count_short_events(sets: SceneSets, bank: Soundbank) -> str:
    """Report how many test events are shorter than requested, since their recordings are."""
    config, chosen = sets.scenes, sets.sets[SCORED]
    durations = [
        event.offset - event.onset
        for index in range(chosen.n)
        for event in make_scene(config, chosen.seed, index, bank).events
    ]
    least = config.event_duration[0]
    n_short = sum(
        duration < least - 0.001 for duration in durations
    )  # onsets and offsets are whole milliseconds
    return f"{n_short} of the {len(durations):,} events of {SCORED} are shorter than {least} s."
