// Why: how the clip score of a class comes about in the window around the cursor, with hierarchical
// and with single-level pooling of the same frame scores, side by side.

import { getHierarchy } from "./api.js";
import { find, makeSvg } from "./dom.js";
import { readable } from "./format.js";
import { isKnown, on, shownEvents, state, update } from "./state.js";

const NAMES = ["frames", "segments", "longer segments", "clip"];
const BAR = 34; // pixels of a score of 1
const GAP = 44; // pixels between a level and the one above it, for the links
const TOP = 30;

let shown = null; // what the service answered
let asked = null; // {id, label, time} of the last request
let waiting = null; // timer

const isOpen = () => find("why-toggle").getAttribute("aria-expanded") === "true";

/** Open or close the view. */
export function toggleWhy() {
  const open = !isOpen();
  find("why-toggle").setAttribute("aria-expanded", String(open));
  find("why-toggle").textContent = open ? "Hide" : "Show";
  find("why-body").hidden = !open;
  if (!open) return;
  if (state.label === null) update({ label: shownEvents()[0]?.event_label ?? state.model.labels[0] });
  ask();
  find("why").scrollIntoView({ block: "nearest" });
}

function ask() {
  if (!isOpen() || !state.recording || state.recording.status !== "ready") return;
  const id = state.recording.id;
  const { label, chosen } = state;
  if (label === null || !isKnown(label)) {
    const unknown = `The model does not know ${readable(label ?? "")} before it is trained with it.`;
    drawNothing(label === null ? "Choose a class." : unknown);
    return;
  }
  const inChosen = chosen?.event_label === label;
  const time = inChosen ? (chosen.onset + chosen.offset) / 2 : state.cursor;
  const fits = shown && asked?.id === id && asked.label === label && time >= shown.start && time < shown.end;
  if (fits) return;
  clearTimeout(waiting);
  waiting = setTimeout(async () => {
    asked = { id, label, time };
    const mine = asked;
    try {
      const found = await getHierarchy(id, label, time);
      if (asked !== mine) return;
      shown = found;
      draw();
    } catch (error) {
      if (asked === mine) drawNothing(error.message);
    }
  }, 120);
}

function drawNothing(reason) {
  clearTimeout(waiting);
  shown = asked = null;
  find("why-summary").textContent = reason;
  find("why-figures").hidden = true;
}

/**
 * The frames below an item, [first, last + 1]. `stages` are the lengths of the segments of each level
 * in items of the level below; the last segment of a level may be shorter.
 */
export function framesOf(levels, stages, k, i) {
  const n = levels[0].n;
  if (levels[k].n === 1) return [0, n];
  const length = stages.slice(0, k).reduce((product, stage) => product * stage, 1);
  return [i * length, Math.min(n, (i + 1) * length)];
}

/** The item of the next level that an item is pooled to. */
const parentOf = (levels, stages, k, i) => (levels[k + 1].n === 1 ? 0 : Math.floor(i / stages[k]));

/** Share of the clip score that each item of the lowest level carries; they sum to 1. */
export function shares(levels, stages, clip) {
  const frames = levels[0];
  return frames.scores.map((score, i) => {
    let weight = 1;
    let at = i;
    for (let k = 0; k + 1 < levels.length; k++) {
      weight *= levels[k].weights[at] ?? 1;
      at = parentOf(levels, stages, k, at);
    }
    return clip > 0 ? (weight * score) / clip : 0;
  });
}

/** The shortest run of items with at least half of the sum: [first, last]. */
export function shortestHalf(values) {
  const half = values.reduce((sum, value) => sum + value, 0) / 2;
  let best = [0, values.length - 1];
  let [first, sum] = [0, 0];
  for (let last = 0; last < values.length; last++) {
    sum += values[last];
    while (sum - values[first] >= half && first < last) sum -= values[first++];
    if (sum >= half && last - first < best[1] - best[0]) best = [first, last];
  }
  return best;
}

function summary(kind, levels, clip) {
  const { start, end } = shown;
  const own = shares(levels, shown.stages, clip);
  const [first, last] = shortestHalf(own);
  const step = (end - start) / own.length;
  const [from, to] = [start + first * step, start + (last + 1) * step];
  return `${kind} ${clip.toFixed(2)}, half of it from ${from.toFixed(1)} to ${to.toFixed(1)} s`;
}

function draw() {
  find("why-figures").hidden = false;
  const { hierarchical, single, label, start, end } = shown;
  const singleLevels = [
    { ...hierarchical.levels[0], weights: single.weights },
    { n: 1, scores: [single.clip], weights: [] },
  ];
  const text = [
    summary("hierarchical", hierarchical.levels, hierarchical.clip),
    summary("single-level", singleLevels, single.clip),
  ];
  const own = state.model.stages.length > 0; // whether the model pools hierarchically
  find("why-hierarchical-title").textContent = `Hierarchical pooling, ${own ? "the model's own" : "to compare"}`;
  find("why-single-title").textContent = `Single-level pooling, ${own ? "to compare" : "the model's own"}`;
  find("why-summary").textContent =
    `${readable(label)}, ${start.toFixed(1)} to ${end.toFixed(1)} s. Clip score: ${text.join("; ")}.`;
  drawTree(find("why-hierarchical"), hierarchical.levels, hierarchical.clip, text[0], hierarchical.levels.length);
  drawTree(find("why-single"), singleLevels, single.clip, text[1], hierarchical.levels.length);
}

