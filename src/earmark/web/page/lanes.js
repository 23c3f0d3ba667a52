// A lane per class: its name, the tags, the scores with threshold and events. Events are edited by
// mouse here; by keyboard they are edited with the shortcuts and in the form (events.js).

import { colours } from "./colours.js";
import { beginEdit, setTag } from "./corrections.js";
import { setThreshold } from "./controls.js";
import { find, fitCanvas, make } from "./dom.js";
import { count, readable } from "./format.js";
import { chooseEvent } from "./events.js";
import { listenFrom, loopEvent } from "./player.js";
import { visibleScores } from "./scores.js";
import { allLabels, duration, eventsOf, isKnown, lanesShown, on, state, update } from "./state.js";
import { addGestures, onDraw, redraw, secondsPerPixel, timeOf, xOf } from "./timeline.js";

const PAD = 5; // pixels above a score of 1 and below 0
const GRIP = 7; // pixels around an edge in which it can be dragged

const lanes = new Map(); // label -> {label, row, canvas, name, facts, yes, no, seen}
let focused = { label: null, column: 0 }; // the one tab stop of the grid
let drag = null; // {event, label}: the event that is being drawn or moved
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) lanes.get(entry.target.dataset.label).seen = entry.isIntersecting;
  redraw();
});

function makeLane(label) {
  const facts = make("span", { className: "note" });
  const name = make(
    "button",
    { type: "button", className: "lane-name", tabIndex: -1, title: readable(label) },
    make("span", { textContent: readable(label) }),
    facts,
  );
  name.onclick = () => update({ label: state.label === label ? null : label });
  const yes = tagButton(label, true);
  const no = tagButton(label, false);
  const canvas = make("canvas", { role: "img" });
  const plot = make("div", { className: "lane-plot", role: "gridcell" }, canvas);
  const head = make(
    "div",
    { className: "lane-head", role: "presentation" },
    make("div", { role: "gridcell", className: "lane-name-cell" }, name),
    make("div", { role: "gridcell" }, yes),
    make("div", { role: "gridcell" }, no),
  );
  const row = make("div", { className: "lane", role: "row", data: { label } }, head, plot);
  const lane = { label, row, canvas, name, facts, yes, no, seen: true };
  addGestures(plot, { begin: (event, x) => begin(lane, event, x), click: (x) => click(lane, x) });
  plot.addEventListener("pointermove", (event) => {
    if (drag === null) plot.style.cursor = cursorOf(lane, event);
  });
  plot.addEventListener("dblclick", (event) => {
    const hit = eventAt(label, event.offsetX);
    if (hit) loopEvent(hit.event);
  });
  return lane;
}

function tagButton(label, present) {
  const button = make("button", {
    type: "button",
    className: `tag ${present ? "yes" : "no"}`,
    tabIndex: -1,
    textContent: present ? "✓" : "✗",
    title: present ? "It is in the recording" : "It is not in the recording",
    aria: { label: `${readable(label)} is ${present ? "" : "not "}in the recording`, pressed: "false" },
  });
  button.onclick = () => setTag(label, present);
  return button;
}

/** The event of a lane at a position, and which part of it; edges of the chosen one come first. */
function eventAt(label, x, grip = GRIP) {
  const near = [];
  for (const event of eventsOf(label)) {
    const [left, right] = [xOf(event.onset), xOf(event.offset)];
    if (x < left - grip || x > right + grip) continue;
    const narrow = Math.min(grip, (right - left) / 3); // a short event keeps a middle
    let part = "body";
    if (x < left + narrow) part = "onset";
    else if (x > right - narrow) part = "offset";
    if (part === "body" || x >= left - grip) near.push({ event, part });
  }
  return near.find(({ event }) => event === state.chosen) ?? near[0] ?? null;
}

const yOf = (score, height) => PAD + (1 - score) * (height - 2 * PAD);

function onThreshold(lane, event) {
  const threshold = state.thresholds[lane.label];
  if (threshold === undefined || event.pointerType !== "mouse") return false;
  return Math.abs(event.offsetY - yOf(threshold, lane.canvas.clientHeight)) <= 4;
}

