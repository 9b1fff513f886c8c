// Lanes of the host below the GPU's: its threads as icicles.
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
export const loadHost = (data) => {
  data.ranks.forEach((rank) => {
    rank.host = [];
    rank.counters ??= [];
  });
  for (const entry of data.host.lanes) {
    const lane = laneRead(entry, data);
    if (isWithin(lane, data)) data.rankOf.get(entry.rank)?.host.push(lane);
  }
};

/** Whether a lane has anything in what is drawn. @param {HostLane} lane @param {Pick<Timeline, "begin" | "end">} drawn */
const isWithin = ({ start, length }, { begin, end }) => start.some((t, i) => t < end && t + length[i] > begin);

/** @param {HostEntry} entry @param {Timeline} data @returns {HostLane} */
const laneRead = (entry, { read, host }) => {
  const { start, length, ...columns } = read(entry.table);
  const [from, ns] = [start, length].map((times) => Float64Array.from(times, (time) => time * host.unit));
  const label = entry.frames ? "Python frames" : ROLES[entry.role];
  return { ...entry, ...columns, start: from, length: ns, label, levels: levelsOf(columns.depth, from, ns) };
};

/** Each level's events by themselves, in order of start, so that drawing looks only at those in view.
 * @param {Numbers} depth @param {Float64Array} start @param {Float64Array} length @returns {Level[]} */
const levelsOf = (depth, start, length) => {
  /** @type {number[][]} */
  const rows = [];
  depth.forEach((level, i) => (rows[level] ??= []).push(i));
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
