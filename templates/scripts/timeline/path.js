// The critical path: where it runs, and the line that shows it.
import { rowAt } from "./intervals.js";
import { AXIS, clipped } from "./scale.js";

/** @param {Timeline} data */
export const loadPath = (data) => {
  Object.assign(data.path, data.read(data.path.table));
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
    else if (!row.lane.frames) own.host ??= row.y + row.height - 2;
  }
  return (rank, lane) => {
    const own = found.get(rank);
    const y = own ? (own.any ?? own[lane] ?? own.idle) : ofGroup.get(rank);
    return y === undefined ? undefined : y + AXIS - view.scroll;
  };
};

const TURN = 5; // pixels: shorter visits elsewhere are drawn only where the path stays

/** The path as one line from place to place: bold where it runs, thin where it turns to another lane or rank.
 * @param {CanvasRenderingContext2D} ctx @param {View} view */
export const drawPath = (ctx, view) => {
  if (!view.data.path?.count || !view.shows.path) return;
  const { runs, turns } = linesOf(view, view.data.path);
  ctx.lineJoin = "round";
  ctx.setLineDash([]);
  for (const isHalo of [true, false]) {
    ctx.strokeStyle = isHalo ? view.colours.paper : view.colours.path;
    ctx.globalAlpha = isHalo ? 0.8 : 1;
    ctx.lineWidth = isHalo ? 2.5 : 1;
    ctx.stroke(turns);
    ctx.lineWidth = isHalo ? 4.5 : 2;
    ctx.stroke(runs);
  }
  ctx.globalAlpha = 1;
};

/** @param {View} view @param {Path} path */
const linesOf = (view, path) => {
  const runs = new Path2D();
  const turns = new Path2D();
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
    if (last !== null && (y === last ? b - done < 0.8 : b - done < TURN)) continue;
    if (last !== null && a > done) {
      runs.moveTo(done, last);
      runs.lineTo(a, last);
    }
    if (last !== null && last !== y) {
      turns.moveTo(a, last);
      turns.lineTo(a, y);
    }
    runs.moveTo(a, y);
    runs.lineTo(Math.max(a, b), y);
    last = y;
    done = b;
  }
  return { runs, turns };
};
