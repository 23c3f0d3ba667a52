// Saving the events that are shown as a file of any event format.

import { exportEvents } from "./api.js";
import { sent } from "./controls.js";
import { saved } from "./corrections.js";
import { find, make, say, sayError } from "./dom.js";
import { on, state } from "./state.js";

/** Save the events in the format that is chosen. */
export async function saveEvents() {
  const format = find("export-format").value;
  try {
    await saved();
    const { events, tags } = state.corrections;
    const classes = state.model.labels.filter((label) => tags[label] !== false);
    const settings = events === null ? { ...sent(state.settings), classes } : null;
    const { blob, name } = await exportEvents(state.recording.id, format, settings);
    const link = make("a", { href: URL.createObjectURL(blob), download: name ?? `events.${format}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    say(`Saved ${link.download}.`);
  } catch (error) {
    sayError(error);
  }
}

function fillFormats() {
  const formats = state.model?.formats ?? {};
  find("export-format").replaceChildren(...Object.keys(formats).map((name) => new Option(name, name)));
  const show = () => {
    find("export-summary").textContent = formats[find("export-format").value] ?? "";
  };
  find("export-format").onchange = show;
  show();
}

export function initExport() {
  find("export").onclick = saveEvents;
  on(["model"], fillFormats);
}
