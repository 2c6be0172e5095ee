// Own writes, remembered while anything older may be in use.

const MOST_KEYS = 1e4;
const EVERYTHING = "*";

/**
 * When objects were last written by this client, as a whole: which groups a write changes only the service
 * knows. A class's name stands for results of its queries.
 */
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

  /** Returns when the last write to a key ended; -1: there was none. */
  latest(key) {
    return Math.max(...[EVERYTHING, key].map((each) => this.#ended.get(each) ?? -1));
  }

  forgetBefore(time) {
    for (const [key, ended] of this.#ended) if (ended < time) this.#ended.delete(key);
  }
}
