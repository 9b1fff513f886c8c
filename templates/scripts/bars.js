"use strict";
// Bars: ms or per cent, sorted by rank or by any part.
(() => {
  const box = document.querySelector(".bars");
  if (!box) return;
  const list = box.querySelector(".bar-rows"), rows = [...list.children], longest = Number(box.dataset.longest), tools = box.querySelector(".bar-tools");
  const groups = (row) => [...row.querySelectorAll("g")];
  rows.forEach((row) => groups(row).forEach((g) => { const title = document.createElementNS("http://www.w3.org/2000/svg", "title"); title.textContent = g.dataset.label; g.prepend(title); }));
  if (rows.length < 2) return;

  const scale = (unit) => rows.forEach((row) => {
    const whole = unit === "%" ? Number(row.dataset.window) : longest;
    let at = 0;
    for (const g of groups(row)) {
      const width = (100 * Number(g.dataset.ns)) / whole;
      g.querySelectorAll("rect").forEach((rect) => { rect.setAttribute("x", `${at}%`); rect.setAttribute("width", `${width}%`); });
      const text = g.querySelector("text");
      if (text) { text.setAttribute("x", `${at + width / 2}%`); text.textContent = unit === "%" ? text.dataset.pct : text.dataset.ms; }
      at += width;
    }
  });
  const IDLE = "idle: ", isIdle = (kind) => kind.startsWith("idle-");
  const size = (row, wanted) => groups(row).filter((g) => (wanted === "idle" ? isIdle(g.dataset.kind) : g.dataset.part === wanted)).reduce((sum, g) => sum + Number(g.dataset.ns), 0);
  const sort = (part) => list.append(...[...rows].sort((a, b) => (part === "rank" ? a.dataset.rank - b.dataset.rank : size(b, part) - size(a, part))));

  const choice = (label, options, act, more) => {
    const holder = document.createElement("label"), select = document.createElement("select");
    select.append(...options.map(([name, value]) => new Option(name, value)));
    if (more) { const group = document.createElement("optgroup"); group.label = more[0]; group.append(...more[1].map(([name, value]) => new Option(name, value))); select.append(group); }
    select.addEventListener("change", () => act(select.value));
    holder.append(`${label} `, select); tools.append(holder);
  };
  const parts = [...new Map(rows.flatMap((row) => groups(row).map((g) => [g.dataset.part, [g.dataset.name, g.dataset.kind]])))].map(([part, [name, kind]]) => [name, part, kind]);
  const causes = parts.filter(([, , kind]) => isIdle(kind)).map(([name, part]) => [name.slice(IDLE.length), part]);
  choice("Show", [["time", "ms"], ["per cent", "%"]], scale);
  choice("Sort by", [["rank", "rank"], ...parts.filter(([, , kind]) => !isIdle(kind)).map(([name, part]) => [name, part]), ...(causes.length ? [["idle", "idle"]] : [])], sort, causes.length > 1 && ["idle by cause", causes]);
  tools.hidden = false;
})();
