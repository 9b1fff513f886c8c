// The timeline as a file for Perfetto: the trace events that `analyze-traces export` writes, from the page's own columns.
import { html, one } from "../page/dom.js";
import { WORDS } from "../page/words.js";
import { rowsOf } from "./packing.js";

/** @typedef {{ name: string, start: number, end: number, colour: string, args?: Record<string, unknown> }} Slice */
/** @typedef {[track: string, slices: Slice[]]} Track */

/** @param {number} ns */
const us = (ns) => Math.round(ns) / 1000;

/** @param {Timeline} data @param {Rank} rank @param {number} op */
const argsOf = (data, rank, op) => {
  const [, name, kind] = data.names[rank.name[op]];
  /** @type {Record<string, unknown>} */
  const args = { name };
  if (rank.step[op]) args.step = rank.step[op] - 1;
  const texts = {
    launch: data.launches[rank.launch[op]],
    call: data.calls[rank.call[op]],
    why_not_split: data.whys[rank.why[op]],
  };
  for (const [key, text] of Object.entries(texts)) if (text) args[key] = text;
  if ((kind === "comm" || kind === "copy") && rank.bytes[op]) args.size_bytes = rank.bytes[op] - 1;
  return args;
};

/** @param {Timeline} data @param {Rank} rank @returns {Track[]} */
const streamsOf = (data, rank) => {
  /** @type {Map<number, Slice[]>} */
  const streams = new Map([...rank.stream].map((stream) => [stream, []]));
  for (let op = 0; op < rank.count; op++) {
    const [short, , kind] = data.names[rank.name[op]];
    const start = rank.start[op];
    const end = rank.end[op];
    const wait = Math.min(Math.max(0, rank.wait[op] - 1), end - start);
    const args = argsOf(data, rank, op);
    const into = streams.get(rank.stream[op]) ?? [];
    const colour = WORDS.viewer[kind === "comm" ? "transfer" : kind];
    if (wait) into.push({ name: `wait · ${short}`, start, end: start + wait, colour: WORDS.viewer.wait, args });
    if (!wait || start + wait < end) into.push({ name: short, start: start + wait, end, colour, args });
  }
  const order = [...streams].sort(([a], [b]) => Number(data.streams[a]) - Number(data.streams[b]));
  return order.map(([stream, slices]) => [`stream ${data.streams[stream]}`, slices]);
};

/** @param {Rank} rank @returns {Track[]} */
const marksOf = ({ steps, bands }) => {
  const colour = WORDS.viewer.mark;
  const depths = [...new Set(bands.map((band) => band[4]))].sort((a, b) => a - b);
  const ranges = depths.map((depth) => {
    const own = bands.filter((band) => band[4] === depth);
    const slices = own.map(([, name, start, end]) => ({ name, start, end, colour }));
    return /** @type {Track} */ ([depth ? `ranges, ${depth} deep` : "ranges", slices]);
  });
  return [["steps", steps.map(([, step, start, end]) => ({ name: `step ${step}`, start, end, colour }))], ...ranges];
};

/** @param {Timeline} data @param {Rank} rank @returns {Track} */
const idleOf = (data, { gap }) => [
  "idle",
  Array.from(gap.start, (start, i) => {
    const cause = data.causes[gap.cause[i]];
    const slice = {
      name: `idle: ${cause}`,
      start,
      end: start + gap.length[i],
      colour: WORDS.viewer[WORDS.causes[cause].kind],
    };
    const host = data.doings[gap.doing[i]];
    return host ? { ...slice, args: { host } } : slice;
  }),
];

/** Slices that overlap one of their track, on tracks of their own beside it. @param {Slice[]} slices */
const tracksOf = (slices) => {
  const order = [...slices].sort((a, b) => a.start - b.start || a.end - b.end);
  const { depth, rows } = rowsOf(order.map(({ start }) => start), order.map(({ end }) => end)); // prettier-ignore
  return Array.from({ length: rows }, (_, row) => order.filter((_slice, i) => depth[i] === row));
};

/** @param {Timeline} data @param {Rank} rank */
const eventsOf = (data, rank) => {
  const pid = rank.rank;
  /** @type {object[]} */
  const events = [];
  const name = (/** @type {string} */ what, /** @type {number} */ tid, /** @type {object} */ args) =>
    events.push({ ph: "M", name: what, pid, tid, args });
  name("process_name", 0, { name: `rank ${pid}` });
  name("process_sort_index", 0, { sort_index: pid });
  let tid = 0;
  for (const [track, slices] of [...marksOf(rank), idleOf(data, rank), ...streamsOf(data, rank)])
    tracksOf(slices).forEach((own, at) => {
      name("thread_name", tid, { name: at ? `${track} (${at + 1})` : track });
      name("thread_sort_index", tid, { sort_index: tid });
      for (const { name: title, start, end, colour, args } of own)
        events.push({
          ph: "X",
          name: title,
          pid,
          tid,
          ts: us(start),
          dur: us(end - start),
          cname: colour,
          ...(args && { args }),
        });
      tid++;
    });
  return events;
};

/** Pieces of the file's text, a rank at a time: one string of a long run would be too long for some browsers.
 * @param {Timeline} data @param {string} label */
const traceEvents = (data, label) => {
  const head = `{"displayTimeUnit":"ns","otherData":${JSON.stringify({ label, zero_ns: data.zero })},"traceEvents":[\n`;
  const lines = data.ranks.map((rank) => eventsOf(data, rank).map((event) => JSON.stringify(event)).join(",\n")); // prettier-ignore
  return [head, ...lines.map((text, at) => `${at ? ",\n" : ""}${text}`), "\n]}\n"];
};

/** @param {Timeline} data */
export const saveTraceEvents = async (data) => {
  const label = one(document, "h1").textContent ?? "";
  const packed = new Blob(traceEvents(data, label)).stream().pipeThrough(new CompressionStream("gzip"));
  const url = URL.createObjectURL(await new Response(packed).blob());
  html("a", { href: url, download: `${label.replace(/[^\w.-]+/g, "_")}.perfetto.json.gz` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
};
