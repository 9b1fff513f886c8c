// What is drawn over the lanes: the critical path, what an awaited rank did, where an operation was launched.
import { drawPath } from "./path.js";
import { arrow } from "./pen.js";
import { AXIS, clipped, xOf } from "./scale.js";

/** @param {CanvasRenderingContext2D} ctx @param {View} view */
export const drawMarks = (ctx, view) => {
  drawPath(ctx, view);
  drawAwaited(ctx, view);
  drawLaunch(ctx, view);
};

/** @param {View} view @param {Rank} rank @returns {Pair | null} y and height */
const band = (view, rank) => {
  const rows = view.layout.rows.filter((row) => row.rank === rank);
  if (!rows.length) return null;
  const last = rows[rows.length - 1];
  const y = rows[0].y + AXIS - view.scroll;
  return [y, last.y + last.height + AXIS - view.scroll - y];
};

/** @param {View} view @param {Rank} rank @param {string} part @returns {Pair | null} y and height */
const rowOf = (view, rank, part) => {
  const row = view.layout.rows.find((each) => each.rank === rank && (each.part === part || each.part === "folded"));
  return row ? [row.y + AXIS - view.scroll, row.height] : null;
};

// While one rank waits: the stretch on the other in a frame, and its arrival tied to the wait's end.
/** @param {CanvasRenderingContext2D} ctx @param {View} view */
const drawAwaited = (ctx, view) => {
  const s = view.awaited;
  if (!s) return;
  const own = band(view, s.rank);
  const [a, b] = clipped(view, s.from, s.to);
  if (!own || b <= a) return;
  ctx.strokeStyle = view.colours.wait;
  ctx.lineWidth = 2;
  ctx.setLineDash([5, 3]);
  ctx.strokeRect(a, own[0], Math.max(2, b - a), own[1]);
  ctx.setLineDash([]);
  const from = rowOf(view, s.rank, "comm");
  const to = rowOf(view, s.source.rank, "comm");
  const x = xOf(view, s.to);
  if (!from || !to || x < view.left || x > view.width) return;
  const down = to[0] > from[0];
  ctx.strokeStyle = view.colours.wait;
  ctx.lineWidth = 2;
  arrow(ctx, x, down ? from[0] + from[1] : from[0], x, down ? to[0] : to[0] + to[1]);
};

// From the call on the host to the operation that it launched.
/** @param {CanvasRenderingContext2D} ctx @param {View} view */
const drawLaunch = (ctx, view) => {
  const s = view.selected;
  if (!s || s.op === undefined || !s.rank.delay[s.op]) return;
  const thread = view.data.threads[s.rank.thread[s.op]];
  const host = view.layout.rows.find(
    (row) => row.rank === s.rank && row.part === "host" && row.lane.thread === thread && !row.lane.frames,
  );
  const to = rowOf(view, s.rank, s.kind);
  const at = s.rank.start[s.op] - s.rank.delay[s.op] + 1;
  if (!host || !to || s.rank.start[s.op] < view.t0 || at > view.t1) return;
  const x0 = Math.max(view.left, xOf(view, at));
  const y0 = host.y + AXIS - view.scroll;
  ctx.fillStyle = view.colours.ink;
  ctx.fillRect(x0 - 1, y0, 2, host.height);
  ctx.strokeStyle = view.colours.paper;
  ctx.lineWidth = 4;
  arrow(ctx, x0, y0, Math.min(view.width, xOf(view, s.rank.start[s.op])), to[0] + to[1]);
  ctx.strokeStyle = view.colours.ink;
  ctx.lineWidth = 1.6;
  arrow(ctx, x0, y0, Math.min(view.width, xOf(view, s.rank.start[s.op])), to[0] + to[1]);
};
