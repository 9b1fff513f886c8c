// What the timeline says of what is chosen: an operation, an event of the host, a wait and who was awaited.
import { memoryFacts, momentOf } from "./memory.js";
import { byId, html } from "../page/dom.js";
import { bytesText, timeText } from "../page/numbers.js";
import { WORDS } from "../page/words.js";
import { rowAt } from "./intervals.js";
import { lastOf } from "./links.js";
import { breakdown } from "./model.js";
import { arrange, redraw, reveal, scrollToRow, showStretch } from "./view.js";

/** @typedef {[term: string, value: string | number]} Fact */

/** @param {View} view @param {Rank} rank @param {number} op @returns {Fact[]} */
const facts = ({ data }, rank, op) => {
  const [short, , kind] = data.names[rank.name[op]];
  /** @type {Fact[]} */
  const lines = [
    ["Operation", short],
    ["Rank", rank.rank],
    ["Kind", WORDS.kinds[kind].one],
    ["Duration", timeText(rank.end[op] - rank.start[op])],
    ["Start", timeText(rank.start[op])],
    ["Stream", data.streams[rank.stream[op]]],
    ["Step", rank.step[op] ? rank.step[op] - 1 : "none"],
  ];
  if (kind === "comm") lines.push(...factsOfCall(data, rank, op));
  if (kind === "copy" && rank.bytes[op]) lines.push(["Size", bytesText(rank.bytes[op] - 1)]);
  const delay = rank.delay[op] ? `, ${timeText(rank.delay[op] - 1)} before it ran` : "";
  const launch = data.launches[rank.launch[op]];
  lines.push(["Launch", launch ? `${launch}${delay}` : "not in the capture"]);
  lines.push(["Operator", data.operators[rank.operator[op]]], ["In the code", data.paths[rank.path[op]]]);
  return lines.filter(([, value]) => value !== "");
};

/** @param {Timeline} data @param {Rank} rank @param {number} op @returns {Fact[]} */
const factsOfCall = (data, rank, op) => {
  /** @type {Fact[]} */
  const lines = [
    ["Call", data.calls[rank.call[op]]],
    ["Size", rank.bytes[op] ? bytesText(rank.bytes[op] - 1) : "n/a"],
  ];
  const wait = rank.wait[op] - 1;
  if (wait >= 0) lines.push(["Wait", timeText(wait)], ["Transfer", timeText(rank.end[op] - rank.start[op] - wait)]);
  const why = data.whys[rank.why[op]];
  if (why) lines.push(["Transfer and wait", `not separated: ${why}`]);
  const last = lastOf(data, rank, op);
  if (last) lines.push(["Came last", `rank ${last.number}`]);
  return lines;
};

/** @param {Fact[]} lines */
const listed = (lines) =>
  html("dl", {}, ...lines.map(([term, value]) => html("div", {}, html("dt", {}, term), html("dd", {}, String(value)))));

/** Nothing is chosen. @param {View} view */
export const clearDetails = (view) => {
  view.awaited = null;
  view.selected = null;
  byId("tl-details").replaceChildren();
  redraw(view);
};

/** @param {View} view @param {Rank} rank @param {number} op */
export const showDetails = (view, rank, op) => {
  const [, full, kind] = view.data.names[rank.name[op]];
  view.awaited = null;
  view.selected = { rank, op, kind };
  const list = listed(facts(view, rank, op));
  list.dataset.ns = String(rank.end[op] - rank.start[op]);
  const box = byId("tl-details");
  box.replaceChildren(list, html("p", { className: "full-name" }, full));
  const last = rank.wait[op] > 1 ? lastOf(view.data, rank, op) : null;
  if (last?.rank) {
    const button = html("button", { type: "button" }, `What rank ${last.number} did meanwhile`);
    button.addEventListener("click", () => followWait(view, rank, op));
    box.append(button);
  }
  redraw(view);
};

/** @type {Record<string, string>} */
const WHATS = {
  range: "range",
  operator: "operator",
  call: "runtime call",
  sync: "synchronising call",
  frame: "Python frame",
};

