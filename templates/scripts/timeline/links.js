// What ties operations together, read after the first picture: instances, who was awaited, launching threads.
import { unpacked } from "../page/unpack.js";

/** @param {Timeline} data */
export const loadLinks = async (data) => {
  const [meta, read] = await unpacked(data.packed.links);
  data.instances = new Map();
  data.ranks.forEach((rank, at) => {
    const calls = rank.call.length;
    rank.instance = read(calls, Uint32Array);
    rank.awaited = read(calls, Uint32Array);
    rank.thread = read(rank.count, Uint16Array);
    rank.threads = meta.threads[at];
    for (let op = 0; op < rank.count; op++) {
      const instance = data.names[rank.name[op]][2] === "comm" ? rank.instance[rank.place[op]] : 0;
      if (!instance) continue;
      const calls = data.instances.get(instance) ?? [];
      data.instances.set(instance, calls);
      calls.push([rank, op]);
    }
  });
};

/** The call of the awaited rank in the same instance: who came last, and when. Without one, nobody was awaited.
 * @param {Pick<Timeline, "instances">} data @param {Rank} rank @param {number} op @returns {Last | null} */
export const lastOf = (data, rank, op) => {
  const place = rank.place[op];
  const who = rank.awaited?.[place];
  if (!who) return null;
  const calls = data.instances.get(rank.instance[place]) ?? [];
  const found = calls.find(([other]) => other.rank === who - 1);
  return { number: who - 1, rank: found?.[0] ?? null, op: found?.[1] };
};

/** Whether an operation is the last arrival for which others of its instance waited.
 * @param {Pick<Timeline, "instances">} data @param {Rank} rank @param {number} op */
export const isLast = (data, rank, op) => {
  const place = rank.place[op];
  const calls = data.instances?.get(rank.instance[place]) ?? [];
  return (
    rank.wait[place] === 1 &&
    calls.some(([other, own]) => other !== rank && other.awaited[other.place[own]] === rank.rank + 1)
  );
};
