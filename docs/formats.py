"""The table of docs/formats.md, from the registry of event formats."""

from earmark.formats.registry import EVENT_FORMATS


def format_table() -> str:
    """Return one row per event format: its suffix, and what it keeps."""
    lines = [
        "| `--format` | suffix | what it is | recordings per file | scores | without events | "
        "duration | date and time |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, own in EVENT_FORMATS.items():
        scores = "yes" if own.score_by_default else "with `--score`"
        cells = (
            f"`{name}`",
            ", ".join(f"`{suffix}`" for suffix in own.suffixes),
            own.summary,
            "many" if own.holds_many else "one",
            scores if own.keeps_scores else "-",
            "yes" if own.keeps_empty else "-",
            "yes" if own.keeps_durations else "-",
            "yes" if own.keeps_times else "-",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