/** @param {View} view @param {Rank} rank @param {HostLane} lane @param {number} event @param {number} level */
export const showHostDetails = (view, rank, lane, event, level) => {
  const [what, name] = view.data.host.names[lane.name[event]];
  view.selected = { rank, lane, event, level };
  view.awaited = null;
  /** @type {Fact[]} */
  const lines = [
    ["On the CPU", name],
    ["What", WHATS[what]],
    ["Rank", rank.rank],
    ["Thread", `${lane.label} (${lane.thread})`],
    ["Duration", timeText(lane.length[event])],
    ["Start", timeText(lane.start[event])],
  ];
  byId("tl-details").replaceChildren(listed(lines));
  redraw(view);
};

/** What memory holds at a moment, without one at the peak.
 * @param {View} view @param {Rank} rank @param {MemoryCounter} counter @param {number} [t] */
export const showMemory = (view, rank, counter, t) => {
  const at = momentOf(view, counter, t);
  view.selected = null;
  view.awaited = null;
  view.memory = { counter, at };
  byId("tl-details").replaceChildren(listed(memoryFacts(counter, at, rank.rank)));
  redraw(view);
};

/** From a wait to the rank that was awaited: shown beside it, with what it did until it came.
 * @param {View} view @param {Rank} rank @param {number} op @returns {boolean} whether anybody was awaited */
export const followWait = (view, rank, op) => {
  const last = lastOf(view.data, rank, op);
  const wait = rank.wait[op] - 1;
  if (!last?.rank || last.op === undefined || wait <= 0) return false;
  const awaited = last.rank;
  showDetails(view, rank, op);
  reveal(view, rank.rank);
  reveal(view, last.number);
  const from = rank.start[op];
  const end = rank.end[op];
  const to = Math.min(from + wait, end, Math.max(from + wait, awaited.start[last.op]));
  view.awaited = { rank: awaited, op: last.op, from, to, source: { rank, op } };
  const margin = (end - from) * 0.15;
  if (from < view.t0 || end > view.t1) showStretch(view, from - margin, end + margin);
  arrange(view);
  scrollToRow(view, (row) => row.rank === awaited);
  byId("tl-details").prepend(meanwhile(view.data, awaited, from, from + wait));
  redraw(view);
  return true;
};

/** What a rank did while another waited for it. @param {Timeline} data @param {Rank} rank @param {number} from @param {number} to */
const meanwhile = (data, rank, from, to) => {
  const sums = Object.entries(breakdown(rank, from, to)).filter(([name]) => name !== "window");
  const parts = mostOf(sums.map(([name, ns]) => [WORDS.parts[name] ?? name, ns ?? 0]));
  const box = html(
    "div",
    { className: "tl-awaited" },
    html(
      "p",
      {},
      html("strong", {}, `In the ${timeText(to - from)} of this wait rank ${rank.rank} had: `),
      `${parts || "nothing recorded"}.`,
    ),
  );
  const doings = mostOf(doingsIn(data, rank, from, to), 3);
  const host = doings ? ` While the GPU was idle its CPU was longest in: ${doings}.` : "";
  const longest = mostOf(operationsIn(data, rank, from, to), 3) || "nothing";
  box.append(html("p", {}, `On its GPU longest: ${longest}.${host}`));
  return box;
};

/** The greatest sums by name, as words. @param {[name: string, ns: number][]} pairs @param {number} [count] */
const mostOf = (pairs, count = Infinity) => {
  /** @type {Map<string, number>} */
  const sums = new Map();
  for (const [name, ns] of pairs) if (ns > 0) sums.set(name, (sums.get(name) ?? 0) + ns);
  const order = [...sums].sort((a, b) => b[1] - a[1]).slice(0, count);
  return order.map(([name, ns]) => `${name} ${timeText(ns)}`).join(", ");
};

/** @param {Timeline} data @param {Rank} rank @param {number} from @param {number} to */
const operationsIn = (data, rank, from, to) => {
  /** @type {[string, number][]} */
  const found = [];
  for (let i = Math.max(0, rowAt(rank.start, to)); i >= 0 && rank.start[i] > from - 1e9; i--)
    found.push([data.names[rank.name[i]][0], Math.min(rank.end[i], to) - Math.max(rank.start[i], from)]);
  return found;
};

/** @param {Timeline} data @param {Rank} rank @param {number} from @param {number} to */
const doingsIn = (data, { gap }, from, to) => {
  /** @type {[string, number][]} */
  const found = [];
  gap.start.forEach((start, i) => {
    const ns = Math.min(start + gap.length[i], to) - Math.max(start, from);
    const doing = data.doings[gap.doing[i]];
    if (doing) found.push([doing, ns]);
  });
  return found;
};
