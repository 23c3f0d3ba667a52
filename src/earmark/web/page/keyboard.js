// Shortcuts, and the dialog that lists them. Single keys can be switched off (WCAG 2.1.4).

import { deleteEvent, redo, setTag, toggleChecked, undo } from "./corrections.js";
import { find, make } from "./dom.js";
import { addAtCursor, chooseNext, moveEdge, nameClass } from "./events.js";
import { saveEvents } from "./export.js";
import { toggleWhy } from "./hierarchy.js";
import { listenTo, loopEvent, seek, togglePlay } from "./player.js";
import { toggleRecorder } from "./recorder.js";
import { duration, state, update } from "./state.js";
import { fit, setView, show, zoom, zoomTo } from "./timeline.js";

const KEY = "earmark-single-keys";
const NUDGE = 0.02; // seconds

const needsEvent = (run) => () => state.chosen && run(state.chosen);
const needsLabel = (run) => () => state.label !== null && run(state.label);

// keys, what they do, and how; with `always`, also without a recording
const SHORTCUTS = [
  [["k", " "], "Play or pause", togglePlay, { text: "K, Space" }],
  [["ArrowLeft", "ArrowRight"], "Cursor back, on; with Shift further", moveCursor, { text: "← →" }],
  [["Home", "End"], "Cursor to the start, to the end", moveCursor, { text: "Home End" }],
  [["+", "="], "Zoom in", () => zoom(2), { text: "+" }],
  [["-"], "Zoom out", () => zoom(0.5), { text: "−" }],
  [["0"], "Show all", fit],
  [["PageUp", "PageDown"], "Scroll by a page", turnPage, { text: "Page up, down" }],
  [[".", "n"], "Next event", () => chooseNext(1), { text: "." }],
  [[",", "p"], "Previous event", () => chooseNext(-1), { text: "," }],
  [["Enter"], "Listen to the event", needsEvent(listenTo)],
  [["l"], "Loop the event; stop looping", () => loopEvent(state.chosen)],
  [["f"], "Zoom to the event", needsEvent(zoomTo)],
  [["a"], "Add an event at the cursor", addAtCursor],
  [["["], "Onset to the cursor", () => moveEdge("onset", { to: state.cursor })],
  [["]"], "Offset to the cursor", () => moveEdge("offset", { to: state.cursor })],
  [["1", "2"], "Onset earlier, later; with Shift ten times", (key, ten) => nudge("onset", key === "2", ten), { text: "1 2" }],
  [["3", "4"], "Offset earlier, later; with Shift ten times", (key, ten) => nudge("offset", key === "4", ten), { text: "3 4" }],
  [["r"], "Rename the event", needsEvent(() => find("event-label").focus())],
  [["Delete", "Backspace"], "Delete the event", needsEvent(deleteEvent), { text: "Delete" }],
  [["Escape"], "Choose no event", () => update({ chosen: null, loop: null })],
  [["y"], "Confirm the tag of the class", needsLabel((label) => setTag(label, true))],
  [["x"], "Reject the tag of the class", needsLabel((label) => setTag(label, false))],
  [["b"], "Name a new class", nameClass],
  [["t"], "The tags are right; take it back", () => toggleChecked("tags")],
  [["i"], "The events are right; take it back", () => toggleChecked("events")],
  [["u"], "Undo (also Ctrl+Z)", undo],
  [["U"], "Redo (also Ctrl+Shift+Z)", redo, { text: "Shift+U" }],
  [["s"], "To the sensitivity", () => find("control-sensitivity").focus()],
  [["c"], "To the classes", () => find("lanes").querySelector('[tabindex="0"]')?.focus()],
  [["v"], "To the events", () => find("event-list").focus()],
  [["w"], "Why: show or hide", toggleWhy],
  [["e"], "Export", saveEvents],
  [["g"], "To the recordings", () => find("recording-list").querySelector('[tabindex="0"]')?.focus(), { always: true }],
  [["o"], "Open recordings", () => find("file-input").click(), { always: true }],
  [["m"], "Record from the microphone", toggleRecorder, { always: true }],
  [["d"], "Light, dark or as the system", () => find("theme").click(), { always: true }],
  [["?"], "This help", () => openHelp(), { always: true }],
];

function moveCursor(key, far) {
  const step = (state.view.end - state.view.start) / (far ? 10 : 100);
  const to = { ArrowLeft: state.cursor - step, ArrowRight: state.cursor + step, Home: 0, End: duration() }[key];
  seek(to);
  show(Math.min(Math.max(0, to), duration()));
}

function turnPage(key) {
  const span = (state.view.end - state.view.start) * (key === "PageUp" ? -0.9 : 0.9);
  setView(state.view.start + span, state.view.end + span);
}

function nudge(edge, later, ten) {
  moveEdge(edge, { by: (later ? 1 : -1) * NUDGE * (ten ? 10 : 1) });
}

function singleKeys() {
  try {
    return localStorage.getItem(KEY) !== "off";
  } catch {
    return true;
  }
}

/** Whether the focused element needs the key itself. */
function isTaken(target, key) {
  if (target.closest("dialog")) return true;
  if (target.matches("input[type=number], input[type=text], select, textarea")) return true;
  if (target.matches("input[type=range]")) return key.startsWith("Arrow") || ["Home", "End", "PageUp", "PageDown"].includes(key);
  if (target.matches("button, a, summary, input")) return key === " " || key === "Enter";
  return false;
}

function onKey(event) {
  const { key, target } = event;
  if ((event.ctrlKey || event.metaKey) && !event.altKey) {
    const isText = target.matches("input[type=number], input[type=text]");
    if (key.toLowerCase() === "z" && state.recording?.status === "ready" && !isText) {
      if (event.shiftKey) redo();
      else undo();
      event.preventDefault();
    }
    return;
  }
  if (event.altKey || isTaken(target, key)) return;
  if (key.length === 1 && !singleKeys()) return;
  // With Shift the digits are other characters, which depend on the keyboard.
  const digit = event.shiftKey && /^Digit[1-4]$/.test(event.code) ? event.code.at(-1) : null;
  const name = digit ?? (key === "U" ? "U" : key.length === 1 ? key.toLowerCase() : key);
  const found = SHORTCUTS.find(([keys]) => keys.includes(name));
  if (!found || (state.recording?.status !== "ready" && !found[3]?.always)) return;
  event.preventDefault();
  found[2](name, event.shiftKey);
}

function openHelp() {
  find("help-dialog").showModal();
}

export function initKeyboard() {
  const rows = SHORTCUTS.map(([keys, what, , { text } = {}]) =>
    make(
      "div",
      { className: "shortcut" },
      make("span", { textContent: what }),
      make("kbd", { textContent: text ?? (keys[0].length === 1 ? keys[0].toUpperCase() : keys[0]) }),
    ),
  );
  find("shortcuts").append(...rows);
  find("help").onclick = openHelp;
  const box = find("single-keys");
  box.checked = singleKeys();
  box.onchange = () => {
    try {
      localStorage.setItem(KEY, box.checked ? "on" : "off");
    } catch {
      // storage is switched off
    }
  };
  document.addEventListener("keydown", onKey);
}
