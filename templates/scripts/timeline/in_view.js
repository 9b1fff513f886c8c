// The table below the timeline, of what is in view.
import { byId, html } from "../page/dom.js";
import { percentText, timeText } from "../page/numbers.js";
import { WORDS } from "../page/words.js";
import { topRanks } from "./layout.js";
import { breakdown, ofStep } from "./model.js";

/** @type {(PartName | "idle")[]} */
const PARTS = ["compute", "transfer", "wait", "comm", "copy", "unknown", "idle"];

/** @typedef {ReturnType<typeof breakdown> & { rank: Rank }} Sum */

/** The parts that the capture has, and what they are called; those that are rare only where they are in view.
 * @param {View} view @param {Sum[]} sums @returns {[PartName | "idle", string][]} */
const partsOf = ({ data }, sums) => {
  const isRare = (/** @type {PartName | "idle"} */ name) => name === "unknown" || (name === "comm" && data.hasWaits);
  const has = (/** @type {PartName | "idle"} */ name) =>
    name === "idle" || data.ranks.some((rank) => rank.parts[name].s.length);
  return PARTS.filter((name) => has(name) && !(isRare(name) && sums.every((sum) => sum[name] === 0))).map((name) => [
    name,
    name === "comm" && data.hasWaits ? WORDS.parts.unmatched : WORDS.parts[name],
  ]);
};

/** @param {string} text @param {string} scope @param {boolean} [isNumber] */
const head = (text, scope, isNumber = false) => html("th", { scope, className: isNumber ? "n" : "" }, text);

/** @param {string} text @param {number} ns */
const cell = (text, ns) => {
  const made = html("td", { className: "n" }, text);
  made.dataset.v = String(ns);
  return made;
};

/** A row for each rank; on a phone a column for each, or nothing would fit. @param {View} view */
export const writeInView = (view) => {
  const t0 = Math.max(view.data.begin, Math.round(view.t0));
  const t1 = Math.min(view.data.end, Math.round(view.t1));
  const isNarrow = view.width < 560;
  const sums = sumsOf(view, t0, t1);
  const shown = shownOf(view, sums, isNarrow ? 2 : 8);
  const parts = partsOf(view, sums);
  const rows = [
    [head("rank", "col"), head("time", "col", true), ...parts.map(([, text]) => head(text, "col", true))],
    ...shown.map((sum) => [
      head(`rank ${sum.rank.rank}`, "row"),
      cell(timeText(sum.window), sum.window),
      ...parts.map(([name]) => partCell(sum, name)),
    ]),
  ];
  byId("tl-window").replaceChildren(tableOf(isNarrow ? turned(rows) : rows));
  const more =
    sums.length > shown.length ? `${shown.length} ranks of ${sums.length}: those on top, and those that lose most` : "";
  const [what, note] = viewed(view, t0, t1);
  const small = html("span", { className: "quiet" }, [note, more].filter(Boolean).join("; "));
  byId("tl-window-title").replaceChildren(`In view: ${what} `, small);
};

/** Of a step each rank's own window: the common stretch holds a part of its neighbours.
 * @param {View} view @param {number} t0 @param {number} t1 @returns {Sum[]} */
const sumsOf = (view, t0, t1) =>
  view.step === null
    ? view.data.ranks.map((rank) => ({ rank, ...breakdown(rank, t0, t1) }))
    : ofStep(view, view.step).map(([rank, [, , from, to]]) => ({ rank, ...breakdown(rank, from, to) }));

/** Those on top of the timeline first: of many ranks a straggler loses nothing itself.
 * @param {View} view @param {Sum[]} sums @param {number} most */
const shownOf = (view, sums, most) => {
  if (sums.length <= most) return sums;
  const onTop = topRanks(view).map(({ rank }) => rank);
  const place = (/** @type {Sum} */ { rank }) => (onTop.includes(rank) ? onTop.indexOf(rank) : onTop.length);
  const lost = (/** @type {Sum} */ { wait, comm, idle }) => (wait ?? 0) + (comm ?? 0) + idle;
  return [...sums].sort((a, b) => place(a) - place(b) || lost(b) - lost(a)).slice(0, most);
};

/** @param {Sum} sum @param {PartName | "idle"} name */
const partCell = (sum, name) => {
  const ns = sum[name];
  if (ns === null) return cell("n/a", -1);
  return cell(ns ? `${timeText(ns)} · ${percentText(ns, sum.window)}` : "0", ns);
};

/** Columns become rows, and the heads with them. @param {HTMLTableCellElement[][]} rows */
const turned = (rows) => {
  const lines = rows[0].map((_, at) => rows.map((row) => row[at]));
  lines.forEach(([first], at) => Object.assign(first, { scope: at ? "row" : "col", className: "" }));
  lines[0].slice(1).forEach((th) => Object.assign(th, { scope: "col", className: "n" }));
  return lines;
};

/** @param {HTMLTableCellElement[][]} rows */
const tableOf = (rows) => {
  const table = document.createElement("table");
  const top = table.createTHead();
  const body = table.createTBody();
  rows.forEach((row, at) => (at ? body : top).insertRow().append(...row));
  return table;
};

/** What is in view, and why that of several ranks is longer than of each: they do not begin and end together.
 * @param {View} view @param {number} t0 @param {number} t1 @returns {[what: string, note: string]} */
const viewed = (view, t0, t1) => {
  const { ranks, begin, end } = view.data;
  const span = timeText(t1 - t0);
  const own = view.step === null ? [] : ofStep(view, view.step);
  if (own.length) {
    const many = own.length === ranks.length ? "all" : own.length;
    const who = own.length === 1 ? `rank ${own[0][0].rank}` : `${many} ranks`;
    const each = between(own.map(([, [, , from, to]]) => to - from));
    const what = `step ${view.step} of ${who}, ${span}`;
    if (each === span) return [what, ""];
    return [
      what,
      `from the first one’s start to the last one’s end; each row is of the rank’s own step, which takes ${each}`,
    ];
  }
  if (t0 > begin || t1 < end) return [`${span}${t0 > begin ? `, from ${timeText(t0)} on` : " from the start"}`, ""];
  const why = ranks.length > 1 ? "from the first step or operation of any rank to the last" : "";
  return [`the whole capture, ${span}`, why];
};

/** @param {number[]} spans */
const between = (spans) => {
  const [low, high] = [Math.min(...spans), Math.max(...spans)].map(timeText);
  return low === high ? low : `${low} to ${high}`;
};
