"use strict";
// What the timeline says of what is pointed at or chosen: an operation, an event of the host, a wait and who was awaited.
(() => {
  const TA = globalThis.TA, WORDS = TA.words;
  const byId = (id) => document.getElementById(id);

  const facts = (rank, op) => {
    const { data } = TA.view, [short, full, kind] = data.names[rank.name[op]], place = rank.place[op];
    const lines = [["Operation", short], ["Rank", rank.rank], ["Kind", WORDS.kinds[kind]?.one], ["Duration", TA.time(rank.end[op] - rank.start[op])], ["Start", TA.time(rank.start[op])],
      ["Stream", rank.streams[rank.stream[op]]], ["Step", rank.step[op] ? rank.step[op] - 1 : "none"]];
    if (kind === "comm") {
      if (rank.call[place]) lines.push(["Call", data.calls[rank.call[place] - 1]]);
      lines.push(["Size", rank.callBytes[place] ? TA.bytes(rank.callBytes[place] - 1) : "n/a"]);
      if (rank.wait[place]) lines.push(["Wait", TA.time(rank.wait[place] - 1)], ["Transfer", TA.time(rank.end[op] - rank.start[op] - rank.wait[place] + 1)]);
      if (rank.why[place]) lines.push(["Transfer and wait", `not told apart: ${data.whys[rank.why[place] - 1]}`]);
      const last = TA.lastOf(data, rank, op);
      if (last) lines.push(["Came last", `rank ${last.number}`]);
    }
    if (kind === "copy" && rank.copyBytes[place]) lines.push(["Size", TA.bytes(rank.copyBytes[place] - 1)]);
    lines.push(["Launch", rank.launch[op] ? `${data.launches[rank.launch[op] - 1]}${rank.delay[op] ? `, ${TA.time(rank.delay[op] - 1)} before it ran` : ""}` : "not in the capture"]);
    if (rank.operator[op]) lines.push(["Operator", data.operators[rank.operator[op] - 1]]);
    if (rank.path[op]) lines.push(["In the code", data.paths[rank.path[op] - 1]]);
    if (TA.slackText(rank, op)) lines.push(["Slack", TA.slackText(rank, op)]);
    return { lines, full };
  };

  const listed = TA.listed = (lines) => {
    const list = document.createElement("dl");
    for (const [term, value] of lines) { const dt = document.createElement("dt"), dd = document.createElement("dd"); dt.textContent = term; dd.textContent = value; const pair = document.createElement("div"); pair.append(dt, dd); list.append(pair); }
    return list;
  };

  TA.details = (rank, op) => {
    const box = byId("tl-details"), { view } = TA;
    box.replaceChildren();
    view.awaited = null;
    view.selected = rank ? { rank, op, kind: view.data.names[rank.name[op]][2] } : null;
    if (rank) {
      const { lines, full } = facts(rank, op), list = listed(lines), name = document.createElement("p");
      list.dataset.ns = rank.end[op] - rank.start[op];
      name.className = "full-name"; name.textContent = full;
      box.append(list, name);
      const last = view.selected.kind === "comm" && rank.wait[rank.place[op]] > 1 && TA.lastOf(view.data, rank, op);
      if (last?.rank) {
        const button = Object.assign(document.createElement("button"), { type: "button", textContent: `What rank ${last.number} did meanwhile` });
        button.addEventListener("click", () => TA.follow(rank, op)); box.append(button);
      }
    }
    TA.redraw();
  };

  TA.hostDetails = (rank, lane, event, level) => {
    const box = byId("tl-details"), { view } = TA, [what, name] = view.data.host.names[lane.name[event]];
    view.selected = { rank, lane, event, level }; view.awaited = null;
    box.replaceChildren(listed([["On the host", name], ["What", { range: "range", operator: "operator", call: "runtime call", sync: "synchronising call", frame: "Python frame" }[what]], ["Rank", rank.rank], ["Thread", `${lane.label} (${lane.thread})`],
      ["Duration", TA.time(lane.length[event])], ["Start", TA.time(lane.start[event])]]));
    TA.redraw();
  };

  // From a wait to the rank that was awaited: shown beside it, with what it did until it came.
  TA.follow = (rank, op) => {
    const { view } = TA, last = TA.lastOf(view.data, rank, op), wait = rank.wait[rank.place[op]] - 1;
    if (!last?.rank || wait <= 0) return false;
    TA.details(rank, op);
    TA.reveal(view, rank.rank); TA.reveal(view, last.number);
    const from = rank.start[op], to = Math.min(rank.end[op], Math.max(from + wait, last.rank.start[last.op]));
    view.awaited = { rank: last.rank, op: last.op, from, to: Math.min(to, from + wait), source: { rank, op } };
    if (from < view.t0 || rank.end[op] > view.t1) { const margin = (rank.end[op] - from) * 0.15; TA.show(from - margin, rank.end[op] + margin); }
    TA.arrange();
    TA.scrollToRow((row) => row.rank === last.rank);
    byId("tl-details").prepend(meanwhile(last.rank, from, from + wait));
    TA.redraw();
    return true;
  };
  const meanwhile = (rank, from, to) => {
    const { view: { data } } = TA, box = document.createElement("div"), sums = TA.breakdown(rank, from, to);
    const parts = Object.entries(sums).filter(([name, ns]) => name !== "window" && ns > 0).sort((a, b) => b[1] - a[1]).map(([name, ns]) => `${WORDS.parts[name] ?? name} ${TA.time(ns)}`);
    const longest = new Map();
    for (let i = Math.max(0, TA.rowAt(rank.start, to)); i >= 0 && rank.start[i] > from - 1e9; i--) {
      const ns = Math.min(rank.end[i], to) - Math.max(rank.start[i], from);
      if (ns > 0) { const name = data.names[rank.name[i]][0]; longest.set(name, (longest.get(name) ?? 0) + ns); }
    }
    const doings = new Map();
    for (let i = 0; i < rank.gap.start.length; i++) {
      const ns = Math.min(rank.gap.start[i] + rank.gap.length[i], to) - Math.max(rank.gap.start[i], from);
      if (ns > 0 && rank.gap.doing[i]) { const name = data.doings[rank.gap.doing[i] - 1]; doings.set(name, (doings.get(name) ?? 0) + ns); }
    }
    const most = (map) => [...map].sort((a, b) => b[1] - a[1]).slice(0, 3).map(([name, ns]) => `${name} ${TA.time(ns)}`).join(", ") || "nothing";
    box.className = "tl-awaited";
    const line = document.createElement("p"); line.append(Object.assign(document.createElement("strong"), { textContent: `In the ${TA.time(to - from)} of this wait rank ${rank.rank} had: ` }), `${parts.join(", ") || "nothing recorded"}.`);
    const more = document.createElement("p"); more.textContent = `On its GPU longest: ${most(longest)}.${doings.size ? ` While the GPU was idle its host was longest in: ${most(doings)}.` : ""}`;
    box.append(line, more);
    return box;
  };

  TA.tip = (px, py, found) => {
    const { view } = TA, box = view.scroller.querySelector(".tl-tip");
    let text = "";
    if (found.op !== undefined && found.op !== null) {
      const { rank } = found.row, [short, , kind] = view.data.names[rank.name[found.op]], call = kind === "comm" ? rank.wait[rank.place[found.op]] : 0, last = call > 1 && TA.lastOf(view.data, rank, found.op);
      const isWait = last && found.t < rank.start[found.op] + call - 1, slack = TA.slackText(rank, found.op);
      text = `${short} · ${TA.time(rank.end[found.op] - rank.start[found.op])}${call > 1 ? ` (wait ${TA.time(call - 1)}${last ? ` for rank ${last.number}${isWait && last.rank ? ": click to see what it did" : ""}` : ""})` : ""}${slack ? ` · ${slack}` : ""}`;
    } else if (found.event !== undefined) {
      const { lane } = found.row;
      text = `${view.data.host.names[lane.name[found.event]][1]} · ${TA.time(lane.length[found.event])} · ${lane.label}`;
    } else if (found.row && found.t !== undefined) text = about(found);
    box.hidden = !text;
    if (!text) return;
    box.textContent = text;
    box.style.left = `${Math.max(0, Math.min(px + 12, view.width - box.offsetWidth - 4))}px`;
    box.style.top = `${py + 16 + view.scroll}px`;
  };
  const about = ({ row, t }) => {
    const { data } = TA.view, { rank } = row;
    if (row.part === "group") return `${TA.nameOf(row)}: click to ${row.isOpen ? "close" : "see each"}`;
    if (row.part === "counter") { const { counter } = row, i = TA.rowAt(counter.start, t); return i >= 0 && t < counter.start[i] + counter.length[i] ? counter.parts ? TA.memoryText(counter, i) : `${counter.name}: ${TA.amount(counter, counter.value[i])}` : ""; }
    if (row.part === "host") return "";
    if (row.part === "steps") { const s = rank.steps.find((item) => item[2] <= t && t < item[3]); return s ? `step ${s[1]} · ${TA.time(s[3] - s[2])}; click to see it alone` : ""; }
    if (row.part.startsWith("band")) { const b = rank.bands.find((item) => item[4] === Number(row.part.slice(4)) && item[2] <= t && t < item[3]); return b ? `${b[1]} · ${TA.time(b[3] - b[2])} on the GPU` : ""; }
    const at = TA.rowAt(rank.busy.s, t), from = at < 0 ? rank.first : rank.busy.e[at], to = rank.busy.s[at + 1];
    if (t < from || to === undefined) return "";
    const i = TA.rowAt(rank.gap.start, t), isGap = i >= 0 && t < rank.gap.start[i] + rank.gap.length[i], doing = isGap && rank.gap.doing[i];
    return `idle · ${TA.time(to - from)}${isGap ? ` · ${WORDS.causes[data.causes[rank.gap.cause[i]]]?.short ?? ""}${doing ? `: ${data.doings[doing - 1]}` : ""}` : ""}`;
  };
})();
