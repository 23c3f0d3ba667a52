"""The page of `earmark serve` in a real browser."""

import os
import re

import numpy as np
import pytest
import soundfile
from services import LABELS, RATE, running, write_model
from tones import make_tone_clip

from benchmarks.browser import MISSING, browser, chromium
from earmark.formats.events import Event, read_events
from earmark.formats.tags import write_tags

WIDE, PHONE = {"width": 1360, "height": 900}, {"width": 360, "height": 740}
EVENTS = [Event(1.0, 2.5, "high"), Event(4.0, 6.0, "low"), Event(8.0, 9.0, "high")]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Tagged clips that a training learns from besides the corrections."""
    folder = tmp_path_factory.mktemp("base")
    rng = np.random.default_rng(0)
    tags = {}
    for number in range(12):
        label = LABELS[number % 2]
        wave = make_tone_clip(rng, [Event(0.2, 1.4, label)], 2.0)
        soundfile.write(folder / f"{number}.wav", wave, RATE)
        tags[f"{number}.wav"] = [label]
    with (folder / "tags.tsv").open("w") as table:
        write_tags(table, tags)
    return folder / "tags.tsv", folder


@pytest.fixture(scope="module")
def web(tmp_path_factory, base):
    """A service with a small model and one recording of 10 s."""
    folder = tmp_path_factory.mktemp("library")
    wave = make_tone_clip(np.random.default_rng(1), EVENTS, 10.0)
    with running(write_model(folder.parent), folder, base=base) as service:
        service.folder = folder
        soundfile.write(folder.parent / "tones.wav", wave, RATE)
        service.file = folder.parent / "tones.wav"
        yield service


@pytest.fixture(scope="module")
def chrome():
    if chromium() is None:
        if os.environ.get("CI"):  # there, it must be tested
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def tab(chrome, web):
    """One page for all tests; nothing in its console may be an error."""
    context = chrome.new_context(viewport=WIDE, color_scheme="light", accept_downloads=True)
    context.grant_permissions(["microphone"])
    page = context.new_page()
    page.set_default_timeout(20_000)
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on(
        "console", lambda message: message.type == "error" and page.problems.append(message.text)
    )
    page.asked = []
    page.on("request", lambda request: page.asked.append(request.url))
    page.goto(str(web.client.base_url))
    page.wait_for_selector("html[data-ready]")
    yield page
    context.close()


@pytest.fixture
def page(tab, web):
    """The page with its recording open, without corrections, events chosen or other settings."""
    tab.set_viewport_size(WIDE)
    if not web.client.get("/api/recordings").json():
        tab.set_input_files("#file-input", web.file)
        tab.locator(".recording-open").wait_for()
    for recording in web.client.get("/api/recordings").json():
        web.client.delete(f"/api/recordings/{recording['id']}/corrections")
    tab.goto("about:blank")
    tab.problems.clear()
    tab.goto(str(web.client.base_url))
    tab.wait_for_selector("html[data-ready]")
    tab.locator(".event-row").first.wait_for()
    tab.evaluate(  # rows exist only where they are visible
        """() => {
          const list = document.getElementById("event-list");
          list.style.height = list.style.maxHeight = "2000px";
          list.dispatchEvent(new Event("scroll"));
        }"""
    )
    yield tab
    assert tab.problems == []


def until(page, condition):
    """Wait for a condition in JavaScript; the policy of the page forbids eval, not functions."""
    page.wait_for_function(condition if condition.startswith("() =>") else f"() => {condition}")


def events(page):
    """The events of the list: (label, onset, offset)."""
    found = []
    for text in page.locator(".event-row").evaluate_all(
        "rows => rows.map(row => row.getAttribute('aria-label'))"
    ):
        label, onset, offset = re.match(r"(.+?), ([\d.]+) to ([\d.]+) s", text).groups()
        found.append((label, float(onset), float(offset)))
    return sorted(found, key=lambda event: event[1:])


def position(page, label, time):
    """Where a time is on the screen, in the lane of a class."""
    box = page.locator(f'.lane[data-label="{label}"] .lane-plot').bounding_box()
    start, end = (
        float(page.locator("#timeline").get_attribute(f"data-{at}")) for at in ("start", "end")
    )
    x = box["x"] + (time - start) / (end - start) * box["width"]
    return x, box["y"] + box["height"] / 2


def corrections(page, web):
    """What the service has, after the page has saved."""
    until(page, "!document.getElementById('save-status').textContent.startsWith('Saving')")
    (recording,) = web.client.get("/api/recordings").json()
    return web.client.get(f"/api/recordings/{recording['id']}/corrections").json()


def saved_events(page, web):
    until(page, "document.getElementById('save-status').textContent === 'Corrections saved'")
    found = corrections(page, web)
    assert not found["as_detected"]
    return sorted((e["event_label"], e["onset"], e["offset"]) for e in found["events"])


def tables(page, web):
    """The rows of strong.tsv and weak.tsv, after the page has saved."""
    until(page, "document.getElementById('save-status').textContent === 'Corrections saved'")
    texts = (web.client.get(f"/api/corrections/{name}.tsv").text for name in ("strong", "weak"))
    strong, weak = (text.splitlines()[1:] for text in texts)
    return strong, weak


def set_slider(page, name, value):
    page.locator(f"#control-{name}").fill(str(value))


def choose_longest(page):
    """Choose the longest event by keyboard; return it."""
    listed = events(page)
    longest = max(listed, key=lambda event: event[2] - event[1])
    page.locator("#event-list").focus()
    page.keyboard.press("Home")
    for _ in range(listed.index(longest)):
        page.keyboard.press("ArrowDown")
    until(page, f"document.getElementById('event-offset').value == {longest[2]}")
    return longest


def test_an_upload_shows_its_spectrogram_scores_and_events(page, web):
    assert page.locator("#recording-name").inner_text() == "tones.wav"
    (recording,) = web.client.get("/api/recordings").json()
    body = {"sensitivity": 0}
    found = web.client.post(f"/api/recordings/{recording['id']}/events", json=body).json()["events"]
    expected = [(e["event_label"], round(e["onset"], 2), round(e["offset"], 2)) for e in found]
    assert events(page) == sorted(expected, key=lambda event: event[1:])
    until(
        page,
        """() => {
          const canvas = document.getElementById("spectrogram-canvas");
          const context = canvas.getContext("2d");
          const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data;
          const seen = new Set();
          for (let k = 0; k < pixels.length; k += 4 * 97) seen.add(pixels[k] << 8 | pixels[k + 1]);
          return seen.size > 20;
        }""",
    )
    assert {lane for lane, *_ in events(page)} == set(
        page.locator(".lane").evaluate_all("lanes => lanes.map(lane => lane.dataset.label)")
    )


def test_nothing_comes_from_elsewhere(page, web):
    own = (str(web.client.base_url), "blob:", "about:")
    assert [url for url in page.asked if not url.startswith(own)] == []


def test_a_real_recording_is_analysed(page, web, esc50):
    dog = esc50 / "audio" / "1-100032-A.ogg"
    page.set_input_files("#file-input", dog)
    until(page, "document.getElementById('recording-name').textContent === '1-100032-A.ogg'")
    page.locator("#inspector").wait_for()
    assert page.locator("#recording-facts").inner_text() == "5 s"
    until(page, "Math.abs(document.getElementById('audio').duration - 5) < 0.1")
    page.locator(".recording-open", has_text="1-100032").focus()
    page.keyboard.press("Delete")
    page.locator("#confirm-yes").click()
    until(page, "document.querySelectorAll('.recording').length === 1")
    until(page, "document.getElementById('recording-name').textContent === 'tones.wav'")
    page.locator(".event-row").first.wait_for()


def test_a_recording_opened_before_its_analysis_can_be_played_after_it(page, web):
    """As of a library that is analysed while the page is open."""
    busy = {"status": 409, "json": {"detail": "The recording is still being read."}}
    page.route("**/audio", lambda route: route.fulfill(**busy))
    listed = web.client.get("/api/recordings").json()
    working = [{**own, "status": "working", "progress": 0.0} for own in listed]
    page.route("**/api/recordings", lambda route: route.fulfill(json=working))
    page.reload()
    until(page, "document.getElementById('audio').error !== null")
    page.unroute("**/audio")
    page.unroute("**/api/recordings")
    until(page, "Math.abs(document.getElementById('audio').duration - 10) < 0.1")
    page.problems.clear()  # the browser logs the 409


def test_what_is_no_audio_is_refused_in_one_sentence(page, tmp_path):
    (tmp_path / "notes.wav").write_text("no sound")
    page.set_input_files("#file-input", tmp_path / "notes.wav")
    message = page.locator(".message.error")
    message.wait_for()
    assert "notes.wav" in message.inner_text()
    page.problems.clear()  # the browser logs the 4xx


def test_sliders_change_the_events_at_once(page):
    before = events(page)
    set_slider(page, "sensitivity", -4)
    until(page, f"document.querySelectorAll('.event-row').length !== {len(before)}")
    assert len(events(page)) < len(before)
    page.locator("#reset-settings").click()
    until(page, f"document.querySelectorAll('.event-row').length === {len(before)}")
    set_slider(page, "min_duration", 1)
    long = [event for event in before if event[2] - event[1] >= 1]
    until(page, f"document.querySelectorAll('.event-row').length <= {len(long)}")
    assert all(offset - onset >= 1 for _, onset, offset in events(page))


def test_a_rule_of_one_class_leaves_the_others(page):
    label = events(page)[0][0]
    others = [event for event in events(page) if event[0] != label]
    page.locator(f'.lane[data-label="{label}"] .lane-name').click()
    page.locator("#rules-scope").select_option(label)
    set_slider(page, "min_duration", 5)
    until(page, f"document.querySelectorAll('.event-row').length === {len(others)}")
    assert events(page) == others


def test_classes_without_events_fold_away(page):
    set_slider(page, "min_duration", 5)
    until(page, "document.querySelectorAll('.event-row').length === 0")
    assert page.locator(".lane").count() == 0
    page.locator("#silent").click()
    assert page.locator(".lane").count() == len(LABELS)
    page.locator("#silent").click()


def test_the_cursor_runs_while_it_plays_and_an_event_loops(page):
    page.locator("#spectrogram").focus()
    page.keyboard.press("k")
    until(page, "document.getElementById('clock').textContent > '0:00.3'")
    assert page.locator("#play-text").inner_text() == "Pause"
    page.keyboard.press("k")
    until(page, "document.getElementById('audio').paused")
    box = page.locator("#spectrogram").bounding_box()
    page.mouse.click(box["x"] + 0.5 * box["width"], box["y"] + 20)  # listen from there
    until(page, "document.getElementById('audio').currentTime > 5.1")
    page.keyboard.press("k")
    _, onset, offset = choose_longest(page)
    page.keyboard.press("l")
    until(page, "document.getElementById('loop').getAttribute('aria-pressed') === 'true'")
    page.evaluate(f"document.getElementById('audio').currentTime = {offset - 0.05}")
    until(page, f"document.getElementById('audio').currentTime < {(onset + offset) / 2}")
    page.keyboard.press("l")
    page.keyboard.press("k")


def test_zoom_and_scroll_by_keyboard_and_wheel(page):
    timeline = page.locator("#timeline")
    page.locator("#spectrogram").focus()
    page.keyboard.press("End")
    for _ in range(2):
        page.keyboard.press("+")
    until(page, "document.getElementById('timeline').dataset.start > 7")
    start, end = (float(timeline.get_attribute(f"data-{at}")) for at in ("start", "end"))
    assert end - start == pytest.approx(2.5)
    page.locator("#overview").focus()
    page.keyboard.press("Home")
    until(page, "document.getElementById('timeline').dataset.start == 0")
    page.locator("#spectrogram").hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    until(page, "document.getElementById('timeline').dataset.end < 2.4")
    page.keyboard.press("0")
    until(page, "document.getElementById('timeline').dataset.end == 10")


def test_an_edge_is_dragged_and_the_change_undone(page, web):
    label, onset, offset = choose_longest(page)
    before = events(page)
    x, y = position(page, label, offset)
    to, _ = position(page, label, offset - 0.4)
    page.mouse.move(x - 1, y)
    page.mouse.down()
    page.mouse.move((x + to) / 2, y)
    page.mouse.move(to, y)
    page.mouse.up()
    changed = [
        event
        for event in saved_events(page, web)
        if event[:2] == (label, pytest.approx(onset, abs=0.01))
    ]
    assert changed[0][2] == pytest.approx(offset - 0.4, abs=0.05)
    page.locator("#undo").click()
    until(page, "document.getElementById('save-status').textContent === 'Corrections saved'")
    assert not corrections(page, web)["corrected"]
    assert events(page) == before


def test_the_keyboard_alone_moves_an_edge_renames_adds_and_deletes(page, web):
    label, onset, offset = choose_longest(page)
    n_events = len(events(page))
    page.keyboard.press("2")  # the onset later
    page.keyboard.press("Shift+Digit3")  # the offset earlier by ten steps
    ours = (label, pytest.approx(onset + 0.02, abs=0.011), pytest.approx(offset - 0.2, abs=0.011))
    assert ours in saved_events(page, web)
    page.keyboard.press("r")
    other = next(own for own in LABELS if own != label)
    page.keyboard.press(other[0])  # the list of classes is focused
    until(page, f"document.getElementById('event-label').value === '{other}'")
    assert (other, *ours[1:]) in saved_events(page, web)
    page.locator("#event-list").focus()
    page.keyboard.press("Delete")
    until(page, f"document.querySelectorAll('.event-row').length === {n_events - 1}")
    assert (other, *ours[1:]) not in saved_events(page, web)
    page.locator("#spectrogram").focus()
    page.keyboard.press("End")
    page.keyboard.press("a")
    until(page, f"document.querySelectorAll('.event-row').length === {n_events}")
    assert (other, pytest.approx(9.0), pytest.approx(10.0)) in saved_events(page, web)


def test_an_event_is_drawn_into_an_empty_place_of_its_lane(page, web):
    set_slider(page, "min_duration", 5)
    until(page, "document.querySelectorAll('.event-row').length === 0")
    page.locator("#silent").click()
    page.locator('.lane[data-label="low"]').wait_for()
    (x, y), (to, _) = position(page, "low", 3.0), position(page, "low", 5.0)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(to - 20, y)
    page.mouse.move(to, y)
    page.mouse.up()
    assert saved_events(page, web) == [
        ("low", pytest.approx(3, abs=0.05), pytest.approx(5, abs=0.05))
    ]
    page.locator("#silent").click()


def test_the_line_of_a_threshold_is_dragged(page):
    label = events(page)[0][0]
    canvas = page.locator(f'.lane[data-label="{label}"] canvas')
    old = float(re.search(r"threshold ([\d.]+)", canvas.get_attribute("aria-label"))[1])
    box = canvas.bounding_box()
    y = box["y"] + 5 + (1 - old) * (box["height"] - 10)  # a lane has 5 pixels above 1 and below 0
    empty = next(t for t in np.arange(0.1, 10, 0.1) if not any(
        name == label and onset - 0.2 < t < offset + 0.2 for name, onset, offset in events(page)
    ))  # fmt: skip
    x, _ = position(page, label, float(empty))
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y - 5)
    page.mouse.move(x, y - 10)
    page.mouse.up()
    lane = f"document.querySelector('.lane[data-label=\"{label}\"] canvas')"
    wanted = old + 10 / (box["height"] - 10)
    new = f"parseFloat({lane}.getAttribute('aria-label').match(/threshold ([\\d.]+)/)[1])"
    until(page, f"Math.abs({new} - {wanted}) < 0.03")


def test_export_saves_what_is_shown_in_any_format(page, tmp_path):
    shown = events(page)
    formats = page.locator("#export-format option").evaluate_all("all => all.map(one => one.value)")
    assert {"tsv", "json", "audacity", "textgrid", "jams", "raven", "parquet"} <= set(formats)
    for name in ("tsv", "audacity"):
        page.locator("#export-format").select_option(name)
        with page.expect_download() as download:
            page.locator("#export").click()
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        found = next(iter(read_events(path).values()))
        assert [(e.label, round(e.onset, 2), round(e.offset, 2)) for e in found] == shown
    set_slider(page, "min_duration", 1)
    until(page, f"document.querySelectorAll('.event-row').length < {len(shown)}")
    page.locator("#export-format").select_option("tsv")
    with page.expect_download() as download:
        page.locator("#export").click()
    download.value.save_as(tmp_path / "long.tsv")
    assert len(next(iter(read_events(tmp_path / "long.tsv").values()), [])) == len(events(page))


def test_the_hierarchy_shows_every_level_of_both_poolings(page, web):
    page.locator("#spectrogram").focus()
    page.keyboard.press("w")
    page.locator("#why-hierarchical svg").wait_for()
    captions = page.locator("#why-hierarchical text").all_text_contents()
    assert any("clip score" in text for text in captions)
    assert any("frames" in text for text in captions)
    assert any("segments" in text for text in captions)
    n_frames = page.locator("#why-single rect").count() - 1
    assert page.locator("#why-hierarchical rect").count() > n_frames + 1
    assert "Clip score: hierarchical" in page.locator("#why-summary").inner_text()
    is_own = bool(web.client.get("/api/model").json()["stages"])
    kinds = {True: "the model's own", False: "to compare"}
    assert kinds[is_own] in page.locator("#why-hierarchical-title").inner_text()
    assert kinds[not is_own] in page.locator("#why-single-title").inner_text()
    page.keyboard.press("w")


def test_shares_of_the_clip_score_follow_segments_of_which_the_last_is_shorter(page):
    """Seven frames in segments of three: the last segment has one frame."""
    found = page.evaluate(
        """async () => {
          const { framesOf, shares } = await import("/page/hierarchy.js");
          const thirds = [1 / 3, 1 / 3, 1 / 3];
          const levels = [
            { n: 7, scores: [0, 0, 0, 0, 0, 0.6, 0], weights: [...thirds, ...thirds, 1] },
            { n: 3, scores: [0, 0.2, 0], weights: [0.25, 0.5, 0.25] },
            { n: 1, scores: [0.1], weights: [] },
          ];
          const spans = [0, 1, 2].map((i) => framesOf(levels, [3], 1, i));
          return { own: shares(levels, [3], 0.1), spans };
        }"""
    )
    assert found["own"] == pytest.approx([0, 0, 0, 0, 0, 1, 0])
    assert found["spans"] == [[0, 3], [3, 6], [6, 7]]


def test_a_corrected_tag_is_learned_and_what_changed_is_shown(page, web):
    page.locator("#spectrogram").focus()
    page.keyboard.press("c")  # to the classes
    page.keyboard.press("Enter")
    page.keyboard.press("y")
    until(page, "document.getElementById('save-status').textContent !== ''")
    chosen = page.locator(".lane.chosen").get_attribute("data-label")
    found = corrections(page, web)
    assert found["tags"] == {chosen: True}
    assert found["as_detected"]  # nobody looked at the events
    assert page.locator(".lane.chosen .tag.yes").get_attribute("aria-pressed") == "true"
    assert tables(page, web) == ([], [])  # nor at the other classes
    page.keyboard.press("t")  # the rest is right
    until(page, "document.getElementById('tags-right').checked")
    pressed = page.locator('.tag.yes[aria-pressed="true"]').count()
    assert pressed == len({label for label, *_ in events(page)}) == len(LABELS)
    assert tables(page, web) == ([], [f"tones.wav\t{','.join(sorted(LABELS))}"])
    served = web.service.model
    page.locator("#train-epochs").fill("1")
    until(page, "!document.getElementById('train').disabled")
    page.locator("#train").click()
    page.locator("#job-result").wait_for(timeout=90_000)
    assert page.locator("#job-changes").inner_text()
    page.locator("#job-adopt").click()
    until(page, "document.getElementById('job-adopt').textContent === 'In use'")
    assert web.service.model is not served
    about = web.client.get("/api/model").json()
    assert about["labels"] == sorted(LABELS)
    assert about["name"] in page.locator("#adopted-text").inner_text()
    assert "in use after a restart" in page.locator("#adopted-text").inner_text()
    page.locator("#adopted-leave").click()
    until(page, "document.getElementById('model-name').textContent === 'small.earmark'")
    assert web.service.model.path == served.path
    (recording,) = web.client.get("/api/recordings").json()
    web.wait(f"/api/recordings/{recording['id']}", "working")


def test_thresholds_are_tuned_from_checked_events(page, web, tmp_path):
    wave = make_tone_clip(np.random.default_rng(2), EVENTS, 10.0)
    soundfile.write(tmp_path / "more.wav", wave, RATE)
    page.set_input_files("#file-input", tmp_path / "more.wav")
    page.locator(".recording-open", has_text="more.wav").wait_for()
    try:
        for name in ("tones.wav", "more.wav"):
            page.locator(".recording-open", has_text=name).click()
            until(page, f"document.getElementById('recording-name').textContent === '{name}'")
            page.locator(".event-row").first.wait_for()
            page.locator("#events-right").check()
            until(page, "document.getElementById('save-status').textContent.endsWith('saved')")
        strong = [row.split("\t")[0] for row in tables(page, web)[0]]
        assert set(strong) == {"tones.wav", "more.wav"}
        until(page, "!document.getElementById('tune').disabled")
        page.locator("#tune").click()
        page.locator("#job-result").wait_for(timeout=90_000)
        assert page.locator("#job-title").inner_text() == "Tuning the thresholds"
        assert "f_measure" in page.locator("#job-detail").inner_text()
        assert page.locator("#job-changes").inner_text()
        page.locator("#job-dismiss").click()
        page.locator("#job").wait_for(state="hidden")
    finally:
        for own in web.client.get("/api/recordings").json():
            if own["name"] == "more.wav":
                web.client.delete(f"/api/recordings/{own['id']}")


def test_a_class_that_the_model_does_not_know_is_named_and_shown(page, web):
    _, onset, offset = choose_longest(page)
    page.locator("#event-label").select_option(label="New class …")
    page.locator("#class-name").fill("  tea  kettle")
    page.keyboard.press("Enter")
    until(page, "document.getElementById('event-label').value === 'tea kettle'")
    assert ("tea kettle", onset, offset) in [
        (name, round(start, 2), round(end, 2)) for name, start, end in saved_events(page, web)
    ]
    assert "to detect what is new: tea kettle" in page.locator("#new-labels").inner_text()
    page.locator("#spectrogram").focus()
    page.keyboard.press("t")
    until(page, "document.getElementById('tags-right').checked")
    labels = {name for name, *_ in events(page)}
    assert tables(page, web)[1] == [f"tones.wav\t{','.join(sorted(labels))}"]
    page.keyboard.press("w")
    until(page, "document.getElementById('why-summary').textContent.includes('does not know')")
    assert "tea kettle" in labels
    page.keyboard.press("w")
    page.reload()
    page.locator('.lane[data-label="tea kettle"]').wait_for()
    page.keyboard.press("b")
    page.locator("#class-name").fill("Tea Kettle")  # the same class, not one more
    page.keyboard.press("Enter")
    page.locator('.lane.chosen[data-label="tea kettle"]').wait_for()
    assert page.locator("#event-label option").count() == len(LABELS) + 2


def test_a_rejected_class_is_gone_from_the_list_and_from_the_export(page, tmp_path):
    label = events(page)[0][0]
    others = [event for event in events(page) if event[0] != label]
    page.locator(f'.lane[data-label="{label}"] .tag.no').click()
    until(page, f"document.querySelectorAll('.event-row').length === {len(others)}")
    assert events(page) == others
    page.locator("#export-format").select_option("tsv")
    with page.expect_download() as download:
        page.locator("#export").click()
    download.value.save_as(tmp_path / "left.tsv")
    found = next(iter(read_events(tmp_path / "left.tsv").values()))
    assert [(e.label, round(e.onset, 2), round(e.offset, 2)) for e in found] == others


def test_events_that_nobody_touched_keep_their_scores_after_a_reload(page, web):
    choose_longest(page)
    page.keyboard.press("2")  # the onset later
    saved_events(page, web)
    scores = "rows => rows.map(row => row.lastElementChild.textContent)"
    before = page.locator(".event-row").evaluate_all(scores)
    assert before.count("") == 1  # this one was changed by hand
    page.reload()
    page.locator(".event-row").first.wait_for()
    until(page, "!document.getElementById('corrected-note').hidden")
    after = page.locator(".event-row").evaluate_all(scores)
    assert after.count("") == 1
    assert set(after) <= set(before)


def test_corrections_that_are_still_being_saved_are_there_when_the_recording_is_opened_again(
    page, web
):
    held = []
    page.route(
        "**/corrections",
        lambda route: held.append(route) if route.request.method == "PUT" else route.continue_(),
    )
    choose_longest(page)
    page.keyboard.press("2")  # the onset later
    until(page, "!document.getElementById('corrected-note').hidden")
    page.locator(".recording-open").click()
    until(page, "document.getElementById('corrected-note').hidden")
    page.wait_for_timeout(300)  # in which an answer would come
    (put,) = held
    put.continue_()
    until(page, "!document.getElementById('corrected-note').hidden")
    page.unroute("**/corrections")
    assert not corrections(page, web)["as_detected"]


def test_corrections_of_one_recording_are_left_for_another_that_is_being_analysed(page, web):
    (own,) = web.client.get("/api/recordings").json()
    other = {**own, "id": "other", "name": "other.wav", "status": "working", "progress": 0.5}
    content = web.file.read_bytes()
    page.route("**/api/recordings", lambda route: route.fulfill(json=[own, other]))
    page.route("**/api/recordings/other/audio", lambda route: route.fulfill(body=content))
    page.reload()
    page.wait_for_selector("html[data-ready]")
    choose_longest(page)
    page.keyboard.press("2")  # the onset later
    assert saved_events(page, web)
    assert page.locator("#undo").is_enabled()
    asked = len(page.asked)
    page.locator(".recording-open", has_text="other.wav").click()
    until(page, "document.getElementById('undo').disabled")
    assert events(page) == []
    page.keyboard.press("Control+z")
    assert not [url for url in page.asked[asked:] if url.endswith("/corrections")]
    page.unroute("**/api/recordings")
    page.unroute("**/api/recordings/other/audio")


def test_rules_of_a_class_that_an_adopted_model_does_not_know_are_not_sent(page):
    found = page.evaluate(
        """async (label) => {
          const { sent } = await import("/page/controls.js");
          const rules = { threshold: 0.3 };
          return sent({ rules: {}, class_rules: { [label]: rules, "tea kettle": rules } });
        }""",
        LABELS[0],
    )
    assert found == {"rules": {}, "class_rules": {LABELS[0]: {"threshold": 0.3}}}


def test_corrections_that_could_not_be_loaded_are_not_overwritten(page, web):
    choose_longest(page)
    page.keyboard.press("2")  # the onset later
    before = corrections(page, web)
    page.route("**/corrections", lambda route: route.abort())
    page.locator(".recording-open").click()
    until(page, "document.getElementById('corrected-note').hidden")
    page.unroute("**/corrections")
    assert page.problems == ["Failed to load resource: net::ERR_FAILED"]  # and no other
    page.problems.clear()
    page.keyboard.press("t")  # the tags are right
    until(page, "document.body.textContent.includes('are not loaded; open it again')")
    assert corrections(page, web) == before
    page.locator(".recording-open").click()
    until(page, "!document.getElementById('corrected-note').hidden")


def test_a_recording_that_failed_has_a_reason_and_no_player(page, web):
    (own,) = web.client.get("/api/recordings").json()
    failed = {**own, "status": "failed", "detail": "tones.wav is not audio; convert it."}
    page.route("**/api/recordings", lambda route: route.fulfill(json=[failed]))
    page.reload()
    page.wait_for_selector("html[data-ready]")
    page.unroute("**/api/recordings")
    assert page.locator("#recording-failed").inner_text() == failed["detail"]
    for id in ("play", "spectrogram", "lanes", "why", "inspector"):
        assert not page.locator(f"#{id}").is_visible()
    assert page.locator("#audio").get_attribute("src") is None


def test_the_microphone_is_recorded_and_analysed(page, web):
    page.locator("#record").click()
    page.locator("#recorder-stop").wait_for()
    until(page, "document.getElementById('recorder-clock').textContent >= '0:01.0'")
    page.locator("#recorder-stop").click()
    until(page, "document.getElementById('recording-name').textContent.startsWith('microphone')")
    page.locator("#inspector").wait_for()
    recorded = next(r for r in web.client.get("/api/recordings").json() if r["name"] != "tones.wav")
    assert recorded["duration"] > 0.9
    web.client.delete(f"/api/recordings/{recorded['id']}")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_serious_fault(page, theme):
    from axe_playwright_python.sync_playwright import Axe

    page.emulate_media(color_scheme=theme)
    choose_longest(page)
    page.keyboard.press("w")
    page.locator("#why-hierarchical svg").wait_for()
    for dialog in (False, True):
        if dialog:
            page.locator("#help").click()
        found = Axe().run(page).response["violations"]
        serious = [rule for rule in found if rule["impact"] in ("serious", "critical")]
        assert [(rule["id"], rule["nodes"][0]["html"]) for rule in serious] == []
    page.keyboard.press("Escape")
    page.emulate_media(color_scheme="light")


def test_light_and_dark_follow_the_system_and_the_button(page):
    def colour():
        bar = "document.querySelector('.topbar')"
        return page.evaluate(f"getComputedStyle({bar}).backgroundColor")

    light = colour()
    page.emulate_media(color_scheme="dark")
    dark = colour()
    assert light != dark
    page.locator("#theme").click()  # light, whatever the system says
    assert colour() == light
    page.locator("#theme").click()
    page.emulate_media(color_scheme="light")
    assert colour() == dark
    page.locator("#theme").click()
    assert colour() == light


def test_a_phone_needs_no_sideways_scrolling(page):
    page.set_viewport_size(PHONE)
    until(page, "document.documentElement.clientWidth === 360")
    for why in (False, True):
        if why:
            page.locator("#why-toggle").click()
            page.locator("#why-hierarchical svg").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
    spectrogram = page.locator("#spectrogram").bounding_box()
    assert spectrogram["width"] > 300


def test_every_shortcut_is_in_the_help_and_can_be_switched_off(page):
    page.locator("#spectrogram").focus()
    page.keyboard.press("?")
    assert page.locator(".shortcut").count() > 25
    page.locator("#single-keys").uncheck()
    page.keyboard.press("Escape")
    n_events = len(events(page))
    page.locator("#spectrogram").focus()
    page.keyboard.press("a")
    page.wait_for_timeout(100)
    assert len(events(page)) == n_events
    page.keyboard.press("Tab")  # the rest of the keyboard works
    page.locator("#help").click()
    page.locator("#single-keys").check()
    page.keyboard.press("Escape")
