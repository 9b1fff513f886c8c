// Pointer, wheel and fingers on the timeline.
import { clearDetails, followWait, showDetails, showHostDetails, showMemory } from "./details.js";
import { isMemory } from "./memory.js";
import { hitHost } from "./host.js";
import { rowAt } from "./intervals.js";
import { isOperations } from "./layout.js";
import { laneOf } from "./model.js";
import { AXIS, timeAt } from "./scale.js";
import { hideTip, showTip } from "./tip.js";
import { arrange, moveBy, nameFoldButton, redraw, showStep, showStretch, zoomBy } from "./view.js";

/** What lies at a place of the canvas. @param {View} view @param {number} px @param {number} py @returns {Hit} */
const hitTest = (view, px, py) => {
  if (py < AXIS) return {};
  const y = py - AXIS + view.scroll;
  const row = view.layout.rows.find((r) => y >= r.y && y < r.y + r.height);
  if (!row || px < view.left) return { row };
  const t = timeAt(view, px);
  const slack = (3 * (view.t1 - view.t0)) / (view.width - view.left);
  if (row.part === "host") return { row, t, ...hitHost(row, y - row.y, t, slack) };
  if (!isOperations(row)) return { row, t };
  const lane = laneOf(row.rank, row.part);
  const depth = Math.floor(((y - row.y) / row.height) * lane.rows);
  /** @type {{ op: number, away: number } | null} */
  let best = null;
  for (let i = rowAt(lane.starts, t + slack); i >= 0 && lane.starts[i] >= t - slack - lane.longest; i--) {
    const op = lane.ops[i];
    const outside = Math.max(0, row.rank.start[op] - t, t - row.rank.end[op]);
    const away = outside + (lane.depth[i] === depth ? 0 : slack / 2);
    if (away <= slack && (!best || away < best.away)) best = { op, away };
    if (best?.away === 0) break;
  }
  return { row, t, lane, op: best?.op };
};

/** @param {View} view @param {number} px @param {number} py */
const click = (view, px, py) => {
  view.canvas.focus({ preventScroll: true });
  const { row, t = 0, op, event, level = 0 } = hitTest(view, px, py);
  if (!row) return clearDetails(view);
  if (row.part === "group" || row.part === "folded" || px < view.left) return toggle(view, row);
  if (row.part === "steps") {
    const step = row.rank.steps.find(([, , from, to]) => from <= t && t < to);
    return step && showStep(view, step[1]);
  }
  if (row.part === "host" && event !== undefined) return showHostDetails(view, row.rank, row.lane, event, level);
  if (row.part === "counter" && isMemory(row.counter)) return showMemory(view, row.rank, row.counter, t);
  if (op === undefined) return clearDetails(view);
  const { rank } = row;
  const wait = row.part === "comm" ? rank.wait[op] - 1 : 0;
  if (wait > 0 && t < rank.start[op] + wait && followWait(view, rank, op)) return undefined;
  return showDetails(view, rank, op);
};

/** Opens or closes a group, expands or collapses a rank. @param {View} view @param {Row} row */
export const toggle = (view, row) => {
  if (row.part === "group") {
    if (!view.opened.delete(row.at)) view.opened.add(row.at);
  } else if (!view.folded.delete(row.rank.rank)) view.folded.add(row.rank.rank);
  arrange(view);
  nameFoldButton(view);
};

/** @typedef {[x: number, y: number]} Place */

/** What two fingers hold: how far apart they are, and the moment between them.
 * @param {View} view @param {Map<number, Place>} fingers */
const held = (view, fingers) => {
  const [a, b] = [...fingers.values()];
  return { gap: Math.abs(a[0] - b[0]) || 1, middle: timeAt(view, (a[0] + b[0]) / 2) };
};

/** @param {View} view */
export const listenToPointer = (view) => {
  const { canvas } = view;
  /** @type {Map<number, Place>} */
  const fingers = new Map();
  /** @type {Place} */
  let from = [0, 0];
  let panning = false;
  let moved = false;
  /** @type {{ gap: number, middle: number } | null} */
  let pinch = null;
  /** @param {MouseEvent} event @returns {Place} */
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  /** @param {Place} at */
  const point = (at) => {
    const found = hitTest(view, ...at);
    showTip(view, ...at, found);
    const opens = at[0] < view.left || found.row?.part === "group" || found.row?.part === "folded";
    canvas.style.cursor = opens ? "pointer" : "crosshair";
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button > 1) return;
    fingers.set(event.pointerId, place(event));
    canvas.setPointerCapture(event.pointerId);
    from = place(event);
    moved = false;
    panning = event.pointerType === "touch" || event.shiftKey || event.button === 1;
    if (fingers.size !== 2) return;
    pinch = held(view, fingers);
    view.drag = null;
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = place(event);
    const before = fingers.get(event.pointerId);
    if (!before) return point(at);
    fingers.set(event.pointerId, at);
    if (pinch && fingers.size === 2) {
      const { gap } = held(view, fingers);
      zoomBy(view, pinch.gap / gap, pinch.middle);
      pinch.gap = gap;
      moved = true;
      return undefined;
    }
    if (Math.abs(at[0] - from[0]) > 4) moved = true;
    if (!moved) return undefined;
    if (panning) return moveBy(view, (before[0] - at[0]) / (view.width - view.left));
    if (from[0] < view.left) return undefined;
    view.drag = [from[0], Math.max(view.left, at[0])];
    return redraw(view);
  });
  /** @param {PointerEvent} event */
  const up = (event) => {
    fingers.delete(event.pointerId);
    if (pinch) {
      pinch = fingers.size ? pinch : null;
      return;
    }
    if (view.drag) {
      const [a, b] = view.drag.map((px) => timeAt(view, px));
      view.drag = null;
      if (event.type === "pointerup") showStretch(view, Math.min(a, b), Math.max(a, b));
    } else if (!moved && event.type === "pointerup") click(view, ...place(event));
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => hideTip(view));
  /** @param {WheelEvent} event */
  const wheel = (event) => {
    if (!(event.ctrlKey || event.metaKey || document.activeElement === canvas)) return;
    event.preventDefault();
    const { deltaX, deltaY } = event;
    if (event.shiftKey || Math.abs(deltaX) > Math.abs(deltaY)) moveBy(view, (deltaX || deltaY) / 800);
    else zoomBy(view, Math.exp(deltaY * (event.ctrlKey ? 0.01 : 0.0016)), timeAt(view, place(event)[0]));
  };
  canvas.addEventListener("wheel", wheel, { passive: false });
};
