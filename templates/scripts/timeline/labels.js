// The timeline's words: names of rows on the left, the axis above.
import { amountText } from "../page/numbers.js";
import { nameOf } from "./layout.js";
import { write } from "./pen.js";
import { AXIS, ticksOf, xOf } from "./scale.js";

const FONT = "system-ui, sans-serif";

/** @param {CanvasRenderingContext2D} ctx @param {View} view */
export const drawLabels = (ctx, view) => {
  const { colours: c, left } = view;
  const isWide = left > 80;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  ctx.fillStyle = c.paper;
  ctx.fillRect(0, AXIS, left - 1, view.height);
  if (view.divider !== null) {
    ctx.fillStyle = c.quiet;
    ctx.fillRect(0, view.divider + AXIS - view.scroll, view.width, 1);
  }
  for (const row of view.layout.rows) {
    const y = row.y + AXIS - view.scroll;
    if (y + row.height < AXIS || y > view.height) continue;
    const indent = row.inside ? 12 : 2;
    if (row.part === "group")
      write(ctx, c.ink, `600 12px ${FONT}`, `${row.isOpen ? "▾" : "▸"} ${row.group.name}`, 2, y + 10, left - 4);
    else if (row.head || row.part === "folded") {
      ctx.font = `600 12px ${FONT}`;
      const title = titleOf(ctx, row.part === "folded" ? "▸" : "▾", row.rank.rank, left - indent - 2);
      const end = indent + ctx.measureText(title).width;
      write(ctx, c.ink, `600 12px ${FONT}`, title, indent, y + Math.min(row.height, 18) / 2, left - indent - 2);
      if (row.why && row.part === "folded") write(ctx, c.care, `11px ${FONT}`, row.why, end + 5, y + 9, left - end - 8);
      else if (row.why && isWide) write(ctx, c.care, `11px ${FONT}`, row.why, 14, y + 21, left - 16);
      else if (row.why) write(ctx, c.care, `10px ${FONT}`, row.why.split(":")[0], 4, y + 21, left - 6);
    }
    const name = row.part === "folded" || row.part === "group" ? "" : nameOf(row, !isWide);
    if (name)
      write(
        ctx,
        c.quiet,
        `11px ${FONT}`,
        name,
        isWide ? 14 : 4,
        y + (row.part === "counter" && isWide ? 7 : Math.min(row.height, 22) / 2),
        left - (isWide ? 16 : 6),
      );
    if (view.focus === row.key) {
      ctx.fillStyle = c.link;
      ctx.fillRect(0, y, 3, row.height);
    }
    if (row.part === "counter" && isWide)
      write(ctx, c.quiet, `9px ${FONT}`, `up to ${amountText(row.counter, row.counter.most)}`, 14, y + 18, left - 16);
  }
};

/** A rank's name; on a phone's screen there may be room for its number alone.
 * @param {{ measureText: (text: string) => { width: number } }} ctx @param {string} mark @param {number} rank @param {number} room */
export const titleOf = (ctx, mark, rank, room) => {
  const whole = `${mark} rank ${rank}`;
  return ctx.measureText(whole).width <= room ? whole : `${mark} ${rank}`;
};

/** @param {CanvasRenderingContext2D} ctx @param {View} view */
export const drawAxis = (ctx, view) => {
  const c = view.colours;
  ctx.fillStyle = c.paper;
  ctx.fillRect(0, 0, view.width, AXIS);
  ctx.strokeStyle = c.rule;
  ctx.lineWidth = 1;
  ctx.beginPath();
  ctx.moveTo(0, AXIS - 0.5);
  ctx.lineTo(view.width, AXIS - 0.5);
  ctx.font = `11px ${FONT}`;
  ctx.fillStyle = c.quiet;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  for (const { t, text } of ticksOf(view)) {
    const at = Math.round(xOf(view, t)) + 0.5;
    ctx.moveTo(at, AXIS - 6);
    ctx.lineTo(at, AXIS);
    if (at + 60 < view.width) ctx.fillText(text, at + 3, AXIS / 2 - 2);
  }
  ctx.stroke();
};