function cursorOf(lane, event) {
  const hit = eventAt(lane.label, event.offsetX);
  if (hit) return hit.part === "body" ? "pointer" : "ew-resize";
  return onThreshold(lane, event) ? "ns-resize" : "crosshair";
}

function begin(lane, event, x) {
  const { label } = lane;
  const mouse = event.pointerType === "mouse";
  const hit = eventAt(label, x, mouse ? GRIP : 2 * GRIP);
  if (hit) {
    if (hit.part !== "body" && (mouse || hit.event === state.chosen)) return dragEdge(hit);
    return null;
  }
  if (!mouse) return null; // a finger scrolls
  return onThreshold(lane, event) ? dragFromThreshold(lane, event, x) : drawEvent(label, x);
}

function dragEdge({ event, part }) {
  const edit = beginEdit(event);
  drag = edit;
  return {
    move: (x) => edit.change({ [part]: Math.min(Math.max(0, timeOf(x)), duration()) }),
    end(moved) {
      drag = null;
      if (moved) edit.commit();
      else {
        edit.cancel();
        chooseEvent(event);
      }
    },
  };
}

function drawEvent(label, x) {
  let edit = null;
  return {
    move(to) {
      const [onset, offset] = [timeOf(Math.min(x, to)), timeOf(Math.max(x, to))];
      edit ??= beginEdit(null, label);
      drag = edit;
      edit.change({ onset: Math.max(0, onset), offset: Math.min(offset, duration()) });
    },
    end(moved) {
      drag = null;
      if (moved && edit) edit.commit();
      else {
        edit?.cancel();
        click(lanes.get(label), x);
      }
    },
  };
}

/** On the line of the threshold: up and down moves it, sideways draws an event. */
function dragFromThreshold(lane, down, x) {
  let taken = null;
  return {
    move(to, event) {
      const [dx, dy] = [event.clientX - down.clientX, event.clientY - down.clientY];
      taken ??= Math.abs(dy) > Math.abs(dx) ? dragThreshold(lane) : drawEvent(lane.label, x);
      taken.move(to, event);
    },
    end(moved) {
      if (taken) taken.end(moved);
      else click(lane, x);
    },
  };
}

function dragThreshold(lane) {
  return {
    move(x, event) {
      const box = lane.canvas.getBoundingClientRect();
      const score = 1 - (event.clientY - box.top - PAD) / (box.height - 2 * PAD);
      setThreshold(lane.label, Math.min(Math.max(score, 0.01), 1));
    },
    end() {},
  };
}

function click(lane, x) {
  const hit = eventAt(lane.label, x);
  if (hit) chooseEvent(hit.event);
  else {
    update({ label: lane.label });
    listenFrom(timeOf(x));
  }
}

/** Rows for the classes that are shown, in the order of the model. */
function layOut() {
  const shown = lanesShown();
  for (const label of shown) {
    if (lanes.has(label)) continue;
    const lane = makeLane(label);
    lanes.set(label, lane);
    seen.observe(lane.row);
  }
  const rows = shown.map((label) => lanes.get(label).row);
  const grid = find("lanes");
  if (rows.length !== grid.children.length || rows.some((row, k) => row !== grid.children[k])) {
    const active = document.activeElement; // moving an element takes its focus
    grid.replaceChildren(...rows);
    if (active !== document.activeElement && grid.contains(active)) active.focus();
  }
  const silent = allLabels().length - shown.length;
  const button = find("silent");
  button.hidden = silent === 0 && !state.showSilent;
  button.textContent = state.showSilent
    ? "Fold silent classes away"
    : `Show ${count(silent, "silent class").replace("classs", "classes")}`;
  button.setAttribute("aria-expanded", String(state.showSilent));
  if (!shown.includes(focused.label)) focused = { label: shown[0] ?? null, column: 0 };
  describe();
  redraw();
}

