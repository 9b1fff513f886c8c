// A stretch of a whole: zoomed, moved, and kept inside.

/** @typedef {[from: number, to: number]} Stretch */

/** About a place that stays where it is. @param {Stretch} stretch @param {number} factor @param {number} [at] @returns {Stretch} */
export const zoomed = ([from, to], factor, at = (from + to) / 2) => [
  at - (at - from) * factor,
  at + (to - at) * factor,
];

/** By a share of its length. @param {Stretch} stretch @param {number} share @returns {Stretch} */
export const moved = ([from, to], share) => [from + share * (to - from), to + share * (to - from)];

/** Inside [0, whole], no shorter than a thousandth of it. @param {Stretch} stretch @param {number} whole @returns {Stretch} */
export const limited = ([from, to], whole) => {
  const length = Math.min(whole, Math.max(whole / 1000, to - from));
  const start = Math.min(Math.max(0, (from + to - length) / 2), whole - length);
  return [start, start + length];
};
