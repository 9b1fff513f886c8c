// What is in view, and where it can be sent: a stretch, a step, a rank.
import { byId, one } from "../page/dom.js";
import { drawTimeline } from "./draw.js";
import { writeInView } from "./in_view.js";
import { laidOut, topRanks } from "./layout.js";
import { ofStep } from "./model.js";
import { AXIS, gutterOf } from "./scale.js";

/** The shortest stretch that can be zoomed to, ns. */
const LEAST = 100;
let waiting = 0;
let later = 0;

/** @param {View} view */
export const redraw = (view) => {
  waiting ||= requestAnimationFrame(() => {
    waiting = 0;
    drawTimeline(view.ctx, view);
    writeInView(view);
  });
};

/** @param {View} view */
export const arrange = (view) => {
  const { scroller, canvas } = view;
  view.layout = laidOut(view);
  const total = view.layout.height + AXIS;
  const shown = view.isPrinted ? total : Math.min(total, Math.max(260, Math.round(innerHeight * 0.78)));
  scroller.style.height = `${shown}px`;
  one(scroller, ".tl-spacer").style.height = `${total - shown}px`;
  canvas.style.height = `${shown}px`;
  view.height = shown;
  view.scroll = Math.min(view.scroll, Math.max(0, total - shown));
  view.ratio = Math.min(2, devicePixelRatio || 1);
  view.width = scroller.clientWidth;
  view.left = gutterOf(view.width);
  canvas.width = Math.max(1, view.width * view.ratio);
  canvas.height = Math.max(1, view.height * view.ratio);
  redraw(view);
};

/** @param {View} view @param {(row: Row) => boolean} wanted */
export const scrollToRow = (view, wanted) => {
  const row = view.layout.rows.find(wanted);
  if (!row) return;
  const room = view.height - AXIS;
  if (row.y < view.scroll || row.y + Math.max(row.height, 90) > view.scroll + room)
    view.scroller.scrollTop = Math.max(0, row.y - 8);
  view.scroll = view.scroller.scrollTop;
};

// Brings a rank to where it can be seen: expanded, and on top when it lies in a group or far below.
/** @param {View} view @param {number} number */
export const reveal = (view, number) => {
  const rank = view.data.rankOf.get(number);
  if (!rank) return false;
  view.folded.delete(number);
  if (view.data.ranks.length >= view.data.few && !view.called.includes(number)) view.called.push(number);
  return true;
};

/** @param {View} view @param {number} t0 @param {number} t1 @param {number | null} [step] */
export const showStretch = (view, t0, t1, step = null) => {
  const [low, high] = view.whole;
  view.step = step;
  const span = Math.min(high - low, Math.max(LEAST, t1 - t0));
  const from = Math.min(Math.max((t0 + t1 - span) / 2, low), high - span);
  view.t0 = from;
  view.t1 = from + span;
  redraw(view);
  announce(view);
};

/** @param {View} view @param {number} t0 @param {number} t1 */
export const showTimeline = (view, t0, t1) => {
  showStretch(view, t0, t1);
  byId("timeline").scrollIntoView();
};

/** @param {View} view @param {number} factor @param {number} [at] */
export const zoomBy = (view, factor, at = (view.t0 + view.t1) / 2) =>
  showStretch(view, at - (at - view.t0) * factor, at + (view.t1 - at) * factor);

/** @param {View} view @param {number} share */
export const moveBy = (view, share) => {
  const by = share * (view.t1 - view.t0);
  showStretch(view, view.t0 + by, view.t1 + by);
};

// Steps of the rank at the top of the picture: one for all ranks, since they share the time axis.
/** @param {View} view @param {number} by */
export const goStep = (view, by) => {
  const steps = (view.data.ranks.find((r) => r.steps.length) ?? { steps: [] }).steps;
  if (!steps.length) return;
  const middle = (view.t0 + view.t1) / 2;
  const isWhole = view.t1 - view.t0 > (steps[0][3] - steps[0][2]) * 1.5;
  let row = steps.findIndex((s) =>
    view.step === null ? !isWhole && s[2] <= middle && middle < s[3] : s[1] === view.step,
  );
  row = row < 0 ? (by < 0 ? steps.length - 1 : 0) : Math.min(steps.length - 1, Math.max(0, row + by));
  showStep(view, steps[row][1]);
};

// A step is chosen for the whole page: the chart of steps and the tables mark it too.
/** @param {View} view @param {number} number */
export const showStep = (view, number) => {
  const all = ofStep(view, number).map(([, s]) => s);
  if (!all.length) return;
  showStretch(
    view,
    all.reduce((least, s) => Math.min(least, s[2]), Infinity),
    all.reduce((most, s) => Math.max(most, s[3]), 0),
    number,
  );
  document.dispatchEvent(new CustomEvent("stepchosen", { detail: number }));
};

// To ranks, and a stretch or a step of them; the first rank is scrolled to.
/** @param {View} view @param {{ ranks?: number[], from?: number, to?: number, step?: number }} place */
export const goTo = (view, { ranks = [], from, to, step }) => {
  const known = ranks.filter((rank) => reveal(view, rank));
  arrange(view);
  nameFoldButton(view);
  if (from !== undefined && to !== undefined && to > from) {
    const margin = (to - from) * 0.1;
    showStretch(view, from - margin, to + margin);
  } else if (step !== undefined) showStep(view, step);
  byId("timeline").scrollIntoView();
  if (known.length) {
    scrollToRow(view, (row) => row.rank?.rank === known[0]);
    view.focus = view.layout.rows.find((row) => row.rank?.rank === known[0])?.key;
  }
  redraw(view);
  return known.length === ranks.length;
};

/** @param {View} view */
const addressOf = (view) => {
  const top = topRanks(view)
    .map(({ rank }) => rank.rank)
    .filter((rank) => view.called.includes(rank));
  const parts = [];
  if (top.length) parts.push(`rank=${top.slice(-3).join(",")}`);
  parts.push(view.step === null ? `from=${Math.round(view.t0)}&to=${Math.round(view.t1)}` : `step=${view.step}`);
  return `#timeline?${parts.join("&")}`;
};

/** @param {string} text */
export const say = (text) => {
  byId("tl-live").textContent = text;
};

/** @param {View} view */
const announce = (view) => {
  clearTimeout(later);
  later = setTimeout(() => {
    say(byId("tl-window-title").textContent ?? "");
    // The address bar holds what is seen, so that it can be sent.
    try {
      history.replaceState(null, "", addressOf(view));
    } catch {
      /* a page in a frame may not */
    }
  }, 600);
};

/** @param {View} view */
export const nameFoldButton = (view) => {
  const button = document.querySelector("[data-do=fold]");
  if (button) button.textContent = view.folded.size ? "Expand ranks" : "Collapse ranks";
};
