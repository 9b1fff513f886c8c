// Every step as a column of its parts, of the mean over ranks or of one; a click chooses the step for the whole page.
import { onEnter, one, svg } from "../page/dom.js";
import { timeText } from "../page/numbers.js";
import { WORDS } from "../page/words.js";

const HIGH = 150;
const TOP = 16;
const LATE = 15;
const LEFT = 62;

/** @typedef {{ ranks: string, cause: string, steps: number[] }} Late */
/** Of each step: the parts' sums in ns, of the mean and of each rank; null where a rank has not the step.
 * @typedef {{ steps: number[], complete: boolean[], parts: { label: string, kind: string }[], mean: number[][],
 *   ranks: Record<string, (number[] | null)[]>, least: number[], most: number[], bare_ns: number | null, late: Late[] }} Steps */

/** @param {number[]} parts */
const sumOf = (parts) => parts.reduce((a, b) => a + b, 0);

/** What a column says of itself. @param {Steps} data @param {number} at @param {number[]} parts @param {boolean} isMean */
const wordsOf = (data, at, parts, isMean) => {
  const each = parts.flatMap((ns, i) => (ns ? [`${data.parts[i].label} ${timeText(ns)}`] : []));
  const isSpread = isMean && data.least[at] !== data.most[at];
  const spread = isSpread ? `; ranks from ${timeText(data.least[at])} to ${timeText(data.most[at])}` : "";
  const cut = data.complete[at] ? "" : " (not complete)";
  return `step ${data.steps[at]}${cut}: ${timeText(sumOf(parts))}; ${each.join(", ")}${spread}`;
};

/** @typedef {{ each: number, gap: number, width: number, x: (at: number) => number, y: (ns: number) => number }} Plane */

/** @param {Steps} data @param {number} width @returns {Plane} */
const planeOf = (data, width) => {
  const sums = Object.values(data.ranks).flat().map((parts) => sumOf(parts ?? [])); // prettier-ignore
  const longest = [...data.most, ...sums, data.bare_ns ?? 0].reduce((most, ns) => Math.max(most, ns), 1);
  const each = Math.min(110, (width - LEFT) / data.steps.length);
  const gap = Math.min(10, each * 0.2);
  return { each, gap, width, x: (at) => LEFT + at * each + gap / 2, y: (ns) => TOP + HIGH - (HIGH * ns) / longest };
};

/** @param {Steps} data @param {number} at @param {number[]} parts @param {Plane} plane @param {boolean} isMean */
const columnOf = (data, at, parts, plane, isMean) => {
  const x = plane.x(at);
  const width = Math.max(1, plane.each - plane.gap);
  const words = wordsOf(data, at, parts, isMean);
  const told = { role: "button", tabindex: 0, "aria-label": `${words}; choose this step`, "data-step": data.steps[at] };
  const group = svg("g", { ...told, ...(!data.complete[at] && { opacity: 0.45 }) }, svg("title", {}, words));
  let sum = 0;
  parts.forEach((ns, i) => {
    if (!ns) return;
    const { kind } = data.parts[i];
    const box = { x, width, y: plane.y(sum + ns), height: plane.y(0) - plane.y(ns) };
    group.append(svg("rect", { ...box, class: `k-${kind}` }));
    if (WORDS.patterns[kind]) group.append(svg("rect", { ...box, class: `p-${kind}` }));
    sum += ns;
  });
  const [high, low] = [plane.y(data.most[at]), plane.y(data.least[at])];
  if (isMean && low - high > 0.005 * HIGH) {
    const middle = x + width / 2;
    const d = `M${middle - 4} ${high}h8M${middle} ${high}V${low}M${middle - 4} ${low}h8`;
    group.append(svg("path", { class: "spread", fill: "none", d }));
  }
  group.append(svg("rect", { class: "frame", x: x - 1, width: width + 2, y: TOP - 1, height: HIGH + 2 }));
  const every = Math.ceil(34 / plane.each);
  const place = { x: x + width / 2, y: TOP + HIGH + 15, "text-anchor": "middle" };
  if (at % every === 0) group.append(svg("text", place, String(data.steps[at])));
  return group;
};

