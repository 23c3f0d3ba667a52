// Playing: the cursor runs while the audio does; an event can be played once or again and again.

import { audioUrl } from "./api.js";
import { find, say } from "./dom.js";
import { clock, eventText } from "./format.js";
import { duration, on, shownEvents, state, update } from "./state.js";
import { onDraw, plotWidth, redraw, setView, xOf } from "./timeline.js";

const audio = find("audio");
let stopAt = null; // where to stop, if only an event is played

/** Move the cursor, and the audio with it. */
export function seek(time) {
  const to = Math.min(Math.max(0, time), duration());
  stopAt = null;
  if (audio.readyState > 0) audio.currentTime = to;
  update({ cursor: to });
}

export function play() {
  if (state.cursor >= duration() - 0.05) seek(0);
  if (Math.abs(audio.currentTime - state.cursor) > 0.05) audio.currentTime = state.cursor;
  audio.play().catch((error) => {
    if (error.name !== "AbortError") say("The browser cannot play this recording.", "error");
  });
}

export const pause = () => audio.pause();
export const togglePlay = () => (audio.paused ? play() : pause());

/** Play on from a time. */
export function listenFrom(time) {
  update({ loop: null });
  seek(time);
  play();
}

/** Play one event. */
export function listenTo(event) {
  update({ loop: null });
  seek(event.onset);
  stopAt = event.offset;
  play();
}

/** Play an event again and again; the same event once more ends it. */
export function loopEvent(event) {
  if (state.loop || !event) {
    update({ loop: null });
    return;
  }
  update({ loop: { onset: event.onset, offset: event.offset }, chosen: event });
  seek(event.onset);
  play();
}

function run() {
  if (audio.paused) return;
  const time = audio.currentTime;
  const { loop } = state;
  if (loop && (time >= loop.offset || time < loop.onset - 0.1)) audio.currentTime = loop.onset;
  else if (stopAt !== null && time >= stopAt) audio.pause();
  update({ cursor: Math.min(audio.currentTime, duration()) });
  follow();
  requestAnimationFrame(run);
}

/** Turn the page when the cursor leaves it. */
function follow() {
  const { start, end } = state.view;
  const span = end - start;
  const out = state.cursor > end || state.cursor < start;
  if (out && span < duration()) setView(state.cursor - 0.05 * span, state.cursor + 0.95 * span);
}

function place(element, x, visible) {
  element.hidden = !visible;
  if (visible) element.style.transform = `translateX(${x}px)`;
}

function drawCursor() {
  const { cursor, view } = state;
  place(find("cursor"), xOf(cursor), cursor >= view.start && cursor <= view.end);
  const overview = find("overview");
  place(find("overview-cursor"), (cursor / (duration() || 1)) * overview.clientWidth, true);
  find("clock").textContent = clock(cursor);
  const slider = find("spectrogram");
  slider.setAttribute("aria-valuenow", cursor.toFixed(2));
  slider.setAttribute("aria-valuemax", duration().toFixed(2));
}

/** What a screen reader says about the cursor, only when it rests. */
function describeCursor() {
  if (state.playing) return;
  const here = shownEvents().filter(({ onset, offset }) => onset <= state.cursor && state.cursor < offset);
  const text = here.map((event) => eventText(event)).join("; ");
  find("spectrogram").setAttribute("aria-valuetext", `${state.cursor.toFixed(2)} seconds${text ? `: ${text}` : ""}`);
}

function drawChosen() {
  const region = find("chosen-region");
  const { chosen } = state;
  region.hidden = chosen === null;
  if (!chosen) return;
  const left = Math.max(-10, xOf(chosen.onset));
  const right = Math.min(plotWidth() + 10, xOf(chosen.offset));
  region.hidden = right <= left;
  region.style.transform = `translateX(${left}px)`;
  region.style.width = `${Math.max(0, right - left)}px`;
}

export function initPlayer() {
  find("play").onclick = togglePlay;
  find("loop").onclick = () => loopEvent(state.chosen);
  audio.onplay = () => {
    update({ playing: true });
    requestAnimationFrame(run);
  };
  audio.onpause = () => {
    stopAt = null;
    update({ playing: false });
  };
  audio.onended = () => update({ playing: false, cursor: duration() });
  audio.onloadedmetadata = () => {
    if (state.cursor > 0) audio.currentTime = state.cursor;
  };
  let source = null;
  on(["recording"], () => {
    const id = state.recording?.status === "failed" ? null : (state.recording?.id ?? null);
    if (id === source && !audio.error) return; // it may not have been readable before
    source = id;
    audio.pause();
    update({ loop: null, cursor: 0 });
    if (id === null) audio.removeAttribute("src");
    else audio.src = audioUrl(id);
  });
  on(["playing"], () => {
    find("play").classList.toggle("playing", state.playing);
    find("play-text").textContent = state.playing ? "Pause" : "Play";
  });
  on(["loop"], () => find("loop").setAttribute("aria-pressed", String(state.loop !== null)));
  on(["cursor"], drawCursor);
  on(["cursor", "playing", "detected", "corrections"], describeCursor);
  on(["chosen"], redraw);
  onDraw(drawCursor);
  onDraw(drawChosen);
}
