// Runs in the audio thread: passes the mean of the channels on, block by block.

class Recorder extends AudioWorkletProcessor {
  process([channels]) {
    if (channels.length) {
      const block = new Float32Array(channels[0].length);
      for (const channel of channels) {
        for (let k = 0; k < block.length; k++) block[k] += channel[k] / channels.length;
      }
      this.port.postMessage(block, [block.buffer]);
    }
    return true;
  }
}

registerProcessor("recorder", Recorder);
