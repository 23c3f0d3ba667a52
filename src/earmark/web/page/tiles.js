// Parts of a recording at several resolutions, fetched when they are first drawn. A cache keeps as
// many as its bound, and forgets those that were not used for longest.
//
// Level 0 is the finest; a tile of level L lasts twice as long as one of level L - 1.

import { sayError } from "./dom.js";

const AT_ONCE = 6; // requests

export class Tiles {
  /**
   * `load(level, index, signal)` returns a promise of a tile; `arrived()` is called after each.
   */
  constructor({ seconds, bound, load, arrived }) {
    Object.assign(this, { seconds, bound, load, arrived });
    this.kept = new Map(); // in the order of use: key -> tile
    this.waiting = new Map(); // key -> AbortController, or null before the request starts
    this.failed = new Set();
    this.wanted = [];
  }

  /** Seconds of a tile of this level. */
  length(level) {
    return this.seconds * 2 ** level;
  }

  /** The coarsest level whose columns are not wider than a pixel. */
  levelFor(secondsPerPixel, columns, whole) {
    const fine = Math.floor(Math.log2((secondsPerPixel * columns) / this.seconds));
    const coarsest = Math.max(0, Math.ceil(Math.log2(whole / this.seconds)));
    return Math.min(Math.max(0, fine), coarsest);
  }

  /** The tile if it is here; else it is fetched, in the order in which tiles were asked for. */
  get(level, index) {
    const key = `${level}/${index}`;
    const tile = this.peek(level, index);
    if (tile === undefined && !this.waiting.has(key) && !this.failed.has(key)) {
      this.waiting.set(key, null);
      this.wanted.push({ key, level, index });
      this.#fetchNext();
    }
    return tile;
  }

  /** The tile if it is here. */
  peek(level, index) {
    const key = `${level}/${index}`;
    const tile = this.kept.get(key);
    if (tile !== undefined) {
      this.kept.delete(key);
      this.kept.set(key, tile);
    }
    return tile;
  }

  /** The nearest coarser tile that is here, and its level, while the exact one is on its way. */
  coarser(level, index) {
    for (let up = 1; up <= 12; up++) {
      const tile = this.peek(level + up, index >> up);
      if (tile !== undefined) return { tile, level: level + up, index: index >> up };
    }
    return null;
  }

  /** Forget requests that have not started, for tiles that are not visible any more. */
  dropWaiting() {
    for (const { key } of this.wanted) this.waiting.delete(key);
    this.wanted = [];
  }

  /** Stop all requests, and forget all tiles. */
  clear() {
    this.dropWaiting();
    for (const controller of this.waiting.values()) controller?.abort();
    this.waiting.clear();
    this.kept.clear();
    this.failed.clear();
  }

  #fetchNext() {
    const running = [...this.waiting.values()].filter(Boolean).length;
    if (running >= AT_ONCE || this.wanted.length === 0) return;
    const { key, level, index } = this.wanted.pop(); // the latest: that is where the user is
    const controller = new AbortController();
    this.waiting.set(key, controller);
    this.load(level, index, controller.signal)
      .then((tile) => {
        if (controller.signal.aborted) return;
        this.kept.set(key, tile);
        while (this.kept.size > this.bound) this.kept.delete(this.kept.keys().next().value);
        this.arrived();
      })
      .catch((error) => {
        if (controller.signal.aborted) return;
        this.failed.add(key);
        sayError(error);
      })
      .finally(() => {
        if (this.waiting.get(key) === controller) this.waiting.delete(key);
        this.#fetchNext();
      });
    this.#fetchNext();
  }
}
