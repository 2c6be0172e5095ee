// Compares two versions of an object by their entity tags.

/** Whether a copy is certainly no older than another: the versions in tags only grow. */
export function isAtLeast(copy, other) {
  if (copy.etag === other.etag) return copy.etag || copy.body === other.body;
  const [parts, otherParts] = [copy, other].map(({ etag }) => /"j.*/.exec(etag)?.[0].split(/:(\d+)/));
  // Odd parts are versions; even ones name the schema and the groups.
  const isNoOlder = (part, i) => (i % 2 ? BigInt(part) >= BigInt(otherParts[i]) : part === otherParts[i]);
  return otherParts && parts?.every(isNoOlder);
}
