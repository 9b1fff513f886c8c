"use strict";
// Pointer, wheel, fingers and keys on the timeline.
(() => {
  const TA = globalThis.TA, LANES = ["compute", "comm", "copy", "unknown"];

  TA.hit = (px, py) => {
    const { view } = TA;
    if (py < TA.AXIS) return {};
    const y = py - TA.AXIS + view.scroll, row = view.layout.rows.find((r) => y >= r.y && y < r.y + r.height);
    if (!row || px < view.left) return { row };
    const t = TA.timeAt(view, px), slack = (3 * (view.t1 - view.t0)) / (view.width - view.left);
    if (row.part === "host") { const found = TA.hitHost(view, row, y - row.y, t, slack); return { row, t, event: found.event, level: found.level }; }
    const lane = LANES.includes(row.part) && row.rank.lanes.find((l) => l.kind === row.part);
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

  const click = (px, py) => {
    const { view } = TA;
    view.canvas.focus({ preventScroll: true });
    const found = TA.hit(px, py), { row, t } = found;
    if (!row) return TA.details(null);
    if (row.part === "group" || row.part === "folded" || px < view.left) return toggle(row);
    if (row.part === "steps") { const s = row.rank.steps.find((item) => item[2] <= t && t < item[3]); return s && TA.showStep(s[1]); }
    if (found.event !== undefined) return TA.hostDetails(row.rank, row.lane, found.event, found.level);
    if (row.counter?.parts) return TA.memoryDetails(row.rank, row.counter, t);
    const op = found.op, rank = row.rank, wait = op !== undefined && row.part === "comm" ? rank.wait[rank.place[op]] - 1 : 0;
    if (wait > 0 && t < rank.start[op] + wait && TA.follow(rank, op)) return undefined;
    return TA.details(op === undefined ? null : rank, op);
  };

  // Opens or closes a group, expands or collapses a rank.
  const toggle = (row) => {
    const { view } = TA;
    if (row.part === "group") { if (!view.opened.delete(row.at)) view.opened.add(row.at); }
    else if (!view.folded.delete(row.rank.rank)) view.folded.add(row.rank.rank);
    TA.arrange(); TA.named();
  };

  TA.pointer = () => {
    const { view } = TA, { canvas } = view, points = new Map();
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
      if (!before) { const found = TA.hit(...at); TA.tip(...at, found); canvas.style.cursor = at[0] < view.left || ["group", "folded"].includes(found.row?.part) ? "pointer" : "crosshair"; return; }
      points.set(e.pointerId, at);
      if (pinch && points.size === 2) { const [a, b] = [...points.values()], gap = Math.abs(a[0] - b[0]) || 1; TA.zoom(pinch.gap / gap, pinch.middle); pinch.gap = gap; moved = true; return; }
      if (Math.abs(at[0] - from[0]) > 4) moved = true;
      if (!moved) return;
      if (panning) TA.move((before[0] - at[0]) / (view.width - view.left));
      else if (from[0] >= view.left) { view.drag = [from[0], Math.max(view.left, at[0])]; TA.redraw(); }
    });
    const up = (e) => {
      const at = place(e);
      points.delete(e.pointerId);
      if (pinch) { pinch = points.size ? pinch : null; return; }
      if (view.drag) { const [a, b] = view.drag.map((px) => TA.timeAt(view, px)); view.drag = null; if (e.type === "pointerup") TA.show(Math.min(a, b), Math.max(a, b)); }
      else if (!moved && e.type === "pointerup") click(...at);
    };
    canvas.addEventListener("pointerup", up); canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", () => { view.scroller.querySelector(".tl-tip").hidden = true; });
    canvas.addEventListener("wheel", (e) => {
      if (!(e.ctrlKey || e.metaKey || document.activeElement === canvas)) return;
      e.preventDefault();
      if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) TA.move((e.deltaX || e.deltaY) / 800);
      else TA.zoom(Math.exp(e.deltaY * (e.ctrlKey ? 0.01 : 0.0016)), TA.timeAt(view, place(e)[0]));
    }, { passive: false });
  };

  // Up and down go through every row: ranks, groups and lanes; each is said.
  const keyOf = (row) => `${row.part}|${row.rank?.rank ?? row.at}|${row.lane?.thread ?? ""}${row.lane?.frames ?? ""}${row.counter?.name ?? ""}`;
  TA.keyed = (layout) => layout.rows.forEach((row) => { row.key = keyOf(row); });
  const focused = () => TA.view.layout.rows.find((row) => row.key === TA.view.focus);
  const goRow = (by) => {
    const { view } = TA, { rows } = view.layout, now = rows.findIndex((row) => row.key === view.focus);
    const row = rows[Math.min(rows.length - 1, Math.max(0, now < 0 ? 0 : now + by))];
    view.focus = row.key;
    TA.scrollToRow((each) => each === row);
    const who = row.rank ? `rank ${row.rank.rank}${row.why ? `, ${row.why}` : ""}` : TA.nameOf(row);
    const what = row.part === "folded" ? "collapsed, Enter expands it" : row.part === "group" ? `${row.isOpen ? "open, Enter closes it" : "Enter opens it"}` : row.part === "steps" ? "steps, Enter collapses the rank" : row.part.startsWith("band") ? "ranges" : `${TA.nameOf(row)} lane`;
    TA.say(`${who}: ${what}`); TA.redraw();
  };
  const enter = () => {
    const { view } = TA, row = focused(), s = view.selected;
    if (row && (row.part === "group" || row.part === "folded" || row.head)) { const at = view.layout.rows.indexOf(row); toggle(row); view.focus = view.layout.rows[Math.min(at, view.layout.rows.length - 1)].key; TA.redraw(); return; }
    if (row?.counter?.parts) { TA.memoryDetails(row.rank, row.counter); return; }
    if (s?.op !== undefined) TA.follow(s.rank, s.op);
  };

  const nextOperation = (by) => {
    const { view } = TA, row = focused(), isLane = row && LANES.includes(row.part);
    const selected = view.selected?.op === undefined || (isLane && (view.selected.rank !== row.rank || view.selected.kind !== row.part)) ? null : view.selected;
    const rank = selected?.rank ?? (isLane ? row.rank : view.layout.rows.find((each) => each.part === "compute")?.rank ?? view.data.ranks[0]);
    const lane = rank.lanes.find((l) => l.kind === (selected?.kind ?? (isLane ? row.part : "compute")));
    if (!lane.ops.length) return;
    const now = selected ? lane.ops.indexOf(selected.op) + by : TA.rowAt(lane.starts, view.t0) + 1;
    const op = lane.ops[Math.min(lane.ops.length - 1, Math.max(0, now))];
    TA.details(rank, op);
    if (rank.start[op] < view.t0 || rank.end[op] > view.t1) { const half = (view.t1 - view.t0) / 2; TA.show(rank.start[op] - half, rank.start[op] + half); }
  };

  TA.keys = () => TA.view.canvas.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const { zoom, move, show, view, goStep, details } = TA;
    const does = { "+": () => zoom(0.5), "=": () => zoom(0.5), w: () => zoom(0.5), "-": () => zoom(2), s: () => zoom(2), ArrowLeft: () => move(-0.2), a: () => move(-0.2), ArrowRight: () => move(0.2), d: () => move(0.2),
      ArrowUp: () => goRow(-1), ArrowDown: () => goRow(1), Enter: enter,
      0: () => show(...view.whole), Home: () => show(...view.whole), "[": () => goStep(-1), "]": () => goStep(1), ",": () => nextOperation(-1), ".": () => nextOperation(1), Escape: () => details(null) }[e.key];
    if (does) { e.preventDefault(); does(); }
  });
})();
