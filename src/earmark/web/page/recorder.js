// Recording from the microphone: samples from an AudioWorklet, sent as a WAV file when it stops.

import { find, say } from "./dom.js";
import { clock } from "./format.js";
import { addFiles } from "./recordings.js";
import { state } from "./state.js";
import { encodeWav } from "./wav.js";

let running = null; // {context, stream, blocks, n}

/** Start recording, or stop and send. */
export const toggleRecorder = () => (running ? stop(true) : start());

async function start() {
  if (!navigator.mediaDevices?.getUserMedia) {
    say("Browsers give the microphone only to this machine (127.0.0.1) or over HTTPS.", "error");
    return;
  }
  let stream;
  try {
    // What improves speech on the telephone removes the sounds that are looked for.
    const plain = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
    stream = await navigator.mediaDevices.getUserMedia({ audio: plain });
  } catch (error) {
    const missing = error.name === "NotFoundError";
    say(missing ? "There is no microphone." : "The browser does not allow the microphone.", "error");
    return;
  }
  const context = new AudioContext();
  await context.audioWorklet.addModule(new URL("recorder-worklet.js", import.meta.url));
  const node = new AudioWorkletNode(context, "recorder", { numberOfOutputs: 0 });
  running = { context, stream, blocks: [], n: 0, peak: 0 };
  node.port.onmessage = ({ data }) => {
    if (!running) return;
    running.blocks.push(data);
    running.n += data.length;
    for (const sample of data) running.peak = Math.max(running.peak, Math.abs(sample));
    const longest = state.model?.limits?.max_duration;
    if (longest && running.n / context.sampleRate >= longest) stop(true);
  };
  context.createMediaStreamSource(stream).connect(node);
  find("recorder").showModal();
  find("record").setAttribute("aria-pressed", "true");
  requestAnimationFrame(show);
}

function show() {
  if (!running) return;
  find("recorder-clock").textContent = clock(running.n / running.context.sampleRate);
  find("recorder-level").value = running.peak;
  running.peak *= 0.9;
  requestAnimationFrame(show);
}

function stop(keep) {
  if (!running) return;
  const { context, stream, blocks, n } = running;
  running = null;
  for (const track of stream.getTracks()) track.stop();
  const { sampleRate } = context;
  context.close();
  find("recorder").close();
  find("record").setAttribute("aria-pressed", "false");
  if (!keep || n === 0) return;
  const stamp = new Date().toLocaleString("sv").replaceAll(":", "-"); // 2026-11-17 20-30-00
  addFiles([new File([encodeWav(blocks, sampleRate)], `microphone ${stamp}.wav`, { type: "audio/wav" })]);
}

export function initRecorder() {
  for (const id of ["record", "welcome-record"]) find(id).onclick = toggleRecorder;
  find("recorder-stop").onclick = () => stop(true);
  find("recorder-cancel").onclick = () => stop(false);
  find("recorder").oncancel = () => stop(false);
}
