// The client's own writes, recorded while older copies may be in use.

const MAX_KEYS = 1e4;
const ALL_KEYS = "*";

/**
 * When this client last wrote to each object. An object counts as a whole: only the service knows which
 * groups a write changes. The class's name stands for the results of its queries.
 */
export class OwnWrites {
  #endedAt = new Map();
  #now;

  constructor(now) {
    this.#now = now;
  }

  note(keys) {
    // Beyond the limit, every key counts as written.
    for (const key of this.#endedAt.size > MAX_KEYS ? [ALL_KEYS] : keys) this.#endedAt.set(key, this.#now());
  }

  /** Returns when the last write to a key ended; -1 if none. */
  latest(key) {
    return Math.max(...[ALL_KEYS, key].map((k) => this.#endedAt.get(k) ?? -1));
  }

  forgetBefore(time) {
    for (const [key, endedAt] of this.#endedAt) if (endedAt < time) this.#endedAt.delete(key);
  }
}
