// Colours of the theme, and the page's patterns on a canvas.
import { html } from "../page/dom.js";
import { WORDS } from "../page/words.js";

/** @returns {Colours} */
export const readColours = () => {
  const style = getComputedStyle(document.documentElement);
  const of = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
  const all = (/** @type {[key: string, name: string][]} */ pairs) =>
    Object.fromEntries(pairs.map(([key, name]) => [key, of(name)]));
  return {
    compute: of("compute"),
    transfer: of("transfer"),
    wait: of("wait"),
    comm: of("transfer"),
    unmatched: of("unmatched"),
    copy: of("copy"),
    unknown: of("unknown"),
    idle: of("idle"),
    paper: of("paper"),
    ink: of("ink"),
    quiet: of("quiet"),
    rule: of("rule"),
    soft: of("soft"),
    link: of("link"),
    care: of("care"),
    counter: of("counter"),
    path: of("path"),
    causes: all(Object.entries(WORDS.causes).map(([cause, { kind }]) => [cause, kind])),
    host: all(["range", "operator", "call", "sync", "frame"].map((what) => [what, `host-${what}`])),
  };
};

/** @param {CanvasRenderingContext2D} ctx @param {number} size @param {string} base @param {(pen: CanvasRenderingContext2D) => void} draw
 * @returns {Fill} */
const tiled = (ctx, size, base, draw) => {
  const tile = html("canvas", { width: size, height: size });
  const pen = tile.getContext("2d");
  if (!pen) return base;
  pen.fillStyle = base;
  pen.fillRect(0, 0, size, size);
  draw(pen);
  return ctx.createPattern(tile, "repeat") ?? base;
};

/** Slanting lines over a tile of 6 pixels, from one height to another. @param {number} from @param {number} to
 * @param {number} opacity @param {number} width @returns {(pen: CanvasRenderingContext2D) => void} */
const slanting = (from, to, opacity, width) => (pen) => {
  pen.strokeStyle = `rgba(0,0,0,${opacity})`;
  pen.lineWidth = width;
  pen.beginPath();
  for (const d of [-6, 0, 6]) {
    pen.moveTo(d, from);
    pen.lineTo(d + 6, to);
  }
  pen.stroke();
};

/** @param {CanvasRenderingContext2D} pen */
const dot = (pen) => {
  pen.fillStyle = "rgba(0,0,0,.5)";
  pen.beginPath();
  pen.arc(1.5, 1.5, 1, 0, 7);
  pen.fill();
};

/** @param {number} width @param {number} height @param {number} opacity @returns {(pen: CanvasRenderingContext2D) => void} */
const bar = (width, height, opacity) => (pen) => {
  pen.fillStyle = `rgba(0,0,0,${opacity})`;
  pen.fillRect(0, 0, width, height);
};

/** Size of a pattern's tile, and what is drawn on it. @type {Record<string, [number, (pen: CanvasRenderingContext2D) => void]>} */
const PATTERNS = {
  hatch: [6, slanting(6, 0, 0.3, 1.2)],
  slant: [6, slanting(0, 6, 0.42, 1)],
  dots: [5, dot],
  lines: [5, bar(5, 1.4, 0.38)],
  bars: [4, bar(1, 4, 0.3)],
};

/** What waits, what is not separated, and causes of idling, with their patterns.
 * @param {CanvasRenderingContext2D} ctx @param {Colours} colours @returns {Fills} */
export const readFills = (ctx, colours) => {
  const patterned = (/** @type {string} */ kind, /** @type {string} */ base) => {
    const [size, draw] = PATTERNS[WORDS.patterns[kind]] ?? [];
    return size && draw ? tiled(ctx, size, base, draw) : base;
  };
  const causes = Object.entries(WORDS.causes).map(([cause, { kind }]) => [
    cause,
    patterned(kind, colours.causes[cause]),
  ]);
  return {
    wait: patterned("wait", colours.wait),
    unsplit: patterned("unmatched", colours.unmatched),
    causes: Object.fromEntries(causes),
  };
};
