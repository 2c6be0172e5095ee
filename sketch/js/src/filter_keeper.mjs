// The filter in use: fetches it, tracks its age, renews it.

import { readFilter } from "./filter.mjs";
import { failure, problemOf } from "./problems.mjs";

const MEDIA_TYPE = "application/vnd.portolan.sketch";
const RENEWAL_FRACTION = 0.9; // Of the interval between filters: timers fire late.
const MIN_INTERVAL_S = 0.1;
const MAX_DRIFT = 500e-6; // The maximum drift between two clocks that are not set, in seconds per second.

const parseNatural = (text) => (/^\d+$/.test(text) ? +text : 0);

export class FilterKeeper {
  /**
   * The filter. `generatedAt` is the earliest time of its generation, `receivedAt` the latest time at which the
   * sketch's clock showed its `timeUs`.
   */
  current = null;
  /** The last filter that was decoded, even if a broken one came after it. */
  last = null;
  /** Incremented when filters no longer cover the copies received before. */
  epoch = 0;
  /** When the latest successful `refresh` was sent. */
  refreshedAt = 0;
  #retryAt = 0;
  #renewal = null;

  constructor(send, deltaS, now, ownWrites, stats) {
    Object.assign(this, { send, deltaS, now, ownWrites, stats, boundS: deltaS });
  }

  /** Returns the filter, unless it is older than the bound at a time. */
  usable(at) {
    return this.current && at - this.current.generatedAt <= this.boundS && this.current;
  }

  /** Starts a renewal, unless one is in flight or has just failed. */
  trigger(at) {
    if (at >= this.#retryAt) this.#renewal ??= this.renew().finally(() => (this.#renewal = null));
  }

  /** Fetches a filter generated after this call. */
  async refresh() {
    const sent = this.now();
    await this.#load(sent);
    this.refreshedAt = Math.max(this.refreshedAt, sent);
  }

  /** Tries to fetch a filter; returns the pause before the next renewal (seconds). */
  async renew() {
    const sent = this.now();
    try {
      await this.#load(sent);
    } catch {
      return this.#intervalS() / 2;
    }
    const elapsedS = this.now() - sent, intervalS = this.#intervalS();
    return Math.max(intervalS / 2, RENEWAL_FRACTION * intervalS - 2 * elapsedS) - elapsedS;
  }

  /** Has a minimum, so that filters with no validity are not requested without a pause. */
  #intervalS() {
    return Math.max(this.boundS, Math.min(this.deltaS, MIN_INTERVAL_S));
  }

  async #load(sent) {
    try {
      let next = await this.#request(sent);
      if (this.#isOlder(next)) {
        // Either a cache stored it, or the sketch's clock was set back. The origin's time advances; a cache that
        // ignores `no-cache` returns the stored time.
        const { timeUs } = next;
        next = await this.#request(this.now(), { "Cache-Control": "no-cache" });
        const hasAdvanced = next.timeUs > timeUs && next.generatedAt > this.last.generatedAt;
        if (this.#isOlder(next) && !hasAdvanced) throw failure("an older filter");
      }
      this.#adopt(next);
      this.stats.filters++;
    } catch (error) {
      this.stats.failures++;
      this.#retryAt = sent + this.#intervalS() / 2;
      throw error;
    }
  }

  async #request(sent, headers) {
    const { current } = this;
    const response = await this.send("sketch", { Accept: MEDIA_TYPE, "If-None-Match": current?.etag, ...headers });
    const timeUs = parseNatural(response.header("portolan-sketch-time"));
    const isNew = response.status === 200;
    if (!isNew && !(response.status === 304 && current && timeUs)) throw problemOf(response);
    const filter = isNew ? this.#decode(response) : { ...current, timeUs };
    return { ...filter, generatedAt: sent - response.cachedS, receivedAt: this.now() };
  }

  /** Whether a filter is older than the last one of the same sketch. */
  #isOlder({ generation, timeUs }) {
    return this.last?.generation === generation && timeUs < this.last.timeUs;
  }

  /** Whether the sketch was lost, or its clock was set back: it advanced by less than the elapsed time. */
  #isOfAnotherClock({ generation, timeUs, generatedAt }, last) {
    const minElapsedS = Math.max(0, generatedAt - last.receivedAt) * (1 - MAX_DRIFT);
    return generation !== last.generation || timeUs < last.timeUs + minElapsedS * 1e6;
  }

  #decode({ raw, etag }) {
    try {
      return { ...readFilter(raw), etag };
    } catch (cause) {
      this.current = null; // The damage is unknown.
      throw failure("a broken filter", cause);
    }
  }

  #adopt(next) {
    const { last } = this;
    // By another clock, expired copies would become live although their keys have left the filter.
    if (last && (this.#isOfAnotherClock(next, last) || last.map !== next.map)) this.epoch++;
    this.current = this.last = next;
    this.boundS = Math.min(this.deltaS, next.validForS);
    // Copies from before these writes are no longer young.
    this.ownWrites.forgetBefore(next.generatedAt - this.deltaS);
  }
}
