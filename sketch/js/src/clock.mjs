// The client's monotonic clock, in elapsed seconds, sleep included.

// `performance.now` can stop during sleep, and `Date.now` can be set back: the maximum lead counts.
let lead = 0;

export function elapsed() {
  const now = performance.now() / 1e3;
  return now + (lead = Math.max(lead, Date.now() / 1e3 - now));
}
