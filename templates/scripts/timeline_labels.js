"use strict";
// The timeline's words: names of rows on the left, the axis above, and what a group of ranks looks like.
(() => {
  const TA = globalThis.TA;
  const AXIS = TA.AXIS;
  const FONT = "system-ui, sans-serif";

  TA.nameOf = (row, isShort = false) => {
    if (row.part === "group") return `${row.group.name}, ranks ${row.ranks[0].rank} to ${row.ranks[row.ranks.length - 1].rank}`;
    if (row.part === "host") return row.lane.label;
    if (row.part === "counter") return row.counter.name;
    if (row.part === "idle") return "idle";
    const kind = TA.words.kinds[row.part];
    return kind ? (isShort ? kind.short : kind.label) : "";
  };

  TA.drawLabels = (ctx, view) => {
    const { colours: c, left } = view, isWide = left > 80;
    ctx.textBaseline = "middle"; ctx.textAlign = "left";
    ctx.fillStyle = c.paper; ctx.fillRect(0, AXIS, left - 1, view.height);
    if (view.divider !== null) { ctx.fillStyle = c.quiet; ctx.fillRect(0, view.divider + AXIS - view.scroll, view.width, 1); }
    for (const row of view.layout.rows) {
      const y = row.y + AXIS - view.scroll;
      if (y + row.height < AXIS || y > view.height) continue;
      const indent = row.inside ? 12 : 2;
      if (row.part === "group") write(ctx, c.ink, `600 12px ${FONT}`, `${row.isOpen ? "▾" : "▸"} ${row.group.name}`, 2, y + 10, left - 4);
      else if (row.head || row.part === "folded") {
        const title = `${row.part === "folded" ? "▸" : "▾"} rank ${row.rank.rank}`;
        ctx.font = `600 12px ${FONT}`;
        const end = indent + ctx.measureText(title).width;
        write(ctx, c.ink, `600 12px ${FONT}`, title, indent, y + Math.min(row.height, 18) / 2, left - indent - 2);
        if (row.why && row.part === "folded") write(ctx, c.care, `11px ${FONT}`, row.why, end + 5, y + 9, left - end - 8);
        else if (row.why) write(ctx, c.care, `11px ${FONT}`, row.why, 14, y + 21, left - 16);
      }
      const name = row.part === "folded" || row.part === "group" || (row.head && row.part === "compute") ? "" : TA.nameOf(row, !isWide);
      if (name) write(ctx, c.quiet, `11px ${FONT}`, name, isWide ? 14 : 4, y + (row.part === "counter" && isWide ? 7 : Math.min(row.height, 22) / 2), left - (isWide ? 16 : 6));
      if (view.focus === row.key) { ctx.fillStyle = c.link; ctx.fillRect(0, y, 3, row.height); }
      if (row.part === "counter" && isWide) write(ctx, c.quiet, `9px ${FONT}`, `up to ${TA.amount(row.counter, row.counter.most)}`, 14, y + 18, left - 16);
    }
  };
  const write = (ctx, colour, font, text, x, y, room) => {
    ctx.font = font; ctx.fillStyle = colour;
    let shown = text;
    while (shown.length > 2 && ctx.measureText(shown).width > room) shown = `${shown.slice(0, -2)}…`;
    ctx.fillText(shown, x, y);
  };

  // A group: at each moment how many of its ranks compute, transfer, wait and copy, one above the other.
  const PARTS = ["compute", "transfer", "comm", "copy", "unknown", "wait"], STEP = 3;
  TA.drawGroup = (ctx, view, row, y) => {
    const { colours: c, fills } = view, count = Math.ceil((view.width - view.left) / STEP), dt = ((view.t1 - view.t0) * STEP) / (view.width - view.left);
    const height = row.height - 2, scale = height / (dt * row.ranks.length), base = new Float32Array(count).fill(y + height);
    ctx.fillStyle = c.idle; ctx.globalAlpha = 0.3; ctx.fillRect(view.left, y, view.width - view.left, height); ctx.globalAlpha = 1;
    for (const part of PARTS) {
      const sums = new Float64Array(count);
      for (const rank of row.ranks) TA.addShares(rank.parts[part], view.t0, dt, sums);
      ctx.fillStyle = part === "wait" ? fills.wait : part === "comm" && view.data.hasWaits ? fills.unsplit : c[part];
      for (let i = 0; i < count; i++) {
        if (!sums[i]) continue;
        const high = sums[i] * scale;
        ctx.fillRect(view.left + i * STEP, base[i] - high, STEP, high); base[i] -= high;
      }
    }
  };
  // Adds to each bin the time of the union that lies in it: one walk, however many bins there are.
  TA.addShares = (u, t0, dt, sums) => {
    for (let row = Math.max(0, TA.rowAt(u.s, t0)); row < u.s.length; row++) {
      let from = Math.max(u.s[row], t0), bin = Math.floor((from - t0) / dt);
      if (bin >= sums.length) return;
      for (; from < u.e[row] && bin < sums.length; bin++) { const to = Math.min(u.e[row], t0 + (bin + 1) * dt); if (to > from) sums[bin] += to - from; from = to; }
    }
  };

  TA.drawAxis = (ctx, view) => {
    const c = view.colours, span = view.t1 - view.t0, wanted = Math.max(2, (view.width - view.left) / 110);
    const power = 10 ** Math.floor(Math.log10(span / wanted)), step = [1, 2, 5, 10].find((m) => m * power >= span / wanted) * power;
    const [size, unit] = view.t1 >= 1e9 && step >= 1e7 ? [1e9, "s"] : step >= 1e3 || view.t1 >= 1e6 ? [1e6, "ms"] : [1e3, "µs"];
    const decimals = Math.max(0, -Math.floor(Math.log10(step / size) + 1e-9));
    ctx.fillStyle = c.paper; ctx.fillRect(0, 0, view.width, AXIS);
    ctx.strokeStyle = c.rule; ctx.lineWidth = 1; ctx.beginPath(); ctx.moveTo(0, AXIS - 0.5); ctx.lineTo(view.width, AXIS - 0.5);
    ctx.font = "11px system-ui, sans-serif"; ctx.fillStyle = c.quiet; ctx.textBaseline = "middle"; ctx.textAlign = "left";
    for (let t = Math.ceil(view.t0 / step) * step; t <= view.t1; t += step) {
      const at = Math.round(TA.xOf(view, t)) + 0.5;
      ctx.moveTo(at, AXIS - 6); ctx.lineTo(at, AXIS);
      if (at + 60 < view.width) ctx.fillText(`${(t / size).toFixed(decimals)} ${unit}`, at + 3, AXIS / 2 - 2);
    }
    ctx.stroke();
  };
})();
