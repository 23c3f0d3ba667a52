// Elements: finding, making, measuring; messages and questions.

export const find = (id) => document.getElementById(id);

/** Make an element; `properties` are its properties, `on*` handlers, `data` and `aria`. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "aria") {
      for (const [key, text] of Object.entries(value)) element.setAttribute(`aria-${key}`, text);
    } else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "role" || name === "for") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Make an SVG element with attributes. */
export function makeSvg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Give a canvas as many pixels as it covers on the screen; returns its context and CSS size. */
export function fitCanvas(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const context = canvas.getContext("2d");
  context.setTransform(w / Math.max(width, 1), 0, 0, h / Math.max(height, 1), 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height, ratio };
}

/** Return a function that calls `run` once before the next paint, however often it is called. */
export function beforePaint(run) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      run();
    });
  };
}

/** Show a sentence; errors stay until they are closed. */
export function say(text, kind = "note") {
  const box = find("messages");
  for (const old of box.children) {
    if (old.dataset.text === text) old.remove();
  }
  const message = make("div", { className: `message ${kind}`, data: { text } });
  const close = make("button", { type: "button", className: "small", textContent: "Close" });
  close.onclick = () => message.remove();
  message.append(make("p", { textContent: text }), close);
  box.append(message);
  while (box.children.length > 3) box.firstChild.remove();
  if (kind !== "error") setTimeout(() => message.remove(), 6000);
}

/** Show what went wrong, unless the page itself had stopped it. */
export function sayError(error) {
  if (error?.name === "AbortError") return;
  say(error?.message ?? String(error), "error");
}

/** Ask a question; resolves to true if the answer is yes. */
export function confirmed(question, yes) {
  const dialog = find("confirm");
  find("confirm-text").textContent = question;
  find("confirm-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue === "yes");
  });
}

/** Ask for the name of a class; resolves to null if there is none. */
export function askName() {
  const dialog = find("name-dialog");
  const input = find("class-name");
  input.value = "";
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue === "yes" ? input.value : null);
  });
}

/** Move focus with the arrow keys among the enabled buttons of a toolbar, which is one tab stop. */
export function rovingToolbar(toolbar) {
  toolbar.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step && event.key !== "Home" && event.key !== "End") return;
    const buttons = [...toolbar.querySelectorAll("button:not(:disabled)")];
    const here = buttons.indexOf(document.activeElement);
    const to = step ? here + step : event.key === "Home" ? 0 : buttons.length - 1;
    const next = buttons[(to + buttons.length) % buttons.length];
    for (const button of toolbar.querySelectorAll("button")) button.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    event.preventDefault();
    event.stopPropagation();
  });
}
