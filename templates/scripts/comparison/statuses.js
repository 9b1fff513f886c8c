// Joined tables: show only what is new, removed, changed or the same.
import { html } from "../page/dom.js";

/** @type {Record<string, string>} */
const NAMES = {
  DIFFERENT: "all differences",
  NEW: "new",
  REMOVED: "removed",
  CHANGED: "changed",
  SAME: "same",
  ALL: "all rows",
};

/** Whether a row is shown under a choice. @param {string | undefined} status @param {string} choice */
const isShown = (status, choice) =>
  choice === "ALL" || status === choice || (choice === "DIFFERENT" && status !== "SAME");

export const startStatuses = () => {
  for (const section of document.querySelectorAll(".joined")) {
    const box = /** @type {HTMLElement | null} */ (section.querySelector(".statuses"));
    const table = section.querySelector("table");
    if (!box || !table) continue;
    const rows = [...table.tBodies[0].rows];
    const count = (/** @type {string} */ choice) => rows.filter((row) => isShown(row.dataset.status, choice)).length;
    const use = (/** @type {string} */ choice) => {
      table.className = choice === "ALL" ? "" : `only-${choice}`;
      box
        .querySelectorAll("button")
        .forEach((button) => button.setAttribute("aria-pressed", String(button.value === choice)));
    };
    for (const [choice, name] of Object.entries(NAMES)) {
      const found = count(choice);
      const button = html("button", { type: "button", value: choice, disabled: !found }, `${name} ${found}`);
      button.addEventListener("click", () => use(choice));
      box.append(button);
    }
    box.hidden = false;
    use(count("DIFFERENT") ? "DIFFERENT" : "ALL");
  }
};
