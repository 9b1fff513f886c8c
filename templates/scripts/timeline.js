"use strict";
// What a reader does with the timeline: zoom, move, fold, search, point at and open an operation.
(() => {
  const TA = globalThis.TA;
  const WORDS = TA.words;
  const LEAST = 100, byId = (id) => document.getElementById(id);
  let view, canvas, ctx, scroller;

  const start = async () => {
    const box = byId("tl");
    if (!box) return;
    const data = await TA.loadTimeline();
    if (!data || !data.ranks.length) return;
    box.hidden = false;
    canvas = byId("tl-canvas"); ctx = canvas.getContext("2d"); scroller = box.querySelector(".tl-scroll");
    view = { data, t0: 0, t1: data.end || 1, scroll: 0, dim: 1, step: null, folded: new Set(data.ranks.length > 8 ? data.ranks.map((r) => r.rank) : []), colours: TA.colours() };
    TA.view = view;
    const pad = data.end * 0.005; view.whole = [-pad, data.end + pad]; [view.t0, view.t1] = view.whole;
    arrange();
    new ResizeObserver(resize).observe(scroller);
    const recolour = () => { view.colours = TA.colours(); view.fills = null; };
    document.addEventListener("themechange", () => { recolour(); redraw(); });
    // Paper is white whatever the theme, and printing does not wait for the next frame.
    matchMedia("print").addEventListener("change", () => { recolour(); TA.draw(ctx, view); });
    scroller.addEventListener("scroll", () => { view.scroll = scroller.scrollTop; redraw(); }, { passive: true });
    pointer(); keys(); tools(box); legend(box);
    resize(); TA.draw(ctx, view); inView();
    document.documentElement.dataset.timeline = "ready";
  };

  const arrange = () => {
    view.layout = TA.layout(view.data, view.folded);
    const total = view.layout.height + TA.AXIS, shown = Math.min(total, Math.max(260, Math.round(innerHeight * 0.72)));
    scroller.style.height = `${shown}px`;
    scroller.querySelector(".tl-spacer").style.height = `${total - shown}px`;
    canvas.style.height = `${shown}px`;
    view.height = shown;
  };
  const resize = () => {
    view.ratio = Math.min(2, devicePixelRatio || 1); view.width = scroller.clientWidth; view.left = TA.gutter(view.width); view.fills = null;
    canvas.width = view.width * view.ratio; canvas.height = view.height * view.ratio;
    redraw();
  };
  let waiting = 0;
  const redraw = () => { waiting ||= requestAnimationFrame(() => { waiting = 0; TA.draw(ctx, view); inView(); }); };

  const show = (t0, t1, step = null) => {
    const [low, high] = view.whole; view.step = step;
    const span = Math.min(high - low, Math.max(LEAST, t1 - t0));
    const from = Math.min(Math.max((t0 + t1 - span) / 2, low), high - span);
    view.t0 = from; view.t1 = from + span;
    redraw(); announce();
  };
  TA.showTimeline = (t0, t1) => { show(t0, t1); byId("timeline").scrollIntoView(); };
  const zoom = (factor, at = (view.t0 + view.t1) / 2) => show(at - (at - view.t0) * factor, at + (view.t1 - at) * factor);
  const move = (share) => { const by = share * (view.t1 - view.t0); show(view.t0 + by, view.t1 + by); };

  // Steps of the rank at the top of the picture: one for all ranks, since they share the time axis.
  const goStep = (by) => {
    const steps = (view.data.ranks.find((r) => r.steps.length) ?? { steps: [] }).steps;
    if (!steps.length) return;
    const middle = (view.t0 + view.t1) / 2, isWhole = view.t1 - view.t0 > (steps[0][3] - steps[0][2]) * 1.5;
    let row = steps.findIndex((s) => (view.step === null ? !isWhole && s[2] <= middle && middle < s[3] : s[1] === view.step));
    row = row < 0 ? (by < 0 ? steps.length - 1 : 0) : Math.min(steps.length - 1, Math.max(0, row + by));
    showStep(steps[row][1]);
  };
  const ofStep = (number) => view.data.ranks.flatMap((rank) => rank.steps.filter((s) => s[1] === number).map((s) => [rank, s]));
  const showStep = (number) => {
    const all = ofStep(number).map(([, s]) => s);
    show(Math.min(...all.map((s) => s[2])), Math.max(...all.map((s) => s[3])), number);
  };

  const hit = (px, py) => {
    if (py < TA.AXIS) return {};
    const y = py - TA.AXIS + view.scroll, row = view.layout.rows.find((r) => y >= r.y && y < r.y + r.height);
    if (!row || px < view.left) return { row };
    const t = TA.timeAt(view, px), slack = (3 * (view.t1 - view.t0)) / (view.width - view.left);
    if (row.part === "idle" || row.part === "folded") return { row, t };
    const lane = row.rank.lanes.find((l) => l.kind === row.part);
    if (!lane) return { row, t };
    const depth = Math.floor(((y - row.y) / row.height) * lane.rows);
    let best = null;
    for (let i = TA.rowAt(lane.starts, t + slack); i >= 0 && lane.starts[i] >= t - slack - lane.longest; i--) {
      const op = lane.ops[i], away = Math.max(0, row.rank.start[op] - t, t - row.rank.end[op]) + (lane.depth[i] === depth ? 0 : slack / 2);
      if (away <= slack && (!best || away < best.away)) best = { op, away };
      if (best && best.away === 0) break;
    }
    return { row, t, lane, op: best?.op };
  };

  const facts = (rank, op) => {
    const { data } = view, [short, full, kind] = data.names[rank.name[op]], place = rank.place[op];
    const lines = [["Operation", short], ["Rank", rank.rank], ["Kind", WORDS.kinds[kind]?.one], ["Duration", TA.time(rank.end[op] - rank.start[op])], ["Start", TA.time(rank.start[op])],
      ["Stream", rank.streams[rank.stream[op]]], ["Step", rank.step[op] ? rank.step[op] - 1 : "none"]];
    if (kind === "comm") {
      if (rank.call[place]) lines.push(["Call", data.calls[rank.call[place] - 1]]);
      lines.push(["Size", rank.callBytes[place] ? TA.bytes(rank.callBytes[place] - 1) : "n/a"]);
      if (rank.wait[place]) lines.push(["Wait", TA.time(rank.wait[place] - 1)], ["Transfer", TA.time(rank.end[op] - rank.start[op] - rank.wait[place] + 1)]);
      if (rank.why[place]) lines.push(["Transfer and wait", `not told apart: ${data.whys[rank.why[place] - 1]}`]);
    }
    if (kind === "copy" && rank.copyBytes[place]) lines.push(["Size", TA.bytes(rank.copyBytes[place] - 1)]);
    lines.push(["Launch", rank.launch[op] ? `${data.launches[rank.launch[op] - 1]}${rank.delay[op] ? `, ${TA.time(rank.delay[op] - 1)} before it ran` : ""}` : "not in the capture"]);
    if (rank.operator[op]) lines.push(["Operator", data.operators[rank.operator[op] - 1]]);
    if (rank.path[op]) lines.push(["In the code", data.paths[rank.path[op] - 1]]);
    return { lines, full };
  };

  const details = (rank, op) => {
    const box = byId("tl-details");
    box.replaceChildren();
    view.selected = rank ? { rank, op, kind: view.data.names[rank.name[op]][2] } : null;
    if (rank) {
      const { lines, full } = facts(rank, op), list = document.createElement("dl"), name = document.createElement("p");
      for (const [term, value] of lines) { const dt = document.createElement("dt"), dd = document.createElement("dd"); dt.textContent = term; dd.textContent = value; const pair = document.createElement("div"); pair.append(dt, dd); list.append(pair); }
      list.dataset.ns = rank.end[op] - rank.start[op];
      name.className = "full-name"; name.textContent = full;
      box.append(list, name);
    }
    redraw();
  };

  const tip = (px, py, found) => {
    const box = scroller.querySelector(".tl-tip");
    let text = "";
    if (found.op !== undefined && found.op !== null) {
      const { rank } = found.row, [short, , kind] = view.data.names[rank.name[found.op]], call = kind === "comm" ? rank.wait[rank.place[found.op]] : 0;
      text = `${short} · ${TA.time(rank.end[found.op] - rank.start[found.op])}${call > 1 ? ` (wait ${TA.time(call - 1)})` : ""}`;
    } else if (found.row && found.t !== undefined) text = about(found);
    box.hidden = !text;
    if (!text) return;
    box.textContent = text;
    box.style.left = `${Math.max(0, Math.min(px + 12, view.width - box.offsetWidth - 4))}px`;
    box.style.top = `${py + 16 + view.scroll}px`;
  };
  const about = ({ row, t }) => {
    const { rank } = row;
    if (row.part === "steps") { const s = rank.steps.find((item) => item[2] <= t && t < item[3]); return s ? `step ${s[1]} · ${TA.time(s[3] - s[2])}; click to see it alone` : ""; }
    if (row.part.startsWith("band")) { const b = rank.bands.find((item) => item[4] === Number(row.part.slice(4)) && item[2] <= t && t < item[3]); return b ? `${b[1]} · ${TA.time(b[3] - b[2])} on the GPU` : ""; }
    const at = TA.rowAt(rank.busy.s, t), from = at < 0 ? rank.first : rank.busy.e[at], to = rank.busy.s[at + 1];
    if (t < from || to === undefined) return "";
    const i = TA.rowAt(rank.gap.start, t), isGap = i >= 0 && t < rank.gap.start[i] + rank.gap.length[i], doing = isGap && rank.gap.doing[i];
    return `idle · ${TA.time(to - from)}${isGap ? ` · ${WORDS.causes[view.data.causes[rank.gap.cause[i]]]?.short ?? ""}${doing ? `: ${view.data.doings[doing - 1]}` : ""}` : ""}`;
  };

  const pointer = () => {
    const points = new Map();
    let from = null, panning = false, moved = false, pinch = null;
    const place = (e) => { const box = canvas.getBoundingClientRect(); return [e.clientX - box.left, e.clientY - box.top]; };
    canvas.addEventListener("pointerdown", (e) => {
      if (e.button > 1) return;
      points.set(e.pointerId, place(e)); canvas.setPointerCapture(e.pointerId);
      from = place(e); moved = false; panning = e.pointerType === "touch" || e.shiftKey || e.button === 1;
      if (points.size === 2) { const [a, b] = [...points.values()]; pinch = { gap: Math.abs(a[0] - b[0]) || 1, middle: TA.timeAt(view, (a[0] + b[0]) / 2) }; view.drag = null; }
    });
    canvas.addEventListener("pointermove", (e) => {
      const at = place(e), before = points.get(e.pointerId);
      if (!before) { tip(...at, hit(...at)); canvas.style.cursor = at[0] < view.left ? "pointer" : "crosshair"; return; }
      points.set(e.pointerId, at);
      if (pinch && points.size === 2) { const [a, b] = [...points.values()], gap = Math.abs(a[0] - b[0]) || 1; zoom(pinch.gap / gap, pinch.middle); pinch.gap = gap; moved = true; return; }
      if (Math.abs(at[0] - from[0]) > 4) moved = true;
      if (!moved) return;
      if (panning) move((before[0] - at[0]) / (view.width - view.left));
      else if (from[0] >= view.left) { view.drag = [from[0], Math.max(view.left, at[0])]; redraw(); }
    });
    const up = (e) => {
      const at = place(e);
      points.delete(e.pointerId);
      if (pinch) { pinch = points.size ? pinch : null; return; }
      if (view.drag) { const [a, b] = view.drag.map((px) => TA.timeAt(view, px)); view.drag = null; if (e.type === "pointerup") show(Math.min(a, b), Math.max(a, b)); }
      else if (!moved && e.type === "pointerup") click(...at);
    };
    canvas.addEventListener("pointerup", up); canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", () => { scroller.querySelector(".tl-tip").hidden = true; });
    canvas.addEventListener("wheel", (e) => {
      if (!(e.ctrlKey || e.metaKey || document.activeElement === canvas)) return;
      e.preventDefault();
      if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) move((e.deltaX || e.deltaY) / 800);
      else zoom(Math.exp(e.deltaY * (e.ctrlKey ? 0.01 : 0.0016)), TA.timeAt(view, place(e)[0]));
    }, { passive: false });
  };

  const click = (px, py) => {
    canvas.focus({ preventScroll: true });
    const found = hit(px, py);
    if (found.row && px < view.left) return fold(found.row.rank.rank);
    if (found.row?.part === "folded") return fold(found.row.rank.rank);
    if (found.row?.part === "steps") { const s = found.row.rank.steps.find((item) => item[2] <= found.t && found.t < item[3]); if (s) showStep(s[1]); return undefined; }
    return details(found.op === undefined ? null : found.row.rank, found.op);
  };
  const fold = (rank) => { if (!view.folded.delete(rank)) view.folded.add(rank); arrange(); resize(); };

  const nextOperation = (by) => {
    const { selected } = view, rank = selected?.rank ?? view.data.ranks[0], lane = rank.lanes.find((l) => l.kind === (selected?.kind ?? "compute"));
    if (!lane.ops.length) return;
    const now = selected ? lane.ops.indexOf(selected.op) + by : TA.rowAt(lane.starts, view.t0) + 1;
    const op = lane.ops[Math.min(lane.ops.length - 1, Math.max(0, now))];
    details(rank, op);
    if (rank.start[op] < view.t0 || rank.end[op] > view.t1) { const half = (view.t1 - view.t0) / 2; show(rank.start[op] - half, rank.start[op] + half); }
  };
  const keys = () => canvas.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const does = { "+": () => zoom(0.5), "=": () => zoom(0.5), w: () => zoom(0.5), "-": () => zoom(2), s: () => zoom(2), ArrowLeft: () => move(-0.2), a: () => move(-0.2), ArrowRight: () => move(0.2), d: () => move(0.2),
      0: () => show(...view.whole), Home: () => show(...view.whole), "[": () => goStep(-1), "]": () => goStep(1), ",": () => nextOperation(-1), ".": () => nextOperation(1), Escape: () => details(null) }[e.key];
    if (does) { e.preventDefault(); does(); }
  });

  const tools = (box) => {
    const foldAll = () => { if (view.folded.size) view.folded.clear(); else view.data.ranks.forEach((r) => view.folded.add(r.rank)); arrange(); resize(); };
    const does = { whole: () => show(...view.whole), in: () => zoom(0.5), out: () => zoom(2), step: () => goStep(0), previous: () => goStep(-1), next: () => goStep(1), fold: foldAll, save: () => TA.saveTraceEvents(view.data) };
    const button = box.querySelector("[data-do=fold]"), naming = () => { if (button) button.textContent = view.folded.size ? "Expand ranks" : "Collapse ranks"; };
    box.querySelector(".tl-tools").addEventListener("click", (e) => { const name = e.target.dataset?.do; if (name) { does[name](); naming(); } });
    naming();
    box.querySelector(".tl-steps").hidden = !view.data.steps.length;
    document.querySelectorAll(".show-interval").forEach((b) => b.addEventListener("click", () => {
      const zero = BigInt(view.data.zero), [s, e] = [b.dataset.start, b.dataset.end].map((t) => Number(BigInt(t) - zero)), margin = (e - s) * 0.1;
      TA.showTimeline(s - margin, e + margin);
    }));
    search();
  };
  const search = () => byId("tl-search").addEventListener("input", (e) => {
    const wanted = e.target.value.trim().toLowerCase(), { data } = view;
    const ids = data.names.flatMap(([short, full], i) => (`${short}\n${full}`.toLowerCase().includes(wanted) ? [i] : []));
    // By its own name, or by the operator that launched it: of that the name alone, not the shapes behind it.
    const named = new Set(ids), launchers = new Set(data.operators.flatMap((text, i) => (text.split(" ")[0].toLowerCase().includes(wanted) ? [i + 1] : [])));
    view.found = wanted ? { has: (rank, op) => named.has(rank.name[op]) || launchers.has(rank.operator[op]) } : null; view.dim = wanted ? 0.25 : 1;
    let count = 0, time = 0;
    if (wanted) for (const rank of data.ranks) for (let i = 0; i < rank.count; i++) if (view.found.has(rank, i)) { count++; time += rank.end[i] - rank.start[i]; }
    byId("tl-found").textContent = wanted ? `${count.toLocaleString("en-US")} operations, ${TA.time(time)} in all${hiddenIn(wanted, ids)}${ids.length ? "" : launchedBy(launchers)}` : "";
    redraw();
  });
  const launchedBy = (launchers) => {
    const [first, ...others] = new Set([...launchers].map((i) => view.data.operators[i - 1].split(" ")[0]));
    return first ? `; launched by ${first}${others.length ? ` and ${others.length} more` : ""}` : "";
  };
  // Why something is found whose short name does not hold the word: where it stands in the full name.
  const hiddenIn = (wanted, ids) => {
    const full = ids.map((i) => view.data.names[i]).filter(([short]) => !short.toLowerCase().includes(wanted)).map(([, name]) => name);
    if (!full.length) return "";
    const [name] = full, at = name.toLowerCase().indexOf(wanted), from = Math.max(0, at - 24), to = at + wanted.length + 24;
    const others = full.length > 1 ? ` and ${full.length - 1} more` : "";
    return `; in the full name “${from ? "…" : ""}${name.slice(from, to)}${to < name.length ? "…" : ""}”${others}`;
  };

  const PARTS = ["compute", "transfer", "wait", "comm", "copy", "unknown", "idle"].map((kind) => [kind, WORDS.parts[kind]]);
  const parts = () => PARTS.filter(([name]) => name === "idle" || view.data.ranks.some((rank) => rank.parts[name].s.length)).map(([name, text]) => [name, name === "comm" ? (view.data.hasWaits ? view.data.unsplit : text) : text]);
  const cell = (tag, text, ns) => { const item = document.createElement(tag); item.textContent = text; if (ns !== undefined) { item.className = "n"; item.dataset.v = ns; } return item; };
  // A row for each rank; on a phone a column for each, or nothing would fit.
  const inView = () => {
    const t0 = Math.max(0, Math.round(view.t0)), t1 = Math.min(view.data.end, Math.round(view.t1)), isNarrow = view.width < 560, most = isNarrow ? 2 : 8;
    // Of a step each rank's own window: the common stretch holds a part of its neighbours.
    const spans = view.step === null ? view.data.ranks.map((rank) => [rank, t0, t1]) : ofStep(view.step).map(([rank, s]) => [rank, s[2], s[3]]);
    const sums = spans.map(([rank, from, to]) => ({ rank, ...TA.breakdown(rank, from, to) }));
    const shown = sums.length <= most ? sums : [...sums].sort((a, b) => b.wait + b.comm + b.idle - a.wait - a.comm - a.idle).slice(0, most);
    const head = (text, scope, isNumber) => { const th = cell("th", text); th.scope = scope; if (isNumber) th.className = "n"; return th; };
    const rows = [[head("rank", "col"), head("time", "col", true), ...parts().map(([, text]) => head(text, "col", true))]];
    for (const sum of shown) {
      const each = parts().map(([name]) => cell("td", sum[name] === null ? "n/a" : sum[name] ? `${TA.time(sum[name])} · ${TA.percent(sum[name], sum.window)}` : "0", sum[name] ?? -1));
      rows.push([head(`rank ${sum.rank.rank}`, "row"), cell("td", TA.time(sum.window), sum.window), ...each]);
    }
    const lines = isNarrow ? rows[0].map((_, at) => rows.map((row) => row[at])) : rows;
    if (isNarrow) lines.forEach(([first], at) => { first.scope = at ? "row" : "col"; first.className = ""; });
    if (isNarrow) lines[0].slice(1).forEach((th) => { th.scope = "col"; th.className = "n"; });
    const table = document.createElement("table"), top = table.createTHead(), body = table.createTBody();
    lines.forEach((line, at) => (at ? body : top).insertRow().append(...line));
    byId("tl-window").replaceChildren(table);
    const more = sums.length > most ? `; the ${most} ranks of ${sums.length} that lose most` : "";
    const [what, note] = viewed(t0, t1), small = document.createElement("span");
    small.className = "quiet"; small.textContent = `${note}${more}`;
    byId("tl-window-title").replaceChildren(`In view: ${what} `, small);
  };
  // What is in view, and why that of several ranks is longer than of each: they do not begin and end together.
  const viewed = (t0, t1) => {
    const { ranks } = view.data, span = TA.time(t1 - t0), own = view.step === null ? [] : ofStep(view.step);
    if (own.length) {
      const who = own.length === 1 ? `rank ${own[0][0].rank}` : `${own.length === ranks.length ? "all" : own.length} ranks`, each = between(own.map(([, s]) => s[3] - s[2]));
      return [`step ${view.step} of ${who}, ${span}`, each === span ? "" : `from the first one’s start to the last one’s end; each row is of the rank’s own step, which takes ${each}`];
    }
    if (t0 > 0 || t1 < view.data.end) return [`${span}, from ${TA.time(t0)} on`, ""];
    return [`the whole capture, ${span}`, ranks.length > 1 ? "from the first operation of any rank to the last of any" : ""];
  };
  const between = (spans) => { const [low, high] = [Math.min(...spans), Math.max(...spans)].map(TA.time); return low === high ? low : `${low} to ${high}`; };
  let later = 0;
  const announce = () => { clearTimeout(later); later = setTimeout(() => { byId("tl-live").textContent = byId("tl-window-title").textContent; }, 600); };

  const legend = (box) => {
    const list = box.querySelector(".tl-legend"), kinds = view.data.hasWaits ? [["compute"], ["transfer"], ["wait"], ...(view.data.ranks.some((rank) => rank.parts.comm.s.length) ? [["unmatched", `communication${view.data.unsplit.replace(/^exposed,?/, ":")}`]] : []), ["copy"]] : [["compute"], ["transfer", "communication"], ["copy"]];
    if (view.data.ranks.some((rank) => rank.parts.unknown.s.length)) kinds.push(["unknown", WORDS.kinds.unknown.label]);
    const { causes, knows_causes } = view.data;
    const isDrawn = (cause) => causes.includes(cause) || cause === WORDS.between;
    kinds.push(...(knows_causes ? Object.entries(WORDS.causes).filter(([cause]) => isDrawn(cause)).map(([, { kind }]) => [kind, WORDS.parts[kind]]) : [["idle"]]));
    for (const [kind, text = kind] of kinds) {
      const item = document.createElement("li"), from = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      from.setAttribute("class", "swatch"); from.setAttribute("width", 14); from.setAttribute("height", 14); from.setAttribute("aria-hidden", "true");
      for (const name of WORDS.patterns[kind] ? [`k-${kind}`, `p-${kind}`] : [`k-${kind}`]) { const r = document.createElementNS("http://www.w3.org/2000/svg", "rect"); r.setAttribute("width", 14); r.setAttribute("height", 14); r.setAttribute("class", name); from.append(r); }
      item.append(from, ` ${text}`); list.append(item);
    }
  };
  start();
})();
