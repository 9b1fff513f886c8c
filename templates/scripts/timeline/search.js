// Which operations and host events a search finds, and why.
import { byId } from "../page/dom.js";
import { timeText } from "../page/numbers.js";
import { redraw } from "./view.js";

/** What holds the wanted word: names of operations by place, launching operators and host events by number.
 * @typedef {{ names: Set<number>, operators: Set<number>, host: Set<number> }} Matches */

/** @param {Pick<Timeline, "names" | "operators"> & { host?: Pick<Host, "names"> }} data @param {string} wanted in small letters @returns {Matches} */
export const matches = (data, wanted) => {
  const names = data.names.flatMap(([short, full], at) =>
    `${short}\n${full}`.toLowerCase().includes(wanted) ? [at] : [],
  );
  // By its own name, or by the operator that launched it: of that the name alone, not the shapes behind it.
  const operators = data.operators.flatMap((text, at) =>
    nameOfOperator(text).toLowerCase().includes(wanted) ? [at] : [],
  );
  const host = (data.host?.names ?? []).flatMap(([, name], at) => (name.toLowerCase().includes(wanted) ? [at] : []));
  return { names: new Set(names), operators: new Set(operators), host: new Set(host) };
};

/** @param {string} text */
const nameOfOperator = (text) => text.split(" ")[0];

/** Why something is found whose short name does not hold the word: where it stands in the full name, or what launched it.
 * @param {Pick<Timeline, "names" | "operators">} data @param {string} wanted @param {Matches} found */
export const whyFound = (data, wanted, found) => {
  const full = [...found.names].map((at) => data.names[at]).filter(([short]) => !short.toLowerCase().includes(wanted));
  const hidden = full.length ? `; in the full name “${around(full[0][1], wanted)}”${andMore(full.length)}` : "";
  if (found.names.size) return hidden;
  const launchers = [...new Set([...found.operators].map((at) => nameOfOperator(data.operators[at])))];
  return launchers.length ? `; launched by ${launchers[0]}${andMore(launchers.length)}` : "";
};

/** @param {number} count */
const andMore = (count) => (count > 1 ? ` and ${count - 1} more` : "");

/** A word with a little of what stands around it. @param {string} name @param {string} wanted */
const around = (name, wanted) => {
  const at = name.toLowerCase().indexOf(wanted);
  const from = Math.max(0, at - 24);
  const to = at + wanted.length + 24;
  return `${from ? "…" : ""}${name.slice(from, to)}${to < name.length ? "…" : ""}`;
};

/** Listens to the search field: what is found keeps its colour, the rest fades. @param {View} view */
export const listenToSearch = (view) => {
  const field = /** @type {HTMLInputElement} */ (byId("tl-search"));
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    const { data } = view;
    const found = matches(data, wanted);
    const has = (/** @type {Rank} */ rank, /** @type {number} */ op) =>
      found.names.has(rank.name[op]) || found.operators.has(rank.operator[op]);
    view.found = wanted ? { has, hasHost: (name) => found.host.has(name) } : null;
    view.dim = wanted ? 0.25 : 1;
    byId("tl-found").textContent = wanted ? toldOf(data, wanted, found, has) : "";
    redraw(view);
  });
};

/** @param {Timeline} data @param {string} wanted @param {Matches} found @param {(rank: Rank, op: number) => boolean} has */
const toldOf = (data, wanted, found, has) => {
  const gpu = { count: 0, ns: 0 };
  const host = { count: 0, ns: 0 };
  for (const rank of data.ranks) {
    for (let op = 0; op < rank.count; op++) if (has(rank, op)) add(gpu, rank.end[op] - rank.start[op]);
    for (const { name, length } of rank.host ?? [])
      name.forEach((each, event) => found.host.has(each) && add(host, length[event]));
  }
  const operations = `${counted(gpu, "operation")}, ${timeText(gpu.ns)} in all${whyFound(data, wanted, found)}`;
  return host.count ? `${operations}; on the CPU ${counted(host, "event")}` : operations;
};

/** @param {{ count: number, ns: number }} sum @param {number} ns */
const add = (sum, ns) => {
  sum.count++;
  sum.ns += ns;
};

/** @param {{ count: number }} sum @param {string} what */
const counted = ({ count }, what) => `${count.toLocaleString("en-US")} ${what}${count === 1 ? "" : "s"}`;
