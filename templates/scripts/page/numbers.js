// Numbers as the tables write them: three significant digits and a unit, by the rules of `meaning/quantities.py`.

/** With separators, and so many decimals. @param {number} x @param {number} places */
export const fixed = (x, places) =>
  x.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places }).replace("-", "\u2212");

/** @param {number} x */
export const digits = (x) => {
  if (Number.isInteger(x) || Math.abs(x) >= 100) return fixed(x, 0);
  const rounded = Number(x.toPrecision(3));
  return fixed(rounded, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(rounded)))));
};

/** Percent without the sign: no more than two decimals. @param {number} x */
export const perCent = (x) => (Math.abs(x) >= 1 || Number.isInteger(x) ? digits(x) : fixed(x, 2));

/** The unit is that of the number as it is shown: 999.7 µs are 1.00 ms.
 * @param {number} x @param {[size: number, unit: string][]} units */
const withUnit = (x, units) => {
  const shown = Number(Math.abs(x).toPrecision(3));
  const [size, unit] = units.find(([least]) => shown >= least) ?? units[units.length - 1];
  return `${digits(x / size)}\u202f${unit}`;
};

/** @type {[number, string][]} */
const TIMES = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]]; // prettier-ignore
/** @type {[number, string][]} */
const SIZES = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]; // prettier-ignore

/** @param {number} ns */
export const timeText = (ns) => withUnit(ns, TIMES);

/** @param {number} bytes */
export const bytesText = (bytes) => withUnit(bytes, SIZES);

/** @param {number} part @param {number} whole */
export const percentText = (part, whole) => (whole ? `${perCent((100 * part) / whole)}%` : "n/a");

/** @param {{unit: string}} counter @param {number} value */
export const amountText = ({ unit }, value) =>
  unit === "B" ? bytesText(value) : `${digits(value)}${unit ? `\u202f${unit}` : ""}`;
