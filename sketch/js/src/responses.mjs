// Sends requests, and interprets the header fields of their responses.

import { failure } from "./problems.mjs";

const withoutNulls = (object) => Object.fromEntries(Object.entries(object).filter(([, v]) => v != null));

/** Whether a shared cache reports a hit; a hit of the service itself comes from no cache on the path. */
const isSharedHit = (status) =>
  status.split(",").some((cache) => /^(?!\s*portolan\s*;).*;\s*hit\s*(;|$)/i.test(cache));

/** Returns a function that sends requests below a base address. */
export function sender({ base, fetch, headers: defaults, signal, stats }) {
  return async (path, headers, init) => {
    try {
      const allHeaders = withoutNulls({ ...defaults, ...headers });
      const response = await fetch(base + path, { cache: "no-store", ...init, headers: allHeaders, signal });
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
        // The body is decoded; a tag with the suffix of a coding names the same version.
        etag: header("etag").replace(/-gzip"$/, '"') || null,
        body: new TextDecoder().decode(raw),
        // The maximum time in caches. Proxies also add `Via` and `Age: 0` to responses that they only
        // forward; a no-store response was in no cache.
        cachedS: seconds || (!noStore && (age || header("via"))) ? seconds + 1 : 0,
        source: seconds || isSharedHit(header("cache-status")) ? "shared" : "origin",
      };
    } catch (cause) {
      throw failure(`no response: ${cause}`, cause);
    }
  };
}
