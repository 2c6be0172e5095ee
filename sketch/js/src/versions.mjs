// Which of two states of an object is the newer one, as far as their tags show.

/** Whether a copy is no older than another for sure: the versions in tags only grow. */
export function isAtLeast(copy, other) {
  if (copy.etag === other.etag) return copy.etag || copy.body === other.body;
  const [parts, others] = [copy, other].map(({ etag }) => /"j.*/.exec(etag)?.[0].split(/:(\d+)/));
  // Odd parts are versions; the others name the schema and the groups.
  const holds = (part, i) => (i % 2 ? BigInt(part) >= BigInt(others[i]) : part === others[i]);
  return others && parts?.every(holds);
}
