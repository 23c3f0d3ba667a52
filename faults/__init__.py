"""Attacks on Earmark itself: `make faults`, described in docs/reliability.md.

Parts are in `faults.__main__.PARTS`; each has cases with a number, which follow from a seed. A run
that is stopped continues with the next case, and counts are kept in a JSON file.
"""
