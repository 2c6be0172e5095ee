// Keeps the interactive state of a replaced region: focus, open details, scroll positions.
const STATEFUL = "a, button, input, select, summary, details, [tabindex]";

/** Replaces an element, and restores the state of the elements that both versions have. */
export function restore(old, next, replace) {
  const [before, after] = [byPurpose(old), byPurpose(next)];
  const states = [...before].map(([purpose, { open, scrollTop, scrollLeft }]) => [after.get(purpose), { open, scrollTop, scrollLeft }]);
  const focusedPurpose = [...before].find(([, element]) => element === document.activeElement)?.[0];
  replace();
  for (const [element, { open, scrollTop, scrollLeft }] of states) {
    if (!element) continue;
    if (element.tagName === "DETAILS") element.open = open; // only open details can be scrolled
    Object.assign(element, { scrollTop, scrollLeft });
  }
  after.get(focusedPurpose)?.focus({ preventScroll: true });
}

/** Maps elements by purpose, not by position, because elements before them come and go. */
function byPurpose(region) {
  const elements = new Map();
  for (const element of region.querySelectorAll(STATEFUL)) {
    const purpose = purposeOf(element);
    let number = 1;
    while (elements.has(`${purpose} ${number}`)) number++;
    elements.set(`${purpose} ${number}`, element);
  }
  return elements;
}

function purposeOf(element) {
  const attributes = ["id", "class", "name", "value", "href", "aria-label"].map((name) => element.getAttribute(name));
  const label = element.matches("a, button") ? element : element.closest("summary") ?? element.querySelector(":scope > summary");
  const row = element.closest("tr")?.querySelector("th");
  return JSON.stringify([element.tagName, ...attributes, element.form?.getAttribute("action"), label?.textContent, row?.textContent]);
}
