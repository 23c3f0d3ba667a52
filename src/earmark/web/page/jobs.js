// Learning from the corrections: a job tunes or trains a new model; what it changes is shown before
// it is used.

import { adoptJob, getJob, getJobs, getModel, jobModelUrl, leaveAdopted, startJob, stopJob } from "./api.js";
import { saved } from "./corrections.js";
import { find, make, say, sayError } from "./dom.js";
import { count, eventText, readable } from "./format.js";
import { openRecording, refreshRecordings } from "./recordings.js";
import { on, state, update } from "./state.js";

const PAUSE = 1000; // milliseconds between questions about a job
const TITLES = { tune: "Tuning the thresholds", train: "Training further" };

let job = null;

async function start(kind) {
  job = null; // the result of an earlier one
  draw();
  try {
    await saved();
    const epochs = Math.round(Number(find("train-epochs").value)) || 30;
    const { id } = await startJob(kind, kind === "train" ? { max_epochs: epochs } : {});
    await watch(id);
  } catch (error) {
    sayError(error);
  }
}

async function watch(id) {
  for (;;) {
    job = await getJob(id);
    draw();
    if (job.status !== "running") break;
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}

function draw() {
  const running = job?.status === "running";
  find("job").hidden = job === null;
  for (const id of ["tune", "train"]) find(id).disabled = running || nCorrected() === 0;
  if (!job) return;
  find("job-title").textContent = TITLES[job.kind];
  find("job-progress").value = job.progress;
  find("job-progress").hidden = !running;
  find("job-stop").hidden = !running;
  find("job-detail").textContent = job.detail || (running ? "Working …" : job.status);
  find("job-log").textContent = job.log.join("\n");
  find("job-log-box").hidden = job.log.length === 0;
  const done = job.status === "done";
  find("job-result").hidden = !done;
  if (done) drawChanges();
  find("job-adopt").disabled = job.adopted;
  find("job-adopt").textContent = job.adopted ? "In use" : "Use the new model";
  find("job-dismiss").textContent = job.adopted ? "Close" : "Keep the old one";
  find("job-file").href = jobModelUrl(job.id);
}

function drawChanges() {
  const changed = job.changed.filter(
    ({ before, after, added, removed }) => before !== after || added.length || removed.length,
  );
  if (changed.length === 0) {
    find("job-changes").textContent = "Nothing: every recording has the same events.";
    return;
  }
  const head = ["Recording", "before", "after", "+", "−"].map((text, k) =>
    make("th", { scope: "col", className: k ? "number" : "", textContent: text }),
  );
  const rows = changed.map(({ id, name, before, after, added, removed }) => {
    const open = make("button", { type: "button", textContent: name, title: name });
    open.onclick = () => {
      const found = state.recordings.find((one) => one.id === id);
      if (found) openRecording(found);
    };
    const list = (events) => events.slice(0, 20).map(eventText).join("\n");
    const cells = [before, after, added.length, removed.length].map((value) =>
      make("td", { className: "number", textContent: value }),
    );
    cells[2].title = list(added);
    cells[3].title = list(removed);
    return make("tr", {}, make("td", {}, open), ...cells);
  });
  find("job-changes").replaceChildren(
    make(
      "table",
      { className: "changes" },
      make("thead", {}, make("tr", {}, ...head)),
      make("tbody", {}, ...rows),
    ),
  );
}

/** Use another model: that of the job, or the one that the service was started with. */
async function change(use) {
  try {
    await use();
    if (job) job = await getJob(job.id);
    const model = await getModel();
    update({ model, newLabels: model.new_labels });
    draw();
    say(`${model.name} is in use.`);
    const { recording } = state;
    await refreshRecordings();
    const same = state.recordings.find(({ id }) => id === recording?.id);
    if (same) openRecording(same);
  } catch (error) {
    sayError(error);
  }
}

const nCorrected = () => state.recordings.filter(({ corrected }) => corrected).length;

function drawSummary() {
  const n = nCorrected();
  const nTags = state.recordings.filter(({ checked }) => checked).length;
  const nEvents = state.recordings.filter(({ checked }) => checked === "events").length;
  find("learn").hidden = state.recordings.length === 0;
  find("learn-summary").textContent = n
    ? `${count(n, "recording")} corrected. Tags checked in ${nTags}: for training. Events checked in ${nEvents}: for tuning.`
    : "Correct events and tags, say that they are right, and the model can learn from them.";
  find("learn").querySelector(".files").hidden = n === 0;
  draw();
}

/** Which classes wait for a training, and whether the model was learnt here. */
function drawModel() {
  const { model, newLabels } = state;
  const names = newLabels.map(readable).join(", ");
  find("new-labels").hidden = newLabels.length === 0;
  find("new-labels").textContent = `The model must be trained further to detect what is new: ${names}.`;
  if (!model) return;
  const adopted = model.name !== model.first;
  find("adopted").hidden = !adopted;
  if (!adopted) return;
  find("adopted-text").textContent = model.temporary_library
    ? `${model.name} was learnt here, and vanishes when the service ends: save it.`
    : `${model.name} was learnt here. It is in .earmark/models of the library, and in use after a restart.`;
  find("adopted-leave").textContent = `Back to ${model.first}`;
}

/** Show a job that was started before the page was opened. */
export async function findJob() {
  const [latest] = await getJobs();
  if (!latest || latest.adopted || latest.status === "stopped") return;
  await watch(latest.id);
}

export function initJobs() {
  find("tune").onclick = () => start("tune");
  find("train").onclick = () => start("train");
  find("job-stop").onclick = () => stopJob(job.id).catch(sayError);
  find("job-adopt").onclick = () => change(() => adoptJob(job.id));
  find("adopted-leave").onclick = () => change(leaveAdopted);
  find("job-dismiss").onclick = () => {
    job = null;
    draw();
  };
  on(["recordings"], drawSummary);
  on(["model", "newLabels"], drawModel);
}
