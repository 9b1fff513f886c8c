"use strict";
// The table below the timeline, of what is in view, and its legend.
(() => {
  const TA = globalThis.TA, WORDS = TA.words;
  const byId = (id) => document.getElementById(id);

  const PARTS = ["compute", "transfer", "wait", "comm", "copy", "unknown", "idle"].map((kind) => [kind, WORDS.parts[kind]]);
  const parts = (view) => PARTS.filter(([name]) => name === "idle" || view.data.ranks.some((rank) => rank.parts[name].s.length)).map(([name, text]) => [name, name === "comm" ? (view.data.hasWaits ? view.data.unsplit : text) : text]);
  const cell = (tag, text, ns) => { const item = document.createElement(tag); item.textContent = text; if (ns !== undefined) { item.className = "n"; item.dataset.v = ns; } return item; };
  // A row for each rank; on a phone a column for each, or nothing would fit.
  TA.inView = () => {
    const { view } = TA, t0 = Math.max(0, Math.round(view.t0)), t1 = Math.min(view.data.end, Math.round(view.t1)), isNarrow = view.width < 560, most = isNarrow ? 2 : 8;
    // Of a step each rank's own window: the common stretch holds a part of its neighbours.
    const spans = view.step === null ? view.data.ranks.map((rank) => [rank, t0, t1]) : TA.ofStep(view.step).map(([rank, s]) => [rank, s[2], s[3]]);
    const sums = spans.map(([rank, from, to]) => ({ rank, ...TA.breakdown(rank, from, to) }));
    // Those on top of the timeline first: of many ranks who is late loses nothing itself.
    const onTop = TA.topRanks(view).map(({ rank }) => rank), lost = (sum) => sum.wait + sum.comm + sum.idle, place = (sum) => (onTop.includes(sum.rank) ? onTop.indexOf(sum.rank) : onTop.length);
    const shown = sums.length <= most ? sums : [...sums].sort((a, b) => place(a) - place(b) || lost(b) - lost(a)).slice(0, most);
    const head = (text, scope, isNumber) => { const th = cell("th", text); th.scope = scope; if (isNumber) th.className = "n"; return th; };
    const rows = [[head("rank", "col"), head("time", "col", true), ...parts(view).map(([, text]) => head(text, "col", true))]];
    for (const sum of shown) {
      const each = parts(view).map(([name]) => cell("td", sum[name] === null ? "n/a" : sum[name] ? `${TA.time(sum[name])} · ${TA.percent(sum[name], sum.window)}` : "0", sum[name] ?? -1));
      rows.push([head(`rank ${sum.rank.rank}`, "row"), cell("td", TA.time(sum.window), sum.window), ...each]);
    }
    const lines = isNarrow ? rows[0].map((_, at) => rows.map((row) => row[at])) : rows;
    if (isNarrow) lines.forEach(([first], at) => { first.scope = at ? "row" : "col"; first.className = ""; });
    if (isNarrow) lines[0].slice(1).forEach((th) => { th.scope = "col"; th.className = "n"; });
    const table = document.createElement("table"), top = table.createTHead(), body = table.createTBody();
    lines.forEach((line, at) => (at ? body : top).insertRow().append(...line));
    byId("tl-window").replaceChildren(table);
    const more = sums.length > most ? `${most} ranks of ${sums.length}: those on top, and those that lose most` : "";
    const [what, note] = viewed(view, t0, t1), small = document.createElement("span");
    small.className = "quiet"; small.textContent = [note, more].filter(Boolean).join("; ");
    byId("tl-window-title").replaceChildren(`In view: ${what} `, small);
  };
  // What is in view, and why that of several ranks is longer than of each: they do not begin and end together.
  const viewed = (view, t0, t1) => {
    const { ranks } = view.data, span = TA.time(t1 - t0), own = view.step === null ? [] : TA.ofStep(view.step);
    if (own.length) {
      const who = own.length === 1 ? `rank ${own[0][0].rank}` : `${own.length === ranks.length ? "all" : own.length} ranks`, each = between(own.map(([, s]) => s[3] - s[2]));
      return [`step ${view.step} of ${who}, ${span}`, each === span ? "" : `from the first one’s start to the last one’s end; each row is of the rank’s own step, which takes ${each}`];
    }
    if (t0 > 0 || t1 < view.data.end) return [`${span}, from ${TA.time(t0)} on`, ""];
    return [`the whole capture, ${span}`, ranks.length > 1 ? "from the first operation of any rank to the last of any" : ""];
  };
  const between = (spans) => { const [low, high] = [Math.min(...spans), Math.max(...spans)].map(TA.time); return low === high ? low : `${low} to ${high}`; };

  TA.timelineLegend = (view, box) => {
    const list = box.querySelector(".tl-legend"); list.replaceChildren();
    const kinds = view.data.hasWaits ? [["compute"], ["transfer"], ["wait"], ...(view.data.ranks.some((rank) => rank.parts.comm.s.length) ? [["unmatched", `communication${view.data.unsplit.replace(/^exposed,?/, ":")}`]] : []), ["copy"]] : [["compute"], ["transfer", "communication"], ["copy"]];
    if (view.data.ranks.some((rank) => rank.parts.unknown.s.length)) kinds.push(["unknown", WORDS.kinds.unknown.label]);
    const { causes, knows_causes } = view.data;
    const isDrawn = (cause) => causes.includes(cause) || cause === WORDS.between;
    if (view.data.packed.host && view.shows.host) kinds.push(...[["host-range", "range on the host"], ["host-operator", "operator"], ["host-call", "runtime call"], ["host-sync", "synchronising call"], ["host-frame", "Python frame"]].filter(([kind]) => (view.data.host?.names ?? []).some(([what]) => `host-${what}` === kind)));
    kinds.push(...(knows_causes ? Object.entries(WORDS.causes).filter(([cause]) => isDrawn(cause)).map(([, { kind }]) => [kind, WORDS.parts[kind]]) : [["idle"]]));
    for (const [kind, text = kind] of kinds) {
      const item = document.createElement("li"), from = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      from.setAttribute("class", "swatch"); from.setAttribute("width", 14); from.setAttribute("height", 14); from.setAttribute("aria-hidden", "true");
      for (const name of WORDS.patterns[kind] ? [`k-${kind}`, `p-${kind}`] : [`k-${kind}`]) { const r = document.createElementNS("http://www.w3.org/2000/svg", "rect"); r.setAttribute("width", 14); r.setAttribute("height", 14); r.setAttribute("class", name); from.append(r); }
      item.append(from, ` ${text}`); list.append(item);
    }
  };
})();
