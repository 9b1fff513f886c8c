"use strict";
// Theme, full values on hover, everything open on paper.
(() => {
  const words = document.getElementById("vocabulary");
  if (words) (globalThis.TA ??= {}).words = JSON.parse(words.textContent);
  const root = document.documentElement, button = document.getElementById("theme");
  const stored = () => { try { return localStorage.getItem("traceanalyzer-theme"); } catch { return null; } };
  const prefers = matchMedia("(prefers-color-scheme: dark)");
  const use = (theme) => {
    root.dataset.theme = theme;
    button.textContent = theme === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Use the ${theme === "dark" ? "light" : "dark"} theme`);
    document.dispatchEvent(new Event("themechange"));
  };
  button.hidden = false;
  use(stored() ?? (prefers.matches ? "dark" : "light"));
  prefers.addEventListener("change", () => { if (!stored()) use(prefers.matches ? "dark" : "light"); });
  button.addEventListener("click", () => {
    use(root.dataset.theme === "dark" ? "light" : "dark");
    try { localStorage.setItem("traceanalyzer-theme", root.dataset.theme); } catch { /* a page without storage forgets */ }
  });

  // Cells carry their full value once, as data; it becomes a title when somebody points at it.
  document.addEventListener("mouseover", (e) => {
    const cell = e.target.closest?.("td[data-v]");
    if (cell && !cell.title) cell.title = cell.dataset.v;
  });
  // A link to a table opens it, and what it lies in.
  const open = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    target.querySelector(":scope > details")?.setAttribute("open", "");
    let inside = target.closest("details");
    if (!inside) return;
    for (; inside; inside = inside.parentElement.closest("details")) inside.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", open); open();
})();
