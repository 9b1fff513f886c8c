"use strict";
// Joined tables: show only what is new, removed, changed or the same.
(() => {
  const NAMES = { DIFFERENT: "all differences", NEW: "new", REMOVED: "removed", CHANGED: "changed", SAME: "same", ALL: "all rows" };
  document.querySelectorAll(".joined").forEach((section) => {
    const box = section.querySelector(".statuses"), table = section.querySelector("table");
    if (!box || !table) return;
    const rows = [...table.tBodies[0].rows];
    const count = (status) => rows.filter((row) => status === "ALL" || row.dataset.status === status || (status === "DIFFERENT" && row.dataset.status !== "SAME")).length;
    const use = (status) => {
      table.className = status === "ALL" ? "" : `only-${status}`;
      box.querySelectorAll("button").forEach((button) => button.setAttribute("aria-pressed", String(button.value === status)));
    };
    for (const status of Object.keys(NAMES)) {
      const button = document.createElement("button");
      button.type = "button"; button.value = status; button.textContent = `${NAMES[status]} ${count(status)}`; button.disabled = !count(status);
      button.addEventListener("click", () => use(status));
      box.append(button);
    }
    box.hidden = false;
    use(count("DIFFERENT") ? "DIFFERENT" : "ALL");
  });
})();
