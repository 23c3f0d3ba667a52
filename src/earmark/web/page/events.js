// The list of events and the form of the chosen one: everything that a lane does by mouse.
//
// The list is a listbox whose rows exist only where they are visible, so that a recording of hours
// with thousands of events stays quick.

import { addEvent, changeEvent, deleteEvent, labelOf } from "./corrections.js";
import { askName, find, make } from "./dom.js";
import { clock, count, eventText, readable } from "./format.js";
import { listenTo, seek } from "./player.js";
import { allLabels, duration, on, shownEvents, state, update } from "./state.js";
import { show } from "./timeline.js";

const ROW = 30; // pixels, as in style.css
const space = make("div", { role: "presentation" });
const NEW = ""; // the choice of a class that is not in the list

/** Choose an event: it is marked everywhere, and the cursor goes to its onset. */
export function chooseEvent(event) {
  update({ chosen: event, label: event?.event_label ?? state.label });
  if (!event) return;
  seek(event.onset);
  show(event.onset, event.offset);
}

/** Choose the event `by` places after the chosen one, or the next one after the cursor. */
export function chooseNext(by) {
  const events = shownEvents();
  if (events.length === 0) return;
  const here = events.indexOf(state.chosen);
  let next = here + by;
  if (here < 0) {
    next = events.findIndex((event) => event.onset >= state.cursor - 1e-6);
    if (next < 0) next = events.length;
    if (by < 0) next -= 1;
  }
  chooseEvent(events[Math.min(Math.max(next, 0), events.length - 1)]);
}

/** Add an event of the chosen class at the cursor, as long as a tenth of the view. */
export function addAtCursor() {
  const label = state.label ?? allLabels()[0];
  const { start, end } = state.view;
  const length = Math.min(Math.max(0.1, (end - start) / 10), 5, duration());
  const onset = Math.min(state.cursor, duration() - length);
  addEvent(label, onset, onset + length);
}

/** Move an edge of the chosen event by some seconds, or to a time. */
export function moveEdge(edge, { by = 0, to = null }) {
  const { chosen } = state;
  if (!chosen) return;
  changeEvent(chosen, { [edge]: Math.min(Math.max(0, to ?? chosen[edge] + by), duration()) });
}

/** After other settings, choose the event in the place of the one that was chosen. */
function keepChosen() {
  const { chosen } = state;
  const events = shownEvents();
  if (!chosen || events.includes(chosen)) return;
  const same = events.find(
    (event) =>
      event.event_label === chosen.event_label &&
      event.onset < chosen.offset &&
      event.offset > chosen.onset,
  );
  update({ chosen: same ?? null });
}

function drawList() {
  const list = find("event-list");
  const events = shownEvents();
  space.style.height = `${events.length * ROW}px`; // the list is as high, up to a limit
  list.append(space);
  const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 4);
  const last = Math.min(events.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + 4);
  const rows = [];
  const chosen = events.indexOf(state.chosen);
  for (let k = first; k < last; k++) rows.push(makeRow(events[k], k, events.length));
  if (chosen >= 0 && (chosen < first || chosen >= last)) {
    rows.push(makeRow(events[chosen], chosen, events.length)); // for aria-activedescendant
  }
  list.replaceChildren(...rows, space);
  if (chosen >= 0) list.setAttribute("aria-activedescendant", `event-${chosen}`);
  else list.removeAttribute("aria-activedescendant");
  find("events-count").textContent = count(events.length, "event");
}

function makeRow(event, k, n) {
  const chosen = event === state.chosen;
  const row = make(
    "div",
    {
      className: "event-row",
      id: `event-${k}`,
      role: "option",
      aria: { selected: String(chosen), label: eventText(event), posinset: k + 1, setsize: n },
    },
    make("span", { textContent: readable(event.event_label) }),
    make("span", { textContent: `${clock(event.onset, 2)} – ${clock(event.offset, 2)}` }),
    make("span", { textContent: event.score?.toFixed(2) ?? "" }),
  );
  row.style.top = `${k * ROW}px`;
  row.onclick = () => chooseEvent(event);
  row.ondblclick = () => listenTo(event);
  return row;
}

/** Scroll the list to the chosen event. */
function showChosenRow() {
  const list = find("event-list");
  const k = shownEvents().indexOf(state.chosen);
  if (k < 0) return;
  if (k * ROW < list.scrollTop) list.scrollTop = k * ROW;
  const bottom = (k + 1) * ROW - list.clientHeight;
  if (bottom > list.scrollTop) list.scrollTop = bottom;
}

function fillForm() {
  const { chosen } = state;
  find("no-event").hidden = chosen !== null;
  find("event-form").hidden = chosen === null;
  for (const id of ["event-listen", "event-delete"]) find(id).disabled = chosen === null;
  find("loop").disabled = chosen === null;
  if (!chosen) return;
  find("event-label").value = chosen.event_label;
  for (const edge of ["onset", "offset"]) {
    const input = find(`event-${edge}`);
    input.max = duration().toFixed(3);
    const value = Number(chosen[edge].toFixed(3));
    if (input.value === "" || Number(input.value) !== value) input.value = value;
  }
}

/** Ask for the name of a class, and choose it: its lane is shown, to confirm it or to draw in. */
export async function nameClass() {
  const name = await askName();
  if (name !== null) update({ label: labelOf(name), chosen: null });
}

async function rename({ target }) {
  const { chosen } = state;
  let label = target.value;
  if (label === NEW) {
    const name = await askName();
    label = name === null ? chosen.event_label : labelOf(name);
  }
  if (label === chosen.event_label) fillForm();
  else changeEvent(chosen, { event_label: label });
}

function fillLabels() {
  const options = allLabels().map((label) => new Option(readable(label), label));
  find("event-label").replaceChildren(...options, new Option("New class …", NEW));
  fillForm();
}

export function initEvents() {
  const list = find("event-list");
  list.addEventListener("scroll", drawList, { passive: true });
  list.addEventListener("keydown", (event) => {
    const events = shownEvents();
    if (event.key === "ArrowDown") chooseNext(1);
    else if (event.key === "ArrowUp") chooseNext(-1);
    else if (event.key === "Home" && events.length) chooseEvent(events[0]);
    else if (event.key === "End" && events.length) chooseEvent(events.at(-1));
    else if (event.key === "Enter" && state.chosen) listenTo(state.chosen);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  find("event-form").onsubmit = (event) => event.preventDefault();
  find("event-label").onchange = rename;
  find("new-class").onclick = nameClass;
  for (const edge of ["onset", "offset"]) {
    find(`event-${edge}`).onchange = ({ target }) => {
      if (target.validity.badInput || target.value === "") fillForm();
      else moveEdge(edge, { to: Number(target.value) });
    };
  }
  find("event-listen").onclick = () => listenTo(state.chosen);
  find("event-delete").onclick = () => deleteEvent(state.chosen);
  find("event-add").onclick = addAtCursor;
  on(["model", "newLabels"], fillLabels);
  on(["detected", "corrections"], keepChosen);
  on(["detected", "corrections", "chosen", "recording"], () => {
    showChosenRow();
    drawList();
    fillForm();
  });
}
