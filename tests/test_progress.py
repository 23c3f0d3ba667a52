"""The progress bar: on terminals only, and gone when it ends."""

import io
import sys

import pytest

from earmark.runtime.progress import ProgressBar


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "shown", "drawn"),
    [(Terminal, True, True), (Terminal, False, False), (io.StringIO, True, False)],
)
def test_a_bar_is_drawn_on_terminals_only(monkeypatch, stream, shown, drawn):
    monkeypatch.setattr(sys, "stderr", stream())
    monkeypatch.setenv("TERM", "xterm")
    with ProgressBar("features", total=4, done=1, shown=shown) as bar:
        bar.advance(2)
        bar.move_to(4)
    text = sys.stderr.getvalue()
    assert ("features" in text and "4/4" in text) == drawn
    assert bool(text) == drawn
