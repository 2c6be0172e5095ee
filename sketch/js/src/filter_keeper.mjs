// The filter in use: fetched, aged, renewed.

import { readFilter } from "./filter.mjs";
import { failure, problemOf } from "./problems.mjs";

const MEDIA_TYPE = "application/vnd.portolan.sketch";
const PUNCTUALITY = 0.9; // Of the time between two filters: timers come late.
const LEAST_PACE_S = 0.1;
const DRIFT = 500e-6; // The most that two clocks differ by in a second, if neither is set.

const natural = (text) => (/^\d+$/.test(text) ? +text : 0);

export class FilterKeeper {
  /**
   * The filter, with `generatedAt`: the earliest time at which it can have been generated, and `receivedAt`: the latest
   * at which the sketch's clock can have shown its time.
   */
  current = null;
  /** The latest filter that could be read, whatever came after it. */
  last = null;
  /** Grows when copies that were received before are covered by filters no more. */
  epoch = 0;
  /** When a filter was last requested on purpose. */
  wanted = 0;
  #retryAt = 0;
  #renewal = null;

  constructor(send, deltaS, now, ownWrites, stats) {
    Object.assign(this, { send, deltaS, now, ownWrites, stats, boundS: deltaS });
  }

  /** Returns the filter, unless it is too old to go by at a time. */
  usable(at) {
    return this.current && at - this.current.generatedAt <= this.boundS && this.current;
  }

  /** Begins to get a filter, unless that is under way or failed just now. */
  trigger(at) {
    if (at >= this.#retryAt) this.#renewal ??= this.renew().finally(() => (this.#renewal = null));
  }

  /** Gets a filter that is generated after this call. */
  async refresh() {
    const sent = this.now();
    await this.#load(sent);
    this.wanted = Math.max(this.wanted, sent);
  }

  /** Gets a filter if there is one to be had; returns after how long to do so again (seconds). */
  async renew() {
    const sent = this.now();
    try {
      await this.#load(sent);
    } catch {
      return this.#paceS() / 2;
    }
    const took = this.now() - sent, paceS = this.#paceS();
    return Math.max(paceS / 2, PUNCTUALITY * paceS - 2 * took) - took;
  }

  /** A service whose filters are valid for no time at all is not requested without a pause. */
  #paceS() {
    return Math.max(this.boundS, Math.min(this.deltaS, LEAST_PACE_S));
  }

  async #load(sent) {
    try {
      let next = await this.#request(sent);
      if (this.#isOlder(next)) {
        // Either a cache has stored it, or the sketch's clock was set back. The origin shows a time that goes on, a
        // cache that ignores `no-cache` the stored one again.
        const { timeUs } = next;
        next = await this.#request(this.now(), { "Cache-Control": "no-cache" });
        const isYoung = next.timeUs > timeUs && next.generatedAt > this.last.generatedAt;
        if (this.#isOlder(next) && !isYoung) throw failure("an older filter");
      }
      this.#adopt(next);
      this.stats.filters++;
    } catch (error) {
      this.stats.failures++;
      this.#retryAt = sent + this.#paceS() / 2;
      throw error;
    }
  }

  async #request(sent, headers) {
    const held = this.current;
    const response = await this.send("sketch", { Accept: MEDIA_TYPE, "If-None-Match": held?.etag, ...headers });
    const timeUs = natural(response.header("portolan-sketch-time"));
    const isNew = response.status === 200;
    if (!isNew && !(response.status === 304 && held && timeUs)) throw problemOf(response);
    const filter = isNew ? this.#read(response) : { ...held, timeUs };
    return { ...filter, generatedAt: sent - response.cachedS, receivedAt: this.now() };
  }

  /** Whether a filter shows an earlier time than the last one of the same sketch. */
  #isOlder({ generation, timeUs }) {
    return this.last?.generation === generation && timeUs < this.last.timeUs;
  }

  /** Whether the sketch was lost, or its clock shows by less time than has passed that it was set back. */
  #isOfAnotherClock({ generation, timeUs, generatedAt }, last) {
    const leastS = Math.max(0, generatedAt - last.receivedAt) * (1 - DRIFT);
    return generation !== last.generation || timeUs < last.timeUs + leastS * 1e6;
  }

  #read({ raw, etag }) {
    try {
      return { ...readFilter(raw), etag };
    } catch (cause) {
      this.current = null; // What is wrong is not known.
      throw failure("a broken filter", cause);
    }
  }

  #adopt(next) {
    const { last } = this;
    // By another clock, copies would revive whose keys have left the filter.
    if (last && (this.#isOfAnotherClock(next, last) || last.map !== next.map)) this.epoch++;
    this.current = this.last = next;
    this.boundS = Math.min(this.deltaS, next.validForS);
    // A copy from before an older write than that is not young any more.
    this.ownWrites.forgetBefore(next.generatedAt - this.deltaS);
  }
}
