"use strict";
// The timeline's state, and where it can be sent: a stretch, a step, a rank, by button, link or address.
(() => {
  const TA = globalThis.TA;
  const LEAST = 100, byId = (id) => document.getElementById(id);

  const start = async () => {
    const box = byId("tl");
    if (!box) return;
    const data = await TA.loadTimeline();
    if (!data || !data.ranks.length) return;
    box.hidden = false;
    const canvas = byId("tl-canvas"), scroller = box.querySelector(".tl-scroll"), pinned = new Set(data.pins.map((pin) => pin.rank));
    const view = TA.view = { data, canvas, ctx: canvas.getContext("2d"), scroller, scroll: 0, dim: 1, step: null, opened: new Set(), called: [], shows: { host: true, counters: false, path: true }, hostDepth: 5,
      folded: new Set(data.ranks.length < data.few ? [] : data.ranks.map((r) => r.rank).filter((rank) => !pinned.has(rank))), colours: TA.colours() };
    const pad = data.end * 0.005, [from, to] = data.opening ?? [0, data.end]; view.whole = [-pad, data.end + pad];
    [view.t0, view.t1] = data.opening ? [Math.max(-pad, from - (to - from) * 0.005), Math.min(data.end + pad, to + (to - from) * 0.005)] : view.whole;
    TA.arrange();
    new ResizeObserver(() => { if (!view.isPrinted && scroller.clientWidth !== view.width) TA.arrange(); }).observe(scroller);
    document.addEventListener("themechange", () => { recolour(); TA.redraw(); });
    scroller.addEventListener("scroll", () => { view.scroll = scroller.scrollTop; TA.redraw(); }, { passive: true });
    onPaper(); TA.pointer(); TA.keys(); tools(box); TA.timelineLegend(view, box);
    TA.draw(view.ctx, view); TA.inView();
    await more(box);
    addEventListener("hashchange", follow); follow();
    document.documentElement.dataset.timeline = "ready";
  };
  const recolour = () => { TA.view.colours = TA.colours(); TA.view.fills = null; };

  // What the first picture does without.
  const more = async (box) => {
    const { view } = TA, { data } = view;
    await TA.loadLinks(data); await TA.loadPath(data); await TA.loadHost(data); await TA.loadCounters(data);
    const { path, host } = data, shares = (path.shares ?? []).map(([rank, share]) => `${share} % on rank ${rank}`).join(", ");
    byId("tl-path").textContent = path.count ? `Critical path: ${shares}. What lies on it makes the job longer; all else has slack.` : `No critical path is drawn: ${path.why_not}.`;
    byId("tl-host").textContent = host.note;
    box.querySelector("[data-show=path]").closest("label").hidden = !path.count;
    box.querySelectorAll("[data-show=host]").forEach((input) => { input.closest("label").hidden = !host.lanes.length; });
    byId("tl-depth").closest("label").hidden = !host.lanes.length;
    box.querySelector("[data-show=counters]").closest("label").hidden = !data.ranks.some((rank) => rank.counters.length);
    TA.timelineLegend(view, box); TA.arrange();
  };

  // Paper is white whatever the theme, holds every rank collapsed, and does not wait for the next frame.
  const onPaper = () => matchMedia("print").addEventListener("change", ({ matches }) => {
    const { view } = TA;
    if (matches) { view.before = { folded: view.folded, called: view.called }; view.folded = new Set(view.data.ranks.map((rank) => rank.rank)); view.called = []; }
    else if (view.before) Object.assign(view, view.before);
    view.isPrinted = matches; recolour(); TA.arrange(); TA.draw(view.ctx, view);
  });

  let waiting = 0;
  TA.redraw = () => { waiting ||= requestAnimationFrame(() => { waiting = 0; TA.draw(TA.view.ctx, TA.view); TA.inView(); }); };

  TA.show = (t0, t1, step = null) => {
    const { view } = TA, [low, high] = view.whole; view.step = step;
    const span = Math.min(high - low, Math.max(LEAST, t1 - t0));
    const from = Math.min(Math.max((t0 + t1 - span) / 2, low), high - span);
    view.t0 = from; view.t1 = from + span;
    TA.redraw(); announce();
  };
  TA.showTimeline = (t0, t1) => { TA.show(t0, t1); byId("timeline").scrollIntoView(); };
  TA.zoom = (factor, at = (TA.view.t0 + TA.view.t1) / 2) => TA.show(at - (at - TA.view.t0) * factor, at + (TA.view.t1 - at) * factor);
  TA.move = (share) => { const by = share * (TA.view.t1 - TA.view.t0); TA.show(TA.view.t0 + by, TA.view.t1 + by); };

  // Steps of the rank at the top of the picture: one for all ranks, since they share the time axis.
  TA.goStep = (by) => {
    const { view } = TA, steps = (view.data.ranks.find((r) => r.steps.length) ?? { steps: [] }).steps;
    if (!steps.length) return;
    const middle = (view.t0 + view.t1) / 2, isWhole = view.t1 - view.t0 > (steps[0][3] - steps[0][2]) * 1.5;
    let row = steps.findIndex((s) => (view.step === null ? !isWhole && s[2] <= middle && middle < s[3] : s[1] === view.step));
    row = row < 0 ? (by < 0 ? steps.length - 1 : 0) : Math.min(steps.length - 1, Math.max(0, row + by));
    TA.showStep(steps[row][1]);
  };
  TA.ofStep = (number) => TA.view.data.ranks.flatMap((rank) => rank.steps.filter((s) => s[1] === number).map((s) => [rank, s]));
  // A step is chosen for the whole page: the chart of steps and the tables mark it too.
  TA.showStep = (number) => {
    const all = TA.ofStep(number).map(([, s]) => s);
    if (!all.length) return;
    TA.show(all.reduce((least, s) => Math.min(least, s[2]), Infinity), all.reduce((most, s) => Math.max(most, s[3]), 0), number);
    document.dispatchEvent(new CustomEvent("stepchosen", { detail: number }));
  };

  // To ranks, and a stretch or a step of them; the first rank is scrolled to.
  TA.go = ({ ranks = [], from, to, step }) => {
    const { view } = TA, known = ranks.filter((rank) => TA.reveal(view, rank));
    TA.arrange(); TA.named();
    if (Number.isFinite(from) && to > from) { const margin = (to - from) * 0.1; TA.show(from - margin, to + margin); }
    else if (Number.isFinite(step)) TA.showStep(step);
    byId("timeline").scrollIntoView();
    if (known.length) { TA.scrollToRow((row) => row.rank?.rank === known[0]); view.focus = view.layout.rows.find((row) => row.rank?.rank === known[0])?.key; }
    TA.redraw();
    return known.length === ranks.length;
  };
  // An address such as summary.html#timeline?rank=3&step=2, or &from=…&to=… in ns, leads there.
  const follow = () => {
    if (!location.hash.startsWith("#timeline?")) return;
    const asked = new URLSearchParams(location.hash.slice("#timeline?".length)), number = (name) => (asked.has(name) ? Number(asked.get(name)) : undefined);
    const ranks = asked.getAll("rank").flatMap((text) => text.split(",").map(Number)), { data } = TA.view;
    // A row of a table has its moment after the first operation of the run, on the rank's own clock.
    const moved = data.shifts[data.ranks.findIndex((rank) => rank.rank === ranks[0])] ?? 0, at = number("at") === undefined ? undefined : number("at") + moved;
    TA.go({ ranks, from: number("from") ?? at, to: number("to") ?? (at === undefined ? undefined : at + Math.max(number("for") ?? 0, 1000)), step: number("step") });
  };
  const address = () => {
    const { view } = TA, top = TA.topRanks(view).map(({ rank }) => rank.rank).filter((rank) => view.called.includes(rank)), parts = [];
    if (top.length) parts.push(`rank=${top.slice(-3).join(",")}`);
    parts.push(view.step === null ? `from=${Math.round(view.t0)}&to=${Math.round(view.t1)}` : `step=${view.step}`);
    return `#timeline?${parts.join("&")}`;
  };

  let later = 0;
  TA.say = (text) => { byId("tl-live").textContent = text; };
  const announce = () => { clearTimeout(later); later = setTimeout(() => {
    TA.say(byId("tl-window-title").textContent);
    // The address bar holds what is seen, so that it can be sent.
    try { history.replaceState(null, "", address()); } catch { /* a page in a frame may not */ }
  }, 600); };

  const tools = (box) => {
    const { view } = TA, button = box.querySelector("[data-do=fold]");
    const foldAll = () => { if (view.folded.size) view.folded.clear(); else view.data.ranks.forEach((r) => view.folded.add(r.rank)); TA.arrange(); };
    const does = { whole: () => TA.show(...view.whole), in: () => TA.zoom(0.5), out: () => TA.zoom(2), step: () => TA.goStep(0), previous: () => TA.goStep(-1), next: () => TA.goStep(1), fold: foldAll, save: () => TA.saveTraceEvents(view.data) };
    TA.named = () => { if (button) button.textContent = view.folded.size ? "Expand ranks" : "Collapse ranks"; };
    box.querySelector(".tl-tools").addEventListener("click", (e) => { const name = e.target.dataset?.do; if (name) { does[name](); TA.named(); } });
    TA.named();
    box.querySelector(".tl-steps").hidden = !view.data.steps.length;
    box.querySelectorAll("[data-show]").forEach((input) => { input.checked = view.shows[input.dataset.show]; input.addEventListener("change", () => { view.shows[input.dataset.show] = input.checked; TA.timelineLegend(view, box); TA.arrange(); }); });
    byId("tl-depth").addEventListener("change", (e) => { view.hostDepth = Number(e.target.value); TA.arrange(); });
    document.querySelectorAll(".show-interval").forEach((b) => b.addEventListener("click", () => {
      const zero = BigInt(view.data.zero), [from, to] = [b.dataset.start, b.dataset.end].map((t) => (t ? Number(BigInt(t) - zero) : NaN));
      TA.go({ ranks: (b.dataset.ranks ?? "").split(",").filter(Boolean).map(Number), from, to, step: b.dataset.step ? Number(b.dataset.step) : undefined });
    }));
    search(view);
  };
  const search = (view) => byId("tl-search").addEventListener("input", (e) => {
    const wanted = e.target.value.trim().toLowerCase(), { data } = view;
    const ids = data.names.flatMap(([short, full], i) => (`${short}\n${full}`.toLowerCase().includes(wanted) ? [i] : []));
    // By its own name, or by the operator that launched it: of that the name alone, not the shapes behind it.
    const named = new Set(ids), launchers = new Set(data.operators.flatMap((text, i) => (text.split(" ")[0].toLowerCase().includes(wanted) ? [i + 1] : [])));
    view.found = wanted ? { has: (rank, op) => named.has(rank.name[op]) || launchers.has(rank.operator[op]) } : null; view.dim = wanted ? 0.25 : 1;
    let count = 0, time = 0;
    if (wanted) for (const rank of data.ranks) for (let i = 0; i < rank.count; i++) if (view.found.has(rank, i)) { count++; time += rank.end[i] - rank.start[i]; }
    byId("tl-found").textContent = wanted ? `${count.toLocaleString("en-US")} operations, ${TA.time(time)} in all${hiddenIn(wanted, ids)}${ids.length ? "" : launchedBy(launchers)}` : "";
    TA.redraw();
  });
  const launchedBy = (launchers) => {
    const [first, ...others] = new Set([...launchers].map((i) => TA.view.data.operators[i - 1].split(" ")[0]));
    return first ? `; launched by ${first}${others.length ? ` and ${others.length} more` : ""}` : "";
  };
  // Why something is found whose short name does not hold the word: where it stands in the full name.
  const hiddenIn = (wanted, ids) => {
    const full = ids.map((i) => TA.view.data.names[i]).filter(([short]) => !short.toLowerCase().includes(wanted)).map(([, name]) => name);
    if (!full.length) return "";
    const [name] = full, at = name.toLowerCase().indexOf(wanted), from = Math.max(0, at - 24), to = at + wanted.length + 24;
    const others = full.length > 1 ? ` and ${full.length - 1} more` : "";
    return `; in the full name “${from ? "…" : ""}${name.slice(from, to)}${to < name.length ? "…" : ""}”${others}`;
  };

  start();
})();
