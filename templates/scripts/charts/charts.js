// Charts are drawn when there is time, at the latest when they scroll into view.
import { icicle } from "./icicle.js";
import { scatter } from "./scatter.js";
import { byId, html, menu } from "../page/dom.js";
import { inflatedJson } from "../page/unpack.js";

/** A figure that has a trace for each rank shows one, which a menu above it chooses.
 * @param {HTMLElement} holder @param {Figure} figure */
const addChooser = (holder, figure) => {
  const what = figure.layout.meta?.choose;
  if (!what || figure.data.length < 2) return;
  const select = menu(figure.data.map((trace, at) => [trace.name, String(at)]));
  select.selectedIndex = figure.data.findIndex((trace) => trace.visible !== false);
  select.addEventListener("change", () => {
    figure.data.forEach((trace, at) => {
      trace.visible = at === select.selectedIndex;
    });
    draw(holder, figure);
  });
  holder.before(html("label", { className: "chart-tools" }, `${what} `, select));
};

/** @param {HTMLElement} holder @param {Figure} figure */
const draw = (holder, figure) => {
  holder.setAttribute("role", "group");
  (figure.data[0].type === "icicle" ? icicle : scatter)(holder, figure);
  holder.dataset.drawn = "yes";
};

/** A long figure is a text: deflated, in base64. @param {HTMLElement} source @returns {Promise<[HTMLElement, Figure]>} */
const read = async (source) => {
  const content = JSON.parse(source.textContent ?? "");
  return [byId(source.dataset.for ?? ""), typeof content === "string" ? await inflatedJson(content) : content];
};

export const startCharts = async () => {
  const sources = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("script.figure"));
  const all = new Map(await Promise.all([...sources].map(read)));
  const again = () => all.forEach((figure, holder) => holder.dataset.drawn && draw(holder, figure));
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    again();
  });
  document.addEventListener("themechange", again);
  const first = (/** @type {HTMLElement} */ holder) => {
    const figure = all.get(holder);
    watch.unobserve(holder);
    if (figure && !holder.dataset.drawn) draw(holder, figure);
  };
  const seen = (/** @type {IntersectionObserverEntry[]} */ entries) =>
    entries.forEach((entry) => entry.isIntersecting && first(/** @type {HTMLElement} */ (entry.target)));
  const watch = new IntersectionObserver(seen, { rootMargin: "200px" });
  all.forEach((figure, holder) => {
    addChooser(holder, figure);
    watch.observe(holder);
  });
  // A page that is printed or saved as a picture has them too.
  const idle = (/** @type {() => void} */ work) => (window.requestIdleCallback ?? setTimeout)(work);
  const open = [...all.keys()].filter((holder) => holder.clientWidth);
  const next = () => {
    const holder = open.shift();
    if (!holder) return;
    first(holder);
    idle(next);
  };
  idle(next);
};
