// The timeline's legend: only what is drawn.
import { html, one, svg } from "../page/dom.js";
import { WORDS } from "../page/words.js";

/** @typedef {[look: string, text?: string]} Entry */

/** @type {[look: string, text: string][]} */
const HOST = [
  ["host-range", "range on the CPU"],
  ["host-operator", "operator"],
  ["host-call", "runtime call"],
  ["host-sync", "blocking call"],
  ["host-frame", "Python frame"],
];

/** @param {View} view @param {HTMLElement} box */
export const drawLegend = (view, box) => {
  const { data } = view;
  const entries = [...ofOperations(data), ...(view.shows.host ? ofHost(data) : []), ...ofIdle(data)];
  one(box, ".tl-legend").replaceChildren(
    ...entries.map(([look, text = look]) => html("li", {}, swatch(look), ` ${text}`)),
  );
};

/** @param {Timeline} data @returns {Entry[]} */
const ofOperations = (data) => {
  const has = (/** @type {PartName} */ name) => data.ranks.some((rank) => rank.parts[name].s.length);
  /** @type {Entry[]} */
  const entries = [["compute"]];
  if (has("transfer") || (!data.hasWaits && has("comm")))
    entries.push(data.hasWaits ? ["transfer"] : ["transfer", "communication"]);
  if (has("wait")) entries.push(["wait"]);
  if (data.hasWaits && has("comm"))
    entries.push(["unmatched", `communication${WORDS.parts.unmatched.replace(/^exposed,?/, ":")}`]);
  if (has("copy")) entries.push(["copy"]);
  if (has("unknown")) entries.push(["unknown", WORDS.kinds.unknown.label]);
  return entries;
};

/** @param {Timeline} data @returns {Entry[]} */
const ofHost = (data) => {
  if (!data.ranks.some((rank) => rank.host?.length)) return [];
  return HOST.filter(([look]) => data.host.names.some(([what]) => `host-${what}` === look));
};

/** @param {Timeline} data @returns {Entry[]} */
const ofIdle = ({ causes, knows_causes: knowsCauses }) =>
  knowsCauses
    ? Object.entries(WORDS.causes)
        .filter(([cause]) => causes.includes(cause) || cause === WORDS.between)
        .map(([, { kind }]) => [kind, WORDS.parts[kind]])
    : [["idle"]];

/** @param {string} look */
const swatch = (look) => {
  const box = { width: 14, height: 14 };
  const classes = WORDS.patterns[look] ? [`k-${look}`, `p-${look}`] : [`k-${look}`];
  const shapes = classes.map((name) => svg("rect", { ...box, class: name }));
  return svg("svg", { ...box, class: "swatch", "aria-hidden": "true" }, ...shapes);
};
