// Follows the feed by long polling: the server renders new changes, which are added at the top.
import { load, pause as sleep, report } from "./live.mjs";

const MAX_CHANGES = 200;
const WAIT_S = 5;
const TIMEOUT_MS = 20000;
const RETRY_S = 3;
const MAX_RETRY_S = 60;

const list = document.getElementById("changes");
const pause = document.getElementById("pause");
const state = document.getElementById("follow");

const isPaused = () => pause.getAttribute("aria-pressed") === "true" || document.hidden;
const resumed = () => new Promise((resolve) => addEventListener("portolan:resumed", resolve, { once: true }));
const resume = () => isPaused() || dispatchEvent(new Event("portolan:resumed"));

function add(changes) {
  for (const change of [...changes.children]) list.prepend(change);
  while (list.childElementCount > MAX_CHANGES) list.lastChild.remove();
  list.dataset.position = changes.dataset.position;
  if (list.childElementCount) state.textContent = `Latest first, at most ${MAX_CHANGES}.`;
}

/** Stops after the position or the feed is gone; the list stays. */
function end(page) {
  const reason = page.querySelector(".about")?.textContent ?? "";
  state.textContent = `Changes are not followed any more, and some may be missing. ${reason} Reload the page to follow new changes.`;
  pause.hidden = true;
}

/** Adds the next changes; returns the pause in seconds, or null if the feed ended. */
async function next() {
  const address = new URL(location);
  address.searchParams.set("after", list.dataset.position);
  address.searchParams.set("wait", WAIT_S);
  const { answer, page, reason } = await load(address, new AbortController(), TIMEOUT_MS);
  const isTransient = !answer || answer.status >= 500 || answer.status === 429;
  report(isTransient ? reason : "");
  // The retry starts at the same position, so no change is skipped.
  if (isTransient) return Math.min(Number(answer?.headers.get("retry-after")) || RETRY_S, MAX_RETRY_S);
  const changes = answer.ok ? page.getElementById("changes") : null;
  if (!changes) {
    end(page);
    return null;
  }
  add(changes);
  return 0;
}

async function follow() {
  for (;;) {
    if (isPaused()) await resumed();
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
