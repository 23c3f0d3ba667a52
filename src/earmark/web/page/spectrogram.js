// The log-mel spectrogram, its frequency axis in Hz, the time ruler, and the overview.

import { getTile } from "./api.js";
import { colourMap, colours, readColours } from "./colours.js";
import { find, fitCanvas } from "./dom.js";
import { clock, hertz } from "./format.js";
import { duration, on, shownEvents, state } from "./state.js";
import { Tiles } from "./tiles.js";
import { onDraw, plotWidth, redraw, secondsPerPixel, timeOf, xOf } from "./timeline.js";

const COLUMNS = 256; // of a tile
const BOUND = 160; // tiles, some 80 kB each
const FREQUENCIES = [50, 100, 200, 500, 1000, 2000, 3000, 5000, 8000, 10000, 14000, 20000];
const STEPS = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400];

let tiles = null;
let overviewDrawn = null; // what the overview shows, so that scrolling does not draw it again

/** Grey PNG -> a canvas. */
async function loadGrey(id, level, index, signal) {
  const bitmap = await createImageBitmap(await getTile(id, level, index, signal));
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  return { canvas, context, image: context.getImageData(0, 0, canvas.width, canvas.height) };
}

/** Grey values of what is quiet and of what is loud in the whole recording, from its coarsest tile. */
async function findRange(id, whole, tileSeconds) {
  const level = Math.max(0, Math.ceil(Math.log2(whole / tileSeconds)));
  const { image } = await loadGrey(id, level, 0);
  const columns = Math.max(1, Math.floor((COLUMNS * whole) / (tileSeconds * 2 ** level)));
  const values = [];
  for (let y = 0; y < image.height; y++) {
    for (let x = 0; x < columns; x++) values.push(image.data[4 * (y * image.width + x)]);
  }
  values.sort((a, b) => a - b);
  const [low, high] = [0.25, 0.998].map((share) => values[Math.floor(share * (values.length - 1))]);
  return [Math.min(low, high - 64), high]; // silence is not amplified
}

/** A tile in the colours of the theme. */
async function loadTile(id, level, index, range, signal) {
  const { canvas, context, image } = await loadGrey(id, level, index, signal);
  const map = new Uint32Array(colourMap(colours.dark, await range).buffer);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < pixels.length; i++) pixels[i] = map[pixels[i] & 255]; // red is as green, blue
  context.putImageData(image, 0, 0);
  return canvas;
}

function startTiles() {
  tiles?.clear();
  tiles = null;
  overviewDrawn = null;
  const { recording, model } = state;
  if (!model || recording?.status !== "ready") return;
  // If it cannot be found, neither can the tiles, and those say so.
  const range = findRange(recording.id, recording.duration, model.tile_seconds).catch(() => [0, 255]);
  tiles = new Tiles({
    seconds: model.tile_seconds,
    bound: BOUND,
    load: (level, index, signal) => loadTile(recording.id, level, index, range, signal),
    arrived: redraw,
  });
}

/** Draw the tiles of a level from `start` to `end` over a width of pixels. */
function drawTiles(context, level, { start, end, width, height }) {
  const length = tiles.length(level);
  const scale = width / (end - start);
  const last = Math.floor(Math.min(end, duration() - 1e-6) / length);
  let whole = true;
  for (let index = Math.max(0, Math.floor(start / length)); index <= last; index++) {
    let tile = tiles.get(level, index);
    let [from, columns] = [0, COLUMNS];
    if (tile === undefined) {
      whole = false;
      const found = tiles.coarser(level, index);
      if (!found) continue;
      tile = found.tile;
      columns = COLUMNS / 2 ** (found.level - level);
      from = (index - found.index * 2 ** (found.level - level)) * columns;
    }
    const x = (index * length - start) * scale;
    context.drawImage(tile, from, 0, columns, tile.height, x, 0, length * scale, height);
  }
  return whole;
}

function drawSpectrogram() {
  const { context, width, height, ratio } = fitCanvas(find("spectrogram-canvas"));
  context.fillStyle = colours.sunken;
  context.fillRect(0, 0, width, height);
  if (!tiles) return;
  tiles.dropWaiting();
  const { start, end } = state.view;
  const level = tiles.levelFor(secondsPerPixel() / ratio, COLUMNS, duration());
  drawTiles(context, level, { start, end, width, height });
  const over = xOf(duration());
  if (over < width) {
    context.fillStyle = colours.page;
    context.fillRect(over, 0, width - over, height);
  }
}

