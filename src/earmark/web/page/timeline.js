// The visible part of the recording: seconds <-> pixels, zoom and scroll by mouse, wheel, fingers and
// keys, the overview above it. Everything that shows time is drawn once per frame, when it changed.

import { beforePaint, find } from "./dom.js";
import { clock } from "./format.js";
import { duration, on, state, update } from "./state.js";

const SHORTEST = 0.2; // seconds that fill the width at the closest zoom
const CLICK = 4; // pixels that a pointer may move in a click

const drawers = [];
let width = 1; // pixels of the plots

/** Draw everything that shows time, before the next paint. */
export const redraw = beforePaint(() => {
  for (const draw of drawers) draw();
});

/** Register what draws a part of the timeline. */
export const onDraw = (draw) => drawers.push(draw);

export const plotWidth = () => width;
export const secondsPerPixel = () => (state.view.end - state.view.start) / width;
export const xOf = (time) => (time - state.view.start) / secondsPerPixel();
export const timeOf = (x) => state.view.start + x * secondsPerPixel();

/** Show `start` to `end`, or what is nearest to it inside the recording. */
export function setView(start, end) {
  const whole = duration();
  const span = Math.min(Math.max(end - start, Math.min(SHORTEST, whole)), whole);
  const from = Math.min(Math.max(0, start), whole - span);
  if (from === state.view.start && from + span === state.view.end) return;
  update({ view: { start: from, end: from + span } });
}

export const fit = () => setView(0, duration());

export const scroll = (seconds) => setView(state.view.start + seconds, state.view.end + seconds);

/** Zoom in by the factor, or out if it is below 1; the time `around` stays where it is. */
export function zoom(factor, around = focusTime()) {
  const { start, end } = state.view;
  const span = Math.min(Math.max((end - start) / factor, SHORTEST), duration());
  const share = (around - start) / (end - start);
  setView(around - share * span, around + (1 - share) * span);
}

function focusTime() {
  const { start, end } = state.view;
  return state.cursor >= start && state.cursor <= end ? state.cursor : (start + end) / 2;
}

/** Scroll so far that the time from `start` to `end` is visible, with some room around it. */
export function show(start, end = start) {
  const { view } = state;
  const span = view.end - view.start;
  if (start >= view.start && end <= view.end) return;
  if (end - start > 0.9 * span) setView(start - 0.1 * (end - start), end + 0.1 * (end - start));
  else setView((start + end - span) / 2, (start + end + span) / 2);
}

/** Fill the width with an event and as much time around it. */
export const zoomTo = ({ onset, offset }) => {
  const room = Math.max(0.5, offset - onset);
  setView(onset - room, offset + room);
};

/**
 * Scroll by dragging, zoom with two fingers and with Ctrl and the wheel.
 *
 * `begin(event, x)` may take a pointer for itself: it returns {move(x, event), end(moved)} or null.
 * `click(x)` is called for a pointer that has not moved.
 */
export function addGestures(element, { begin = () => null, click }) {
  const pointers = new Map(); // of this element: id -> {x, down, moved}
  let taken = null;
  const xIn = (event) => event.clientX - element.getBoundingClientRect().left;

  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    element.setPointerCapture(event.pointerId);
    const x = xIn(event);
    if (pointers.size === 0) taken = begin(event, x);
    pointers.set(event.pointerId, { x, down: event, moved: pointers.size > 0 });
  });
  element.addEventListener("pointermove", (event) => {
    const pointer = pointers.get(event.pointerId);
    if (!pointer) return;
    const x = xIn(event);
    const { clientX, clientY } = pointer.down;
    if (Math.hypot(event.clientX - clientX, event.clientY - clientY) > CLICK) pointer.moved = true;
    if (taken) {
      if (pointer.moved) taken.move(x, event);
    } else if (pointers.size === 2) {
      const [other] = [...pointers].filter(([id]) => id !== event.pointerId);
      const before = Math.max(20, Math.abs(pointer.x - other[1].x));
      const after = Math.max(20, Math.abs(x - other[1].x));
      zoom(after / before, timeOf((x + other[1].x) / 2));
    } else if (pointer.moved) {
      scroll((pointer.x - x) * secondsPerPixel());
    }
    pointer.x = x;
  });
  const end = (event, cancelled) => {
    const pointer = pointers.get(event.pointerId);
    if (!pointer) return;
    pointers.delete(event.pointerId);
    if (taken) taken.end(pointer.moved && !cancelled);
    else if (!pointer.moved && !cancelled) click(xIn(event));
    taken = null;
  };
  element.addEventListener("pointerup", (event) => end(event, false));
  element.addEventListener("pointercancel", (event) => end(event, true));
  element.addEventListener(
    "wheel",
    (event) => {
      if (event.ctrlKey || event.metaKey) {
        zoom(Math.exp(-event.deltaY * 0.004), timeOf(xIn(event)));
      } else if (event.deltaX || event.shiftKey) {
        scroll((event.deltaX || event.deltaY) * secondsPerPixel());
      } else return; // the page scrolls
      event.preventDefault();
    },
    { passive: false },
  );
}

function drawOverview() {
  const whole = duration() || 1;
  const { start, end } = state.view;
  const overview = find("overview");
  const box = find("overview-window");
  const pixels = overview.clientWidth;
  box.style.width = `${Math.max(8, ((end - start) / whole) * pixels)}px`;
  box.style.transform = `translateX(${(start / whole) * pixels}px)`;
  box.hidden = end - start >= whole * 0.999;
  const room = whole - (end - start);
  overview.setAttribute("aria-valuenow", room > 0 ? Math.round((100 * start) / room) : 0);
  overview.setAttribute("aria-valuetext", `${clock(start)} to ${clock(end)}`);
  const timeline = find("timeline");
  timeline.dataset.start = start;
  timeline.dataset.end = end;
}

function initOverview() {
  const overview = find("overview");
  let grip = 0; // seconds between the start of the view and the pointer
  const at = (event) => {
    const box = overview.getBoundingClientRect();
    return ((event.clientX - box.left) / box.width) * duration();
  };
  const follow = (event) => {
    const start = at(event) - grip;
    setView(start, start + state.view.end - state.view.start);
  };
  overview.addEventListener("pointerdown", (event) => {
    overview.setPointerCapture(event.pointerId);
    const { start, end } = state.view;
    const time = at(event);
    grip = time >= start && time <= end ? time - start : (end - start) / 2;
    follow(event);
  });
  overview.addEventListener("pointermove", (event) => {
    if (overview.hasPointerCapture(event.pointerId)) follow(event);
  });
  overview.addEventListener("keydown", (event) => {
    const span = state.view.end - state.view.start;
    const steps = { ArrowLeft: -0.1, ArrowRight: 0.1, PageUp: -1, PageDown: 1 };
    if (event.key in steps) scroll(steps[event.key] * span);
    else if (event.key === "Home") setView(0, span);
    else if (event.key === "End") setView(duration() - span, duration());
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}

export function initTimeline() {
  const spectrogram = find("spectrogram");
  new ResizeObserver(() => {
    width = Math.max(1, spectrogram.clientWidth);
    redraw();
  }).observe(spectrogram);
  initOverview();
  onDraw(drawOverview);
  find("zoom-in").onclick = () => zoom(2);
  find("zoom-out").onclick = () => zoom(0.5);
  find("zoom-fit").onclick = fit;
  on(["recording"], fit);
  on(["view", "detected", "corrections", "chosen", "label", "thresholds", "theme"], redraw);
}
