// Puts the page together.

import { getModel } from "./api.js";
import { initControls } from "./controls.js";
import { initCorrections } from "./corrections.js";
import { find, rovingToolbar, sayError } from "./dom.js";
import { initEvents } from "./events.js";
import { initExport } from "./export.js";
import { initHierarchy } from "./hierarchy.js";
import { findJob, initJobs } from "./jobs.js";
import { initKeyboard } from "./keyboard.js";
import { initLanes } from "./lanes.js";
import { initPlayer, listenFrom } from "./player.js";
import { initRecorder } from "./recorder.js";
import { initRecordings, openFirst, refreshRecordings } from "./recordings.js";
import { initScores } from "./scores.js";
import { initSpectrogram, rulerTime } from "./spectrogram.js";
import { on, state, update } from "./state.js";
import { addGestures, initTimeline, timeOf } from "./timeline.js";

const THEMES = { system: "as the system", light: "light", dark: "dark" };

function initTheme() {
  const show = () => {
    find("theme-text").textContent = `Theme: ${THEMES[state.theme]}`;
    find("theme").title = `Theme: ${THEMES[state.theme]}`;
  };
  find("theme").onclick = () => update({ theme: globalThis.earmarkTheme.next() });
  on(["theme"], show);
  update({ theme: globalThis.earmarkTheme.current() });
  show();
}

async function start() {
  initTheme();
  initTimeline();
  initSpectrogram();
  initScores();
  initRecordings();
  initPlayer();
  initControls();
  initCorrections();
  initEvents();
  initLanes();
  initHierarchy();
  initJobs();
  initRecorder();
  initExport();
  initKeyboard();
  rovingToolbar(document.querySelector(".toolbar"));
  addGestures(find("spectrogram"), { click: (x) => listenFrom(timeOf(x)) });
  find("ruler").onclick = (event) => listenFrom(rulerTime(event.offsetX));
  on(["model"], () => {
    find("model-name").textContent = state.model.name;
  });
  const [model] = await Promise.all([getModel(), refreshRecordings()]);
  update({ model, newLabels: model.new_labels });
  await openFirst();
  document.documentElement.dataset.ready = "true";
  performance.mark("earmark-interactive");
  await findJob();
}

start().catch(sayError);
