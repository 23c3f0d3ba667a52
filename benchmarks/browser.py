"""Debian's chromium, driven by Playwright, and a service to open in it.

For the tests of the page, its benchmark and its picture.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = "chromium is not installed: apt-get install chromium"
ARGUMENTS = [
    "--headless",
    "--no-sandbox",  # tests run as root in containers
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--mute-audio",
    "--autoplay-policy=no-user-gesture-required",
    "--use-fake-ui-for-media-stream",  # a microphone that beeps, and no question about it
    "--use-fake-device-for-media-stream",
]


def chromium() -> str | None:
    """Return the path of the browser; None if there is none."""
    found = (shutil.which(name) for name in NAMES)
    return next((path for path in found if path), None)


@contextmanager
def browser() -> Iterator[Any]:
    """Run a browser with a profile of its own, which is removed afterwards."""
    from playwright.sync_api import sync_playwright

    path = chromium()
    if path is None:
        sys.exit(MISSING)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield running
        finally:
            running.close()


@contextmanager
def served(library: Path, *arguments: str) -> Iterator[str]:
    """Run `earmark serve` on a free port with the recordings of a folder; yield its address."""
    command = [sys.executable, "-m", "earmark", "serve", "--port", "0", "--library", str(library)]
    process = subprocess.Popen(
        [*command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            found = re.search(r"http://\S+/", line)
            if found:
                yield found[0]
                return
        sys.exit("earmark serve ended before it answered.")
    finally:
        process.terminate()
        process.wait()
