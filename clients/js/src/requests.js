// Encodes names, preferences and keys in requests.

const ROUTES = new Set(["query", "import", "export"]);

/** Joins names and ids into a path; throws RangeError if one cannot be part of an address. */
export function pathOf(...segments) {
  return segments.map(segmentOf).join("/");
}

function segmentOf(text) {
  if (["", ".", ".."].includes(text)) throw new RangeError(`"${text}" cannot be part of an address`);
  // The first letter of an id that equals a route's name is escaped.
  if (ROUTES.has(text)) return `%${text.charCodeAt(0).toString(16)}${text.slice(1)}`;
  return encodeURIComponent(text);
}

export function withParameters(path, parameters) {
  const entries = Object.entries(parameters).filter(([, value]) => value !== undefined);
  if (entries.length === 0) return path;
  const pairs = entries.map(([name, value]) => `${name}=${encodeURIComponent(value).replaceAll("%2C", ",")}`);
  return `${path}?${pairs.join("&")}`;
}

/** Returns the parameters of a write by conditions: a filter as in a body, or "all" objects. */
export function conditions(where, flags) {
  const parameters = where === "all" ? { all: "true" } : { filter: JSON.stringify(where) };
  for (const [name, isSet] of Object.entries(flags)) if (isSet) parameters[name] = "true";
  return parameters;
}

/** Returns the names of fields in the canonical form, which caches require to store a reply. */
export function fieldNames(fields) {
  return fields === undefined ? undefined : [...new Set(fields)].sort().join(",");
}

/** Lists ids, separated by commas; commas and percent signs within an id are escaped. */
export function idList(ids) {
  return [...ids].map((id) => id.replaceAll("%", "%25").replaceAll(",", "%2C")).join(",");
}

/** Returns Prefer (RFC 7240); the service refuses an unknown value instead of ignoring it. */
export function preferences({ consistency, maxStalenessS, atLeast } = {}) {
  const preferred = [];
  if (consistency !== undefined) preferred.push(`consistency=${quoted(consistency)}`);
  if (maxStalenessS !== undefined) preferred.push(`max-staleness=${maxStalenessS.toFixed(6)}`);
  if (atLeast !== undefined) preferred.push(`at-least=${quoted(atLeast)}`);
  return preferred.length === 0 ? {} : { prefer: [...preferred, "handling=strict"].join(", ") };
}

/** Returns the header fields of all requests, with the schema version whose names they use. */
export function pinnedHeaders({ headers = {}, schemaVersion }) {
  return schemaVersion === undefined ? headers : { ...headers, "portolan-schema": String(schemaVersion) };
}

/** Returns the header fields of a write; by its key the service recognises a retry. */
export function writeHeaders({ ifMatch, ifNoneMatch, idempotencyKey = newKey() } = {}) {
  const headers = { "idempotency-key": quoted(idempotencyKey) };
  if (ifMatch !== undefined) headers["if-match"] = ifMatch;
  if (ifNoneMatch !== undefined) headers["if-none-match"] = ifNoneMatch;
  return headers;
}

/** Returns the idempotency key of a request, or null. */
export function keyOf(headers) {
  return headers["idempotency-key"]?.slice(1, -1).replace(/\\(.)/g, "$1") ?? null;
}

function newKey() {
  // randomUUID is missing on pages that were loaded without TLS.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Encodes a text as a String of structured fields (RFC 9651, section 3.3.3). */
function quoted(text) {
  return `"${text.replace(/["\\]/g, "\\$&")}"`;
}
