// How a read is answered: from the client's copy, by any cache on the way, or by the origin.

import { problemOf } from "./problems.mjs";

/** The end of what is shown only while it is young. */
export const YOUNG = 1;

const natural = (text) => (/^\d+$/.test(text) ? +text : 0);

/** Returns an answer as it is kept and shown; throws what the service refused. */
export function contentOf(response) {
  if (response.status !== 200 && response.status !== 404) throw problemOf(response);
  const { status, etag, body, source } = response;
  return { status, etag, body, source };
}

export class Reader {
  #requests = new Map();
  #onSystems = new Set();

  constructor(send, keeper, copies, ownWrites, now, stats) {
    Object.assign(this, { send, keeper, copies, ownWrites, now, stats });
  }

  /**
   * Reads a resource.
   * @param keysOf returns the keys that a filter tests it by, from the groups of its class
   * @param ownKey what own writes name it by
   */
  read(name, path, refresh, keysOf, ownKey) {
    const { copies, keeper, stats } = this;
    const began = this.now();
    const filter = keeper.usable(began);
    if (!filter) keeper.trigger(began);
    const copy = copies.get(path);
    const groups = keeper.last?.groups[name];
    const keys = groups ? keysOf(groups) : [];
    const isKnown = keys.length && !refresh;
    const own = this.ownWrites.latest(ownKey);
    // What was not outdated at this time is within the bound by that alone.
    const fresh = isKnown ? Math.max(began - keeper.boundS, keeper.wanted) : began;
    const isAlive = this.#isAlive(copy, began);
    let floor = Math.max(own, fresh);
    let isCovered = false;
    if (filter && isKnown && !keys.some(filter.has)) {
      // After its expiry caches may hold what is older than what came since.
      isCovered = (copy?.epoch ?? keeper.epoch) === keeper.epoch && (isAlive || !(copy?.received > filter.generatedAt));
      floor = Math.max(own, filter.generatedAt);
    }
    const isYoung = copy?.since > fresh;
    if (copy?.knows > own && (isYoung ? isAlive || copy.end === YOUNG : isCovered && isAlive)) {
      stats.hits++;
      copies.touch(path, copy);
      return { ...copy, source: "own" };
    }
    // Any cache on the way may answer, or only the origin, to a request sent after the floor.
    const plain = isCovered && own < filter.generatedAt && filter;
    const running = this.#requests.get(path);
    if (running?.filter ? running.filter === plain : running?.sent > Math.max(floor, copy?.received ?? 0)) {
      stats.joined++;
      return running.answer;
    }
    return this.#start(name, path, plain, copy);
  }

  /** Reads a resource that has reached a position of the feed. */
  async readAtLeast(path, position) {
    const Prefer = `at-least=${position}, max-staleness=${this.keeper.deltaS.toFixed(6)}`;
    this.stats.revalidations++;
    return contentOf(await this.send(path, { "Cache-Control": "no-cache", Prefer }));
  }

  #isAlive(copy, at) {
    const { current } = this.keeper;
    return current && current.timeUs + (at - current.generatedAt) * 1e6 < copy?.end;
  }

  #start(name, path, filter, copy) {
    const request = { sent: this.now(), filter };
    this.#requests.set(path, request);
    request.answer = this.#fetch(name, path, request, copy).finally(() => {
      if (this.#requests.get(path) === request) this.#requests.delete(path);
    });
    return request.answer;
  }

  async #fetch(name, path, { filter, sent }, copy) {
    const { epoch } = this.keeper;
    this.stats[filter ? "fetches" : "revalidations"]++;
    const response = await this.#request(name, path, filter, copy);
    const held = response.status === 304 && copy;
    const since = filter ? filter.generatedAt : this.#givenAfter(response, sent);
    const end = response.noStore ? (held.end ? YOUNG : 0) : natural(response.header("portolan-expires"));
    const answer = { ...(held || contentOf(response)), source: response.source, epoch, since, knows: since, end };
    this.copies.put(path, response.noStore && !held ? { ...answer, body: null } : answer);
    return answer;
  }

  async #request(name, path, filter, copy) {
    // With a condition of ours a cache would forward it to the origin.
    const headers = filter ? {} : { "Cache-Control": "no-cache", "If-None-Match": copy?.body && copy.etag };
    const Prefer = this.#onSystems.has(name) ? "consistency=strong" : null;
    const response = await this.send(path, { ...headers, Prefer }, filter && { cache: "default" });
    if (Prefer || !response.header("portolan-staleness")) return response;
    this.#onSystems.add(name); // The age of a materialised view is bounded by the schema alone.
    return this.#request(name, path, filter, copy);
  }

  /** Returns the time after which an answer meant for the origin was given. */
  #givenAfter(response, sent) {
    if (response.source === "origin") return sent;
    return sent - (response.header("age") ? response.cachedS : Infinity);
  }
}
