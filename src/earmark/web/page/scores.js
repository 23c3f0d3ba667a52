// Frame-level scores of the visible lanes: smallest and largest score per pixel, in tiles.

import { getScores } from "./api.js";
import { duration, isKnown, lanesShown, on, state } from "./state.js";
import { Tiles } from "./tiles.js";
import { redraw, secondsPerPixel } from "./timeline.js";

const POINTS = 512; // of a tile
const BOUND = 64; // tiles
let tiles = null;
let asked = new Set(); // labels of the tiles that are kept

async function loadTile(id, level, index, signal) {
  const length = tiles.length(level);
  const [start, end] = [index * length, (index + 1) * length];
  const found = await getScores(id, { start, end, points: POINTS, labels: [...asked] }, signal);
  const rows = new Map();
  found.labels.forEach((label, k) => {
    rows.set(label, { low: found.low[k], high: found.high[k] });
  });
  return { start: found.start, step: found.step, rows };
}

function startTiles() {
  tiles?.clear();
  tiles = null;
  asked = new Set(lanesShown().filter(isKnown));
  const { recording, model } = state;
  if (!model || recording?.status !== "ready") return;
  tiles = new Tiles({
    seconds: POINTS / model.frame_rate,
    bound: BOUND,
    load: (level, index, signal) => loadTile(recording.id, level, index, signal),
    arrived: redraw,
  });
}

/** The tiles of the view that are here, from left to right; those that are not are fetched. */
export function visibleScores() {
  if (!tiles) return [];
  const labels = lanesShown().filter(isKnown);
  if (labels.some((label) => !asked.has(label))) {
    tiles.clear();
    for (const label of labels) asked.add(label);
  }
  if (asked.size === 0) return [];
  tiles.dropWaiting();
  const level = tiles.levelFor(secondsPerPixel(), POINTS, duration());
  const length = tiles.length(level);
  const found = [];
  const last = Math.floor(Math.min(state.view.end, duration() - 1e-6) / length);
  for (let index = Math.floor(state.view.start / length); index <= last; index++) {
    const tile = tiles.get(level, index) ?? tiles.coarser(level, index)?.tile;
    if (tile && !found.includes(tile)) found.push(tile);
  }
  return found;
}

export function initScores() {
  on(["recording", "model"], startTiles);
}