/** @param {Plane} plane @param {number} longest */
const grid = ({ width, y }, longest) =>
  [0, 0.5, 1].flatMap((share) => {
    const at = y(share * longest);
    return [
      svg("line", { x1: LEFT, x2: width, y1: at, y2: at, class: "grid", stroke: "var(--rule)" }),
      svg("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, share ? timeText(share * longest) : "0"),
    ];
  });

/** The steps in which ranks were stragglers, below the columns. @param {Steps} data @param {Plane} plane */
const lateOf = (data, plane) =>
  data.late.flatMap(({ ranks, cause, steps }, row) => {
    const top = TOP + HIGH + 20 + row * LATE;
    const places = steps.map((step) => data.steps.indexOf(step)).filter((at) => at >= 0);
    const width = Math.max(1, plane.each - plane.gap);
    const why = WORDS.parts[`idle-${cause}`]?.replace(/^idle: /, "") ?? cause;
    const who = ranks.length > 24 ? `${ranks.slice(0, 22)}…` : ranks;
    const words = `straggler: ${/^\d+$/.test(ranks) ? "rank" : "ranks"} ${who} (${why})`;
    const x = Math.min(plane.x(places[0] ?? 0), plane.width - 7 * words.length);
    return [
      ...places.map((at) => svg("rect", { class: "late", x: plane.x(at), width, y: top + 11, height: 3 })),
      svg("text", { class: "late", x, y: top + 9 }, words),
    ];
  });

/** @param {Steps} data @param {Plane} plane */
const bareLine = ({ bare_ns: bare }, { width, y }) =>
  bare
    ? [
        svg("line", { class: "bare", x1: LEFT, x2: width, y1: y(bare), y2: y(bare) }),
        svg("text", { x: width - 4, y: y(bare) - 4, "text-anchor": "end" }, `${timeText(bare)} without the profiler`),
      ]
    : [];

export const startStepChart = () => {
  const box = document.querySelector(".step-chart");
  if (!box) return;
  /** @type {Steps} */
  const data = JSON.parse(one(box, "script").textContent ?? "");
  const holder = one(box, ".step-columns");
  const choice = /** @type {HTMLSelectElement} */ (one(box, "select"));
  /** @type {number | null} */
  let chosen = null;
  const draw = () => {
    const isMean = choice.value === "mean";
    const plane = planeOf(data, holder.clientWidth || 600);
    const height = TOP + HIGH + 20 + LATE * data.late.length;
    const drawing = svg("svg", { height, viewBox: `0 0 ${plane.width} ${height}` });
    drawing.append(...grid(plane, longestOf(plane)));
    (isMean ? data.mean : data.ranks[choice.value]).forEach((parts, at) => {
      if (!parts) return;
      const group = columnOf(data, at, parts, plane, isMean);
      const choose = () => document.dispatchEvent(new CustomEvent("choosestep", { detail: data.steps[at] }));
      group.classList.toggle("chosen", data.steps[at] === chosen);
      group.addEventListener("click", choose);
      onEnter(group, choose);
      drawing.append(group);
    });
    drawing.append(...bareLine(data, plane), ...lateOf(data, plane));
    holder.replaceChildren(drawing);
  };
  choice.addEventListener("change", draw);
  document.addEventListener("stepchosen", (event) => {
    chosen = /** @type {CustomEvent<number>} */ (event).detail;
    for (const group of holder.querySelectorAll("g"))
      group.classList.toggle("chosen", group.dataset.step === String(chosen));
  });
  let width = 0;
  new ResizeObserver(() => {
    if (holder.clientWidth === width) return;
    width = holder.clientWidth;
    draw();
  }).observe(holder);
  draw();
};

/** The longest step that is drawn: the top of the plane. @param {Plane} plane */
const longestOf = ({ y }) => HIGH / (y(0) - y(1));
