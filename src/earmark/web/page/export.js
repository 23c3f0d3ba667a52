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
    const settings = state.corrections.events === null ? sent(state.settings) : null;
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
  const formats = (state.model?.formats ?? []).map((one) => (typeof one === "string" ? { name: one } : one));
  find("export-format").replaceChildren(...formats.map(({ name }) => new Option(name, name)));
  const show = () => {
    const own = formats.find(({ name }) => name === find("export-format").value);
    find("export-summary").textContent = own?.summary ?? "";
  };
  find("export-format").onchange = show;
  show();
}

export function initExport() {
  find("export").onclick = saveEvents;
  on(["model"], fillFormats);
}
