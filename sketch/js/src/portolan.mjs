// Coherent caching for browsers and Node 20: docs/caching-clients.md, portolan.d.mts.

import { canonicalQuery, groupsOf, objectPath, segment } from "./addresses.mjs";
import { elapsed } from "./clock.mjs";
import { Copies } from "./copies.mjs";
import { FilterKeeper } from "./filter_keeper.mjs";
import { OwnWrites } from "./own_writes.mjs";
import { problemOf } from "./problems.mjs";
import { Reader } from "./reader.mjs";
import { sender } from "./responses.mjs";
import { RETURN_OBJECT, Writer } from "./writer.mjs";

export { canonicalQuery } from "./addresses.mjs";
export { readFilter } from "./filter.mjs";
export { positions } from "./hash.mjs";
export { PortolanError } from "./problems.mjs";

const DEFAULT_CACHE_BYTES = 2 ** 24;

/** Waits; in Node, the timer does not keep the process alive. */
const timer = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1e3).unref?.());

/** Returns a clock that never returns the same time twice. */
function strictlyIncreasing(clock) {
  let last = 0;
  return () => (last = Math.max(clock(), last * (1 + 2 ** -52)));
}

export async function connect(url, database, options = {}) {
  const { deltaS = 1, mode = "eager", headers, cacheBytes = DEFAULT_CACHE_BYTES } = options;
  const { clock = elapsed, fetch = globalThis.fetch, sleep = timer } = options;
  if (!(deltaS > 0)) throw new RangeError("deltaS must be positive");
  const base = `${url.replace(/\/$/, "")}/v1/${segment(database)}/`;
  const closing = new AbortController();
  const { signal } = closing;
  const stats = { hits: 0, joined: 0, fetches: 0, revalidations: 0, filters: 0, failures: 0, bytes: 0 };
  const now = strictlyIncreasing(clock);
  const send = sender({ base, fetch, headers, signal, stats });
  const ownWrites = new OwnWrites(now);
  const copies = new Copies(cacheBytes, now);
  const keeper = new FilterKeeper(send, deltaS, now, ownWrites, stats);
  const reader = new Reader(send, keeper, copies, ownWrites, now, stats);
  const writer = new Writer(send, keeper, copies, ownWrites, now);

  const client = {
    stats,

    async get(name, id, { fields, refresh, atLeast, missingOk } = {}) {
      const path = objectPath(name, id, fields);
      const prefix = `${name}/${id}#`;
      const keysOf = (groups) => groupsOf(groups, fields).map((group) => prefix + group);
      const answer = await (atLeast
        ? reader.readAtLeast(path, atLeast)
        : reader.read(name, path, refresh, keysOf, prefix));
      const isFound = answer.status === 200;
      if (!isFound && !missingOk) throw problemOf(answer);
      const { source } = answer;
      return isFound ? { value: JSON.parse(answer.body), etag: answer.etag, source } : { value: null, etag: null, source };
    },

    async query(name, parameters = {}, { oneByOne, refresh } = {}) {
      const { fields } = parameters;
      const query = canonicalQuery(oneByOne ? { ...parameters, fields: "id" } : parameters);
      const path = segment(name) + (query && `?${query}`);
      const answer = await reader.read(name, path, refresh, () => [`${name}//${query}`], name);
      if (answer.status !== 200) throw problemOf(answer);
      const result = { ...JSON.parse(answer.body), source: answer.source };
      if (!oneByOne) return result;
      const read = ({ id }) => client.get(name, id, { fields, refresh, missingOk: true });
      const objects = await Promise.all(result.items.map(read));
      return { ...result, items: objects.flatMap(({ value }) => value ?? []) };
    },

    async put(name, id, value, options = {}) {
      const { fields, createOnly } = options;
      const moreHeaders = { Prefer: RETURN_OBJECT, "If-None-Match": createOnly ? "*" : null };
      return writer.write("PUT", name, [id], objectPath(name, id, fields), options, moreHeaders, value);
    },

    async patch(name, id, changes, { form = "merge", ...options } = {}) {
      const subtype = form === "update" ? "vnd.portolan.update" : `${form}-patch`;
      const moreHeaders = { Prefer: RETURN_OBJECT, "Content-Type": `application/${subtype}+json` };
      return writer.write("PATCH", name, [id], objectPath(name, id), options, moreHeaders, changes);
    },

    async delete(name, id, options = {}) {
      return writer.write("DELETE", name, [id], objectPath(name, id), options);
    },

    async post(name, value, options = {}) {
      const ids = [value].flat().map(({ id }) => id);
      return writer.write("POST", name, ids, segment(name), options, {}, value);
    },

    refreshFilter: () => keeper.refresh(),

    doubt: (name, id) => ownWrites.note([name, `${name}/${id}#`]),

    close: () => closing.abort(),
  };

  const renewFilter = async () => {
    const pauseS = await keeper.renew();
    if (mode === "eager") sleep(pauseS).then(() => signal.aborted || renewFilter());
  };
  await renewFilter();
  return client;
}
