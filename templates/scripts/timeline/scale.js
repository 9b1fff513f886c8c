// From time to place and back, and the ticks of the axis.

/** Height of the axis above the rows. */
export const AXIS = 24;

/** @typedef {Pick<View, "t0" | "t1" | "left" | "width">} Scale */

/** Width of the names on the left. @param {number} width */
export const gutterOf = (width) => (width < 560 ? 62 : 126);

/** @param {Scale} scale @param {number} t */
export const xOf = ({ t0, t1, left, width }, t) => left + ((t - t0) * (width - left)) / (t1 - t0);

/** @param {Scale} scale @param {number} px */
export const timeAt = ({ t0, t1, left, width }, px) => t0 + ((px - left) * (t1 - t0)) / (width - left);

/** Where a stretch is drawn, inside the picture. @param {Scale} scale @param {number} from @param {number} to @returns {Pair} */
export const clipped = (scale, from, to) => [
  Math.max(scale.left, xOf(scale, from)),
  Math.min(scale.width, xOf(scale, to)),
];

/** Moments on the axis at round distances, and what is written at them.
 * @param {Scale} scale @param {number} [room] pixels that a tick needs @returns {{ t: number, text: string }[]} */
export const ticksOf = ({ t0, t1, left, width }, room = 110) => {
  const wanted = (t1 - t0) / Math.max(2, (width - left) / room);
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = power * ([1, 2, 5].find((m) => m * power >= wanted) ?? 10);
  const [size, unit] = t1 >= 1e9 && step >= 1e7 ? [1e9, "s"] : step >= 1e3 || t1 >= 1e6 ? [1e6, "ms"] : [1e3, "µs"];
  const decimals = Math.max(0, -Math.floor(Math.log10(step / Number(size)) + 1e-9));
  const ticks = [];
  for (let t = Math.ceil(t0 / step) * step; t <= t1; t += step)
    ticks.push({ t, text: `${(t / Number(size)).toFixed(decimals)} ${unit}` });
  return ticks;
};
