"use strict";
// What the timeline knows: operations decoded from their columns, and unions of intervals for exact sums.
(() => {
  const TA = (globalThis.TA ??= {});

  TA.inflate = async (base64) => {
    const text = atob(base64);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return TA.inflated(bytes);
  };

  TA.inflated = async (bytes) => {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };

  // Reads runs of unsigned LEB128 numbers.
  TA.reader = (bytes) => {
    let at = 0;
    return (count, make = Float64Array) => {
      const out = new make(count);
      for (let i = 0; i < count; i++) {
        let value = 0, factor = 1, byte;
        do { byte = bytes[at++]; value += (byte & 127) * factor; factor *= 128; } while (byte > 127);
        out[i] = value;
      }
      return out;
    };
  };

  // A union of intervals: starts, ends, and the time that lies before each, for sums in O(log n).
  const union = (pairs) => {
    const s = [], e = [];
    for (const [start, end] of pairs) {
      if (end <= start) continue;
      if (s.length && start <= e[e.length - 1]) e[e.length - 1] = Math.max(e[e.length - 1], end);
      else { s.push(start); e.push(end); }
    }
    return finished(s, e);
  };
  const finished = (s, e) => {
    const before = new Float64Array(s.length + 1);
    for (let i = 0; i < s.length; i++) before[i + 1] = before[i] + e[i] - s[i];
    return { s: Float64Array.from(s), e: Float64Array.from(e), before };
  };
  const minus = (a, b) => {
    const s = [], e = [];
    for (let i = 0, j = 0; i < a.s.length; i++) {
      let start = a.s[i];
      while (j < b.s.length && b.e[j] <= start) j++;
      for (let k = j; k < b.s.length && b.s[k] < a.e[i]; k++) {
        if (b.s[k] > start) { s.push(start); e.push(b.s[k]); }
        start = Math.max(start, b.e[k]);
      }
      if (start < a.e[i]) { s.push(start); e.push(a.e[i]); }
    }
    return finished(s, e);
  };
  const merged = (a, b) => union(
    [...a.s].map((start, i) => [start, a.e[i]]).concat([...b.s].map((start, i) => [start, b.e[i]])).sort((x, y) => x[0] - y[0]));

  // Row of the last start that is not after t, -1 before all.
  TA.rowAt = (starts, t) => {
    let low = 0, high = starts.length;
    while (low < high) { const mid = (low + high) >> 1; if (starts[mid] <= t) low = mid + 1; else high = mid; }
    return low - 1;
  };
  TA.coveredBefore = (u, t) => {
    const row = TA.rowAt(u.s, t);
    return row < 0 ? 0 : u.before[row + 1] - Math.max(0, u.e[row] - t);
  };
  TA.covered = (u, t0, t1) => (t1 > t0 ? TA.coveredBefore(u, t1) - TA.coveredBefore(u, t0) : 0);

  const KINDS = ["compute", "comm", "copy", "unknown"];

  const lane = (rank, kind, names) => {
    const rows = [];
    for (let i = 0; i < rank.count; i++) if (names[rank.name[i]][2] === kind) rows.push(i);
    // Operations that overlap within the lane lie on rows of their own.
    const free = [], depth = new Uint8Array(rows.length);
    let longest = 0;
    rows.forEach((op, i) => {
      let place = free.findIndex((end) => end <= rank.start[op]);
      if (place < 0) place = free.length < 6 ? free.length : 5;
      free[place] = rank.end[op];
      depth[i] = place;
      longest = Math.max(longest, rank.end[op] - rank.start[op]);
    });
    return { kind, ops: Int32Array.from(rows), starts: Float64Array.from(rows, (op) => rank.start[op]), depth, rows: Math.max(1, free.length), longest };
  };

  const decodeRank = (entry, read, names) => {
    const n = entry.count;
    const rank = { ...entry, start: read(n), end: read(n), name: read(n, Uint32Array), stream: read(n, Uint32Array), step: read(n, Int32Array),
      delay: read(n), launch: read(n, Uint32Array), operator: read(n, Uint32Array), path: read(n, Uint32Array), place: new Int32Array(n) };
    let t = entry.first;
    for (let i = 0; i < n; i++) { t += rank.start[i]; rank.start[i] = t; rank.end[i] += t; }
    const seen = { compute: 0, comm: 0, copy: 0, unknown: 0 };
    for (let i = 0; i < n; i++) rank.place[i] = seen[names[rank.name[i]][2]]++;
    rank.call = read(seen.comm, Uint32Array); rank.callBytes = read(seen.comm); rank.wait = read(seen.comm); rank.why = read(seen.comm, Uint8Array); rank.copyBytes = read(seen.copy);
    const g = entry.gaps;
    rank.gap = { start: read(g), length: read(g), cause: read(g, Uint8Array), doing: read(g, Uint32Array) };
    t = entry.first_gap;
    for (let i = 0; i < g; i++) { t += rank.gap.start[i]; rank.gap.start[i] = t; }
    return rank;
  };

  const addUnions = (rank, names, causes) => {
    const pairs = { compute: [], comm: [], copy: [], unknown: [], transfer: [], wait: [] };
    for (let i = 0; i < rank.count; i++) {
      const kind = names[rank.name[i]][2], start = rank.start[i], end = rank.end[i];
      pairs[kind].push([start, end]);
      const wait = kind === "comm" ? rank.wait[rank.place[i]] : 0;
      if (wait) { pairs.wait.push([start, start + wait - 1]); pairs.transfer.push([start + wait - 1, end]); }
    }
    pairs.transfer.sort((a, b) => a[0] - b[0]);
    const u = Object.fromEntries(Object.entries(pairs).map(([name, list]) => [name, union(list)]));
    const exposed = minus(u.comm, u.compute), known = minus(minus(u.wait, u.compute), u.transfer);
    rank.idle = causes.map((cause, id) => [cause, union([...rank.gap.start].flatMap((start, i) => (rank.gap.cause[i] === id ? [[start, start + rank.gap.length[i]]] : [])))]);
    // Lanes are made when a rank is first expanded: of hundreds few are.
    let lanes = null;
    Object.defineProperty(rank, "lanes", { get: () => (lanes ??= KINDS.map((kind) => lane(rank, kind, names))) });
    rank.u = u;
    rank.parts = { compute: u.compute, transfer: minus(u.transfer, u.compute), wait: known,
      comm: minus(minus(exposed, u.transfer), u.wait), copy: minus(minus(u.copy, u.compute), u.comm) };
    const told = merged(merged(u.compute, u.comm), u.copy);
    rank.parts.unknown = minus(u.unknown, told);
    rank.busy = merged(told, u.unknown);
    rank.first = rank.count ? rank.start[0] : 0;
    rank.last = rank.busy.e.length ? rank.busy.e[rank.busy.e.length - 1] : 0;
  };

  // Time of each part within [t0, t1) on one rank, as DEFINITIONS splits a window; idle only inside the rank's capture.
  TA.breakdown = (rank, t0, t1) => {
    const from = Math.max(t0, rank.first), to = Math.min(t1, rank.last);
    const parts = Object.fromEntries(Object.entries(rank.parts).map(([name, u]) => [name, TA.covered(u, from, to)]));
    const window = Math.max(0, to - from);
    // A CUDA graph that was recorded as one operation may hold each of them: beside it none is known.
    if (parts.unknown) for (const name of Object.keys(parts)) if (name !== "unknown") parts[name] = null;
    return { window, ...parts, idle: window - TA.covered(rank.busy, from, to) };
  };

  const grouped = (list) => { const made = new Map(); for (const item of list) (made.get(item[0]) ?? made.set(item[0], []).get(item[0])).push(item); return made; };

  TA.loadTimeline = async () => {
    const source = document.getElementById("timeline-data");
    if (!source) return null;
    const packed = JSON.parse(source.textContent);
    source.remove();
    const [meta, bytes] = await Promise.all([TA.inflate(packed.meta), TA.inflate(packed.operations)]);
    const data = JSON.parse(new TextDecoder().decode(meta));
    const read = TA.reader(bytes);
    data.ranks = data.ranks.map((entry) => decodeRank(entry, read, data.names));
    const [steps, bands] = [data.steps, data.bands].map((list) => grouped(list));
    data.ranks.forEach((rank) => {
      addUnions(rank, data.names, data.causes);
      rank.steps = (steps.get(rank.rank) ?? []).sort((a, b) => a[2] - b[2]);
      rank.bands = (bands.get(rank.rank) ?? []).sort((a, b) => a[2] - b[2]);
    });
    data.hasWaits = data.ranks.some((rank) => rank.u.wait.s.length || rank.u.transfer.s.length);
    data.end = data.ranks.reduce((most, rank) => Math.max(most, rank.last), 0);
    data.rankOf = new Map(data.ranks.map((rank) => [rank.rank, rank]));
    data.packed = packed.more;
    return data;
  };
  // A part that is read after the first picture: what it says of itself, and its numbers.
  TA.unpacked = async (pair) => {
    const [meta, bytes] = await Promise.all(pair.map(TA.inflate));
    return [JSON.parse(new TextDecoder().decode(meta)), TA.reader(bytes)];
  };

  // Three significant digits and a unit, as the tables write them.
  TA.digits = (x) => {
    const size = Math.abs(x);
    if (Number.isInteger(x) && size >= 1000 || size >= 100) return Math.round(x).toLocaleString("en-US");
    return Number.isInteger(x) ? String(x) : x.toPrecision(3).replace(/e.*/, "");
  };
  const pick = (x, steps) => steps.find(([size]) => Math.abs(x) >= size) ?? steps[steps.length - 1];
  TA.time = (ns) => { const [size, unit] = pick(ns, [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]]); return `${TA.digits(ns / size)}\u202f${unit}`; };
  TA.bytes = (b) => { const [size, unit] = pick(b, [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]); return `${TA.digits(b / size)}\u202f${unit}`; };
  TA.percent = (part, whole) => (whole ? `${(100 * part / whole).toFixed(1)}\u202f%` : "n/a");
})();
