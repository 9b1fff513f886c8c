"use strict";
// Where everything lies: ranks on top, the others collapsed, of hundreds in groups that are opened on demand.
(() => {
  const TA = globalThis.TA;
  const AXIS = 24, BAND = 14, LANES = { compute: 22, comm: 22, copy: 14, unknown: 22, idle: 14 }, PAD = 8, FOLDED = 18, GROUP = 20, COUNTER = 24, MEMORY = 44;
  TA.AXIS = AXIS;
  TA.gutter = (width) => (width < 560 ? 62 : 126);

  // y of every row of the page: [{rank or group, part, y, height}], and the whole height.
  TA.layout = (view) => {
    const { data } = view, rows = [];
    let y = 4;
    const add = (row, height) => { rows.push({ ...row, y, height }); y += height; };
    const ofRank = (rank, why, inside = false) => {
      if (view.folded.has(rank.rank)) { add({ rank, part: "folded", why, inside }, FOLDED); y += 3; return; }
      const first = rows.length;
      if (rank.steps.length) add({ rank, part: "steps" }, BAND);
      const deepest = rank.bands.reduce((most, band) => Math.max(most, band[4]), -1);
      for (let depth = 0; depth <= deepest; depth++) add({ rank, part: `band${depth}` }, BAND);
      for (const lane of rank.lanes) if (lane.ops.length || lane.kind === "compute") { y += 1; add({ rank, part: lane.kind }, LANES[lane.kind] + (lane.rows > 2 ? 8 * (lane.rows - 2) : 0)); }
      y += 1; add({ rank, part: "idle" }, LANES.idle);
      for (const { lane, height } of TA.hostRows(rank, view)) { y += 2; add({ rank, part: "host", lane }, height); }
      for (const counter of TA.counterRows(rank, view)) { y += 1; add({ rank, part: "counter", counter }, counter.parts ? MEMORY : COUNTER); }
      rows[first].head = true; rows[first].why = why; rows[first].inside = inside;
      y += PAD;
    };
    const top = TA.topRanks(view);
    top.forEach(({ rank, why }) => ofRank(rank, why));
    const above = new Set(top.map(({ rank }) => rank));
    if (above.size && above.size < data.ranks.length) { view.divider = y; y += 5; } else view.divider = null;
    if (!data.groups.length) data.ranks.filter((rank) => !above.has(rank)).forEach((rank) => ofRank(rank, ""));
    else data.groups.forEach((group, at) => {
      const ranks = group.ranks.map((number) => data.rankOf.get(number)), isOpen = view.opened.has(at);
      add({ group, at, ranks, part: "group", isOpen }, GROUP); y += 2;
      if (isOpen) ranks.filter((rank) => !above.has(rank)).forEach((rank) => ofRank(rank, "", true));
    });
    return { rows, height: y };
  };

  // Of few ranks the order is their own; else who is late, who waits most, and whom a click asked for come first.
  TA.topRanks = (view) => {
    const { data } = view, made = new Map();
    const whys = new Map(data.pins.map((pin) => [pin.rank, pin.why]));
    if (data.ranks.length < data.few) return data.ranks.map((rank) => ({ rank, why: whys.get(rank.rank) ?? "" }));
    for (const number of [...whys.keys(), ...view.called]) { const rank = data.rankOf.get(number); if (rank) made.set(number, { rank, why: whys.get(number) ?? "" }); }
    return [...made.values()];
  };

  // Where the critical path runs on a rank: y of a lane's lower edge, of what is collapsed its middle.
  TA.places = (view) => {
    const found = new Map(), ofGroup = new Map();
    for (const row of view.layout.rows) {
      if (row.part === "group") { if (!row.isOpen) row.ranks.forEach((rank) => ofGroup.set(rank, row.y + row.height / 2)); continue; }
      const own = found.get(row.rank) ?? found.set(row.rank, {}).get(row.rank);
      if (row.part === "folded") own.any = row.y + row.height / 2;
      else if (row.part === "host") { if (!row.lane.frames) own.host ??= row.y + row.height - 4; }
      else own[row.part] = row.y + row.height - 3;
    }
    return (rank, lane) => {
      const own = found.get(rank), y = own ? own.any ?? own[lane] ?? own.idle : ofGroup.get(rank);
      return y === undefined ? undefined : y + AXIS - view.scroll;
    };
  };

  // Brings a rank to where it can be seen: expanded, and on top when it lies in a group or far below.
  TA.reveal = (view, number) => {
    const rank = view.data.rankOf.get(number);
    if (!rank) return false;
    view.folded.delete(number);
    if (view.data.ranks.length >= view.data.few && !view.called.includes(number)) view.called.push(number);
    return true;
  };

  TA.arrange = () => {
    const { view } = TA, { scroller, canvas } = view;
    view.layout = TA.layout(view); TA.keyed(view.layout);
    const total = view.layout.height + AXIS, shown = view.isPrinted ? total : Math.min(total, Math.max(260, Math.round(innerHeight * 0.78)));
    scroller.style.height = `${shown}px`;
    scroller.querySelector(".tl-spacer").style.height = `${total - shown}px`;
    canvas.style.height = `${shown}px`;
    view.height = shown;
    view.scroll = Math.min(view.scroll, Math.max(0, total - shown));
    view.ratio = Math.min(2, devicePixelRatio || 1); view.width = scroller.clientWidth; view.left = TA.gutter(view.width);
    canvas.width = Math.max(1, view.width * view.ratio); canvas.height = Math.max(1, view.height * view.ratio);
    TA.redraw();
  };
  TA.scrollToRow = (wanted) => {
    const { view } = TA, row = view.layout.rows.find(wanted);
    if (!row) return;
    const room = view.height - AXIS;
    if (row.y < view.scroll || row.y + Math.max(row.height, 90) > view.scroll + room) view.scroller.scrollTop = Math.max(0, row.y - 8);
    view.scroll = view.scroller.scrollTop;
  };
})();
