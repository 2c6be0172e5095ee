// The client's own cache: the least recently used copies are dropped.

import { isAtLeast } from "./versions.mjs";

const OVERHEAD_BYTES = 200;

/**
 * Returns what a client may go by that has received two copies of which each may be the older one:
 * where tags do not show the newer one, neither may be shown again.
 */
function latest(old, copy) {
  const [first, second] = copy.end < old.end ? [old, copy] : [copy, old];
  const newer = isAtLeast(first, second)
    ? first
    : isAtLeast(second, first)
      ? second
      : { ...copy, etag: null, body: null, end: 0 };
  return { ...newer, since: Math.max(old.since, copy.since), knows: Math.max(old.knows, copy.knows) };
}

export class Copies {
  #copies = new Map();
  #size = 0;
  #mostBytes;
  #now;

  constructor(mostBytes, now) {
    this.#mostBytes = mostBytes;
    this.#now = now;
  }

  get(path) {
    return this.#copies.get(path);
  }

  /** Makes a copy the most recently used one. */
  touch(path, copy) {
    this.#copies.delete(path);
    this.#copies.set(path, copy);
  }

  put(path, copy) {
    const old = this.#copies.get(path);
    // Answers overtake each other: this one was requested before the other had come.
    if (copy.since < old?.received) copy = latest(old, copy);
    const size = OVERHEAD_BYTES + 2 * (path + copy.body).length;
    copy = { ...copy, received: this.#now(), size };
    this.#size += size - (old?.size ?? 0);
    this.touch(path, copy);
    for (const [oldest, { size: freed }] of this.#copies)
      if (this.#size > this.#mostBytes && this.#copies.delete(oldest)) this.#size -= freed;
  }
}
