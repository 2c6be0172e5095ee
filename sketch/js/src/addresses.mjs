// Canonical addresses, the only ones that caches store, and cache groups.

/** Encodes a name or an id as a path segment. */
export function segment(text) {
  if (/^\.{0,2}$/.test(text)) throw new RangeError(`"${text}" cannot be part of an address`);
  // The first letter of an id that equals a route's name is escaped.
  if (/^(query|import|export)$/.test(text)) return `%${text.charCodeAt().toString(16)}${text.slice(1)}`;
  return encodeURIComponent(text);
}

export const canonicalFields = (fields) => [...new Set(fields)].sort();

/** Returns the path of an object, optionally restricted to some fields. */
export function objectPath(name, id, fields) {
  const path = `${segment(name)}/${segment(id)}`;
  return fields ? `${path}?fields=${canonicalFields(fields).map(encodeURIComponent)}` : path;
}

const withSortedKeys = (_, value) =>
  value?.constructor === Object ? Object.fromEntries(Object.entries(value).sort()) : value;

function parameterText(value) {
  // Commas within list elements are escaped twice.
  if (Array.isArray(value))
    return value.map((element) => parameterText(element).replace(/[%,]/g, encodeURIComponent)).join();
  return typeof value === "string" ? value : JSON.stringify(value, withSortedKeys);
}

const escaped = (value) => encodeURIComponent(parameterText(value)).replaceAll("%2C", ",");

/** Returns a query's parameters in the canonical form of its address and its filter key. */
export function canonicalQuery({ fields, ...parameters }) {
  if (fields) parameters.fields = fields.map ? canonicalFields(fields) : fields;
  const pairs = Object.entries(parameters).map((pair) => pair.map(escaped).join("="));
  return pairs.sort().join("&");
}

/** Returns the cache groups of some fields, or all groups; none if a field has no group. */
export function groupsOf(groups = {}, fields) {
  const names = Object.keys(groups);
  if (!fields) return names;
  const groupsWith = (field) => names.filter((group) => groups[group].includes(field));
  return fields.every((field) => groupsWith(field)[0]) ? [...new Set(fields.flatMap(groupsWith))] : [];
}
