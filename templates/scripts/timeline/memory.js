// The lane of a rank's memory by category: stacked, the peak marked; a click tells what is held at that moment.
import { bytesText, percentText, timeText } from "../page/numbers.js";
import { rowAt } from "./intervals.js";
import { clipped } from "./scale.js";

const SHADES = [1, 0.72, 0.5, 0.32, 0.2];

/** A column for each category's bytes; the value is their sum.
 * @param {CounterEntry} entry @param {any} table @returns {MemoryCounter} */
export const memoryOf = ({ parts = [], peak = 0, ...entry }, { count, start, length, ...columns }) => {
  const levels = parts.map((name) => columns[name]);
  /** @type {Float64Array} */
  const value = start.map((/** @type {number} */ _, /** @type {number} */ i) =>
    levels.reduce((sum, level) => sum + level[i], 0),
  );
  return { ...entry, parts, peak, count, start, length, levels, value, most: value[peak] };
};

/** @param {Counter | MemoryCounter} counter @returns {counter is MemoryCounter} */
export const isMemory = (counter) => "parts" in counter;

/** @param {CanvasRenderingContext2D} ctx @param {View} view @param {MemoryCounter} counter @param {number} whole @param {number} y */
export const drawMemory = (ctx, view, counter, whole, y) => {
  const high = whole - 3;
  const base = y + high;
  const last = counter.parts.length - 1;
  for (let i = Math.max(0, rowAt(counter.start, view.t0)); i < counter.count && counter.start[i] < view.t1; i++) {
    const [a, b] = clipped(view, counter.start[i], counter.start[i] + counter.length[i]);
    if (b <= a) continue;
    let at = base;
    // Unknown, what was there before, lies at the bottom.
    for (let part = last; part >= 0; part--) {
      const size = (high * counter.levels[part][i]) / counter.most;
      ctx.fillStyle = part === last ? view.colours.idle : view.colours.counter;
      ctx.globalAlpha = part === last ? 0.6 : SHADES[part % SHADES.length];
      ctx.fillRect(a, at - size, Math.max(0.6, b - a), size);
      at -= size;
    }
  }
  ctx.globalAlpha = 1;
  ctx.fillStyle = view.colours.rule;
  ctx.fillRect(view.left, base, view.width - view.left, 1);
  mark(ctx, view, counter, counter.peak, [y, high], view.colours.care);
  if (view.memory?.counter === counter) mark(ctx, view, counter, view.memory.at, [y, high], view.colours.ink);
};

/** @param {CanvasRenderingContext2D} ctx @param {View} view @param {MemoryCounter} counter @param {number} i
 * @param {Pair} box y and height @param {string} colour */
const mark = (ctx, view, counter, i, [y, high], colour) => {
  if (counter.start[i] < view.t0 || counter.start[i] > view.t1) return;
  const [x] = clipped(view, counter.start[i], counter.start[i] + Math.max(1, counter.length[i]));
  ctx.fillStyle = colour;
  ctx.fillRect(x - 0.5, y, 1.5, high);
  ctx.beginPath();
  ctx.moveTo(x - 4, y);
  ctx.lineTo(x + 4, y);
  ctx.lineTo(x, y + 6);
  ctx.closePath();
  ctx.fill();
};

/** What is held at a moment: categories and their bytes. @param {MemoryCounter} counter @param {number} i
 * @returns {[name: string, bytes: number][]} */
const held = ({ parts, levels }, i) =>
  parts.flatMap((name, part) =>
    levels[part][i] > 0 ? [/** @type {[string, number]} */ ([name, levels[part][i]])] : [],
  );

/** @param {MemoryCounter} counter @param {number} i */
export const memoryText = (counter, i) => {
  const each = held(counter, i).map(([name, bytes]) => `${name} ${bytesText(bytes)}`);
  const peak = i === counter.peak ? ", the peak" : "";
  return `${counter.name}: ${bytesText(counter.value[i])}${peak} · ${each.join(", ")}`;
};

/** The place that a click means: near the peak's mark, and without a moment, the peak.
 * @param {View} view @param {MemoryCounter} counter @param {number} [t] */
export const momentOf = (view, counter, t) => {
  const slack = (6 * (view.t1 - view.t0)) / (view.width - view.left);
  if (t === undefined || Math.abs(t - counter.start[counter.peak]) <= slack) return counter.peak;
  return Math.max(0, rowAt(counter.start, t));
};

/** @param {MemoryCounter} counter @param {number} at @param {number} rank @returns {[term: string, value: string | number][]} */
export const memoryFacts = (counter, at, rank) => [
  [at === counter.peak ? "Memory at the peak" : "Memory", bytesText(counter.value[at])],
  ["Rank", rank],
  ["At", timeText(counter.start[at])],
  ...held(counter, at).map(
    ([name, bytes]) =>
      /** @type {[string, string]} */ ([name, `${bytesText(bytes)}, ${percentText(bytes, counter.value[at])}`]),
  ),
];
