// Where everything lies: ranks on top, the others collapsed, of hundreds in groups that are opened on demand.
import { WORDS } from "../page/words.js";
import { counterRows } from "./counters.js";
import { hostRows } from "./host.js";
import { isMemory } from "./memory.js";

const BAND = 14;
const IDLE = 14;
const PAD = 8;
const WHY = 11;
const FOLDED = 18;
const GROUP = 20;
const COUNTER = 24;
const MEMORY = 44;
/** @type {Record<Kind, number>} */
const LANES = { compute: 22, comm: 22, copy: 14, unknown: 22 };
const MORE_ROWS = 8;

/** Whether a row holds GPU operations. @param {Row} row @returns {row is Row & OfRank & { part: Kind }} */
export const isOperations = (row) => row.part in LANES;

/** Puts rows below one another. @param {number} y */
const stacked = (y) => {
  /** @type {Row[]} */
  const rows = [];
  let bottom = y;
  return {
    rows,
    /** @param {Unplaced} row @param {number} height @param {number} [gap] above it */
    add: (row, height, gap = 0) => {
      bottom += gap;
      rows.push({ ...row, y: bottom, height, key: keyOf(row) });
      bottom += height;
    },
    /** @param {number} gap */
    skip: (gap) => (bottom += gap),
  };
};

/** y of every row of the picture, and its whole height. @param {View} view @returns {View["layout"]} */
export const laidOut = (view) => {
  const { data } = view;
  const stack = stacked(4);
  const top = topRanks(view);
  top.forEach(({ rank, why }) => addRank(stack, view, { rank, why, inside: false }));
  const above = new Set(top.map(({ rank }) => rank));
  const below = (/** @type {Rank[]} */ ranks, /** @type {boolean} */ inside) =>
    ranks.filter((rank) => !above.has(rank)).forEach((rank) => addRank(stack, view, { rank, why: "", inside }));
  view.divider = above.size && above.size < data.ranks.length ? stack.skip(0) : null;
  if (view.divider !== null) stack.skip(5);
  if (!data.groups.length) below(data.ranks, false);
  data.groups.forEach((group, at) => {
    const ranks = group.ranks.flatMap((number) => data.rankOf.get(number) ?? []);
    const isOpen = view.opened.has(at);
    stack.add({ group, at, ranks, part: "group", isOpen }, GROUP);
    stack.skip(2);
    if (isOpen) below(ranks, true);
  });
  return { rows: stack.rows, height: stack.skip(0) };
};

/** @param {ReturnType<typeof stacked>} stack @param {View} view @param {{ rank: Rank, why: string, inside: boolean }} head */
const addRank = (stack, view, head) => {
  const { rank } = head;
  if (view.folded.has(rank.rank)) {
    stack.add({ ...head, part: "folded" }, FOLDED);
    stack.skip(3);
    return;
  }
  const first = stack.rows.length;
  stack.add({ rank, part: "steps" }, BAND); // the rank's name stands beside it, also where it has none
  const deepest = rank.bands.reduce((most, band) => Math.max(most, band[4]), -1);
  if (head.why && deepest < 0) stack.skip(WHY);
  for (let depth = 0; depth <= deepest; depth++) stack.add({ rank, part: `band${depth}` }, BAND);
  for (const lane of rank.lanes) {
    const more = lane.rows > 2 ? MORE_ROWS * (lane.rows - 2) : 0;
    if (lane.ops.length || lane.kind === "compute") stack.add({ rank, part: lane.kind }, LANES[lane.kind] + more, 1);
  }
  stack.add({ rank, part: "idle" }, IDLE, 1);
  for (const { lane, height } of hostRows(rank, view)) stack.add({ rank, part: "host", lane }, height, 2);
  for (const counter of counterRows(rank, view))
    stack.add({ rank, part: "counter", counter }, isMemory(counter) ? MEMORY : COUNTER, 1);
  Object.assign(stack.rows[first], { head: true, why: head.why, inside: head.inside });
  stack.skip(PAD);
};

/** Of few ranks the order is their own; else stragglers, who waits most, and whom a click asked for come first.
 * @param {View} view @returns {{ rank: Rank, why: string }[]} */
export const topRanks = ({ data, called }) => {
  const whys = new Map(data.pins.map((pin) => [pin.rank, pin.why]));
  const why = (/** @type {number} */ number) => whys.get(number) ?? "";
  if (data.ranks.length < data.few) return data.ranks.map((rank) => ({ rank, why: why(rank.rank) }));
  return [...new Set([...whys.keys(), ...called])].flatMap((number) => {
    const rank = data.rankOf.get(number);
    return rank ? [{ rank, why: why(number) }] : [];
  });
};

/** What a row is known by when the rows change. @param {Unplaced} row */
const keyOf = (row) => {
  if (row.part === "group") return `group|${row.at}`;
  const own =
    row.part === "host" ? `${row.lane.thread}${row.lane.frames}` : row.part === "counter" ? row.counter.name : "";
  return `${row.part}|${row.rank.rank}|${own}`;
};

/** @param {Row} row @param {boolean} [isShort] */
export const nameOf = (row, isShort = false) => {
  if (row.part === "group") return `${row.group.name}, ranks ${row.ranks[0]?.rank} to ${row.ranks.at(-1)?.rank}`;
  if (row.part === "host") return isShort ? row.lane.label.replace(/ thread$/, "") : row.lane.label;
  if (row.part === "counter") return row.counter.name;
  if (row.part === "idle") return "idle";
  const kind = WORDS.kinds[row.part];
  return kind ? (isShort ? kind.short : kind.label) : "";
};
