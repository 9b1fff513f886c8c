// The critical path: where it runs, and the line that shows it.
import { unpacked } from "../page/unpack.js";
import { rowAt } from "./intervals.js";
import { AXIS, clipped } from "./scale.js";

/** @param {number} value zigzag: 0, -1, 1, -2, … */
const signed = (value) => (value % 2 ? -(value + 1) / 2 : value / 2);

/** @param {Timeline} data */
export const loadPath = async (data) => {
  const [meta, read] = await unpacked(data.packed.path);
  const n = meta.count;
  const start = read(n);
  let t = n ? meta.first : 0;
  for (let i = 0; i < n; i++) {
    t += i ? signed(start[i]) : 0;
    start[i] = t;
  }
  const columns = {
    length: read(n),
    rank: read(n, Uint32Array),
    lane: read(n, Uint8Array),
    category: read(n, Uint8Array),
  };
  data.path = { ...meta, start, ...columns };
};

/** Where the critical path runs on a rank: y of a lane's lower edge, of what is collapsed its middle.
 * @param {View} view @returns {View["places"]} */
export const pathPlaces = (view) => {
  /** @type {Map<Rank, Record<string, number>>} */
  const found = new Map();
  /** @type {Map<Rank, number>} */
  const ofGroup = new Map();
  for (const row of view.layout.rows) {
    const middle = row.y + row.height / 2;
    if (row.part === "group") {
      if (!row.isOpen) row.ranks.forEach((rank) => ofGroup.set(rank, middle));
      continue;
    }
    const own = found.get(row.rank) ?? {};
    found.set(row.rank, own);
    if (row.part === "folded") own.any = middle;
    else if (row.part !== "host") own[row.part] = row.y + row.height - 3;
    else if (!row.lane.frames) own.host ??= row.y + row.height - 4;
  }
  return (rank, lane) => {
    const own = found.get(rank);
    const y = own ? (own.any ?? own[lane] ?? own.idle) : ofGroup.get(rank);
    return y === undefined ? undefined : y + AXIS - view.scroll;
  };
};

/** The path as one line from place to place; what is shorter than a pixel only where the line turns.
 * @param {CanvasRenderingContext2D} ctx @param {View} view */
export const drawPath = (ctx, view) => {
  if (!view.data.path?.count || !view.shows.path) return;
  const line = lineOf(view, view.data.path);
  ctx.lineJoin = "round";
  ctx.setLineDash([]);
  ctx.strokeStyle = view.colours.paper;
  ctx.lineWidth = 4.5;
  ctx.globalAlpha = 0.8;
  ctx.stroke(line);
  ctx.strokeStyle = view.colours.path;
  ctx.lineWidth = 2;
  ctx.globalAlpha = 1;
  ctx.stroke(line);
};

/** @param {View} view @param {Path} path */
const lineOf = (view, path) => {
  const line = new Path2D();
  /** @type {number | null} */
  let last = null;
  let done = -Infinity;
  for (let i = Math.max(0, rowAt(path.start, view.t0)); i < path.count && path.start[i] < view.t1; i++) {
    const rank = path.rank[i] ? view.data.ranks[path.rank[i] - 1] : null;
    const y = rank ? view.places(rank, path.lanes[path.lane[i]]) : undefined;
    if (y === undefined) {
      last = null;
      continue;
    }
    const [a, b] = clipped(view, path.start[i], path.start[i] + path.length[i]);
    if (b - done < 0.8 && last !== null) continue;
    if (last === null) line.moveTo(a, y);
    else if (last !== y) {
      line.lineTo(a, last);
      line.lineTo(a, y);
    }
    line.lineTo(Math.max(a, b), y);
    last = y;
    done = b;
  }
  return line;
};
