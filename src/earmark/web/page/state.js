// What the page knows, in one place. Modules read `state`, change it with `update`, and are called
// after a change of the keys that they named with `on`.
//
// Times are seconds. An event is {onset, offset, event_label, score}; events are never changed in
// place, so that two of them are the same event if they are the same object.

export const state = {
  model: null, // as in GET /api/model
  newLabels: [], // classes that were named here and that the model does not know
  recordings: [], // as in GET /api/recordings
  recording: null, // the one that is shown
  view: { start: 0, end: 1 }, // the visible part of it
  cursor: 0,
  playing: false,
  loop: null, // {onset, offset} that is played again and again
  settings: noSettings(),
  detected: [], // events of the settings
  thresholds: {}, // of these, per label
  corrections: noCorrections(),
  chosen: null, // an event of `shownEvents`
  label: null, // the class that is chosen
  showSilent: false,
  theme: "system",
};

const listeners = [];
let changed = null;

/**
 * What nobody has corrected: `events` is null while all are as detected, `tags` has label -> whether
 * it is there, `checked` is what is right and complete: "tags", or "events" and tags.
 */
export function noCorrections() {
  return { events: null, tags: {}, checked: null };
}

/** Settings that leave everything to the model. */
export function noSettings() {
  return { sensitivity: 0, min_score: null, rules: {}, class_rules: {} };
}

/** Call `run` after any of the keys has changed; all changes of one task are passed on at once. */
export function on(keys, run) {
  listeners.push({ keys, run });
}

/** Change some keys of the state. */
export function update(patch) {
  if (changed === null) {
    changed = new Set();
    queueMicrotask(flush);
  }
  for (const [key, value] of Object.entries(patch)) {
    if (state[key] === value) continue;
    state[key] = value;
    changed.add(key);
  }
}

function flush() {
  const keys = changed;
  changed = null;
  for (const listener of listeners) {
    if (listener.keys.some((key) => keys.has(key))) listener.run();
  }
}

/** All classes, those of the model first. */
export const allLabels = () => [...(state.model?.labels ?? []), ...state.newLabels];

/** Whether the model knows a class. */
export const isKnown = (label) => state.model?.labels.includes(label) ?? false;

let left = { detected: null, tags: null, events: [] };

/** The corrected events, or the detected ones of classes that are not rejected; by onset. */
export function shownEvents() {
  const { detected, corrections } = state;
  if (corrections.events) return corrections.events;
  if (left.detected !== detected || left.tags !== corrections.tags) {
    const events = detected.filter(({ event_label }) => corrections.tags[event_label] !== false);
    left = { detected, tags: corrections.tags, events };
  }
  return left.events;
}

const none = [];
let sorted = { events: null, byLabel: new Map() };

/** The shown events of a class, by onset. */
export function eventsOf(label) {
  const events = shownEvents();
  if (sorted.events !== events) {
    sorted = { events, byLabel: Map.groupBy(events, (event) => event.event_label) };
  }
  return sorted.byLabel.get(label) ?? none;
}

/** Seconds of the recording that is shown. */
export function duration() {
  return state.recording?.duration ?? 0;
}

/** The labels that have a lane: those with events or tags, the chosen one, or all. */
export function lanesShown() {
  const labels = allLabels();
  if (state.showSilent) return labels;
  const named = new Set(shownEvents().map((event) => event.event_label));
  for (const event of state.detected) named.add(event.event_label);
  for (const label of Object.keys(state.corrections.tags)) named.add(label);
  if (state.label !== null) named.add(state.label);
  return labels.filter((label) => named.has(label));
}
