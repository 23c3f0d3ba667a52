"""The page of `earmark serve` in chromium: time until interactive, frames per second on an hour.

The hour consists of synthetic scenes. It is uploaded, and the bundled pretrained model has analysed
it before the page is opened. Scrolling is by wheel events, one per frame, as a touchpad sends them.
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.browser import browser, served
from earmark.audio.encode import write_audio
from earmark.experiments.demo import BUNDLED_LABELS
from earmark.metrics.report import TextTable
from earmark.synth.scenes import SceneConfig, make_scene

LOADS = 5
FRAMES = 240
SCENES, SAMPLE_RATE = 12, 16000  # each scene lasts 10 s, and the hour repeats them
SPANS = {"10 s": 10.0, "1 min": 60.0, "10 min": 600.0}  # what is visible
PHONE = {"width": 360, "height": 740}
SCROLL = """
frames => new Promise(done => {
  const target = document.getElementById("spectrogram");
  const times = [];
  const step = now => {
    times.push(now);
    if (times.length > frames) return done(times);
    target.dispatchEvent(new WheelEvent("wheel", { deltaX: 24, cancelable: true }));
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})
"""


def run(shared: Path) -> str:
    """Measure, and return the figures as Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "hour.wav")
        write_audio(file, made_hour(), SAMPLE_RATE)
        with served(Path(folder, "library")) as address, browser() as chrome:
            answers = ask(address, file)
            loads = sorted(load_time(chrome, address) for _ in range(LOADS))
            rows = [(name, *scroll(chrome, address, span)) for name, span in SPANS.items()]
            rows.append(("1 min, 360 px wide", *scroll(chrome, address, 60.0, PHONE)))
    columns = ("visible", "frames per second, median", "1 of 20 is longer than, ms", "slowest, ms")
    table = TextTable("Scrolling through one hour", columns, tuple(rows)).to_markdown()
    return (
        f"The page is interactive {statistics.median(loads):.2f} s after the address was opened "
        f"(the median of {LOADS} new profiles; slowest {loads[-1]:.2f} s), with one hour in its "
        f"library.\n\n{table}\n\nChromium without a GPU, which draws at most 60 frames per second."
        f"\n\n{answers}"
    )


def ask(address: str, file: Path) -> str:
    """Upload the hour and ask for what the page shows; return how long it takes, in a sentence."""
    with httpx.Client(base_url=address, timeout=600.0) as client:
        begin = time.monotonic()
        with file.open("rb") as stream:
            found = client.post("api/recordings", files={"file": stream}).raise_for_status().json()
        path = f"api/recordings/{found['id']}"
        while client.get(path).json()["status"] == "working":
            time.sleep(0.2)
        analysed = time.monotonic() - begin
        levels = {level: client.get(f"{path}/tile?level={level}") for level in (0, 4, 9)}
        tiles = [answer.raise_for_status().elapsed.total_seconds() for answer in levels.values()]
        body = {"rules": {"threshold": 0.4}}
        events = client.post(f"{path}/events", json=body).raise_for_status().elapsed
        scores = client.get(f"{path}/scores?points=2000").raise_for_status().elapsed
    return (
        f"Upload and analysis of the hour (wav, 16 kHz) take {analysed:.0f} s. Then a tile takes "
        f"{1000 * min(tiles):.0f} to {1000 * max(tiles):.0f} ms, events for other thresholds "
        f"{events.total_seconds():.2f} s, and the scores of all classes in 2,000 points "
        f"{scores.total_seconds():.2f} s."
    )


def made_hour() -> np.ndarray:
    """Return an hour of scenes with bells, engines, knocks and sirens."""
    config = SceneConfig(sample_rate=SAMPLE_RATE, classes=tuple(BUNDLED_LABELS))
    scenes = [make_scene(config, seed=seed).waveform for seed in range(SCENES)]
    return np.resize(np.concatenate(scenes), 3600 * SAMPLE_RATE)


def open_page(chrome: Any, address: str, viewport: dict[str, int] | None = None) -> Any:
    """Open the page in a new profile and wait until it is interactive."""
    context = chrome.new_context(viewport=viewport or {"width": 1440, "height": 900})
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    return page


def load_time(chrome: Any, address: str) -> float:
    """Return the seconds from opening the address until the page is interactive."""
    page = open_page(chrome, address)
    mark = "performance.getEntriesByName('earmark-interactive')[0].startTime"
    found = page.evaluate(mark) / 1000
    page.context.close()
    return float(found)


def scroll(
    chrome: Any, address: str, span: float, viewport: dict[str, int] | None = None
) -> tuple[str, str, str]:
    """Scroll for some seconds; return frames per second and the slowest frames, in ms."""
    page = open_page(chrome, address, viewport)
    page.locator(".event-row").first.wait_for()
    page.locator("#spectrogram").focus()
    timeline = page.locator("#timeline")
    while True:
        start, end = (float(timeline.get_attribute(f"data-{at}")) for at in ("start", "end"))
        if end - start <= span * 1.5:
            break
        page.keyboard.press("+")
        page.wait_for_timeout(100)
    page.wait_for_timeout(1000)
    times = page.evaluate(SCROLL, FRAMES)
    page.context.close()
    steps = sorted(np.diff(times))
    median, slow, slowest = steps[len(steps) // 2], steps[int(0.95 * len(steps))], steps[-1]
    return f"{1000 / median:.0f}", f"{slow:.0f}", f"{slowest:.0f}"