/** Draw levels as rows of bars, the clip at the top, with a link from each item to its parent. */
function drawTree(box, levels, clip, text, rows) {
  const width = Math.max(240, box.clientWidth || 320);
  const height = TOP + rows * BAR + (rows - 1) * GAP + 22;
  const svg = makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": text });
  const { stages } = shown;
  const share = shares(levels, stages, clip);
  const carriedBy = (k) =>
    levels[k].scores.map((_, i) =>
      share.slice(...framesOf(levels, stages, k, i)).reduce((a, b) => a + b, 0),
    );
  const sides = (k, i) => framesOf(levels, stages, k, i).map((frame) => (frame * width) / levels[0].n);
  const baseOf = (k) => TOP + BAR + (levels.length - 1 - k) * ((rows - 1) / (levels.length - 1)) * (BAR + GAP);
  for (let k = 0; k + 1 < levels.length; k++) drawLinks(svg, levels, k, carriedBy(k), width, baseOf, sides);
  for (let k = 0; k < levels.length; k++) {
    const { n, scores } = levels[k];
    const base = baseOf(k);
    const carried = carriedBy(k);
    const most = Math.max(...carried, 1e-9);
    svg.append(makeSvg("path", { d: `M0 ${base}H${width}`, class: "why-base" }));
    scores.forEach((score, i) => {
      const [left, right] = sides(k, i);
      const each = right - left;
      const bar = makeSvg("rect", {
        x: (left + Math.min(1, each * 0.1)).toFixed(2),
        y: (base - Math.max(1, score * BAR)).toFixed(2),
        width: Math.max(0.6, each - 2 * Math.min(1, each * 0.1)).toFixed(2),
        height: Math.max(1, score * BAR).toFixed(2),
        rx: n === 1 ? 4 : n <= 25 ? 2 : 0,
        class: "why-bar",
        opacity: (0.22 + 0.78 * (carried[i] / most)).toFixed(3),
      });
      const weight = levels[k].weights[i];
      const about = weight === undefined ? "" : `, weight ${weight.toFixed(3)}`;
      bar.append(makeSvg("title", {}, document.createTextNode(`score ${score.toFixed(3)}${about}`)));
      svg.append(bar);
    });
    const name = n === 1 ? "clip" : levels.length === 2 ? "frames" : (NAMES[k] ?? "segments");
    const caption = n === 1 ? `clip score ${clip.toFixed(3)}` : `${n} ${name}`;
    const y = n === 1 ? 20 : base + 14;
    const words = makeSvg("text", { x: 0, y, class: n === 1 ? "why-number" : "why-text" });
    words.textContent = caption;
    svg.append(words);
  }
  const times = makeSvg("text", { x: width, y: baseOf(0) + 14, class: "why-text", "text-anchor": "end" });
  times.textContent = `${shown.start.toFixed(1)} to ${shown.end.toFixed(1)} s`;
  svg.append(times);
  box.replaceChildren(svg);
}

function drawLinks(svg, levels, k, carried, width, baseOf, sides) {
  const { weights } = levels[k];
  const above = levels[k + 1].n;
  const most = Math.max(...carried, 1e-9);
  const [from, to] = [baseOf(k) - BAR - 2, baseOf(k + 1) + (above === 1 ? 3 : 17)];
  const middle = (from + to) / 2;
  weights.forEach((weight, i) => {
    if (weight < 0.004) return; // too thin to see
    const middleOf = ([left, right]) => (left + right) / 2;
    const x = middleOf(sides(k, i));
    const parent = middleOf(sides(k + 1, parentOf(levels, shown.stages, k, i)));
    const link = makeSvg("path", {
      d: `M${x.toFixed(1)} ${from}C${x.toFixed(1)} ${middle} ${parent.toFixed(1)} ${middle} ${parent.toFixed(1)} ${to}`,
      class: "why-link",
      "stroke-width": Math.max(0.4, Math.min(14, (0.8 * width) / above) * weight).toFixed(2),
      opacity: (0.12 + 0.68 * (carried[i] / most)).toFixed(3),
    });
    svg.append(link);
  });
}

export function initHierarchy() {
  find("why-toggle").onclick = toggleWhy;
  on(["recording", "model"], () => {
    shown = null;
    ask();
  });
  on(["label", "chosen"], ask);
  on(["cursor"], () => {
    if (!state.playing) ask();
  });
  new ResizeObserver(() => {
    if (shown && isOpen()) draw();
  }).observe(find("why-body"));
}
