// Runs before the first paint, so nothing flashes: the theme chosen in this browser, else the system's.
const storedTheme = localStorage.getItem("theme");
if (storedTheme) document.documentElement.dataset.theme = storedTheme;
