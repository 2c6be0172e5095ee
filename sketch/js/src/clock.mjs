// The client's clock, in seconds that pass, sleep included.

// `performance.now` may stand still in sleep, and `Date.now` may be set back: the larger lead counts.
let lead = 0;

export function elapsed() {
  const now = performance.now() / 1e3;
  return now + (lead = Math.max(lead, Date.now() / 1e3 - now));
}
