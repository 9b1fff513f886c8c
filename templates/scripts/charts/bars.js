// Bars: ms or percent, sorted by rank or by any part.
import { html, menu, one } from "../page/dom.js";

/** @param {Element} row */
const groupsOf = (row) => [...row.querySelectorAll("g")];
/** @param {SVGGElement} group */
const nsOf = (group) => Number(group.dataset.ns);
const isIdle = (/** @type {string} */ kind) => kind.startsWith("idle-");

/** Puts a row's parts beside one another: of the longest row's time, or of its own.
 * @param {HTMLElement} row @param {boolean} isShare @param {number} longest */
const scale = (row, isShare, longest) => {
  const whole = isShare ? Number(row.dataset.window) : longest;
  let at = 0;
  for (const group of groupsOf(row)) {
    const width = (100 * nsOf(group)) / whole;
    group.querySelectorAll("rect").forEach((rect) => {
      rect.setAttribute("x", `${at}%`);
      rect.setAttribute("width", `${width}%`);
    });
    const text = group.querySelector("text");
    text?.setAttribute("x", `${at + width / 2}%`);
    if (text) text.textContent = (isShare ? group.dataset.pct : group.dataset.ms) ?? "";
    at += width;
  }
};

/** Time of a part on a row, or of all idle time. @param {Element} row @param {string} part */
const sizeOf = (row, part) =>
  groupsOf(row)
    .filter(({ dataset }) => (part === "idle" ? isIdle(dataset.kind ?? "") : dataset.part === part))
    .reduce((sum, group) => sum + nsOf(group), 0);

/** @param {HTMLElement} a @param {HTMLElement} b @param {string} part */
const order = (a, b, part) =>
  part === "rank" ? Number(a.dataset.rank) - Number(b.dataset.rank) : sizeOf(b, part) - sizeOf(a, part);

/** The menu by which rows are sorted; causes of idling in a group of their own where there are several.
 * @param {HTMLElement[]} rows */
const sortMenu = (rows) => {
  /** @type {Map<string, { name: string, kind: string }>} */
  const parts = new Map();
  for (const { dataset } of rows.flatMap(groupsOf))
    parts.set(dataset.part ?? "", { name: dataset.name ?? "", kind: dataset.kind ?? "" });
  const causes = [...parts].filter(([, { kind }]) => isIdle(kind));
  const others = [...parts].filter(([, { kind }]) => !isIdle(kind));
  const select = menu([
    ["rank", "rank"],
    ...others.map(([part, { name }]) => /** @type {[string, string]} */ ([name, part])),
  ]);
  if (causes.length) select.append(new Option("idle", "idle"));
  if (causes.length < 2) return select;
  const options = causes.map(([part, { name }]) => new Option(name.replace(/^idle: /, ""), part));
  select.append(html("optgroup", { label: "idle by cause" }, ...options));
  return select;
};

export const startBars = () => {
  const box = /** @type {HTMLElement | null} */ (document.querySelector(".bars"));
  if (!box) return;
  const list = one(box, ".bar-rows");
  const rows = /** @type {HTMLElement[]} */ ([...list.children]);
  if (rows.length < 2) return;
  const unit = menu([["time", "ms"], ["percent", "%"]]); // prettier-ignore
  unit.addEventListener("change", () =>
    rows.forEach((row) => scale(row, unit.value === "%", Number(box.dataset.longest))),
  );
  const sort = sortMenu(rows);
  sort.addEventListener("change", () => list.append(...[...rows].sort((a, b) => order(a, b, sort.value))));
  const tools = one(box, ".bar-tools");
  tools.append(html("label", {}, "Show ", unit), html("label", {}, "Sort by ", sort));
  tools.hidden = false;
};