/** Names, counts, tags and the tab stop. */
function describe() {
  for (const lane of lanes.values()) {
    const n = eventsOf(lane.label).length;
    const tag = state.corrections.tags[lane.label];
    const threshold = state.thresholds[lane.label];
    lane.facts.textContent = n ? count(n, "event") : isKnown(lane.label) ? "silent" : "new class";
    lane.row.classList.toggle("chosen", lane.label === state.label);
    lane.name.setAttribute("aria-pressed", String(lane.label === state.label));
    lane.yes.setAttribute("aria-pressed", String(tag === true));
    lane.no.setAttribute("aria-pressed", String(tag === false));
    const at = threshold === undefined ? "" : `, threshold ${threshold.toFixed(2)}`;
    lane.canvas.setAttribute("aria-label", `Scores of ${readable(lane.label)}, ${count(n, "event")}${at}`);
    const cells = [lane.name, lane.yes, lane.no];
    cells.forEach((cell, column) => {
      cell.tabIndex = lane.label === focused.label && column === focused.column ? 0 : -1;
    });
  }
}

function moveFocus(event) {
  const shown = lanesShown();
  const lane = [...lanes.values()].find(({ row }) => row.contains(event.target));
  if (!lane) return;
  let at = shown.indexOf(lane.label);
  let column = [lane.name, lane.yes, lane.no].indexOf(event.target);
  if (event.key === "ArrowDown") at += 1;
  else if (event.key === "ArrowUp") at -= 1;
  else if (event.key === "ArrowRight") column += 1;
  else if (event.key === "ArrowLeft") column -= 1;
  else if (event.key === "Home") column = 0;
  else if (event.key === "End") column = 2;
  else return;
  event.preventDefault();
  event.stopPropagation();
  focused = {
    label: shown[Math.min(Math.max(at, 0), shown.length - 1)],
    column: Math.min(Math.max(column, 0), 2),
  };
  describe();
  const next = lanes.get(focused.label);
  [next.name, next.yes, next.no][focused.column].focus();
}

function drawLanes() {
  const tiles = visibleScores();
  for (const lane of lanes.values()) {
    if (lane.seen && lane.row.isConnected) drawLane(lane, tiles);
  }
}

function drawLane(lane, tiles) {
  const { context, width, height } = fitCanvas(lane.canvas);
  if (lane.label === state.label) {
    context.fillStyle = colours.sunken;
    context.fillRect(0, 0, width, height);
  }
  const blocks = [];
  for (const event of eventsOf(lane.label)) {
    const block = blockOf(event, width);
    if (block) blocks.push({ ...block, event, chosen: event === state.chosen || event === drag?.event });
  }
  const points = scorePoints(lane.label, tiles, height);
  fillScores(context, points, height);
  for (const block of blocks) fillBlock(context, block, height);
  drawThreshold(context, state.thresholds[lane.label], width, height);
  strokeScores(context, points);
  for (const block of blocks) outlineBlock(context, block, width, height);
  if (!state.corrections.events) return;
  for (const event of state.detected) {
    if (event.event_label === lane.label) drawGhost(context, event, width, height);
  }
}

function drawThreshold(context, threshold, width, height) {
  if (threshold === undefined) return;
  const y = yOf(threshold, height);
  context.strokeStyle = colours.threshold;
  context.lineWidth = 1;
  context.setLineDash([5, 4]);
  context.beginPath();
  context.moveTo(0, y);
  context.lineTo(width, y);
  context.stroke();
  context.setLineDash([]);
}

/** Points to draw: [x, y of the largest score, y of the smallest]. */
function scorePoints(name, tiles, height) {
  const points = [];
  for (const { start, step, rows } of tiles) {
    const row = rows.get(name);
    if (!row) continue;
    const first = Math.max(0, Math.floor((state.view.start - start) / step) - 1);
    const last = Math.min(row.high.length - 1, Math.ceil((state.view.end - start) / step) + 1);
    for (let k = first; k <= last; k++) {
      const time = start + (k + 0.5) * step;
      points.push([xOf(time), yOf(row.high[k], height), yOf(row.low[k], height)]);
    }
  }
  return points;
}

