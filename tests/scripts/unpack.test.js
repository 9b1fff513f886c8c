// What Python packs, the page unpacks; intervals that overlap lie on rows of their own.
import assert from "node:assert/strict";
import test from "node:test";
import { deflateSync } from "node:zlib";
import { inflatedJson, tableReader, unpacked } from "../../templates/scripts/page/unpack.js";
import { rowsOf } from "../../templates/scripts/timeline/packing.js";

/** As `varints` of `columns.py` writes them. */
const varints = (numbers) =>
  numbers.flatMap((number) => {
    const bytes = [];
    for (; number > 127; number = Math.floor(number / 128)) bytes.push((number % 128) + 128);
    return [...bytes, number];
  });

test("columns of numbers of any length, one after the other; of starts the differences are kept", () => {
  const numbers = [0, 1, 127, 128, 300, 2 ** 31, 2 ** 52 + 1];
  const read = tableReader(Uint8Array.from(varints([...numbers, 5, 6, 1])));
  assert.deepEqual([...read({ count: 7, columns: { length: true } }).length], numbers);
  const { count, name, start } = read({ count: 1, columns: { name: false, start: true } });
  assert.ok(name instanceof Uint32Array);
  assert.deepEqual([count, ...name, ...start], [1, 5, 3]);
  assert.deepEqual([...read({ count: 1, columns: { start: true } }).start], [-1]);
});

test("deflated JSON and a pair of what is said and its numbers", async () => {
  const packed = (data) => deflateSync(Buffer.from(data)).toString("base64");
  assert.deepEqual(await inflatedJson(packed('{"why_not":"µs"}')), { why_not: "µs" });
  const [told, read] = await unpacked(packed('{"count":2,"columns":{"wait":false}}'), packed(varints([7, 700])));
  assert.deepEqual([...read(told).wait], [7, 700]);
});

test("what overlaps lies on rows of its own, from the last row on together", () => {
  assert.deepEqual([...rowsOf([0, 1, 2, 5], [3, 6, 4, 7]).depth], [0, 1, 2, 0]);
  assert.equal(rowsOf([0, 1, 2, 5], [3, 6, 4, 7]).rows, 3);
  assert.deepEqual([...rowsOf([0, 1, 2], [9, 9, 9], 2).depth], [0, 1, 1]);
  assert.equal(rowsOf([], []).rows, 0);
});
