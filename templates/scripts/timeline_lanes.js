"use strict";
// Lanes below the GPU's: threads of the host as icicles, and counters.
(() => {
  const TA = globalThis.TA;
  const ROLES = { main: "main thread", autograd: "autograd thread", "data loader": "data loader", collectives: "CPU collectives", other: "thread" };

  TA.loadHost = async (data) => {
    const [meta, read] = await TA.unpacked(data.packed.host);
    data.host = meta;
    data.ranks.forEach((rank) => { rank.host = []; rank.counters ??= []; });
    for (const entry of meta.lanes) {
      const n = entry.count, start = read(n), length = read(n), name = read(n, Uint32Array), depth = read(n, Uint8Array);
      let t = entry.first;
      for (let i = 0; i < n; i++) { t += i ? start[i] : 0; start[i] = t * meta.unit; length[i] *= meta.unit; }
      // Each level's events by themselves, in order of start, so that drawing looks only at those in view.
      const levels = Array.from({ length: entry.levels }, () => ({ rows: [], longest: 0 }));
      for (let i = 0; i < n; i++) { const level = levels[depth[i]]; level.rows.push(i); level.longest = Math.max(level.longest, length[i]); }
      levels.forEach((level) => { level.starts = Float64Array.from(level.rows, (i) => start[i]); });
      data.rankOf.get(entry.rank)?.host.push({ ...entry, start, length, name, levels, label: entry.frames ? "Python frames" : ROLES[entry.role] });
    }
  };

  TA.loadCounters = async (data) => {
    const [entries, read] = await TA.unpacked(data.packed.counters);
    data.ranks.forEach((rank) => { rank.counters = []; });
    for (const entry of entries) {
      const start = read(entry.count), length = read(entry.count), value = entry.parts ? null : read(entry.count);
      let t = entry.first;
      for (let i = 0; i < entry.count; i++) { t += i ? start[i] : 0; start[i] = t; if (value) value[i] *= entry.most / 1000; }
      if (entry.parts) { data.rankOf.get(entry.rank)?.counters.push(TA.readMemory({ ...entry, start, length }, read)); continue; }
      data.rankOf.get(entry.rank)?.counters.push({ ...entry, start, length, value });
    }
    data.ranks.forEach((rank) => { const made = rank.counters.length && bandwidth(data, rank); if (made) rank.counters.push(made); });
  };

  // What each call moves a second while it transfers: its size over its transfer time.
  const bandwidth = (data, rank) => {
    const rows = [];
    for (let op = 0; op < rank.count; op++) {
      if (data.names[rank.name[op]][2] !== "comm") continue;
      const place = rank.place[op], bytes = rank.callBytes[place] - 1, wait = rank.wait[place] - 1, from = rank.start[op] + wait;
      if (bytes > 0 && wait >= 0 && rank.end[op] > from) rows.push([from, rank.end[op] - from, bytes / (rank.end[op] - from)]);
    }
    if (!rows.length) return null;
    rows.sort((a, b) => a[0] - b[0]);
    return { name: "bandwidth", unit: "GB/s", most: rows.reduce((m, r) => Math.max(m, r[2]), 0), count: rows.length,
      start: Float64Array.from(rows, (r) => r[0]), length: Float64Array.from(rows, (r) => r[1]), value: Float64Array.from(rows, (r) => r[2]) };
  };
  TA.amount = (counter, value) => (counter.unit === "B" ? TA.bytes(value) : `${TA.digits(value)}${counter.unit ? `\u202f${counter.unit}` : ""}`);

  const LEVEL = 13;
  TA.hostRows = (rank, view) => (view.shows.host ? (rank.host ?? []).map((lane) => ({ lane, height: LEVEL * Math.min(view.hostDepth, lane.levels.length) + 2 })) : []);
  TA.counterRows = (rank, view) => (view.shows.counters ? (rank.counters ?? []) : []);

  TA.drawHost = (ctx, view, row, y) => {
    const { lane } = row, { names } = view.data.host, c = view.colours;
    ctx.font = "10px system-ui, sans-serif"; ctx.textBaseline = "middle"; ctx.textAlign = "left";
    lane.levels.slice(0, view.hostDepth).forEach((level, at) => {
      const top = y + at * LEVEL;
      let done = view.left, i = Math.max(0, TA.rowAt(level.starts, view.t0 - level.longest));
      for (; i < level.rows.length && level.starts[i] < view.t1; i++) {
        const event = level.rows[i], [a, b] = TA.clipped(view, lane.start[event], lane.start[event] + lane.length[event]);
        if (b <= a || b - done < 0.5) continue;
        const [what, name] = names[lane.name[event]], width = Math.max(0.7, b - Math.max(a, done));
        ctx.globalAlpha = Math.min(1, Math.max(0.35, b - a));
        ctx.fillStyle = c.host[what]; ctx.fillRect(Math.max(a, done), top, width, LEVEL - 1);
        ctx.globalAlpha = 1;
        if (b - a > 24) TA.label(ctx, name, a + 3, b, top + LEVEL / 2, c.ink, "", 5.6);
        done = b + (b - a > 3 ? 0.6 : 0);
      }
    });
    const s = view.selected;
    if (s?.lane === lane) {
      const [a, b] = TA.clipped(view, lane.start[s.event], lane.start[s.event] + lane.length[s.event]);
      if (b > a) { ctx.strokeStyle = c.ink; ctx.lineWidth = 2; ctx.strokeRect(a, y + s.level * LEVEL, Math.max(2, b - a), LEVEL - 1); }
    }
  };

  TA.hitHost = (view, row, y, t, slack) => {
    const at = Math.floor(y / LEVEL), level = row.lane.levels[at];
    if (!level) return {};
    let best = null;
    for (let i = TA.rowAt(level.starts, t + slack); i >= 0 && level.starts[i] >= t - slack - level.longest; i--) {
      const event = level.rows[i], away = Math.max(0, row.lane.start[event] - t, t - row.lane.start[event] - row.lane.length[event]);
      if (away <= slack && (!best || away < best.away)) best = { event, away, level: at };
      if (best?.away === 0) break;
    }
    return best ?? {};
  };

  TA.drawCounter = (ctx, view, row, y) => {
    if (row.counter.parts) { TA.drawMemory(ctx, view, row, y); return; }
    const { counter } = row, c = view.colours, height = row.height - 3;
    ctx.fillStyle = c.counter;
    let i = Math.max(0, TA.rowAt(counter.start, view.t0));
    for (; i < counter.count && counter.start[i] < view.t1; i++) {
      const [a, b] = TA.clipped(view, counter.start[i], counter.start[i] + counter.length[i]);
      if (b <= a) continue;
      const high = Math.max(counter.value[i] ? 1 : 0, (height * counter.value[i]) / counter.most);
      ctx.fillRect(a, y + height - high, Math.max(0.6, b - a), high);
    }
    ctx.fillStyle = c.rule; ctx.fillRect(view.left, y + height, view.width - view.left, 1);
  };
})();
