// The whole picture, row by row.
import { drawCounter } from "./counters.js";
import { drawHost } from "./host.js";
import { drawAxis, drawLabels } from "./labels.js";
import { isOperations } from "./layout.js";
import { drawMarks } from "./marks.js";
import { drawLane } from "./operations.js";
import { pathPlaces } from "./path.js";
import { drawBand, drawFolded, drawGroup, drawIdle } from "./rows.js";
import { AXIS } from "./scale.js";

/** @param {CanvasRenderingContext2D} ctx @param {View} view */
export const drawTimeline = (ctx, view) => {
  const { width, height, colours: c } = view;

  ctx.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
  ctx.fillStyle = c.paper;
  ctx.fillRect(0, 0, width, height);
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, AXIS, width, height - AXIS);
  ctx.clip();
  for (const row of view.layout.rows) {
    const y = row.y + AXIS - view.scroll;
    if (y + row.height < AXIS || y > height) continue;
    if (row.part === "group") drawGroup(ctx, view, row, y);
    else if (row.part === "host") drawHost(ctx, view, row, y);
    else if (row.part === "counter") drawCounter(ctx, view, row, y);
    else if (isOperations(row)) drawLane(ctx, view, row, y);
    else if (row.part === "idle") drawIdle(ctx, view, row, y);
    else if (row.part === "folded") drawFolded(ctx, view, row, y);
    else drawBand(ctx, view, row, y);
  }
  view.places = pathPlaces(view);
  drawMarks(ctx, view);
  drawLabels(ctx, view);
  ctx.restore();
  drawAxis(ctx, view);
  if (view.drag) {
    const [a, b] = view.drag;
    ctx.fillStyle = c.link;
    ctx.globalAlpha = 0.22;
    ctx.fillRect(Math.min(a, b), AXIS, Math.abs(b - a), height);
    ctx.globalAlpha = 1;
  }
};
