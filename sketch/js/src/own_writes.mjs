// Own writes, remembered while anything older may be in use.

const MOST_KEYS = 1e4;
const EVERYTHING = "*";

/** When keys were last written by this client; a class's name stands for results of its queries. */
export class OwnWrites {
  #ended = new Map();
  #now;

  constructor(now) {
    this.#now = now;
  }

  note(keys) {
    // Beyond, every key counts as written.
    for (const key of this.#ended.size > MOST_KEYS ? [EVERYTHING] : keys) this.#ended.set(key, this.#now());
  }

  /** Lets each write count for every key: groups have other names now. */
  blur() {
    if (this.#ended.size) this.note([EVERYTHING]);
  }

  /** Returns when the last write to any of these keys ended; -1: there was none. */
  latest(keys) {
    return Math.max(...[EVERYTHING, ...keys].map((key) => this.#ended.get(key) ?? -1));
  }

  forgetBefore(time) {
    for (const [key, ended] of this.#ended) if (ended < time) this.#ended.delete(key);
  }
}
