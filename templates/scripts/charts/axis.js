// An axis: a function from values to 0…1, and its ticks.
import { digits, fixed } from "../page/numbers.js";

/** @typedef {[value: number, text: string]} Tick */

/** @param {Axis} axis @param {number[]} values @returns {{ place: (value: number) => number, ticks: Tick[] }} */
export const axisOf = (axis, values) => {
  const isLog = axis.type === "log";
  const f = (/** @type {number} */ v) => (isLog ? Math.log10(v) : v);
  const known = values.filter((v) => Number.isFinite(v) && (!isLog || v > 0));
  const fromZero = axis.rangemode === "tozero";
  let low = known.reduce((m, v) => Math.min(m, f(v)), fromZero ? 0 : Infinity);
  let high = known.reduce((m, v) => Math.max(m, f(v)), -Infinity);
  const room = (high - low || 1) * 0.05;
  high += room;
  if (!fromZero) low -= room;
  const ticks = givenTicks(axis) ?? (isLog ? powersOf10(low, high) : roundTicks(low, high));
  return { place: (v) => (f(v) - low) / (high - low), ticks: ticks.filter(([v]) => f(v) >= low && f(v) <= high) };
};

/** @param {Axis} axis @returns {Tick[] | undefined} */
const givenTicks = ({ tickvals, ticktext }) => tickvals?.map((value, at) => [value, ticktext?.[at] ?? digits(value)]);

const ONE_DIGIT = { maximumSignificantDigits: 1 };

/** @param {number} low @param {number} high logarithms @returns {Tick[]} */
const powersOf10 = (low, high) =>
  Array.from({ length: Math.ceil(high) - Math.floor(low) + 1 }, (_, at) => {
    const value = 10 ** (Math.floor(low) + at);
    return [value, value < 0.001 || value >= 1e6 ? value.toExponential(0) : value.toLocaleString("en-US", ONE_DIGIT)];
  });

/** @param {number} low @param {number} high @returns {Tick[]} */
export const roundTicks = (low, high) => {
  const power = 10 ** Math.floor(Math.log10((high - low) / 5));
  const step = power * ([1, 2, 5].find((m) => (high - low) / (m * power) <= 6) ?? 10);
  const places = Math.max(0, -Math.floor(Math.log10(step)));
  return Array.from({ length: 9 }, (_, at) => {
    const value = (Math.ceil(low / step) + at) * step;
    return [value, fixed(value, places)];
  });
};
