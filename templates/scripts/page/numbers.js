// Numbers as the tables write them: three significant digits and a unit.

/** @param {number} x */
export const digits = (x) => {
  const size = Math.abs(x);
  if ((Number.isInteger(x) && size >= 1000) || size >= 100) return Math.round(x).toLocaleString("en-US");
  return Number.isInteger(x) ? String(x) : x.toPrecision(3).replace(/e.*/, "");
};

/** @param {number} x @param {[size: number, unit: string][]} units */
const withUnit = (x, units) => {
  const [size, unit] = units.find(([least]) => Math.abs(x) >= least) ?? units[units.length - 1];
  return `${digits(x / size)}\u202f${unit}`;
};

/** @type {[number, string][]} */
const TIMES = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]]; // prettier-ignore
/** @type {[number, string][]} */
const SIZES = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]; // prettier-ignore

/** @param {number} ns */
export const timeText = (ns) => withUnit(ns, TIMES);

/** @param {number} bytes */
export const bytesText = (bytes) => withUnit(bytes, SIZES);

/** @param {number} part @param {number} whole */
export const percentText = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)}\u202f%` : "n/a");

/** @param {{unit: string}} counter @param {number} value */
export const amountText = ({ unit }, value) =>
  unit === "B" ? bytesText(value) : `${digits(value)}${unit ? `\u202f${unit}` : ""}`;
