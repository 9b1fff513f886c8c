// Points and lines as SVG, from the dictionaries that plotly takes elsewhere.
import { axisOf } from "./axis.js";
import { hover, tipOf } from "./hover.js";
import { html, svg } from "../page/dom.js";

const RIGHT = 12;
const TOP = 8;
const BOTTOM = 46;
/** @type {Record<string, string>} */
const DASHES = { dash: "8 5", dot: "2 4", dashdot: "8 4 2 4" };

/** @param {number} r */
const circle = (r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`;
/** @param {number} r */
const square = (r) => `M${-r} ${-r}h${2 * r}v${2 * r}h${-2 * r}z`;
/** @param {number} r */
const triangle = (r) => `M0 ${-1.2 * r}L${1.2 * r} ${r}H${-1.2 * r}z`;
/** @param {number} r */
const diamond = (r) => `M0 ${-1.3 * r}L${1.3 * r} 0L0 ${1.3 * r}L${-1.3 * r} 0z`;
/** @param {number} r */
const cross = (r) => {
  const t = r / 2.4;
  return `M${-t} ${-r}h${2 * t}v${r - t}h${r - t}v${2 * t}h${t - r}v${r - t}h${-2 * t}v${t - r}h${t - r}v${-2 * t}h${r - t}z`;
};
/** @type {Record<string, (r: number) => string>} */
const SHAPES = { circle, square, diamond, cross, x: cross, "triangle-up": triangle, star: triangle, hexagon: square };

/** @param {Trace} trace */
const shapeOf = (trace) => SHAPES[trace.marker.symbol ?? "circle"] ?? circle;

/** @typedef {{ width: number, height: number, left: number, px: (v: number) => number, py: (v: number) => number }} Plane */

/** @param {HTMLElement} holder @param {Figure} figure */
export const scatter = (holder, figure) => {
  const { layout } = figure;
  const width = holder.clientWidth || 600;
  const height = layout.height ?? 340;
  const left = width < 520 ? 52 : 70;
  const x = axisOf(layout.xaxis, figure.data.flatMap((trace) => trace.x)); // prettier-ignore
  const y = axisOf(layout.yaxis, figure.data.flatMap((trace) => trace.y)); // prettier-ignore
  /** @type {Plane} */
  const plane = {
    width,
    height,
    left,
    px: (v) => left + x.place(v) * (width - left - RIGHT),
    py: (v) => height - BOTTOM - y.place(v) * (height - TOP - BOTTOM),
  };
  const drawing = svg("svg", { width, height, class: "own-chart", "aria-hidden": "true" });
  drawing.append(...gridX(x.ticks, plane), ...gridY(y.ticks, plane), ...titles(layout, plane));
  /** @type {Map<Element, Trace>} */
  const traces = new Map();
  for (const trace of figure.data.filter((each) => !each.hidden)) {
    const group = svg(
      "g",
      { class: trace.mode },
      ...(trace.mode === "lines" ? [line(trace, plane)] : points(trace, plane)),
    );
    traces.set(group, trace);
    drawing.append(group);
  }
  holder.replaceChildren(
    legendOf(figure, () => scatter(holder, figure)),
    drawing,
  );
  const tip = tipOf(holder);
  drawing.addEventListener("pointermove", (event) => {
    const target = /** @type {SVGElement} */ (event.target);
    const trace = traces.get(/** @type {Element} */ (target.closest("g")));
    if (!trace || trace.hoverinfo === "name") return tip(trace?.name ?? "", event);
    const wanted = event.clientX - drawing.getBoundingClientRect().left;
    const isLine = trace.mode === "lines";
    const at = isLine ? trace.x.findLastIndex((v) => plane.px(v) <= wanted) : Number(target.dataset.at);
    return tip(at >= 0 ? hover(trace, at) : "", event);
  });
  drawing.addEventListener("pointerleave", (event) => tip("", event));
};

/** @param {import("./axis.js").Tick[]} ticks @param {Plane} plane */
const gridX = (ticks, { px, height }) => {
  let done = -Infinity;
  return ticks.flatMap(([value, text]) => {
    const at = px(value);
    const rule = svg("line", { x1: at, x2: at, y1: TOP, y2: height - BOTTOM, class: "grid" });
    if (at - done < 8 + 6.2 * text.length) return [rule];
    done = at;
    return [rule, svg("text", { x: at, y: height - BOTTOM + 17, "text-anchor": "middle" }, text)];
  });
};

/** @param {import("./axis.js").Tick[]} ticks @param {Plane} plane */
const gridY = (ticks, { py, width, left }) => {
  let done = Infinity;
  return ticks.flatMap(([value, text]) => {
    const at = py(value);
    const rule = svg("line", { x1: left, x2: width - RIGHT, y1: at, y2: at, class: "grid" });
    if (done - at <= 15) return [rule];
    done = at;
    return [rule, svg("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, text)];
  });
};

/** @param {Figure["layout"]} layout @param {Plane} plane */
const titles = (layout, { width, height, left }) => [
  svg("text", { x: (left + width - RIGHT) / 2, y: height - 8, "text-anchor": "middle" }, layout.xaxis.title.text),
  svg(
    "text",
    { x: 13, y: height / 2, transform: `rotate(-90 13 ${height / 2})`, "text-anchor": "middle" },
    layout.yaxis.title.text,
  ),
  ...(layout.annotations ?? []).map((note) =>
    svg("text", { x: width - RIGHT - 4, y: TOP + 14, "text-anchor": "end" }, note.text),
  ),
];

/** @param {Trace} trace @param {Plane} plane */
const line = (trace, { px, py }) => {
  const d = trace.x.map((v, i) => {
    const [a, b] = [px(v).toFixed(1), py(trace.y[i]).toFixed(1)];
    if (i === 0) return `M${a} ${b}`;
    return trace.line.shape === "hv" ? `H${a}V${b}` : `L${a} ${b}`;
  });
  return svg("path", {
    d: d.join(""),
    fill: "none",
    stroke: trace.line.color,
    "stroke-width": trace.line.width,
    "stroke-dasharray": DASHES[trace.line.dash ?? ""] ?? "none",
  });
};

/** @param {Trace} trace @param {Plane} plane */
const points = (trace, { px, py }) =>
  trace.x.map((v, i) => {
    const { size, color, opacity = 1 } = trace.marker;
    return svg("path", {
      class: "point",
      d: shapeOf(trace)((Array.isArray(size) ? size[i] : size) / 2),
      transform: `translate(${px(v).toFixed(1)} ${py(trace.y[i]).toFixed(1)})`,
      fill: color,
      "fill-opacity": opacity,
      "data-at": i,
    });
  });

/** Buttons that hide and show a series. @param {Figure} figure @param {() => void} redraw */
const legendOf = (figure, redraw) => {
  const legend = html("div", { className: "legend own-legend" });
  for (const trace of figure.data) {
    const swatch = svg("svg", { width: 16, height: 12, "aria-hidden": "true" }, sample(trace));
    const item = html("button", { type: "button" }, swatch, ` ${trace.name}`);
    item.setAttribute("aria-pressed", String(!trace.hidden));
    item.addEventListener("click", () => {
      trace.hidden = !trace.hidden;
      redraw();
    });
    legend.append(item);
  }
  return legend;
};

/** @param {Trace} trace */
const sample = (trace) => {
  const colour = trace.marker?.color ?? trace.line.color;
  if (trace.mode !== "lines") return svg("path", { d: shapeOf(trace)(4.5), transform: "translate(8 6)", fill: colour });
  const dash = DASHES[trace.line.dash ?? ""] ?? "none";
  return svg("line", { x1: 0, x2: 16, y1: 6, y2: 6, stroke: colour, "stroke-width": 2, "stroke-dasharray": dash });
};
