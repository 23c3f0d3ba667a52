// The sliders. Every move asks for the events of the new settings; while one answer is on its way
// only the last move waits, so that events follow the slider as quickly as the service answers.

import { getEvents } from "./api.js";
import { find, make, sayError } from "./dom.js";
import { readable } from "./format.js";
import { isKnown, noSettings, on, state, update } from "./state.js";

const RULES = {
  threshold: { text: "Threshold", min: 0.01, max: 1, step: 0.01, unit: "", hint: "score that an event reaches" },
  low_threshold: { text: "Low threshold", min: 0.01, max: 1, step: 0.01, unit: "", hint: "score that it keeps throughout" },
  max_gap: { text: "Longest gap", min: 0, max: 5, step: 0.05, unit: " s", hint: "between events that become one" },
  min_duration: { text: "Shortest event", min: 0, max: 5, step: 0.05, unit: " s" },
};

const controls = new Map(); // name -> {input, output, reset, read}
let scope = null; // the label that the rules hold for; null is all
let busy = false;
let stale = false;

/** Fetch the events of the settings in force. */
export async function refreshEvents() {
  const { recording } = state;
  if (!recording || recording.status !== "ready") return;
  if (busy) {
    stale = true;
    return;
  }
  busy = true;
  try {
    const { events, thresholds } = await getEvents(recording.id, sent(state.settings));
    if (state.recording?.id === recording.id) update({ detected: events, thresholds });
  } catch (error) {
    sayError(error);
  } finally {
    busy = false;
    if (stale) {
      stale = false;
      refreshEvents();
    }
  }
}

/** The settings as the service takes them: a low threshold is not above the threshold. */
export function sent(settings) {
  const ordered = (rules) => {
    const { threshold, low_threshold } = rules;
    return low_threshold > threshold ? { ...rules, low_threshold: threshold } : rules;
  };
  const own = Object.entries(settings.class_rules)
    .filter(([label]) => isKnown(label)) // another model may have been adopted
    .map(([label, rules]) => [label, ordered(rules)]);
  return { ...settings, rules: ordered(settings.rules), class_rules: Object.fromEntries(own) };
}

/** Set the threshold of one class. */
export function setThreshold(label, threshold) {
  setRule("threshold", Number(threshold.toFixed(3)), label);
}

function setRule(name, value, label) {
  const { settings } = state;
  const change = (rules = {}) => {
    const { [name]: _, ...rest } = rules;
    return value === null ? rest : { ...rest, [name]: value };
  };
  if (label === null) update({ settings: { ...settings, rules: change(settings.rules) } });
  else {
    const own = { ...settings.class_rules, [label]: change(settings.class_rules[label]) };
    if (Object.keys(own[label]).length === 0) delete own[label];
    update({ settings: { ...settings, class_rules: own } });
  }
}

/** The value of a rule for the scope, and whether it was set here. */
function ruleOf(name) {
  const { settings, model } = state;
  const set = (scope === null ? settings.rules : settings.class_rules[scope])?.[name];
  if (set !== undefined) return { value: set, set: true };
  if (scope !== null && settings.rules[name] !== undefined) return { value: settings.rules[name], set: false };
  const own = Object.entries(model.decoding)
    .filter(([label]) => scope === null || label === scope)
    .map(([, rule]) => rule[name]);
  const sorted = own.sort((a, b) => a - b);
  const same = sorted[0] === sorted.at(-1);
  return { value: sorted[sorted.length >> 1] ?? 0.5, set: false, text: same ? null : "by class" };
}

function addControl(name, { text, min, max, step, hint = "" }, { read, write, ticks = null }) {
  const id = `control-${name}`;
  const input = make("input", { type: "range", id, min, max, step });
  const output = make("output", { for: id });
  const reset = make("button", {
    type: "button",
    textContent: "↺",
    title: "Back to the model's own",
    aria: { label: `${text}: back to the model's own` },
  });
  input.oninput = () => write(Number(input.value));
  reset.onclick = () => {
    write(null);
    input.focus();
  };
  const label = make("label", { htmlFor: id, textContent: text, title: hint });
  const control = make("div", { className: "control" }, label, output, reset, input);
  if (ticks) control.append(make("div", { className: "ticks", aria: { hidden: "true" } }, ...ticks));
  controls.set(name, { input, output, reset, read });
  return control;
}

function showValues() {
  if (!state.model) return;
  for (const { input, output, reset, read } of controls.values()) {
    const { value, set, text } = read();
    if (Number(input.value) !== value) input.value = value;
    output.textContent = text;
    output.classList.toggle("set", set);
    input.setAttribute("aria-valuetext", text);
    reset.disabled = !set;
  }
  const select = find("rules-scope");
  const own = isKnown(state.label) ? state.label : scope;
  const choices = [new Option("all classes", "")];
  if (own !== null) choices.push(new Option(`only ${readable(own)}`, own));
  select.replaceChildren(...choices);
  select.value = scope ?? "";
  find("reset-settings").disabled = JSON.stringify(state.settings) === JSON.stringify(noSettings());
}

function sensitivityText(value) {
  const name = Object.entries(state.model.sensitivities).find(([, own]) => own === value)?.[0];
  return name ?? `${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(1)}`;
}

export function initControls() {
  const box = find("controls");
  const tick = (text) => make("span", { textContent: text });
  box.append(
    addControl(
      "sensitivity",
      { text: "Sensitivity", min: -4, max: 4, step: 0.1, hint: "lowers or raises all thresholds" },
      {
        read: () => {
          const value = state.settings.sensitivity;
          return { value, set: value !== 0, text: sensitivityText(value) };
        },
        write: (value) => update({ settings: { ...state.settings, sensitivity: value ?? 0 } }),
        ticks: ["fewer, surer", "more events"].map(tick),
      },
    ),
    addControl(
      "min_score",
      { text: "Smallest score", min: 0, max: 1, step: 0.01, hint: "of an event that is kept" },
      {
        read: () => {
          const value = state.settings.min_score;
          return { value: value ?? 0, set: value !== null, text: value === null ? "any" : value.toFixed(2) };
        },
        write: (value) => update({ settings: { ...state.settings, min_score: value || null } }),
      },
    ),
    make(
      "div",
      { className: "scope" },
      make("label", { htmlFor: "rules-scope", textContent: "Rules of" }),
      make("select", { id: "rules-scope" }),
    ),
  );
  const rules = make("div", { className: "rules", role: "group", aria: { label: "Rules" } });
  for (const [name, about] of Object.entries(RULES)) {
    const read = () => {
      const { value, set, text } = ruleOf(name);
      const shown = `${value.toFixed(2)}${about.unit}`;
      return { value, set, text: set ? shown : (text ?? shown) };
    };
    rules.append(addControl(name, about, { read, write: (value) => setRule(name, value, scope) }));
  }
  box.append(rules);
  find("rules-scope").onchange = ({ target }) => {
    scope = target.value || null;
    if (scope !== null) update({ label: scope });
    showValues();
  };
  find("reset-settings").onclick = () => {
    scope = null;
    update({ settings: noSettings() });
  };
  on(["label"], () => {
    if (scope !== null) scope = isKnown(state.label) ? state.label : null; // rules follow the class
  });
  on(["settings", "model", "label"], showValues);
  on(["settings"], refreshEvents);
}
