// Unions of intervals, for exact sums of time in O(log n).

/** The union of intervals that are in order of start. @param {Iterable<Pair>} pairs @returns {Union} */
export const union = (pairs) => {
  /** @type {number[]} */
  const s = [];
  /** @type {number[]} */
  const e = [];
  for (const [start, end] of pairs) {
    if (end <= start) continue;
    if (s.length && start <= e[e.length - 1]) e[e.length - 1] = Math.max(e[e.length - 1], end);
    else {
      s.push(start);
      e.push(end);
    }
  }
  return finished(s, e);
};

/** @param {number[]} s @param {number[]} e @returns {Union} */
const finished = (s, e) => {
  const before = new Float64Array(s.length + 1);
  for (let i = 0; i < s.length; i++) before[i + 1] = before[i] + e[i] - s[i];
  return { s: Float64Array.from(s), e: Float64Array.from(e), before };
};

/** What of a lies outside of b. @param {Union} a @param {Union} b */
export const minus = (a, b) => {
  /** @type {number[]} */
  const s = [];
  /** @type {number[]} */
  const e = [];
  for (let i = 0, j = 0; i < a.s.length; i++) {
    let start = a.s[i];
    while (j < b.s.length && b.e[j] <= start) j++;
    for (let k = j; k < b.s.length && b.s[k] < a.e[i]; k++) {
      if (b.s[k] > start) {
        s.push(start);
        e.push(b.s[k]);
      }
      start = Math.max(start, b.e[k]);
    }
    if (start < a.e[i]) {
      s.push(start);
      e.push(a.e[i]);
    }
  }
  return finished(s, e);
};

/** @param {Union} u @returns {Pair[]} */
const pairsOf = (u) => Array.from(u.s, (start, i) => [start, u.e[i]]);

/** The union of two. @param {Union} a @param {Union} b */
export const merged = (a, b) => union([...pairsOf(a), ...pairsOf(b)].sort((x, y) => x[0] - y[0]));

/** Row of the last start that is not after t, -1 before all. @param {ArrayLike<number>} starts @param {number} t */
export const rowAt = (starts, t) => {
  let low = 0;
  let high = starts.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (starts[mid] <= t) low = mid + 1;
    else high = mid;
  }
  return low - 1;
};

/** Time of the union before t. @param {Union} u @param {number} t */
export const coveredBefore = (u, t) => {
  const row = rowAt(u.s, t);
  return row < 0 ? 0 : u.before[row + 1] - Math.max(0, u.e[row] - t);
};

/** Time of the union in [t0, t1). @param {Union} u @param {number} t0 @param {number} t1 */
export const coveredIn = (u, t0, t1) => (t1 > t0 ? coveredBefore(u, t1) - coveredBefore(u, t0) : 0);

/** Adds to each bin of dt from t0 on the time of the union that lies in it: one walk, however many bins there are.
 * @param {Union} u @param {number} t0 @param {number} dt @param {Float64Array} sums */
export const addShares = (u, t0, dt, sums) => {
  for (let row = Math.max(0, rowAt(u.s, t0)); row < u.s.length; row++) {
    let from = Math.max(u.s[row], t0);
    let bin = Math.floor((from - t0) / dt);
    if (bin >= sums.length) return;
    for (; from < u.e[row] && bin < sums.length; bin++) {
      const to = Math.min(u.e[row], t0 + (bin + 1) * dt);
      if (to <= from) continue;
      sums[bin] += to - from;
      from = to;
    }
  }
};
