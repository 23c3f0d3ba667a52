// The calls of the service. Each returns what the service answers, or throws an Error whose message
// is the sentence of the service.

const BASE = new URL("api/", document.baseURI);

async function call(path, { method = "GET", body, form, signal } = {}) {
  const options = { method, signal };
  if (form) options.body = form;
  else if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers = { "Content-Type": "application/json" };
  }
  let answer;
  try {
    answer = await fetch(new URL(path, BASE), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The service does not answer. Is `earmark serve` still running?");
  }
  if (!answer.ok) throw new Error(await sentenceOf(answer));
  return answer;
}

async function sentenceOf(answer) {
  try {
    const { detail } = await answer.json();
    if (typeof detail === "string") return detail;
    if (Array.isArray(detail)) return detail.map((one) => one.msg ?? String(one)).join("; ");
  } catch {
    // no JSON
  }
  return `The service answered ${answer.status} ${answer.statusText}.`;
}

async function json(path, options) {
  const answer = await call(path, options);
  return answer.status === 204 ? null : answer.json();
}

const one = (id, what = "") => `recordings/${encodeURIComponent(id)}${what}`;

export const getModel = () => json("model");
export const getRecordings = () => json("recordings");
export const deleteRecording = (id) => json(one(id), { method: "DELETE" });

export function addRecording(file, name) {
  const form = new FormData();
  form.append("file", file, name ?? file.name);
  return json("recordings", { method: "POST", form });
}

export const audioUrl = (id) => new URL(one(id, "/audio"), BASE).href;

export async function getTile(id, level, index, signal) {
  const answer = await call(one(id, `/tile?level=${level}&index=${index}`), { signal });
  return answer.blob();
}

export function getScores(id, { start, end, points, labels }, signal) {
  const query = new URLSearchParams({ start, end, points });
  for (const label of labels) query.append("labels", label);
  return json(one(id, `/scores?${query}`), { signal });
}

export const getEvents = (id, settings, signal) =>
  json(one(id, "/events"), { method: "POST", body: settings, signal });

export const getHierarchy = (id, label, time, signal) =>
  json(one(id, `/hierarchy?${new URLSearchParams({ label, time })}`), { signal });

export const getCorrections = (id) => json(one(id, "/corrections"));
export const deleteCorrections = (id) => json(one(id, "/corrections"), { method: "DELETE" });
export const putCorrections = (id, body) => json(one(id, "/corrections"), { method: "PUT", body });

/** Return the file and the name that the service gives it. */
export async function exportEvents(id, format, settings) {
  const path = one(id, `/export?${new URLSearchParams({ format })}`);
  const answer = await call(path, settings ? { method: "POST", body: settings } : {});
  const disposition = answer.headers.get("Content-Disposition") ?? "";
  const encoded = /filename\*=(?:utf-8|UTF-8)''([^;]+)/.exec(disposition)?.[1];
  const plain = /filename="([^"]+)"/.exec(disposition)?.[1];
  return { blob: await answer.blob(), name: encoded ? decodeURIComponent(encoded) : plain };
}

export const getJobs = () => json("jobs");
export const getJob = (id) => json(`jobs/${encodeURIComponent(id)}`);
export const startJob = (kind, body) => json(kind, { method: "POST", body });
export const stopJob = (id) => json(`jobs/${encodeURIComponent(id)}`, { method: "DELETE" });
export const jobModelUrl = (id) => new URL(`jobs/${encodeURIComponent(id)}/model`, BASE).href;
export const leaveAdopted = () => json("model/adopted", { method: "DELETE" });
export const adoptJob = (id) => json(`jobs/${encodeURIComponent(id)}/adopt`, { method: "POST" });
