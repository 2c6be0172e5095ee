// Addresses in their canonical form, the only one that caches keep, and cache groups.

/** Returns a name or an id as a segment of a path. */
export function segment(text) {
  if (/^\.{0,2}$/.test(text)) throw new RangeError(`"${text}" cannot be part of an address`);
  // An object that is called like a route has its first letter escaped.
  if (/^(query|import|export)$/.test(text)) return `%${text.charCodeAt().toString(16)}${text.slice(1)}`;
  return encodeURIComponent(text);
}

export const canonicalFields = (fields) => [...new Set(fields)].sort();

/** Returns the path of an object, or of some of its fields. */
export function objectPath(name, id, fields) {
  const path = `${segment(name)}/${segment(id)}`;
  return fields ? `${path}?fields=${canonicalFields(fields).map(encodeURIComponent)}` : path;
}

const withSortedKeys = (_, value) =>
  value?.constructor === Object ? Object.fromEntries(Object.entries(value).sort()) : value;

function parameterText(value) {
  // The commas of a list's elements are escaped once more.
  if (Array.isArray(value))
    return value.map((each) => parameterText(each).replace(/[%,]/g, encodeURIComponent)).join();
  return typeof value === "string" ? value : JSON.stringify(value, withSortedKeys);
}

const escaped = (value) => encodeURIComponent(parameterText(value)).replaceAll("%2C", ",");

/** Returns the parameters of a query as its address and its key have them. */
export function canonicalQuery({ fields, ...parameters }) {
  if (fields) parameters.fields = fields.map ? canonicalFields(fields) : fields;
  const pairs = Object.entries(parameters).map((pair) => pair.map(escaped).join("="));
  return pairs.sort().join("&");
}

/** Returns the cache groups of these fields, or all; none if a field is in no group. */
export function groupsOf(groups = {}, fields) {
  const names = Object.keys(groups);
  if (!fields) return names;
  const having = (field) => names.filter((group) => groups[group].includes(field));
  return fields.every((field) => having(field)[0]) ? [...new Set(fields.flatMap(having))] : [];
}