function drawOverview() {
  const canvas = find("overview-canvas");
  const shows = `${canvas.clientWidth} ${colours.dark}`;
  const events = shownEvents();
  if (!tiles || (overviewDrawn?.shows === shows && overviewDrawn.events === events)) return;
  const { context, width, height } = fitCanvas(canvas);
  context.fillStyle = colours.sunken;
  context.fillRect(0, 0, width, height);
  const whole = duration();
  const level = tiles.levelFor(whole / width, COLUMNS, whole);
  const complete = drawTiles(context, level, { start: 0, end: whole, width, height: height - 8 });
  context.fillStyle = colours.surface;
  context.fillRect(0, height - 8, width, 8);
  context.fillStyle = colours.eventLine;
  for (const { onset, offset } of events) {
    const x = (onset / whole) * width;
    context.fillRect(x, height - 6, Math.max(1.5, ((offset - onset) / whole) * width), 4);
  }
  overviewDrawn = complete ? { shows, events } : null;
}

function drawRuler() {
  const { context, width, height } = fitCanvas(find("ruler"));
  const left = width - plotWidth();
  const step = STEPS.find((one) => one / secondsPerPixel() >= 72) ?? STEPS.at(-1);
  const digits = step < 0.1 ? 2 : step < 1 ? 1 : 0;
  context.font = `11px ${colours.font}`;
  context.textBaseline = "middle";
  context.fillStyle = colours.muted;
  context.strokeStyle = colours.line;
  context.beginPath();
  for (let k = Math.ceil(state.view.start / step - 1e-9); k * step <= state.view.end; k++) {
    const x = left + xOf(k * step);
    context.moveTo(x, height - 7);
    context.lineTo(x, height);
    const text = clock(k * step, digits);
    const wide = context.measureText(text).width;
    if (x + 4 + wide < width) context.fillText(text, x + 4, height / 2 - 1);
  }
  context.stroke();
}

/** Frequency -> mel, as the filters of the model have it. */
export function mel(frequency, scale) {
  if (scale === "htk") return 2595 * Math.log10(1 + frequency / 700);
  if (frequency < 1000) return (3 * frequency) / 200; // Slaney: linear, then logarithmic
  return 15 + (27 * Math.log(frequency / 1000)) / Math.log(6.4);
}

/** Share of the height, from the bottom, at which a frequency is drawn. */
export function heightOf(frequency, model) {
  const { f_min, f_max, n_mels, mel_scale } = model;
  const [low, high] = [mel(f_min, mel_scale), mel(f_max, mel_scale)];
  // The filters have their centres at 1 ... n_mels of n_mels + 1 equal steps; each is one row.
  const row = ((mel(frequency, mel_scale) - low) / (high - low)) * (n_mels + 1) - 1;
  return (row + 0.5) / n_mels;
}

function drawFrequencyAxis() {
  const canvas = find("frequency-axis");
  const { context, width, height } = fitCanvas(canvas);
  const { model } = state;
  if (!model) return;
  const inside = canvas.clientWidth < 100; // a phone: over the spectrogram
  context.font = `11px ${colours.font}`;
  context.textBaseline = "middle";
  context.textAlign = inside ? "left" : "right";
  let below = Infinity;
  const labels = FREQUENCIES.filter((f) => f >= model.f_min && f <= model.f_max);
  for (const frequency of labels) {
    const y = height * (1 - heightOf(frequency, model));
    if (y > height - 6 || y < 7 || below - y < 17) continue;
    below = y;
    const text = hertz(frequency);
    if (inside) {
      context.fillStyle = colours.surface;
      context.globalAlpha = 0.75;
      context.fillRect(0, y - 7, context.measureText(text).width + 12, 14);
      context.globalAlpha = 1;
    }
    context.fillStyle = inside ? colours.ink : colours.muted;
    context.fillText(text, inside ? 8 : width - 10, y);
    context.fillRect(inside ? 0 : width - 6, y - 0.5, 6, 1);
  }
}

export function initSpectrogram() {
  const recolour = () => {
    readColours();
    startTiles();
    redraw();
  };
  readColours();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  on(["theme"], recolour);
  on(["recording", "model"], startTiles);
  for (const draw of [drawSpectrogram, drawOverview, drawRuler, drawFrequencyAxis]) onDraw(draw);
}

/** Time at a horizontal position in the ruler, which is as wide as gutter and plot together. */
export const rulerTime = (x) => timeOf(x - (find("ruler").clientWidth - plotWidth()));
