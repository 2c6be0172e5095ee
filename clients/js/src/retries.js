// Whether, and after which time, a request is sent again.
import { retryAfterS } from "./problems.js";

/** With Retry-After: the service still works on the first request with the same key. */
const KEY_IN_USE = 409;
/** Statuses that say with Retry-After that nothing stands against the same request, but the time. */
const LATER = new Set([KEY_IN_USE, 429, 503]);
/** What a wait for a key counts at least, so that they end however little the service asks for. */
const LEAST_WAIT_S = 1;

/** The attempts of one request. */
export class Attempts {
  #pauses;
  #spreadS;
  #longestS;
  #keyInUseS;

  constructor({ attempts = 4, firstPauseS = 0.1, longestPauseS = 5, keyInUseS = 30 } = {}) {
    this.#pauses = pausesS(attempts - 1, firstPauseS, longestPauseS);
    this.#spreadS = firstPauseS;
    this.#longestS = longestPauseS;
    this.#keyInUseS = attempts > 1 ? keyInUseS : 0;
  }

  /** Returns the pause before the next attempt, in seconds; null: the reply, or its absence, is final. */
  pauseAfter(reply) {
    // A time-out is the caller's bound, and not repeated.
    if (reply.error) return reply.error.name === "TimeoutError" ? null : this.#spread();
    const seconds = LATER.has(reply.status) ? retryAfterS(reply) : null;
    if (seconds === null || seconds > this.#longestS) return null;
    if (reply.status === KEY_IN_USE) return this.#pauseForKey(seconds);
    const spread = this.#spread();
    return spread === null ? null : seconds + spread;
  }

  #pauseForKey(seconds) {
    // By time, since the service may work on one request for longer than all attempts last.
    if (this.#keyInUseS <= 0) return null;
    this.#keyInUseS -= Math.max(seconds, LEAST_WAIT_S);
    return seconds + this.#spreadS * Math.random();
  }

  #spread() {
    return this.#pauses.next().value ?? null;
  }
}

/** Yields pauses that double; each is random below its bound, so that clients do not agree. */
export function* pausesS(count, firstS, longestS) {
  for (let bound = firstS, left = count; left > 0; left -= 1) {
    yield bound * Math.random();
    bound = Math.min(2 * bound, longestS);
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
