// The GPU's lanes: every operation where there is room, else each pixel as full as its time is busy.
import { WORDS } from "../page/words.js";
import { rowAt } from "./intervals.js";
import { isLast } from "./links.js";
import { laneOf } from "./model.js";
import { drawShare, label } from "./pen.js";
import { clipped, xOf } from "./scale.js";

/** @typedef {Row & OfRank & { part: Kind }} OfOperations */

/** @param {CanvasRenderingContext2D} ctx @param {View} view @param {OfOperations} row @param {number} y */
export const drawLane = (ctx, view, row, y) => {
  const lane = laneOf(row.rank, row.part);
  const c = view.colours;
  const height = row.height;
  const from = rowAt(lane.starts, view.t0 - lane.longest) + 1;
  const to = rowAt(lane.starts, view.t1);
  const isDense = to - from > 1.2 * (view.width - view.left);
  if (isDense) {
    const u = row.rank.u;
    const parts = row.rank.parts;
    if (row.part === "comm") {
      if (view.data.hasWaits) {
        drawShare(ctx, view, u.wait, view.fills.wait, y, height);
        drawShare(ctx, view, u.transfer, c.transfer, y, height);
        drawShare(ctx, view, parts.comm, view.fills.unsplit, y, height);
      } else drawShare(ctx, view, u.comm, c.comm, y, height);
    } else drawShare(ctx, view, u[row.part], c[row.part], y, height);
  } else drawOperations(ctx, view, row, lane, from, to, y);
  if (view.found) drawFound(ctx, view, row, lane, from, to, y, isDense);
  drawSelected(ctx, view, row, lane, y);
};

/** A call by its collective: an all-to-all is a kernel of sends and receives.
 * @param {Timeline} data @param {Rank} rank @param {number} op @param {Kind} kind */
const operationName = (data, rank, op, kind) => {
  const call = kind === "comm" ? data.calls[rank.call[op]] : "";
  return call ? call.split(",")[0] : data.names[rank.name[op]][0].replace(/^NCCL /, "");
};

/** @param {CanvasRenderingContext2D} ctx @param {View} view @param {OfOperations} row @param {Lane} lane @param {number} from @param {number} to @param {number} y */
const drawOperations = (ctx, view, row, lane, from, to, y) => {
  const { rank } = row;
  const c = view.colours;
  const each = row.height / lane.rows;
  ctx.font = "11px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  for (let i = from; i <= to; i++) {
    const op = lane.ops[i];
    if (rank.end[op] < view.t0) continue;
    const [a, b] = clipped(view, rank.start[op], rank.end[op]);
    const top = y + lane.depth[i] * each;
    const width = Math.max(b - a, 1);
    const isDim = view.found && !view.found.has(rank, op);
    // Narrower than a pixel: as faint as it is narrow, or many would look like a busy GPU.
    ctx.globalAlpha = view.found
      ? isDim
        ? 0.2 * Math.min(1, Math.max(0.3, b - a))
        : 1
      : Math.min(1, Math.max(0.3, b - a));
    const wait = fillOperation(ctx, view, rank, op, lane.kind, a, width, top, each);
    if (width > 3) {
      ctx.fillStyle = c.paper;
      ctx.fillRect(a, top, 0.6, each);
    }
    if (lane.kind === "comm" && view.data.instances && b - a > 1.5 && isLast(view.data, rank, op))
      drawArrival(ctx, view, xOf(view, rank.start[op]), top);
    if (width > 26 && each >= 10 && !isDim)
      label(
        ctx,
        operationName(view.data, rank, op, lane.kind),
        a + 4,
        b,
        top + each / 2 + 0.5,
        WORDS.texts[lane.kind],
        wait > 1 ? c.wait : "",
      );
  }
  ctx.globalAlpha = 1;
};

/** One operation in its colours, a wait in its own; returns the wait, 0 where it is not known, else one more.
 * @param {CanvasRenderingContext2D} ctx @param {View} view @param {Rank} rank @param {number} op @param {Kind} kind @param {number} from @param {number} width @param {number} top @param {number} height */
const fillOperation = (ctx, view, rank, op, kind, from, width, top, height) => {
  const wait = rank.wait[op];
  ctx.fillStyle = kind === "comm" && view.data.hasWaits && !wait ? view.fills.unsplit : view.colours[kind];
  ctx.fillRect(from, top, width, height);
  if (wait > 1) {
    const [a, b] = clipped(view, rank.start[op], rank.start[op] + wait - 1);
    if (b > a) {
      ctx.fillStyle = view.fills.wait;
      ctx.fillRect(a, top, b - a, height);
    }
  }
  return wait;
};

/** What a search has found keeps its colour at any zoom, however short it is, and is marked above and below.
 * @param {CanvasRenderingContext2D} ctx @param {View} view @param {OfOperations} row @param {Lane} lane @param {number} from @param {number} to @param {number} y @param {boolean} isFaint */
const drawFound = (ctx, view, row, lane, from, to, y, isFaint) => {
  let done = -1;
  for (let i = from; i <= to; i++) {
    const op = lane.ops[i];
    if (!view.found?.has(row.rank, op) || row.rank.end[op] < view.t0) continue;
    const [a, b] = clipped(view, row.rank.start[op], row.rank.end[op]);
    if (b - done < 1) continue;
    done = Math.max(b, a + 1);
    if (isFaint) fillOperation(ctx, view, row.rank, op, lane.kind, a, Math.max(1.2, b - a), y, row.height);
    ctx.fillStyle = view.colours.ink;
    ctx.fillRect(a, y, Math.max(1.2, b - a), 3);
    ctx.fillRect(a, y + row.height - 3, Math.max(1.2, b - a), 3);
  }
};

/** @param {CanvasRenderingContext2D} ctx @param {View} view @param {OfOperations} row @param {Lane} lane @param {number} y */
const drawSelected = (ctx, view, row, lane, y) => {
  const s = view.selected;
  if (s?.op === undefined || s.rank !== row.rank || s.kind !== lane.kind) return;
  const [a, b] = clipped(view, s.rank.start[s.op], s.rank.end[s.op]);
  if (b < view.left || a > view.width) return;
  ctx.strokeStyle = view.colours.ink;
  ctx.lineWidth = 2;
  ctx.strokeRect(a - 1, y, Math.max(3, b - a + 2), row.height);
};

/** The last rank of an instance arrives: a small flag at the start of its call.
 * @param {CanvasRenderingContext2D} ctx @param {View} view @param {number} x @param {number} y */
const drawArrival = (ctx, view, x, y) => {
  if (x < view.left) return;
  ctx.fillStyle = view.colours.ink;
  ctx.beginPath();
  ctx.moveTo(x - 4, y);
  ctx.lineTo(x + 4, y);
  ctx.lineTo(x, y + 6);
  ctx.closePath();
  ctx.fill();
};
