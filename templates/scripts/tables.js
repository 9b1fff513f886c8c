"use strict";
// Tables: sort by a column's head, search, filter by kind, copy as CSV.
(() => {
  const MANY = 10;
  const text = (row, column) => { const cell = row.cells[column]; return cell.dataset.v ?? cell.textContent; };
  const value = (row, column) => { const own = text(row, column), number = Number(own); return own === "n/a" || own === "" ? null : Number.isNaN(number) ? own : number; };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));

  // Rows after the first ones are unpacked once, when somebody looks at the table.
  const unpack = async (holder, table) => {
    const source = holder.querySelector("script.rows");
    if (!source) return;
    source.remove();
    const columns = JSON.parse(new TextDecoder().decode(await globalThis.TA.inflate(JSON.parse(source.textContent))));
    const classes = [...table.tHead.rows[0].cells].map((head) => head.className), body = document.createDocumentFragment();
    for (let i = 0; i < columns[0].length; i++) {
      const row = document.createElement("tr");
      columns.forEach((column, at) => {
        const cell = row.insertCell(), [text, full] = Array.isArray(column[i]) ? column[i] : [column[i]];
        cell.textContent = text;
        if (full) cell.dataset.v = full;
        if (classes[at]) cell.className = classes[at];
      });
      body.append(row);
    }
    table.tBodies[0].append(body); holder.querySelector(".later-rows").remove();
    linked(table, holder.dataset.name);
    table.dispatchEvent(new Event("sorted"));
  };

  // A row that is of a rank leads to it in the timeline: to its stretch, its step, or the rank alone.
  const hasTimeline = document.getElementById("timeline-data") !== null;
  const linked = (table, name) => {
    const heads = [...table.tHead.rows[0].cells].map((cell) => cell.dataset.column), at = Object.fromEntries(["rank", "step", "start_ns", "length_ns"].map((each) => [each, heads.indexOf(each)]));
    if (!hasTimeline || at.rank < 0) return;
    for (const row of table.tBodies[0].rows) {
      const cell = row.cells[at.rank], rank = text(row, at.rank), of = (each) => (at[each] < 0 ? "" : text(row, at[each]));
      if (cell.firstElementChild || !/^\d+$/.test(rank)) continue;
      // Evidence has moments as recorded; other tables count from the first operation.
      const place = of("start_ns") && !name.startsWith("evidence") ? `&at=${of("start_ns")}&for=${of("length_ns") || 2e6}` : /^\d+$/.test(of("step")) ? `&step=${of("step")}` : "";
      const link = Object.assign(document.createElement("a"), { href: `#timeline?rank=${rank}${place}`, textContent: cell.textContent, title: "Show in the timeline" });
      cell.replaceChildren(link);
    }
  };

  const sort = (table, column, head) => {
    const falling = head.getAttribute("aria-sort") === "descending" ? false : head.getAttribute("aria-sort") === "ascending" ? true : head.classList.contains("n");
    table.tHead.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows].map((row) => [value(row, column), row]);
    // What is not known stays at the end in both directions.
    rows.sort(([a], [b]) => (a === null ? (b === null ? 0 : 1) : b === null ? -1 : falling ? compare(b, a) : compare(a, b)));
    table.tBodies[0].append(...rows.map(([, row]) => row));
    table.dispatchEvent(new Event("sorted"));
  };

  const csv = (table) => {
    const quoted = (s) => { const safe = /^[=+\-@\t\r]/.test(s) && Number.isNaN(Number(s)) ? `'${s}` : s; return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe; };
    const heads = [...table.tHead.rows[0].cells].map((cell) => cell.dataset.column);
    const rows = [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => heads.map((_, i) => (text(row, i) === "n/a" ? "" : text(row, i))));
    return [heads, ...rows].map((row) => row.map(quoted).join(",")).join("\n");
  };
  const copy = async (content, button) => {
    try { await navigator.clipboard.writeText(content); }
    catch {
      const area = document.createElement("textarea"); area.value = content; document.body.append(area); area.select(); document.execCommand("copy"); area.remove();
    }
    const before = button.textContent; button.textContent = "Copied"; setTimeout(() => { button.textContent = before; }, 1500);
  };

  const filter = (box, table) => {
    const wanted = box.querySelector("input")?.value.trim().toLowerCase() ?? "", kind = box.querySelector("select")?.value ?? "";
    const column = [...table.tHead.rows[0].cells].findIndex((cell) => cell.dataset.column === "kind");
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      const all = [...row.cells].map((cell) => `${cell.textContent} ${cell.dataset.v ?? ""}`).join(" ").toLowerCase();
      row.hidden = !all.includes(wanted) || (kind && text(row, column) !== kind);
      shown += !row.hidden;
    }
    box.querySelector("output").textContent = wanted || kind ? `${shown} of ${table.tBodies[0].rows.length} rows` : "";
  };

  // Wide tables begin with their main columns, all tables so on a narrow screen.
  const moreColumns = (holder, table) => {
    const heads = [...table.tHead.rows[0].cells], isNarrow = matchMedia("(max-width: 640px)").matches;
    const count = heads.filter((head) => head.classList.contains("extra") || (isNarrow && head.classList.contains("narrow-extra"))).length;
    if (!count) return [];
    const button = document.createElement("button"), fold = (folded) => {
      holder.classList.toggle("few-columns", folded); button.setAttribute("aria-expanded", String(!folded));
      button.textContent = folded ? `Show all ${heads.length} columns` : `Hide ${count} columns`;
    };
    button.type = "button"; button.addEventListener("click", () => fold(!holder.classList.contains("few-columns"))); fold(true);
    return [button];
  };

  const tools = (holder, table) => {
    const box = document.createElement("div"), name = holder.dataset.name, rows = [...table.tBodies[0].rows];
    box.className = "table-tools";
    const count = Number(holder.dataset.rows ?? rows.length);
    if (count > MANY) {
      const input = document.createElement("input"); input.type = "search"; input.placeholder = "Search"; input.setAttribute("aria-label", `Search in ${name}`); box.append(input);
      const column = [...table.tHead.rows[0].cells].findIndex((cell) => cell.dataset.column === "kind");
      const kinds = column < 0 ? [] : ["compute", "comm", "copy"].filter((kind) => count > rows.length || rows.some((row) => text(row, column) === kind));
      if (kinds.length > 1) {
        const select = document.createElement("select"); select.setAttribute("aria-label", "Kind"); select.append(new Option("all kinds", ""), ...kinds.map((kind) => new Option(kind === "comm" ? "communication" : kind, kind))); box.append(select);
      }
    }
    const button = document.createElement("button"); button.type = "button"; button.textContent = "Copy as CSV"; button.addEventListener("click", async () => { await unpack(holder, table); copy(csv(table), button); });
    box.append(button, ...moreColumns(holder, table), Object.assign(document.createElement("output"), { className: "quiet" }));
    box.addEventListener("input", async () => { await unpack(holder, table); filter(box, table); });
    holder.before(box);
    // Long tables begin with their first rows; one button shows all, and a search always looks at all.
    const first = Number(holder.dataset.first);
    if (!first) return;
    const all = document.createElement("button"), fold = (folded) => { holder.classList.toggle("folded-rows", folded); all.hidden = !folded; };
    all.type = "button"; all.className = "all-rows"; all.textContent = `Show all ${count.toLocaleString("en-US")} rows`;
    const number = () => [...table.tBodies[0].rows].forEach((row, i) => row.classList.toggle("later", i >= first));
    number(); table.addEventListener("sorted", number);
    all.addEventListener("click", async () => { await unpack(holder, table); fold(false); }); box.addEventListener("input", () => fold(false));
    holder.after(all); fold(true);
  };

  document.querySelectorAll(".table[data-name]").forEach((holder) => {
    const table = holder.querySelector("table");
    if (!table) return;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button"); button.type = "button"; button.append(...head.childNodes); head.append(button);
      button.addEventListener("click", async () => { await unpack(holder, table); sort(table, column, head); });
    });
    tools(holder, table); linked(table, holder.dataset.name);
    holder.closest("details")?.addEventListener("toggle", () => unpack(holder, table));
  });
  // A table that scrolls sideways can be reached and scrolled by keyboard.
  document.querySelectorAll(".table").forEach((holder) => { holder.tabIndex = 0; holder.setAttribute("role", "group"); holder.setAttribute("aria-label", holder.dataset.name ?? "table"); });
})();
