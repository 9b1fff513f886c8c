// Tables: sort by a column's head, search, filter by kind, copy as CSV, rows that lead into the timeline.
import { compare, csvOf, textOf, valueOf } from "./cells.js";
import { html, menu, one } from "./dom.js";
import { inflatedJson } from "./unpack.js";
import { WORDS } from "./words.js";

/** A table that is longer than this can be searched. */
const MANY = 10;

/** @typedef {{ holder: HTMLElement, table: HTMLTableElement, name: string }} Table */

/** @param {HTMLTableElement} table */
const headsOf = (table) => [.../** @type {HTMLTableSectionElement} */ (table.tHead).rows[0].cells];
/** @param {HTMLTableElement} table */
const rowsOfTable = (table) => [...table.tBodies[0].rows];
/** @param {HTMLTableElement} table @param {string} name -1 where there is none */
export const columnOf = (table, name) => headsOf(table).findIndex((cell) => cell.dataset.column === name);

/** Rows after the first ones are unpacked once, when somebody looks at the table. @param {Table} own */
const unpack = async (own) => {
  const { holder, table } = own;
  const source = holder.querySelector("script.rows");
  if (!source) return;
  source.remove();
  const columns = await inflatedJson(JSON.parse(source.textContent ?? ""));
  const classes = headsOf(table).map((head) => head.className);
  const body = document.createDocumentFragment();
  for (let i = 0; i < columns[0].length; i++) {
    const row = document.createElement("tr");
    columns.forEach((/** @type {(string | [text: string, full: string])[]} */ column, /** @type {number} */ at) => {
      const [text, full] = [column[i]].flat();
      const cell = row.insertCell();
      cell.textContent = text;
      if (full) cell.dataset.v = full;
      if (classes[at]) cell.className = classes[at];
    });
    body.append(row);
  }
  table.tBodies[0].append(body);
  one(holder, ".later-rows").remove();
  link(own);
  table.dispatchEvent(new Event("sorted"));
};

const hasTimeline = document.getElementById("timeline-data") !== null;

/** A row that is of a rank leads to it in the timeline: to its stretch, its step, or the rank alone. @param {Table} own */
const link = ({ table, name }) => {
  const at = columnOf(table, "rank");
  if (!hasTimeline || at < 0) return;
  const [step, start, length] = ["step", "start_ns", "length_ns"].map((each) => columnOf(table, each));
  for (const row of rowsOfTable(table)) {
    const of = (/** @type {number} */ column) => (column < 0 ? "" : textOf(row, column));
    const cell = row.cells[at];
    const rank = of(at);
    if (cell.firstElementChild || !/^\d+$/.test(rank)) continue;
    // Evidence has moments as recorded; other tables count from the first operation.
    const hasMoment = of(start) && !name.startsWith("evidence");
    const stepOf = /^\d+$/.test(of(step)) ? `&step=${of(step)}` : "";
    const place = hasMoment ? `&at=${of(start)}&for=${of(length) || 2e6}` : stepOf;
    const href = `#timeline?rank=${rank}${place}`;
    cell.replaceChildren(html("a", { href, title: "Show in the timeline" }, cell.textContent ?? ""));
  }
};

/** @param {Table} own @param {number} column @param {HTMLElement} head */
const sort = ({ table }, column, head) => {
  const before = head.getAttribute("aria-sort");
  const isFalling = before ? before === "ascending" : head.classList.contains("n");
  headsOf(table).forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", isFalling ? "descending" : "ascending");
  const rows = rowsOfTable(table).map((row) => ({ row, value: valueOf(textOf(row, column)) }));
  rows.sort((a, b) => compare(a.value, b.value, isFalling));
  table.tBodies[0].append(...rows.map(({ row }) => row));
  table.dispatchEvent(new Event("sorted"));
};

/** What is shown of a table, as CSV. @param {HTMLTableElement} table */
const csv = (table) => {
  const heads = headsOf(table).map((cell) => cell.dataset.column ?? "");
  const shown = rowsOfTable(table).filter((row) => !row.hidden);
  const text = (/** @type {HTMLTableRowElement} */ row, /** @type {number} */ at) =>
    textOf(row, at).replace(/^n\/a$/, "");
  return csvOf([heads, ...shown.map((row) => heads.map((_, at) => text(row, at)))]);
};

/** @param {string} content @param {HTMLElement} button */
const copy = async (content, button) => {
  try {
    await navigator.clipboard.writeText(content);
  } catch {
    const area = html("textarea", { value: content });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const before = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => {
    button.textContent = before;
  }, 1500);
};

/** @param {HTMLElement} box @param {HTMLTableElement} table */
const filter = (box, table) => {
  const wanted = box.querySelector("input")?.value.trim().toLowerCase() ?? "";
  const kind = box.querySelector("select")?.value ?? "";
  const column = columnOf(table, "kind");
  const rows = rowsOfTable(table);
  let shown = 0;
  for (const row of rows) {
    const all = [...row.cells].map((cell) => `${cell.textContent} ${cell.dataset.v ?? ""}`).join(" ");
    const isOfKind = !kind || textOf(row, column) === kind;
    row.hidden = !isOfKind || !all.toLowerCase().includes(wanted);
    if (!row.hidden) shown++;
  }
  one(box, "output").textContent = wanted || kind ? `${shown} of ${rows.length} rows` : "";
};

