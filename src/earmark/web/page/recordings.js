// The list of recordings: opening, adding by button, drop or microphone, deleting.

import { addRecording, deleteRecording, getRecordings } from "./api.js";
import { refreshEvents } from "./controls.js";
import { leaveCorrections, loadCorrections } from "./corrections.js";
import { confirmed, find, make, say, sayError } from "./dom.js";
import { count, length } from "./format.js";
import { on, state, update } from "./state.js";

const PAUSE = 700; // milliseconds between questions about a recording that is being analysed

/** Show a recording. */
export async function openRecording(recording) {
  update({ recording, detected: [], thresholds: {}, chosen: null, label: null });
  leaveCorrections();
  history.replaceState(null, "", `#${recording.id}`);
  document.title = `${recording.name} · Earmark`;
  find("save-status").textContent = "";
  if (recording.status !== "ready") return;
  try {
    await Promise.all([refreshEvents(), loadCorrections(recording.id)]);
  } catch (error) {
    sayError(error);
  }
}

/** Ask for the list again, and go on asking while something in it is being analysed. */
export async function refreshRecordings() {
  const recordings = await getRecordings();
  update({ recordings });
  const { recording } = state;
  if (recording) {
    const same = recordings.find(({ id }) => id === recording.id);
    if (!same) {
      update({ recording: null, chosen: null });
      document.title = "Earmark";
    } else if (same.status !== recording.status) {
      openRecording(same);
    } else if (same.status === "working") {
      showProgress(same);
    }
  }
  if (recordings.some(({ status }) => status === "working")) askAgain();
}

let timer = null;

function askAgain() {
  clearTimeout(timer);
  timer = setTimeout(() => refreshRecordings().catch(sayError), PAUSE);
}

/** Send files to the service, and show the first of them. */
export async function addFiles(files) {
  let first = true;
  for (const file of files) {
    say(`Adding ${file.name} …`);
    try {
      const recording = await addRecording(file);
      if (first) openRecording(recording);
      first = false;
    } catch (error) {
      sayError(new Error(`${file.name}: ${error.message}`));
    }
    await refreshRecordings().catch(sayError);
  }
}

async function remove(recording) {
  const question = `Delete ${recording.name} and its corrections from the library?`;
  if (!(await confirmed(question, "Delete"))) return;
  try {
    await deleteRecording(recording.id);
    await refreshRecordings();
    if (!state.recording && state.recordings.length) openRecording(state.recordings[0]);
  } catch (error) {
    sayError(error);
  }
}

function makeItem(recording) {
  const { name, uncertainty, status, corrected, checked } = recording;
  const facts = [];
  if (status === "working") facts.push(`analysing, ${Math.round(100 * recording.progress)} %`);
  else if (status === "failed") facts.push("failed");
  else facts.push(`${length(recording.duration)} · ${count(recording.n_events, "event")}`);
  const line = make("span", { className: "recording-facts" });
  if (status === "ready") {
    const bar = make("span");
    bar.style.width = `${Math.round(100 * (uncertainty ?? 0))}%`;
    const meter = make("span", { className: "uncertainty", title: "How uncertain the model is" }, bar);
    meter.setAttribute("aria-hidden", "true");
    line.append(meter);
  }
  line.append(facts.join(""));
  if (corrected) line.append(make("span", { textContent: checked ? "✓ checked" : "corrected" }));
  const current = recording.id === state.recording?.id;
  const open = make(
    "button",
    { type: "button", className: "recording-open", title: name },
    make("span", { className: "recording-name", textContent: name }),
    line,
    make("span", {
      className: "hidden-text",
      textContent: status === "ready" ? `uncertainty ${(uncertainty ?? 0).toFixed(2)}` : "",
    }),
  );
  open.setAttribute("aria-keyshortcuts", "Delete");
  if (current) open.setAttribute("aria-current", "true");
  open.onclick = () => openRecording(recording);
  open.onkeydown = (event) => {
    if (event.key !== "Delete") return;
    event.stopPropagation();
    remove(recording);
  };
  const button = make("button", {
    type: "button",
    className: "recording-delete",
    textContent: "✕",
    tabIndex: -1,
    aria: { label: `Delete ${name}` },
  });
  button.onclick = () => remove(recording);
  return make("li", { className: `recording${current ? " current" : ""}` }, open, button);
}

function drawList() {
  const list = find("recording-list");
  const focused = [...list.querySelectorAll(".recording-open")].indexOf(document.activeElement);
  list.replaceChildren(...state.recordings.map(makeItem));
  const buttons = list.querySelectorAll(".recording-open");
  const current = Math.max(0, state.recordings.findIndex(({ id }) => id === state.recording?.id));
  buttons.forEach((button, k) => {
    button.tabIndex = k === current ? 0 : -1;
  });
  if (focused >= 0) buttons[Math.min(focused, buttons.length - 1)]?.focus();
  find("no-recordings").hidden = state.recordings.length > 0;
}

function moveFocus(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  const buttons = [...find("recording-list").querySelectorAll(".recording-open")];
  const here = buttons.indexOf(document.activeElement.closest("li")?.querySelector(".recording-open"));
  const next = buttons[Math.min(Math.max(here + step, 0), buttons.length - 1)];
  for (const button of buttons) button.tabIndex = button === next ? 0 : -1;
  next?.focus();
  event.preventDefault();
  event.stopPropagation();
}

function showProgress(recording) {
  find("recording-facts").textContent = `analysing, ${Math.round(100 * recording.progress)} %`;
}

function drawTitle() {
  const { recording } = state;
  find("welcome").hidden = recording !== null;
  find("workspace").hidden = recording === null;
  find("inspector").hidden = recording?.status !== "ready";
  if (!recording) return;
  const failed = recording.status === "failed";
  find("workspace").classList.toggle("failed", failed); // nothing to look at or to play
  find("recording-failed").hidden = !failed;
  find("recording-failed").textContent = recording.detail;
  find("recording-name").textContent = recording.name;
  find("recording-facts").textContent = failed ? "could not be analysed" : "";
  if (recording.status === "ready") find("recording-facts").textContent = length(recording.duration);
  if (recording.status === "working") showProgress(recording);
}

function initDrop() {
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  window.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    find("drop").hidden = false;
  });
  window.addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) find("drop").hidden = true;
  });
  window.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    find("drop").hidden = true;
    addFiles([...event.dataTransfer.files]);
  });
}

/** Open the recording of the address, or the least certain one. */
export async function openFirst() {
  const wanted = location.hash.slice(1);
  const found = state.recordings.find(({ id }) => id === wanted) ?? state.recordings[0];
  if (found) await openRecording(found);
}

export function initRecordings() {
  const input = find("file-input");
  for (const id of ["open-files", "welcome-open"]) find(id).onclick = () => input.click();
  input.onchange = () => {
    addFiles([...input.files]);
    input.value = "";
  };
  find("recording-list").addEventListener("keydown", moveFocus);
  initDrop();
  on(["recordings", "recording"], drawList);
  on(["recording"], drawTitle);
}
