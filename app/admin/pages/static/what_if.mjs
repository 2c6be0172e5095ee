// Sliders: while one moves its value is shown; once it rests the server decides again.
import { renew } from "./live.mjs";

const form = document.getElementById("sliders");
const QUIET_MS = 150;

/** The value of a slider: octaves from the current one. */
function then({ value, dataset }) {
  const moved = Number(dataset.now) * 2 ** Number(value);
  return dataset.kind.endsWith("availability") ? Math.min(1, moved) : moved;
}

function shown(value, kind) {
  const digits = (number) => number.toLocaleString("en", { maximumSignificantDigits: 3 });
  if (kind.endsWith("latency")) return value < 1 ? `${digits(value * 1000)} ms` : `${digits(value)} s`;
  if (kind.endsWith("throughput")) return `${digits(value)}/s`;
  return kind === "weight" ? digits(value) : `${digits(value * 100)} %`;
}

let waiting;
form?.addEventListener("input", ({ target }) => {
  target.parentElement.querySelector("output").textContent = shown(then(target), target.dataset.kind);
  clearTimeout(waiting);
  waiting = setTimeout(decide, QUIET_MS);
});

/** The query names only sliders that were moved: the address can be passed on. */
async function decide() {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) {
    if (name === "database" || Number(value) !== 0) query.set(name, value);
  }
  const address = `${form.getAttribute("action")}?${query}`;
  history.replaceState(null, "", address);
  await renew(address, ["decision", "outcome"]);
}
