// Sliders: while a slider moves, its value is shown; when it rests, the server decides again.
import { renew } from "./live.mjs";

const form = document.getElementById("sliders");
const QUIET_MS = 150;

/** Returns the value of a slider, which moves by octaves from the current value. */
function sliderValue({ value, dataset }) {
  const scaled = Number(dataset.now) * 2 ** Number(value);
  return dataset.kind.endsWith("availability") ? Math.min(1, scaled) : scaled;
}

function format(value, kind) {
  const digits = (number) => number.toLocaleString("en", { maximumSignificantDigits: 3 });
  if (kind.endsWith("latency")) return value < 1 ? `${digits(value * 1000)} ms` : `${digits(value)} s`;
  if (kind.endsWith("throughput")) return `${digits(value)}/s`;
  return kind === "weight" ? digits(value) : `${digits(value * 100)} %`;
}

let timer;
form?.addEventListener("input", ({ target }) => {
  target.parentElement.querySelector("output").textContent = format(sliderValue(target), target.dataset.kind);
  clearTimeout(timer);
  timer = setTimeout(decide, QUIET_MS);
});

/** Requests a decision; the address names only the moved sliders, and can be shared. */
async function decide() {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) {
    if (name === "database" || Number(value) !== 0) query.set(name, value);
  }
  const address = `${form.getAttribute("action")}?${query}`;
  history.replaceState(null, "", address);
  await renew(address, ["decision", "outcome"]);
}
