// Lanes of the host below the GPU's: its threads as icicles.
import { unpacked } from "../page/unpack.js";
import { rowAt } from "./intervals.js";
import { label } from "./pen.js";
import { clipped } from "./scale.js";

const LEVEL = 13;
/** @type {Record<string, string>} */
const ROLES = {
  main: "main thread",
  autograd: "autograd thread",
  "data loader": "data loader",
  collectives: "CPU collectives",
  other: "thread",
};

/** @param {Timeline} data */
export const loadHost = async (data) => {
  const [meta, read] = await unpacked(data.packed.host);
  data.host = meta;
  data.ranks.forEach((rank) => {
    rank.host = [];
    rank.counters ??= [];
  });
  for (const entry of data.host.lanes) {
    const lane = laneRead(entry, read, data.host.unit);
    if (isWithin(lane, data.end)) data.rankOf.get(entry.rank)?.host.push(lane);
  }
};

/** Whether a lane has anything while GPU operations ran. @param {HostLane} lane @param {number} end */
const isWithin = ({ start, length }, end) => start.some((t, i) => t < end && t + length[i] > 0);

/** @param {HostEntry} entry @param {NumberReader} read @param {number} unit ns of one @returns {HostLane} */
const laneRead = (entry, read, unit) => {
  const n = entry.count;
  const columns = { start: read(n), length: read(n), name: read(n, Uint32Array) };
  const depth = read(n, Uint8Array);
  const { start, length } = columns;
  let t = entry.first;
  for (let i = 0; i < n; i++) {
    t += i ? start[i] : 0;
    start[i] = t * unit;
    length[i] *= unit;
  }
  const label = entry.frames ? "Python frames" : ROLES[entry.role];
  return { ...entry, ...columns, label, levels: levelsOf(depth, start, length, entry.levels) };
};

/** Each level's events by themselves, in order of start, so that drawing looks only at those in view.
 * @param {Uint8Array} depth @param {Float64Array} start @param {Float64Array} length @param {number} count @returns {Level[]} */
const levelsOf = (depth, start, length, count) => {
  /** @type {number[][]} */
  const rows = Array.from({ length: count }, () => []);
  depth.forEach((level, i) => rows[level].push(i));
  return rows.map((own) => ({
    rows: own,
    starts: Float64Array.from(own, (i) => start[i]),
    longest: own.reduce((most, i) => Math.max(most, length[i]), 0),
  }));
};

/** @param {Rank} rank @param {View} view */
export const hostRows = (rank, view) =>
  (view.shows.host ? (rank.host ?? []) : []).map((lane) => ({
    lane,
    height: LEVEL * Math.min(view.hostDepth, lane.levels.length) + 2,
  }));

/** @param {CanvasRenderingContext2D} ctx @param {View} view @param {RowOf<"host">} row @param {number} y */
export const drawHost = (ctx, view, row, y) => {
  const { lane } = row;
  ctx.font = "10px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  lane.levels.slice(0, view.hostDepth).forEach((level, at) => drawLevel(ctx, view, lane, level, y + at * LEVEL));
  const s = view.selected;
  if (!s || s.op !== undefined || s.lane !== lane) return;
  const [a, b] = clipped(view, lane.start[s.event], lane.start[s.event] + lane.length[s.event]);
  if (b <= a) return;
  ctx.strokeStyle = view.colours.ink;
  ctx.lineWidth = 2;
  ctx.strokeRect(a, y + s.level * LEVEL, Math.max(2, b - a), LEVEL - 1);
};

/** @param {CanvasRenderingContext2D} ctx @param {View} view @param {HostLane} lane @param {Level} level @param {number} top */
const drawLevel = (ctx, view, lane, level, top) => {
  const { names } = view.data.host;
  const { colours: c, found } = view;
  let done = view.left;
  let i = Math.max(0, rowAt(level.starts, view.t0 - level.longest));
  for (; i < level.rows.length && level.starts[i] < view.t1; i++) {
    const event = level.rows[i];
    const [a, b] = clipped(view, lane.start[event], lane.start[event] + lane.length[event]);
    const isFound = found?.hasHost(lane.name[event]);
    // What a search has found is drawn however short it is.
    if (b <= a || (b - done < 0.5 && !isFound)) continue;
    const [what, name] = names[lane.name[event]];
    const from = isFound ? a : Math.max(a, done);
    ctx.globalAlpha = (found && !isFound ? view.dim : 1) * Math.min(1, Math.max(isFound ? 1 : 0.35, b - a));
    ctx.fillStyle = c.host[what];
    ctx.fillRect(from, top, Math.max(isFound ? 1.2 : 0.7, b - from), LEVEL - 1);
    ctx.globalAlpha = 1;
    if (isFound) {
      ctx.fillStyle = c.ink;
      ctx.fillRect(a, top + LEVEL - 3, Math.max(1.2, b - a), 2);
    }
    if (b - a > 24 && (!found || isFound)) label(ctx, name, a + 3, b, top + LEVEL / 2, c.ink, "", 5.6);
    done = b + (b - a > 3 ? 0.6 : 0);
  }
};

/** The event at a place of a host's row, or near it. @param {RowOf<"host">} row @param {number} y @param {number} t @param {number} slack
 * @returns {{ event?: number, level?: number }} */
export const hitHost = ({ lane }, y, t, slack) => {
  const at = Math.floor(y / LEVEL);
  const level = lane.levels[at];
  if (!level) return {};
  /** @type {{ event: number, away: number, level: number } | null} */
  let best = null;
  for (let i = rowAt(level.starts, t + slack); i >= 0 && level.starts[i] >= t - slack - level.longest; i--) {
    const event = level.rows[i];
    const away = Math.max(0, lane.start[event] - t, t - lane.start[event] - lane.length[event]);
    if (away <= slack && (!best || away < best.away)) best = { event, away, level: at };
    if (best?.away === 0) break;
  }
  return best ?? {};
};
