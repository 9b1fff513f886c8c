"use strict";
// Every step as a column of its parts, of the mean over ranks or of one; a click chooses the step for the whole page.
(() => {
  const TA = globalThis.TA, { svg } = TA;
  const box = document.querySelector(".step-chart"), HIGH = 150, TOP = 16, LATE = 15;
  // Rows of tables that are of the chosen step are marked, wherever they stand.
  document.addEventListener("stepchosen", ({ detail }) => document.querySelectorAll(".table table").forEach((table) => {
    const column = [...table.tHead.rows[0].cells].findIndex((cell) => cell.dataset.column === "step");
    if (column >= 0) for (const row of table.tBodies[0].rows) row.classList.toggle("of-step", (row.cells[column].dataset.v ?? row.cells[column].textContent) === String(detail));
  }));
  if (!box) return;
  const data = JSON.parse(box.querySelector("script").textContent), holder = box.querySelector(".step-columns"), choice = box.querySelector("select");
  const longest = Math.max(...data.most, ...Object.values(data.ranks).flat().map((parts) => (parts ? parts.reduce((a, b) => a + b, 0) : 0)), data.bare_ns ?? 0);
  const y = (ns) => TOP + HIGH - (HIGH * ns) / longest;
  let chosen = null;

  const words = (at, parts) => `step ${data.steps[at]}${data.complete[at] ? "" : " (not complete)"}: ${TA.time(parts.reduce((a, b) => a + b, 0))}; ${parts.map((ns, i) => (ns ? `${data.parts[i].label} ${TA.time(ns)}` : "")).filter(Boolean).join(", ")}${choice.value === "mean" && data.least[at] !== data.most[at] ? `; ranks from ${TA.time(data.least[at])} to ${TA.time(data.most[at])}` : ""}`;
  const draw = () => {
    const width = holder.clientWidth || 600, left = 62, n = data.steps.length, each = Math.min(110, (width - left) / n), gap = Math.min(10, each * 0.2), of = choice.value === "mean" ? data.mean : data.ranks[choice.value];
    const height = TOP + HIGH + 20 + LATE * data.late.length, drawing = svg("svg", { height, viewBox: `0 0 ${width} ${height}` });
    for (const share of [0, 0.5, 1]) drawing.append(svg("line", { x1: left, x2: width, y1: y(share * longest), y2: y(share * longest), class: "grid", stroke: "var(--rule)" }), svg("text", { x: left - 6, y: y(share * longest) + 4, "text-anchor": "end" }, share ? TA.time(share * longest) : "0"));
    const every = Math.ceil(34 / each);
    data.steps.forEach((step, at) => {
      const parts = of[at], x = left + at * each + gap / 2, w = Math.max(1, each - gap);
      if (!parts) return;
      const group = svg("g", { role: "button", tabindex: 0, "aria-label": `${words(at, parts)}; choose this step`, "data-step": step, ...(data.complete[at] ? {} : { opacity: 0.45 }) }, svg("title", {}, words(at, parts)));
      let sum = 0;
      parts.forEach((ns, i) => {
        if (!ns) return;
        const shape = { x, width: w, y: y(sum + ns), height: (HIGH * ns) / longest }, { kind } = data.parts[i];
        group.append(svg("rect", { ...shape, class: `k-${kind}` }));
        if (TA.words.patterns[kind]) group.append(svg("rect", { ...shape, class: `p-${kind}` }));
        sum += ns;
      });
      if (choice.value === "mean" && data.most[at] - data.least[at] > 0.005 * longest) {
        const middle = x + w / 2, [a, b] = [y(data.most[at]), y(data.least[at])];
        group.append(svg("path", { class: "spread", fill: "none", d: `M${middle - 4} ${a}h8M${middle} ${a}V${b}M${middle - 4} ${b}h8` }));
      }
      group.append(svg("rect", { class: "frame", x: x - 1, width: w + 2, y: TOP - 1, height: HIGH + 2 }));
      if (at % every === 0) group.append(svg("text", { x: x + w / 2, y: TOP + HIGH + 15, "text-anchor": "middle" }, String(step)));
      if (step === chosen) group.classList.add("chosen");
      const choose = () => TA.showStep?.(step);
      group.addEventListener("click", choose);
      group.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); } });
      drawing.append(group);
    });
    if (data.bare_ns) drawing.append(svg("line", { class: "bare", x1: left, x2: width, y1: y(data.bare_ns), y2: y(data.bare_ns) }), svg("text", { x: width - 4, y: y(data.bare_ns) - 4, "text-anchor": "end" }, `${TA.time(data.bare_ns)} without the profiler`));
    data.late.forEach(({ ranks, cause, steps }, row) => {
      const top = TOP + HIGH + 20 + row * LATE, told = TA.words.parts[`idle-${cause}`]?.replace(/^idle: /, "") ?? cause;
      steps.forEach((step) => { const at = data.steps.indexOf(step); if (at >= 0) drawing.append(svg("rect", { class: "late", x: left + at * each + gap / 2, width: Math.max(1, each - gap), y: top + 11, height: 3 })); });
      const from = Math.max(0, data.steps.indexOf(steps[0])), words = `${/^\d+$/.test(ranks) ? "rank" : "ranks"} ${ranks.length > 24 ? `${ranks.slice(0, 22)}…` : ranks} late: ${told}`;
      drawing.append(svg("text", { class: "late", x: Math.min(left + from * each + gap / 2, width - 7 * words.length), y: top + 9 }, words));
    });
    holder.replaceChildren(drawing);
  };
  choice.addEventListener("change", draw);
  document.addEventListener("stepchosen", ({ detail }) => { chosen = detail; holder.querySelectorAll("g[data-step]").forEach((group) => group.classList.toggle("chosen", Number(group.dataset.step) === detail)); });
  let width = 0;
  new ResizeObserver(() => { if (holder.clientWidth !== width) { width = holder.clientWidth; draw(); } }).observe(holder);
  draw();
})();
