// What the timeline says of what is pointed at.
import { one } from "../page/dom.js";
import { amountText, timeText } from "../page/numbers.js";
import { WORDS } from "../page/words.js";
import { rowAt } from "./intervals.js";
import { nameOf } from "./layout.js";
import { isMemory, memoryText } from "./memory.js";
import { lastOf } from "./links.js";

/** @param {View} view @param {number} px @param {number} py @param {Hit} found */
export const showTip = (view, px, py, found) => {
  const box = one(view.scroller, ".tl-tip");
  const text = textOf(view, found);
  box.hidden = !text;
  if (!text) return;
  box.textContent = text;
  box.style.left = `${Math.max(0, Math.min(px + 12, view.width - box.offsetWidth - 4))}px`;
  box.style.top = `${py + 16 + view.scroll}px`;
};

/** @param {View} view */
export const hideTip = (view) => {
  one(view.scroller, ".tl-tip").hidden = true;
};

/** @param {View} view @param {Hit} found */
const textOf = (view, { row, op, event, t }) => {
  if (!row || t === undefined) return "";
  if (row.part === "group") return `${nameOf(row)}: click to ${row.isOpen ? "close" : "see each"}`;
  if (row.part === "counter") return ofCounter(row.counter, t);
  if (row.part === "host") return event === undefined ? "" : ofHost(view.data, row.lane, event);
  if (op !== undefined) return ofOperation(view.data, row.rank, op, t);
  if (row.part === "steps") return ofSteps(row.rank, t);
  if (row.part.startsWith("band")) return ofBand(row.rank, Number(row.part.slice(4)), t);
  return ofIdle(view.data, row.rank, t);
};

/** @param {Timeline} data @param {Rank} rank @param {number} op @param {number} t */
const ofOperation = (data, rank, op, t) => {
  const [short] = data.names[rank.name[op]];
  const wait = rank.wait[op] - 1;
  const told = wait > 0 ? ` (wait ${timeText(wait)}${forWhom(data, rank, op, t < rank.start[op] + wait)})` : "";
  return `${short} · ${timeText(rank.end[op] - rank.start[op])}${told}`;
};

/** @param {Timeline} data @param {Rank} rank @param {number} op @param {boolean} isInWait */
const forWhom = (data, rank, op, isInWait) => {
  const last = lastOf(data, rank, op);
  return last ? ` for rank ${last.number}${isInWait && last.rank ? ": click to see what it did" : ""}` : "";
};

/** @param {Timeline} data @param {HostLane} lane @param {number} event */
const ofHost = (data, lane, event) =>
  `${data.host.names[lane.name[event]][1]} · ${timeText(lane.length[event])} · ${lane.label}`;

/** @param {Counter | MemoryCounter} counter @param {number} t */
const ofCounter = (counter, t) => {
  const i = rowAt(counter.start, t);
  const isIn = i >= 0 && t < counter.start[i] + counter.length[i];
  if (isIn && isMemory(counter)) return memoryText(counter, i);
  return isIn ? `${counter.name}: ${amountText(counter, counter.value[i])}` : "";
};

/** @param {Rank} rank @param {number} t */
const ofSteps = ({ steps }, t) => {
  const step = steps.find(([, , from, to]) => from <= t && t < to);
  return step ? `step ${step[1]} · ${timeText(step[3] - step[2])}; click to see it alone` : "";
};

/** @param {Rank} rank @param {number} depth @param {number} t */
const ofBand = ({ bands }, depth, t) => {
  const band = bands.find(([, , from, to, own]) => own === depth && from <= t && t < to);
  return band ? `${band[1]} · ${timeText(band[3] - band[2])} on the GPU` : "";
};

/** @param {Timeline} data @param {Rank} rank @param {number} t */
const ofIdle = (data, { busy, gap, first }, t) => {
  const at = rowAt(busy.s, t);
  const from = at < 0 ? first : busy.e[at];
  const to = busy.s[at + 1];
  if (t < from || to === undefined) return "";
  const i = rowAt(gap.start, t);
  const idle = `idle · ${timeText(to - from)}`;
  if (i < 0 || t >= gap.start[i] + gap.length[i]) return idle;
  const doing = data.doings[gap.doing[i]] && `: ${data.doings[gap.doing[i]]}`;
  return `${idle} · ${WORDS.causes[data.causes[gap.cause[i]]]?.short ?? ""}${doing}`;
};
