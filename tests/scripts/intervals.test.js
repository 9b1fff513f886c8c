// Unions of intervals, and the rows on which intervals that overlap lie.
import assert from "node:assert/strict";
import test from "node:test";
import { addShares, coveredIn, merged, minus, rowAt, union } from "../../templates/scripts/timeline/intervals.js";
import { rowsOf } from "../../templates/scripts/timeline/packing.js";

const pairs = (u) => Array.from(u.s, (start, i) => [start, u.e[i]]);

test("what touches or overlaps is one stretch, what is empty none", () => {
  const u = union([[0, 2], [2, 5], [4, 5], [7, 7], [8, 9]]); // prettier-ignore
  assert.deepEqual(pairs(u), [[0, 5], [8, 9]]); // prettier-ignore
  assert.deepEqual([...u.before], [0, 5, 6]);
});

test("a stretch that ends inside a longer one does not shorten it", () => {
  assert.deepEqual(pairs(union([[0, 10], [2, 3], [9, 12]])), [[0, 12]]); // prettier-ignore
});

test("a difference cuts at both ends, in the middle, and through several", () => {
  const a = union([[0, 10], [20, 30]]); // prettier-ignore
  assert.deepEqual(pairs(minus(a, union([[3, 5], [8, 22], [29, 40]]))), [[0, 3], [5, 8], [22, 29]]); // prettier-ignore
  assert.deepEqual(pairs(minus(a, union([]))), pairs(a));
  assert.deepEqual(pairs(minus(a, a)), []);
});

test("parts of a union and what is left of it add up", () => {
  const a = union([[0, 10], [12, 20], [25, 26]]); // prettier-ignore
  const b = union([[5, 13], [19, 30]]); // prettier-ignore
  const whole = merged(a, b);
  assert.deepEqual(pairs(whole), [[0, 30]]); // prettier-ignore
  assert.equal(coveredIn(minus(a, b), 0, 30) + coveredIn(b, 0, 30), coveredIn(whole, 0, 30));
});

test("time in a stretch counts what it cuts", () => {
  const u = union([[10, 20], [30, 40]]); // prettier-ignore
  assert.equal(coveredIn(u, 0, 100), 20);
  assert.equal(coveredIn(u, 15, 35), 10);
  assert.equal(coveredIn(u, 20, 30), 0);
  assert.equal(coveredIn(u, 35, 35), 0);
});

test("the row at a moment is that of the last start before it", () => {
  const rows = [9, 10, 15, 20, 99].map((t) => rowAt([10, 15, 20], t));
  assert.deepEqual(rows, [-1, 0, 1, 2, 2]);
  assert.equal(rowAt([], 1), -1);
});

test("bins hold the time of the union that lies in each", () => {
  const sums = new Float64Array(4);
  addShares(union([[0, 3], [12, 18], [35, 60]]), 0, 10, sums); // prettier-ignore
  assert.deepEqual([...sums], [3, 6, 0, 5]);
  const later = new Float64Array(2);
  addShares(union([[0, 3], [12, 18], [35, 60]]), 15, 10, later); // prettier-ignore
  assert.deepEqual([...later], [3, 0]);
});

test("what overlaps lies on rows of its own, and the last row takes what is left", () => {
  const starts = [0, 1, 2, 10, 11];
  const ends = [9, 5, 3, 12, 13];
  assert.deepEqual([...rowsOf(starts, ends).depth], [0, 1, 2, 0, 1]);
  assert.equal(rowsOf(starts, ends).rows, 3);
  assert.deepEqual([...rowsOf(starts, ends, 2).depth], [0, 1, 1, 0, 1]);
  assert.equal(rowsOf([], []).rows, 0);
});
