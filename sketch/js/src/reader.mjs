// Reads: answered from the client's copy, by any cache on the path, or by the origin.

import { problemOf } from "./problems.mjs";

/** The expiry of a copy without a TTL, which may be returned while it is young. */
export const NO_TTL = 1;

const parseNatural = (text) => (/^\d+$/.test(text) ? +text : 0);

/** Returns the content that is cached and returned; throws a refusal by the service. */
export function contentOf(response) {
  if (response.status !== 200 && response.status !== 404) throw problemOf(response);
  const { status, etag, body, source } = response;
  return { status, etag, body, source };
}

export class Reader {
  #requests = new Map();
  #strongClasses = new Set();

  constructor(send, keeper, copies, ownWrites, now, stats) {
    Object.assign(this, { send, keeper, copies, ownWrites, now, stats });
  }

  /**
   * Reads a resource.
   * @param keysOf returns the resource's filter keys from the groups of its class
   * @param ownKey its key among the own writes
   */
  read(name, path, refresh, keysOf, ownKey) {
    const { copies, keeper, stats } = this;
    const startedAt = this.now();
    const filter = keeper.usable(startedAt);
    if (!filter) keeper.trigger(startedAt);
    const copy = copies.get(path);
    const groups = keeper.last?.groups[name];
    const keys = groups ? keysOf(groups) : [];
    const allowsCopy = keys.length && !refresh;
    const ownFloor = this.ownWrites.latest(ownKey);
    // A copy that was current after this time is within the bound, whatever the filter contains.
    const youngFloor = allowsCopy ? Math.max(startedAt - keeper.boundS, keeper.refreshedAt) : startedAt;
    const isLive = this.#isLive(copy, startedAt);
    let floor = Math.max(ownFloor, youngFloor);
    let isCovered = false;
    if (filter && allowsCopy && !keys.some(filter.has)) {
      // After its expiry, caches can hold a version older than a response received since.
      isCovered = (copy?.epoch ?? keeper.epoch) === keeper.epoch && (isLive || !(copy?.received > filter.generatedAt));
      floor = Math.max(ownFloor, filter.generatedAt);
    }
    const isYoung = copy?.since > youngFloor;
    if (copy?.knows > ownFloor && (isYoung ? isLive || copy.expiresUs === NO_TTL : isCovered && isLive)) {
      stats.hits++;
      copies.touch(path, copy);
      return { ...copy, source: "own" };
    }
    // Any cache on the path may answer a plain request; else only the origin, to a request sent after the floor.
    const plainFilter = isCovered && ownFloor < filter.generatedAt && filter;
    const running = this.#requests.get(path);
    if (running?.filter ? running.filter === plainFilter : running?.sent > Math.max(floor, copy?.received ?? 0)) {
      stats.joined++;
      return running.answer;
    }
    return this.#start(name, path, plainFilter, copy);
  }

  /** Reads a resource at or after a position of the feed. */
  async readAtLeast(path, position) {
    const Prefer = `at-least=${position}, max-staleness=${this.keeper.deltaS.toFixed(6)}`;
    this.stats.revalidations++;
    return contentOf(await this.send(path, { "Cache-Control": "no-cache", Prefer }));
  }

  #isLive(copy, at) {
    const { current } = this.keeper;
    return current && current.timeUs + (at - current.generatedAt) * 1e6 < copy?.expiresUs;
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
    const confirmed = response.status === 304 && copy;
    const since = filter ? filter.generatedAt : this.#currentAfter(response, sent);
    const expiresUs = response.noStore
      ? (confirmed.expiresUs ? NO_TTL : 0)
      : parseNatural(response.header("portolan-expires"));
    const { source } = response;
    const answer = { ...(confirmed || contentOf(response)), source, epoch, since, knows: since, expiresUs };
    this.copies.put(path, response.noStore && !confirmed ? { ...answer, body: null } : answer);
    return answer;
  }

  async #request(name, path, filter, copy) {
    // A conditional request would be forwarded to the origin by caches.
    const headers = filter ? {} : { "Cache-Control": "no-cache", "If-None-Match": copy?.body && copy.etag };
    const Prefer = this.#strongClasses.has(name) ? "consistency=strong" : null;
    const response = await this.send(path, { ...headers, Prefer }, filter && { cache: "default" });
    if (Prefer || !response.header("portolan-staleness")) return response;
    this.#strongClasses.add(name); // Only the schema bounds the age of a materialised view.
    return this.#request(name, path, filter, copy);
  }

  /** Returns a time at which the response to a request for the origin was still current. */
  #currentAfter(response, sent) {
    if (response.source === "origin") return sent;
    return sent - (response.header("age") ? response.cachedS : Infinity);
  }
}
