// Corrections of events and tags, with undo. Every change is saved at once.
//
// The first change turns the detected events into corrected ones, which the sliders leave alone.

import { deleteCorrections, getCorrections, putCorrections } from "./api.js";
import { find, sayError } from "./dom.js";
import { readable } from "./format.js";
import { duration, on, shownEvents, state, update } from "./state.js";

const SHORTEST = 0.02; // seconds of an event

let past = []; // corrections before each change, for undo
let future = []; // for redo
let present = state.corrections; // what the last step led to
let saving = Promise.resolve();
let unsaved = 0;

const byOnset = (a, b) => a.onset - b.onset || a.offset - b.offset;

function replace(corrections) {
  past.push(present);
  future = [];
  update({ corrections });
  save();
}

function save() {
  const { recording, corrections } = state;
  const events = shownEvents();
  present = corrections;
  unsaved += 1;
  find("save-status").textContent = "Saving…";
  saving = saving
    .then(() => send(recording.id, corrections, events))
    .then(() => {
      unsaved -= 1;
      if (unsaved === 0) find("save-status").textContent = "Corrections saved";
      const corrected = corrections.events !== null || Object.keys(corrections.tags).length > 0;
      const recordings = state.recordings.map((one) =>
        one.id === recording.id ? { ...one, corrected } : one,
      );
      update({ recordings });
    })
    .catch((error) => {
      unsaved -= 1;
      find("save-status").textContent = "Not saved";
      sayError(error);
    });
  showHistory();
}

/** Events that nobody corrected are sent as they were detected, and as not checked. */
function send(id, corrections, events) {
  const { events: own, tags } = corrections;
  if (own === null && Object.keys(tags).length === 0) return deleteCorrections(id);
  return putCorrections(id, { events: events.map(plain), tags, events_checked: own !== null });
}

const plain = ({ onset, offset, event_label }) => ({ onset, offset, event_label });

function showHistory() {
  find("undo").disabled = past.length === 0;
  find("redo").disabled = future.length === 0;
  find("corrected-note").hidden = state.corrections.events === null;
}

/** Wait until everything is saved. */
export const saved = () => saving;

/** Read the corrections of the recording that is shown. */
export async function loadCorrections(id) {
  past = [];
  future = [];
  present = { events: null, tags: {} };
  update({ corrections: present });
  find("save-status").textContent = "";
  const { events, tags, events_checked } = await getCorrections(id);
  if (state.recording?.id !== id) return;
  const own = events_checked ? events : null;
  present = { events: own && [...own].sort(byOnset), tags };
  update({ corrections: present });
}

/**
 * Begin to change an event, or a new one of a class if `event` is null.
 *
 * `change` shows what it becomes, `commit` keeps it as one step of undo, `cancel` forgets it.
 */
export function beginEdit(event, label = event.event_label) {
  const before = state.corrections;
  const others = shownEvents().filter((one) => one !== event);
  const edit = {
    event: event ?? { onset: 0, offset: 0, event_label: label, score: null },
    change(patch) {
      const next = { ...edit.event, ...patch, score: null }; // the score was that of the detection
      if (next.offset - next.onset < SHORTEST) {
        if ("onset" in patch && !("offset" in patch)) next.onset = next.offset - SHORTEST;
        else next.offset = next.onset + SHORTEST;
      }
      next.onset = Math.max(0, next.onset);
      next.offset = Math.min(next.offset, duration());
      edit.event = next;
      update({
        corrections: { ...before, events: [...others, next].sort(byOnset) },
        chosen: next,
        label: next.event_label,
      });
    },
    commit() {
      const tags = { ...before.tags };
      if (tags[edit.event.event_label] === false) delete tags[edit.event.event_label];
      replace({ ...state.corrections, tags });
    },
    cancel: () => update({ corrections: before, chosen: event }),
  };
  return edit;
}

/** Change an event in one step. */
export function changeEvent(event, patch) {
  const edit = beginEdit(event);
  edit.change(patch);
  edit.commit();
}

/** Add an event of a class. */
export function addEvent(label, onset, offset) {
  const edit = beginEdit(null, label);
  edit.change({ onset, offset });
  edit.commit();
}

/** Delete an event. */
export function deleteEvent(event) {
  replace({ ...state.corrections, events: shownEvents().filter((one) => one !== event) });
  update({ chosen: null });
}

/** Say that a class is in the recording, or is not; the same once more takes it back. */
export function setTag(label, isThere) {
  const tags = { ...state.corrections.tags };
  const takenBack = tags[label] === isThere;
  if (takenBack) delete tags[label];
  else tags[label] = isThere;
  let { events } = state.corrections;
  if (!takenBack && !isThere && events) events = events.filter((one) => one.event_label !== label);
  replace({ events, tags });
  const what = takenBack ? "no tag" : isThere ? "confirmed" : "rejected";
  find("save-status").textContent = `${readable(label)}: ${what}`;
}

/** Go back to what was detected. */
export const discard = () => replace({ events: null, tags: {} });

function step(from, to) {
  if (from.length === 0) return;
  to.push(state.corrections);
  update({ corrections: from.pop(), chosen: null });
  save();
}

export const undo = () => step(past, future);
export const redo = () => step(future, past);

export function initCorrections() {
  find("undo").onclick = undo;
  find("redo").onclick = redo;
  find("discard").onclick = discard;
  on(["corrections", "recording"], showHistory);
}
