// What ties operations together: instances, and who was awaited.

/** The operations of each instance, found after the first picture. @param {Timeline} data */
export const findInstances = (data) => {
  data.instances = new Map();
  data.ranks.forEach((rank) => {
    for (let op = 0; op < rank.count; op++) {
      const instance = rank.instance[op];
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
  const who = data.instances && rank.awaited[op];
  if (!who) return null;
  const calls = data.instances.get(rank.instance[op]) ?? [];
  const found = calls.find(([other]) => other.rank === who - 1);
  return { number: who - 1, rank: found?.[0] ?? null, op: found?.[1] };
};

/** Whether an operation is the last arrival for which others of its instance waited.
 * @param {Pick<Timeline, "instances">} data @param {Rank} rank @param {number} op */
export const isLast = (data, rank, op) => {
  const calls = data.instances?.get(rank.instance[op]) ?? [];
  return rank.wait[op] === 1 && calls.some(([other, own]) => other !== rank && other.awaited[own] === rank.rank + 1);
};
