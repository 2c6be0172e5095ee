// What every page does: the switch of light and dark, and regions that are kept up to date.
//
// The server renders; a region with `data-live="3"` is fetched again every three seconds, as a part
// of its page, and put in the place of the old one. Nothing else knows how it looks.

const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");

document.getElementById("theme").addEventListener("click", () => {
  const now = root.dataset.theme ?? (dark.matches ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
  dispatchEvent(new Event("portolan:theme"));
});
dark.addEventListener("change", () => dispatchEvent(new Event("portolan:theme")));

/** Fetch a page again, and put its elements of some ids in the place of ours. */
export async function renew(address, ids) {
  const answer = await fetch(address, { headers: { accept: "text/html" } });
  if (!answer.ok && answer.status >= 500) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const id of ids) {
    const [old, made] = [document.getElementById(id), fresh.getElementById(id)];
    if (!old || !made || old.innerHTML === made.innerHTML) continue;
    const focused = old.contains(document.activeElement) ? place(old, document.activeElement) : -1;
    const open = [...old.querySelectorAll("details")].map((each) => each.open);
    old.replaceWith(made);
    made.querySelectorAll("details").forEach((each, index) => (each.open = open[index] ?? each.open));
    if (focused >= 0) reachable(made)[focused]?.focus();
  }
  dispatchEvent(new Event("portolan:renewed"));
}

const reachable = (within) => [...within.querySelectorAll("a, button, input, select, summary, [tabindex]")];
const place = (within, element) => reachable(within).indexOf(element);

const periods = Map.groupBy(document.querySelectorAll("[data-live]"), ({ dataset }) => dataset.live);
for (const [period, regions] of periods) {
  const ids = regions.map(({ id }) => id);
  setInterval(() => {
    const alive = ids.filter((id) => "live" in (document.getElementById(id)?.dataset ?? {}));
    if (document.hidden || !alive.length) return;
    renew(location.href, alive).catch(() => {}); // the next time may go better
  }, 1000 * Number(period));
}
