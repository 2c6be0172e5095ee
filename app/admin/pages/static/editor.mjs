// Numbers the lines of an edited text, and marks the lines with errors.
for (const editor of document.querySelectorAll(".editor")) {
  const text = editor.querySelector("textarea");
  const badLines = new Set((editor.dataset.badLines ?? "").split(" ").map(Number));
  const numbers = document.createElement("ol");
  numbers.setAttribute("aria-hidden", "true");
  editor.prepend(numbers);

  function numberLines() {
    const count = text.value.split("\n").length;
    while (numbers.childElementCount > count) numbers.lastChild.remove();
    for (let line = numbers.childElementCount + 1; line <= count; line++) {
      const item = numbers.appendChild(document.createElement("li"));
      item.classList.toggle("bad", badLines.has(line));
    }
    syncScroll();
  }
  const syncScroll = () => (numbers.scrollTop = text.scrollTop);

  text.addEventListener("input", numberLines);
  text.addEventListener("scroll", syncScroll);
  numberLines();
}

/** Links errors to their lines. */
for (const link of document.querySelectorAll("a[data-line]")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    const text = document.querySelector(".editor textarea");
    const lines = text.value.split("\n");
    const offset = lines.slice(0, Number(link.dataset.line) - 1).join("\n").length;
    const start = offset ? offset + 1 : 0;
    text.focus();
    text.setSelectionRange(start, start + lines[Number(link.dataset.line) - 1].length);
    text.scrollTop = (Number(link.dataset.line) - 5) * parseFloat(getComputedStyle(text).lineHeight);
    text.scrollIntoView({ block: "nearest" });
  });
}
