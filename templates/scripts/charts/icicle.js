// An icicle as SVG, from the dictionary that plotly takes elsewhere.
import { tipOf } from "./hover.js";
import { onEnter, svg } from "../page/dom.js";
import { percentText, timeText } from "../page/numbers.js";
import { WORDS } from "../page/words.js";

const LEVEL = 46;
const LETTER = 7.1;

/** Letters that can be read on a block, whatever the theme: by the block's own brightness. @param {string} colour */
export const inkOn = (colour) => {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#000" : "#fff";
};

/** @param {Trace} trace */
const childrenOf = (trace) => {
  /** @type {Map<string, number[]>} */
  const children = new Map();
  trace.parents.forEach((parent, at) => children.set(parent, [...(children.get(parent) ?? []), at]));
  children.forEach((own) => own.sort((a, b) => trace.values[b] - trace.values[a]));
  return children;
};

/** @param {HTMLElement} holder @param {Figure} figure */
export const icicle = (holder, figure) => {
  const trace = /** @type {Trace} */ (figure.data.find((each) => each.visible !== false));
  const width = holder.clientWidth || 600;
  const depth = trace.maxdepth ?? 6;
  const children = childrenOf(trace);
  const [first] = children.get("") ?? [];
  const root = trace.top === undefined ? first : trace.ids.indexOf(trace.top);
  const drawing = svg("svg", { width, height: depth * LEVEL, class: "own-chart icicle" });
  const say = (/** @type {number} */ at) =>
    `${trace.labels[at]} · ${timeText(1e6 * trace.values[at])}, ${percentText(trace.values[at], trace.values[first])} of the rank`;
  const into = (/** @type {number} */ at) => {
    trace.top = at === root && trace.parents[at] !== "" ? trace.parents[at] : trace.ids[at];
    icicle(holder, figure);
    /** @type {SVGElement | null} */ (holder.querySelector(".icicle g"))?.focus();
  };
  /** @param {number} at @param {number} x @param {number} w @param {number} level */
  const draw = (at, x, w, level) => {
    if (w < 0.4 || level >= depth) return;
    const box = { x, y: level * LEVEL, width: Math.max(0.4, w - 1), height: LEVEL - 1 };
    const block = blockOf(trace, at, box);
    block.setAttribute("aria-label", say(at));
    block.addEventListener("click", () => into(at));
    onEnter(block, () => into(at));
    drawing.append(block, ...wordsOf(trace, at, box));
    let from = x;
    for (const child of children.get(trace.ids[at]) ?? []) {
      const own = (w * trace.values[child]) / trace.values[at];
      draw(child, from, own, level + 1);
      from += own;
    }
  };
  draw(root, 0, width, 0);
  holder.replaceChildren(drawing);
  const tip = tipOf(holder);
  drawing.addEventListener("pointermove", (event) => {
    const block = /** @type {Element} */ (event.target).closest("g[data-at]");
    tip(block instanceof SVGElement ? say(Number(block.dataset.at)) : "", event);
  });
  drawing.addEventListener("pointerleave", (event) => tip("", event));
};

/** @typedef {{ x: number, y: number, width: number, height: number }} Box */

/** @param {Trace} trace @param {number} at @param {Box} box */
const blockOf = (trace, at, box) => {
  const colour = trace.marker.colors[at];
  const block = svg("g", { role: "button", "data-at": at, ...(box.width > 11 && { tabindex: 0 }) });
  block.append(svg("rect", { ...box, fill: colour === WORDS.several ? "var(--several)" : colour }));
  if (trace.marker.pattern?.shape[at]) block.append(svg("rect", { ...box, class: "p-both" }));
  return block;
};

/** What is written on a block, cut to what fits: beside it, for its own name is whole.
 * @param {Trace} trace @param {number} at @param {Box} box */
const wordsOf = (trace, at, box) => {
  const colour = trace.marker.colors[at];
  const text = trace.text[at];
  const fits = Math.floor((box.width - 7) / LETTER);
  if (fits < Math.min(4, text.length)) return [];
  const place = {
    x: box.x + 4,
    y: box.y + LEVEL / 2 + 4,
    fill: colour === WORDS.several ? "var(--ink)" : inkOn(colour),
  };
  const shown = text.length <= fits ? text : `${text.slice(0, fits - 1)}…`;
  return [svg("text", { class: "slicetext", "aria-hidden": "true", ...place }, shown)];
};
