// How names, preferences and keys are written into requests.

const ROUTES = new Set(["query", "import", "export"]);

/** Joins names and ids to a path; throws RangeError if one cannot be part of an address. */
export function pathOf(...segments) {
  return segments.map(segmentOf).join("/");
}

function segmentOf(text) {
  if (["", ".", ".."].includes(text)) throw new RangeError(`"${text}" cannot be part of an address`);
  // An id that is also the name of a route is told apart by an escape it would not need.
  if (ROUTES.has(text)) return `%${text.charCodeAt(0).toString(16)}${text.slice(1)}`;
  return encodeURIComponent(text);
}

export function withParameters(path, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined);
  if (given.length === 0) return path;
  const pairs = given.map(([name, value]) => `${name}=${encodeURIComponent(value).replaceAll("%2C", ",")}`);
  return `${path}?${pairs.join("&")}`;
}

/** Returns the parameters of a write by conditions: a filter as in a body, or "all" objects. */
export function conditions(where, flags) {
  const chosen = where === "all" ? { all: "true" } : { filter: JSON.stringify(where) };
  for (const [name, isSet] of Object.entries(flags)) if (isSet) chosen[name] = "true";
  return chosen;
}

/** Returns the names of fields in the canonical form, without which no cache keeps an answer. */
export function fieldNames(fields) {
  return fields === undefined ? undefined : [...new Set(fields)].sort().join(",");
}

/** Lists ids: a comma divides them, so one within an id is escaped; and so is what begins an escape. */
export function idList(ids) {
  return [...ids].map((id) => id.replaceAll("%", "%25").replaceAll(",", "%2C")).join(",");
}

/** Returns Prefer (RFC 7240); a value that the service does not know is refused, not ignored. */
export function preferences({ consistency, maxStalenessS, atLeast } = {}) {
  const wanted = [];
  if (consistency !== undefined) wanted.push(`consistency=${quoted(consistency)}`);
  if (maxStalenessS !== undefined) wanted.push(`max-staleness=${maxStalenessS.toFixed(6)}`);
  if (atLeast !== undefined) wanted.push(`at-least=${quoted(atLeast)}`);
  return wanted.length === 0 ? {} : { prefer: [...wanted, "handling=strict"].join(", ") };
}

/** Returns the header fields of all requests, with the version of the schema whose names they use. */
export function pinnedHeaders({ headers = {}, schemaVersion }) {
  return schemaVersion === undefined ? headers : { ...headers, "portolan-schema": String(schemaVersion) };
}

/** Returns the header fields of a write; by its key the service recognises one that is sent again. */
export function writeHeaders({ ifMatch, ifNoneMatch, idempotencyKey = newKey() } = {}) {
  const headers = { "idempotency-key": quoted(idempotencyKey) };
  if (ifMatch !== undefined) headers["if-match"] = ifMatch;
  if (ifNoneMatch !== undefined) headers["if-none-match"] = ifNoneMatch;
  return headers;
}

/** Returns the key of a request, or null. */
export function keyOf(headers) {
  return headers["idempotency-key"]?.slice(1, -1).replace(/\\(.)/g, "$1") ?? null;
}

function newKey() {
  // randomUUID is not there on pages that came without TLS.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Returns a text as a string of a header field (RFC 9651, section 3.3.3). */
function quoted(text) {
  return `"${text.replace(/["\\]/g, "\\$&")}"`;
}
