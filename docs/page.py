"""Draw the picture of the page: a synthetic scene, the bundled pretrained model, chromium.

`python -m docs.page` draws it alone; `make docs` draws it with all others. The picture in the
repository was drawn with the font Inter (Debian's fonts-inter).
"""

import sys
import tempfile
from pathlib import Path

from benchmarks.browser import browser, served
from earmark.audio.encode import write_audio
from earmark.experiments.demo import BUNDLED_LABELS
from earmark.files import atomic_write
from earmark.synth.scenes import SceneConfig, make_scene

PICTURE = Path(__file__).parent / "images" / "page.png"
SIZE = {"width": 1440, "height": 1150}
SEEDS = {"courtyard.wav": 8, "workshop.wav": 5, "crossing.wav": 2}  # the first is shown
SHOWN = "door_wood_knock"  # the class that is explained


def draw(path: Path) -> None:
    """Draw the page with a scene whose events are detected, one of them chosen and explained."""
    config = SceneConfig(
        sample_rate=32000,
        duration=30.0,
        classes=tuple(BUNDLED_LABELS),
        n_events=(7, 7),
        snr_db=(18.0, 24.0),
        max_overlap=1,
    )
    with tempfile.TemporaryDirectory() as folder:
        for name, seed in SEEDS.items():
            write_audio(Path(folder, name), make_scene(config, seed=seed).waveform, 32000)
        with served(Path(folder)) as address, browser() as chrome:
            atomic_write(path, screenshot(chrome, address, next(iter(SEEDS))))


def screenshot(chrome, address: str, name: str, theme: str = "light") -> bytes:
    """Return a picture of the page with one recording of its library, as PNG."""
    context = chrome.new_context(viewport=SIZE, color_scheme=theme)
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.goto(address)
    page.wait_for_function("() => document.querySelectorAll('.uncertainty').length === 3")
    page.locator(".recording-open", has_text=name).click()
    page.locator("#spectrogram").focus()
    row = page.locator(".event-row", has_text=SHOWN.replace("_", " ")).first
    row.click()
    page.locator("#why-toggle").click()
    page.locator("#why-hierarchical svg").wait_for()
    page.evaluate("() => { scrollTo(0, 0); document.activeElement.blur(); }")
    page.mouse.move(700, 10)
    page.wait_for_load_state("networkidle")
    return page.screenshot()


if __name__ == "__main__":
    sys.exit(draw(PICTURE))
