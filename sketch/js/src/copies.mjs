// The client's own LRU cache.

import { isAtLeast } from "./versions.mjs";

const OVERHEAD_BYTES = 200;

/**
 * Returns the copy that a client may use after two responses that overtook each other. If their tags do
 * not show the newer one, neither may be returned.
 */
function latest(old, copy) {
  const [first, second] = copy.expiresUs < old.expiresUs ? [old, copy] : [copy, old];
  const newer = isAtLeast(first, second)
    ? first
    : isAtLeast(second, first)
      ? second
      : { ...copy, etag: null, body: null, expiresUs: 0 };
  return { ...newer, since: Math.max(old.since, copy.since), knows: Math.max(old.knows, copy.knows) };
}

export class Copies {
  #copies = new Map();
  #size = 0;
  #maxBytes;
  #now;

  constructor(maxBytes, now) {
    this.#maxBytes = maxBytes;
    this.#now = now;
  }

  get(path) {
    return this.#copies.get(path);
  }

  /** Marks a copy as the most recently used. */
  touch(path, copy) {
    this.#copies.delete(path);
    this.#copies.set(path, copy);
  }

  put(path, copy) {
    const old = this.#copies.get(path);
    // Responses overtake each other: this one was requested before the stored one arrived.
    if (copy.since < old?.received) copy = latest(old, copy);
    const size = OVERHEAD_BYTES + 2 * (path + copy.body).length;
    copy = { ...copy, received: this.#now(), size };
    this.#size += size - (old?.size ?? 0);
    this.touch(path, copy);
    for (const [oldest, { size: oldestSize }] of this.#copies)
      if (this.#size > this.#maxBytes && this.#copies.delete(oldest)) this.#size -= oldestSize;
  }
}
