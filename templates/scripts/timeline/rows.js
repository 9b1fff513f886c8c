// Rows beside the operations: steps and ranges, idle time, collapsed ranks and groups.
import { WORDS } from "../page/words.js";
import { addShares } from "./intervals.js";
import { drawShare, label } from "./pen.js";
import { clipped, xOf } from "./scale.js";

/** What a row of steps or ranges holds: names, starts, ends. @param {Row & OfRank} row @returns {[string, number, number][]} */
const bandsOf = ({ rank, part }) => {
  if (part === "steps")
    return rank.steps.map(([, n, from, to, isWhole]) => [`step ${n}${isWhole ? "" : " (open)"}`, from, to]);
  const depth = Number(part.slice(4));
  return rank.bands.filter((band) => band[4] === depth).map(([, name, from, to]) => [name, from, to]);
};

/** @param {CanvasRenderingContext2D} ctx @param {View} view @param {Row & OfRank} row @param {number} y */
export const drawBand = (ctx, view, row, y) => {
  ctx.font = "11px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  let done = view.left;
  for (const [name, start, end] of bandsOf(row)) {
    const [a, b] = clipped(view, start, end);
    if (b <= a || b <= done - 0.5) continue;
    done = b;
    ctx.fillStyle = view.colours.soft;
    ctx.fillRect(a, y, b - a, row.height - 2);
    ctx.strokeStyle = view.colours.quiet;
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.moveTo(Math.round(a) + 0.5, y);
    ctx.lineTo(Math.round(a) + 0.5, y + row.height - 2);
    ctx.stroke();
    label(ctx, name, a + 4, b, y + row.height / 2 - 1, view.colours.quiet);
  }
};

/** @param {CanvasRenderingContext2D} ctx @param {View} view @param {Row & OfRank} row @param {number} y */
export const drawIdle = (ctx, view, row, y) => {
  const { rank } = row;
  const busy = rank.busy;
  const c = view.colours;
  const [a, b] = clipped(view, rank.first, rank.last);
  if (b <= a) return;
  // Gaps without a cause of their own are the short ones between kernels, where causes are known at all.
  ctx.fillStyle = view.data.knows_causes ? c.causes[WORDS.between] : c.idle;
  ctx.fillRect(a, y, b - a, row.height);
  const plain = { ...view, dim: 1 };
  drawShare(ctx, plain, busy, c.paper, y, row.height);
  for (const [cause, u] of rank.idle) drawShare(ctx, plain, u, view.fills.causes[cause] ?? c.idle, y, row.height);
};

/** @param {CanvasRenderingContext2D} ctx @param {View} view @param {Row & OfRank} row @param {number} y */
export const drawFolded = (ctx, view, row, y) => {
  const { rank } = row;
  const c = view.colours;
  const [a, b] = clipped(view, rank.first, rank.last);
  if (b > a) {
    ctx.fillStyle = c.idle;
    ctx.globalAlpha = 0.35;
    ctx.fillRect(a, y, b - a, row.height);
    ctx.globalAlpha = 1;
  }
  for (const part of FOLDED) drawShare(ctx, view, rank.parts[part], fillOf(view, part), y, row.height);
  ctx.fillStyle = c.ink;
  for (const step of rank.steps) {
    const at = xOf(view, step[2]);
    if (at >= view.left && at < view.width) ctx.fillRect(at, y, 1, row.height);
  }
};

/** Of a group, from below. @type {PartName[]} */
const PARTS = ["compute", "transfer", "comm", "copy", "unknown", "wait"];
/** Of a collapsed rank, the last on top. @type {PartName[]} */
const FOLDED = ["unknown", "copy", "comm", "transfer", "wait", "compute"];
const STEP = 3;

/** @param {View} view @param {PartName} part @returns {Fill} */
const fillOf = ({ colours, fills, data }, part) => {
  if (part === "wait") return fills.wait;
  return part === "comm" && data.hasWaits ? fills.unsplit : colours[part];
};

/** A group: at each moment how many of its ranks compute, transfer, wait and copy, one above the other.
 * @param {CanvasRenderingContext2D} ctx @param {View} view @param {RowOf<"group">} row @param {number} y */
export const drawGroup = (ctx, view, row, y) => {
  const { colours: c } = view;
  const count = Math.ceil((view.width - view.left) / STEP);
  const dt = ((view.t1 - view.t0) * STEP) / (view.width - view.left);
  const height = row.height - 2;
  const scale = height / (dt * row.ranks.length);
  const base = new Float32Array(count).fill(y + height);
  ctx.fillStyle = c.idle;
  ctx.globalAlpha = 0.3;
  ctx.fillRect(view.left, y, view.width - view.left, height);
  ctx.globalAlpha = 1;
  for (const part of PARTS) {
    const sums = new Float64Array(count);
    for (const rank of row.ranks) addShares(rank.parts[part], view.t0, dt, sums);
    ctx.fillStyle = fillOf(view, part);
    for (let i = 0; i < count; i++) {
      if (!sums[i]) continue;
      const high = sums[i] * scale;
      ctx.fillRect(view.left + i * STEP, base[i] - high, STEP, high);
      base[i] -= high;
    }
  }
};
