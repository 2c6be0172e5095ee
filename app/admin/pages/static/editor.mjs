// A text that is edited gets numbers beside its lines; those with mistakes are marked.
for (const editor of document.querySelectorAll(".editor")) {
  const text = editor.querySelector("textarea");
  const bad = new Set((editor.dataset.badLines ?? "").split(" ").map(Number));
  const numbers = document.createElement("ol");
  numbers.setAttribute("aria-hidden", "true");
  editor.prepend(numbers);

  function number() {
    const count = text.value.split("\n").length;
    while (numbers.childElementCount > count) numbers.lastChild.remove();
    for (let line = numbers.childElementCount + 1; line <= count; line++) {
      const item = numbers.appendChild(document.createElement("li"));
      item.classList.toggle("bad", bad.has(line));
    }
    follow();
  }
  const follow = () => (numbers.scrollTop = text.scrollTop);

  text.addEventListener("input", number);
  text.addEventListener("scroll", follow);
  number();
}

/** Lead from a mistake to its line. */
for (const link of document.querySelectorAll("a[data-line]")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    const text = document.querySelector(".editor textarea");
    const lines = text.value.split("\n");
    const before = lines.slice(0, Number(link.dataset.line) - 1).join("\n").length;
    const begin = before ? before + 1 : 0;
    text.focus();
    text.setSelectionRange(begin, begin + lines[Number(link.dataset.line) - 1].length);
    text.scrollTop = (Number(link.dataset.line) - 5) * parseFloat(getComputedStyle(text).lineHeight);
    text.scrollIntoView({ block: "nearest" });
  });
}
