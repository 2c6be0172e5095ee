// Before the first paint, so that nothing flashes: the theme that was chosen here, else the system's.
const chosen = localStorage.getItem("theme");
if (chosen) document.documentElement.dataset.theme = chosen;
