// The timeline's beginning: the first picture, then what it does without, then the address that was asked for.
import { byId, one } from "../page/dom.js";
import { readColours, readFills } from "./colours.js";
import { loadCounters } from "./counters.js";
import { drawTimeline } from "./draw.js";
import { loadHost } from "./host.js";
import { writeInView } from "./in_view.js";
import { listenToKeys } from "./keys.js";
import { drawLegend } from "./legend.js";
import { findInstances, isLast } from "./links.js";
import { loadTimeline } from "./model.js";
import { loadPath } from "./path.js";
import { listenToPointer } from "./pointer.js";
import { AXIS, xOf } from "./scale.js";
import { listenToSearch } from "./search.js";
import { hideIdleTools, listenToTools } from "./tools.js";
import { arrange, goTo, redraw, showStep, showStretch, showTimeline } from "./view.js";

/** @param {HTMLElement} box @param {Timeline} data @returns {View} */
const viewOf = (box, data) => {
  const canvas = /** @type {HTMLCanvasElement} */ (byId("tl-canvas"));
  const ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const colours = readColours();
  const pinned = new Set(data.pins.map((pin) => pin.rank));
  const others = data.ranks.map(({ rank }) => rank).filter((rank) => !pinned.has(rank));
  const pad = (data.end - data.begin) * 0.005;
  /** @type {Pair} */
  const whole = [data.begin - pad, data.end + pad];
  const opening = data.ranks.flatMap(({ steps }) => steps.filter((s) => s[1] === data.opening));
  const from = Math.min(...opening.map((s) => s[2]));
  const to = Math.max(...opening.map((s) => s[3]));
  return {
    data,
    canvas,
    ctx,
    scroller: one(box, ".tl-scroll"),
    whole,
    t0: opening.length ? from : whole[0],
    t1: opening.length ? to : whole[1],
    scroll: 0,
    width: 0,
    height: 0,
    left: 0,
    ratio: 1,
    dim: 1,
    step: opening.length ? data.opening : null,
    opened: new Set(),
    folded: new Set(data.ranks.length < data.few ? [] : others),
    called: [],
    isPrinted: false,
    shows: { host: false, counters: false, path: true },
    hostDepth: 5,
    layout: { rows: [], height: 0 },
    divider: null,
    places: () => undefined,
    colours,
    fills: readFills(ctx, colours),
    selected: null,
    awaited: null,
    memory: null,
    found: null,
    drag: null,
  };
};

/** Draws the timeline where the page has one; the console and the page's tests find it as TA. */
export const startTimeline = async () => {
  const box = document.getElementById("tl");
  const data = box && (await loadTimeline());
  if (!box || !data?.ranks.length) return;
  box.hidden = false;
  const view = viewOf(box, data);
  const go = (/** @type {Parameters<typeof goTo>[1]} */ place) => goTo(view, place);
  const show = (/** @type {number} */ t0, /** @type {number} */ t1) => showTimeline(view, t0, t1);
  const stretch = (/** @type {number} */ t0, /** @type {number} */ t1) => showStretch(view, t0, t1);
  window.TA = { view, draw: drawTimeline, AXIS, xOf, isLast, go, showTimeline: show, show: stretch };
  arrange(view);
  new ResizeObserver(() => {
    if (!view.isPrinted && view.scroller.clientWidth !== view.width) arrange(view);
  }).observe(view.scroller);
  document.addEventListener("themechange", () => {
    recolour(view);
    redraw(view);
  });
  document.addEventListener("choosestep", (event) => showStep(view, /** @type {CustomEvent<number>} */ (event).detail));
  const scrolled = () => {
    view.scroll = view.scroller.scrollTop;
    redraw(view);
  };
  view.scroller.addEventListener("scroll", scrolled, { passive: true });
  listenToPaper(view);
  listenToPointer(view);
  listenToKeys(view);
  listenToTools(view, box);
  listenToSearch(view);
  drawLegend(view, box);
  drawTimeline(view.ctx, view);
  writeInView(view);
  loadMore(view, box);
  addEventListener("hashchange", () => followAddress(view));
  followAddress(view);
  document.documentElement.dataset.timeline = "ready";
};

/** @param {View} view */
const recolour = (view) => {
  view.colours = readColours();
  view.fills = readFills(view.ctx, view.colours);
};

/** What the first picture does without. @param {View} view @param {HTMLElement} box */
const loadMore = (view, box) => {
  const { data } = view;
  findInstances(data);
  loadPath(data); // in the order in which their tables follow each other
  loadHost(data);
  loadCounters(data);
  const shares = (data.path.shares ?? []).map(([rank, share]) => `${share}% on rank ${rank}`).join(", ");
  byId("tl-path").textContent = data.path.count
    ? `Critical path: ${shares}. What lies on it makes the job longer.`
    : `No critical path is drawn: ${data.path.why_not}.`;
  byId("tl-host").textContent = data.host.note;
  hideIdleTools(view, box);
  drawLegend(view, box);
  arrange(view);
};

/** Paper is white whatever the theme, holds every rank collapsed, and does not wait for the next frame.
 * @param {View} view */
const listenToPaper = (view) =>
  matchMedia("print").addEventListener("change", ({ matches }) => {
    if (matches) {
      view.before = { folded: view.folded, called: view.called };
      view.folded = new Set(view.data.ranks.map((rank) => rank.rank));
      view.called = [];
    } else if (view.before) Object.assign(view, view.before);
    view.isPrinted = matches;
    recolour(view);
    arrange(view);
    drawTimeline(view.ctx, view);
  });

/** An address such as summary.html#timeline?rank=3&step=2, or &from=…&to=… in ns, leads there. @param {View} view */
const followAddress = (view) => {
  if (!location.hash.startsWith("#timeline?")) return;
  const asked = new URLSearchParams(location.hash.slice("#timeline?".length));
  const number = (/** @type {string} */ name) => (asked.has(name) ? Number(asked.get(name)) : undefined);
  const ranks = asked.getAll("rank").flatMap((text) => text.split(",").map(Number));
  const { data } = view;
  // A row of a table has its moment after the first operation of the run, on the rank's own clock.
  const moved = data.shifts[data.ranks.findIndex((rank) => rank.rank === ranks[0])] ?? 0;
  const told = number("at");
  const at = told === undefined ? undefined : told + moved;
  const end = at === undefined ? undefined : at + Math.max(number("for") ?? 0, 1000);
  goTo(view, { ranks, from: number("from") ?? at, to: number("to") ?? end, step: number("step") });
};
