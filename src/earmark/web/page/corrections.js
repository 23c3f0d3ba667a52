// Corrections of events and tags, with undo. Every change is saved at once.
//
// The first change turns the detected events into corrected ones, which the sliders leave alone. An
// event that nobody changed keeps its score. Only recordings that were checked are learnt from.

import { deleteCorrections, getCorrections, putCorrections } from "./api.js";
import { find, sayError } from "./dom.js";
import { readable } from "./format.js";
import { allLabels, duration, noCorrections, on, shownEvents, state, update } from "./state.js";

const SHORTEST = 0.02; // seconds of an event

let past = []; // corrections before each change, for undo
let future = []; // for redo
let present = state.corrections; // what the last step led to
let loaded = null; // id of the recording whose corrections are known
let saving = Promise.resolve();
let unsaved = 0;

const byOnset = (a, b) => a.onset - b.onset || a.offset - b.offset;

function replace(corrections) {
  if (loaded !== state.recording?.id) {
    update({ corrections: present }); // what is saved there must not be overwritten
    sayError(new Error("The corrections of this recording are not loaded; open it again."));
    return;
  }
  past.push(present);
  future = [];
  update({ corrections });
  save();
}

function save() {
  const { recording, corrections } = state;
  present = corrections;
  unsaved += 1;
  find("save-status").textContent = "Saving…";
  saving = saving
    .then(() => send(recording.id, corrections))
    .then(() => {
      unsaved -= 1;
      if (unsaved === 0) find("save-status").textContent = "Corrections saved";
      const about = { corrected: isCorrected(corrections), checked: corrections.checked };
      const recordings = state.recordings.map((one) =>
        one.id === recording.id ? { ...one, ...about } : one,
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

const isCorrected = ({ events, tags, checked }) =>
  events !== null || checked !== null || Object.keys(tags).length > 0;

function send(id, corrections) {
  return isCorrected(corrections) ? putCorrections(id, corrections) : deleteCorrections(id);
}

function showHistory() {
  find("undo").disabled = past.length === 0;
  find("redo").disabled = future.length === 0;
  const { events, checked } = state.corrections;
  find("corrected-note").hidden = events === null;
  find("tags-right").checked = checked !== null;
  find("events-right").checked = checked === "events";
}

/** Wait until everything is saved. */
export const saved = () => saving;

/** Leave the corrections of the recording that was shown, and what could be undone there. */
export function leaveCorrections() {
  past = [];
  future = [];
  present = noCorrections();
  loaded = null;
  update({ corrections: present });
}

/** Read the corrections of the recording that is shown. */
export async function loadCorrections(id) {
  await saving; // of the same recording, perhaps
  const { events, as_detected, tags, checked } = await getCorrections(id);
  if (state.recording?.id !== id) return;
  present = { events: as_detected ? null : [...events].sort(byOnset), tags, checked };
  loaded = id;
  update({ corrections: present });
  const named = [...events.map(({ event_label }) => event_label), ...Object.keys(tags)];
  const unknown = [...new Set(named)].filter((label) => !allLabels().includes(label));
  if (unknown.length) update({ newLabels: [...state.newLabels, ...unknown] });
}

/** Return the class of a name; a name that nobody has used becomes a new class. */
export function labelOf(name) {
  const text = name.trim().replace(/\s+/g, " ");
  const same = (label) => readable(label).toLowerCase() === readable(text).toLowerCase();
  const known = allLabels().find(same);
  if (known === undefined) update({ newLabels: [...state.newLabels, text] });
  return known ?? text;
}

/** The tags without the confirmed one of a class of which the last event is gone. */
function tagsWith(events, label) {
  const tags = { ...state.corrections.tags };
  if (tags[label] && !events.some((one) => one.event_label === label)) delete tags[label];
  return tags;
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
      const tags = tagsWith(state.corrections.events, event?.event_label);
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
  const events = shownEvents().filter((one) => one !== event);
  replace({ ...state.corrections, events, tags: tagsWith(events, event.event_label) });
  update({ chosen: null });
}

/** Say that a class is in the recording, or is not; the same once more takes it back. */
export function setTag(label, isThere) {
  const tags = { ...state.corrections.tags };
  const takenBack = tags[label] === isThere;
  if (takenBack) delete tags[label];
  else tags[label] = isThere;
  let { events, checked } = state.corrections;
  if (!takenBack && !isThere && events) events = events.filter((one) => one.event_label !== label);
  if (takenBack) checked = null; // one class is open again
  replace({ events, tags, checked });
  const what = takenBack ? "no tag" : isThere ? "confirmed" : "rejected";
  find("save-status").textContent = `${readable(label)}: ${what}`;
}

/** Say that the tags are right, or "events" and tags: all classes that are shown are confirmed. */
export function setChecked(checked) {
  const tags = { ...state.corrections.tags };
  if (checked) for (const { event_label } of shownEvents()) tags[event_label] = true;
  const events = checked === "events" ? shownEvents() : state.corrections.events;
  replace({ events, tags, checked });
}

/** Check the tags, or the events as well; the same once more takes it back. */
export function toggleChecked(what) {
  const { checked } = state.corrections;
  if (what === "tags") setChecked(checked === null ? "tags" : null);
  else setChecked(checked === "events" ? "tags" : "events");
}

/** Go back to what was detected. */
export const discard = () => replace(noCorrections());

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
  find("tags-right").onchange = () => toggleChecked("tags");
  find("events-right").onchange = () => toggleChecked("events");
  on(["corrections", "recording"], showHistory);
}
