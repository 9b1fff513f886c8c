// The theme, full values on hover, and links that open what they lead to.
import { byId } from "./dom.js";

const KEY = "traceanalyzer-theme";

const stored = () => {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // a page without storage has none
  }
};

/** @param {string} theme */
const store = (theme) => {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    /* a page without storage forgets */
  }
};

export const startTheme = () => {
  const root = document.documentElement;
  const button = byId("theme");
  const prefers = matchMedia("(prefers-color-scheme: dark)");
  const preferred = () => (prefers.matches ? "dark" : "light");
  const paper = matchMedia("print"); // it is white, whatever the theme
  let chosen = "light";
  const use = (/** @type {string} */ theme) => {
    chosen = theme;
    root.dataset.theme = paper.matches ? "light" : theme;
    button.textContent = theme === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Use the ${theme === "dark" ? "light" : "dark"} theme`);
    document.dispatchEvent(new Event("themechange"));
  };
  button.hidden = false;
  use(stored() ?? preferred());
  prefers.addEventListener("change", () => {
    if (!stored()) use(preferred());
  });
  paper.addEventListener("change", () => use(chosen));
  button.addEventListener("click", () => {
    const theme = chosen === "dark" ? "light" : "dark";
    use(theme);
    store(theme);
  });
};

/** Cells carry their full value once, as data; it becomes a title when somebody points at it. */
export const startTitles = () =>
  document.addEventListener("mouseover", ({ target }) => {
    const cell = target instanceof Element ? target.closest("td[data-v]") : null;
    if (cell instanceof HTMLElement && !cell.title) cell.title = cell.dataset.v ?? "";
  });

/** A link to a table opens it, and what it lies in. */
export const startLinks = () => {
  const open = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    target.querySelector(":scope > details")?.setAttribute("open", "");
    let inside = target.closest("details");
    if (!inside) return;
    for (; inside; inside = inside.parentElement?.closest("details") ?? null) inside.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", open);
  open();
};
