// What every page does: the switch of light and dark, and regions that are kept up to date.
//
// The server renders; a region with `data-live="3"` is fetched every three seconds with its page,
// and replaces the old one. Only the server knows how it looks.
import { restore } from "./restore.mjs";

const TIMEOUT_MS = 10000;

const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");

document.getElementById("theme").addEventListener("click", () => {
  const now = root.dataset.theme ?? (dark.matches ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
  dispatchEvent(new Event("portolan:theme"));
});
dark.addEventListener("change", () => dispatchEvent(new Event("portolan:theme")));

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

let staleSince = "";

/** Show why the page is not up to date; without a reason, that it is. */
export function report(reason) {
  staleSince = reason && (staleSince || new Date().toLocaleTimeString());
  const text = reason && `Not up to date since ${staleSince}: ${reason}`;
  const line = document.getElementById("stale");
  if (line.textContent !== text) line.textContent = text; // a screen reader would repeat an equal text
}

/** Fetch a page: the answer and its document, if any, and the reason why it cannot be shown. */
export async function load(address, controller, timeout = TIMEOUT_MS) {
  let late = false;
  const timer = setTimeout(() => { late = true; controller.abort(); }, timeout);
  try {
    const answer = await fetch(address, { headers: { accept: "text/html" }, signal: controller.signal });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    return { answer, page, reason: answer.ok ? "" : `the service answered with ${answer.status}.` };
  } catch {
    return { reason: late ? `the service did not answer within ${timeout / 1000} s.` : "the service cannot be reached." };
  } finally {
    clearTimeout(timer);
  }
}

let latest = new AbortController();

/** Fetch a page, and replace the elements with some ids; a later call wins. */
export async function renew(address, ids) {
  latest.abort();
  const own = (latest = new AbortController());
  const { page, reason } = await load(address, own);
  if (own !== latest) return;
  report(reason);
  for (const id of ids) document.getElementById(id)?.toggleAttribute("data-stale", Boolean(reason));
  if (!reason) replace(page, ids);
}

function replace(fresh, ids) {
  for (const id of ids) {
    const [old, made] = [document.getElementById(id), fresh.getElementById(id)];
    if (old && made && old.innerHTML !== made.innerHTML) restore(old, made, () => old.replaceWith(made));
  }
  dispatchEvent(new Event("portolan:renewed"));
}

const regions = [...document.querySelectorAll("[data-live]")].map(({ id, dataset }) => ({ id, period: 1000 * Number(dataset.live) }));

/** Renew the regions that are due, with one request at a time. */
async function keep() {
  for (const each of regions) each.due = performance.now() + each.period;
  for (;;) {
    const live = regions.filter(({ id }) => "live" in (document.getElementById(id)?.dataset ?? {}));
    if (!live.length) return;
    await pause(Math.max(0, Math.min(...live.map(({ due }) => due)) - performance.now()));
    const due = live.filter(({ due }) => due <= performance.now());
    if (due.length && !document.hidden) await renew(location.href, due.map(({ id }) => id));
    for (const each of due) each.due = performance.now() + each.period;
  }
}
keep();
