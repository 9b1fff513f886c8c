// Charts are drawn by the page itself when there is time, at the latest when they scroll into view; or by plotly, then, whose script is unpacked for the first of those.
import { icicle } from "./icicle.js";
import { scatter } from "./scatter.js";
import { byId, html, menu } from "../page/dom.js";
import { inflated, inflatedJson, unpacked85 } from "../page/unpack.js";

/** @type {Promise<void> | null} */
let loading = null;

/** Plotly's script: unpacked from the page, else from beside it. */
const load = () =>
  (loading ??= new Promise((resolve, reject) => {
    const packed = document.getElementById("plotly-packed");
    const script = document.createElement("script");
    if (!packed) {
      script.src = JSON.parse(byId("plotly-place").textContent ?? "");
      script.onload = () => resolve();
      script.onerror = reject;
      document.head.append(script);
      return;
    }
    inflated(unpacked85(JSON.parse(packed.textContent ?? ""))).then((bytes) => {
      // The page's policy lists the hash of exactly this text.
      script.textContent = new TextDecoder().decode(bytes);
      document.head.append(script);
      resolve();
    }, reject);
  }));

/** @param {Figure} figure */
const themed = ({ layout }) => {
  const style = getComputedStyle(document.documentElement);
  const of = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
  const look = { gridcolor: of("rule"), zerolinecolor: of("rule"), linecolor: of("quiet"), automargin: true };
  const axes = Object.entries(layout).filter(([name]) => /^[xy]axis/.test(name));
  return {
    ...layout,
    ...Object.fromEntries(axes.map(([name, own]) => [name, { ...look, .../** @type {object} */ (own) }])),
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: of("ink") },
    autosize: true,
  };
};

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
const draw = async (holder, figure) => {
  if (holder.dataset.own) {
    holder.setAttribute("role", "group");
    (figure.data[0].type === "icicle" ? icicle : scatter)(holder, figure);
    holder.dataset.drawn = "yes";
    return;
  }
  try {
    await load();
  } catch {
    holder.textContent = "The chart's script could not be loaded; the table has its figures.";
    return;
  }
  if (!holder.dataset.drawn) holder.replaceChildren(); // the note that the chart is loading
  const shown = figure.data.filter((trace) => trace.visible !== false);
  await window.Plotly.react(holder, shown, themed(figure), { responsive: true, displayModeBar: false });
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
  const again = (/** @type {(holder: HTMLElement) => boolean} */ wanted) =>
    all.forEach((figure, holder) => holder.dataset.drawn && wanted(holder) && draw(holder, figure));
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    again((holder) => Boolean(holder.dataset.own));
  });
  document.addEventListener("themechange", () => again(() => true));
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
  const open = [...all.keys()].filter((holder) => holder.dataset.own && holder.clientWidth);
  const next = () => {
    const holder = open.shift();
    if (!holder) return;
    first(holder);
    idle(next);
  };
  idle(next);
};
