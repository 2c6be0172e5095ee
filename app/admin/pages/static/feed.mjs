// Follows the feed: the server waits for changes and renders them, and they are put on top.
const MOST = 200;
const WAIT_S = 5;
const RETRY_MS = 3000;

const list = document.getElementById("changes");
const pause = document.getElementById("pause");
const state = document.getElementById("follow");

const paused = () => pause.getAttribute("aria-pressed") === "true" || document.hidden;
const resumed = () => new Promise((resolve) => addEventListener("portolan:resumed", resolve, { once: true }));
const resume = () => paused() || dispatchEvent(new Event("portolan:resumed"));

async function next() {
  const address = new URL(location);
  address.searchParams.set("after", list.dataset.position);
  address.searchParams.set("wait", WAIT_S);
  const answer = await fetch(address, { headers: { accept: "text/html" } });
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("changes");
  if (!fresh) return location.reload(); // the position is gone, or there is no feed any more
  for (const change of [...fresh.children]) list.prepend(change);
  while (list.childElementCount > MOST) list.lastChild.remove();
  list.dataset.position = fresh.dataset.position;
  if (list.childElementCount) state.textContent = `The latest first, ${MOST} at most.`;
}

async function follow() {
  for (;;) {
    if (paused()) await resumed();
    try {
      await next();
    } catch {
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
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
