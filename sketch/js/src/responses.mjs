// One request, and what its answer says of itself.

import { failure } from "./problems.mjs";

const defined = (object) => Object.fromEntries(Object.entries(object).filter(([, v]) => v != null));

/** The service's own hits are its own word: they came from no cache on the way. */
const isHitOnTheWay = (status) =>
  status.split(",").some((cache) => /^(?!\s*portolan\s*;).*;\s*hit\s*(;|$)/i.test(cache));

/** Returns a function that sends requests below an address. */
export function sender({ base, fetch, headers: always, signal, stats }) {
  return async (path, headers, init) => {
    try {
      const all = defined({ ...always, ...headers });
      const response = await fetch(base + path, { cache: "no-store", ...init, headers: all, signal });
      const raw = await response.arrayBuffer();
      const header = (name) => response.headers.get(name) ?? "";
      const age = header("age");
      const seconds = /\D/.test(age) ? Infinity : +age;
      const noStore = /\bno-store\b/i.test(header("cache-control"));
      stats.bytes += raw.byteLength;
      return {
        header,
        noStore,
        raw,
        status: response.status,
        // The body is decoded; what has the tag of a coding is the same version.
        etag: header("etag").replace(/-gzip"$/, '"') || null,
        body: new TextDecoder().decode(raw),
        // How long it may have lain in caches. Proxies put `Via` and `Age: 0` on what they pass
        // through, too; what no cache may keep was in none.
        cachedS: seconds || (!noStore && (age || header("via"))) ? seconds + 1 : 0,
        source: seconds || isHitOnTheWay(header("cache-status")) ? "shared" : "origin",
      };
    } catch (cause) {
      throw failure(`no answer: ${cause}`, cause);
    }
  };
}
