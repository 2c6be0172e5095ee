// Whether, and after which pause, a request is retried.
import { retryAfterS } from "./problems.js";

/** With Retry-After: the service still works on the first request with the same key. */
const KEY_IN_USE = 409;
/** Statuses that, with Retry-After, permit the same request at a later time. */
const RETRYABLE = new Set([KEY_IN_USE, 429, 503]);
/** The minimum that a wait for a key counts, so that repeated short waits end. */
const MIN_WAIT_S = 1;

/** The attempts of one request. */
export class Attempts {
  #pauses;
  #spreadS;
  #maxPauseS;
  #keyInUseS;

  constructor({ attempts = 4, firstPauseS = 0.1, maxPauseS = 5, keyInUseS = 30 } = {}) {
    this.#pauses = pausesS(attempts - 1, firstPauseS, maxPauseS);
    this.#spreadS = firstPauseS;
    this.#maxPauseS = maxPauseS;
    this.#keyInUseS = attempts > 1 ? keyInUseS : 0;
  }

  /** Returns the pause before the next attempt (seconds); null: the reply, or its absence, is final. */
  pauseAfter(reply) {
    // A time-out is the caller's bound, and is not retried.
    if (reply.error) return reply.error.name === "TimeoutError" ? null : this.#nextPause();
    const seconds = RETRYABLE.has(reply.status) ? retryAfterS(reply) : null;
    if (seconds === null || seconds > this.#maxPauseS) return null;
    if (reply.status === KEY_IN_USE) return this.#pauseForKey(seconds);
    const pause = this.#nextPause();
    return pause === null ? null : seconds + pause;
  }

  #pauseForKey(seconds) {
    // Limited by time: the service may work on one request for longer than all attempts take.
    if (this.#keyInUseS <= 0) return null;
    this.#keyInUseS -= Math.max(seconds, MIN_WAIT_S);
    return seconds + this.#spreadS * Math.random();
  }

  #nextPause() {
    return this.#pauses.next().value ?? null;
  }
}

/** Yields exponential pauses with full jitter, so that clients do not retry at the same time. */
export function* pausesS(count, firstS, maxS) {
  for (let bound = firstS, remaining = count; remaining > 0; remaining -= 1) {
    yield bound * Math.random();
    bound = Math.min(2 * bound, maxS);
  }
}

export function sleep(seconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(end, seconds * 1000);
    signal?.addEventListener("abort", end, { once: true });
    function end() {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    }
  });
}
