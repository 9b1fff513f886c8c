// Numbers as a person writes them, ticks at round moments, cells and their order, what a search finds.
import assert from "node:assert/strict";
import test from "node:test";
import { inkOn } from "../../templates/scripts/charts/icicle.js";
import { axisOf, roundTicks } from "../../templates/scripts/charts/axis.js";
import { hover } from "../../templates/scripts/charts/hover.js";
import { compare, csvOf, quoted, valueOf } from "../../templates/scripts/page/cells.js";
import { amountText, bytesText, percentText, timeText } from "../../templates/scripts/page/numbers.js";
import { titleOf } from "../../templates/scripts/timeline/labels.js";
import { clipped, ticksOf, timeAt, xOf } from "../../templates/scripts/timeline/scale.js";
import { matches, whyFound } from "../../templates/scripts/timeline/search.js";

const plain = (text) => text.replace("\u202f", " ");

test("times have three digits and the unit that fits", () => {
  const cases = { 0: "0 ns", 7: "7 ns", 999: "999 ns", 1000: "1 µs", 1234: "1.23 µs", 66_812_345: "66.8 ms", 12_934_000_000: "12.9 s", 4_000_000_000_000: "4,000 s" }; // prettier-ignore
  for (const [ns, text] of Object.entries(cases)) assert.equal(plain(timeText(Number(ns))), text);
  assert.equal(plain(timeText(-1500)), "\u22121.50 µs");
});

test("sizes, shares and amounts", () => {
  assert.equal(plain(bytesText(2_500_000)), "2.50 MB");
  assert.equal(plain(percentText(1, 3)), "33.3%");
  assert.equal(percentText(1, 0), "n/a");
  assert.equal(plain(amountText({ unit: "B" }, 1000)), "1 kB");
  assert.equal(plain(amountText({ unit: "GB/s" }, 42.123)), "42.1 GB/s");
  assert.equal(amountText({ unit: "" }, 3), "3");
});

test("a moment's place and the moment of a place are each other's inverse", () => {
  const scale = { t0: 100, t1: 300, left: 50, width: 250 };
  assert.equal(xOf(scale, 100), 50);
  assert.equal(xOf(scale, 300), 250);
  assert.equal(timeAt(scale, xOf(scale, 123)), 123);
  assert.deepEqual(clipped(scale, 0, 200), [50, 150]);
});

test("a rank is named by its number alone where its name has no room", () => {
  const ctx = { measureText: (text) => ({ width: 7 * text.length }) };
  assert.equal(titleOf(ctx, "▾", 60, 63), "▾ rank 60");
  assert.equal(titleOf(ctx, "▾", 160, 63), "▾ 160");
});

test("ticks stand at round moments in the unit of the stretch", () => {
  const ticks = (t0, t1) => ticksOf({ t0, t1, left: 100, width: 1000 }).map(({ text }) => text);
  assert.deepEqual(ticks(0, 60e6).slice(0, 3), ["0 ms", "10 ms", "20 ms"]);
  assert.deepEqual(ticks(12e9, 13e9).slice(0, 2), ["12.0 s", "12.2 s"]);
  assert.deepEqual(ticks(0, 4000).slice(0, 3), ["0.0 µs", "0.5 µs", "1.0 µs"]);
  for (const span of [1e3, 7e5, 3e7, 9e9, 8e11]) assert.ok(ticks(0, span).length >= 3 && ticks(0, span).length <= 10);
});

test("an axis of a chart: round numbers, powers of ten, or what is given", () => {
  assert.deepEqual(roundTicks(0, 10).map(([v]) => v).slice(0, 4), [0, 2, 4, 6]); // prettier-ignore
  assert.deepEqual(roundTicks(0, 2).map(([, text]) => text).slice(0, 4), ["0.0", "0.5", "1.0", "1.5"]); // prettier-ignore
  const log = axisOf({ type: "log", title: { text: "" } }, [1, 1000, -5]);
  assert.deepEqual(log.ticks.map(([, text]) => text), ["1", "10", "100", "1,000"]); // prettier-ignore
  assert.ok(log.place(1) < log.place(1000));
  const given = axisOf({ tickvals: [1, 2], ticktext: ["one", "two"], rangemode: "tozero", title: { text: "" } }, [2]);
  assert.deepEqual(given.ticks, [[1, "one"], [2, "two"]]); // prettier-ignore
  assert.equal(given.place(0), 0);
});

test("hover texts as the figure asks for them", () => {
  const trace = { name: "rank 1", hovertemplate: "%{x:.1f} ms<br>%{y:.1%}, %{text}, %{fullData.name}<extra></extra>", x: [12.34], y: [0.5], text: ["a"] }; // prettier-ignore
  assert.equal(
    hover({ ...trace, hovertemplate: "%{x:.1f} ms<br>%{y:.1%}, %{text}<extra></extra>" }, 0),
    "12.3 ms · 50.0%, a",
  );
});

test("letters on a block are black or white by its brightness", () => {
  assert.equal(inkOn("#ECE7DD"), "#000");
  assert.equal(inkOn("#0072B2"), "#fff");
});

test("values sort as numbers, texts by their numbers, and what is not known stays at the end", () => {
  const order = (values, falling) => values.map(valueOf).sort((a, b) => compare(a, b, falling));
  assert.deepEqual(order(["10", "9", "n/a", "100"], false), [9, 10, 100, null]);
  assert.deepEqual(order(["10", "9", "n/a", "100"], true), [100, 10, 9, null]);
  assert.deepEqual(order(["rank 10", "rank 9"], false), ["rank 9", "rank 10"]);
});

test("CSV quotes what needs it, and runs no formula", () => {
  assert.equal(csvOf([["a", "b,c"], ['say "x"', "-1.5"]]), 'a,"b,c"\n"say ""x""",-1.5'); // prettier-ignore
  assert.equal(quoted("=1+1"), "'=1+1");
  assert.equal(quoted("-1"), "-1");
});

test("a search looks at names, launching operators and the host, and says why", () => {
  const data = {
    names: [["NCCL all-reduce", "ncclDevKernel_AllReduce_RING_LL", "comm"], ["gemm", "nvjet_gemm", "compute"]], // prettier-ignore
    operators: ["aten::mm [4, 4]", "c10d::allreduce_ [8]"],
    host: { names: [["operator", "aten::mm"], ["call", "cudaLaunchKernel"]] }, // prettier-ignore
  };
  const full = matches(data, "ring_ll");
  assert.deepEqual([...full.names], [0]);
  assert.equal(whyFound(data, "ring_ll", full), "; in the full name “ncclDevKernel_AllReduce_RING_LL”");
  const launcher = matches(data, "c10d");
  assert.deepEqual([...launcher.operators], [1]);
  assert.equal(whyFound(data, "c10d", launcher), "; launched by c10d::allreduce_");
  assert.deepEqual([...matches(data, "launchk").host], [1]);
  assert.deepEqual([...matches(data, "[4, 4]").operators], [], "shapes behind an operator's name are not searched");
});
