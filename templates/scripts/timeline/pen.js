// What every lane is drawn with: words that fit, shares of a pixel, arrows.
import { coveredBefore } from "./intervals.js";
import { timeAt } from "./scale.js";

/** Words where they fit, cut to what fits.
 * @param {CanvasRenderingContext2D} ctx @param {string} text @param {number} from @param {number} to @param {number} middle @param {string} colour @param {string} [halo] behind the letters @param {number} [each] */
export const label = (ctx, text, from, to, middle, colour, halo = "", each = 6.1) => {
  const room = to - from - 3;
  const fits = Math.floor(room / each);
  if (fits < Math.min(4, text.length)) return;
  const shown = text.length <= fits ? text : `${text.slice(0, Math.max(1, fits - 1))}…`;
  if (halo) {
    ctx.save();
    ctx.beginPath();
    ctx.rect(from - 4, middle - 20, to - from + 4, 40);
    ctx.clip();
    ctx.strokeStyle = halo;
    ctx.lineWidth = 4;
    ctx.strokeText(shown, from, middle);
    ctx.restore();
  }
  ctx.fillStyle = colour;
  ctx.fillText(shown, from, middle);
};

/** Level of detail: a pixel is as opaque as its share of time that the union covers.
 * @param {CanvasRenderingContext2D} ctx @param {Pick<View, "t0" | "t1" | "left" | "width" | "dim">} view @param {Union} u @param {Fill} fill @param {number} y @param {number} height */
export const drawShare = (ctx, view, u, fill, y, height) => {
  const from = Math.floor(view.left);
  const to = Math.ceil(view.width);
  const dt = (view.t1 - view.t0) / (view.width - view.left);
  ctx.fillStyle = fill;
  let last = coveredBefore(u, timeAt(view, from));
  let run = from;
  let share = -1;
  for (let px = from; px <= to; px++) {
    const next = px < to ? coveredBefore(u, timeAt(view, px + 1)) : last;
    const part = px < to ? (next === last ? 0 : Math.max(0.2, Math.round((20 * (next - last)) / dt) / 20)) : -1;
    if (part !== share) {
      if (share > 0) {
        ctx.globalAlpha = Math.min(1, share) * view.dim;
        ctx.fillRect(run, y, px - run, height);
      }
      run = px;
      share = part;
    }
    last = next;
  }
  ctx.globalAlpha = 1;
};

/** @param {CanvasRenderingContext2D} ctx @param {string} colour @param {string} font @param {string} text @param {number} x @param {number} y @param {number} room */
export const write = (ctx, colour, font, text, x, y, room) => {
  ctx.font = font;
  ctx.fillStyle = colour;
  let shown = text;
  while (shown.length > 2 && ctx.measureText(shown).width > room) shown = `${shown.slice(0, -2)}…`;
  ctx.fillText(shown, x, y);
};

/** @param {CanvasRenderingContext2D} ctx @param {number} x0 @param {number} y0 @param {number} x1 @param {number} y1 */
export const arrow = (ctx, x0, y0, x1, y1) => {
  const angle = Math.atan2(y1 - y0, x1 - x0);
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  for (const turn of [-0.45, 0.45]) {
    ctx.moveTo(x1, y1);
    ctx.lineTo(x1 - 8 * Math.cos(angle + turn), y1 - 8 * Math.sin(angle + turn));
  }
  ctx.stroke();
};
