"use strict";
// How the timeline is drawn: every operation where there is room, else each pixel as full as its time is busy.
(() => {
  const TA = (globalThis.TA ??= {});
  const AXIS = 24;

  TA.colours = () => {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(`--${name}`).trim();
    const c = Object.fromEntries(["compute", "transfer", "wait", "copy", "idle", "unknown", "paper", "ink", "quiet", "rule", "soft", "link", "care"].map((n) => [n, of(n)]));
    const causes = Object.fromEntries(Object.entries(TA.words.causes).map(([cause, { kind }]) => [cause, of(kind)]));
    const host = Object.fromEntries(["range", "operator", "call", "sync", "frame"].map((what) => [what, of(`host-${what}`)]));
    return { ...c, comm: c.transfer, causes, host, counter: of("counter"), path: of("path"), unmatched: of("unmatched") };
  };

  // The page's patterns, on a canvas: what waits, what is not told apart, and two causes of idling.
  const tiled = (ctx, size, base, draw) => {
    const tile = Object.assign(document.createElement("canvas"), { width: size, height: size }), pen = tile.getContext("2d");
    pen.fillStyle = base; pen.fillRect(0, 0, size, size);
    draw(pen);
    return ctx.createPattern(tile, "repeat");
  };
  const dots = (ctx, base) => tiled(ctx, 5, base, (pen) => { pen.fillStyle = "rgba(0,0,0,.5)"; pen.beginPath(); pen.arc(1.5, 1.5, 1, 0, 7); pen.fill(); });
  const lines = (ctx, base) => tiled(ctx, 5, base, (pen) => { pen.fillStyle = "rgba(0,0,0,.38)"; pen.fillRect(0, 0, 5, 1.4); });
  const hatch = (ctx, base) => tiled(ctx, 6, base, (pen) => {
    pen.strokeStyle = "rgba(0,0,0,.3)"; pen.lineWidth = 1.2; pen.beginPath();
    for (const d of [-6, 0, 6]) { pen.moveTo(d, 6); pen.lineTo(d + 6, 0); }
    pen.stroke();
  });
  const slant = (ctx, base) => tiled(ctx, 6, base, (pen) => {
    pen.strokeStyle = "rgba(0,0,0,.42)"; pen.lineWidth = 1; pen.beginPath();
    for (const d of [-6, 0, 6]) { pen.moveTo(d, 0); pen.lineTo(d + 6, 6); }
    pen.stroke();
  });
  const bars = (ctx, base) => tiled(ctx, 4, base, (pen) => { pen.fillStyle = "rgba(0,0,0,.3)"; pen.fillRect(0, 0, 1, 4); });
  const PATTERNS = { hatch, dots, lines, slant, bars };
  const patterned = (ctx, kind, base) => PATTERNS[TA.words.patterns[kind]]?.(ctx, base) ?? base;
  const fills = (ctx, c) => {
    const causes = Object.entries(TA.words.causes).map(([cause, { kind }]) => [cause, patterned(ctx, kind, c.causes[cause])]);
    return { ...c, wait: patterned(ctx, "wait", c.wait), unsplit: patterned(ctx, "unmatched", c.unmatched), causes: Object.fromEntries(causes) };
  };

  TA.draw = (ctx, view) => {
    const { width, height, colours: c } = view;
    view.fills ??= fills(ctx, c);
    ctx.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
    ctx.fillStyle = c.paper; ctx.fillRect(0, 0, width, height);
    ctx.save();
    ctx.beginPath(); ctx.rect(0, AXIS, width, height - AXIS); ctx.clip();
    for (const row of view.layout.rows) {
      const y = row.y + AXIS - view.scroll;
      if (y + row.height < AXIS || y > height) continue;
      if (row.part === "group") TA.drawGroup(ctx, view, row, y);
      else if (row.part === "host") TA.drawHost(ctx, view, row, y);
      else if (row.part === "counter") TA.drawCounter(ctx, view, row, y);
      else if (row.part === "steps" || row.part.startsWith("band")) drawBand(ctx, view, row, y);
      else if (row.part === "idle") drawIdle(ctx, view, row, y);
      else if (row.part === "folded") drawFolded(ctx, view, row, y);
      else drawLane(ctx, view, row, y);
    }
    view.places = TA.places(view);
    TA.drawMarks(ctx, view);
    TA.drawLabels(ctx, view);
    ctx.restore();
    TA.drawAxis(ctx, view);
    if (view.drag) { const [a, b] = view.drag; ctx.fillStyle = c.link; ctx.globalAlpha = 0.22; ctx.fillRect(Math.min(a, b), AXIS, Math.abs(b - a), height); ctx.globalAlpha = 1; }
  };

  const x = TA.xOf = (view, t) => view.left + (t - view.t0) * (view.width - view.left) / (view.t1 - view.t0);
  const clipped = TA.clipped = (view, t0, t1) => [Math.max(view.left, x(view, t0)), Math.min(view.width, x(view, t1))];
  TA.timeAt = (view, px) => view.t0 + (px - view.left) * (view.t1 - view.t0) / (view.width - view.left);

  const drawBand = (ctx, view, row, y) => {
    const isStep = row.part === "steps", depth = isStep ? 0 : Number(row.part.slice(4));
    const bands = isStep ? row.rank.steps.map(([, n, s, e, whole]) => [`step ${n}${whole ? "" : " (open)"}`, s, e])
      : row.rank.bands.filter((band) => band[4] === depth).map(([, name, s, e]) => [name, s, e]);
    ctx.font = "11px system-ui, sans-serif"; ctx.textBaseline = "middle"; ctx.textAlign = "left";
    let done = view.left;
    for (const [name, start, end] of bands) {
      const [a, b] = clipped(view, start, end);
      if (b <= a || b <= done - 0.5) continue;
      done = b;
      ctx.fillStyle = view.colours.soft; ctx.fillRect(a, y, b - a, row.height - 2);
      ctx.strokeStyle = view.colours.quiet; ctx.lineWidth = 1;
      ctx.beginPath(); ctx.moveTo(Math.round(a) + 0.5, y); ctx.lineTo(Math.round(a) + 0.5, y + row.height - 2); ctx.stroke();
      label(ctx, name, a + 4, b, y + row.height / 2 - 1, view.colours.quiet);
    }
  };

  const label = TA.label = (ctx, text, from, to, middle, colour, halo, each = 6.1) => {
    const room = to - from - 3;
    const fits = Math.floor(room / each);
    if (fits < Math.min(4, text.length)) return;
    const shown = text.length <= fits ? text : `${text.slice(0, Math.max(1, fits - 1))}…`;
    if (halo) { ctx.save(); ctx.beginPath(); ctx.rect(from - 4, middle - 20, to - from + 4, 40); ctx.clip(); ctx.strokeStyle = halo; ctx.lineWidth = 4; ctx.strokeText(shown, from, middle); ctx.restore(); }
    ctx.fillStyle = colour; ctx.fillText(shown, from, middle);
  };

  // Level of detail: a pixel is as opaque as its share of time that the union covers.
  const drawShare = TA.drawShare = (ctx, view, u, fill, y, height) => {
    const from = Math.floor(view.left), to = Math.ceil(view.width), dt = (view.t1 - view.t0) / (view.width - view.left);
    ctx.fillStyle = fill;
    let last = TA.coveredBefore(u, TA.timeAt(view, from)), run = from, share = -1;
    for (let px = from; px <= to; px++) {
      const next = px < to ? TA.coveredBefore(u, TA.timeAt(view, px + 1)) : last;
      const part = px < to ? (next === last ? 0 : Math.max(0.2, Math.round((20 * (next - last)) / dt) / 20)) : -1;
      if (part !== share) {
        if (share > 0) { ctx.globalAlpha = Math.min(1, share) * view.dim; ctx.fillRect(run, y, px - run, height); }
        run = px; share = part;
      }
      last = next;
    }
    ctx.globalAlpha = 1;
  };

  const drawLane = (ctx, view, row, y) => {
    const lane = row.rank.lanes.find((item) => item.kind === row.part), c = view.colours, height = row.height;
    const from = TA.rowAt(lane.starts, view.t0 - lane.longest) + 1, to = TA.rowAt(lane.starts, view.t1);
    const isDense = to - from > 1.2 * (view.width - view.left);
    if (isDense) {
      const u = row.rank.u, parts = row.rank.parts;
      if (row.part === "comm") {
        if (view.data.hasWaits) { drawShare(ctx, view, u.wait, view.fills.wait, y, height); drawShare(ctx, view, u.transfer, c.transfer, y, height); drawShare(ctx, view, parts.comm, view.fills.unsplit, y, height); }
        else drawShare(ctx, view, u.comm, c.comm, y, height);
      } else drawShare(ctx, view, u[row.part], c[row.part], y, height);
    } else drawOperations(ctx, view, row, lane, from, to, y);
    if (view.found) drawFound(ctx, view, row, lane, from, to, y, isDense);
    drawSelected(ctx, view, row, lane, y);
  };

  // A call by its collective: an all-to-all is a kernel of sends and receives.
  const nameOf = (data, rank, op, kind) => {
    const call = kind === "comm" ? rank.call[rank.place[op]] : 0;
    return call ? data.calls[call - 1].split(",")[0] : data.names[rank.name[op]][0].replace(/^NCCL /, "");
  };

  const drawOperations = (ctx, view, row, lane, from, to, y) => {
    const { rank } = row, c = view.colours, each = row.height / lane.rows;
    ctx.font = "11px system-ui, sans-serif"; ctx.textBaseline = "middle"; ctx.textAlign = "left";
    for (let i = from; i <= to; i++) {
      const op = lane.ops[i];
      if (rank.end[op] < view.t0) continue;
      const [a, b] = clipped(view, rank.start[op], rank.end[op]), top = y + lane.depth[i] * each, width = Math.max(b - a, 1);
      const isDim = view.found && !view.found.has(rank, op);
      // Narrower than a pixel: as faint as it is narrow, or many would look like a busy GPU.
      ctx.globalAlpha = view.found ? (isDim ? 0.2 * Math.min(1, Math.max(0.3, b - a)) : 1) : Math.min(1, Math.max(0.3, b - a));
      const wait = fillOperation(ctx, view, rank, op, lane.kind, a, width, top, each);
      if (width > 3) { ctx.fillStyle = c.paper; ctx.fillRect(a, top, 0.6, each); }
      if (lane.kind === "comm" && view.data.instances && b - a > 1.5 && TA.isLast(view.data, rank, op)) TA.drawArrival(ctx, view, x(view, rank.start[op]), top);
      if (width > 26 && each >= 10 && !isDim) label(ctx, nameOf(view.data, rank, op, lane.kind), a + 4, b, top + each / 2 + 0.5, lane.kind === "compute" ? "#fff" : "#000", wait > 1 ? c.wait : "");
    }
    ctx.globalAlpha = 1;
  };

  // One operation in its colours, a wait in its own; returns the wait, 0 where it is not known, else one more.
  const fillOperation = (ctx, view, rank, op, kind, from, width, top, height) => {
    const wait = kind === "comm" ? rank.wait[rank.place[op]] : 0;
    ctx.fillStyle = kind === "comm" && view.data.hasWaits && !wait ? view.fills.unsplit : view.colours[kind]; ctx.fillRect(from, top, width, height);
    if (wait > 1) { const [a, b] = clipped(view, rank.start[op], rank.start[op] + wait - 1); if (b > a) { ctx.fillStyle = view.fills.wait; ctx.fillRect(a, top, b - a, height); } }
    return wait;
  };

  // What a search has found keeps its colour at any zoom, however short it is, and is marked above and below.
  const drawFound = (ctx, view, row, lane, from, to, y, isFaint) => {
    let done = -1;
    for (let i = from; i <= to; i++) {
      const op = lane.ops[i];
      if (!view.found.has(row.rank, op) || row.rank.end[op] < view.t0) continue;
      const [a, b] = clipped(view, row.rank.start[op], row.rank.end[op]);
      if (b - done < 1) continue;
      done = Math.max(b, a + 1);
      if (isFaint) fillOperation(ctx, view, row.rank, op, lane.kind, a, Math.max(1.2, b - a), y, row.height);
      ctx.fillStyle = view.colours.ink;
      ctx.fillRect(a, y, Math.max(1.2, b - a), 3); ctx.fillRect(a, y + row.height - 3, Math.max(1.2, b - a), 3);
    }
  };

  const drawSelected = (ctx, view, row, lane, y) => {
    const s = view.selected;
    if (!s || s.rank !== row.rank || s.kind !== lane.kind) return;
    const [a, b] = clipped(view, s.rank.start[s.op], s.rank.end[s.op]);
    if (b < view.left || a > view.width) return;
    ctx.strokeStyle = view.colours.ink; ctx.lineWidth = 2; ctx.strokeRect(a - 1, y, Math.max(3, b - a + 2), row.height);
  };

  const drawIdle = (ctx, view, row, y) => {
    const { rank } = row, busy = rank.busy, c = view.colours;
    const [a, b] = clipped(view, rank.first, rank.last);
    if (b <= a) return;
    // Gaps without a cause of their own are the short ones between kernels, where causes are known at all.
    ctx.fillStyle = view.data.knows_causes ? c.causes[TA.words.between] : c.idle; ctx.fillRect(a, y, b - a, row.height);
    const plain = { ...view, dim: 1 };
    drawShare(ctx, plain, busy, c.paper, y, row.height);
    for (const [cause, u] of rank.idle) drawShare(ctx, plain, u, view.fills.causes[cause] ?? c.idle, y, row.height);
  };

  const drawFolded = (ctx, view, row, y) => {
    const { rank } = row, c = view.colours, [a, b] = clipped(view, rank.first, rank.last);
    if (b > a) { ctx.fillStyle = c.idle; ctx.globalAlpha = 0.35; ctx.fillRect(a, y, b - a, row.height); ctx.globalAlpha = 1; }
    for (const part of ["unknown", "copy", "comm", "transfer", "wait", "compute"]) drawShare(ctx, view, rank.parts[part], part === "wait" ? view.fills.wait : part === "comm" && view.data.hasWaits ? view.fills.unsplit : c[part], y, row.height);
    ctx.fillStyle = c.ink;
    for (const step of rank.steps) { const at = x(view, step[2]); if (at >= view.left && at < view.width) ctx.fillRect(at, y, 1, row.height); }
  };

})();
