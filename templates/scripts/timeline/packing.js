// Intervals that overlap, put on rows of their own.

/** The first row whose interval has ended for each interval, in order of start; from the last row on they share it.
 * @param {ArrayLike<number>} starts @param {ArrayLike<number>} ends @param {number} [most] rows */
export const rowsOf = (starts, ends, most = Infinity) => {
  /** @type {number[]} */
  const free = [];
  const depth = new Uint16Array(starts.length);
  for (let i = 0; i < starts.length; i++) {
    let row = free.findIndex((end) => end <= starts[i]);
    if (row < 0) row = Math.min(free.length, most - 1);
    free[row] = ends[i];
    depth[i] = row;
  }
  return { depth, rows: free.length };
};
