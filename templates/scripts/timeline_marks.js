"use strict";
// What is drawn over the lanes: the critical path, who came last, what an awaited rank did, where an operation was launched.
(() => {
  const TA = globalThis.TA;

  TA.drawMarks = (ctx, view) => {
    TA.drawPath(ctx, view);
    drawAwaited(ctx, view);
    drawLaunch(ctx, view);
  };

  // The last rank of an instance arrives: a small flag at the start of its call.
  TA.drawArrival = (ctx, view, x, y) => {
    if (x < view.left) return;
    ctx.fillStyle = view.colours.ink;
    ctx.beginPath(); ctx.moveTo(x - 4, y); ctx.lineTo(x + 4, y); ctx.lineTo(x, y + 6); ctx.closePath(); ctx.fill();
  };

  const band = (view, rank) => {
    const rows = view.layout.rows.filter((row) => row.rank === rank);
    if (!rows.length) return null;
    const last = rows[rows.length - 1], y = rows[0].y + TA.AXIS - view.scroll;
    return [y, last.y + last.height + TA.AXIS - view.scroll - y];
  };
  const rowOf = (view, rank, part) => {
    const row = view.layout.rows.find((each) => each.rank === rank && (each.part === part || each.part === "folded"));
    return row ? [row.y + TA.AXIS - view.scroll, row.height] : null;
  };
  const arrow = (ctx, x0, y0, x1, y1) => {
    const angle = Math.atan2(y1 - y0, x1 - x0);
    ctx.beginPath(); ctx.moveTo(x0, y0); ctx.lineTo(x1, y1);
    for (const turn of [-0.45, 0.45]) { ctx.moveTo(x1, y1); ctx.lineTo(x1 - 8 * Math.cos(angle + turn), y1 - 8 * Math.sin(angle + turn)); }
    ctx.stroke();
  };

  // While one rank waits: the stretch on the other in a frame, and its arrival tied to the wait's end.
  const drawAwaited = (ctx, view) => {
    const s = view.awaited;
    if (!s) return;
    const own = band(view, s.rank), [a, b] = TA.clipped(view, s.from, s.to);
    if (!own || b <= a) return;
    ctx.strokeStyle = view.colours.wait; ctx.lineWidth = 2; ctx.setLineDash([5, 3]); ctx.strokeRect(a, own[0], Math.max(2, b - a), own[1]); ctx.setLineDash([]);
    const from = rowOf(view, s.rank, "comm"), to = rowOf(view, s.source.rank, "comm"), x = TA.xOf(view, s.to);
    if (!from || !to || x < view.left || x > view.width) return;
    const down = to[0] > from[0];
    ctx.strokeStyle = view.colours.wait; ctx.lineWidth = 2;
    arrow(ctx, x, down ? from[0] + from[1] : from[0], x, down ? to[0] : to[0] + to[1]);
  };

  // From the call on the host to the operation that it launched.
  const drawLaunch = (ctx, view) => {
    const s = view.selected;
    if (!s || s.op === undefined || !s.rank.delay[s.op] || !s.rank.thread?.[s.op]) return;
    const thread = s.rank.threads[s.rank.thread[s.op] - 1];
    const host = view.layout.rows.find((row) => row.rank === s.rank && row.part === "host" && row.lane.thread === thread && !row.lane.frames), to = rowOf(view, s.rank, s.kind);
    const at = s.rank.start[s.op] - s.rank.delay[s.op] + 1;
    if (!host || !to || s.rank.start[s.op] < view.t0 || at > view.t1) return;
    const x0 = Math.max(view.left, TA.xOf(view, at)), y0 = host.y + TA.AXIS - view.scroll;
    ctx.fillStyle = view.colours.ink; ctx.fillRect(x0 - 1, y0, 2, host.height);
    ctx.strokeStyle = view.colours.paper; ctx.lineWidth = 4; arrow(ctx, x0, y0, Math.min(view.width, TA.xOf(view, s.rank.start[s.op])), to[0] + to[1]);
    ctx.strokeStyle = view.colours.ink; ctx.lineWidth = 1.6; arrow(ctx, x0, y0, Math.min(view.width, TA.xOf(view, s.rank.start[s.op])), to[0] + to[1]);
  };
})();