/** Wide tables begin with their main columns, all tables so on a narrow screen. @param {Table} own */
const moreColumns = ({ holder, table }) => {
  const heads = headsOf(table);
  const isNarrow = matchMedia("(max-width: 640px)").matches;
  const isFolded = (/** @type {HTMLElement} */ { classList }) =>
    classList.contains("extra") || (isNarrow && classList.contains("narrow-extra"));
  const count = heads.filter(isFolded).length;
  if (!count) return [];
  const button = html("button", { type: "button" });
  const fold = (/** @type {boolean} */ folded) => {
    holder.classList.toggle("few-columns", folded);
    button.setAttribute("aria-expanded", String(!folded));
    button.textContent = folded ? `Show all ${heads.length} columns` : `Hide ${count} columns`;
  };
  button.addEventListener("click", () => fold(!holder.classList.contains("few-columns")));
  fold(true);
  return [button];
};

/** @param {Table} own @param {number} count of all rows, those that are packed too @returns {HTMLElement[]} */
const searchTools = ({ table, name }, count) => {
  if (count <= MANY) return [];
  const input = html("input", { type: "search", placeholder: "Search", ariaLabel: `Search in ${name}` });
  const rows = rowsOfTable(table);
  const column = columnOf(table, "kind");
  const isThere = (/** @type {string} */ kind) =>
    count > rows.length || rows.some((row) => textOf(row, column) === kind);
  const kinds = column < 0 ? [] : ["compute", "comm", "copy"].filter(isThere);
  if (kinds.length < 2) return [input];
  const select = menu([["all kinds", ""], ...kinds.map((kind) => /** @type {[string, string]} */ ([WORDS.kinds[kind].label, kind]))]); // prettier-ignore
  select.ariaLabel = "Kind";
  return [input, select];
};

/** @param {Table} own */
const addTools = (own) => {
  const { holder, table } = own;
  const count = Number(holder.dataset.rows ?? rowsOfTable(table).length);
  const button = html("button", { type: "button" }, "Copy as CSV");
  button.addEventListener("click", async () => {
    await unpack(own);
    copy(csv(table), button);
  });
  const output = html("output", { className: "quiet" });
  const box = html(
    "div",
    { className: "table-tools" },
    ...searchTools(own, count),
    button,
    ...moreColumns(own),
    output,
  );
  box.addEventListener("input", async () => {
    await unpack(own);
    filter(box, table);
  });
  holder.before(box);
  if (holder.dataset.first) foldRows(own, Number(holder.dataset.first), count, box);
};

/** Long tables begin with their first rows; one button shows all, and a search always looks at all.
 * @param {Table} own @param {number} first @param {number} count @param {HTMLElement} box */
const foldRows = (own, first, count, box) => {
  const { holder, table } = own;
  const all = html(
    "button",
    { type: "button", className: "all-rows" },
    `Show all ${count.toLocaleString("en-US")} rows`,
  );
  const fold = (/** @type {boolean} */ folded) => {
    holder.classList.toggle("folded-rows", folded);
    all.hidden = !folded;
  };
  const number = () => rowsOfTable(table).forEach((row, i) => row.classList.toggle("later", i >= first));
  number();
  table.addEventListener("sorted", number);
  all.addEventListener("click", async () => {
    await unpack(own);
    fold(false);
  });
  box.addEventListener("input", () => fold(false));
  holder.after(all);
  fold(true);
};

export const startTables = () => {
  for (const holder of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".table[data-name]"))) {
    const table = holder.querySelector("table");
    if (!table) continue;
    const own = { holder, table, name: holder.dataset.name ?? "" };
    headsOf(table).forEach((head, column) => {
      const button = html("button", { type: "button" }, ...head.childNodes);
      head.append(button);
      button.addEventListener("click", async () => {
        await unpack(own);
        sort(own, column, head);
      });
    });
    addTools(own);
    link(own);
    holder.closest("details")?.addEventListener("toggle", () => unpack(own));
  }
  // A table that scrolls sideways can be reached and scrolled by keyboard.
  for (const holder of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".table"))) {
    holder.tabIndex = 0;
    holder.role = "group";
    holder.ariaLabel = holder.dataset.name ?? "table";
  }
};

/** Rows of tables that are of the chosen step are marked, wherever they stand. */
export const startStepMarks = () =>
  document.addEventListener("stepchosen", (event) => {
    const step = String(/** @type {CustomEvent<number>} */ (event).detail);
    for (const table of /** @type {NodeListOf<HTMLTableElement>} */ (document.querySelectorAll(".table table"))) {
      const column = columnOf(table, "step");
      if (column >= 0)
        rowsOfTable(table).forEach((row) => row.classList.toggle("of-step", textOf(row, column) === step));
    }
  });
