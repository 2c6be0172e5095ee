// Functions of every page: the light and dark theme, and live regions.
//
// The server renders the regions: for a region with `data-live="3"`, the page is fetched every three
// seconds, and its new version replaces the old one.
import { restore } from "./restore.mjs";

const TIMEOUT_MS = 10000;

const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");

document.getElementById("theme").addEventListener("click", () => {
  const current = root.dataset.theme ?? (dark.matches ? "dark" : "light");
  root.dataset.theme = current === "dark" ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
  dispatchEvent(new Event("portolan:theme"));
});
dark.addEventListener("change", () => dispatchEvent(new Event("portolan:theme")));

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

let staleSince = "";

/** Shows why the page is not up to date; an empty reason clears the message. */
export function report(reason) {
  staleSince = reason && (staleSince || new Date().toLocaleTimeString());
  const text = reason && `Not up to date since ${staleSince}: ${reason}`;
  const message = document.getElementById("stale");
  if (message.textContent !== text) message.textContent = text; // a screen reader would repeat an equal text
}

/** Fetches a page: the answer and its document, if any, and the reason why it cannot be shown. */
export async function load(address, controller, timeout = TIMEOUT_MS) {
  let isLate = false;
  const timer = setTimeout(() => { isLate = true; controller.abort(); }, timeout);
  try {
    const answer = await fetch(address, { headers: { accept: "text/html" }, signal: controller.signal });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    return { answer, page, reason: answer.ok ? "" : `the service answered with ${answer.status}.` };
  } catch {
    return { reason: isLate ? `the service did not answer within ${timeout / 1000} s.` : "the service cannot be reached." };
  } finally {
    clearTimeout(timer);
  }
}

let latestController = new AbortController();

/** Fetches a page, and replaces the elements with some ids; a later call wins. */
export async function renew(address, ids) {
  latestController.abort();
  const controller = (latestController = new AbortController());
  const { page, reason } = await load(address, controller);
  if (controller !== latestController) return;
  report(reason);
  for (const id of ids) document.getElementById(id)?.toggleAttribute("data-stale", Boolean(reason));
  if (!reason) replace(page, ids);
}

function replace(page, ids) {
  for (const id of ids) {
    const [old, next] = [document.getElementById(id), page.getElementById(id)];
    if (old && next && old.innerHTML !== next.innerHTML) restore(old, next, () => old.replaceWith(next));
  }
  dispatchEvent(new Event("portolan:renewed"));
}

const regions = [...document.querySelectorAll("[data-live]")].map(({ id, dataset }) => ({ id, period: 1000 * Number(dataset.live) }));

/** Renews the regions that are due, with one request at a time. */
async function renewRegions() {
  for (const region of regions) region.due = performance.now() + region.period;
  for (;;) {
    const live = regions.filter(({ id }) => "live" in (document.getElementById(id)?.dataset ?? {}));
    if (!live.length) return;
    await pause(Math.max(0, Math.min(...live.map(({ due }) => due)) - performance.now()));
    const due = live.filter(({ due }) => due <= performance.now());
    if (due.length && !document.hidden) await renew(location.href, due.map(({ id }) => id));
    for (const region of due) region.due = performance.now() + region.period;
  }
}
renewRegions();
