// What a person has done to a region outlives its replacement: focus, what is open, how far it is scrolled.
const KEPT = "a, button, input, select, summary, details, [tabindex]";

/** Replace an element; the state of the elements in both is kept. */
export function restore(old, made, replace) {
  const [before, after] = [byPurpose(old), byPurpose(made)];
  const left = [...before].map(([purpose, { open, scrollTop, scrollLeft }]) => [after.get(purpose), { open, scrollTop, scrollLeft }]);
  const focused = [...before].find(([, element]) => element === document.activeElement)?.[0];
  replace();
  for (const [element, { open, scrollTop, scrollLeft }] of left) {
    if (!element) continue;
    if (element.tagName === "DETAILS") element.open = open; // before what is in it can be scrolled
    Object.assign(element, { scrollTop, scrollLeft });
  }
  after.get(focused)?.focus({ preventScroll: true });
}

/** The elements by purpose, not by position, as others come and go before them. */
function byPurpose(region) {
  const found = new Map();
  for (const element of region.querySelectorAll(KEPT)) {
    const purpose = purposeOf(element);
    let number = 1;
    while (found.has(`${purpose} ${number}`)) number++;
    found.set(`${purpose} ${number}`, element);
  }
  return found;
}

function purposeOf(element) {
  const named = ["id", "class", "name", "value", "href", "aria-label"].map((name) => element.getAttribute(name));
  const text = element.matches("a, button") ? element : element.closest("summary") ?? element.querySelector(":scope > summary");
  const row = element.closest("tr")?.querySelector("th");
  return JSON.stringify([element.tagName, ...named, element.form?.getAttribute("action"), text?.textContent, row?.textContent]);
}
