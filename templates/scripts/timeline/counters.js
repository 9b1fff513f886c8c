// Counters below the GPU's lanes, and the bandwidth of communication.
import { rowAt } from "./intervals.js";
import { drawMemory, isMemory, memoryOf } from "./memory.js";
import { clipped } from "./scale.js";

/** @param {Timeline} data */
export const loadCounters = (data) => {
  data.ranks.forEach((rank) => {
    rank.counters = [];
  });
  for (const entry of data.counters) {
    const table = data.read(entry.table);
    data.rankOf.get(entry.rank)?.counters.push(entry.parts ? memoryOf(entry, table) : counterOf(entry, table));
  }
  for (const rank of data.ranks) if (rank.counters.length) rank.counters.push(...bandwidth(data, rank));
};

/** Values are in thousandths of the largest. @param {CounterEntry} entry @param {any} table @returns {Counter} */
const counterOf = (entry, { value, ...table }) => {
  const most = entry.most ?? 0;
  return { ...entry, ...table, most, value: Float64Array.from(value, (share) => (share * most) / 1000) };
};

/** What each call moves a second while it transfers: its size over its transfer time; none where no size is known.
 * @param {Timeline} data @param {Rank} rank @returns {Counter[]} */
const bandwidth = (data, rank) => {
  /** @type {[start: number, length: number, value: number][]} */
  const rows = [];
  for (let op = 0; op < rank.count; op++) {
    if (data.names[rank.name[op]][2] !== "comm") continue;
    const bytes = rank.bytes[op] - 1;
    const wait = rank.wait[op] - 1;
    const length = rank.end[op] - rank.start[op] - wait;
    if (bytes > 0 && wait >= 0 && length > 0) rows.push([rank.start[op] + wait, length, bytes / length]);
  }
  if (!rows.length) return [];
  rows.sort((a, b) => a[0] - b[0]);
  const [start, length, value] = [0, 1, 2].map((at) => Float64Array.from(rows, (row) => row[at]));
  const most = value.reduce((high, each) => Math.max(high, each), 0);
  return [{ name: "bandwidth", unit: "GB/s", most, count: rows.length, start, length, value }];
};

/** @param {Rank} rank @param {View} view */
export const counterRows = (rank, view) => (view.shows.counters ? (rank.counters ?? []) : []);

/** @param {CanvasRenderingContext2D} ctx @param {View} view @param {RowOf<"counter">} row @param {number} y */
export const drawCounter = (ctx, view, { counter, height: whole }, y) => {
  if (isMemory(counter)) {
    drawMemory(ctx, view, counter, whole, y);
    return;
  }
  const height = whole - 3;
  ctx.fillStyle = view.colours.counter;
  for (let i = Math.max(0, rowAt(counter.start, view.t0)); i < counter.count && counter.start[i] < view.t1; i++) {
    const [a, b] = clipped(view, counter.start[i], counter.start[i] + counter.length[i]);
    if (b <= a) continue;
    const high = Math.max(counter.value[i] ? 1 : 0, (height * counter.value[i]) / counter.most);
    ctx.fillRect(a, y + height - high, Math.max(0.6, b - a), high);
  }
  ctx.fillStyle = view.colours.rule;
  ctx.fillRect(view.left, y + height, view.width - view.left, 1);
};
