// The buttons above the timeline, and those on the page that lead into it.
import { byId, one } from "../page/dom.js";
import { drawLegend } from "./legend.js";
import { arrange, goStep, goTo, nameFoldButton, showStretch, zoomBy } from "./view.js";
import { saveTraceEvents } from "./viewer_file.js";

/** @param {View} view */
const foldAll = (view) => {
  if (view.folded.size) view.folded.clear();
  else view.data.ranks.forEach(({ rank }) => view.folded.add(rank));
  arrange(view);
};

/** @type {Record<string, (view: View) => void>} */
const DOES = {
  whole: (view) => showStretch(view, ...view.whole),
  in: (view) => zoomBy(view, 0.5),
  out: (view) => zoomBy(view, 2),
  step: (view) => goStep(view, 0),
  previous: (view) => goStep(view, -1),
  next: (view) => goStep(view, 1),
  fold: foldAll,
  save: (view) => saveTraceEvents(view.data),
};

/** @param {View} view @param {HTMLElement} box */
export const listenToTools = (view, box) => {
  one(box, ".tl-tools").addEventListener("click", ({ target }) => {
    const does = target instanceof HTMLElement && DOES[target.dataset.do ?? ""];
    if (!does) return;
    does(view);
    nameFoldButton(view);
  });
  nameFoldButton(view);
  one(box, ".tl-steps").hidden = !view.data.steps.length;
  for (const input of switches(box)) {
    const what = input.dataset.show ?? "";
    input.checked = view.shows[what];
    input.addEventListener("change", () => {
      view.shows[what] = input.checked;
      drawLegend(view, box);
      arrange(view);
    });
  }
  const depth = /** @type {HTMLSelectElement} */ (byId("tl-depth"));
  depth.addEventListener("change", () => {
    view.hostDepth = Number(depth.value);
    arrange(view);
  });
  for (const button of document.querySelectorAll(".show-interval"))
    button.addEventListener("click", () => goTo(view, placeOf(view, /** @type {HTMLElement} */ (button).dataset)));
};

/** @param {HTMLElement} box */
const switches = (box) => /** @type {NodeListOf<HTMLInputElement>} */ (box.querySelectorAll("[data-show]"));

/** Where a button leads: moments as recorded become those of the picture. @param {View} view @param {DOMStringMap} told */
const placeOf = (view, told) => {
  const moment = (/** @type {string | undefined} */ text) =>
    text ? Number(BigInt(text) - BigInt(view.data.zero)) : undefined;
  return {
    ranks: (told.ranks ?? "").split(",").filter(Boolean).map(Number),
    from: moment(told.start),
    to: moment(told.end),
    step: told.step ? Number(told.step) : undefined,
  };
};

/** Switches of what the capture has not are not shown. @param {View} view @param {HTMLElement} box */
export const hideIdleTools = (view, box) => {
  const { data } = view;
  const has = {
    path: data.path.count > 0,
    host: data.ranks.some((rank) => rank.host.length),
    counters: data.ranks.some((rank) => rank.counters.length),
  };
  for (const [what, isThere] of Object.entries(has)) labelOf(one(box, `[data-show=${what}]`)).hidden = !isThere;
  labelOf(byId("tl-depth")).hidden = !has.host;
};

/** @param {HTMLElement} input */
const labelOf = (input) => /** @type {HTMLElement} */ (input.closest("label"));
