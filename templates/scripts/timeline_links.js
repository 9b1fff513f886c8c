"use strict";
// What ties operations together, read after the first picture: instances, who was awaited, launching threads, slack; and the critical path.
(() => {
  const TA = globalThis.TA;
  const signed = (value) => (value % 2 ? -(value + 1) / 2 : value / 2);

  TA.loadLinks = async (data) => {
    const [meta, read] = await TA.unpacked(data.packed.links);
    data.instances = new Map();
    data.hasSlack = meta.has_slack;
    data.ranks.forEach((rank, at) => {
      const calls = rank.call.length;
      rank.instance = read(calls, Uint32Array); rank.awaited = read(calls, Uint32Array);
      rank.thread = read(rank.count, Uint16Array); rank.slack = read(rank.count);
      rank.threads = meta.threads[at];
      for (const op of callsOf(data, rank)) {
        const instance = rank.instance[rank.place[op]];
        if (!instance) continue;
        if (!data.instances.has(instance)) data.instances.set(instance, []);
        data.instances.get(instance).push([rank, op]);
      }
    });
  };
  const callsOf = function* (data, rank) { for (let op = 0; op < rank.count; op++) if (data.names[rank.name[op]][2] === "comm") yield op; };

  // The call of the awaited rank in the same instance: who came last, and when. Without one, nobody was awaited.
  TA.lastOf = (data, rank, op) => {
    const place = rank.place[op], who = rank.awaited?.[place];
    if (!who) return null;
    const found = (data.instances.get(rank.instance[place]) ?? []).find(([other]) => other.rank === who - 1);
    return { number: who - 1, rank: found?.[0] ?? null, op: found?.[1] };
  };
  // Whether an operation is the last arrival for which others of its instance waited.
  TA.isLast = (data, rank, op) => {
    const instance = rank.instance?.[rank.place[op]];
    return Boolean(instance) && rank.wait[rank.place[op]] === 1 && data.instances.get(instance).some(([other, own]) => other !== rank && other.awaited[other.place[own]] === rank.rank + 1);
  };

  TA.loadPath = async (data) => {
    const [meta, read] = await TA.unpacked(data.packed.path), n = meta.count;
    const path = { ...meta, start: read(n), length: read(n), rank: read(n, Uint32Array), lane: read(n, Uint8Array), category: read(n, Uint8Array) };
    let t = n ? meta.first : 0;
    for (let i = 0; i < n; i++) { t += i ? signed(path.start[i]) : 0; path.start[i] = t; }
    data.path = path;
  };

  // The path as runs of one place: rank, lane, from, to; shorter than a pixel ones only where the line turns.
  TA.drawPath = (ctx, view) => {
    const { data: { path, ranks }, places } = view;
    if (!path?.count || !view.shows.path) return;
    const from = Math.max(0, TA.rowAt(path.start, view.t0)), pen = new Path2D();
    let last = null, done = -Infinity;
    for (let i = from; i < path.count && path.start[i] < view.t1; i++) {
      const rank = path.rank[i] ? ranks[path.rank[i] - 1] : null, y = rank && places(rank, path.lanes[path.lane[i]]);
      if (y === undefined || y === null) { last = null; continue; }
      const a = Math.max(view.left, TA.xOf(view, path.start[i])), b = Math.min(view.width, TA.xOf(view, path.start[i] + path.length[i]));
      if (b - done < 0.8 && last !== null) continue;
      if (last === null) pen.moveTo(a, y); else if (last !== y) { pen.lineTo(a, last); pen.lineTo(a, y); }
      pen.lineTo(Math.max(a, b), y);
      last = y; done = b;
    }
    ctx.lineJoin = "round"; ctx.setLineDash([]);
    ctx.strokeStyle = view.colours.paper; ctx.lineWidth = 4.5; ctx.globalAlpha = 0.8; ctx.stroke(pen);
    ctx.strokeStyle = view.colours.path; ctx.lineWidth = 2; ctx.globalAlpha = 1; ctx.stroke(pen);
  };

  TA.slackText = (rank, op) => {
    const slack = rank.slack?.[op];
    if (!slack) return "";
    return slack === 1 ? "no slack: on the critical path, or as urgent" : `could end ${TA.time((slack - 1) * 1000)} later`;
  };
})();
