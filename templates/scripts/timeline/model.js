// What the timeline knows: operations decoded from their columns.
import { unpacked } from "../page/unpack.js";
import { coveredIn, merged, minus, union } from "./intervals.js";
import { rowsOf } from "./packing.js";

/** @type {Kind[]} */
const KINDS = ["compute", "comm", "copy", "unknown"];
const MOST_ROWS = 6;

/** @param {Rank} rank @param {Kind} kind @param {Name[]} names @returns {Lane} */
const laneMade = (rank, kind, names) => {
  const ops = [];
  for (let op = 0; op < rank.count; op++) if (names[rank.name[op]][2] === kind) ops.push(op);
  const starts = Float64Array.from(ops, (op) => rank.start[op]);
  const ends = Float64Array.from(ops, (op) => rank.end[op]);
  const { depth, rows } = rowsOf(starts, ends, MOST_ROWS);
  const longest = starts.reduce((most, start, i) => Math.max(most, ends[i] - start), 0);
  return { kind, ops: Int32Array.from(ops), starts, depth, rows: Math.max(1, rows), longest };
};

/** The lane of a kind, of which every rank has one. @param {Rank} rank @param {Kind} kind */
export const laneOf = (rank, kind) => rank.lanes[KINDS.indexOf(kind)];

/** @param {RankEntry} entry @param {TableReader} read @param {Timeline} data @returns {Rank} */
const decodeRank = ({ rank: number, operations, gaps }, read, { names, causes }) => {
  const columns = read(operations);
  const end = columns.start.map((/** @type {number} */ start, /** @type {number} */ i) => start + columns.length[i]);
  const rank = { rank: number, ...columns, end, gap: read(gaps) };
  // The rest is of the rank as a whole, or is read after the first picture.
  return withUnions(/** @type {Rank} */ (rank), names, causes);
};

/** @param {Rank} rank @param {Name[]} names @param {string[]} causes */
const withUnions = (rank, names, causes) => {
  const u = unionsOf(rank, names);
  const told = merged(merged(u.compute, u.comm), u.copy);
  const busy = merged(told, u.unknown);
  const exposed = minus(u.comm, u.compute);
  const parts = {
    compute: u.compute,
    transfer: minus(u.transfer, u.compute),
    wait: minus(minus(u.wait, u.compute), u.transfer),
    comm: minus(minus(exposed, u.transfer), u.wait),
    copy: minus(minus(u.copy, u.compute), u.comm),
    unknown: minus(u.unknown, told),
  };
  /** @type {Pair[][]} */
  const idle = causes.map(() => []);
  rank.gap.start.forEach((start, i) => idle[rank.gap.cause[i]].push([start, start + rank.gap.length[i]]));
  // Lanes are made when a rank is first expanded: of hundreds few are.
  /** @type {Lane[] | null} */
  let lanes = null;
  Object.defineProperty(rank, "lanes", { get: () => (lanes ??= KINDS.map((kind) => laneMade(rank, kind, names))) });
  return Object.assign(rank, {
    u,
    parts,
    busy,
    idle: causes.map((cause, id) => /** @type {[string, Union]} */ ([cause, union(idle[id])])),
    first: rank.count ? rank.start[0] : 0,
    last: busy.e.at(-1) ?? 0,
  });
};

/** @param {Rank} rank @param {Name[]} names */
const unionsOf = (rank, names) => {
  /** @type {Record<Kind | "transfer" | "wait", Pair[]>} */
  const pairs = { compute: [], comm: [], copy: [], unknown: [], transfer: [], wait: [] };
  for (let op = 0; op < rank.count; op++) {
    const kind = names[rank.name[op]][2];
    const start = rank.start[op];
    const end = rank.end[op];
    pairs[kind].push([start, end]);
    const wait = rank.wait[op];
    if (!wait) continue;
    pairs.wait.push([start, start + wait - 1]);
    pairs.transfer.push([start + wait - 1, end]);
  }
  pairs.transfer.sort((a, b) => a[0] - b[0]);
  const { compute, comm, copy, unknown, transfer, wait } = pairs;
  return {
    compute: union(compute),
    comm: union(comm),
    copy: union(copy),
    unknown: union(unknown),
    transfer: union(transfer),
    wait: union(wait),
  };
};

/** Time of each part within [t0, t1) on one rank; idle only inside the rank's capture. What is not known is null.
 * @param {Pick<Rank, "first" | "last" | "parts" | "busy">} rank @param {number} t0 @param {number} t1
 * @returns {Record<PartName, number | null> & { window: number, idle: number }} */
export const breakdown = (rank, t0, t1) => {
  const from = Math.max(t0, rank.first);
  const to = Math.min(t1, rank.last);
  const of = (/** @type {PartName} */ name) => coveredIn(rank.parts[name], from, to);
  const window = Math.max(0, to - from);
  const unknown = of("unknown");
  // A CUDA graph that was recorded as one operation may hold each of them: beside it none is known.
  const known = (/** @type {PartName} */ name) => (unknown ? null : of(name));
  return {
    window,
    compute: known("compute"),
    transfer: known("transfer"),
    wait: known("wait"),
    comm: known("comm"),
    copy: known("copy"),
    unknown,
    idle: window - coveredIn(rank.busy, from, to),
  };
};

/** What is of a rank, in order of start. @template {Step | Band} T @param {T[]} list @param {Rank} rank */
const ofRank = (list, { rank }) => list.filter(([own]) => own === rank).sort((a, b) => a[2] - b[2]);

/** @returns {Promise<Timeline | null>} */
export const loadTimeline = async () => {
  const source = document.getElementById("timeline-data");
  if (!source) return null;
  const packed = JSON.parse(source.textContent ?? "");
  source.remove();
  const [data, read] = await unpacked(packed.meta, packed.numbers);
  data.ranks = data.ranks.map((/** @type {RankEntry} */ entry) => decodeRank(entry, read, data));
  return completed(data, read);
};

/** @param {Timeline} data @param {TableReader} read */
const completed = (data, read) => {
  for (const rank of data.ranks) {
    rank.steps = ofRank(data.steps, rank);
    rank.bands = ofRank(data.bands, rank);
    // A complete step may begin before its first operation, and end after its last one.
    const complete = rank.steps.filter(([, , , , isComplete]) => isComplete);
    rank.first = Math.min(rank.first, ...complete.map(([, , start]) => start));
    rank.last = Math.max(rank.last, ...complete.map(([, , , end]) => end));
  }
  data.hasWaits = data.ranks.some((rank) => rank.u.wait.s.length || rank.u.transfer.s.length);
  const begins = data.ranks.flatMap((rank) => [rank.first, rank.steps[0]?.[2] ?? rank.first]);
  data.begin = begins.reduce((least, begin) => Math.min(least, begin), 0);
  data.end = data.ranks.reduce((most, rank) => Math.max(most, rank.last), 0);
  data.rankOf = new Map(data.ranks.map((rank) => [rank.rank, rank]));
  data.read = read;
  return data;
};

/** A step of every rank that has it. @param {View} view @param {number} number @returns {[Rank, Step][]} */
export const ofStep = (view, number) =>
  view.data.ranks.flatMap((rank) =>
    rank.steps.filter((s) => s[1] === number).map((s) => /** @type {[Rank, Step]} */ ([rank, s])),
  );