function fillScores(context, points, height) {
  const wide = secondsPerPixel() * state.model.frame_rate > 1; // several frames per point
  const base = yOf(0, height);
  const area = (column) => {
    context.beginPath();
    context.moveTo(points[0]?.[0] ?? 0, base);
    for (const point of points) context.lineTo(point[0], point[column]);
    context.lineTo(points.at(-1)?.[0] ?? 0, base);
    context.fill();
  };
  context.fillStyle = colours.scoreFill;
  area(1);
  if (!wide) return;
  context.globalAlpha = 0.35;
  context.fillStyle = colours.scoreLine;
  area(2);
  context.globalAlpha = 1;
}

function strokeScores(context, points) {
  context.strokeStyle = colours.scoreLine;
  context.lineWidth = 1.5;
  context.lineJoin = "round";
  context.beginPath();
  for (const [x, y] of points) context.lineTo(x, y);
  context.stroke();
}

function blockOf(event, width) {
  const left = xOf(event.onset);
  const right = Math.max(left + 2, xOf(event.offset));
  return left > width || right < 0 ? null : { x: left, w: right - left };
}

function drawGhost(context, event, width, height) {
  const block = blockOf(event, width);
  if (!block) return;
  context.strokeStyle = colours.muted;
  context.lineWidth = 1;
  context.setLineDash([3, 2]);
  context.strokeRect(block.x, height - 6.5, block.w, 5);
  context.setLineDash([]);
}

function traceBlock(context, { x, w }, height) {
  context.beginPath();
  context.roundRect(x, 2.5, w, height - 5, Math.min(4, w / 2));
}

function fillBlock(context, block, height) {
  traceBlock(context, block, height);
  context.fillStyle = colours.surface;
  context.fill();
  context.globalAlpha = block.chosen ? 0.55 : 0.32;
  context.fillStyle = colours.event;
  context.fill();
  context.globalAlpha = 1;
}

function outlineBlock(context, block, width, height) {
  const { x, w, event, chosen } = block;
  traceBlock(context, block, height);
  context.strokeStyle = chosen ? colours.chosen : colours.eventLine;
  context.lineWidth = chosen ? 2.5 : 1.25;
  context.stroke();
  if (chosen && w > 16) {
    context.fillStyle = colours.chosen; // grips
    context.beginPath();
    for (const edge of [x, x + w]) context.roundRect(edge - 3, height / 2 - 9, 6, 18, 3);
    context.fill();
  }
  const text = event.score?.toFixed(2) ?? "by hand";
  context.font = `600 11px ${colours.font}`;
  const [left, right] = [Math.max(x, 0), Math.min(x + w, width)];
  if (right - left < context.measureText(text).width + 18) return;
  context.textBaseline = "alphabetic";
  context.lineWidth = 3;
  context.lineJoin = "round";
  context.strokeStyle = colours.surface;
  context.globalAlpha = 0.7;
  context.strokeText(text, left + 9, height - 10);
  context.globalAlpha = 1;
  context.fillStyle = colours.eventInk;
  context.fillText(text, left + 9, height - 10);
}

export function initLanes() {
  find("silent").onclick = () => update({ showSilent: !state.showSilent });
  find("lanes").addEventListener("keydown", moveFocus);
  find("lanes").addEventListener("focusin", ({ target }) => {
    const lane = [...lanes.values()].find(({ row }) => row.contains(target));
    if (!lane) return;
    focused = { label: lane.label, column: Math.max(0, [lane.name, lane.yes, lane.no].indexOf(target)) };
    describe();
  });
  on(["model"], () => {
    for (const lane of lanes.values()) seen.unobserve(lane.row);
    lanes.clear();
    find("lanes").replaceChildren();
  });
  const keys = ["model", "recording", "detected", "corrections", "label", "showSilent", "thresholds"];
  on([...keys, "newLabels"], layOut);
  onDraw(drawLanes);
}

