// Keys on the timeline: rows, operations, steps and zoom.
import { clearDetails, followWait, showDetails, showMemory } from "./details.js";
import { isMemory } from "./memory.js";
import { rowAt } from "./intervals.js";
import { isOperations, nameOf } from "./layout.js";
import { laneOf } from "./model.js";
import { toggle } from "./pointer.js";
import { goStep, moveBy, redraw, say, scrollToRow, showStretch, zoomBy } from "./view.js";

/** @param {View} view */
const focused = (view) => view.layout.rows.find((row) => row.key === view.focus);

/** What a row is, and what Enter does with it. @param {Row} row */
const told = (row) => {
  if (row.part === "folded") return "collapsed, Enter expands it";
  if (row.part === "group") return row.isOpen ? "open, Enter closes it" : "Enter opens it";
  if (row.part === "steps") return "steps, Enter collapses the rank";
  return row.part.startsWith("band") ? "ranges" : `${nameOf(row)} lane`;
};

// Up and down go through every row: ranks, groups and lanes; each is said.
/** @param {View} view @param {number} by */
const goRow = (view, by) => {
  const { rows } = view.layout;
  const now = rows.findIndex((row) => row.key === view.focus);
  const row = rows[Math.min(rows.length - 1, Math.max(0, now < 0 ? 0 : now + by))];
  view.focus = row.key;
  scrollToRow(view, (each) => each === row);
  const who = row.rank ? `rank ${row.rank.rank}${row.why ? `, ${row.why}` : ""}` : nameOf(row);
  say(`${who}: ${told(row)}`);
  redraw(view);
};

/** @param {View} view */
const enter = (view) => {
  const row = focused(view);
  const s = view.selected;
  if (row && (row.part === "group" || row.part === "folded" || row.head)) {
    const at = view.layout.rows.indexOf(row);
    toggle(view, row);
    view.focus = view.layout.rows[Math.min(at, view.layout.rows.length - 1)].key;
    redraw(view);
  } else if (row?.part === "counter" && isMemory(row.counter)) showMemory(view, row.rank, row.counter);
  else if (s?.op !== undefined) followWait(view, s.rank, s.op);
};

/** The lane that keys go along: that of the row in focus, else of what is selected, else the first one's compute.
 * @param {View} view @returns {{ rank: Rank, kind: Kind, op: number | null }} */
const laneInUse = (view) => {
  const row = focused(view);
  const s = view.selected?.op === undefined ? null : view.selected;
  if (row && isOperations(row))
    return { rank: row.rank, kind: row.part, op: s?.rank === row.rank && s.kind === row.part ? s.op : null };
  if (s) return s;
  const first = view.layout.rows.find((each) => each.part === "compute");
  return { rank: first?.rank ?? view.data.ranks[0], kind: "compute", op: null };
};

/** @param {View} view @param {number} by */
const nextOperation = (view, by) => {
  const { rank, kind, op: before } = laneInUse(view);
  const { ops, starts } = laneOf(rank, kind);
  if (!ops.length) return;
  const now = before === null ? rowAt(starts, view.t0) + 1 : ops.indexOf(before) + by;
  const op = ops[Math.min(ops.length - 1, Math.max(0, now))];
  showDetails(view, rank, op);
  if (rank.start[op] >= view.t0 && rank.end[op] <= view.t1) return;
  const half = (view.t1 - view.t0) / 2;
  showStretch(view, rank.start[op] - half, rank.start[op] + half);
};

/** @type {Record<string, (view: View) => void>} */
const DOES = {
  "+": (view) => zoomBy(view, 0.5),
  "-": (view) => zoomBy(view, 2),
  ArrowLeft: (view) => moveBy(view, -0.2),
  ArrowRight: (view) => moveBy(view, 0.2),
  ArrowUp: (view) => goRow(view, -1),
  ArrowDown: (view) => goRow(view, 1),
  Enter: enter,
  Home: (view) => showStretch(view, ...view.whole),
  "[": (view) => goStep(view, -1),
  "]": (view) => goStep(view, 1),
  ",": (view) => nextOperation(view, -1),
  ".": (view) => nextOperation(view, 1),
  Escape: (view) => clearDetails(view),
};
/** Other keys for the same. @type {Record<string, string>} */
const SAME = { "=": "+", w: "+", s: "-", a: "ArrowLeft", d: "ArrowRight", 0: "Home" };

/** @param {View} view */
export const listenToKeys = (view) =>
  view.canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const does = DOES[SAME[event.key] ?? event.key];
    if (!does) return;
    event.preventDefault();
    does(view);
  });
