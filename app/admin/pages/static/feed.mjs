// Follows the feed: the server waits for changes and renders them, and they are put on top.
import { load, pause as sleep, report } from "./live.mjs";

const MAX_CHANGES = 200;
const WAIT_S = 5;
const LATE_MS = 20000;
const RETRY_S = 3;
const MAX_RETRY_S = 60;

const list = document.getElementById("changes");
const pause = document.getElementById("pause");
const state = document.getElementById("follow");

const paused = () => pause.getAttribute("aria-pressed") === "true" || document.hidden;
const resumed = () => new Promise((resolve) => addEventListener("portolan:resumed", resolve, { once: true }));
const resume = () => paused() || dispatchEvent(new Event("portolan:resumed"));

function add(fresh) {
  for (const change of [...fresh.children]) list.prepend(change);
  while (list.childElementCount > MAX_CHANGES) list.lastChild.remove();
  list.dataset.position = fresh.dataset.position;
  if (list.childElementCount) state.textContent = `The latest first, ${MAX_CHANGES} at most.`;
}

/** The position is gone, or there is no feed any more: what is listed stays. */
function end(page) {
  const why = page.querySelector(".about")?.textContent ?? "";
  state.textContent = `Changes are not followed any more, and some may be missing. ${why} Open the page again to follow what comes now.`;
  pause.hidden = true;
}

/** Add the next changes; return the seconds to wait, or null if the feed ended. */
async function next() {
  const address = new URL(location);
  address.searchParams.set("after", list.dataset.position);
  address.searchParams.set("wait", WAIT_S);
  const { answer, page, reason } = await load(address, new AbortController(), LATE_MS);
  const passes = !answer || answer.status >= 500 || answer.status === 429;
  report(passes ? reason : "");
  // Retry from the same position, so that no change is left out.
  if (passes) return Math.min(Number(answer?.headers.get("retry-after")) || RETRY_S, MAX_RETRY_S);
  const fresh = answer.ok ? page.getElementById("changes") : null;
  if (!fresh) {
    end(page);
    return null;
  }
  add(fresh);
  return 0;
}

async function follow() {
  for (;;) {
    if (paused()) await resumed();
    const seconds = await next();
    if (seconds === null) return;
    if (seconds) await sleep(1000 * seconds);
  }
}

if (list && "follow" in list.dataset) {
  pause.hidden = false;
  pause.addEventListener("click", () => {
    const pressed = pause.getAttribute("aria-pressed") !== "true";
    pause.setAttribute("aria-pressed", pressed);
    pause.textContent = pressed ? "Continue" : "Pause";
    resume();
  });
  document.addEventListener("visibilitychange", resume);
  follow();
}
